"""RESP replies in version 2, and in version 3 for clients that asked for it.

The versions differ only in null and in maps. All other replies use the types of version 2, which clients of version 3
can read as well, so the replies keep the form that Disque clients expect.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

# A writer that has grown beyond this is replaced instead of reused.
_KEPT_BYTES: Final = 4_096

_SMALL: Final = 1_024
_INTEGERS: Final = [b":%d\r\n" % number for number in range(_SMALL)]
_BULKS: Final = [b"$%d\r\n" % length for length in range(_SMALL)]
_ARRAYS: Final = [b"*%d\r\n" % length for length in range(_SMALL)]


class Reply:
    """The output buffer of a client: replies in the order of its commands."""

    resp3: bool
    length: i64  # The number of bytes written since the last `take`.
    _writer: BytesWriter

    def __init__(self) -> None:
        self.resp3 = False
        self.length = 0
        self._writer = BytesWriter()

    def take(self) -> bytes:
        """Return all bytes and empty the buffer."""
        data = self._writer.getvalue()
        if self.length <= _KEPT_BYTES:
            self._writer.truncate(0)
        else:
            self._writer = BytesWriter()
        self.length = 0
        return data

    def truncate(self, length: i64) -> None:
        """Remove everything after the first `length` bytes."""
        self._writer.truncate(length)
        self.length = length

    def raw(self, data: bytes) -> None:
        """Write bytes that are already encoded."""
        self._writer.write(data)
        self.length += len(data)

    def ok(self) -> None:
        self.raw(b"+OK\r\n")

    def simple(self, text: bytes) -> None:
        """Write a simple string. It must not contain line ends."""
        self._writer.append(43)
        self._writer.write(text)
        self._writer.write(b"\r\n")
        self.length += len(text) + 3

    def error(self, text: bytes) -> None:
        """Write an error: a code, a space and a sentence. Line ends are replaced, because they would end the reply."""
        if b"\r" in text or b"\n" in text:
            text = text.replace(b"\r", b" ").replace(b"\n", b" ")
        self.raw(b"-" + text + b"\r\n")

    def integer(self, number: int) -> None:
        if 0 <= number < _SMALL:
            self.raw(_INTEGERS[number])
        else:
            self.raw(b":%d\r\n" % number)

    def bulk(self, data: bytes) -> None:
        size: i64 = len(data)
        head = _BULKS[size] if size < _SMALL else b"$%d\r\n" % size
        self._writer.write(head)
        self._writer.write(data)
        self._writer.write(b"\r\n")
        self.length += len(head) + size + 2

    def array(self, length: int) -> None:
        """Begin an array. `length` replies must follow."""
        self.raw(_ARRAYS[length] if 0 <= length < _SMALL else b"*%d\r\n" % length)

    def map(self, pairs: int) -> None:
        """Begin a map. `pairs` pairs of replies must follow. Clients of version 2 get a flat array."""
        if self.resp3:
            self.raw(b"%%%d\r\n" % pairs)
        else:
            self.array(2 * pairs)

    def null(self) -> None:
        """Write null in place of a bulk string."""
        self.raw(b"_\r\n" if self.resp3 else b"$-1\r\n")

    def null_array(self) -> None:
        """Write null in place of an array."""
        self.raw(b"_\r\n" if self.resp3 else b"*-1\r\n")

    def bulks(self, items: list[bytes]) -> None:
        self.array(len(items))
        for item in items:
            self.bulk(item)
