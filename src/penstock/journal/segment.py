"""The files of a log, segments and snapshots, and how their frames are read.

    file = header, 4,096 bytes │ frame │ frame │ … │ zeros

The header is the magic "PENSTOCK", a version u16, must-understand bits u16, the length of the JSON u32, a crc32 u32,
and the JSON: the fields of `SegmentHeader`. Snapshot number n is the result of the log before segment n. A reader of
the snapshot continues with that segment.

Files are read in pieces of a few megabytes, independent of their size.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, NamedTuple

from penstock.core.errors import DamagedJournal, NewerJournal
from penstock.journal import frame as f
from penstock.journal import layout
from penstock.journal.checksum import crc32
from penstock.journal.disk import Disk, ReadableDisk, ReadableFile

SEGMENT_MAGIC: Final = b"PENSTOCK"
SEGMENT_VERSION: Final = 2
SEGMENT_HEADER_BYTES: Final = 4_096

# The position in the header of a segment that was created in advance. The first frame of the segment has its position.
NOT_BEGUN: Final = 0

LOG: Final = "log"
SNAPSHOT: Final = "snapshot"

# Bytes of a file to read at a time, unless a frame is longer.
PIECE_BYTES: Final = 4 * 1024 * 1024

_HEAD: Final = struct.Struct("<8sHHII")

Progress = Callable[[int, int], None]  # Progress of long work: bytes done, bytes in total.


@dataclass(frozen=True, kw_only=True)
class SegmentHeader:
    """The header of a segment or snapshot."""

    node: str
    segment: int
    epoch: int
    boot: str
    position: int  # Of the first row, or NOT_BEGUN. In a snapshot: rows of the log from this position on are newer.
    fsync: str
    created: int  # Wall time, in ms.
    durable: int  # Every position below this was on disk when the file was started.
    kind: str = LOG
    bodies: bool = True  # Whether it has bodies. They may be removed from history.
    repaired: bool = False  # Whether a repair has left out rows in it or directly before it.

    def encode(self) -> bytes:
        """Return the bytes at the beginning of the file."""
        text = json.dumps(asdict(self)).encode()
        head = _HEAD.pack(SEGMENT_MAGIC, SEGMENT_VERSION, 0, len(text), crc32(text))
        return (head + text).ljust(SEGMENT_HEADER_BYTES, b"\0")

    @property
    def file_seed(self) -> int:
        """Return the part of the checksum seeds that all frames of this file share. See `frame.seed_at`."""
        name = f"{self.segment}" if self.kind == LOG else f"{self.kind} {self.segment}"
        return crc32(f"{self.node} {name} ".encode())

    def frame_seed(self, offset: int) -> int:
        """Return the seed for the checksum of the frame at `offset`."""
        return f.seed_at(self.file_seed, offset)

    @property
    def name(self) -> str:
        return segment_name(self.segment) if self.kind == LOG else snapshot_name(self.segment)


_FIELDS: Final = {field.name for field in fields(SegmentHeader)}


def read_header(name: str, data: bytes) -> SegmentHeader:
    """Decode the header of a file. Raise DamagedJournal if it is not valid."""
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != SEGMENT_MAGIC:
        raise DamagedJournal(f"{name} is not a file of a Penstock log: its header is missing")
    _, version, must_understand, length, crc = _HEAD.unpack_from(data)
    if not 1 <= version <= SEGMENT_VERSION or must_understand:
        raise NewerJournal(
            f"{name} was written by a newer Penstock (format {version}, bits {must_understand:#x}); use that one"
        )
    text = data[_HEAD.size : _HEAD.size + length]
    if length > SEGMENT_HEADER_BYTES - _HEAD.size or crc32(text) != crc:
        raise DamagedJournal(f"{name} is damaged at offset 0: the checksum of its header is wrong")
    # A later version may write more fields, as long as this version may ignore them.
    return SegmentHeader(**{field: value for field, value in json.loads(text).items() if field in _FIELDS})


_SEGMENT_NAME: Final = re.compile(r"segment-[0-9]{10}\.log")
_SNAPSHOT_NAME: Final = re.compile(r"snapshot-[0-9]{10}\.log")


def segment_name(number: int) -> str:
    return f"segment-{number:010d}.log"


def snapshot_name(number: int) -> str:
    return f"snapshot-{number:010d}.log"


def number_of(name: str) -> int:
    """Return the number of a segment or snapshot from its file name."""
    return int(name.split("-")[1].removesuffix(".log"))


def index_name(number: int) -> str:
    return f"segment-{number:010d}.idx"


def remove_index(disk: Disk, number: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.remove(index_name(number))


def is_segment(name: str) -> bool:
    """Return whether a file name is that of a segment. Other files may be in the directory."""
    return _SEGMENT_NAME.fullmatch(name) is not None


def is_snapshot(name: str) -> bool:
    return _SNAPSHOT_NAME.fullmatch(name) is not None


def segment_names(disk: ReadableDisk) -> list[str]:
    """Return the names of all segments, oldest first."""
    return list(filter(is_segment, disk.names()))


def snapshot_names(disk: ReadableDisk) -> list[str]:
    """Return the names of all snapshots, oldest first."""
    return list(filter(is_snapshot, disk.names()))


class LocatedFrame(NamedTuple):
    """A frame, with the piece of a file that contains it."""

    data: bytes  # The piece.
    frame: f.Frame  # Its offsets count from the start of the piece.
    base: int  # Offset of the piece in the file.


class Piece(NamedTuple):
    """A piece of a file, and the frames in it."""

    data: bytes
    frames: list[f.Frame]  # Their offsets count from the start of the piece.
    base: int  # Offset of the piece in the file.


class FrameFile:
    """A segment or snapshot that is read frame by frame."""

    def __init__(self, disk: ReadableDisk, name: str) -> None:
        self.name = name
        self.file: ReadableFile = disk.open_to_read(name)
        try:
            self.header = read_header(name, self.file.read(0, SEGMENT_HEADER_BYTES))
            if self.header.name != name:
                raise DamagedJournal(f"{name} has the header of {self.header.name}; it was renamed by mistake")
            self.read_first_frame()
        except BaseException:
            self.file.close()
            raise
        self.size = self.file.size()

    def read_first_frame(self) -> None:
        """Complete the header of a segment that was created in advance.

        The missing fields are read from its first frame, if it has one.
        """
        if self.header.position != NOT_BEGUN:
            return
        with contextlib.suppress(f.DamagedFrame):
            first = self.file.read(SEGMENT_HEADER_BYTES, layout.FRAME_HEADER_BYTES)
            data = self.file.read(SEGMENT_HEADER_BYTES, _frame_length(first))
            frame = self.read_frame(data, SEGMENT_HEADER_BYTES)
            if frame is not None:
                self.header = replace(
                    self.header, position=frame.position, durable=frame.durable, created=frame.wall_ms
                )

    def read_frame(self, data: bytes, offset: int) -> f.Frame | None:
        """Return the frame at the start of `data`, the bytes of the file at `offset`. See `frame.read_frame`.

        Raise NewerJournal if a newer version has written the frame.
        """
        try:
            return f.read_frame(data, 0, self.header.frame_seed(offset))
        except f.NewerFrame as newer:
            raise NewerJournal(f"{self.name}: at offset {offset}, {newer}") from None

    def __enter__(self) -> FrameFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()

    def run(self, start: int = SEGMENT_HEADER_BYTES, piece_bytes: int = PIECE_BYTES) -> FrameRun:
        """Return an iterator over the readable frames, starting at offset `start`. It yields many frames at a time."""
        return FrameRun(self, start, piece_bytes)

    def pieces(self, start: int = SEGMENT_HEADER_BYTES, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """Yield pieces of the file up to the zeros at its end.

        Raise DamagedJournal if other bytes follow the frames.
        """
        run = self.run(start, piece_bytes)
        yield from run
        if run.torn_reason():
            raise run.damage()

    def frames(
        self, start: int = SEGMENT_HEADER_BYTES, piece_bytes: int = PIECE_BYTES, whole: bool = True
    ) -> Iterator[LocatedFrame]:
        """Yield frames one by one up to the zeros at the end of the file.

        Raise DamagedJournal if other bytes follow the frames.
        """
        for data, frames, base in self.pieces(start, piece_bytes) if whole else self.run(start, piece_bytes):
            for frame in frames:
                yield LocatedFrame(data, frame, base)

    def whole_pieces(self, last: bool, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """Yield all pieces of the file. Raise DamagedJournal if other bytes follow the frames.

        The last segment of a log (`last`) may end in an incomplete frame, which is skipped.
        """
        yield from self.run(piece_bytes=piece_bytes) if last else self.pieces(piece_bytes=piece_bytes)

    def used_end(self, start: int) -> int:
        """Return the offset after the last non-zero byte at or after `start`."""
        end = self.size
        while end > start:
            begin = max(start, end - PIECE_BYTES)
            piece = self.file.read(begin, end - begin).rstrip(b"\0")
            if piece:
                return begin + len(piece)
            end = begin
        return start

    def frames_anywhere(self, start: int) -> Iterator[LocatedFrame]:
        """Yield every valid frame at or after offset `start`, at any offset, to find frames after damage."""
        magic = layout.FRAME_MAGIC.to_bytes(4, "little")
        offset = (start + 7) & ~7
        while offset < self.size:
            piece = self.file.read(offset, PIECE_BYTES + layout.FRAME_HEADER_BYTES)
            place = piece.find(magic)
            while place >= 0 and place % 8:
                place = piece.find(magic, place + 1)
            if place < 0 or place >= PIECE_BYTES:
                offset += PIECE_BYTES
                continue
            offset += place
            data = self.file.read(offset, _frame_length(piece[place:]))
            try:
                frame = self.read_frame(data, offset)
            except f.DamagedFrame:
                frame = None
            if frame is not None:
                yield LocatedFrame(data, frame, offset)
                offset += frame.length
            else:
                offset += 8


class FrameRun:
    """The consecutive readable frames of a file. After an iteration, `end` and `why` contain where and why they end.

    A run can be iterated again. It then continues where it ended, and finds frames that were written since.
    """

    def __init__(self, file: FrameFile, start: int, piece_bytes: int) -> None:
        self.end = start  # Offset at which the next frame would start.
        self.why = ""  # Why no frame starts there. Empty if zeros follow.
        self._file = file
        self._piece_bytes = piece_bytes

    def __iter__(self) -> Iterator[Piece]:
        file, length = self._file, self._piece_bytes
        self.why = ""
        while True:
            offset = self.end
            data = file.file.read(offset, length)
            if len(data) < length:
                # The file may have been truncated since it was opened.
                file.size = offset + len(data)
            frames = f.read_frames(data, 0, offset, file.header.file_seed, offset + len(data) >= file.size)
            if frames:
                self.end += frames[-1].at + frames[-1].length
                yield Piece(data, frames, offset)
                length = self._piece_bytes
                continue
            needed = _frame_length(data)
            if len(data) < needed and offset + len(data) < file.size:
                length = needed
                continue
            try:
                file.read_frame(data, offset)
            except f.DamagedFrame as why:
                self.why = str(why)
            return

    def torn_reason(self) -> str:
        """Return a description of the bytes after the last readable frame, or "" if they are zeros."""
        if not self.why and self._file.used_end(self.end) > self.end:
            self.why = "zeros followed by other bytes"
        return self.why

    def whole(self, last: bool) -> Iterator[Piece]:
        """Yield all pieces of the file, which a node may be writing. Raise DamagedJournal if there is damage.

        Only the last segment of a log (`last`) may end in an incomplete frame, and no complete frame may follow it.
        """
        yield from self
        while self.has_later_frame() if last else self.torn_reason():
            end = self.end
            # A frame that was incomplete is complete now, if another one follows it.
            yield from self
            if self.end == end:
                raise self.damage()

    def has_later_frame(self) -> bool:
        """Return whether a complete frame exists after the offset at which the readable frames end."""
        return next(self._file.frames_anywhere(self.end + 8), None) is not None

    def damage(self) -> DamagedJournal:
        """Return the error for the offset at which the readable frames end."""
        return DamagedJournal(f"{self._file.name} is damaged at offset {self.end} ({self.torn_reason()})")


def all_headers(disk: ReadableDisk) -> list[SegmentHeader]:
    """Return the headers of all segments, oldest first."""
    found = []
    # Newest first: if a segment has frames, the earlier ones have frames, too, and are complete.
    for name in reversed(segment_names(disk)):
        # A segment that was removed meanwhile is no longer kept.
        with contextlib.suppress(FileNotFoundError), FrameFile(disk, name) as file:
            found.append(file.header)
    return found[::-1]


def begun_segment_names(disk: ReadableDisk) -> list[str]:
    """Return the names of the segments that have frames, oldest first."""
    return [header.name for header in all_headers(disk) if header.position != NOT_BEGUN]


def _frame_length(data: bytes) -> int:
    """Return the frame length from a frame header if it is plausible, and the length of a header otherwise."""
    if len(data) < layout.FRAME_HEADER_BYTES or data[:4] != layout.FRAME_MAGIC.to_bytes(4, "little"):
        return layout.FRAME_HEADER_BYTES
    length = int.from_bytes(data[layout.LENGTH_AT : layout.LENGTH_AT + 4], "little")
    return length if layout.FRAME_HEADER_BYTES <= length <= f.FRAME_BYTES_MAX else layout.FRAME_HEADER_BYTES
