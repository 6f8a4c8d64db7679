"""Formats of answers, as redis-cli and Disque's tool print them. This module does no I/O.

The format for people shows the type of every value: elements are numbered and nested, a bulk string is quoted, a
status is not. The formats for scripts are raw bytes, CSV and JSON. Each formatted answer ends with a newline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from penstock.cli.console.raw_replies import Reply
from penstock.cli.errors import printable_json, printable_lines

_ESCAPES: Final = {
    **{byte: f"\\x{byte:02x}" for byte in range(256) if not 32 <= byte < 127},
    **{ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b"},
}
_NUMBERS: Final = {":": "(integer) ", ",": "(double) ", "(": "(integer) "}
_EMPTY: Final = {"*": "(empty array)", "~": "(empty set)", ">": "(empty push)", "%": "(empty hash)"}
_AFTER_NUMBER: Final = {"*": ")", "~": "~", ">": ")", "%": "#"}


def format_text(answer: Reply, indent: str = "") -> str:
    """Format an answer for people. Control characters are escaped."""
    kind = answer.kind
    if kind == "_":
        return "(nil)\n"
    if kind in "-!":
        return f"(error) {_escaped(answer.text)}\n"
    if kind in _NUMBERS:
        return f"{_NUMBERS[kind]}{_escaped(answer.text)}\n"
    if kind == "#":
        return "(true)\n" if answer.text == b"t" else "(false)\n"
    if kind in "+=":
        return f"{_escaped(answer.text)}\n"
    if kind == "$":
        return f"{_quoted(answer.text)}\n"
    return "".join(_numbered(answer, indent)) or f"{_EMPTY[kind]}\n"


def _numbered(answer: Reply, indent: str) -> Iterator[str]:
    """Yield each element after its number. Nested elements are indented by the width of the number."""
    step = 2 if answer.kind == "%" else 1
    width = len(str(len(answer.items) // step))
    inner = indent + " " * (width + 2)
    for at in range(0, len(answer.items), step):
        number = f"{indent if at else ''}{at // step + 1:{width}}{_AFTER_NUMBER[answer.kind]} "
        shown = [format_text(item, inner) for item in answer.items[at : at + step]]
        if step == 2 and shown[1].count("\n") > 1:
            # A value of several lines starts on a new line, so that its lines are aligned.
            shown[1] = f"\n{inner}{shown[1]}"
        yield number + " => ".join([*(each.removesuffix("\n") for each in shown[:-1]), shown[-1]])


def format_raw(answer: Reply) -> bytes:
    """Return the raw bytes, one element per line."""
    return _raw(answer) + b"\n"


def _raw(answer: Reply) -> bytes:
    kind = answer.kind
    if kind in "-!":
        return answer.text + b"\n"
    if kind == "%":
        pairs = zip(answer.items[::2], answer.items[1::2])
        return b"\n".join(_raw(key) + b" " + _raw(value) for key, value in pairs)
    if kind == "#":
        return b"(true)" if answer.text == b"t" else b"(false)"
    return b"\n".join(map(_raw, answer.items)) if answer.items else answer.text


def format_csv(answer: Reply) -> str:
    """Format an answer as one line of CSV. Strings are quoted, nil is NULL."""
    return _csv(answer) + "\n"


def _csv(answer: Reply) -> str:
    kind = answer.kind
    if kind in "-!":
        return f"ERROR,{_quoted(answer.text)}"
    if kind == "_":
        return "NULL"
    if kind == "#":
        return "true" if answer.text == b"t" else "false"
    if kind in _NUMBERS:
        return _escaped(answer.text)
    if kind in "$+=":
        return _quoted(answer.text)
    return ",".join(map(_csv, answer.items))


def format_json(answer: Reply) -> str:
    """Format an answer as one line of JSON. Invalid UTF-8 becomes backslash escapes; an error becomes an object."""
    return printable_json(json.dumps(_value(answer), ensure_ascii=False)) + "\n"


def _value(answer: Reply) -> Any:
    kind = answer.kind
    if kind == "_":
        return None
    if kind in ":(":
        return int(answer.text)
    if kind == ",":
        # JSON has no infinity and no NaN, so they become text.
        number = float(answer.text)
        return number if abs(number) < float("inf") else _text(answer.text)
    if kind == "#":
        return answer.text == b"t"
    if kind in "-!":
        return {"error": _text(answer.text)}
    if kind == "%":
        keys = [_value(key) for key in answer.items[::2]]
        values = [_value(value) for value in answer.items[1::2]]
        return {key if isinstance(key, str) else json.dumps(key): value for key, value in zip(keys, values)}
    if kind in "*~>":
        return [_value(item) for item in answer.items]
    return _text(answer.text)


def _quoted(raw: bytes) -> str:
    return '"' + "".join(_ESCAPES.get(byte) or chr(byte) for byte in raw) + '"'


def _escaped(raw: bytes) -> str:
    """Return a text of the server with control characters escaped and line ends kept."""
    return printable_lines(_text(raw))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
