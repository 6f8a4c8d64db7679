"""How Spark is set for the pipeline: what its files look like, and how much machinery a query gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# So many rows are a task of a shuffle: sorted in memory, and half a second of work.
_ROWS_A_TASK: Final = 250_000

# For fewer rows, compiling a query takes longer than running it does.
_ROWS_TO_COMPILE: Final = 200_000


def prepared(spark: SparkSession) -> SparkSession:
    """A session that writes what the lake has: days are days of UTC, and moments are such that everybody can read."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return spark


@contextmanager
def sized(spark: SparkSession, rows: int) -> Iterator[None]:
    """Queries over about so many rows: as many tasks as they need. Spark would find out by itself, but job by job."""
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
