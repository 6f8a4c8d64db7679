"""RESP answers with the type of every value, for the prompt to show.

The client library discards these types. Here a status differs from a bulk string, and a map keeps its order. The
address can be that of any RESP server, or of a program with another protocol, so sizes are limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Final

from penstock.core.errors import ProtocolError

# Numbers and statuses are short, but an error may quote its cause.
_LINE_BYTES_MAX: Final = 1 << 20
_BULK_BYTES_MAX: Final = 1 << 29
_ELEMENTS_MAX: Final = 1 << 23
_DEPTH_MAX: Final = 64
# Limit of all bytes of one answer. All arrays of an answer together are limited to _ELEMENTS_MAX elements.
_ANSWER_BYTES_MAX: Final = _BULK_BYTES_MAX + (1 << 27)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `kind` is its first byte in RESP, and always `_` for nil."""

    kind: str
    text: bytes = b""  # The value of everything but aggregates.
    items: tuple[Reply, ...] = ()  # The elements of arrays `*`, sets `~` and pushes `>`; maps `%` alternate key, value.

    @property
    def is_error(self) -> bool:
        return self.kind in "-!"


NIL: Final = Reply("_")


class _Budget:
    """Limits the bytes and elements of one answer."""

    def __init__(self) -> None:
        self.bytes = _ANSWER_BYTES_MAX
        self.elements = _ELEMENTS_MAX

    def take(self, count: int, elements: int) -> None:
        """Count bytes and elements of the answer. Raise ProtocolError if there are too many."""
        self.bytes -= count
        self.elements -= elements
        if self.bytes < 0 or self.elements < 0:
            raise ProtocolError("the answer is too long")


def read(file: BinaryIO) -> Reply:
    """Read the next answer. Raise EOFError at the end of the file, and ProtocolError if the answer is not RESP."""
    return _read(file, 0, _Budget())


def _read(file: BinaryIO, depth: int, room: _Budget) -> Reply:
    line = file.readline(_LINE_BYTES_MAX)
    room.take(len(line), 0)
    if not line:
        raise EOFError
    if not line.endswith(b"\r\n"):
        raise ProtocolError("a line of the answer does not end with CRLF")
    kind, rest = chr(line[0]), line[1:-2]
    if kind in "+-:,#(":
        return Reply(kind, rest)
    if kind == "_" or (kind in "$*" and rest == b"-1"):
        return NIL
    if kind in "$=!":
        size = _length(rest, _BULK_BYTES_MAX)
        room.take(size, 0)
        text = file.read(size + 2)
        if len(text) < size + 2:
            raise EOFError
        # A verbatim string starts with its format and a colon.
        return Reply(kind, text[4:-2] if kind == "=" else text[:-2])
    if kind in "*~>%" and depth < _DEPTH_MAX:
        count = _length(rest, _ELEMENTS_MAX) * (2 if kind == "%" else 1)
        room.take(0, count)
        return Reply(kind, items=tuple([_read(file, depth + 1, room) for _ in range(count)]))
    raise ProtocolError("the answer is not in RESP")


def _length(digits: bytes, most: int) -> int:
    if not digits.isdigit() or len(digits) > 10 or int(digits) > most:
        raise ProtocolError("the answer is not in RESP: it has an invalid length")
    return int(digits)
