"""Spans of the four kinds of queues: names, kinds, attributes, parents and links."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

import penstock
import penstock.telemetry
from tests.server.serving import Server

HOST = "127.0.0.1"


class Recorder:
    """The finished spans, and a tracer for spans of the test."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer: Tracer = self.provider.get_tracer("test")

    def spans(self) -> list[ReadableSpan]:
        """Return the spans that ended since the last call."""
        found = list(self._memory.get_finished_spans())
        self._memory.clear()
        return found

    def by_name(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.spans()}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    penstock.telemetry.instrument(recorder.provider)
    yield recorder
    penstock.telemetry.uninstrument()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("traced"))
    yield server
    server.stop()


@pytest.fixture(params=["embedded", "client"])
def place(request: pytest.FixtureRequest, server: Server) -> str:
    return ":memory:" if request.param == "embedded" else f"penstock://{HOST}:{server.port}"


@pytest.fixture
def queue(place: str) -> Iterator[penstock.Queue]:
    with penstock.open(place) if place == ":memory:" else penstock.connect(place) as queue:
        yield queue


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_one_trace_leads_from_the_put_to_the_ack(queue: penstock.Queue, place: str, recorder: Recorder) -> None:
    mails = queue.tube("mails")
    with recorder.tracer.start_as_current_span("request"):
        put = mails.put("to: bob", headers={"tenant": "acme"})
    job = mails.take()
    assert job is not None and job.headers["tenant"] == "acme"
    with job, recorder.tracer.start_as_current_span("work"):
        pass
    spans = recorder.by_name()
    assert list(spans) == ["put mails", "request", "take mails", "work", "ack mails", "process mails"]
    request, sent, work = spans["request"], spans["put mails"], spans["work"]
    process, settled, taken = spans["process mails"], spans["ack mails"], spans["take mails"]
    assert parent_of(sent) == ids(request)
    assert parent_of(process) == ids(sent)
    assert parent_of(work) == parent_of(settled) == ids(process)
    assert parent_of(taken) is None and linked(taken) == linked(settled) == [ids(sent)]
    assert [span.kind for span in (sent, taken, process, settled)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    common = {"messaging.system": "penstock", "messaging.destination.name": "mails", "messaging.message.id": put.id}
    if place != ":memory:":
        common |= {"server.address": HOST, "server.port": int(place.rpartition(":")[2])}  # type: ignore[dict-item]
    for span, name, kind in (
        (sent, "put", "send"),
        (taken, "take", "receive"),
        (process, "process", "process"),
        (settled, "ack", "settle"),
    ):
        own = {"messaging.operation.name": name, "messaging.operation.type": kind}
        if name == "process":
            own["penstock.job.deliveries"] = 1  # type: ignore[assignment]
        assert dict(span.attributes or {}) == common | own


def test_a_retry_is_a_new_trace_with_a_link_to_the_put(queue: penstock.Queue, recorder: Recorder) -> None:
    tube = queue.tube("retried", retry="3x const(1ms) then bury")
    with recorder.tracer.start_as_current_span("request"):
        tube.put("job")
    for attempt in range(2):
        job = tube.take(timeout=20)
        assert job is not None
        with pytest.raises(ZeroDivisionError) if attempt == 0 else recorder.tracer.start_as_current_span("ok"), job:
            assert 1 / attempt
    spans = recorder.spans()
    (sent,) = [span for span in spans if span.name == "put retried"]
    first, second = [span for span in spans if span.name == "process retried"]
    assert parent_of(first) == ids(sent) and linked(first) == []
    assert parent_of(second) is None and linked(second) == [ids(sent)] and ids(second)[0] != ids(sent)[0]
    assert first.status.status_code is StatusCode.ERROR and second.status.is_ok is not False
    assert (first.attributes or {})["error.type"] == "ZeroDivisionError"
    (failed,) = [span for span in spans if span.name == "nack retried"]
    assert parent_of(failed) == ids(first)


def test_without_a_span_a_put_adds_no_header_and_no_span(queue: penstock.Queue, recorder: Recorder) -> None:
    tube = queue.tube("plain")
    tube.put("one")
    tube.put_many(["two"])
    for job in tube.take_many(2):
        assert job.headers == {}
        job.ack()
    assert recorder.spans() == []


def test_many_jobs_share_a_span_and_keep_a_context_of_their_own(queue: penstock.Queue, recorder: Recorder) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    tube = queue.tube("many")
    with recorder.tracer.start_as_current_span("request"):
        tube.put_many(["a", penstock.NewJob("b", headers={"traceparent": own, "x": "y"})], headers={"x": "z"})
        with queue.stage("batch") as stage:
            stage.put_many("many", ["c"])
    jobs = tube.take_many(3)
    queue.take([queue.tube("other")])
    spans = recorder.spans()
    assert [span.name for span in spans] == ["put many", "put many", "request", "take many"]
    assert (spans[0].attributes or {})["messaging.batch.message_count"] == 2
    assert jobs[1].headers == {"traceparent": own, "x": "y"} and jobs[0].headers["x"] == "z"
    contexts = [ids(spans[0]), (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331), ids(spans[1])]
    assert linked(spans[3]) == contexts


def test_a_refused_put_is_an_error_of_its_span(queue: penstock.Queue, recorder: Recorder) -> None:
    tube = queue.tube("small", capacity=1)
    tube.put("one")
    with recorder.tracer.start_as_current_span("request"), pytest.raises(penstock.Full):
        tube.put("two")
    span = recorder.by_name()["put small"]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "FULL"
    tube.drop()


def test_a_malformed_context_is_ignored(queue: penstock.Queue, recorder: Recorder) -> None:
    tube = queue.tube("malformed")
    for value in ("", "00-0-0-01", "x" * 1_000, b"\xff\xfe", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"):
        tube.put("job", headers={"traceparent": value, "tracestate": b"\xff"})
        with penstock.telemetry.process(tube.take()):
            pass
    spans = recorder.spans()
    assert [span.name for span in spans] == ["process malformed"] * 5
    assert all(span.parent is None and not span.links for span in spans)


def test_asyncio_queues_have_the_same_spans(place: str, recorder: Recorder) -> None:
    async def main() -> None:
        opened: Any = penstock.open_async(place) if place == ":memory:" else penstock.connect_async(place)
        async with await opened if asyncio.iscoroutine(opened) else opened as queue:
            tube = await queue.tube("async")
            with recorder.tracer.start_as_current_span("request"):
                await tube.put("job", timeout=1)
                await tube.put_many(["another"])
            for job in [await tube.take(timeout=20), *await tube.take_many(1)]:
                async with job:
                    pass

    asyncio.run(main())
    spans = recorder.spans()
    sent, others, request = spans[:3]
    assert [span.name for span in spans[:3]] == ["put async", "put async", "request"]
    assert parent_of(sent) == parent_of(others) == ids(request)
    assert [span.name for span in spans[3:]] == ["take async", "take async"] + ["ack async", "process async"] * 2
    assert [parent_of(span) for span in spans if span.name == "process async"] == [ids(sent), ids(others)]


def test_nothing_is_left_after_uninstrument(queue: penstock.Queue) -> None:
    before = (type(queue.tube("x")).put, type(queue.tube("x")).take, penstock.Job.__enter__)
    recorder = Recorder()
    penstock.telemetry.instrument(recorder.provider)
    penstock.telemetry.instrument()
    assert before[0] is not type(queue.tube("x")).put
    penstock.telemetry.uninstrument()
    assert before == (type(queue.tube("x")).put, type(queue.tube("x")).take, penstock.Job.__enter__)
    tube = queue.tube("after")
    with recorder.tracer.start_as_current_span("request"):
        job = tube.put("job")
        with penstock.telemetry.process(job):
            assert job.headers == {}
    assert [span.name for span in recorder.spans()] == ["request"]
