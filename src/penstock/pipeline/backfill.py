"""Backfill: adds missing history to a lake, and computes silver and gold again.

Events that the logs still have and bronze lacks are added, regardless of their age. Then silver and gold are computed
again from bronze. This completes a lake that was started late, repairs it, or updates it with the queries of a newer
version. With `since` and `until`, it is limited to some days.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.lake.lake import Lake
from penstock.lake.tables import DERIVED, EVENTS
from penstock.pipeline.coverage import spans
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.gaps import closing_days, gaps
from penstock.pipeline.run import Pipeline, ProgressCallback, no_progress
from penstock.pipeline.source import Source
from penstock.pipeline.turn import prepare, rebuild, update_derived
from penstock.pipeline.user_tables import UserTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Day = datetime.date


def backfill(
    spark: SparkSession,
    lake: Lake,
    source: Source | None,
    on_progress: ProgressCallback = no_progress,
    since: Day | None = None,
    until: Day | None = None,
    users: Sequence[UserTable] = (),
) -> int:
    """Add missing events to bronze if there is a source. Compute silver and gold again. Return the number of events.

    `since` and `until` are the first and the last day.
    """
    with lake.writing(), as_pipeline_error():
        lake.create()
        prepare(spark, lake, users)
        added, stale = 0, set[str]()
        if source is not None:
            with source.connected() as logs:
                logs.check_continues(lake)
                heads = logs.heads()
                bounds = {node: logs.between(node, head, since, until) for node, head in heads.items()}
                ranges = logs.missing_ranges(lake, heads, bounds)
            old_gaps = gaps(lake)
            added = Pipeline(spark, lake, source, on_progress).copy(ranges)
            stale = closing_days(lake, set(old_gaps) - set(gaps(lake)))
            # Older events may have closed gaps.
            starts = {span.node: span.start for span in spans(lake.coverage())}
            lake.commit_events(lake.turn, [], {}, starts)
        update_derived(spark, lake, users=users)
        found = {day for table in (EVENTS, *DERIVED, *(each.table for each in users)) for day in lake.days(table)}
        days = {day for day in found if (since is None or day >= str(since)) and (until is None or day <= str(until))}
        rebuild(spark, lake, days | stale, lambda done, total: on_progress("silver and gold", done, total), users)
    return added
