"""Jobs in a file of JSON lines: an object each, with a body and with what a put may say about it.

    {"tube": "emails", "body": {"to": "ann@example.org"}, "delay": "2s", "ttr": 30}

Times are seconds, or text with a unit; of a ttl and a ttr, null is for ever. `at` is a moment in ISO 8601.
`body_base64` is a body of bytes. What no put would take is no job: who only reads a file hears of it, too.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock.cli.exits import as_clause
from penstock.cli.values import json_trouble
from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.errors import CommandError
from penstock.core.limits import NEVER
from penstock.options import PutOptions, draft, to_bytes

# A longer line is hardly a job: the largest body that a queue can allow has 512 MiB.
LINE_BYTES_MAX: Final = 1 << 30

# A line cannot ask for `new`: the import itself decides what a job that is there already means.
_OPTIONS: Final = frozenset(PutOptions.__annotations__) - {"new"}
_TIMES: Final = ("delay", "ttl", "ttr")


class BadLine(Exception):
    """A line is no job; the message says why."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, understood."""

    tube: str
    body: Any
    options: dict[str, Any]


def read_line(raw: bytes, tube: str | None) -> Line:
    """The job that a line is; `tube` is where it goes if it does not say."""
    told = _json(raw)
    if not isinstance(told, dict) or ("body" in told) == ("body_base64" in told):
        raise BadLine('it is no object with a "body" or a "body_base64"')
    where = told.pop("tube", tube)
    if not isinstance(where, str):
        raise BadLine('it has no "tube"; give one for such lines with --tube')
    body = _body(told)
    if unknown := sorted(told.keys() - _OPTIONS):
        raise BadLine(f"unknown key {unknown[0]!r}; known are tube, body, body_base64, {', '.join(sorted(_OPTIONS))}")
    options = {name: _time(name, each) if name in _TIMES else each for name, each in told.items()}
    if "at" in options:
        options["at"] = _moment(options["at"])
    if options.get("delay", 0) in (None, math.inf):
        raise BadLine("its delay has no end, and such a job would never be ready")
    return _checked(Line(where, body, options))


def read_body(raw: bytes, tube: str) -> Line:
    """The job that a line is which is a body, and nothing else."""
    return _checked(Line(tube, _json(raw), {}))


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is not JSON ({json_trouble(error)})") from None


def _checked(line: Line) -> Line:
    """A line that a put would take, whatever the tube."""
    try:
        to_bytes(line.tube, "a tube's name")
        draft(line.body, **line.options)
    except CommandError as error:
        raise BadLine(as_clause(str(error))) from None
    return line


def _body(told: dict[str, Any]) -> Any:
    if "body" in told:
        return told.pop("body")
    try:
        return base64.b64decode(told.pop("body_base64"), validate=True)
    except (TypeError, ValueError):
        raise BadLine("its body_base64 is not base64") from None


def _moment(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadLine("its at is no moment like 2026-12-24T18:00 (local time) or 2026-12-24T17:00Z") from None


def _time(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    ms = read_duration(value.encode("utf-8", "surrogatepass"))
    if ms == NO_DURATION:
        raise BadLine(f"its {name} is no time like 30, 1.5, 250ms, 5m or 2h, or forever")
    return None if ms == NEVER else ms / 1_000
