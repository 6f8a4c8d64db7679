"""Settings of Spark for the pipeline: the format of its files, and the number of tasks per query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows per shuffle task. They can be sorted in memory, and are half a second of work.
_ROWS_A_TASK: Final = 250_000

# With fewer rows, compiling a query takes longer than running it.
_ROWS_TO_COMPILE: Final = 200_000


def configure(spark: SparkSession) -> SparkSession:
    """Configure a session for writing a lake: days in UTC, and timestamps that all Parquet readers support."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return spark


@contextmanager
def sized_for(spark: SparkSession, rows: int) -> Iterator[None]:
    """Configure Spark for queries over about `rows` rows during the block.

    This replaces Spark's adaptive execution, which also chooses the number of tasks, but runs every shuffle as a
    separate Spark job.
    """
    settings = {
        "spark.sql.shuffle.partitions": str(1 + rows // _ROWS_A_TASK),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": str(rows >= _ROWS_TO_COMPILE).lower(),
    }
    before = {name: spark.conf.get(name) or "" for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
