"""JSON as this API reads and writes it.

Requests are parsed strictly: no NaN or Infinity, no duplicate names, and limits on depth (that of Python's parser) and
on the digits of a number. The body of a job is not converted: `JsonText` keeps its text exactly as it was sent, so a
large integer or a decimal fraction does not change. A response contains the text of a job's body in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

from penstock.web.refusals import Refused

# Python itself refuses integers of more digits, because converting them takes quadratic time.
DIGITS_MAX: Final = 4_300

_SPACE: Final = " \t\n\r"


class JsonText(str):
    """Text that is JSON."""

    __slots__ = ()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same name twice")
    return found


_decoder: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)
# A job's body may have the same name twice, because it is not converted.
_body_decoder: Final = json.JSONDecoder(parse_constant=_no_constant)
_Scan = Callable[[str, int], tuple[Any, int]]
_scan: Final[_Scan] = _decoder.scan_once  # type: ignore[attr-defined]
_scan_body: Final[_Scan] = _body_decoder.scan_once  # type: ignore[attr-defined]


def parse_request(data: bytes) -> Any:
    """Return the value of a request. The members `body` and `result` of objects are JsonText.

    They are found in the outermost object, and in the objects of its list `jobs`.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refused("BADJSON", "the body of the request is not UTF-8") from None
    try:
        at = _skip(text, 0)
        value, at = _object(text, at, True) if text[at : at + 1] == "{" else _scan(text, at)
        if _skip(text, at) != len(text):
            raise ValueError("there is more after the end of the JSON")
        return value
    except StopIteration:
        raise Refused("BADJSON", "the body of the request is not JSON") from None
    except RecursionError:
        raise Refused("BADJSON", "the JSON is nested too deeply") from None
    except ValueError as error:
        sentence = str(error)
        if "integer string conversion" in sentence:
            sentence = f"a number has more than {DIGITS_MAX:,} digits"
        raise Refused("BADJSON", f"the body of the request is not JSON: {sentence}") from None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _object(text: str, at: int, is_outermost: bool) -> tuple[dict[str, Any], int]:
    """Parse the object at this index. Return it, and the index behind it."""
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise ValueError("an object needs a name in double quotes")
        name, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("a colon is missing")
        at = _skip(text, at + 1)
        start = at
        if name in ("body", "result"):
            _, at = _scan_body(text, at)
            value: Any = JsonText(text[start:at])
        elif is_outermost and name == "jobs" and text[at : at + 1] == "[":
            value, at = _objects(text, at)
        else:
            value, at = _scan(text, at)
        if name in found:
            raise ValueError("an object has the same name twice")
        found[name] = value
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return found, at + 1
        if mark != ",":
            raise ValueError("a comma is missing")
        at = _skip(text, at + 1)


def _objects(text: str, at: int) -> tuple[list[Any], int]:
    """Parse the array at this index, whose objects are puts. Return it, and the index behind it."""
    found: list[Any] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        value, at = _object(text, at, False) if text[at : at + 1] == "{" else _scan(text, at)
        found.append(value)
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "]":
            return found, at + 1
        if mark != ",":
            raise ValueError("a comma is missing")
        at = _skip(text, at + 1)


def valid_json(text: str) -> bool:
    """Return whether a response can contain this text of a job's body as JSON."""
    try:
        _, end = _scan_body(text, at := _skip(text, 0))
        return at < len(text) and _skip(text, end) == len(text)
    except (StopIteration, ValueError, RecursionError):
        return False


_dumps: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode(value: Any) -> str:
    """Return a value as JSON. JsonText in it is inserted as it is."""
    if isinstance(value, JsonText):
        return value
    if isinstance(value, dict):
        if any(isinstance(each, (JsonText, list, dict)) for each in value.values()):
            return "{" + ",".join(f"{_dumps(name)}:{encode(each)}" for name, each in value.items()) + "}"
    elif isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return _dumps(value)
