"""The ready-made middleware: logs, metrics, traces and error reports."""

from __future__ import annotations

import logging

import prometheus_client
import pytest

import penstock
from penstock import telemetry
from penstock.tasks.middlewares import CountRuns, LogRuns, ReportErrors, TraceRuns


def test_runs_are_logged_counted_and_their_errors_reported(caplog: pytest.LogCaptureFixture) -> None:
    registry = prometheus_client.CollectorRegistry()
    errors: list[BaseException] = []
    app = penstock.App(":memory:", middleware=[LogRuns(), CountRuns(registry), ReportErrors(errors.append)])

    @app.task(retry="2x then bury")
    def divide(x: int, y: int) -> float:
        return x / y

    @app.task
    def give_up() -> None:
        raise penstock.Bury("no")

    with caplog.at_level(logging.INFO), app.testing() as tasks:
        divide.put(1, 2)
        divide.put(1, 0)
        give_up.put()
        tasks.drain()
    assert [type(error) for error in errors] == [ZeroDivisionError] * 2
    assert "task done: task=divide" in caplog.text and "attempt=2" in caplog.text
    labels = {"task": "divide", "outcome": "zerodivisionerror"}
    assert registry.get_sample_value("penstock_task_runs_total", labels) == 2
    assert registry.get_sample_value("penstock_task_run_seconds_count", {"task": "divide"}) == 3


def test_a_trace_goes_through_put_run_and_put() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry.instrument(provider)
    try:
        app = penstock.App(":memory:", middleware=[TraceRuns()])

        @app.task
        def first() -> None:
            second.put()

        @app.task
        async def second() -> None: ...

        with app.testing() as tasks:
            with provider.get_tracer("test").start_as_current_span("request") as request:
                first.put()
            tasks.drain()
        trace = request.get_span_context().trace_id
        runs = [span for span in spans.get_finished_spans() if span.name.startswith("process")]
        assert [span.context.trace_id for span in runs] == [trace, trace]
    finally:
        telemetry.uninstrument()
