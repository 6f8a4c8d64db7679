"""The trace log: a span for each put that belongs to a sampled trace, as a line of OTLP JSON in a file.

    trace-log = "spans.jsonl"

OpenTelemetry's collector reads such a file with its receiver `otlpjsonfile`. A put belongs to a trace if one of its
headers is a `traceparent`. A thread writes the file. If it is too slow, spans are dropped and counted, so that the log
never delays a command. Without the setting, no command is examined.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.server.config.words import to_text

_log = logging.getLogger("penstock")

# At most this many spans wait for the thread.
_WAITING_MAX: Final = 10_000

# A longer file is renamed to FILE.1 and replaced by a new one, so that two files of this size are the maximum.
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024

_TRACEPARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1

# The number of OTLP for the kind of spans that a server makes for requests.
_KIND_SERVER: Final = 2

# Commands that put jobs, and the index of the word with the tube.
_TUBE_AT: Final = {b"put": 1, b"mput": 1, b"addjob": 1, b"stage": 2}


class TraceLog:
    """Writes the spans of puts to a file."""

    def __init__(self, path: Path, node: str) -> None:
        self.dropped = 0  # Spans that were dropped because the thread was too slow.
        self._path = path
        self._resource = _attributes({"service.name": "penstock", "service.instance.id": node})
        self._spans: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._write_all, name="penstock-traces", daemon=True)
        self._thread.start()

    def add(self, command: bytes, args: list[bytes], address: str, ns: int) -> None:
        """Record a command that has just run for `ns` nanoseconds, if it is a put of a sampled trace."""
        found = _context_in(args) if command in _TUBE_AT and b"traceparent" in args else None
        if found is None:
            return
        trace_id, parent_id = found
        ended = time.time_ns()
        at = _TUBE_AT[command]
        tube = to_text(args[at][:256]) if at < len(args) else ""
        name = command.decode()
        try:
            self._spans.put_nowait(
                {
                    "traceId": trace_id.decode(),
                    "spanId": secrets.token_hex(8),
                    "parentSpanId": parent_id.decode(),
                    "name": f"{name} {tube}",
                    "kind": _KIND_SERVER,
                    "startTimeUnixNano": str(ended - ns),
                    "endTimeUnixNano": str(ended),
                    "attributes": _attributes(
                        {
                            "messaging.system": "penstock",
                            "messaging.operation.name": name,
                            "messaging.destination.name": tube,
                            "client.address": address,
                        }
                    ),
                }
            )
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write the spans that wait, and end the thread."""
        self._spans.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        try:
            file = self._open()
            try:
                for spans in self._batches():
                    self._write(file, spans)
                    if os.fstat(file).st_size > _FILE_BYTES_MAX:
                        os.close(file)
                        os.replace(self._path, f"{self._path}.1")
                        file = self._open()
            finally:
                os.close(file)
        except OSError as error:
            _log.error("trace log not written: file=%s error=%s", self._path, error.strerror)
            while self._spans.get() is not None:
                self.dropped += 1
        if self.dropped:
            _log.warning("spans dropped: count=%d", self.dropped)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._path, flags, 0o600)

    def _batches(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the spans that wait, all of them together, until the log is closed."""
        while (span := self._spans.get()) is not None:
            spans = [span]
            while not self._spans.empty():
                following = self._spans.get()
                if following is None:
                    yield spans
                    return
                spans.append(following)
            yield spans

    def _write(self, file: int, spans: list[dict[str, Any]]) -> None:
        scope = {"scope": {"name": "penstock"}, "spans": spans}
        line = {"resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": [scope]}]}
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(file, data) :]


def _context_in(args: list[bytes]) -> tuple[bytes, bytes] | None:
    """Return the trace id and the span id in the header `traceparent`, or None if there is none or it is unsampled."""
    at = args.index(b"traceparent")
    if at + 1 == len(args) or args[at - 1].upper() != b"HEADER":
        return None
    found = _TRACEPARENT.fullmatch(args[at + 1])
    if found is None or not int(found[3], 16) & _SAMPLED:
        return None
    return found[1], found[2]


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
