"""Bronze: the events of all nodes as they come, each once, whatever is killed when.

The lake's manifest tells for each node the first position it does not have yet, and how far its log was read, which may
be further: not all that is in a log are events. It changes in the same commit as the files. So what comes a second
time, because a batch is run again, a checkpoint was lost, or somebody reads from the start, is known by its position
and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import prepared
from penstock.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# What is called when events were read, and do not count yet. It tells how far the logs were read, by node.
WereRead = Callable[[], dict[str, int]]


def unknown() -> dict[str, int]:
    """Nobody knows how far the logs were read: as far as there are events, at least."""
    return {}


def append(lake: Lake, events: DataFrame, were_read: WereRead = unknown) -> int:
    """Add events that are new to bronze, in one commit, and tell how many. Those of a node come in their order."""
    return _add(lake, from_positions(events, lake.manifest.positions), were_read)


def fill(lake: Lake, events: DataFrame, were_read: WereRead = unknown) -> int:
    """Add events that bronze lacks, wherever they belong, in one commit, and tell how many."""
    known = lake.read(events.sparkSession, EVENTS).select("node", "position")
    return _add(lake, events.join(known, ["node", "position"], "left_anti"), were_read)


def _add(lake: Lake, events: DataFrame, were_read: WereRead) -> int:
    prepared(events.sparkSession)
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
    """Those at some positions or behind; of other nodes all."""
    for node, position in positions.items():
        events = events.where((events.node != node) | (events.position >= position))
    return events


def _ends(paths: list[Path]) -> dict[str, tuple[int, int]]:
    """For each node in some files, the position behind its last, and when that happened, in ms."""
    ends: dict[str, tuple[int, int]] = {}
    for path in paths:
        # The node is the same in most rows, so this is a column of integers to look at, and not of texts.
        read = pq.read_table(path, columns=["node", "position", "time"], read_dictionary=["node"])
        for node in pc.unique(read["node"]).to_pylist():
            rows = read.filter(pc.equal(read["node"], node))
            last = pc.max(rows["position"])
            happened = rows["time"][pc.index(rows["position"], last).as_py()].as_py()
            end = (last.as_py() + 1, round(happened.timestamp() * 1_000))
            ends[node] = max(ends.get(node, (0, 0)), end)
    return ends
