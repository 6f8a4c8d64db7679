"""Frames of a log as the columns of `events_schema.py`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import DamagedJournal, OutOfRange
from penstock.journal.columns import batch_of
from penstock.journal.frame import DamagedFrame, Frame, sent_frames
from penstock.journal.gather import Gathered
from penstock.spark.events_options import EventsOptions
from penstock.spark.events_range import EventsRange
from penstock.spark.events_schema import arrow_schema
from penstock.spark.node import Node

# How much of a log is asked for at a time. It is copied some ten times on its way, from the node's file to here: with
# half as much, each answer costs more than that; with twice as much, a processor keeps none of it near by.
_READ_BYTES: Final = 2 * 1024 * 1024

# How many rows become a batch, at least: each batch costs as much as some thousand rows.
_BATCH_ROWS: Final = 20_000
_BATCH_BYTES: Final = 8 * 1024 * 1024

# As many rows as a batch has most often, and some more.
_REPEATED: Final = 1 << 15


def batches(range: EventsRange, options: EventsOptions) -> Iterator[pa.RecordBatch]:
    """The events of a range, many at a time."""
    schema = arrow_schema(options.columns)
    needed = {"position", *options.columns, *(["tube"] if options.tubes else [])}
    if not options.bodies:
        needed.discard("body")
    for gathered, names in _gathered(range):
        batch = _of_tubes(_within(batch_of(gathered, names, needed), range), options.tubes)
        if batch.num_rows:
            yield spark_batch(batch, range.node, schema)


def _gathered(range: EventsRange) -> Iterator[tuple[Gathered, dict[int, bytes]]]:
    """The rows of a range, many at a time, and the names of all tubes that they tell of."""
    with Node(range.url) as node:
        position = range.start
        names: dict[int, bytes] = {}
        gathered, size = Gathered(), 0
        while position < range.end:
            piece = node.read(position, _READ_BYTES, position == range.start)
            gathered.add(piece.frames, frames_of(piece.frames, range.node))
            if piece.next <= position:
                raise OutOfRange(
                    f"the log of node {range.node} ends before position {range.end}: it was restored, or lost its end "
                    f"in a crash; the next one is {piece.next}"
                )
            names |= piece.names | gathered.names
            size += len(piece.frames)
            position = piece.next
            if gathered.count >= _BATCH_ROWS or size >= _BATCH_BYTES or position >= range.end:
                if gathered.count:
                    yield gathered, names
                gathered, size = Gathered(), 0


def frames_of(data: bytes, node: str) -> list[Frame]:
    """The frames in what a node has sent, if this version can read them."""
    try:
        return sent_frames(data)
    except DamagedFrame as why:
        raise DamagedJournal(
            f"the log of node {node} cannot be read here ({why}); a newer server needs a newer penstock"
        ) from None


def spark_batch(batch: pa.RecordBatch, node: str, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of `journal/columns.py` as Spark wants it. What it lacks is null."""
    count = batch.num_rows
    columns = []
    for field in schema:
        if field.name == "node":
            column = _repeated(node)[:count] if count <= _REPEATED else pa.repeat(node, count)
        elif field.name in batch.schema.names:
            column = batch.column(field.name)
        else:
            column = pa.nulls(count, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@lru_cache(1)
def _repeated(node: str) -> pa.Array:
    """The name of a node for many rows: it is the same in every batch."""
    return pa.repeat(node, _REPEATED)


def _within(batch: pa.RecordBatch, range: EventsRange) -> pa.RecordBatch:
    """The rows of a range: frames are sent whole, so the first and the last may have others."""
    positions = batch.column("position").to_numpy()
    first, end = np.searchsorted(positions, [range.start, range.end])
    return batch if end - first == len(positions) else batch.slice(first, end - first)


def _of_tubes(batch: pa.RecordBatch, tubes: tuple[str, ...]) -> pa.RecordBatch:
    """The rows of some tubes, or of all if none is named. Most often these are all rows, or none."""
    if not tubes:
        return batch
    column = batch.column("tube")
    wanted = np.array([name in tubes for name in column.dictionary.to_pylist()])[column.indices.to_numpy()]
    return batch if wanted.all() else batch.filter(pa.array(wanted))
