"""The log of one node: segments on a disk, frames appended to the newest, and how far they are durable.

    segment file = header, 4,096 bytes │ frame │ frame │ … │ zeros

The header is the magic "PENSTOCK", a version u16, must-understand bits u16, a length u32, a crc32 u32, and that many
bytes of JSON: node, segment, epoch, boot (of the kernel), first position, fsync, created.

Every open begins a segment and an epoch of its own. Segments are made at their full size, so appending changes no
metadata. The next one is made before it is needed: if that fails, the disk is full while there is still room for acks.
"""

from __future__ import annotations

import errno
import json
import struct
import threading
import zlib
from dataclasses import asdict, dataclass
from typing import Final

from penstock.core.errors import DamagedJournal, JournalFailed, NoSpace
from penstock.journal.disk import Disk, File
from penstock.journal.frame import RowWriter

SEGMENT_MAGIC: Final = b"PENSTOCK"
SEGMENT_VERSION: Final = 1
SEGMENT_HEADER_BYTES: Final = 4_096
SEGMENT_BYTES: Final = 16 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 64 * 1024

# What acks, takes and timers may still write when puts are refused.
RESERVE_BYTES: Final = 1024 * 1024

# A row and its share of a frame: what a put needs beside its body.
PUT_BYTES: Final = 1_024

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NEVER_SYNC: Final = "never"
FSYNC_CHOICES: Final = (ALWAYS, EVERYSEC, NEVER_SYNC)

_HEAD: Final = struct.Struct("<8sHHII")


@dataclass(frozen=True, kw_only=True)
class SegmentHeader:
    """What a segment says about itself."""

    node: str
    segment: int
    epoch: int
    boot: str
    position: int  # Of its first row.
    fsync: str
    created: int  # Wall time, ms.

    def encode(self) -> bytes:
        """The bytes that a segment begins with."""
        text = json.dumps(asdict(self)).encode()
        head = _HEAD.pack(SEGMENT_MAGIC, SEGMENT_VERSION, 0, len(text), zlib.crc32(text))
        return (head + text).ljust(SEGMENT_HEADER_BYTES, b"\0")


def read_header(name: str, data: bytes) -> SegmentHeader:
    """What a segment says about itself, or why it cannot be read."""
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != SEGMENT_MAGIC:
        raise DamagedJournal(f"{name} is not a segment of a Penstock log: its header is missing")
    _, version, must_understand, length, crc = _HEAD.unpack_from(data)
    if version != SEGMENT_VERSION or must_understand:
        raise DamagedJournal(
            f"{name} was written by a newer Penstock (format {version}, bits {must_understand:#x}); use that one"
        )
    text = data[_HEAD.size : _HEAD.size + length]
    if length > SEGMENT_HEADER_BYTES - _HEAD.size or zlib.crc32(text) != crc:
        raise DamagedJournal(f"{name} is damaged at offset 0: the checksum of its header is wrong")
    return SegmentHeader(**json.loads(text))


def segment_name(number: int) -> str:
    """The file of a segment."""
    return f"segment-{number:010d}.log"


def frame_seed(node: str, segment: int, offset: int) -> int:
    """Where a checksum begins, so that a frame is valid in its own place only."""
    return zlib.crc32(f"{node} {segment} {offset}".encode())


class Log:
    """The log of one node, open for appending."""

    def __init__(
        self, disk: Disk, node: str, boot: str, epoch: int, segment: int, position: int, fsync: str, wall: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:  # fmt: skip
        self.writer = RowWriter(position)
        self.fsync = fsync
        self.durable = position  # Every position below it is on disk.
        self.written = position  # Every position below it is in a file.
        self._disk = disk
        self._node = node
        self._boot = boot
        self._epoch = epoch
        self._segment = segment
        self._segment_bytes = segment_bytes
        self._wall = wall
        self._spare: tuple[File, int] | None = None
        self._spare_not_before = 0
        self._syncing = threading.Lock()
        self._failed: OSError | None = None
        self._size = segment_bytes
        self._file = self._make_first(segment, position)
        self._offset = SEGMENT_HEADER_BYTES

    def commit(self, now: int, wall: int) -> None:
        """Write what happened since the last commit as one frame."""
        if self.writer.rows == 0:
            return
        self.check()
        self._wall = wall
        length = self.writer.frame_bytes()
        try:
            if self._offset + length > self._size:
                self._rotate(length)
            seed = frame_seed(self._node, self._segment, self._offset)
            parts = self.writer.take_frame(now, wall, self.durable, seed, self.writer.crc)
            self._file.write(self._offset, *parts)
        except OSError as error:
            # The engine has already changed, and cannot be changed back: nothing more may be promised.
            self._failed = error
            raise JournalFailed(f"the log could not be written: {error}") from error
        self._offset += length
        self.written = self.writer.position
        if self.writer.promised:
            self.writer.promised = False
            self.make_durable(self.written)

    def make_durable(self, position: int) -> None:
        """Return when every position below this one is on disk; callers who come together share one sync."""
        if self.durable >= position:
            return
        with self._syncing:
            self.check()
            if self.durable >= position:
                return
            upto = self.written
            self._sync(self._file)
            self.durable = upto

    def room(self) -> int:
        """How many bytes of bodies can be put now, beside the reserve for everything else."""
        kept_free = RESERVE_BYTES + PUT_BYTES
        left = self._size - self._offset - kept_free
        if self._spare is None and left < self._segment_bytes // 4 and self._wall >= self._spare_not_before:
            self._make_spare(self._segment_bytes)
        if self._spare is not None:
            left = max(left, self._spare[1] - SEGMENT_HEADER_BYTES - kept_free)
        return left

    def make_room(self, length: int) -> int:
        """Try to have room for so many bytes of bodies, more than a segment perhaps; tell how much room there is."""
        if self.room() < length:
            self._drop_spare()
            self._make_spare(length + SEGMENT_HEADER_BYTES + RESERVE_BYTES + PUT_BYTES)
        return self.room()

    @property
    def failed(self) -> bool:
        """Whether the disk failed: nothing more can be promised."""
        return self._failed is not None

    def check(self) -> None:
        """Refuse to go on after the disk failed. A sync that failed is never tried again: it would say it worked."""
        if self._failed is not None:
            raise JournalFailed(f"the log failed before: {self._failed}") from self._failed

    def close(self, now: int, wall: int) -> None:
        """Write that nothing is missing, and close."""
        try:
            if self._failed is None:
                self.writer.stopped(now)
                self.commit(now, wall)
                self._sync(self._file)
                self.durable = self.written
                self._file.truncate(self._offset)
        finally:
            self._file.close()
            self._drop_spare()

    def _sync(self, file: File) -> None:
        try:
            file.sync()
        except OSError as error:
            self._failed = error
            raise JournalFailed(f"the log could not be synced: {error}") from error

    def _rotate(self, length: int) -> None:
        """Go on in the next segment. What is in this one becomes durable first, so that no hole can appear."""
        with self._syncing:
            self._sync(self._file)
            self.durable = self.written
            self._segment += 1
            following = self._next_file(length + SEGMENT_HEADER_BYTES)
            self._file.close()
            self._file = following
            self._offset = SEGMENT_HEADER_BYTES

    def _next_file(self, needed: int) -> File:
        """The file of the next segment: the one that was kept ready, if it is large enough."""
        if self._spare is not None and self._spare[1] >= needed:
            spare, self._size = self._spare
            self._spare = None
            spare.write(0, self._header(self._segment, self.written))
            spare.sync()
            self._disk.rename("spare", segment_name(self._segment))
            return spare
        self._drop_spare()
        self._size = max(self._segment_bytes, needed)
        return self._make(self._segment, self._size, self.written)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare[0].close()
            self._spare = None
            self._disk.remove("spare")

    def _header(self, segment: int, position: int) -> bytes:
        return SegmentHeader(
            node=self._node,
            segment=segment,
            epoch=self._epoch,
            boot=self._boot,
            position=position,
            fsync=self.fsync,
            created=self._wall,
        ).encode()

    def _make(self, segment: int, size: int, position: int) -> File:
        return self._disk.create(segment_name(segment), size, self._header(segment, position))

    def _make_first(self, segment: int, position: int) -> File:
        """A segment to begin with: on a full disk a small one, so that what is there can be taken and acked."""
        while True:
            try:
                return self._make(segment, self._size, position)
            except OSError as error:
                if error.errno != errno.ENOSPC or self._size <= SEGMENT_BYTES_MIN:
                    raise NoSpace(f"the log cannot be opened: {error}") from error
                self._size //= 2

    def _make_spare(self, size: int) -> None:
        try:
            self._spare = (self._disk.create("spare", size, b""), size)
        except OSError:
            # A full disk need not be asked with every commit.
            self._spare_not_before = self._wall + 500
