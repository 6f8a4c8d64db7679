"""Jobs in a file of JSON lines: an object each, with a body and with what a put may say about it.

    {"tube": "emails", "body": {"to": "ann@example.org"}, "delay": "2s", "ttr": 30}

Times are seconds, or text with a unit; null is for ever. `body_base64` is a body of bytes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from penstock.cli.values import json_trouble
from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.limits import NEVER
from penstock.options import PutOptions

_OPTIONS: Final = frozenset(PutOptions.__annotations__)
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
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is not JSON ({json_trouble(error)})") from None
    if not isinstance(told, dict) or ("body" in told) == ("body_base64" in told):
        raise BadLine('it is no object with a "body" or a "body_base64"')
    where = told.pop("tube", tube)
    if not isinstance(where, str):
        raise BadLine('it has no "tube"; give one for such lines with --tube')
    body = _body(told)
    if unknown := sorted(told.keys() - _OPTIONS):
        raise BadLine(f"it has an option {unknown[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    return Line(where, body, {name: _time(name, each) if name in _TIMES else each for name, each in told.items()})


def _body(told: dict[str, Any]) -> Any:
    if "body" in told:
        return told.pop("body")
    try:
        return base64.b64decode(told.pop("body_base64"), validate=True)
    except (TypeError, ValueError):
        raise BadLine("its body_base64 is not base64") from None


def _time(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    ms = read_duration(value.encode("utf-8", "surrogatepass"))
    if ms == NO_DURATION:
        raise BadLine(f"its {name} is no time like 30, 1.5, 250ms, 5m or 2h, or forever")
    return None if ms == NEVER else ms / 1_000
