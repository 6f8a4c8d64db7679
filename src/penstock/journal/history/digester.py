"""Computes the digests of blocks of rows. Pure and compiled.

A block ends before each position that is a multiple of BLOCK_ROWS, and with its segment. Therefore the blocks do not
depend on the sizes of frames. The place of var fields is not hashed, because it changes when bodies are removed. A
block has two digests:

    rows    1. Each row about a job, in the format of version 2. Its position u64 replaces the var offset and length.
            2. All keys, then all reasons, then all headers. Each is hashed as position u64, tag u8, length u32, bytes.
    bodies  All bodies. Each is hashed as position u64, tag u8, length u32, bytes.

All of it can be computed from the columns of `columns.py`, so a copy of the history can be compared with the log. The
columns have reasons as text, so bytes of a reason that are not valid UTF-8 are hashed as escapes.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from penstock.journal import frame as f
from penstock.journal import layout
from penstock.journal.history.block import BLOCK_ROWS, BlockDigest

# Bytes of bodies to collect before they are hashed. hashlib releases the GIL for long inputs.
_BODY_BYTES: Final = 256 * 1024


class BlockDigester:
    """Hashes consecutive frames of one segment, from position `start` up to `end`."""

    blocks: list[BlockDigest]  # The blocks that are complete so far.
    _end: i64
    _bodies: bool  # Whether the segment has bodies.
    _first: i64  # First position of the block that is not complete.
    _block_end: i64
    _next: i64  # The position after the last row.
    _count: i64  # Number of rows about jobs in the block.
    _rows: BytesWriter
    _keys: BytesWriter
    _reasons: BytesWriter
    _headers: BytesWriter
    _body_bytes: BytesWriter
    _body_hash: Any

    def __init__(self, start: i64, end: i64, bodies: bool) -> None:
        self.blocks = []
        self._end = end
        self._bodies = bodies
        self._first = start
        self._next = start
        self._block_end = self._end_of_block(start)
        self._clear()

    def add(self, data: bytes, frames: list[f.Frame]) -> bool:
        """Hash the next frames. Return whether the end is reached."""
        for found in frames:
            position = found.position
            at = found.rows_at
            if position < self._next:
                at += (self._next - position) * found.row_bytes
                position = self._next
            stop = found.position + found.rows
            if stop > self._end:
                stop = self._end
            while position < stop:
                if position >= self._block_end:
                    self._skip_to(position)
                upto = stop if stop < self._block_end else self._block_end
                while position < upto:
                    if i64(data[at + layout.EVENT_AT]) < layout.TUBE_MADE:
                        self._add_row(data, at, found, position)
                    at += found.row_bytes
                    position += 1
                self._next = position
                if position == self._block_end:
                    self._close(position)
            if found.position + found.rows >= self._end:
                if self._next < self._end:
                    # The rows before the end are missing, and this frame has later ones.
                    self._skip_to(self._end)
                    self._next = self._end
                return True
        return False

    def finish(self) -> None:
        """Complete the last block. It ends after the last row."""
        if self._next > self._first:
            self._close(self._next)

    def _end_of_block(self, position: i64) -> i64:
        end = position - position % BLOCK_ROWS + BLOCK_ROWS
        return end if end < self._end else self._end

    def _skip_to(self, position: i64) -> None:
        """Skip positions that a repair has left out. Whole blocks without rows become one block."""
        if position >= self._block_end and self._next > self._first:
            self._close(self._block_end)
        start = position - position % BLOCK_ROWS
        if start > self._first:
            self._close(start)

    def _close(self, end: i64) -> None:
        rows = hashlib.sha256(self._rows.getvalue())
        for part in (self._keys, self._reasons, self._headers):
            if len(part) > 0:
                rows.update(part.getvalue())
        bodies: bytes | None = None
        if self._bodies:
            self._body_hash.update(self._body_bytes.getvalue())
            bodies = self._body_hash.digest()
        self.blocks.append(BlockDigest(self._first, end, self._count, rows.digest(), bodies))
        self._first = end
        self._next = end
        self._block_end = self._end_of_block(end)
        self._clear()

    def _clear(self) -> None:
        self._count = 0
        self._rows = BytesWriter()
        self._keys = BytesWriter()
        self._reasons = BytesWriter()
        self._headers = BytesWriter()
        self._body_bytes = BytesWriter()
        self._body_hash = hashlib.sha256()

    def _add_row(self, data: bytes, at: i64, found: f.Frame, position: i64) -> None:
        rows = self._rows
        if found.version > 1:
            rows.write(data[at : at + layout.VAR_OFFSET_AT])
            write_i64_le(rows, position)
            rows.write(data[at + layout.SINCE_AT : at + layout.ROW_BYTES])
        else:
            row = f.decode_v1(data[at : at + layout.ROW_BYTES_V1])
            rows.write(row[: layout.VAR_OFFSET_AT])
            write_i64_le(rows, position)
            rows.write(row[layout.SINCE_AT :])
        self._count += 1
        length = i64(read_i32_le(data, at + layout.VAR_LENGTH_AT))
        if length > 0:
            self._add_vars(data, found.var_at + i64(read_i32_le(data, at + layout.VAR_OFFSET_AT)), length, position)

    def _add_vars(self, data: bytes, at: i64, length: i64, position: i64) -> None:
        end = at + length
        while at < end:
            tag = i64(data[at])
            size = i64(read_i32_le(data, at + layout.VAR_FIELD_LENGTH_AT))
            at += layout.VAR_HEADER_BYTES
            if tag == layout.TAG_BODY:
                if self._bodies:
                    _add_var(self._body_bytes, position, tag, data[at : at + size])
                    if len(self._body_bytes) > _BODY_BYTES:
                        self._body_hash.update(self._body_bytes.getvalue())
                        self._body_bytes = BytesWriter()
            elif tag == layout.TAG_KEY:
                _add_var(self._keys, position, tag, data[at : at + size])
            elif tag == layout.TAG_REASON:
                _add_var(self._reasons, position, tag, _as_text(data[at : at + size]))
            elif tag == layout.TAG_HEADERS:
                _add_var(self._headers, position, tag, data[at : at + size])
            at += size


def _add_var(target: BytesWriter, position: i64, tag: i64, value: bytes) -> None:
    write_i64_le(target, position)
    target.append(tag)
    write_i32_le(target, i32(len(value)))
    target.write(value)


def _as_text(reason: bytes) -> bytes:
    """Return a reason as the columns contain it, with every byte escaped that is not valid UTF-8."""
    return reason if reason.isascii() else reason.decode("utf-8", "backslashreplace").encode()
