"""The trace log has a span for each put of a sampled trace, and for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.server import trace_log
from penstock.server.trace_log import TraceLog
from tests.ports import free_port
from tests.server.raw_clients import Refusal, serving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"


def spans_in(file: Path) -> list[dict[str, Any]]:
    found = []
    for line in file.read_text().splitlines():
        (resource,) = json.loads(line)["resourceSpans"]
        (scope,) = resource["scopeSpans"]
        found += scope["spans"]
    return found


def attributes(span: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"]["stringValue"] for each in span["attributes"]}


def test_puts_of_a_sampled_trace_have_spans(tmp_path: Path) -> None:
    flags = ["--iproto-port", "0", "--cluster-port", str(free_port()), "--trace-log", "spans.jsonl"]
    header = ["HEADER", "traceparent"]
    with serving(tmp_path, *flags) as server, server.client() as client:
        assert not isinstance(client.ask("PUT", "mails", "body", *header, SAMPLED), Refusal)
        assert not isinstance(client.ask("ADDJOB", "queue", "body", "0", "header", "traceparent", SAMPLED), Refusal)
        assert not isinstance(client.ask("MPUT", "many", "JOB", "a", "JOB", "b", *header, SAMPLED), Refusal)
        assert not isinstance(client.ask("STAGE", "stage", "staged", "JOB", "a", *header, SAMPLED), Refusal)
        # No span: unsampled, malformed, not a header, not a put.
        client.ask("PUT", "mails", "body", *header, f"00-{TRACE}-{SPAN}-00")
        client.ask("PUT", "mails", "body", *header, "x")
        client.ask("PUT", "mails", "body", *header)
        client.ask("PUT", "mails", "traceparent")
        client.ask("PUT", "traceparent", SAMPLED)
        client.ask("ECHO", *header, SAMPLED)
        assert client.ask("SLOWLOG", "LEN") == 0
    file = tmp_path / "data" / "spans.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    spans = spans_in(file)
    assert [span["name"] for span in spans] == ["put mails", "addjob queue", "mput many", "stage staged"]
    for span in spans:
        assert (span["traceId"], span["parentSpanId"], span["kind"]) == (TRACE, SPAN, 2)
        assert len(span["spanId"]) == 16 and int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    assert len({span["spanId"] for span in spans}) == 4
    assert attributes(spans[0])["messaging.destination.name"] == "mails"


def put(log: TraceLog) -> None:
    log.add(b"put", [b"PUT", b"mails", b"body", b"HEADER", b"traceparent", SAMPLED.encode()], "here", 1_000)


def test_a_long_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_log, "_FILE_BYTES_MAX", 1)
    log = TraceLog(tmp_path / "spans", "node")
    put(log)
    log.close()
    assert len(spans_in(tmp_path / "spans.1")) == 1 and spans_in(tmp_path / "spans") == []


def test_an_unwritable_file_is_reported_once_and_does_not_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = TraceLog(tmp_path / "no directory" / "spans", "node")
    for _ in range(3):
        put(log)
    log.close()
    assert log.dropped == 3
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "trace log not written",
        "spans dropped",
    ]
