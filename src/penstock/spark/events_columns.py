"""Frames of a log as the columns of `events_schema.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import DamagedJournal
from penstock.journal.columns import batch_of
from penstock.journal.frame import DamagedFrame, Frame, sent_frames
from penstock.journal.gather import Gathered
from penstock.spark.events_options import EventsOptions
from penstock.spark.events_range import EventsRange
from penstock.spark.events_schema import arrow_schema
from penstock.spark.node import Node

# How much of a log is asked for at a time: some ten thousand rows, which is where batches stop getting faster.
_READ_BYTES: Final = 4 * 1024 * 1024


def batches(range: EventsRange, options: EventsOptions) -> Iterator[pa.RecordBatch]:
    """The events of a range, many at a time."""
    with Node(range.url) as node:
        position = range.start
        names: dict[int, bytes] = {}
        while position < range.end:
            piece = node.read(position, _READ_BYTES, position == range.start)
            names |= piece.names
            gathered = Gathered()
            gathered.add(piece.frames, frames_of(piece.frames, range.node))
            names |= gathered.names
            if gathered.count:
                batch = _within(spark_batch(batch_of(gathered, names), range.node), range)
                batch = batch if options.bodies else without_bodies(batch)
                yield _of_tubes(batch, options.tubes) if options.tubes else batch
            position = piece.next


def frames_of(data: bytes, node: str) -> list[Frame]:
    """The frames in what a node has sent, if this version can read them."""
    try:
        return sent_frames(data)
    except DamagedFrame as why:
        raise DamagedJournal(
            f"the log of node {node} cannot be read here ({why}); a newer server needs a newer penstock"
        ) from None


def spark_batch(batch: pa.RecordBatch, node: str) -> pa.RecordBatch:
    """A batch of `journal/columns.py` as Spark wants it."""
    schema = arrow_schema()
    columns = [pa.repeat(node, batch.num_rows)]
    for field in list(schema)[1:]:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _within(batch: pa.RecordBatch, range: EventsRange) -> pa.RecordBatch:
    """The rows of a range: frames are sent whole, so the first and the last may have others."""
    positions = batch.column("position").to_numpy()
    first, end = np.searchsorted(positions, [range.start, range.end])
    return batch if end - first == len(positions) else batch.slice(first, end - first)


def _of_tubes(batch: pa.RecordBatch, tubes: tuple[str, ...]) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("tube"), pa.array(tubes)))


def without_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch in which nobody has a body."""
    at = batch.schema.get_field_index("body")
    return batch.set_column(at, "body", pa.nulls(batch.num_rows, pa.binary()))
