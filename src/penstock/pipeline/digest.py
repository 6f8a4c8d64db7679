"""Turns of the pipeline. A turn adds new events of bronze to silver and gold in one commit.

A turn reads the new events, the unfinished jobs, and the affected days of gold, but never the whole history. The cost
of a turn is proportional to the new events and the unfinished jobs.

Spark processes events and jobs. Its results are small, for example one row for each tube and minute. This process adds
them to the existing rows with Arrow, because planning a Spark query would take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake import NO_DAY, Lake, LakeCommit, day_of
from penstock.pipeline.queries import sql
from penstock.pipeline.sizing import configure, sized_for
from penstock.pipeline.tables import BACKLOG, DURATIONS, EVENTS, FLOWS, JOBS, LATENCY, TALLIES, VIEWS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Events per commit, but at least one day. Large commits are faster; a commit temporarily needs about as much disk space
# as its events.
ROWS_A_TURN: Final = 20_000_000

RowsProgress = Callable[[int, int], None]


def digest(spark: SparkSession, lake: Lake, on_progress: RowsProgress = lambda done, total: None) -> int:
    """Add all new events of bronze to silver and gold. Return the number of events."""
    spark = configure(spark)
    done, total = 0, lake.rows(EVENTS, lake.manifest.fresh)
    while lake.manifest.fresh:
        on_progress(done, total)
        names = _portion(lake)
        rows = lake.rows(EVENTS, names)
        _turn(spark, lake, names)
        done += rows
    on_progress(done, total)
    return done


def _portion(lake: Lake) -> list[str]:
    """Return the new files of the oldest day, and of the next days up to ROWS_A_TURN events in all.

    The new files of a day stay together, because their order is not the order of their events.
    """
    found: list[str] = []
    for day in sorted({day_of(name) for name in lake.manifest.fresh}):
        of_day = [name for name in lake.manifest.fresh if day_of(name) == day]
        if found and lake.rows(EVENTS, found + of_day) > ROWS_A_TURN:
            break
        found += of_day
    return found


def _turn(spark: SparkSession, lake: Lake, names: list[str]) -> None:
    with sized_for(spark, lake.rows(EVENTS, names) + lake.rows(JOBS, lake.files(JOBS, [NO_DAY]))):
        _commit_turn(spark, lake, names)


def _commit_turn(spark: SparkSession, lake: Lake, names: list[str]) -> None:
    change = lake.change()
    lake.read(spark, EVENTS, names).createOrReplaceTempView("fresh")
    waiting = lake.files(JOBS, [NO_DAY])
    lake.read(spark, JOBS, waiting).createOrReplaceTempView("jobs")
    # Cached, because nine queries read it. It is partitioned by node and job, so silver/jobs needs no shuffle.
    grain, inferred = lake.manifest.grain, lake.has_nulls(EVENTS, "since", names)
    steps = spark.sql(sql("silver/steps"), {"grain": grain, "inferred": inferred}).persist()
    try:
        steps.createOrReplaceTempView("steps")
        change.add(JOBS, spark.sql(sql("silver/jobs")))
        change.remove(JOBS, waiting)
        days = sorted({day_of(name) for name in names})
        new = _answers(spark, change.scratch / "tallies", TALLIES)
        sums = {table: _sum(table, [new[table], *lake.arrow(table, days)]) for table in TALLIES}
        for table, rows in sums.items():
            change.replace(table, rows, days)
        _write_views(spark, lake, change, days, sums)
        change.commit(fresh=[name for name in lake.manifest.fresh if name not in set(names)])
    finally:
        steps.unpersist()


def _write_views(spark: SparkSession, lake: Lake, change: LakeCommit, days: list[str], sums: dict[Table, Any]) -> None:
    """Write `latency` for `days`. Write `backlog` for `days` and all later days, because it is a running total."""
    later = [day for day in lake.days(FLOWS) if day > days[0] and day not in days]
    before = [day for day in lake.days(BACKLOG) if day < days[0]][-1:]
    for name, rows in (
        ("durations", sums[DURATIONS]),
        ("flows", pa.concat_tables([sums[FLOWS], *lake.arrow(FLOWS, later)])),
        ("backlog", pa.concat_tables([BACKLOG.arrow.empty_table(), *lake.arrow(BACKLOG, before)])),
    ):
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    with sized_for(spark, sums[DURATIONS].num_rows):
        seen = _answers(spark, change.scratch / "views", VIEWS)
    change.replace(LATENCY, seen[LATENCY], days)
    change.replace(BACKLOG, seen[BACKLOG], [*days, *later])


def _answers(spark: SparkSession, folder: Path, tables: Sequence[Table]) -> dict[Table, Any]:
    """Run the queries of several gold tables as one Spark query, which is their union. Return the result of each."""

    def wide(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    queries = [spark.sql(sql(f"gold/{table.name}")).selectExpr("*", f"'{table.name}' AS `table`") for table in tables]
    reduce(wide, queries).coalesce(1).write.partitionBy("table").parquet(str(folder))
    return {table: _answer(folder / f"table={table.name}", table) for table in tables}


def _answer(folder: Path, table: Table) -> Any:
    found = [pq.read_table(path, columns=table.arrow.names) for path in folder.glob("*.parquet")]
    return pa.concat_tables([each.cast(table.arrow) for each in found] or [table.arrow.empty_table()])


def _sum(table: Table, parts: list[Any]) -> Any:
    """Merge rows with equal keys: add the measures, or keep the maximum if the name ends in _max."""
    how = [(name, "max" if name.endswith("_max") else "sum") for name in table.measures]
    summed = pa.concat_tables(parts).group_by(list(table.keys)).aggregate(how)
    columns = {key: summed[key] for key in table.keys} | {name: summed[f"{name}_{kind}"] for name, kind in how}
    return pa.table({name: columns[name] for name in table.arrow.names}, schema=table.arrow)
