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

from penstock.core.errors import DamagedJournal, JournalFailed
from penstock.journal.disk import Disk, File
from penstock.journal.frame import FRAME_BYTES_MAX, RowWriter

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


@dataclass(frozen=True)
class _Tail:
    """The segment that frames go to."""

    file: File
    number: int
    size: int


class Log:
    """The log of one node, open for appending."""

    def __init__(
        self,
        disk: Disk,
        node: str,
        boot: str,
        epoch: int,
        segment: int,
        position: int,
        fsync: str,
        wall: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.writer = RowWriter(position)
        self.fsync = fsync
        self.durable = position  # Every position below it is on disk.
        self._disk = disk
        self._node = node
        self._boot = boot
        self._epoch = epoch
        self._segment_bytes = segment_bytes
        self._wall = wall
        self._spare: tuple[File, int] | None = None
        self._spare_not_before = 0
        self._syncing = threading.Lock()
        self._failed: OSError | None = None
        self.writer.begin_segment(self._make(segment, SEGMENT_BYTES_MIN, segment_bytes), SEGMENT_HEADER_BYTES)

    @property
    def written(self) -> int:
        """Every position below it is in a file."""
        return self.writer.written

    def commit(self, now: int, wall: int) -> None:
        """Write what happened since the last commit as one frame. Interrupted, it can be called again."""
        writer = self.writer
        if writer.rows == 0 and not writer.frame:
            return
        self.check()
        self._wall = wall
        try:
            if writer.frame:
                self._write_frame()
            if writer.rows:
                self._make_frame(now, wall)
                self._write_frame()
        except OSError as error:
            # The engine has already changed, and cannot be changed back: nothing more may be promised.
            self._failed = error
            raise JournalFailed(f"the log could not be written: {error}") from error
        if writer.promised:
            self.make_durable(self.written)
            writer.promised = False

    def make_durable(self, position: int) -> None:
        """Return when every position below this one is on disk; callers who come together share one sync."""
        if self.durable >= position:
            return
        with self._syncing:
            if self.durable >= position:
                return
            self.check()
            upto = self.written
            self._sync(self._tail.file)
            self.durable = upto

    def room(self) -> int:
        """How many bytes of bodies can be put now, beside the reserve for everything else."""
        kept_free = RESERVE_BYTES + PUT_BYTES
        left = self._tail.size - self.writer.offset - kept_free
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
                self.make_durable(self.written)
                self._tail.file.truncate(self.writer.offset)
        finally:
            with self._syncing:
                self._tail.file.close()
            self._drop_spare()

    @property
    def _tail(self) -> _Tail:
        tail = self.writer.tail
        assert isinstance(tail, _Tail)
        return tail

    def _make_frame(self, now: int, wall: int) -> None:
        writer = self.writer
        length = writer.frame_bytes()
        if length > FRAME_BYTES_MAX:
            raise OSError(errno.EFBIG, f"a frame of {length} bytes could not be read back")
        if writer.offset + length > self._tail.size:
            self._rotate(length)
        seed = frame_seed(self._node, self._tail.number, writer.offset)
        writer.make_frame(now, wall, self.durable, seed)

    def _write_frame(self) -> None:
        self._tail.file.write(self.writer.offset, *self.writer.frame)
        self.writer.wrote_frame()

    def _sync(self, file: File) -> None:
        try:
            file.sync()
        except OSError as error:
            self._failed = error
            raise JournalFailed(f"the log could not be synced: {error}") from error

    def _rotate(self, length: int) -> None:
        """Go on in the next segment. What is in this one becomes durable first, so that no hole can appear."""
        with self._syncing:
            before = self._tail
            self._sync(before.file)
            self.durable = self.written
            self.writer.begin_segment(self._following(before.number + 1, length), SEGMENT_HEADER_BYTES)
            before.file.close()

    def _following(self, number: int, length: int) -> _Tail:
        """The next segment: the one that was kept ready, if it is large enough."""
        needed = length + SEGMENT_HEADER_BYTES
        if self._spare is None or self._spare[1] < needed:
            self._drop_spare()
            return self._make(number, needed, max(self._segment_bytes, needed))
        file, size = self._spare
        file.write(0, self._header(number))
        file.sync()
        self._disk.rename("spare", segment_name(number))
        self._spare = None
        return _Tail(file, number, size)

    def _make(self, number: int, needed: int, size: int) -> _Tail:
        """Make a segment; on a full disk a smaller one, so that what is there can be taken and acked."""
        while True:
            try:
                return _Tail(self._disk.create(segment_name(number), size, self._header(number)), number, size)
            except OSError as error:
                if error.errno != errno.ENOSPC or size <= needed:
                    raise
                size = max(needed, size // 2)

    def _header(self, number: int) -> bytes:
        return SegmentHeader(
            node=self._node,
            segment=number,
            epoch=self._epoch,
            boot=self._boot,
            position=self.written,
            fsync=self.fsync,
            created=self._wall,
        ).encode()

    def _make_spare(self, size: int) -> None:
        try:
            self._spare = (self._disk.create("spare", size, b""), size)
        except OSError:
            # A full disk need not be asked with every commit.
            self._spare_not_before = self._wall + 500

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare[0].close()
            self._spare = None
            self._disk.remove("spare")
