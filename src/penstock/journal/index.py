"""The index of a segment: where each job's newest row in it is, where positions are, and what its tubes are called.

It is made when the segment is full, from the segment alone, so it can be thrown away and made again at any time.

    file = header, 32 bytes │ names, JSON │ job ids │ positions │ mark positions │ mark offsets

The header is the magic "PENINDEX", a version u16, 0 u16, the crc32 of everything behind it u32, the number of jobs u32,
the number of marks u32, the length of the names u32, 0 u32. The four arrays are of i64: jobs in ascending order of
their ids with the positions of their newest rows, and marks, one every 64 KB: a frame begins at this offset with this
position. Names are hexadecimal, by the number of the tube.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from penstock.core.errors import DamagedJournal
from penstock.journal.frame import note_jobs
from penstock.journal.segment import SEGMENT_HEADER_BYTES, Found

INDEX_MAGIC: Final = b"PENINDEX"
INDEX_VERSION: Final = 1
MARK_BYTES: Final = 64 * 1024

_HEAD: Final = struct.Struct("<8sHHIIIII")


class SegmentIndex:
    """What is known of a segment so far."""

    def __init__(self) -> None:
        self.end = SEGMENT_HEADER_BYTES  # Where the next frame begins.
        self.names: dict[int, bytes] = {}
        self._newest: dict[int, int] = {}
        self._mark_positions = array("q")
        self._mark_offsets = array("q")
        self._ids = array("q")
        self._positions = array("q")

    def add(self, found: Found) -> None:
        """Learn the next frame."""
        if not self._mark_offsets or self.end - self._mark_offsets[-1] >= MARK_BYTES:
            self._mark_offsets.append(self.end)
            self._mark_positions.append(found.frame.position)
        note_jobs(found.data, found.frame, self._newest, self.names)
        self.end += found.frame.length

    def newest(self, job: int) -> int | None:
        """The position of the newest row of a job in this segment, if it has one."""
        if self._newest:
            return self._newest.get(job)
        at = bisect_left(self._ids, job)
        return self._positions[at] if at < len(self._ids) and self._ids[at] == job else None

    def offset_of(self, position: int) -> int:
        """Where a frame begins from which on the row of a position can be found."""
        at = bisect_right(self._mark_positions, position) - 1
        return self._mark_offsets[at] if at >= 0 else SEGMENT_HEADER_BYTES

    def encode(self) -> bytes:
        """The bytes of its file."""
        ids = array("q", sorted(self._newest))
        positions = array("q", map(self._newest.__getitem__, ids))
        names = json.dumps({number: name.hex() for number, name in self.names.items()}).encode()
        arrays = (ids, positions, self._mark_positions, self._mark_offsets)
        rest = names + b"".join(map(_to_bytes, arrays))
        counts = (len(ids), len(self._mark_offsets), len(names), 0)
        return _HEAD.pack(INDEX_MAGIC, INDEX_VERSION, 0, zlib.crc32(rest), *counts) + rest


def decode(name: str, data: bytes) -> SegmentIndex:
    """The index that a file holds, or why it cannot be used."""
    if len(data) < _HEAD.size or data[:8] != INDEX_MAGIC:
        raise DamagedJournal(f"{name} is not an index of a Penstock log")
    _, version, _, crc, jobs, marks, names_bytes, _ = _HEAD.unpack_from(data)
    if version != INDEX_VERSION or zlib.crc32(data[_HEAD.size :]) != crc:
        raise DamagedJournal(f"{name} is damaged, or of another version")
    index = SegmentIndex()
    at = _HEAD.size + names_bytes
    index.names = {int(n): bytes.fromhex(name) for n, name in json.loads(data[_HEAD.size : at]).items()}
    arrays = []
    for count in (jobs, jobs, marks, marks):
        arrays.append(_from_bytes(data[at : at + 8 * count]))
        at += 8 * count
    index._ids, index._positions, index._mark_positions, index._mark_offsets = arrays
    return index


def _to_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_bytes(data: bytes) -> array[int]:
    numbers = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
