"""The files of a log, and how their frames are read: a segment of it, or a snapshot of what it led to.

    file = header, 4,096 bytes │ frame │ frame │ … │ zeros

The header is the magic "PENSTOCK", a version u16, must-understand bits u16, a length u32, a crc32 u32, and that many
bytes of JSON: the fields of `SegmentHeader`. Snapshot number n is what the log before segment n comes to; so whoever
has read it goes on with that segment.

Files are read in pieces of a few megabytes, whatever their size.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, NamedTuple

from penstock.core.errors import DamagedJournal
from penstock.journal import frame as f
from penstock.journal.checksum import crc32
from penstock.journal.disk import ReadableDisk, ReadableFile

SEGMENT_MAGIC: Final = b"PENSTOCK"
SEGMENT_VERSION: Final = 1
SEGMENT_HEADER_BYTES: Final = 4_096

# The position of a segment that was made ahead. Once it is used, its first frame says more than its header.
NOT_BEGUN: Final = 0

LOG: Final = "log"
SNAPSHOT: Final = "snapshot"

# How much of a file is read at a time, if no frame is longer.
PIECE_BYTES: Final = 4 * 1024 * 1024

_HEAD: Final = struct.Struct("<8sHHII")

Progress = Callable[[int, int], None]  # Of long work: bytes done, bytes in all.


@dataclass(frozen=True, kw_only=True)
class SegmentHeader:
    """What a segment or snapshot says about itself."""

    node: str
    segment: int
    epoch: int
    boot: str
    position: int  # Of its first row; of a snapshot, from where on the log has news for it. See NOT_BEGUN.
    fsync: str
    created: int  # Wall time, ms.
    durable: int  # Every position below it was on disk when this file was begun.
    kind: str = LOG
    bodies: bool = True  # Whether bodies are in it: they may be taken out of what is history only.
    repaired: bool = False  # Whether a repair has left out rows in it or right before it.

    def encode(self) -> bytes:
        """The bytes that the file begins with."""
        text = json.dumps(asdict(self)).encode()
        head = _HEAD.pack(SEGMENT_MAGIC, SEGMENT_VERSION, 0, len(text), crc32(text))
        return (head + text).ljust(SEGMENT_HEADER_BYTES, b"\0")

    @property
    def seeds(self) -> int:
        """Where the seeds of the checksums of its frames begin: see `frame.seed_at`."""
        name = f"{self.segment}" if self.kind == LOG else f"{self.kind} {self.segment}"
        return crc32(f"{self.node} {name} ".encode())

    def seed(self, offset: int) -> int:
        """Where the checksum of the frame at an offset begins."""
        return f.seed_at(self.seeds, offset)

    @property
    def name(self) -> str:
        """The file of this header."""
        return segment_name(self.segment) if self.kind == LOG else snapshot_name(self.segment)


_FIELDS: Final = {field.name for field in fields(SegmentHeader)}


def read_header(name: str, data: bytes) -> SegmentHeader:
    """What a file says about itself, or why it cannot be read."""
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != SEGMENT_MAGIC:
        raise DamagedJournal(f"{name} is not a file of a Penstock log: its header is missing")
    _, version, must_understand, length, crc = _HEAD.unpack_from(data)
    if version != SEGMENT_VERSION or must_understand:
        raise DamagedJournal(
            f"{name} was written by a newer Penstock (format {version}, bits {must_understand:#x}); use that one"
        )
    text = data[_HEAD.size : _HEAD.size + length]
    if length > SEGMENT_HEADER_BYTES - _HEAD.size or crc32(text) != crc:
        raise DamagedJournal(f"{name} is damaged at offset 0: the checksum of its header is wrong")
    # A later version may say more, as long as one that does not know it may go on.
    return SegmentHeader(**{field: value for field, value in json.loads(text).items() if field in _FIELDS})


_SEGMENT_NAME: Final = re.compile(r"segment-[0-9]{10}\.log")
_SNAPSHOT_NAME: Final = re.compile(r"snapshot-[0-9]{10}\.log")


def segment_name(number: int) -> str:
    """The file of a segment."""
    return f"segment-{number:010d}.log"


def snapshot_name(number: int) -> str:
    """The file of a snapshot."""
    return f"snapshot-{number:010d}.log"


def number_of(name: str) -> int:
    """The number of a segment or snapshot, by its file's name."""
    return int(name.split("-")[1].removesuffix(".log"))


def index_name(number: int) -> str:
    """The index of a segment."""
    return f"segment-{number:010d}.idx"


def is_segment(name: str) -> bool:
    """Whether a file is one of the log, by its name; others may lie beside it."""
    return _SEGMENT_NAME.fullmatch(name) is not None


def is_snapshot(name: str) -> bool:
    """Whether a file is a snapshot, by its name."""
    return _SNAPSHOT_NAME.fullmatch(name) is not None


def segment_names(disk: ReadableDisk) -> list[str]:
    """The files of the log, in order."""
    return list(filter(is_segment, disk.names()))


def snapshot_names(disk: ReadableDisk) -> list[str]:
    """The snapshots, oldest first."""
    return list(filter(is_snapshot, disk.names()))


class Found(NamedTuple):
    """A frame in a piece of a file."""

    data: bytes  # The piece.
    frame: f.Frame  # Its offsets count from the start of the piece.
    base: int  # Where the piece begins in the file.


class Piece(NamedTuple):
    """A piece of a file, and the frames in it."""

    data: bytes
    frames: list[f.Frame]  # Their offsets count from the start of the piece.
    base: int  # Where the piece begins in the file.


class FrameFile:
    """A segment or snapshot, to be read frame by frame."""

    def __init__(self, disk: ReadableDisk, name: str) -> None:
        self.name = name
        self.file: ReadableFile = disk.open_to_read(name)
        try:
            self.header = read_header(name, self.file.read(0, SEGMENT_HEADER_BYTES))
            if self.header.name != name:
                raise DamagedJournal(f"{name} says that it is {self.header.name}; it was renamed by mistake")
            self.see_begin()
        except BaseException:
            self.file.close()
            raise
        self.size = self.file.size()

    def see_begin(self) -> None:
        """Learn from the first frame, once there is one, what a segment that was made ahead could not say."""
        if self.header.position != NOT_BEGUN:
            return
        with contextlib.suppress(f.DamagedFrame):
            first = self.file.read(SEGMENT_HEADER_BYTES, f.FRAME_HEADER_BYTES)
            data = self.file.read(SEGMENT_HEADER_BYTES, _frame_length(first))
            frame = f.read_frame(data, 0, self.header.seed(SEGMENT_HEADER_BYTES))
            if frame is not None:
                self.header = replace(
                    self.header, position=frame.position, durable=frame.durable, created=frame.wall_ms
                )

    def __enter__(self) -> FrameFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def run(self, start: int = SEGMENT_HEADER_BYTES, piece_bytes: int = PIECE_BYTES) -> Run:
        """Its frames from an offset on, many at a time, as far as they can be read."""
        return Run(self, start, piece_bytes)

    def pieces(self, start: int = SEGMENT_HEADER_BYTES, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """The same, up to the zeros at the end; DamagedJournal where there is something else."""
        run = self.run(start, piece_bytes)
        yield from run
        if run.torn():
            raise run.damage()

    def frames(self, start: int = SEGMENT_HEADER_BYTES) -> Iterator[Found]:
        """The same, one at a time."""
        for data, frames, base in self.pieces(start):
            for frame in frames:
                yield Found(data, frame, base)

    def whole_pieces(self, last: bool, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """Its pieces, for readers: the last segment may end in a frame that is in the writing or torn, no other may."""
        yield from self.run(piece_bytes=piece_bytes) if last else self.pieces(piece_bytes=piece_bytes)

    def used(self, start: int) -> int:
        """Where the last byte that is not zero ends, from an offset on."""
        end = self.size
        while end > start:
            begin = max(start, end - PIECE_BYTES)
            piece = self.file.read(begin, end - begin).rstrip(b"\0")
            if piece:
                return begin + len(piece)
            end = begin
        return start

    def frames_anywhere(self, start: int) -> Iterator[Found]:
        """Every frame that is good from an offset on, wherever it begins: for those who look behind damage."""
        magic = f.FRAME_MAGIC.to_bytes(4, "little")
        offset = (start + 7) & ~7
        while offset < self.size:
            piece = self.file.read(offset, PIECE_BYTES + f.FRAME_HEADER_BYTES)
            place = piece.find(magic)
            while place >= 0 and place % 8:
                place = piece.find(magic, place + 1)
            if place < 0 or place >= PIECE_BYTES:
                offset += PIECE_BYTES
                continue
            offset += place
            data = self.file.read(offset, _frame_length(piece[place:]))
            try:
                frame = f.read_frame(data, 0, self.header.seed(offset))
            except f.DamagedFrame:
                frame = None
            if frame is not None:
                yield Found(data, frame, offset)
                offset += frame.length
            else:
                offset += 8


class Run:
    """The frames of a file one after the other, as far as they can be read; then, where they end, and why.

    It can be iterated again: it goes on where it ended, and finds what was written since.
    """

    def __init__(self, file: FrameFile, start: int, piece_bytes: int) -> None:
        self.end = start  # Of what was read; where the next frame would begin.
        self.why = ""  # Why none begins there; empty where zeros do.
        self._file = file
        self._piece_bytes = piece_bytes

    def __iter__(self) -> Iterator[Piece]:
        file, length = self._file, self._piece_bytes
        self.why = ""
        while True:
            offset = self.end
            data = file.file.read(offset, length)
            if len(data) < length:
                # It may have been cut since it was opened.
                file.size = offset + len(data)
            frames = f.read_frames(data, 0, offset, file.header.seeds, offset + len(data) >= file.size)
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
                f.read_frame(data, 0, file.header.seed(offset))
            except f.DamagedFrame as why:
                self.why = str(why)
            return

    def torn(self) -> str:
        """Why the file does not end where its frames do, in zeros; empty if it does."""
        if not self.why and self._file.used(self.end) > self.end:
            self.why = "zeros, and more behind them"
        return self.why

    def whole(self, last: bool) -> Iterator[Piece]:
        """Read on to the end of a log that may be in use; DamagedJournal where that is none.

        No segment but the last may end in a frame that is in the writing or torn, and behind that no other is whole.
        """
        yield from self
        while self.overtaken() if last else self.torn():
            end = self.end
            # What was in the writing is there by now, if anything is behind it.
            yield from self
            if self.end == end:
                raise self.damage()

    def overtaken(self) -> bool:
        """Whether a frame is whole behind the place where none can be read."""
        return next(self._file.frames_anywhere(self.end + 8), None) is not None

    def damage(self) -> DamagedJournal:
        """What to raise where something else should be."""
        return DamagedJournal(f"{self._file.name} is damaged at offset {self.end} ({self.torn()})")


def all_headers(disk: ReadableDisk) -> list[SegmentHeader]:
    """What the segments say about themselves, in order."""
    found = []
    # The newest first: when one has begun, those before have too, and are written to no more.
    for name in reversed(segment_names(disk)):
        # One that was removed meanwhile is not kept any more.
        with contextlib.suppress(FileNotFoundError), FrameFile(disk, name) as file:
            found.append(file.header)
    return found[::-1]


def begun_names(disk: ReadableDisk) -> list[str]:
    """The segments that have something in them, in order; not one that was made ahead."""
    return [header.name for header in all_headers(disk) if header.position != NOT_BEGUN]


def _frame_length(data: bytes) -> int:
    """How long the frame that begins here says it is, if one does and it can be so long; else of a header."""
    if len(data) < f.FRAME_HEADER_BYTES or data[:4] != f.FRAME_MAGIC.to_bytes(4, "little"):
        return f.FRAME_HEADER_BYTES
    length = int.from_bytes(data[12:16], "little")
    return length if f.FRAME_HEADER_BYTES <= length <= f.FRAME_BYTES_MAX else f.FRAME_HEADER_BYTES
