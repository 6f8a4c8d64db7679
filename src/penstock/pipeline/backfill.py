"""Backfill: history that the lake has not, and all of silver and gold again.

Events that the logs still hold and bronze does not are added, however old they are; then silver and gold are made again
from bronze, a few days a commit. So a lake can be begun late, mended, or brought to what a newer version answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline import bronze, nodes
from penstock.pipeline.digest import digest
from penstock.pipeline.errors import spoken
from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import prepared
from penstock.pipeline.source import Source
from penstock.pipeline.stream import Told, quiet
from penstock.pipeline.tables import EVENTS, GOLD, JOBS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(spark: SparkSession, lake: Lake, source: Source | None, told: Told = quiet) -> int:
    """Add what bronze lacks, if there is a source; make silver and gold again. Tell how many events were added."""
    with lake.writing(), spoken():
        added = 0
        if source is not None:
            nodes.learn(lake, source, from_first=True)
            heads = source.heads()
            told("reading events", 0, sum(head.end - head.first for head in heads.values()))
            ends = {node: head.end for node, head in heads.items()}
            added = bronze.fill(lake, source.batch(prepared(spark)), lambda: nodes.were_read(lake, source, ends))
        _forget(lake)
        digest(spark, lake, lambda done, total: told("silver and gold", done, total))
    return added


def _forget(lake: Lake) -> None:
    """Let all of bronze be new to silver and gold, which are empty from now on. A killed backfill begins again here."""
    change = lake.change()
    for table in (JOBS, *GOLD):
        change.remove(table, lake.files(table))
    change.commit(fresh=lake.files(EVENTS))
