"""SQL views of a lake's tables, with merged rows: events, jobs, tubes, sessions, gold, and tables of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lake.lake import Lake
from penstock.lake.tables import EVENTS, GOLD, JOBS, SESSIONS, TUBES, Table
from penstock.pipeline.queries import sql
from penstock.pipeline.tasks import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def create_views(spark: SparkSession, lake: Lake) -> None:
    """Create a temporary view for each table, with the table's name. All views show the same turn."""
    lake.require_exists().pin()
    for table in (EVENTS, TUBES, SESSIONS, JOBS, *GOLD, *lake.user_tables()):
        merged_rows(spark, table, read_files(spark, lake.place, table, lake.files(table))).createOrReplaceTempView(
            table.name
        )


def merged_rows(spark: SparkSession, table: Table, rows: DataFrame) -> DataFrame:
    """Merge the rows of a table that have equal keys. Tables without keys stay as they are."""
    if table is JOBS:
        return spark.sql(sql("silver/merge"), parts=rows)
    if not table.keys:
        return rows
    measures = [f"{'max' if name.endswith('_max') else 'sum'}(`{name}`) AS `{name}`" for name in table.measures]
    keys = ", ".join(f"`{name}`" for name in table.keys)
    return spark.sql(f"SELECT {keys}, {', '.join(measures)} FROM {{parts}} GROUP BY {keys}", parts=rows)
