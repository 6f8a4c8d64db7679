"""Reads a range of one node's log for bronze: events, digests, lives of tubes, and names of sessions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from penstock.journal.frame import Frame
from penstock.journal.history.columns import batch_of
from penstock.journal.history.digester import BlockDigester
from penstock.journal.history.facts import SessionRow, TubeRow
from penstock.journal.tube_fields import decode_tube_fields, policy_json
from penstock.lake.tables import EVENTS
from penstock.spark.events.columns import read_rows, slice_to_range
from penstock.spark.events.ranges import EventsRange
from penstock.spark.events.schema import NAMES

# Columns that repeat few values. As dictionaries they are written much faster.
DICTIONARIES: Final = ("node", "event", "tube", "before", "after")
_TEXTS: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
    [pa.field(each.name, _TEXTS) if each.name in DICTIONARIES else each for each in EVENTS.file_schema]
)


class LogReader:
    """Reads one range of a log once."""

    def __init__(self, range: EventsRange, bodies: bool) -> None:
        self._range = range
        self._columns = {name for name in NAMES if bodies or name != "body"}
        self._digester = BlockDigester(range.start, range.end, bodies)
        self._digested = False
        self._tubes: list[TubeRow] = []
        self._sessions: dict[int, SessionRow] = {}
        self._last_time: datetime | None = None

    def tables(self) -> Iterator[pa.Table]:
        """Yield the events in tables with the columns of bronze."""
        for gathered, names in read_rows(self._range, self._digest):
            self._tubes += [row for row in gathered.tubes if self._range.start <= row.position < self._range.end]
            self._sessions |= {
                row.number: row for row in gathered.sessions if self._range.start <= row.position < self._range.end
            }
            if gathered.count:
                batch = slice_to_range(batch_of(gathered, names, self._columns), self._range)
                if batch.num_rows:
                    self._last_time = batch.column("time")[-1].as_py()
                    yield _table(batch, self._range.node)

    def _digest(self, data: bytes, frames: list[Frame]) -> None:
        if not self._digested:
            self._digested = self._digester.add(data, frames)

    def coverage(self) -> list[dict[str, Any]]:
        """Return the blocks of the range with their digests. Together they cover the whole range."""
        if not self._digested:
            self._digester.finish()
        blocks = self._digester.blocks
        return [
            {
                "start": block.first,
                "end": self._range.end if block is blocks[-1] else block.end,
                "events": block.rows,
                "rows_digest": block.rows_sha256,
                "bodies_digest": block.bodies_sha256,
                "last_time": self._last_time if block is blocks[-1] else None,
            }
            for block in blocks
        ]

    def tubes(self) -> list[dict[str, Any]]:
        """Return the events in the lives of tubes. Segments repeat names, so only the first row of a name is kept."""
        found, named = [], set()
        for row in self._tubes:
            if row.event == "named" and row.number in named:
                continue
            named.add(row.number)
            found.append(
                {
                    "tube_number": row.number,
                    "tube": row.name.decode("utf-8", "backslashreplace"),
                    "position": row.position,
                    "time": datetime.fromtimestamp(row.time / 1000, UTC),
                    "event": row.event,
                    "policy": None if row.fields is None else policy_json(decode_tube_fields(row.fields).policy),
                }
            )
        return found

    def sessions(self) -> list[dict[str, Any]]:
        return [
            {
                "session": row.number,
                "position": row.position,
                "name": row.name.decode("utf-8", "backslashreplace"),
                "user": row.user.decode("utf-8", "backslashreplace"),
            }
            for row in self._sessions.values()
        ]


def _table(batch: pa.RecordBatch, node: str) -> pa.Table:
    count, columns = batch.num_rows, []
    for each in _SCHEMA:
        if each.name == "node":
            column = pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()).fill_null(0), pa.array([node]))
        elif each.name in batch.schema.names:
            column = batch.column(each.name)
        else:
            column = pa.nulls(count, each.type)
        columns.append(column if column.type == each.type else column.cast(each.type))
    return pa.Table.from_arrays(columns, schema=_SCHEMA)
