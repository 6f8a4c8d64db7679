"""A turn of the pipeline: what is new in bronze becomes part of silver and gold, in one commit.

It reads the new events and the jobs that were still there, and of gold the days it touches: never the whole history. So
what a turn costs grows with what is new and with the jobs that wait, and all turns together with the history.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from penstock.pipeline.lake import NO_DAY, Change, Lake, day_of
from penstock.pipeline.queries import sql
from penstock.pipeline.tables import BACKLOG, EVENTS, JOBS, LATENCY, TALLIES, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# So many events are digested in one commit, a day at least: enough to be quick, little enough for the disk it needs
# meanwhile, which is about that of the events again.
ROWS_A_TURN: Final = 20_000_000

QUERIES_AT_ONCE: Final = 4

Told = Callable[[str], None]


def digest(spark: SparkSession, lake: Lake, told: Told = lambda _: None) -> int:
    """Bring silver and gold up to bronze, and tell how many events were new."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    total = 0
    while lake.manifest.fresh:
        names = _portion(lake)
        rows = lake.rows(EVENTS, names)
        told(f"{rows:,} events into silver and gold")
        _turn(spark, lake, names)
        total += rows
    return total


def _portion(lake: Lake) -> list[str]:
    """The oldest days of what is new, as many as a turn takes. Days go whole: within one, files may be in any order."""
    found: list[str] = []
    for day in sorted({day_of(name) for name in lake.manifest.fresh}):
        of_day = [name for name in lake.manifest.fresh if day_of(name) == day]
        if found and lake.rows(EVENTS, found + of_day) > ROWS_A_TURN:
            break
        found += of_day
    return found


def _turn(spark: SparkSession, lake: Lake, names: list[str]) -> None:
    change = lake.change()
    lake.read(spark, EVENTS, names).createOrReplaceTempView("fresh")
    waiting = lake.files(JOBS, [NO_DAY])
    lake.read(spark, JOBS, waiting).createOrReplaceTempView("jobs")
    # Read nine times, so worked out once. Spread by node and job already, so that jobs need no shuffle of their own.
    steps = spark.sql(sql("silver/steps"), {"grain": lake.manifest.grain}).persist()
    try:
        steps.createOrReplaceTempView("steps")
        change.add(JOBS, spark.sql(sql("silver/jobs")))
        change.remove(JOBS, waiting)
        days = sorted({day_of(name) for name in names})
        # Small queries, whose planning takes longer than their work: several at a time.
        with ThreadPoolExecutor(QUERIES_AT_ONCE) as pool:
            list(pool.map(lambda table: _add_up(spark, lake, change, table, days), TALLIES))
        _views(spark, lake, change, days)
        change.commit(fresh=[name for name in lake.manifest.fresh if name not in set(names)])
    finally:
        steps.unpersist()


def _add_up(spark: SparkSession, lake: Lake, change: Change, table: Table, days: list[str]) -> None:
    """Add what is new to a tally, on the days that it is about."""
    new = spark.sql(sql(f"gold/{table.name}"))
    before = lake.read(spark, table, lake.files(table, days))
    keys = [*table.keys, table.by]
    sums = [f"{'max' if name.endswith('_max') else 'sum'}({name}) AS {name}" for name in table.measures]
    merged = spark.sql(
        f"SELECT {', '.join([*keys, *sums])} FROM {{both}} GROUP BY {', '.join(keys)}", both=new.unionByName(before)
    )
    change.replace(table, merged.coalesce(1), days)


def _views(spark: SparkSession, lake: Lake, change: Change, days: list[str]) -> None:
    """Write what is a view of a tally: percentiles of the days that were touched, levels from the first of them on."""
    by_name = {table.name: table for table in TALLIES}
    change.staged(spark, by_name["durations"]).createOrReplaceTempView("durations")
    change.replace(LATENCY, spark.sql(sql("gold/latency")).coalesce(1), days)

    flows = by_name["flows"]
    later = [day for day in lake.days(flows) if day > days[0] and day not in days]
    earlier = [day for day in lake.days(BACKLOG) if day < days[0]]
    new = change.staged(spark, flows)
    new.unionByName(lake.read(spark, flows, lake.files(flows, later))).createOrReplaceTempView("flows")
    lake.read(spark, BACKLOG, lake.files(BACKLOG, earlier[-1:])).createOrReplaceTempView("backlog")
    change.replace(BACKLOG, spark.sql(sql("gold/backlog")).coalesce(1), [*days, *later])
