"""The spans of calls on a queue, by OpenTelemetry's conventions for messaging.

    operation          span                  kind       parent, and links to the puts of the jobs
    put                "put TUBE"            PRODUCER   the current span; without one there is no span and no header
    take               "take TUBE"           CLIENT     the current span, with links; only if a job came, and is traced
    process            "process TUBE"        CONSUMER   the put, for the first delivery; a root with a link for others
    ack, nack, …       "ack TUBE"            CLIENT     the current span, with a link; only if the job is traced

A job is traced if there is a current span or its headers contain a context. An operation is a context manager around
the call. Calls inside of another operation have no spans of their own, because asyncio queues call blocking ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer
from opentelemetry.util.types import AttributeValue

from penstock.telemetry.context import context_of, is_traced, links_to, with_context

_is_inside: ContextVar[bool] = ContextVar("penstock_operation", default=False)

_SYSTEM: Final = "penstock"


class Operation:
    """A call that has a span, and the keyword arguments with which it is made."""

    def __init__(self, tracer: Tracer, word: str, handle: Any, tube: str, kwargs: dict[str, Any]) -> None:
        """`word` is the name of the method, and `handle` the object that it is called on."""
        self.kwargs = kwargs
        self._tracer = tracer
        self._name = f"{word} {tube}" if tube else word
        self._word = word
        self._handle = handle
        self._tube = tube
        self._stack = ExitStack()

    def __enter__(self) -> Operation:
        token = _is_inside.set(True)
        self._stack.callback(_is_inside.reset, token)
        self.begin()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def begin(self) -> None:
        """Start the span."""

    def finish(self, result: Any) -> None:
        """Add the result of the call to the span."""

    def attributes(self, kind: str) -> dict[str, AttributeValue]:
        """Return the attributes of a span. `kind` is the general type of the operation."""
        return attributes(self._word, kind, self._tube, self._handle)


class PutOperation(Operation):
    """A put of one job or of several. It adds the context of its span to the headers of the jobs."""

    _span: Span

    def begin(self) -> None:
        span = self._tracer.start_as_current_span(
            self._name, kind=SpanKind.PRODUCER, attributes=self.attributes("send")
        )
        self._span = self._stack.enter_context(span)
        self._stack.enter_context(_errors_of(self._span))
        self.kwargs["headers"] = with_context(self.kwargs.get("headers"))

    def finish(self, result: Any) -> None:
        self._span.set_attributes(_attributes_of(_jobs(result)))


class TakeOperation(Operation):
    """A take. Its span starts when the call starts, but is only made if the call returns a job that is traced."""

    def begin(self) -> None:
        self._began_ns = time.time_ns()

    def finish(self, result: Any) -> None:
        jobs = _jobs(result)
        contexts = [context_of(job.headers) for job in jobs]
        if jobs and (is_traced() or any(contexts)):
            span = self._tracer.start_span(
                self._name,
                kind=SpanKind.CLIENT,
                attributes=self.attributes("receive") | _attributes_of(jobs),
                links=links_to(contexts),
                start_time=self._began_ns,
            )
            span.end()


class SettleOperation(Operation):
    """A call that settles a taken job: ack, nack, release and the like. The handle is the job."""

    def begin(self) -> None:
        context = context_of(self._handle.headers)
        if context is None and not is_traced():
            return
        span = self._tracer.start_as_current_span(
            self._name,
            kind=SpanKind.CLIENT,
            attributes=self.attributes("settle") | _attributes_of([self._handle]),
            links=links_to([context]),
        )
        self._stack.enter_context(_errors_of(self._stack.enter_context(span)))


def is_inside() -> bool:
    """Return whether the running code is part of an operation."""
    return _is_inside.get()


@contextmanager
def processing(tracer: Tracer, job: Any) -> Iterator[Span]:
    """Make a span for the processing of a taken job the current span. It ends with the block.

    The first delivery of a job continues the trace of its put. Later ones start a new trace with a link to the put, so
    that a trace does not contain the same work several times.
    """
    context = context_of(job.headers)
    is_first = job.deliveries <= 1
    span = tracer.start_as_current_span(
        f"process {job.tube}",
        context=(context if is_first else Context()) if context is not None else None,
        kind=SpanKind.CONSUMER,
        attributes=attributes("process", "process", job.tube, job)
        | _attributes_of([job])
        | {"penstock.job.deliveries": job.deliveries},
        links=[] if is_first else links_to([context]),
    )
    with span as current, _errors_of(current):
        yield current


def attributes(word: str, kind: str, tube: str, handle: Any) -> dict[str, AttributeValue]:
    """Return the common attributes of all spans."""
    found: dict[str, AttributeValue] = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": word,
        "messaging.operation.type": kind,
    }
    if tube:
        found["messaging.destination.name"] = tube
    # A handle of a client refers to its queue, and the queue to the addresses of the server.
    target = getattr(getattr(handle, "_queue", handle), "_target", None)
    if target is not None:
        found["server.address"], found["server.port"] = target.seeds[0]
    return found


def _jobs(result: Any) -> list[Any]:
    """Return the jobs in the result of a put or a take."""
    return [] if result is None else result if isinstance(result, list) else [result]


def _attributes_of(jobs: list[Any]) -> dict[str, AttributeValue]:
    if len(jobs) == 1:
        return {"messaging.message.id": jobs[0].id}
    return {"messaging.batch.message_count": len(jobs)}


@contextmanager
def _errors_of(span: Span) -> Iterator[None]:
    """Add the type of an exception that ends the block: the code of an error of the queue, or the class."""
    try:
        yield
    except Exception as error:
        span.set_attribute("error.type", getattr(error, "code", None) or type(error).__qualname__)
        raise


def tracer_of(provider: trace.TracerProvider | None, version: str) -> Tracer:
    """Return the tracer of this library. Without a provider, it is that of the program, even if that is set later."""
    return trace.get_tracer("penstock", version, provider)
