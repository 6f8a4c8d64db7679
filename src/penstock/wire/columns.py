"""Columns: the values of one field for many rows. Pure, and compiled.

Values of a fixed length are written one after the other. Values of any length are stored in three buffers in the layout
of Arrow, except that the first buffer has a byte per row where Arrow has a bit.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i32, i64, u8


class VarColumn:
    """A column of values of variable length, in three buffers.

    The buffers are a byte per row that is 1 if the row has a value, the end of each value, and the values themselves.
    """

    _present: BytesWriter
    _ends: BytesWriter
    _bytes: BytesWriter
    _has: u8

    def __init__(self) -> None:
        self._present = BytesWriter()
        self._ends = BytesWriter()
        write_i32_le(self._ends, 0)
        self._bytes = BytesWriter()
        self._has = 0

    def add(self, data: bytes, at: i64, size: i64) -> None:
        """Append `size` bytes of `data`, starting at `at`, to the value of the current row."""
        self._bytes.write(data[at : at + size])
        self._has = 1

    def add_all(self, data: bytes) -> None:
        """Append all of `data` to the value of the current row."""
        self._bytes.write(data)
        self._has = 1

    def end_row(self) -> None:
        self._present.append(self._has)
        self._has = 0
        write_i32_le(self._ends, i32(len(self._bytes)))

    def buffers(self) -> tuple[bytes, bytes, bytes]:
        return self._present.getvalue(), self._ends.getvalue(), self._bytes.getvalue()
