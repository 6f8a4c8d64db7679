"""Bronze: the events of all nodes as they come, each once, whatever is killed when.

The lake's manifest tells for each node the first position it does not have yet, and changes in the same commit as the
files. So what comes a second time, because a batch is run again, a checkpoint was lost, or somebody reads from the
start, is known by its position and left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import prepared
from penstock.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(lake: Lake, events: DataFrame) -> int:
    """Add events that are new to bronze, in one commit, and tell how many. Those of a node come in their order."""
    return _add(lake, _unknown(events, lake.manifest.positions))


def fill(lake: Lake, events: DataFrame) -> int:
    """Add events that bronze lacks, wherever they belong, in one commit, and tell how many."""
    known = lake.read(events.sparkSession, EVENTS).select("node", "position")
    return _add(lake, events.join(known, ["node", "position"], "left_anti"))


def _add(lake: Lake, events: DataFrame) -> int:
    prepared(events.sparkSession)
    change = lake.change()
    names = change.add(EVENTS, events.selectExpr("*", "to_date(time) AS date"))
    reached = _ends(change.staged(EVENTS))
    if not reached:
        change.abandon()
        return 0
    positions = dict(lake.manifest.positions)
    for node, end in reached.items():
        positions[node] = max(end, positions.get(node, 0))
    change.commit(positions, [*lake.manifest.fresh, *names])
    return lake.rows(EVENTS, names)


def _unknown(events: DataFrame, positions: dict[str, int]) -> DataFrame:
    """Those that are not in bronze yet."""
    for node, position in positions.items():
        events = events.where((events.node != node) | (events.position >= position))
    return events


def _ends(paths: list[Path]) -> dict[str, int]:
    """For each node in some files, the position behind its last."""
    ends: dict[str, int] = {}
    for path in paths:
        # The node is the same in most rows, so this is a column of integers to look at, and not of texts.
        read = pq.read_table(path, columns=["node", "position"], read_dictionary=["node"])
        for node, last in zip(*_columns(read)):
            ends[node] = max(ends.get(node, 0), last + 1)
    return ends


def _columns(read: pa.Table) -> tuple[list[str], list[int]]:
    last = read.group_by("node").aggregate([("position", "max")])
    return last["node"].to_pylist(), last["position_max"].to_pylist()
