"""How answers look, in the forms that users of redis-cli and of Disque's tool know. Pure.

For people every answer shows its type: elements are numbered and nested, a bulk is in quotes, a status is not. For
scripts there are the bytes as they are, CSV, and JSON. Each form ends where the next answer may begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from penstock.cli.answers import Answer
from penstock.cli.exits import printable_json, printable_lines

_ESCAPES: Final = {
    **{byte: f"\\x{byte:02x}" for byte in range(256) if not 32 <= byte < 127},
    **{ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b"},
}
_NUMBERS: Final = {":": "(integer) ", ",": "(double) ", "(": "(integer) "}
_EMPTY: Final = {"*": "(empty array)", "~": "(empty set)", ">": "(empty push)", "%": "(empty hash)"}
_AFTER_NUMBER: Final = {"*": ")", "~": "~", ">": ")", "%": "#"}


def as_text(answer: Answer, indent: str = "") -> str:
    """For people: whatever the bytes are, a terminal can show it and takes none of it for an order."""
    kind = answer.kind
    if kind == "_":
        return "(nil)\n"
    if kind in "-!":
        return f"(error) {_harmless(answer.text)}\n"
    if kind in _NUMBERS:
        return f"{_NUMBERS[kind]}{_harmless(answer.text)}\n"
    if kind == "#":
        return "(true)\n" if answer.text == b"t" else "(false)\n"
    if kind in "+=":
        return f"{_harmless(answer.text)}\n"
    if kind == "$":
        return f"{_quoted(answer.text)}\n"
    return "".join(_numbered(answer, indent)) or f"{_EMPTY[kind]}\n"


def _numbered(answer: Answer, indent: str) -> Iterator[str]:
    """Each element behind its number, and what is nested in it as far to the right as the number takes."""
    step = 2 if answer.kind == "%" else 1
    width = len(str(len(answer.items) // step))
    inner = indent + " " * (width + 2)
    for at in range(0, len(answer.items), step):
        number = f"{indent if at else ''}{at // step + 1:{width}}{_AFTER_NUMBER[answer.kind]} "
        shown = [as_text(item, inner) for item in answer.items[at : at + step]]
        if step == 2 and shown[1].count("\n") > 1:
            # What has several lines begins on one of its own, so that they stand below each other.
            shown[1] = f"\n{inner}{shown[1]}"
        yield number + " => ".join([*(each.removesuffix("\n") for each in shown[:-1]), shown[-1]])


def as_raw(answer: Answer) -> bytes:
    """For scripts: nothing but the bytes, an element a line."""
    return _raw(answer) + b"\n"


def _raw(answer: Answer) -> bytes:
    kind = answer.kind
    if kind in "-!":
        return answer.text + b"\n"
    if kind == "%":
        pairs = zip(answer.items[::2], answer.items[1::2])
        return b"\n".join(_raw(key) + b" " + _raw(value) for key, value in pairs)
    if kind == "#":
        return b"(true)" if answer.text == b"t" else b"(false)"
    return b"\n".join(map(_raw, answer.items)) if answer.items else answer.text


def as_csv(answer: Answer) -> str:
    """One line of values; texts are quoted, nothing is NULL."""
    return _csv(answer) + "\n"


def _csv(answer: Answer) -> str:
    kind = answer.kind
    if kind in "-!":
        return f"ERROR,{_quoted(answer.text)}"
    if kind == "_":
        return "NULL"
    if kind == "#":
        return "true" if answer.text == b"t" else "false"
    if kind in _NUMBERS:
        return _harmless(answer.text)
    if kind in "$+=":
        return _quoted(answer.text)
    return ",".join(map(_csv, answer.items))


def as_json(answer: Answer) -> str:
    """One line of JSON. Bytes that are no text are written as in Python, an error is an object that says so."""
    return printable_json(json.dumps(_value(answer), ensure_ascii=False)) + "\n"


def _value(answer: Answer) -> Any:
    kind = answer.kind
    if kind == "_":
        return None
    if kind in ":(":
        return int(answer.text)
    if kind == ",":
        # JSON has no words for what is no finite number.
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


def _harmless(raw: bytes) -> str:
    """A text of the server's own, on its lines, without what a terminal would obey."""
    return printable_lines(_text(raw))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
