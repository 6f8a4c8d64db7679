"""Compares the events in bronze with digests: those that were recorded when the events were read, and those of nodes.

A digest covers all columns of the events of a block. If rows were removed, added or changed since they were read, the
digests of their block differ. Blocks of nodes can be cut at other positions, so each list is checked by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import states as s
from penstock.core.limits import NEVER
from penstock.journal.history.block import BlockDigest
from penstock.journal.layout import JOB_FIELDS, ROW_BYTES, TAG_BODY, TAG_HEADERS, TAG_KEY, TAG_REASON, VAR_OFFSET_AT
from penstock.lake.delta import DataFile
from penstock.lake.files import read_file
from penstock.lake.lake import Lake
from penstock.lake.place import Place
from penstock.lake.span import Span
from penstock.lake.tables import EVENTS
from penstock.pipeline.tasks import run_tasks
from penstock.wire.headers import encode_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Blocks per task.
_BLOCKS: Final = 128

# Columns whose name differs from that of the field in a row.
_NAMES: Final = {"holder": "session", "tube": "tube_number", "ttr": "ttr_ms", "zone": "origin"}
_NULLS: Final = {"wake": NEVER, "expiry": NEVER, "ttr": NEVER, "holder": 0, "number": -1, "since": 0, "actor": 0}
_NUMBERS: Final = {
    "event": pa.array(s.EVENT_NAMES),
    "before": pa.array(s.STATE_NAMES),
    "after": pa.array(s.STATE_NAMES),
}

# A row of the log, in which its position replaces the place of its var fields.
_ROW: Final = np.dtype(
    {
        "names": [*(name for name, _, _ in JOB_FIELDS), "position"],
        "formats": [*(kind for _, kind, _ in JOB_FIELDS), "<i8"],
        "offsets": [*(offset for _, _, offset in JOB_FIELDS), VAR_OFFSET_AT],
        "itemsize": ROW_BYTES,
    }
)
_ENTRY: Final = np.dtype([("position", "<u8"), ("tag", "u1"), ("length", "<u4")])


@dataclass(frozen=True)
class Expected:
    """The digests that a block of bronze must have."""

    node: str
    start: int
    end: int
    events: int
    rows_digest: bytes | None  # None: the events are only counted, because the lake was converted without all columns.
    bodies_digest: bytes | None  # None: the bodies are not compared.

    @property
    def span(self) -> Span:
        return Span(self.node, self.start, self.end)


@dataclass(frozen=True)
class Difference:
    """A block of bronze that differs from its digests."""

    expected: Expected
    events: int  # Number of events that bronze has at these positions.
    rows_differ: bool
    bodies_differ: bool

    @property
    def what(self) -> str:
        """Return the difference as text."""
        missing = self.expected.events - self.events
        if missing > 0:
            return f"{missing:,} of {self.expected.events:,} events are missing"
        if missing < 0:
            return f"{-missing:,} events too many; there were {self.expected.events:,}"
        return "events were changed" if self.rows_differ else "bodies were changed"


def expected_of(coverage: Iterable[dict[str, Any]]) -> list[Expected]:
    """Return the digests that were recorded when the events were read."""
    names = ("node", "start", "end", "events", "rows_digest", "bodies_digest")
    return [Expected(*(row[name] for name in names)) for row in coverage]


def of_node(node: str, blocks: Iterable[BlockDigest], bodies: bool) -> list[Expected]:
    """Return the digests that a node has computed from its log."""
    return [
        Expected(node, each.first, each.end, each.rows, each.rows_sha256, each.bodies_sha256 if bodies else None)
        for each in blocks
    ]


def differences(spark: SparkSession, lake: Lake, expected: Sequence[Expected]) -> list[Difference]:
    """Compare bronze with digests on Spark's executors. Return the blocks that differ, in order."""
    place, files = lake.place, lake.files(EVENTS)
    tasks = []
    ordered = sorted(expected, key=lambda block: (block.node, block.start))
    for first in range(0, len(ordered), _BLOCKS):
        blocks = ordered[first : first + _BLOCKS]
        tasks.append((blocks, files_with(files, blocks)))
    found = run_tasks(spark, lambda task: compare(place, *task), tasks)
    return sorted((each for some in found for each in some), key=lambda each: (each.expected.node, each.expected.start))


def _limits(blocks: list[Expected]) -> list[Span]:
    """Return for each node the span that contains all of its blocks."""
    limits: dict[str, Span] = {}
    for block in blocks:
        limits[block.node] = block.span.joined(limits.get(block.node, block.span))
    return list(limits.values())


def may_have(file: DataFile, span: Span) -> bool:
    """Return whether a file may have events at some positions. Files of unknown positions may have all."""
    return file.span is None or file.span.overlaps(span)


def files_with(files: Iterable[DataFile], blocks: list[Expected]) -> list[DataFile]:
    """Return the files that may have events of some blocks."""
    limits = _limits(blocks)
    return [file for file in files if any(may_have(file, span) for span in limits)]


def compare(place: Place, blocks: list[Expected], files: list[DataFile]) -> list[Difference]:
    """Return the blocks that differ from the events in the files. This runs in a Spark task."""
    return [each for block in blocks_in(place, blocks, files) for each in _difference(*block)]


def blocks_in(place: Place, blocks: list[Expected], files: list[DataFile]) -> Iterator[tuple[Expected, pa.Table, Any]]:
    """Yield each block with its events in the files, as a table and as rows of the log, in order of their positions."""
    for span in _limits(blocks):
        of_node, position = pc.field("node") == span.node, pc.field("position")
        only = of_node & (position >= span.start) & (position < span.end)
        columns = EVENTS.file_schema.names
        parts = [read_file(place, EVENTS, file, only, columns) for file in files if may_have(file, span)]
        events = pa.concat_tables([EVENTS.file_schema.empty_table(), *parts])
        positions = events["position"].to_numpy()
        if (positions[1:] < positions[:-1]).any():
            events = events.sort_by("position")
            positions = events["position"].to_numpy()
        events = events.combine_chunks()
        rows = row_bytes(events)
        for block in (each for each in blocks if each.node == span.node):
            first, stop = np.searchsorted(positions, [block.start, block.end])
            yield block, events.slice(first, stop - first), rows[first:stop]


def _difference(block: Expected, events: pa.Table, rows: Any) -> list[Difference]:
    count = len(events)
    rows_differ = count != block.events
    if block.rows_digest is not None:
        rows_differ = rows_differ or rows_digest(events, rows) != block.rows_digest
    bodies_differ = block.bodies_digest is not None and bodies_digest(events, rows) != block.bodies_digest
    return [Difference(block, count, rows_differ, bodies_differ)] if rows_differ or bodies_differ else []


def row_bytes(events: pa.Table) -> Any:
    """Return events as rows of the log, with their positions in the place of their var fields."""
    rows = np.zeros(len(events), dtype=_ROW)
    for name in _ROW.names or ():
        column = events[_NAMES.get(name, name)]
        if name in _NUMBERS:
            # An unknown name becomes a number that no event has.
            column = pc.index_in(column, _NUMBERS[name]).fill_null(255)
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        rows[name] = (column.fill_null(_NULLS[name]) if name in _NULLS else column).to_numpy()
    return rows


def rows_digest(events: pa.Table, rows: Any) -> bytes:
    digest = hashlib.sha256(np.ascontiguousarray(rows).tobytes())
    headers = events["headers"]
    encoded = pa.nulls(len(events), pa.binary())
    if headers.null_count < len(headers):
        texts = [None if each is None else encode_headers(each) for each in headers.to_pylist()]
        encoded = pa.array(texts, pa.binary())
    for tag, column in ((TAG_KEY, events["key"]), (TAG_REASON, events["reason"]), (TAG_HEADERS, encoded)):
        digest.update(_entries(rows, tag, column))
    return digest.digest()


def bodies_digest(events: pa.Table, rows: Any) -> bytes:
    return hashlib.sha256(_entries(rows, TAG_BODY, events["body"])).digest()


def _entries(rows: Any, tag: int, column: Any) -> bytes:
    """Return the values of a column as they are hashed: each with its position, its tag and its length."""
    values = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(pa.binary())
    there = values.is_valid().to_numpy(zero_copy_only=False)
    if not there.any():
        return b""
    values = values.drop_null()
    heads = np.zeros(len(values), dtype=_ENTRY)
    heads["position"] = rows["position"][there]
    heads["tag"] = tag
    heads["length"] = pc.binary_length(values).to_numpy()
    starts = pa.Array.from_buffers(pa.binary(_ENTRY.itemsize), len(values), [None, pa.py_buffer(heads.tobytes())]).cast(
        pa.binary()
    )
    # All entries follow each other in the buffer of the joined column.
    joined = pc.binary_join_element_wise(starts, values, b"")
    return bytes(joined.buffers()[2])
