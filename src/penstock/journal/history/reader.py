"""Reads the history of a log by position, without opening the queue.

Reading takes no lock and changes nothing, so another process can have the queue open. A reader never returns an
incomplete frame: it ends before a torn tail, and at the durable position if it is given one.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from penstock.core import states as s
from penstock.core.errors import BadId, DamagedJournal
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal import layout
from penstock.journal.disk import ReadableDisk
from penstock.journal.history.block import EMPTY_SHA256, BlockDigest
from penstock.journal.history.digester import BlockDigester
from penstock.journal.history.index import SegmentIndex, decode_blocks, decode_index
from penstock.journal.identity import identity
from penstock.journal.segment import (
    NOT_BEGUN,
    PIECE_BYTES,
    SEGMENT_HEADER_BYTES,
    FrameFile,
    LocatedFrame,
    begun_segment_names,
    index_name,
    segment_names,
)
from penstock.wire.headers import decode_headers, printable_headers

# Bytes of a file to hash before other threads get their turn.
_HASHED_BYTES: Final = 512 * 1024

_OTHER_EVENT_NAMES = {
    layout.TUBE_MADE: "tube made",
    layout.TUBE_CHANGED: "tube changed",
    layout.TUBE_DROPPED: "tube dropped",
    layout.INTEGERS_RESERVED: "integers reserved",
    layout.SESSION_MADE: "session made",
    layout.CONSUMER_CHANGED: "consumer changed",
    layout.STOPPED: "stopped",
    layout.TUBE_NAMED: "tube named",
    layout.STAGES_CHANGED: "stages changed",
    layout.NOTED: "noted",
    layout.SESSION_NAMED: "session named",
}


_NUMBER_MAX: Final = (1 << 63) - 1


def plain_number(id: str) -> int:
    """Return the number of a job if `id` is one, as in the column `job` of a lake. Otherwise return NOT_AN_ID.

    A number can be guessed, so only commands that show the history accept it.
    """
    is_number = id.isascii() and id.isdecimal() and len(id) <= len(str(_NUMBER_MAX))
    return int(id) if is_number and int(id) <= _NUMBER_MAX else NOT_AN_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of a job. An event without a job belongs to a tube, a session or the log itself."""

    position: int
    time_ms: int
    event: str
    tube: str | None = None
    # Name of the tube as bytes. `tube` is for display: two names may look the same if one of them is not UTF-8.
    raw_tube: bytes | None = field(default=None, compare=False, repr=False)
    job: str | None = None  # Its 40-character id.
    before: str | None = None
    after: str | None = None
    session: int | None = None  # The session that holds the job, or that held it until this event.
    actor: int | None = None  # The session whose command caused the event.
    actor_name: str | None = None  # Name of its client, if it has one.
    actor_user: str | None = None  # User of its client, if it has logged in.
    since_ms: int | None = None  # When the job entered the state `before`.
    number: int | None = None  # Number of the job within its tube.
    priority: int = 0
    deliveries: int = 0
    nacks: int = 0
    returns: int = 0
    wake_ms: int | None = None
    expiry_ms: int | None = None
    key: str | None = None
    reason: str | None = None
    body: bytes | None = None  # Set in the event of a put, and where the body changed.
    # Set in the event of a put. Values are text with surrogate escapes for bytes that are not UTF-8.
    headers: dict[str, str] | None = field(default=None, hash=False)

    def as_json(self, bodies: bool) -> dict[str, Any]:
        """Return the event as a JSON object, with the body as text."""
        told = {name: getattr(self, name) for name in EVENT_FIELDS if name != "body"}
        if bodies and self.body is not None:
            told["body"] = self.body.decode("utf-8", "backslashreplace")
        if self.headers is not None:
            told["headers"] = printable_headers(self.headers)
        return {name: value for name, value in told.items() if value is not None}


# Fields of an event in output, in this order.
EVENT_FIELDS: Final = tuple(each.name for each in fields(Event) if each.name != "raw_tube")


@dataclass(frozen=True, slots=True)
class SegmentReport:
    name: str
    frames: int
    rows: int
    used_bytes: int


class _Segment:
    def __init__(self, disk: ReadableDisk, name: str) -> None:
        self.name = name
        self.size = disk.size(name)
        self._disk = disk
        self._lock = threading.Lock()
        self._is_complete = False  # Whether the index covers the whole segment, which is full.
        self._index = SegmentIndex()
        self._blocks: list[BlockDigest] = []  # The blocks in the index file, if they were read.
        with FrameFile(disk, name) as file:
            self.header = file.header

    def frames(
        self, start: int = SEGMENT_HEADER_BYTES, whole: bool = False, piece_bytes: int = PIECE_BYTES
    ) -> Iterator[LocatedFrame]:
        """Yield the frames, starting at offset `start`.

        An incomplete last frame is skipped. With `whole`, an error is raised for it.
        """
        with FrameFile(self._disk, self.name) as file:
            yield from file.frames(start, piece_bytes, whole)

    def index(self) -> SegmentIndex:
        """Return the index of the part of the segment that is written so far."""
        with self._lock:
            if not self._is_complete and not self._load_index():
                # An incomplete frame is skipped.
                with FrameFile(self._disk, self.name) as file:
                    for piece in file.run(self._index.end, f.MARK_BYTES):
                        self._index.add(piece)
            return self._index

    def _load_index(self) -> bool:
        name = index_name(self.header.segment)
        with contextlib.suppress(DamagedJournal, FileNotFoundError):
            self._index = decode_index(name, self._disk.read(name))
            self._is_complete = True
        return self._is_complete

    def stored_blocks(self) -> list[BlockDigest]:
        """Return the blocks of the segment from its index file, or an empty list if it has no valid one."""
        if not self._blocks:
            name = index_name(self.header.segment)
            with contextlib.suppress(DamagedJournal, FileNotFoundError):
                self._blocks = decode_blocks(name, self._disk.read(name))
        return self._blocks

    def hash_blocks(self, start: int, end: int, last: bool) -> Iterator[BlockDigest]:
        """Read the rows from position `start` up to `end`, and yield their blocks.

        There are no blocks if the file was rewritten. The last segment of a log (`last`) may end in an incomplete
        frame, which is skipped.
        """
        offset = self.index().offset_of(start) if start > self.header.position else SEGMENT_HEADER_BYTES
        with FrameFile(self._disk, self.name) as file:
            if file.size != self.size:
                return
            digester = BlockDigester(start, end, file.header.bodies)
            for piece in file.run(offset, _HASHED_BYTES) if last else file.pieces(offset, _HASHED_BYTES):
                is_done = digester.add(piece.data, piece.frames)
                yield from digester.blocks
                digester.blocks = []
                if is_done:
                    break
                time.sleep(0)
            digester.finish()
            yield from digester.blocks


class Reader:
    """The events of one directory. Any thread can use a reader, and it stays valid while the log grows."""

    def __init__(self, disk: ReadableDisk) -> None:
        self._disk = disk
        self._segment_cache: dict[str, _Segment] = {}
        who = identity(disk)
        self._ids = IdForms(who.node[:8].encode(), who.key)

    def events(self, start: int = 1, end: int = NEVER) -> Iterator[Event]:
        """Yield all events that still exist from position `start` up to `end`, in order."""
        segments = self._segments()
        at = max(0, _first_after(segments, start) - 1)
        for index, segment in enumerate(segments[at:], at):
            names = f.Names()
            offset = SEGMENT_HEADER_BYTES
            if start > segment.header.position:
                with contextlib.suppress(FileNotFoundError):
                    known = segment.index()
                    names, offset = known.names.copy(), known.offset_of(start)
            # A segment that was removed meanwhile is no longer kept.
            with contextlib.suppress(FileNotFoundError):
                for found in segment.frames(offset, whole=index + 1 < len(segments)):
                    if found.frame.position >= end:
                        return
                    yield from self._events_in(found, names, start, end)

    def number_of(self, id: str) -> int:
        """Return the number of a job of this directory from its long or hex id, or from the number itself.

        Raise BadId if it is not a job id.
        """
        number = plain_number(id)
        if number == NOT_AN_ID:
            number = self._ids.parse(id.encode("utf-8", "replace"))
        if number == NOT_AN_ID:
            raise BadId()
        return number

    def history(self, job: int, newest: int | None = None, end: int = NEVER) -> list[Event]:
        """Return all events of the job with number `job` that still exist.

        `newest` is the position of its last event, or None if it is not known.
        """
        segments = self._segments()
        position = newest if newest is not None else self._newest(segments, job)
        found: list[Event] = []
        while position:
            at = _first_after(segments, position) - 1
            row = None
            with contextlib.suppress(FileNotFoundError):
                row = self._row_at(segments[at], position) if at >= 0 else None
            if row is None:
                # Earlier rows are no longer kept.
                break
            event, before = row
            if position < end:
                found.append(event)
            position = before
        return found[::-1]

    def blocks(self, start: int, end: int = NEVER) -> Iterator[BlockDigest]:
        """Yield the digests of all rows from position `start` up to `end`, without holes.

        Whole blocks of full segments are read from indexes. Other blocks are computed. No block is returned if the row
        at `start` is not kept.
        """
        position = start
        while position < end:
            before = position
            # A segment that is removed or rewritten meanwhile ends the iteration. The next one continues.
            with contextlib.suppress(FileNotFoundError):
                for block in self._blocks(position, end):
                    yield block
                    position = block.end
            if position == before:
                return

    def _blocks(self, position: int, end: int) -> Iterator[BlockDigest]:
        segments = self._segments()
        at = _first_after(segments, position) - 1
        if at < 0:
            return
        for segment, following in zip(segments[at:], [*segments[at + 1 :], None], strict=True):
            upto = end if following is None else min(end, following.header.position)
            for block in self._blocks_of(segment, position, upto, following is None):
                if block.first != position:
                    # The file was rewritten, and the blocks before this one could not be read.
                    return
                yield block
                position = block.end
            if position >= end:
                return
            if following is not None and position < upto:
                if segment.size != self._disk.size(segment.name):
                    return
                # A repair has left out the rows between the segments.
                yield BlockDigest(position, upto, 0, EMPTY_SHA256, EMPTY_SHA256 if segment.header.bodies else None)
                position = upto

    def _blocks_of(self, segment: _Segment, position: int, end: int, last: bool) -> Iterator[BlockDigest]:
        stored = segment.stored_blocks()
        if not stored:
            yield from segment.hash_blocks(position, end, last)
        for block in stored:
            if position <= block.first and block.end <= end:
                yield block
            elif position < block.end and block.first < end:
                yield from segment.hash_blocks(max(position, block.first), min(block.end, end), last)

    def segments(self) -> Iterator[SegmentReport]:
        """Yield the size of each segment, after reading it completely."""
        for name in begun_segment_names(self._disk):
            # A segment that was removed meanwhile is no longer kept.
            with contextlib.suppress(FileNotFoundError), FrameFile(self._disk, name) as file:
                yield _report(file)

    def first(self) -> int | None:
        """Return the first position in the log, or None if the log has no rows."""
        segments = self._segments()
        return segments[0].header.position if segments else None

    def offsets_from(self, position: int) -> Iterator[tuple[str, int]]:
        """Yield the files with the row at `position` and all later rows, each with the offset to start from."""
        segments = self._segments()
        for segment in segments[max(0, _first_after(segments, position) - 1) :]:
            offset = SEGMENT_HEADER_BYTES
            if position > segment.header.position:
                # A segment that was removed meanwhile is no longer kept.
                with contextlib.suppress(FileNotFoundError):
                    offset = segment.index().offset_of(position)
            yield segment.name, offset

    def tube_names_in(self, name: str) -> dict[int, bytes]:
        """Return the names of the tubes in a segment, by number."""
        segment = self._segment_cache.get(name)
        with contextlib.suppress(FileNotFoundError):
            return dict((segment or _Segment(self._disk, name)).index().names.tubes)
        return {}

    def positions(self) -> tuple[int, int]:
        """Return the first position in the log, and a position near its end, which is faster to find than the last."""
        segments = self._segments()
        if not segments:
            return 1, 1
        return segments[0].header.position, segments[-1].index().last_marked_position

    def _segments(self) -> list[_Segment]:
        """Return all segments that have frames, oldest first."""
        found: list[_Segment] = []
        # Newest first: if a segment has frames, the earlier ones have frames, too, and are complete.
        for name in reversed(segment_names(self._disk)):
            with contextlib.suppress(FileNotFoundError):
                segment = self._segment_cache.get(name)
                # If the size differs, the segment was rewritten, and its index is no longer valid.
                if segment is None or segment.size != self._disk.size(name):
                    segment = _Segment(self._disk, name)
                if segment.header.position != NOT_BEGUN:
                    found.append(segment)
        self._segment_cache = {segment.name: segment for segment in found}
        return found[::-1]

    def _newest(self, segments: list[_Segment], job: int) -> int | None:
        for segment in reversed(segments):
            with contextlib.suppress(FileNotFoundError):
                position = segment.index().newest(job)
                if position is not None:
                    return position
        return None

    def _row_at(self, segment: _Segment, position: int) -> tuple[Event, int] | None:
        """Return the event at a position, and the position of the same job's previous event."""
        index = segment.index()
        # The row is at most one mark distance away, so read no more than that.
        for data, frame, _ in segment.frames(index.offset_of(position), piece_bytes=f.MARK_BYTES):
            if frame.position > position:
                return None
            if position < frame.position + frame.rows:
                at = frame.rows_at + (position - frame.position) * frame.row_bytes
                return self._event(data, at, frame, position, index.names), f.integer_at(data, at + layout.BEFORE_AT)
        return None

    def _events_in(self, found: LocatedFrame, names: f.Names, start: int, end: int) -> Iterator[Event]:
        data, frame, _ = found
        f.index_frames(data, [frame], 0, {}, names, [])
        for position in range(max(start, frame.position), min(frame.position + frame.rows, end)):
            at = frame.rows_at + (position - frame.position) * frame.row_bytes
            yield self._event(data, at, frame, position, names)

    def _event(self, data: bytes, at: int, found: f.Frame, position: int, names: f.Names) -> Event:
        event = data[at + layout.EVENT_AT]
        time_ms = f.integer_at(data, at + layout.TIME_AT)
        extras = dict(f.var_fields(data, at, found))
        if event >= layout.TUBE_MADE:
            is_tube = event <= layout.INTEGERS_RESERVED or event == layout.TUBE_NAMED
            named = extras.get(layout.TAG_NAME) if is_tube else None
            tube = None if named is None else _text(named)
            word = _OTHER_EVENT_NAMES.get(event, f"event {event}")
            if event == layout.SESSION_NAMED:
                number = f.integer_at(data, at + layout.ID_AT)
                return Event(position=position, time_ms=time_ms, event=word, **_actor(number, names))
            return Event(position=position, time_ms=time_ms, event=word, tube=tube, raw_tube=named)
        row = f.Row(data, at, found)
        named = names.tubes.get(row.tube)
        return Event(
            position=position,
            time_ms=time_ms,
            event=s.EVENT_NAMES[event],
            tube=_text(b"tube %d" % row.tube if named is None else named),
            raw_tube=named,
            job=self._ids.long(row.job, row.ttl_minutes).decode(),
            before=s.STATE_NAMES[row.before],
            after=s.STATE_NAMES[row.after],
            session=row.holder or None,
            since_ms=row.since or None,
            number=row.local if row.local >= 0 else None,
            priority=row.priority,
            deliveries=row.deliveries,
            nacks=row.nacks,
            returns=row.returns,
            wake_ms=None if row.wake == NEVER else row.wake,
            expiry_ms=None if row.expiry == NEVER else row.expiry,
            key=_text(extras[layout.TAG_KEY]) if extras.get(layout.TAG_KEY) else None,
            reason=_text(extras[layout.TAG_REASON]) if layout.TAG_REASON in extras else None,
            body=extras.get(layout.TAG_BODY),
            headers=_headers(extras[layout.TAG_HEADERS]) if layout.TAG_HEADERS in extras else None,
            **_actor(row.actor, names),
        )


def _actor(session: int, names: f.Names) -> dict[str, Any]:
    """Return the fields of an event about the session that caused it."""
    name, user = names.sessions.get(session, (b"", b""))
    return {"actor": session or None, "actor_name": _text(name) or None, "actor_user": _text(user) or None}


def _report(file: FrameFile) -> SegmentReport:
    frames, rows, run = 0, 0, file.run()
    for piece in run:
        frames += len(piece.frames)
        rows += sum(frame.rows for frame in piece.frames)
    return SegmentReport(file.name, frames, rows, run.end)


def to_json_line(event: Event, bodies: bool) -> str:
    return json.dumps(event.as_json(bodies), ensure_ascii=False)


def _first_after(segments: list[_Segment], position: int) -> int:
    return bisect_right(segments, position, key=lambda segment: segment.header.position)


def _headers(encoded: bytes) -> dict[str, str]:
    return {name: value.decode("utf-8", "surrogateescape") for name, value in decode_headers(encoded).items()}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
