"""Bronze: the events of all nodes in order of arrival, each exactly once, even if a process is killed at any time.

The lake's manifest has two positions for each node: the position after its last event in bronze, and the position up to
which its log was read. The second can be greater, because not all rows of a log are events. Both change in the same
commit as the files. An event can arrive again if a batch is repeated, a checkpoint is lost, or the log is read from the
start. It is then recognised by its position and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import configure
from penstock.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Called after events were read and before they are committed. Returns the end of the part that was read, by node.
WereRead = Callable[[], dict[str, int]]


def read_positions_unknown() -> dict[str, int]:
    """Return no positions. With this default of `were_read`, each log counts as read up to its last added event."""
    return {}


def append(lake: Lake, events: DataFrame, were_read: WereRead = read_positions_unknown) -> int:
    """Add new events to bronze in one commit. Return their number. The events of a node must arrive in order."""
    return _add(lake, from_positions(events, lake.manifest.positions), were_read)


def fill(lake: Lake, events: DataFrame, were_read: WereRead = read_positions_unknown) -> int:
    """Add those of `events` that bronze lacks, in one commit. Return the number of added events.

    Unlike `append`, it also adds events that are older than the newest event of their node in bronze.
    """
    known = lake.read(events.sparkSession, EVENTS).select("node", "position")
    return _add(lake, events.join(known, ["node", "position"], "left_anti"), were_read)


def _add(lake: Lake, events: DataFrame, were_read: WereRead) -> int:
    configure(events.sparkSession)
    change, manifest = lake.change(), lake.manifest
    names = change.add(EVENTS, events.selectExpr("*", "to_date(time) AS date"))
    read = {**manifest.read, **were_read()}
    reached = _ends(change.staged(EVENTS))
    if not reached and read == manifest.read:
        change.abandon()
        return 0
    positions, newest = dict(manifest.positions), dict(manifest.newest)
    for node, (end, last_ms) in reached.items():
        if end > positions.get(node, 0):
            positions[node], newest[node] = end, last_ms
    change.commit(positions, [*manifest.fresh, *names], newest, read)
    return lake.rows(EVENTS, names)


def from_positions(events: DataFrame, positions: dict[str, int]) -> DataFrame:
    """Drop the events before the position of their node in `positions`. Keep all events of nodes that are not in it."""
    for node, position in positions.items():
        events = events.where((events.node != node) | (events.position >= position))
    return events


def _ends(paths: list[Path]) -> dict[str, tuple[int, int]]:
    """Return for each node in the files the position after its last event, and the time of that event in ms."""
    ends: dict[str, tuple[int, int]] = {}
    for path in paths:
        # As a dictionary column, the node is compared as an integer and not as text.
        read = pq.read_table(path, columns=["node", "position", "time"], read_dictionary=["node"])
        for node in pc.unique(read["node"]).to_pylist():
            rows = read.filter(pc.equal(read["node"], node))
            last = pc.max(rows["position"])
            happened = rows["time"][pc.index(rows["position"], last).as_py()].as_py()
            end = (last.as_py() + 1, round(happened.timestamp() * 1_000))
            ends[node] = max(ends.get(node, (0, 0)), end)
    return ends
