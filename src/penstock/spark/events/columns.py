"""Converts the frames of a log to the columns of `schema.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import DamagedJournal, OutOfRange
from penstock.core.states import EVENT_NAMES
from penstock.journal.frame import DamagedFrame, Frame, NewerFrame, parse_sent_frames
from penstock.journal.history.columns import VAR_COLUMNS, batch_of, tube_text
from penstock.journal.history.gather import GatheredRows
from penstock.spark.events.filters import EventFilters
from penstock.spark.events.options import EventsOptions
from penstock.spark.events.ranges import EventsRange
from penstock.spark.events.schema import arrow_schema
from penstock.spark.node import Node

# Bytes of a log per request. The bytes are copied about ten times between the node's file and here. With half this
# size, the cost per reply dominates; with twice this size, the data no longer fits into the processor's cache.
_READ_BYTES: Final = 2 * 1024 * 1024

# A batch has at least this many rows or bytes, because a batch itself costs as much as some thousand rows.
_BATCH_ROWS: Final = 20_000
_BATCH_BYTES: Final = 8 * 1024 * 1024

# Rows of the cached node column: slightly more than most batches have.
_NODE_COLUMN_ROWS: Final = 1 << 15


def batches(
    range: EventsRange, options: EventsOptions, filters: EventFilters | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a range that match `filters` in large batches. By default, use the filters of the options."""
    filters = EventFilters.of_options(options) if filters is None else filters
    schema = arrow_schema(options.columns)
    needed = {"position", *options.columns}
    if not options.bodies:
        needed.discard("body")
    if not options.headers:
        needed.discard("headers")
    for gathered, names in read_rows(range, filters=filters, has_vars=not needed.isdisjoint(VAR_COLUMNS)):
        if gathered.count:
            batch = _matching(gathered, names, needed, range, filters)
            if batch.num_rows:
                yield spark_batch(batch, range.node, schema)


def _matching(
    gathered: GatheredRows, names: dict[int, bytes], needed: set[str], range: EventsRange, filters: EventFilters
) -> pa.RecordBatch:
    """Return the rows of a range that match the filters, with the needed columns. Build the other columns last."""
    tested = filters.columns()
    if not tested:
        return slice_to_range(batch_of(gathered, names, needed), range)
    first = batch_of(gathered, names, tested | {"position"})
    wanted = _mask(first, filters)
    positions = first.column("position").to_numpy()
    wanted &= (positions >= range.start) & (positions < range.end)
    if not wanted.any():
        return first.slice(0, 0)
    rest = batch_of(gathered, names, needed.difference(first.schema.names))
    batch = pa.RecordBatch.from_arrays([*first.columns, *rest.columns], names=[*first.schema.names, *rest.schema.names])
    return batch if wanted.all() else batch.filter(pa.array(wanted))


def _mask(batch: pa.RecordBatch, filters: EventFilters) -> Any:
    """Return for each row whether it matches the filters on its columns."""
    wanted = np.ones(batch.num_rows, dtype=bool)
    for name in ("event", "tube"):
        if name in batch.schema.names:
            column = batch.column(name)
            matches = [filters.has_text(name, text) for text in column.dictionary.to_pylist()]
            wanted &= np.array(matches, dtype=bool)[column.indices.to_numpy()]
    for condition in filters.numeric("position"):
        wanted &= condition.mask(batch.column("position").to_numpy())
    for condition in filters.numeric("time"):
        wanted &= condition.mask(batch.column("time").cast(pa.int64()).to_numpy() * 1_000)
    return wanted


class _Skipped:
    """What `GatheredRows` leaves out: rows whose event or tube does not match the filters, and perhaps columns."""

    def __init__(self, filters: EventFilters | None, has_vars: bool) -> None:
        self._filters = filters
        self._has_vars = has_vars
        tested = set() if filters is None else filters.columns()
        self._tests_tubes = "tube" in tested
        self._events = bytes(map(self._skips_event, EVENT_NAMES)) if "event" in tested else b""
        self._tubes: set[int] = set()
        self._known: dict[int, bytes] = {}

    def _skips_event(self, name: str) -> bool:
        assert self._filters is not None
        return not self._filters.has_text("event", name)

    def new_rows(self, names: dict[int, bytes]) -> GatheredRows:
        """Return an empty group of rows. `names` has the names of tubes that are known so far."""
        if self._tests_tubes and self._filters is not None and len(names) > len(self._known):
            for number in names.keys() - self._known.keys():
                self._known[number] = names[number]
                if not self._filters.has_text("tube", tube_text(names[number])):
                    self._tubes.add(number)
        return GatheredRows(self._events, self._tubes, self._has_vars)


def read_rows(
    range: EventsRange,
    on_frames: Callable[[bytes, list[Frame]], object] | None = None,
    filters: EventFilters | None = None,
    has_vars: bool = True,
) -> Iterator[tuple[GatheredRows, dict[int, bytes]]]:
    """Yield the rows of a range in large groups. Each group has a dict of the names of its tubes by tube number.

    Nodes send whole frames, so the first and the last group may have rows outside of the range. A group may have rows
    about tubes or sessions, but no row about a job. Most rows that do not match `filters` are left out, but not all of
    them. Without `has_vars`, the groups have no columns of variable length. `on_frames` is called with all frames as
    they were sent.
    """
    with Node(range.url) as node:
        position = range.start
        names: dict[int, bytes] = {}
        skipped = _Skipped(filters, has_vars)
        gathered, size = None, 0
        while position < range.end:
            piece = node.read(position, _READ_BYTES, position == range.start)
            frames = frames_of(piece.frames, range.node)
            names |= piece.names
            if gathered is None:
                gathered = skipped.new_rows(names)
            gathered.add(piece.frames, frames)
            if on_frames is not None:
                on_frames(piece.frames, frames)
            if piece.next <= position:
                raise OutOfRange(
                    f"the log of node {range.node} ends before position {range.end}: it was restored, or lost its end "
                    f"in a crash; the next one is {piece.next}"
                )
            names |= gathered.names
            size += len(piece.frames)
            position = piece.next
            if gathered.count >= _BATCH_ROWS or size >= _BATCH_BYTES or position >= range.end:
                if gathered.count or gathered.tubes or gathered.sessions:
                    yield gathered, names
                gathered, size = None, 0


def frames_of(data: bytes, node: str) -> list[Frame]:
    """Return the frames in `data`. Raise DamagedJournal if this version cannot read them."""
    try:
        return parse_sent_frames(data)
    except (DamagedFrame, NewerFrame) as why:
        raise DamagedJournal(
            f"the log of node {node} cannot be read here ({why}); a newer server needs a newer penstock"
        ) from None


def spark_batch(batch: pa.RecordBatch, node: str, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of `journal/history/columns.py` to the schema that Spark expects. Missing columns are null."""
    count = batch.num_rows
    columns = []
    for field in schema:
        if field.name == "node":
            column = _node_column(node)[:count] if count <= _NODE_COLUMN_ROWS else pa.repeat(node, count)
        elif field.name in batch.schema.names:
            column = batch.column(field.name)
        else:
            column = pa.nulls(count, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@lru_cache(1)
def _node_column(node: str) -> pa.Array:
    """Return a column with the node's id in each row. It is cached because it is the same in every batch."""
    return pa.repeat(node, _NODE_COLUMN_ROWS)


def slice_to_range(batch: pa.RecordBatch, range: EventsRange) -> pa.RecordBatch:
    """Drop rows outside the range. Nodes send whole frames, so the first and the last frame may have such rows."""
    positions = batch.column("position").to_numpy()
    first, end = np.searchsorted(positions, [range.start, range.end])
    return batch if end - first == len(positions) else batch.slice(first, end - first)
