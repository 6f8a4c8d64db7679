"""The history that a log holds, for people and tools: every event, by position, without opening the queue.

Reading takes no lock and changes nothing, so it may look at a queue that is open elsewhere. It never shows what is not
whole: a torn tail ends it, and where the reader is told how far the log is durable, it stops there.
"""

from __future__ import annotations

import contextlib
import json
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from penstock.core import states as s
from penstock.core.errors import BadId, DamagedJournal
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal.disk import ReadableDisk
from penstock.journal.identity import identity
from penstock.journal.index import SegmentIndex, decode
from penstock.journal.segment import (
    NOT_BEGUN,
    PIECE_BYTES,
    SEGMENT_HEADER_BYTES,
    Found,
    FrameFile,
    begun_names,
    index_name,
    segment_names,
)

_OTHER_NAMES = {
    f.TUBE_MADE: "tube made",
    f.TUBE_CHANGED: "tube changed",
    f.TUBE_DROPPED: "tube dropped",
    f.INTEGERS_RESERVED: "integers reserved",
    f.SESSION_MADE: "session made",
    f.CONSUMER_CHANGED: "consumer changed",
    f.STOPPED: "stopped",
    f.TUBE_NAMED: "tube named",
    f.STAGES_CHANGED: "stages changed",
    f.NOTED: "noted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened: to a job, or (with no job) to a tube, a session or the log itself."""

    position: int
    time_ms: int
    event: str
    tube: str | None = None
    # The name of the tube as bytes. `tube` is for people: two names may read alike if one of them is no UTF-8.
    raw_tube: bytes | None = field(default=None, compare=False, repr=False)
    job: str | None = None  # Its 40-character id.
    before: str | None = None
    after: str | None = None
    session: int | None = None
    number: int | None = None  # Its integer within the tube.
    priority: int = 0
    deliveries: int = 0
    nacks: int = 0
    returns: int = 0
    wake_ms: int | None = None
    expiry_ms: int | None = None
    key: str | None = None
    reason: str | None = None
    body: bytes | None = None  # In the event of a put, and where the body changed.

    def as_json(self, bodies: bool) -> dict[str, Any]:
        """What it says, as JSON has it; the body as text where it is text."""
        told = {name: getattr(self, name) for name in TOLD_FIELDS if name != "body"}
        if bodies and self.body is not None:
            told["body"] = self.body.decode("utf-8", "backslashreplace")
        return {name: value for name, value in told.items() if value is not None}


# What is told of an event, in this order.
TOLD_FIELDS: Final = tuple(each.name for each in fields(Event) if each.name != "raw_tube")


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What was found in one segment."""

    name: str
    frames: int
    rows: int
    used_bytes: int


class _Segment:
    """One segment, and what is known of where things are in it."""

    def __init__(self, disk: ReadableDisk, name: str) -> None:
        self.name = name
        self.size = disk.size(name)
        self._disk = disk
        self._lock = threading.Lock()
        self._whole = False  # The index is of all of it, for ever.
        self._index = SegmentIndex()
        with FrameFile(disk, name) as file:
            self.header = file.header

    def frames(
        self, start: int = SEGMENT_HEADER_BYTES, whole: bool = False, piece_bytes: int = PIECE_BYTES
    ) -> Iterator[Found]:
        """Its frames from an offset on. A frame in the writing is not there yet, unless all of it must be `whole`."""
        with FrameFile(self._disk, self.name) as file:
            run = file.run(start, piece_bytes)
            for data, frames, base in run:
                for frame in frames:
                    yield Found(data, frame, base)
            if whole and run.torn():
                raise run.damage()

    def index(self) -> SegmentIndex:
        """Where things are in it, as far as it is written by now."""
        with self._lock:
            if not self._whole and not self._load_index():
                self._extend_index()
            return self._index

    def _extend_index(self) -> None:
        # A frame in the writing is not there yet.
        with FrameFile(self._disk, self.name) as file:
            for piece in file.run(self._index.end, f.MARK_BYTES):
                self._index.add(piece)

    def _load_index(self) -> bool:
        name = index_name(self.header.segment)
        with contextlib.suppress(DamagedJournal, FileNotFoundError):
            self._index = decode(name, self._disk.read(name))
            self._whole = True
        return self._whole


class Reader:
    """The events of one directory. Any thread may use it, and it may be kept while the log goes on."""

    def __init__(self, disk: ReadableDisk) -> None:
        self._disk = disk
        self._known: dict[str, _Segment] = {}
        who = identity(disk)
        self._ids = IdForms(who.node[:8].encode(), who.key)

    def events(self, start: int = 1, end: int = NEVER) -> Iterator[Event]:
        """Every event that is kept from a position on, up to another one, in order."""
        segments = self._segments()
        at = max(0, _first_behind(segments, start) - 1)
        for index, segment in enumerate(segments[at:], at):
            names: dict[int, bytes] = {}
            offset = SEGMENT_HEADER_BYTES
            if start > segment.header.position:
                with contextlib.suppress(FileNotFoundError):
                    known = segment.index()
                    names, offset = dict(known.names), known.offset_of(start)
            # One that was removed meanwhile is not kept any more.
            with contextlib.suppress(FileNotFoundError):
                for found in segment.frames(offset, whole=index + 1 < len(segments)):
                    if found.frame.position >= end:
                        return
                    yield from self._events_in(found, names, start, end)

    def number_of(self, id: str) -> int:
        """The number of a job of this directory, whose id is given in either form."""
        number = self._ids.parse(id.encode("utf-8", "replace"))
        if number == NOT_AN_ID:
            raise BadId()
        return number

    def history(self, job: int, newest: int | None = None, end: int = NEVER) -> list[Event]:
        """Every event that is kept of one job, by its number; `newest` is the position of its last one, if known."""
        segments = self._segments()
        position = newest if newest is not None else self._newest(segments, job)
        found: list[Event] = []
        while position:
            at = _first_behind(segments, position) - 1
            row = None
            with contextlib.suppress(FileNotFoundError):
                row = self._row_at(segments[at], position) if at >= 0 else None
            if row is None:
                # What was before is not kept any more.
                break
            event, before = row
            if position < end:
                found.append(event)
            position = before
        return found[::-1]

    def segments(self) -> Iterator[SegmentReport]:
        """Each segment, read whole: how much is in it."""
        for name in begun_names(self._disk):
            # One that was removed meanwhile is not kept any more.
            with contextlib.suppress(FileNotFoundError), FrameFile(self._disk, name) as file:
                yield _report(file)

    def first(self) -> int | None:
        """The first position that is kept; None if none is."""
        segments = self._segments()
        return segments[0].header.position if segments else None

    def places_from(self, position: int) -> Iterator[tuple[str, int]]:
        """The files that hold a position and what follows it, and from which offset on to look for it in each."""
        segments = self._segments()
        for segment in segments[max(0, _first_behind(segments, position) - 1) :]:
            offset = SEGMENT_HEADER_BYTES
            if position > segment.header.position:
                # One that was removed meanwhile is not kept any more.
                with contextlib.suppress(FileNotFoundError):
                    offset = segment.index().offset_of(position)
            yield segment.name, offset

    def names_in(self, name: str) -> dict[int, bytes]:
        """What the tubes are called that a file tells of, by their numbers."""
        segment = self._known.get(name)
        with contextlib.suppress(FileNotFoundError):
            return dict((segment or _Segment(self._disk, name)).index().names)
        return {}

    def positions(self) -> tuple[int, int]:
        """The first position that is kept, and about the last."""
        segments = self._segments()
        if not segments:
            return 1, 1
        return segments[0].header.position, segments[-1].index().last

    def _segments(self) -> list[_Segment]:
        """All segments there are now, oldest first."""
        found: list[_Segment] = []
        # The newest first: when one has begun, those before have too, and are written to no more.
        for name in reversed(segment_names(self._disk)):
            with contextlib.suppress(FileNotFoundError):
                segment = self._known.get(name)
                # One of another size was written anew, and places in it are others.
                if segment is None or segment.size != self._disk.size(name):
                    segment = _Segment(self._disk, name)
                if segment.header.position != NOT_BEGUN:
                    found.append(segment)
        self._known = {segment.name: segment for segment in found}
        return found[::-1]

    def _newest(self, segments: list[_Segment], job: int) -> int | None:
        """The position of the newest row of a job."""
        for segment in reversed(segments):
            with contextlib.suppress(FileNotFoundError):
                position = segment.index().newest(job)
                if position is not None:
                    return position
        return None

    def _row_at(self, segment: _Segment, position: int) -> tuple[Event, int] | None:
        """The event at a position, and the position of the one before it of the same job."""
        index = segment.index()
        # No further away than two places that the index knows: more than that would be read for nothing.
        for data, frame, _ in segment.frames(index.offset_of(position), piece_bytes=f.MARK_BYTES):
            if frame.position > position:
                return None
            if position < frame.position + frame.rows:
                at = frame.rows_at + (position - frame.position) * frame.row_bytes
                return self._event(data, at, frame, position, index.names), f.integer_at(data, at + 64)
        return None

    def _events_in(self, found: Found, names: dict[int, bytes], start: int, end: int) -> Iterator[Event]:
        data, frame, _ = found
        f.note_frames(data, [frame], 0, {}, names, [])
        for position in range(max(start, frame.position), min(frame.position + frame.rows, end)):
            at = frame.rows_at + (position - frame.position) * frame.row_bytes
            yield self._event(data, at, frame, position, names)

    def _event(self, data: bytes, at: int, found: f.Frame, position: int, names: dict[int, bytes]) -> Event:
        event = data[at + 112]
        time_ms = f.integer_at(data, at + 48)
        extras = dict(f.var_fields(data, at, found))
        if event >= f.TUBE_MADE:
            named = extras.get(f.TAG_NAME) if event <= f.INTEGERS_RESERVED or event == f.TUBE_NAMED else None
            tube = None if named is None else _text(named)
            word = _OTHER_NAMES.get(event, f"event {event}")
            return Event(position=position, time_ms=time_ms, event=word, tube=tube, raw_tube=named)
        row = f.Row(data, at)
        named = names.get(row.tube)
        return Event(
            position=position,
            time_ms=time_ms,
            event=s.EVENT_NAMES[event],
            tube=_text(b"tube %d" % row.tube if named is None else named),
            raw_tube=named,
            job=self._ids.long(row.job, row.ttl_minutes).decode(),
            before=s.STATE_NAMES[row.before],
            after=s.STATE_NAMES[row.after],
            session=row.session or None,
            number=row.local if row.local >= 0 else None,
            priority=row.priority,
            deliveries=row.deliveries,
            nacks=row.nacks,
            returns=row.returns,
            wake_ms=None if row.wake == NEVER else row.wake,
            expiry_ms=None if row.expiry == NEVER else row.expiry,
            key=_text(extras[f.TAG_KEY]) if extras.get(f.TAG_KEY) else None,
            reason=_text(extras[f.TAG_REASON]) if f.TAG_REASON in extras else None,
            body=extras.get(f.TAG_BODY),
        )


def _report(file: FrameFile) -> SegmentReport:
    frames, rows, run = 0, 0, file.run()
    for piece in run:
        frames += len(piece.frames)
        rows += sum(frame.rows for frame in piece.frames)
    return SegmentReport(file.name, frames, rows, run.end)


def to_json_line(event: Event, bodies: bool) -> str:
    """One line of JSON."""
    return json.dumps(event.as_json(bodies), ensure_ascii=False)


def _first_behind(segments: list[_Segment], position: int) -> int:
    """The index of the first segment that begins behind a position."""
    return bisect_right(segments, position, key=lambda segment: segment.header.position)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
