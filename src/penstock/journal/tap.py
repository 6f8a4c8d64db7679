"""The log for those who follow it from elsewhere: whole frames by position, byte for byte, and only durable ones; and
its files, for those who make a directory like it.

A frame is found without reading a segment for it: whoever goes on where it ended does so at a place that was noted, and
anybody else by the index of the segment. Files are opened for each read, so nothing keeps history from being removed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.core.errors import DamagedJournal, Trimmed
from penstock.journal import frame as f
from penstock.journal.disk import ReadableDisk
from penstock.journal.reader import Event, Reader
from penstock.journal.segment import NOT_BEGUN, FrameFile, Piece, all_headers, snapshot_names

# How many ends of reads are noted.
_PLACES_MAX: Final = 1_024

# How much of a file is looked at before other threads get their turn: a millisecond's work, if its frames are short.
_PIECE_BYTES: Final = 512 * 1024

# How many events are looked at for one page, so that a filter which matches nothing comes to an end.
EXAMINED_MAX: Final = 10_000

# How many events are decoded before other threads get their turn.
_SLICE_EVENTS: Final = 64


@dataclass
class Frames:
    """What was found from a position on."""

    next: int  # The position to go on from.
    data: bytes = b""
    place: tuple[str, int] = ("", 0)  # The file that they are in, and where in it they begin.
    names: dict[int, bytes] = field(default_factory=dict)  # Of tubes that were named before the first of the frames.


@dataclass(frozen=True)
class KeptFile:
    """A file of the log, as those need to know it who have one like it."""

    name: str
    bytes: int  # As many as there are in it by now.
    bodies: bool  # Whether bodies are in it.


@dataclass
class Events:
    """The same, decoded."""

    next: int
    found: list[Event] = field(default_factory=list)
    examined: int = 0


class Tap:
    """Reads a log for those who follow it, in any thread."""

    def __init__(self, disk: ReadableDisk, reader: Reader) -> None:
        self._disk = disk
        self._reader = reader
        self._lock = threading.Lock()
        self._places: dict[int, tuple[str, int]] = {}  # File and offset by the position of the frame that begins there.

    def first(self, end: int) -> int:
        """The oldest position that is kept; the end, where none is."""
        first = self._reader.first()
        return end if first is None else first

    def files(self) -> list[KeptFile]:
        """The files that the log is in by now: snapshots, and the segments that have begun."""
        found = []
        for name in snapshot_names(self._disk):
            # One that was removed meanwhile is not kept any more.
            with contextlib.suppress(FileNotFoundError):
                found.append(KeptFile(name, self._disk.size(name), True))
        for header in all_headers(self._disk):
            if header.position != NOT_BEGUN:
                with contextlib.suppress(FileNotFoundError):
                    found.append(KeptFile(header.name, self._disk.size(header.name), header.bodies))
        return found

    def fetch(self, name: str, offset: int, length: int) -> bytes:
        """A piece of a file, as it is."""
        try:
            file = self._disk.open_to_read(name)
        except FileNotFoundError:
            raise Trimmed(f"{name} is not kept any more") from None
        try:
            return file.read(offset, length)
        finally:
            file.close()

    def read(self, position: int, end: int, bytes_max: int, names: bool, one_file: bool = False) -> Frames:
        """Whole frames that hold a position or follow it, up to the end; about so many bytes, one frame at least.

        With `names`, also those of the tubes that the segment named so far: rows call tubes by their numbers. If all
        have to be of `one_file`, they end where it does.
        """
        parts: list[bytes] = []
        called: dict[int, bytes] = {}
        length, upto = 0, position
        begin: tuple[str, int] = ("", 0)
        place: tuple[str, int] | None = None  # Where the next frame will begin, if it is in the same file.
        for name, piece in self._pieces(position, end):
            if not parts:
                begin = (name, piece.base + piece.frames[0].at)
                if names:
                    called = self._reader.names_in(name)
            elif one_file and name != begin[0]:
                break
            frames = _fitting(piece.frames, bytes_max - length, not parts)
            if frames:
                # They follow each other, so they are one slice: a frame may hold a single row.
                first, last = frames[0], frames[-1]
                parts.append(piece.data[first.at : last.at + last.length])
                length += len(parts[-1])
                upto = last.position + last.rows
                place = (name, piece.base + last.at + last.length)
            if len(frames) < len(piece.frames):
                break
        if place is not None:
            self._note(upto, place)
        return Frames(upto, b"".join(parts), begin, called)

    def events(self, position: int, end: int, count: int, bytes_max: int, tube: bytes | None) -> Events:
        """Events from a position on, up to the end; so many, or about so many bytes of bodies, and one at least.

        Fewer, perhaps none, where a filter passed over many: then there is more to come before the end.
        """
        self._check(position, end)
        page = Events(position)
        length = 0
        for event in self._reader.events(position, end):
            if len(page.found) == count or length > bytes_max or page.examined == EXAMINED_MAX:
                return page
            page.examined += 1
            if page.examined % _SLICE_EVENTS == 0:
                time.sleep(0)
            if tube is None or event.raw_tube == tube:
                page.found.append(event)
                length += len(event.body or b"")
            page.next = event.position + 1
        page.next = max(page.next, end)
        return page

    def _check(self, position: int, end: int) -> None:
        first = self.first(end) if position < end else 0
        if position < first:
            raise Trimmed(f"position {position} is not kept any more; the first that is kept is {first}")

    def _note(self, position: int, place: tuple[str, int]) -> None:
        with self._lock:
            # Anew, so that those which are used stay.
            self._places.pop(position, None)
            self._places[position] = place
            if len(self._places) > _PLACES_MAX:
                del self._places[next(iter(self._places))]

    def _pieces(self, position: int, end: int) -> Iterator[tuple[str, Piece]]:
        """The frames from the one on that holds a position, many at a time, and the file that they are in."""
        place = self._places.get(position)
        at = position
        if place is not None:
            for piece in self._pieces_at(place[0], place[1], position, end):
                if piece.frames[0].position != at and at == position:
                    # The file was written anew since, and this is another place in it.
                    break
                yield place[0], piece
                at = piece.frames[-1].position + piece.frames[-1].rows
        while at < end:
            self._check(at, end)
            before = at
            for name, offset in self._reader.places_from(at):
                for piece in self._pieces_at(name, offset, at, end):
                    yield name, piece
                    at = piece.frames[-1].position + piece.frames[-1].rows
            if at == before:
                # What is durable is not there: it has just been removed, or it is damaged.
                self._check(at, end)
                raise DamagedJournal(f"position {at} of the log cannot be read; see penstock journal check")

    def _pieces_at(self, name: str, offset: int, position: int, end: int) -> Iterator[Piece]:
        """The frames of one file from an offset on that hold a position or follow it; some in every piece."""
        try:
            file = FrameFile(self._disk, name)
        except FileNotFoundError:
            return
        with file:
            for piece in file.run(offset, _PIECE_BYTES):
                frames = piece.frames
                first = bisect_right(frames, position, key=_end)
                behind = bisect_left(frames, end, key=_position)
                if first < behind:
                    yield piece if behind - first == len(frames) else piece._replace(frames=frames[first:behind])
                if behind < len(frames):
                    return
                time.sleep(0)


def _position(frame: f.Frame) -> int:
    return frame.position


def _end(frame: f.Frame) -> int:
    return frame.position + frame.rows


def _fitting(frames: list[f.Frame], bytes_max: int, one: bool) -> list[f.Frame]:
    """The first of these frames that have so many bytes together; one at least, if there has to be."""
    start = frames[0].at
    count = bisect_right(frames, start + bytes_max, key=lambda frame: int(frame.at + frame.length))
    return frames[: max(count, 1 if one else 0)]
