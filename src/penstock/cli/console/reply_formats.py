"""Formats of replies, as redis-cli prints them: values with their types for people, raw bytes for programs.

Each formatted reply ends with a newline. A map is shown as in RESP2: keys and values alternate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.cli.console.raw_connection import Status
from penstock.cli.errors import printable_lines
from penstock.wire.resp_client import ErrorReply

_ESCAPES: Final = {
    **{byte: f"\\x{byte:02x}" for byte in range(256) if not 32 <= byte < 127},
    **{ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b"},
}


def format_text(answer: object, indent: str = "") -> str:
    """Format a reply for people. Control characters are escaped, and elements are numbered."""
    if answer is None:
        return "(nil)\n"
    if isinstance(answer, ErrorReply):
        return f"(error) {_escaped(answer.line)}\n"
    if isinstance(answer, bool):
        return f"({str(answer).lower()})\n"
    if isinstance(answer, (int, float)):
        return f"({'integer' if isinstance(answer, int) else 'double'}) {answer}\n"
    if isinstance(answer, Status):
        return f"{_escaped(answer)}\n"
    if isinstance(answer, bytes):
        return '"' + "".join(_ESCAPES.get(byte) or chr(byte) for byte in answer) + '"\n'
    return "".join(_numbered(_elements(answer), indent)) or "(empty array)\n"


def _numbered(elements: list[object], indent: str) -> Iterator[str]:
    """Yield each element as text, with its number in front. Nested elements are indented by the number's width."""
    width = len(str(len(elements)))
    for number, element in enumerate(elements, 1):
        before = "" if number == 1 else indent
        yield f"{before}{number:{width}}) {format_text(element, indent + ' ' * (width + 2))}"


def format_raw(answer: object) -> bytes:
    """Return the raw bytes of a reply, one element per line."""
    return _raw(answer) + b"\n"


def _raw(answer: object) -> bytes:
    if answer is None:
        return b""
    if isinstance(answer, ErrorReply):
        return answer.line + b"\n"
    if isinstance(answer, bytes):
        return answer
    if isinstance(answer, bool):
        return b"(true)" if answer else b"(false)"
    if isinstance(answer, (int, float)):
        return str(answer).encode()
    return b"\n".join(map(_raw, _elements(answer)))


def _elements(answer: object) -> list[object]:
    if isinstance(answer, dict):
        return [each for pair in answer.items() for each in pair]
    assert isinstance(answer, list)
    return answer


def _escaped(raw: bytes) -> str:
    """Return text from the server with control characters escaped and line ends kept."""
    return printable_lines(raw.decode("utf-8", "backslashreplace"))
