"""Answers as a server sent them, with the type of everything in them: what a prompt shows and a client throws away.

A client wants values, and quickly; here a status is not a bulk, a map keeps its order, and whoever answers may be any
server that speaks RESP, or none at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Final

from penstock.core.errors import ProtocolError

# A line of a number or a status is short; an error may quote what it is about.
_LINE_BYTES_MAX: Final = 1 << 20
_BULK_BYTES_MAX: Final = 1 << 29
_ELEMENTS_MAX: Final = 1 << 23
_DEPTH_MAX: Final = 64
# All bulks of one answer have no more bytes than this together, and all arrays no more elements than one.
_ANSWER_BYTES_MAX: Final = _BULK_BYTES_MAX + (1 << 27)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Its kind is the byte that RESP begins it with, and for nothing always `_`."""

    kind: str
    text: bytes = b""  # Of everything but arrays and their like.
    items: tuple[Answer, ...] = ()  # Of arrays `*`, sets `~`, pushes `>`; of maps `%` a key and a value in turn.

    @property
    def is_error(self) -> bool:
        return self.kind in "-!"


NOTHING: Final = Answer("_")


class _Room:
    """How much one answer may still have."""

    def __init__(self) -> None:
        self.bytes = _ANSWER_BYTES_MAX
        self.elements = _ELEMENTS_MAX

    def take(self, count: int, elements: int) -> None:
        """Use some of it; raises ProtocolError if there is not so much."""
        self.bytes -= count
        self.elements -= elements
        if self.bytes < 0 or self.elements < 0:
            raise ProtocolError("the answer is too long")


def read(file: BinaryIO) -> Answer:
    """The next answer; raises EOFError at the end, ProtocolError for what is none."""
    return _read(file, 0, _Room())


def _read(file: BinaryIO, depth: int, room: _Room) -> Answer:
    line = file.readline(_LINE_BYTES_MAX)
    room.take(len(line), 0)
    if not line:
        raise EOFError
    if not line.endswith(b"\r\n"):
        raise ProtocolError("the answer does not end as RESP does")
    kind, rest = chr(line[0]), line[1:-2]
    if kind in "+-:,#(":
        return Answer(kind, rest)
    if kind == "_" or (kind in "$*" and rest == b"-1"):
        return NOTHING
    if kind in "$=!":
        size = _length(rest, _BULK_BYTES_MAX)
        room.take(size, 0)
        text = file.read(size + 2)
        if len(text) < size + 2:
            raise EOFError
        # A verbatim text begins with its format and a colon.
        return Answer(kind, text[4:-2] if kind == "=" else text[:-2])
    if kind in "*~>%" and depth < _DEPTH_MAX:
        count = _length(rest, _ELEMENTS_MAX) * (2 if kind == "%" else 1)
        room.take(0, count)
        return Answer(kind, items=tuple([_read(file, depth + 1, room) for _ in range(count)]))
    raise ProtocolError("the answer is not in RESP")


def _length(digits: bytes, most: int) -> int:
    if not digits.isdigit() or len(digits) > 10 or int(digits) > most:
        raise ProtocolError("the answer is not in RESP: its length makes no sense")
    return int(digits)
