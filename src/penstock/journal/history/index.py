"""The index of a segment: the newest row of each job, the offsets of positions, names, and digests.

It is created from a full segment alone, so it can be deleted and created again at any time.

    file = header, 32 bytes │ names, JSON │ job ids │ positions │ marks │ blocks

The header is the magic "PENINDEX", a version u16, flags u16 (1: the segment has no bodies), the number of jobs u32, the
number of marks u32, the length of the names u32, the number of blocks u32, and the crc32 u32 of everything else except
the magic. The arrays contain i64: the ids of jobs in ascending order, the positions of their newest rows, and marks.
There is a mark about every 64 KB: a pair of the position and the offset of a frame. The names are a JSON object:
`tubes` maps decimal tube numbers to hexadecimal names, and `sessions` maps decimal session numbers to pairs of name and
user, both hexadecimal. A block is 88 bytes: its first position u64, the position after its last u64, the number of rows
about jobs u64, and the SHA-256 of the rows and of the bodies (see `digester.py`). If the segment has no bodies, the
latter is 0.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

from penstock.core.errors import DamagedJournal
from penstock.core.limits import NEVER
from penstock.journal.checksum import crc32
from penstock.journal.frame import Names, index_frames
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.digester import BlockDigester
from penstock.journal.segment import SEGMENT_HEADER_BYTES, Piece, SegmentHeader

INDEX_MAGIC: Final = b"PENINDEX"
INDEX_VERSION: Final = 2

# Number of jobs to look up between two pauses.
_CHUNK: Final = 8_192

_HEAD: Final = struct.Struct("<8sHHIIII")
_HEAD_BYTES: Final = _HEAD.size + 4  # With its checksum.
_BLOCK: Final = struct.Struct("<QQQ32s32s")

_NO_BODIES: Final = 1  # Flag: the segment has no bodies.


class SegmentIndex:
    """The index of the part of a segment that was read so far.

    It computes digests if it is given the header of its segment. An index that is not stored needs none.
    """

    def __init__(self, header: SegmentHeader | None = None) -> None:
        self._digester = None if header is None else BlockDigester(header.position, NEVER, header.bodies)
        self.end = SEGMENT_HEADER_BYTES  # Offset of the next frame.
        self.names = Names()  # If a session changed its name within the segment, this is the last one.
        self._newest: dict[int, int] = {}
        self._marks: list[int] = []  # Alternating positions and offsets.
        # The ids and positions of an index that was read from a file, instead of `_newest`.
        self._ids = array("q")
        self._positions = array("q")

    def add(self, piece: Piece) -> None:
        """Add the next frames of the segment."""
        data, frames, base = piece
        index_frames(data, frames, base, self._newest, self.names, self._marks)
        if self._digester is not None:
            self._digester.add(data, frames)
        self.end = base + frames[-1].at + frames[-1].length

    @property
    def last_marked_position(self) -> int:
        """Return the position of the last frame whose offset the index contains."""
        return self._marks[-2] if self._marks else 0

    def newest(self, job: int) -> int | None:
        """Return the position of the newest row of a job in this segment, or None if the segment has none."""
        if self._newest:
            return self._newest.get(job)
        at = bisect_left(self._ids, job)
        return self._positions[at] if at < len(self._ids) and self._ids[at] == job else None

    def offset_of(self, position: int) -> int:
        """Return the offset of a frame that starts at or before the row at `position`."""
        at = bisect_right(self._marks[::2], position) - 1
        return self._marks[2 * at + 1] if at >= 0 else SEGMENT_HEADER_BYTES

    def encode(self, pause: Callable[[], None]) -> bytes:
        """Return the bytes of the index file. Call `pause` about every millisecond."""
        ids = array("q", sorted(self._newest))
        positions = array("q")
        for start in range(0, len(ids), _CHUNK):
            pause()
            positions.extend(map(self._newest.__getitem__, ids[start : start + _CHUNK]))
        names, blocks, marks = _encode_names(self.names), self._blocks(), len(self._marks) // 2
        rest = names + b"".join([*map(_to_bytes, (ids, positions, array("q", self._marks))), *map(_pack_block, blocks)])
        flags = _NO_BODIES if blocks and blocks[0].bodies_sha256 is None else 0
        head = _HEAD.pack(INDEX_MAGIC, INDEX_VERSION, flags, len(ids), marks, len(names), len(blocks))
        return head + _crc(head, rest).to_bytes(4, "little") + rest

    def _blocks(self) -> list[BlockDigest]:
        if self._digester is None:
            return []
        self._digester.finish()
        return self._digester.blocks


def decode_index(name: str, data: bytes) -> SegmentIndex:
    """Decode an index file. Raise DamagedJournal if it is not valid."""
    check(name, data)
    _, _, _, jobs, marks, names_bytes, _ = _HEAD.unpack_from(data)
    index = SegmentIndex()
    at = _HEAD_BYTES + names_bytes
    index.names = _decode_names(data[_HEAD_BYTES:at])
    ids_end, positions_end = at + 8 * jobs, at + 16 * jobs
    index._ids, index._positions = _from_bytes(data[at:ids_end]), _from_bytes(data[ids_end:positions_end])
    index._marks = _from_bytes(data[positions_end : positions_end + 16 * marks]).tolist()
    return index


def decode_blocks(name: str, data: bytes) -> list[BlockDigest]:
    """Return only the blocks of an index file. Raise DamagedJournal if it is not valid."""
    check(name, data)
    _, _, flags, _, _, _, count = _HEAD.unpack_from(data)
    found = _BLOCK.iter_unpack(data[len(data) - count * _BLOCK.size :])
    return [
        BlockDigest(first, end, n, rows, None if flags & _NO_BODIES else bodies)
        for first, end, n, rows, bodies in found
    ]


def _pack_block(block: BlockDigest) -> bytes:
    return _BLOCK.pack(block.first, block.end, block.rows, block.rows_sha256, block.bodies_sha256 or bytes(32))


def check(name: str, data: bytes) -> None:
    """Raise DamagedJournal if an index file is damaged or has another version."""
    if len(data) < _HEAD_BYTES or data[:8] != INDEX_MAGIC:
        raise DamagedJournal(f"{name} is not an index of a Penstock log")
    _, version, *_ = _HEAD.unpack_from(data)
    crc = int.from_bytes(data[_HEAD.size : _HEAD_BYTES], "little")
    if version != INDEX_VERSION or _crc(data[: _HEAD.size], data[_HEAD_BYTES:]) != crc:
        raise DamagedJournal(f"{name} is damaged, or of another version")


def _encode_names(names: Names) -> bytes:
    tubes = {number: name.hex() for number, name in names.tubes.items()}
    sessions = {number: [name.hex(), user.hex()] for number, (name, user) in names.sessions.items()}
    return json.dumps({"tubes": tubes, "sessions": sessions}).encode()


def _decode_names(encoded: bytes) -> Names:
    found = json.loads(encoded)
    names = Names()
    names.tubes = {int(number): bytes.fromhex(name) for number, name in found["tubes"].items()}
    names.sessions = {
        int(number): (bytes.fromhex(name), bytes.fromhex(user)) for number, (name, user) in found["sessions"].items()
    }
    return names


def _crc(head: bytes, rest: bytes) -> int:
    return crc32(rest, crc32(head[8:]))


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
