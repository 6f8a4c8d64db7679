"""Answers in RESP: version 2, and 3 for clients that asked for it.

The two differ in how they say nothing, and in maps. Everything else is sent in the types of version 2, which clients of
version 3 read as well, so the shapes that Disque's clients know stay what they are.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

# A writer that has grown longer than this is not kept for the next answers.
_KEPT_BYTES: Final = 4_096

_SMALL: Final = 1_024
_INTEGERS: Final = [b":%d\r\n" % number for number in range(_SMALL)]
_BULKS: Final = [b"$%d\r\n" % length for length in range(_SMALL)]
_ARRAYS: Final = [b"*%d\r\n" % length for length in range(_SMALL)]


class Reply:
    """What one client will be sent: answers one after the other, in the order of its commands."""

    resp3: bool
    length: i64  # How many bytes were written since the last `take`.
    _writer: BytesWriter

    def __init__(self) -> None:
        self.resp3 = False
        self.length = 0
        self._writer = BytesWriter()

    def take(self) -> bytes:
        """Everything so far; nothing of it stays."""
        data = self._writer.getvalue()
        if self.length <= _KEPT_BYTES:
            self._writer.truncate(0)
        else:
            self._writer = BytesWriter()
        self.length = 0
        return data

    def truncate(self, length: i64) -> None:
        """Take back everything from a length on."""
        self._writer.truncate(length)
        self.length = length

    def raw(self, data: bytes) -> None:
        """Bytes that are an answer, or part of one, already."""
        self._writer.write(data)
        self.length += len(data)

    def ok(self) -> None:
        self.raw(b"+OK\r\n")

    def simple(self, text: bytes) -> None:
        """A short line of text without line ends."""
        self._writer.append(43)
        self._writer.write(text)
        self._writer.write(b"\r\n")
        self.length += len(text) + 3

    def error(self, text: bytes) -> None:
        """A refusal: its code, a space, a sentence. A line end within it would end the answer."""
        if b"\r" in text or b"\n" in text:
            text = text.replace(b"\r", b" ").replace(b"\n", b" ")
        self.raw(b"-" + text + b"\r\n")

    def integer(self, number: int) -> None:
        if 0 <= number < _SMALL:
            self.raw(_INTEGERS[number])
        else:
            self.raw(b":%d\r\n" % number)

    def bulk(self, data: bytes) -> None:
        """Any bytes."""
        size: i64 = len(data)
        head = _BULKS[size] if size < _SMALL else b"$%d\r\n" % size
        self._writer.write(head)
        self._writer.write(data)
        self._writer.write(b"\r\n")
        self.length += len(head) + size + 2

    def array(self, length: int) -> None:
        """So many answers follow, and are one."""
        self.raw(_ARRAYS[length] if 0 <= length < _SMALL else b"*%d\r\n" % length)

    def map(self, pairs: int) -> None:
        """So many pairs of answers follow; to clients of version 2 as a flat array."""
        if self.resp3:
            self.raw(b"%%%d\r\n" % pairs)
        else:
            self.array(2 * pairs)

    def null(self) -> None:
        """Nothing, where a bulk could be."""
        self.raw(b"_\r\n" if self.resp3 else b"$-1\r\n")

    def null_array(self) -> None:
        """Nothing, where an array could be."""
        self.raw(b"_\r\n" if self.resp3 else b"*-1\r\n")

    def bulks(self, items: list[bytes]) -> None:
        """An array of bulks."""
        self.array(len(items))
        for item in items:
            self.bulk(item)
