"""Values of many things side by side, as readers of columns want them. Pure, and compiled.

Fixed values need no more than to be written one after the other. Those of any length are three buffers, which are how
Arrow keeps them but for the first, where it has a bit for each of our bytes.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i32, i64, u8


class VarColumn:
    """One var field of many rows: a byte a row that tells whether it has it, where each ends, and all of them."""

    _there: BytesWriter
    _ends: BytesWriter
    _bytes: BytesWriter
    _has: u8

    def __init__(self) -> None:
        self._there = BytesWriter()
        self._ends = BytesWriter()
        write_i32_le(self._ends, 0)
        self._bytes = BytesWriter()
        self._has = 0

    def add(self, data: bytes, at: i64, size: i64) -> None:
        """The row that comes next has this field."""
        self._bytes.write(data[at : at + size])
        self._has = 1

    def add_all(self, data: bytes) -> None:
        """The same, with all of these bytes."""
        self._bytes.write(data)
        self._has = 1

    def end_row(self) -> None:
        """Go on to the next row."""
        self._there.append(self._has)
        self._has = 0
        write_i32_le(self._ends, i32(len(self._bytes)))

    def buffers(self) -> tuple[bytes, bytes, bytes]:
        """All three."""
        return self._there.getvalue(), self._ends.getvalue(), self._bytes.getvalue()
