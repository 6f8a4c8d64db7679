"""Follows a log for other processes: returns durable frames by position, unchanged, and whole files for a standby.

A frame is found without reading its segment from the start. For a follower that continues where it ended, the offset of
its last read is used. For all others, the index of the segment is used. Files are opened for each read, so a follower
does not prevent history from being removed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from penstock.core.errors import DamagedJournal, OutOfRange, Trimmed
from penstock.journal import frame as f
from penstock.journal.consistent_read import read_consistently
from penstock.journal.disk import ReadableDisk
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.reader import Event, Reader
from penstock.journal.segment import NOT_BEGUN, FrameFile, Piece, all_headers, snapshot_names

# Number of stored offsets.
_OFFSETS_MAX: Final = 1_024

# Bytes of a file to process before other threads get their turn: a millisecond of work if the frames are short.
_PIECE_BYTES: Final = 512 * 1024

# Number of events to examine for one page, so that a filter that matches nothing comes to an end.
EXAMINED_MAX: Final = 10_000

# Seconds after which a page of digests ends. Blocks that are not in an index must be read and hashed.
_DIGESTS_S: Final = 0.25

# Number of events to decode before other threads get their turn.
_SLICE_EVENTS: Final = 64

T = TypeVar("T")


@dataclass
class FramePage:
    next: int  # The position to continue from.
    data: bytes = b""
    place: tuple[str, int] = ("", 0)  # File name and offset of the first frame.
    # Names of the tubes in the segment of the first frame, by number. Empty unless they were requested.
    names: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class LogFile:
    """A file of the log, with the facts that a standby needs."""

    name: str
    bytes: int  # Its size so far.
    bodies: bool  # Whether it has bodies.


@dataclass
class EventPage:
    next: int  # The position to continue from.
    events: list[Event] = field(default_factory=list)
    examined: int = 0


@dataclass
class BlockPage:
    next: int  # The position to continue from.
    blocks: list[BlockDigest] = field(default_factory=list)


class LogFollower:
    """Reads a log for followers. Any thread can use it."""

    def __init__(self, disk: ReadableDisk, reader: Reader) -> None:
        self._disk = disk
        self._reader = reader
        self._lock = threading.Lock()
        self._offsets: dict[
            int, tuple[str, int]
        ] = {}  # File and offset by the position of the frame that starts there.

    def first(self, end: int) -> int:
        """Return the oldest position in the log, or `end` if the log has no rows."""
        first = self._reader.first()
        return end if first is None else first

    def files(self) -> list[LogFile]:
        """Return the present files of the log: snapshots, and the segments that have frames."""
        found = []
        for name in snapshot_names(self._disk):
            # A file that was removed meanwhile is no longer kept.
            with contextlib.suppress(FileNotFoundError):
                found.append(LogFile(name, self._disk.size(name), True))
        for header in all_headers(self._disk):
            if header.position != NOT_BEGUN:
                with contextlib.suppress(FileNotFoundError):
                    found.append(LogFile(header.name, self._disk.size(header.name), header.bodies))
        return found

    def fetch(self, name: str, offset: int, length: int) -> bytes:
        try:
            file = self._disk.open_to_read(name)
        except FileNotFoundError:
            raise Trimmed(f"{name} is not kept any more") from None
        with contextlib.closing(file):
            return file.read(offset, length)

    def read(self, position: int, end: int, bytes_max: int, names: bool, one_file: bool = False) -> FramePage:
        """Return the frames from the one that contains `position` up to `end`.

        The result has about `bytes_max` bytes, and at least one frame. Rows contain only the numbers of tubes, so with
        `names` the result also has the tube names of the first frame's segment. With `one_file`, all frames are of one
        file.
        """
        return self._retry(lambda: self._read(position, end, bytes_max, names, one_file))

    def _read(self, position: int, end: int, bytes_max: int, names: bool, one_file: bool) -> FramePage:
        parts: list[bytes] = []
        called: dict[int, bytes] = {}
        length, upto = 0, position
        begin: tuple[str, int] = ("", 0)
        place: tuple[str, int] | None = None  # Where the next frame will begin, if it is in the same file.
        for name, piece in self._pieces(position, end):
            if not parts:
                begin = (name, piece.base + piece.frames[0].at)
                if names:
                    called = self._reader.tube_names_in(name)
            elif one_file and name != begin[0]:
                break
            frames = _fitting(piece.frames, bytes_max - length, not parts)
            if frames:
                # The frames are consecutive, so one slice copies all of them. A frame may contain a single row.
                first, last = frames[0], frames[-1]
                parts.append(piece.data[first.at : last.at + last.length])
                length += len(parts[-1])
                upto = last.position + last.rows
                place = (name, piece.base + last.at + last.length)
            if len(frames) < len(piece.frames):
                break
        if place is not None:
            self._store_offset(upto, place)
        return FramePage(upto, b"".join(parts), begin, called)

    def events(self, position: int, end: int, count: int, bytes_max: int, tube: bytes | None) -> EventPage:
        """Return events from `position` up to `end`: at most `count`, and about `bytes_max` bytes of bodies.

        The result has at least one event. If only the events of `tube` are wanted, a page can contain fewer events, or
        none, before `end` is reached. The caller then continues with the next page.
        """
        return self._retry(lambda: self._events(position, end, count, bytes_max, tube))

    def _events(self, position: int, end: int, count: int, bytes_max: int, tube: bytes | None) -> EventPage:
        self._check_kept(position, end)
        page = EventPage(position)
        length = 0
        for event in self._reader.events(position, end):
            if len(page.events) == count or length > bytes_max or page.examined == EXAMINED_MAX:
                return page
            page.examined += 1
            if page.examined % _SLICE_EVENTS == 0:
                time.sleep(0)
            if tube is None or event.raw_tube == tube:
                page.events.append(event)
                length += len(event.body or b"")
            page.next = event.position + 1
        page.next = max(page.next, end)
        return page

    def digests(self, position: int, end: int, count: int) -> BlockPage:
        """Return the digests of the rows from `position` up to `end`, as at most `count` blocks without holes.

        The result has at least one block. It has fewer blocks if it takes long to compute them.
        """
        return self._retry(lambda: self._digests(position, end, count))

    def _digests(self, position: int, end: int, count: int) -> BlockPage:
        self._check_kept(position, end)
        page = BlockPage(position)
        stop = time.monotonic() + _DIGESTS_S
        for block in self._reader.blocks(position, end):
            page.blocks.append(block)
            page.next = block.end
            if len(page.blocks) == count or time.monotonic() > stop:
                break
        if page.next == position < end:
            # The rows were removed a moment ago, or they are damaged.
            self._check_kept(position, end)
            raise _unreadable(position)
        return page

    def _retry(self, look: Callable[[], T]) -> T:
        """Return the result of `look`. Call it again if it fails because a segment was rewritten meanwhile."""
        try:
            return look()
        except DamagedJournal:
            return read_consistently(self._disk, look)

    def _check_kept(self, position: int, end: int) -> None:
        first = self.first(end) if position < end else 0
        if position < first:
            raise Trimmed(f"position {position} is not kept any more; the first that is kept is {first}")

    def _store_offset(self, position: int, place: tuple[str, int]) -> None:
        with self._lock:
            # Insert it again, so that offsets that are used stay.
            self._offsets.pop(position, None)
            self._offsets[position] = place
            if len(self._offsets) > _OFFSETS_MAX:
                del self._offsets[next(iter(self._offsets))]

    def _pieces(self, position: int, end: int) -> Iterator[tuple[str, Piece]]:
        """Yield (file name, piece) for all frames up to `end`, starting with the frame that contains `position`."""
        place = self._offsets.get(position)
        at = position
        if place is not None:
            for piece in self._pieces_at(place[0], place[1], position, end):
                if piece.frames[0].position != at and at == position:
                    # The file was rewritten since, and the offset is no longer valid.
                    break
                yield place[0], piece
                at = piece.frames[-1].position + piece.frames[-1].rows
        while at < end:
            self._check_kept(at, end)
            before = at
            for name, offset in self._reader.offsets_from(at):
                for piece in self._pieces_at(name, offset, at, end):
                    yield name, piece
                    at = piece.frames[-1].position + piece.frames[-1].rows
            if at == before:
                # A durable row is not there: it was removed a moment ago, or it is damaged.
                self._check_kept(at, end)
                raise _unreadable(at)

    def _pieces_at(self, name: str, offset: int, position: int, end: int) -> Iterator[Piece]:
        """Yield frames of one file, starting at `offset`: the one that contains `position`, and later ones up to `end`.

        No piece is empty.
        """
        try:
            file = FrameFile(self._disk, name)
        except FileNotFoundError:
            return
        with file:
            for piece in file.run(offset, _PIECE_BYTES):
                frames = piece.frames
                first = bisect_right(frames, position, key=lambda frame: int(frame.position + frame.rows))
                behind = bisect_left(frames, end, key=lambda frame: int(frame.position))
                if first < behind:
                    yield piece if behind - first == len(frames) else piece._replace(frames=frames[first:behind])
                if behind < len(frames):
                    return
                time.sleep(0)


def check_range(start: int, end: int, written: int) -> None:
    """Raise OutOfRange if `end` is less than `start`, or if `start` is less than 1 or greater than `written`.

    `written` is the next position of the log.
    """
    if start < 1:
        raise OutOfRange(f"{start} is not a position of the log; positions start at 1")
    if end < start:
        raise OutOfRange(f"the range ends at position {end}, before its start at {start}")
    if start > written:
        raise beyond_end(start, written)


def beyond_end(position: int, written: int) -> OutOfRange:
    return OutOfRange(f"position {position} is beyond the end of the log; the next position is {written}")


def _unreadable(position: int) -> DamagedJournal:
    return DamagedJournal(f"position {position} of the log cannot be read; run `penstock journal check`")


def _fitting(frames: list[f.Frame], bytes_max: int, one: bool) -> list[f.Frame]:
    """Return the first frames that have at most `bytes_max` bytes together. With `one`, return at least one frame."""
    start = frames[0].at
    count = bisect_right(frames, start + bytes_max, key=lambda frame: int(frame.at + frame.length))
    return frames[: max(count, 1 if one else 0)]
