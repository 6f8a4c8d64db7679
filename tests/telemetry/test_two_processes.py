"""A producer and a worker in two processes: their spans, exported to files, make one trace per delivery."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.server.serving import PATIENCE_S, Server, environment

_SETUP = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
import penstock, penstock.telemetry

file = open(sys.argv[1], "w")
exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\\n")
penstock.telemetry.instrument()
trace.set_tracer_provider(TracerProvider())   # Also a provider that is set later is used.
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
queue = penstock.connect(sys.argv[2])
tube = queue.tube("mails", retry="3x const(1ms) then bury")
"""

PRODUCER = (
    _SETUP
    + """
with trace.get_tracer("shop").start_as_current_span("order"):
    tube.put({"to": "ann"})
tube.put("untraced")
"""
)

WORKER = (
    _SETUP
    + """
for attempt in range(3):
    job = tube.take(timeout=20)
    try:
        with job:
            if job.headers and job.deliveries == 1:
                raise OSError("the mail server is down")
            with trace.get_tracer("mailer").start_as_current_span("send"):
                pass
    except OSError:
        pass
"""
)


def run(script: str, file: Path, url: str) -> list[dict[str, Any]]:
    """Run a script that exports its spans to `file`. Return the spans."""
    subprocess.run([sys.executable, "-c", script, file, url], check=True, timeout=PATIENCE_S * 3, env=environment())
    return [json.loads(line) for line in file.read_text().splitlines()]


def trace_of(span: dict[str, Any]) -> str:
    return str(span["context"]["trace_id"])


def test_the_spans_of_two_processes_are_joined_by_the_trace(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        url = f"penstock://127.0.0.1:{server.port}"
        produced = {span["name"]: span for span in run(PRODUCER, tmp_path / "producer.jsonl", url)}
        worked = run(WORKER, tmp_path / "worker.jsonl", url)
    finally:
        server.stop()
    assert list(produced) == ["put mails", "order"]
    put, order = produced["put mails"], produced["order"]
    assert put["parent_id"] == order["context"]["span_id"] and trace_of(put) == trace_of(order)

    first = [span for span in worked if trace_of(span) == trace_of(put)]
    assert [span["name"] for span in first] == ["nack mails", "process mails"]
    assert first[1]["parent_id"] == put["context"]["span_id"]
    assert first[1]["status"]["status_code"] == "ERROR"

    retries = [span for span in worked if span["name"] == "process mails" and span["links"]]
    assert len(retries) == 1 and retries[0]["parent_id"] is None and trace_of(retries[0]) != trace_of(put)
    assert retries[0]["links"][0]["context"] == put["context"]
    retried = [span["name"] for span in worked if trace_of(span) == trace_of(retries[0])]
    assert retried == ["send", "ack mails", "process mails"]
