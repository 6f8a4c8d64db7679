"""Bronze: the events of all nodes as they come, each once, whatever is killed when.

The lake's manifest tells for each node the first position it does not have yet, and changes in the same commit as the
files. So what comes a second time, because a batch is run again, a checkpoint was lost, or somebody reads from the
start, is known by its position and left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.lake import Lake
from penstock.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(lake: Lake, events: DataFrame) -> int:
    """Add events that are new to bronze, in one commit, and tell how many. Those of a node come in their order."""
    spark = events.sparkSession
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    change = lake.change()
    names = change.add(EVENTS, _unknown(events, lake.manifest.positions).selectExpr("*", "to_date(time) AS date"))
    if not names:
        change.abandon()
        return 0
    reached = change.staged(spark, EVENTS).groupBy("node").agg({"position": "max", "*": "count"}).collect()
    positions = lake.manifest.positions | {row["node"]: row["max(position)"] + 1 for row in reached}
    change.commit(positions, [*lake.manifest.fresh, *names])
    return sum(row["count(1)"] for row in reached)


def _unknown(events: DataFrame, positions: dict[str, int]) -> DataFrame:
    """Those that are not in bronze yet."""
    for node, position in positions.items():
        events = events.where((events.node != node) | (events.position >= position))
    return events
