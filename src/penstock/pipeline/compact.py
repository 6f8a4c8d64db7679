"""Compaction: many small files of a day become few large ones. What they say stays the same.

Small ones only: a file that is large enough is left alone, so however often this is done, an event is written again a
few times and not once for every turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.pipeline.lake import Lake
from penstock.pipeline.sizing import prepared
from penstock.pipeline.tables import EVENTS, JOBS, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A file of half this size is large enough; small ones are put together to about this.
FILE_BYTES: Final = 128 * 1024 * 1024

# A pipeline that runs compacts a day by itself when it has come to so many small files.
MANY: Final = 64

# By what the rows of a file are sorted: neighbours in time are neighbours in the file, which makes it smaller.
_ORDER: Final = {EVENTS.path: ("node", "position"), JOBS.path: ("node", "job")}


def compact(spark: SparkSession, lake: Lake, only_many: bool = False) -> tuple[int, int]:
    """Put small files together, a day a commit, and tell how many became how many. The caller is the one who writes."""
    before = after = 0
    for table in (EVENTS, JOBS):
        for day in lake.days(table):
            small = _small(lake, table, day)
            if len(small) > (MANY if only_many else 1):
                before += len(small)
                after += _merge(prepared(spark), lake, table, small)
    return before, after


def _small(lake: Lake, table: Table, day: str) -> list[str]:
    """Files of a day that could be larger; not those that silver has not seen yet, which are known by their names."""
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
