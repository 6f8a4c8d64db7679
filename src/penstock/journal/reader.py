"""The history that a log holds, for people and tools: every event, by position, without opening the queue.

Reading takes no lock and changes nothing, so it may look at a queue that is open elsewhere. It never shows what is not
whole: a torn tail ends it, and where the reader is told how far the log is durable, it stops there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.core import states as s
from penstock.core.errors import DamagedJournal
from penstock.core.ids import IdForms
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal.disk import ReadableDisk
from penstock.journal.log import SEGMENT_HEADER_BYTES, SegmentHeader, frame_seed, read_header
from penstock.journal.recovery import identity, segment_names

_OTHER_NAMES = {
    f.TUBE_MADE: "tube made",
    f.TUBE_CHANGED: "tube changed",
    f.TUBE_DROPPED: "tube dropped",
    f.INTEGERS_RESERVED: "integers reserved",
    f.SESSION_MADE: "session made",
    f.CONSUMER_CHANGED: "consumer changed",
    f.STOPPED: "stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened: to a job, or (with no job) to a tube, a session or the log itself."""

    position: int
    time_ms: int
    event: str
    tube: str | None = None
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
        told = {name: getattr(self, name) for name in self.__slots__ if name != "body"}
        if bodies and self.body is not None:
            told["body"] = self.body.decode("utf-8", "backslashreplace")
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What was found in one segment."""

    name: str
    header: SegmentHeader
    frames: int
    rows: int
    used_bytes: int
    tail: str | None  # Why it ends before its zeros do, if it does.


class Reader:
    """The events of one directory."""

    def __init__(self, disk: ReadableDisk) -> None:
        self._disk = disk
        node, key = identity(disk)
        self._ids = IdForms(node[:8].encode(), key)
        self._tubes: dict[int, str] = {}

    def events(self, start: int = 1, end: int = NEVER) -> Iterator[Event]:
        """Every event from a position on, up to another one, in order."""
        for data, found in self._frames():
            if found.position >= end:
                return
            at = found.rows_at
            for position in range(found.position, min(found.position + found.rows, end)):
                event = data[at + 112]
                if event in (f.TUBE_MADE, f.TUBE_CHANGED):
                    self._learn_tube(data, at, found)
                if position >= start:
                    yield self._event(data, at, found, position)
                at += found.row_bytes

    def history(self, job: int, end: int = NEVER) -> list[Event]:
        """Every event of one job, by its number. It reads the whole log."""
        chosen = []
        for data, found in self._frames():
            at = found.rows_at
            for position in range(found.position, min(found.position + found.rows, end)):
                event = data[at + 112]
                if event in (f.TUBE_MADE, f.TUBE_CHANGED):
                    self._learn_tube(data, at, found)
                elif event < f.TUBE_MADE and f.integer_at(data, at) == job:
                    chosen.append(self._event(data, at, found, position))
                at += found.row_bytes
        return chosen

    def segments(self) -> Iterator[SegmentReport]:
        """Each segment, read whole: how much is in it, and whether it ends as it should."""
        for name in segment_names(self._disk):
            data = self._disk.read(name)
            header = read_header(name, data)
            at, frames, rows, tail = SEGMENT_HEADER_BYTES, 0, 0, None
            try:
                while (found := f.read_frame(data, at, frame_seed(header.node, header.segment, at))) is not None:
                    at, frames, rows = at + found.length, frames + 1, rows + found.rows
            except f.DamagedFrame as why:
                tail = f"at offset {at}: {why}"
            yield SegmentReport(name, header, frames, rows, at, tail)

    def _frames(self) -> Iterator[tuple[bytes, f.Frame]]:
        names = segment_names(self._disk)
        for index, name in enumerate(names):
            data = self._disk.read(name)
            header = read_header(name, data)
            at = SEGMENT_HEADER_BYTES
            while True:
                try:
                    found = f.read_frame(data, at, frame_seed(header.node, header.segment, at))
                except f.DamagedFrame as why:
                    if index + 1 < len(names):
                        raise DamagedJournal(f"{name} is damaged at offset {at} ({why})") from None
                    found = None
                if found is None:
                    break
                yield data, found
                at += found.length

    def _learn_tube(self, data: bytes, at: int, found: f.Frame) -> None:
        fields = dict(f.var_fields(data, at, found))
        self._tubes[f.integer_at(data, at)] = _text(fields[f.TAG_NAME])

    def _event(self, data: bytes, at: int, found: f.Frame, position: int) -> Event:
        event = data[at + 112]
        time_ms = f.integer_at(data, at + 48)
        fields = dict(f.var_fields(data, at, found))
        if event >= f.TUBE_MADE:
            named = fields.get(f.TAG_NAME) if event <= f.INTEGERS_RESERVED else None
            tube = None if named is None else _text(named)
            return Event(position=position, time_ms=time_ms, event=_OTHER_NAMES.get(event, f"event {event}"), tube=tube)
        row = f.Row(data, at)
        return Event(
            position=position,
            time_ms=time_ms,
            event=s.EVENT_NAMES[event],
            tube=self._tubes.get(row.tube, f"tube {row.tube}"),
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
            key=_text(fields[f.TAG_KEY]) if fields.get(f.TAG_KEY) else None,
            reason=_text(fields[f.TAG_REASON]) if f.TAG_REASON in fields else None,
            body=fields.get(f.TAG_BODY),
        )


def to_json_line(event: Event, bodies: bool) -> str:
    """One line of JSON."""
    return json.dumps(event.as_json(bodies), ensure_ascii=False)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
