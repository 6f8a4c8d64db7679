"""Collects the rows of many frames, so that `columns.py` can turn them into columns. Pure and compiled.

A frame may contain a single row, and converting rows one by one would be slow.
"""

from __future__ import annotations

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64

from penstock.journal import frame as f
from penstock.journal import layout
from penstock.journal.history.facts import TUBE_EVENTS, SessionRow, TubeRow
from penstock.wire.columns import VarColumn


class GatheredRows:
    """The fixed-length rows of jobs in one buffer. Bodies, keys and reasons, which vary in length, are in columns.

    Few jobs have headers. Only their rows are recorded, so that the others cost nothing.

    Rows about tubes and sessions are in lists, because there are few of them. The tokens of sessions (SESSION_MADE) are
    left out: a token is a secret with which a client takes over a session.
    """

    count: i64
    names: dict[int, bytes]  # Names of tubes, by number.
    _rows: BytesWriter
    _positions: BytesWriter
    bodies: VarColumn
    keys: VarColumn
    reasons: VarColumn
    headers: list[bytes]  # Encoded headers, in the order of the rows.
    header_rows: list[int]  # The index of the row of each of them.
    tubes: list[TubeRow]  # The lives of tubes, in the order of positions.
    sessions: list[SessionRow]  # The names of clients, in the order of positions.
    _skipped_events: bytes  # A byte for each event number, 1 for those that are left out. Empty: none is left out.
    _skipped_tubes: set[int]  # Numbers of the tubes that are left out.

    _has_vars: bool  # Whether the columns of variable length are filled.

    def __init__(
        self, skipped_events: bytes = b"", skipped_tubes: set[int] | None = None, has_vars: bool = True
    ) -> None:
        self.count = 0
        self.names = {}
        self._rows = BytesWriter()
        self._positions = BytesWriter()
        self.bodies = VarColumn()
        self.keys = VarColumn()
        self.reasons = VarColumn()
        self.headers = []
        self.header_rows = []
        self.tubes = []
        self.sessions = []
        self._skipped_events = skipped_events
        self._has_vars = has_vars
        self._skipped_tubes = set() if skipped_tubes is None else skipped_tubes

    def add(self, data: bytes, frames: list[f.Frame]) -> None:
        """Add the rows of frames, without those that are left out."""
        for found in frames:
            if found.version > 1 and found.row_bytes == layout.ROW_BYTES:
                self._add_frame(data, found)
            else:
                self._add_other_frame(data, found)

    def _add_frame(self, data: bytes, found: f.Frame) -> None:
        """Add the rows of a frame. Consecutive rows of jobs are copied together."""
        filters = len(self._skipped_events) > 0 or len(self._skipped_tubes) > 0
        at = found.rows_at
        start = at  # The first row that is not copied yet.
        position = found.position
        for _ in range(found.rows):
            event = i64(data[at + layout.EVENT_AT])
            if event < layout.TUBE_MADE and not (filters and self._is_skipped(data, at, event)):
                self._add_parts(data, at, found, position)
            else:
                if at > start:
                    self._rows.write(data[start:at])
                start = at + layout.ROW_BYTES
                if event >= layout.TUBE_MADE:
                    self._add_fact(data, at, found, position, event)
            at += layout.ROW_BYTES
            position += 1
        if at > start:
            self._rows.write(data[start:at])

    def _add_other_frame(self, data: bytes, found: f.Frame) -> None:
        """Add the rows of a frame with another layout: of version 1, or with bytes that this version does not have."""
        at = found.rows_at
        position = found.position
        for _ in range(found.rows):
            event = i64(data[at + layout.EVENT_AT])
            if event >= layout.TUBE_MADE:
                self._add_fact(data, at, found, position, event)
            elif not self._is_skipped(data, at, event):
                if found.version > 1:
                    self._rows.write(data[at : at + layout.ROW_BYTES])
                else:
                    self._rows.write(f.decode_v1(data[at : at + layout.ROW_BYTES_V1]))
                self._add_parts(data, at, found, position)
            at += found.row_bytes
            position += 1

    def _is_skipped(self, data: bytes, at: i64, event: i64) -> bool:
        if event < len(self._skipped_events) and self._skipped_events[event] != 0:
            return True
        return len(self._skipped_tubes) > 0 and read_i64_le(data, at + layout.TUBE_AT) in self._skipped_tubes

    def _add_parts(self, data: bytes, at: i64, found: f.Frame, position: i64) -> None:
        """Add everything about a row except its fields of fixed length."""
        write_i64_le(self._positions, position)
        if self._has_vars:
            length = i64(read_i32_le(data, at + layout.VAR_LENGTH_AT))
            if length > 0:
                self._add_vars(data, found.var_at + i64(read_i32_le(data, at + layout.VAR_OFFSET_AT)), length)
            self.bodies.end_row()
            self.keys.end_row()
            self.reasons.end_row()
        self.count += 1

    def _add_fact(self, data: bytes, at: i64, found: f.Frame, position: i64, event: i64) -> None:
        """Add a row that is about a tube or a session. Other rows are skipped."""
        if event <= layout.INTEGERS_RESERVED or event == layout.TUBE_NAMED:
            fields = dict(f.var_fields(data, at, found))
            number = read_i64_le(data, at)
            name = fields[layout.TAG_NAME]
            # A reservation of integers names the tube, too, but is repeated often.
            is_new = event != layout.INTEGERS_RESERVED or number not in self.names
            self.names[number] = name
            if is_new:
                time = read_i64_le(data, at + layout.TIME_AT)
                told = fields.get(layout.TAG_JSON)
                self.tubes.append(TubeRow(position, time, number, name, TUBE_EVENTS[event], told))
        elif event == layout.SESSION_NAMED:
            fields = dict(f.var_fields(data, at, found))
            name, user = fields[layout.TAG_NAME], fields[layout.TAG_USER]
            self.sessions.append(SessionRow(position, read_i64_le(data, at), name, user))

    def _add_vars(self, data: bytes, at: i64, length: i64) -> None:
        end = at + length
        while at < end:
            tag = i64(data[at])
            size = i64(read_i32_le(data, at + layout.VAR_FIELD_LENGTH_AT))
            at += layout.VAR_HEADER_BYTES
            if tag == layout.TAG_BODY:
                self.bodies.add(data, at, size)
            elif tag == layout.TAG_KEY:
                self.keys.add(data, at, size)
            elif tag == layout.TAG_REASON:
                self.reasons.add(data, at, size)
            elif tag == layout.TAG_HEADERS:
                self.headers.append(data[at : at + size])
                self.header_rows.append(self.count)
            at += size

    def rows(self) -> bytes:
        """Return the rows, one after the other. The length of each row is `ROW_BYTES`."""
        return self._rows.getvalue()

    def positions(self) -> bytes:
        """Return the positions of the rows, as little-endian i64."""
        return self._positions.getvalue()
