"""Compaction: merges the small files of a day into few large ones with the same rows.

Files that are large enough are not touched. An event is therefore rewritten only a few times, however often compaction
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import configure
from penstock.pipeline.tables import EVENTS, JOBS, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Target size. Files of at least half this size are not merged.
FILE_BYTES: Final = 128 * 1024 * 1024

# A running pipeline compacts a day when it has more small files than this.
MANY: Final = 64

# Sort order within a file. Similar rows become neighbours, which makes the file smaller.
_ORDER: Final = {EVENTS.path: ("node", "position"), JOBS.path: ("node", "job")}


def compact(spark: SparkSession, lake: Lake, only_many: bool = False) -> tuple[int, int]:
    """Merge small files, one day per commit. Return the number of merged files, and of the files that replace them.

    With `only_many`, skip days that have few small files. The caller holds the lock for writing.
    """
    before = after = 0
    for table in (EVENTS, JOBS):
        for day in lake.days(table):
            small = _small(lake, table, day)
            if len(small) > (MANY if only_many else 1):
                before += len(small)
                after += _merge(configure(spark), lake, table, small)
    return before, after


def _small(lake: Lake, table: Table, day: str) -> list[str]:
    """Return the small files of a day. Files whose events were not added to silver yet are left out."""
    fresh = lake.manifest.fresh if table is EVENTS else ()
    return [
        name for name in lake.files(table, [day]) if name not in fresh and _size(lake, table, name) < FILE_BYTES // 2
    ]


def _merge(spark: SparkSession, lake: Lake, table: Table, names: list[str]) -> int:
    total = sum(_size(lake, table, name) for name in names)
    change = lake.change()
    rows = lake.read(spark, table, names).repartitionByRange(1 + total // FILE_BYTES, *_ORDER[table.path])
    came = change.add(table, rows.sortWithinPartitions(*_ORDER[table.path]))
    change.remove(table, names)
    change.commit()
    return len(came)


def _size(lake: Lake, table: Table, name: str) -> int:
    return lake.path(table, name).stat().st_size
