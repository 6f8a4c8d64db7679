"""Backfill: adds missing history to a lake, and rebuilds silver and gold.

Events that the logs still have and bronze lacks are added, regardless of their age. Then silver and gold are rebuilt
from bronze, a few days per commit. This completes a lake that was started late, repairs it, or recomputes it with the
queries of a newer version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline import bronze, nodes
from penstock.pipeline.digest import digest
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import configure
from penstock.pipeline.source import Source
from penstock.pipeline.stream import ProgressCallback, no_progress
from penstock.pipeline.tables import EVENTS, GOLD, JOBS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(
    spark: SparkSession, lake: Lake, source: Source | None, on_progress: ProgressCallback = no_progress
) -> int:
    """Add missing events to bronze if there is a source. Rebuild silver and gold. Return how many events were added."""
    with lake.writing(), as_pipeline_error():
        added = 0
        if source is not None:
            nodes.refresh(lake, source, from_first=True)
            heads = source.heads()
            on_progress("reading events", 0, sum(head.end - head.first for head in heads.values()))
            ends = {node: head.end for node, head in heads.items()}
            added = bronze.fill(lake, source.batch(configure(spark)), lambda: nodes.record_read(lake, source, ends))
        _reset_derived(lake)
        digest(spark, lake, lambda done, total: on_progress("silver and gold", done, total))
    return added


def _reset_derived(lake: Lake) -> None:
    """Empty silver and gold, and list all files of bronze as new. If the backfill is killed, `digest` completes it."""
    change = lake.change()
    for table in (JOBS, *GOLD):
        change.remove(table, lake.files(table))
    change.commit(fresh=lake.files(EVENTS))
