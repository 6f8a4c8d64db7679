"""Jobs in a JSON lines file. Each line is an object with a body and options of the put.

    {"tube": "emails", "body": {"to": "ann@example.org"}, "delay": "2s", "ttr": 30}

Durations are seconds, or text with a unit. A ttl or ttr of null means forever. `at` is a date and time in ISO 8601.
`body_base64` is a body of bytes. A line is checked as a put would check it, so that a dry run finds bad lines, too.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Final

from penstock.cli.errors import as_clause
from penstock.cli.option_values import json_error
from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.errors import CommandError
from penstock.core.limits import NEVER
from penstock.options import PutOptions, draft, to_bytes

# Twice the largest body that a queue can allow, which is 512 MiB.
LINE_BYTES_MAX: Final = 1 << 30

_LINES_PER_REPORT: Final = 4_096

# A line cannot set `new`, because the import decides how to treat existing jobs.
_OPTIONS: Final = frozenset(PutOptions.__annotations__) - {"new"}
_TIMES: Final = ("delay", "ttl", "ttr")


class BadLine(Exception):
    """A line is not a job. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One parsed line."""

    tube: str
    body: Any
    options: dict[str, Any]


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield each line with its number, from 1, and the number of bytes read so far."""
    number, end = 0, 0
    while raw := file.readline(LINE_BYTES_MAX):
        number += 1
        end += len(raw)
        yield number, end, raw


def scan_lines(file: BinaryIO, progress: Callable[[int, int], None]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines of a file as `numbered_lines` does. Call `progress` with the bytes read and the file size."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    for number, end, raw in numbered_lines(file):
        yield number, end, raw
        if number % _LINES_PER_REPORT == 0:
            progress(end, size)


def line_label(number: int) -> str:
    return f"line {number:,}"


def read_line(raw: bytes, tube: str | None) -> JobLine:
    """Parse a line into a job. `tube` is its tube if the line does not name one."""
    record = _json(raw)
    if not isinstance(record, dict) or ("body" in record) == ("body_base64" in record):
        raise BadLine('it is not an object with either "body" or "body_base64"')
    where = record.pop("tube", tube)
    if not isinstance(where, str):
        raise BadLine('it has no "tube"; name a default with --tube')
    body = _body(record)
    if unknown := sorted(record.keys() - _OPTIONS):
        raise BadLine(
            f"unknown key {unknown[0]!r}; known keys are tube, body, body_base64, {', '.join(sorted(_OPTIONS))}"
        )
    options = {name: _time(name, each) if name in _TIMES else each for name, each in record.items()}
    if "at" in options:
        options["at"] = _moment(options["at"])
    if options.get("delay", 0) in (None, math.inf):
        raise BadLine("its delay is infinite, so the job would never become ready")
    return _checked(JobLine(where, body, options))


def read_body_line(raw: bytes, tube: str) -> JobLine:
    return _checked(JobLine(tube, _json(raw), {}))


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is not JSON ({json_error(error)})") from None


def _checked(line: JobLine) -> JobLine:
    """Return the line if it is valid. Raise BadLine if every tube would refuse to put it."""
    try:
        to_bytes(line.tube, "a tube's name")
        draft(line.body, **line.options)
    except CommandError as error:
        raise BadLine(as_clause(str(error))) from None
    return line


def _body(record: dict[str, Any]) -> Any:
    if "body" in record:
        return record.pop("body")
    try:
        return base64.b64decode(record.pop("body_base64"), validate=True)
    except (TypeError, ValueError):
        raise BadLine("its body_base64 is not base64") from None


def _moment(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadLine("its at is not a date and time like 2026-12-24T18:00 (local time) or 2026-12-24T17:00Z") from None


def _time(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    ms = read_duration(value.encode("utf-8", "surrogatepass"))
    if ms == NO_DURATION:
        raise BadLine(f"its {name} is not a duration like 30, 1.5, 250ms, 5m, 2h or forever")
    return None if ms == NEVER else ms / 1_000
