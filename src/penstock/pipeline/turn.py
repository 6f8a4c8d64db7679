"""Turns of the pipeline: add the new events of bronze to silver and gold.

A turn reads only the files that bronze has received since the last one. It adds files to the tables and never reads
their older rows, so its cost depends only on the new events. Gold is committed first and silver last. After a crash,
the turn runs again for the tables that lack it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.delta import DataFile
from penstock.lake.forgotten import first_kept_day
from penstock.lake.lake import DIGEST, TURN, Lake
from penstock.lake.tables import DERIVED, EVENTS, FLOWS, GOLD, JOBS, TURNS, Table
from penstock.pipeline.coverage import parts_without_gaps
from penstock.pipeline.gaps import closing_rows, follows_a_gap
from penstock.pipeline.queries import sql
from penstock.pipeline.sizing import configure, sized_for
from penstock.pipeline.steps import after_step
from penstock.pipeline.tasks import read_files, write_rows, write_union
from penstock.pipeline.user_tables import UserTable, prepare_tables, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("penstock.pipeline")

# Events that are processed together. More turns are faster together, but their shuffles need more disk space.
EVENTS_TOGETHER: Final = 20_000_000

# Fewer events are processed by a single Spark task.
EVENTS_A_TASK: Final = 100_000

# Parts of the nodes' histories without gaps: positions from `low` up to `high`, of which `begin` is the first one read.
_PARTS: Final = "node string, low bigint, high bigint, begin bigint"

RowsProgress = Callable[[int, int], None]


def update_derived(
    spark: SparkSession,
    lake: Lake,
    on_progress: RowsProgress = lambda done, total: None,
    users: Sequence[UserTable] = (),
) -> int:
    """Add all new events of bronze to silver, gold and the tables of users. Return the number of events."""
    configure(spark)
    done = 0
    waiting = _waiting(lake, users)
    total = sum(file.rows for file in waiting)
    while waiting:
        on_progress(done, total)
        behind = _behind(lake, waiting, users)
        some = _portion(behind or waiting, lambda file: file.turn)
        turn = max(file.turn for file in some)
        _add(spark, lake, some, turn, users)
        if not behind:
            _close(lake, turn)
        done += sum(file.rows for file in some)
        waiting = _waiting(lake, users)
    if lake.turn > lake.log(TURNS).counter(TURN):
        _close(lake, lake.turn)
    on_progress(done, total)
    return done


def prepare(spark: SparkSession, lake: Lake, users: Sequence[UserTable]) -> None:
    """Check the tables of users, and create those that the lake lacks. Call this before a turn."""
    configure(spark)
    known = {each.table.path for each in users}
    for table in lake.user_tables():
        if table.path not in known:
            log.warning("table is not updated: table=%s; name its folder with --tables", table.name)
    if users:
        _show(spark, lake, [], True)
        spark.sql(sql("gold/summary")).createOrReplaceTempView("summary")
        prepare_tables(spark, lake, users)


def derived_with(users: Sequence[UserTable]) -> tuple[Table, ...]:
    """Return all derived tables. Those of users are committed first, so that silver is still the last one."""
    return (*(each.table for each in users), *DERIVED)


def _waiting(lake: Lake, users: Sequence[UserTable]) -> list[DataFile]:
    """Return the files of bronze that a derived table lacks, in order of their turns."""
    reached = min(lake.digested(table) for table in derived_with(users))
    return sorted((file for file in lake.files(EVENTS) if file.turn > reached), key=lambda file: file.turn)


def _behind(lake: Lake, waiting: list[DataFile], users: Sequence[UserTable]) -> list[DataFile]:
    """Return the files of turns that some tables have and others lack, after a crash.

    They are added first and alone, because no table may get the files of a turn that it already has.
    """
    reached = sorted({lake.digested(table) for table in derived_with(users)})
    return [file for file in waiting if len(reached) > 1 and file.turn <= reached[1]]


def _close(lake: Lake, turn: int) -> None:
    after_step("before _turns")
    lake.close_turn(turn)
    after_step("after _turns")


def rebuild(
    spark: SparkSession,
    lake: Lake,
    days: Collection[str],
    on_progress: RowsProgress = lambda done, total: None,
    users: Sequence[UserTable] = (),
) -> None:
    """Compute some days of silver, gold and the tables of users again from bronze, a few days per commit."""
    configure(spark)
    files = [file for file in lake.files(EVENTS, days) if file.turn <= lake.turn]
    done, total = 0, sum(file.rows for file in files)
    # Days that bronze no longer has are only removed. Before the first day that `forget` has kept, gold has the levels
    # at the beginning of that day, which cannot be computed again.
    gone = {day for day in set(days) - {file.day for file in files} if day >= first_kept_day(lake)}
    _commit(lake, lake.turn, {table: [] for table in derived_with(users) if lake.files(table, gone)}, gone, users)
    while files:
        on_progress(done, total)
        some = _portion(files, lambda file: file.day)
        _add(spark, lake, some, lake.turn, users, {file.day for file in some})
        done += sum(file.rows for file in some)
        files = [file for file in files if file not in some]
    # The levels before a gap may have changed, also if the rows after it are not computed again.
    closing = closing_rows(lake, [], lake.turn)
    if closing:
        lake.log(FLOWS).commit(closing, (), {DIGEST: lake.digested(FLOWS)})
    lake.close_turn()
    on_progress(done, total)


def _portion(files: list[DataFile], part: Callable[[DataFile], Any]) -> list[DataFile]:
    """Return the files of the first part (a turn or a day), and of the next parts up to EVENTS_TOGETHER events."""
    found: list[DataFile] = []
    for each in sorted({part(file) for file in files}):
        of_part = [file for file in files if part(file) == each]
        if found and sum(file.rows for file in found + of_part) > EVENTS_TOGETHER:
            break
        found += of_part
    return found


def _add(
    spark: SparkSession,
    lake: Lake,
    files: list[DataFile],
    turn: int,
    users: Sequence[UserTable],
    replaced: Collection[str] = (),
) -> None:
    """Add the events of files to the derived tables. The days in `replaced` are replaced."""
    own = derived_with(users)[: -len(DERIVED)]
    rows = sum(file.rows for file in files)
    with sized_for(spark, rows):
        _show(spark, lake, files, rows < EVENTS_A_TASK)
        # Each Spark job costs about a second, so a small turn computes all tables in one.
        for group in [(*own, *DERIVED)] if rows < EVENTS_A_TASK else [(*own, *GOLD), (JOBS,)]:
            tables = [each for each in group if replaced or lake.digested(each) < turn]
            results = _results(spark, lake, tables, turn, users)
            if FLOWS in results and not replaced and follows_a_gap(lake, files):
                results[FLOWS] += closing_rows(lake, results[FLOWS], turn)
            _commit(lake, turn, results, replaced, users)


def _show(spark: SparkSession, lake: Lake, files: list[DataFile], in_one_task: bool) -> None:
    """Create the views that the queries read. In one task, no query needs a shuffle."""
    fresh = read_files(spark, lake.place, EVENTS, files)
    (fresh.coalesce(1) if in_one_task else fresh).createOrReplaceTempView("fresh")
    parts = spark.createDataFrame(parts_without_gaps(lake, files), _PARTS)
    parts.createOrReplaceTempView("parts_without_gaps")
    spark.sql(sql("silver/steps"), {"grain": lake.grain}).createOrReplaceTempView("steps")


def _results(
    spark: SparkSession, lake: Lake, tables: Sequence[Table], turn: int, users: Sequence[UserTable]
) -> dict[Table, list[DataFile]]:
    """Compute the new rows of tables and write them to files."""
    if not tables:
        return {}
    if list(tables) == [JOBS]:
        return {JOBS: write_rows(spark.sql(sql(JOBS.path)), lake.place, JOBS, turn)}
    # One task is enough for a summary, and then the queries that read it need no shuffle.
    summary = spark.sql(sql("gold/summary")).coalesce(1).persist()
    try:
        summary.createOrReplaceTempView("summary")
        return write_union(_union(spark, tables, users), lake.place, tables, turn)
    finally:
        summary.unpersist()


def _union(spark: SparkSession, tables: Sequence[Table], users: Sequence[UserTable]) -> DataFrame:
    """Return the new rows of several tables as one query, so that Spark plans and runs them together."""

    def wide(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other, allowMissingColumns=True)

    own = {each.table: each for each in users}
    found = [rows_of(spark, own[each]) if each in own else spark.sql(sql(each.path)) for each in tables]
    # Columns of different tables may have the same name and another type, so each table is a column of structs.
    queries = [rows.selectExpr(f"struct(*) AS `{each.name}`") for rows, each in zip(found, tables)]
    return reduce(wide, queries).coalesce(1)


def _commit(
    lake: Lake,
    turn: int,
    written: dict[Table, list[DataFile]],
    replaced: Collection[str],
    users: Sequence[UserTable],
) -> None:
    """Commit the tables that change. After a crash, also record the turn in tables that get no rows."""
    uneven = len({lake.digested(table) for table in derived_with(users)}) > 1
    for table, files in written.items():
        old = lake.files(table, replaced)
        if files or old or uneven:
            after_step(f"before {table.path}")
            lake.log(table).commit(files, old, {DIGEST: max(turn, lake.digested(table))})
            after_step(f"after {table.path}")
