"""A turn of the pipeline: what is new in bronze becomes part of silver and gold, in one commit.

It reads the new events and the jobs that were still there, and of gold the days it touches: never the whole history. So
what a turn costs grows with what is new and with the jobs that wait, and all turns together with the history.

Spark does what grows with events and jobs. What is left of a day then, a row for each tube and minute or key, is added
to what there was by Arrow, here: a query of Spark takes longer to plan than that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake import NO_DAY, Change, Lake, day_of
from penstock.pipeline.queries import sql
from penstock.pipeline.sizing import prepared, sized
from penstock.pipeline.tables import BACKLOG, DURATIONS, EVENTS, FLOWS, JOBS, LATENCY, TALLIES, VIEWS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# So many events are digested in one commit, a day at least: enough to be quick, little enough for the disk it needs
# meanwhile, which is about that of the events again.
ROWS_A_TURN: Final = 20_000_000

Told = Callable[[int, int], None]


def digest(spark: SparkSession, lake: Lake, told: Told = lambda done, total: None) -> int:
    """Bring silver and gold up to bronze, and tell how many events were new."""
    spark = prepared(spark)
    done, total = 0, lake.rows(EVENTS, lake.manifest.fresh)
    while lake.manifest.fresh:
        told(done, total)
        names = _portion(lake)
        rows = lake.rows(EVENTS, names)
        _turn(spark, lake, names)
        done += rows
    told(done, total)
    return done


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
    with sized(spark, lake.rows(EVENTS, names) + lake.rows(JOBS, lake.files(JOBS, [NO_DAY]))):
        _commit_turn(spark, lake, names)


def _commit_turn(spark: SparkSession, lake: Lake, names: list[str]) -> None:
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
        new = _answers(spark, change.scratch / "tallies", TALLIES)
        sums = {table: _sum(table, [new[table], *lake.arrow(table, days)]) for table in TALLIES}
        for table, rows in sums.items():
            change.replace(table, rows, days)
        _write_views(spark, lake, change, days, sums)
        change.commit(fresh=[name for name in lake.manifest.fresh if name not in set(names)])
    finally:
        steps.unpersist()


def _write_views(spark: SparkSession, lake: Lake, change: Change, days: list[str], sums: dict[Table, Any]) -> None:
    """What is seen of tallies: percentiles of the days that were touched, levels from the first of them on."""
    later = [day for day in lake.days(FLOWS) if day > days[0] and day not in days]
    before = [day for day in lake.days(BACKLOG) if day < days[0]][-1:]
    for name, rows in (
        ("durations", sums[DURATIONS]),
        ("flows", pa.concat_tables([sums[FLOWS], *lake.arrow(FLOWS, later)])),
        ("backlog", pa.concat_tables([BACKLOG.arrow.empty_table(), *lake.arrow(BACKLOG, before)])),
    ):
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    with sized(spark, sums[DURATIONS].num_rows):
        seen = _answers(spark, change.scratch / "views", VIEWS)
    change.replace(LATENCY, seen[LATENCY], days)
    change.replace(BACKLOG, seen[BACKLOG], [*days, *later])


def _answers(spark: SparkSession, folder: Path, tables: Sequence[Table]) -> dict[Table, Any]:
    """The answers to several queries of gold, by one job of Spark: side by side in one wide table, each its columns."""

    def wide(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    queries = [spark.sql(sql(f"gold/{table.name}")).selectExpr("*", f"'{table.name}' AS `table`") for table in tables]
    reduce(wide, queries).coalesce(1).write.partitionBy("table").parquet(str(folder))
    return {table: _answer(folder / f"table={table.name}", table) for table in tables}


def _answer(folder: Path, table: Table) -> Any:
    found = [pq.read_table(path, columns=table.arrow.names) for path in folder.glob("*.parquet")]
    return pa.concat_tables([each.cast(table.arrow) for each in found] or [table.arrow.empty_table()])


def _sum(table: Table, parts: list[Any]) -> Any:
    """Rows of one key become one."""
    how = [(name, "max" if name.endswith("_max") else "sum") for name in table.measures]
    summed = pa.concat_tables(parts).group_by(list(table.keys)).aggregate(how)
    columns = {key: summed[key] for key in table.keys} | {name: summed[f"{name}_{kind}"] for name, kind in how}
    return pa.table({name: columns[name] for name in table.arrow.names}, schema=table.arrow)
