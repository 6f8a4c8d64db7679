"""Runs Python functions on Spark's executors, and moves rows between Spark and the files of a lake.

pip's Spark cannot read or write object stores. Therefore tasks write Parquet files themselves, with the same code for a
directory and for a store, and report facts about them. The driver commits the files. If a task is repeated, the files
of its failed attempts stay without a commit, and `vacuum` deletes them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.lake.delta import DataFile
from penstock.lake.files import read_file, write_table
from penstock.lake.place import Place
from penstock.lake.tables import Table
from penstock.spark.errors import as_source_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

_RESULT = "result binary"


def run_tasks(spark: SparkSession, work: Callable[[T], R], inputs: Sequence[T]) -> list[R]:
    """Run `work` for each input in a Spark task of its own. Return the results in any order."""
    if not inputs:
        return []

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with as_source_error():
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield _result(work(inputs[number]))

    return _results(spark.range(0, len(inputs), 1, len(inputs)).mapInArrow(task, _RESULT))


def write_rows(rows: DataFrame, place: Place, table: Table, turn: int) -> list[DataFile]:
    """Write rows to new files of a table, at least one for each task and day. Return the facts about them."""
    return [file for _, file in _write(rows, lambda found: [(table, found)], place, turn)]


def write_union(rows: DataFrame, place: Place, tables: Sequence[Table], turn: int) -> dict[Table, list[DataFile]]:
    """Write rows of several tables. Each table has a struct column with its name, which is null in rows of others."""

    def split(found: pa.Table) -> list[tuple[Table, pa.Table]]:
        return [(table, some) for table in tables if len(some := _rows_of(found[table.name]))]

    files: dict[Table, list[DataFile]] = {table: [] for table in tables}
    for table, file in _write(rows, split, place, turn):
        files[table].append(file)
    return files


def _rows_of(column: pa.ChunkedArray) -> pa.Table:
    """Return the structs of a column that are not null as a table."""
    structs = column.drop_null().combine_chunks()
    return pa.Table.from_arrays(structs.flatten(), names=[each.name for each in structs.type])


def _write(
    rows: DataFrame, split: Callable[[pa.Table], list[tuple[Table, pa.Table]]], place: Place, turn: int
) -> list[tuple[Table, DataFile]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with as_source_error():
            found = list(batches)
            if found:
                for table, some in split(pa.Table.from_batches(found)):
                    for file in write_table(place, table, some, turn):
                        yield _result((table, file))

    return _results(rows.mapInArrow(task, _RESULT))


def read_files(spark: SparkSession, place: Place, table: Table, files: Iterable[DataFile]) -> DataFrame:
    """Return the rows of some files of a table.

    Spark reads local files itself. Files of an object store are read with pyarrow, because pip's Spark cannot.
    """
    found = list(files)
    if not found:
        # Not createDataFrame, which a declarative pipeline of Spark does not allow.
        return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in table.columns))
    folder = place.sub(table.path)
    if place.is_local:
        paths = [f"{folder}/{file.path}" for file in found]
        options = {"basePath": str(folder), "parquet.page.verify-checksum.enabled": "true"}
        return spark.read.schema(table.ddl).options(**options).parquet(*paths)

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with as_source_error():
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from read_file(place, table, found[number], None, table.arrow.names).to_batches()

    return spark.range(0, len(found), 1, len(found)).mapInArrow(task, table.ddl)


def _result(value: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(value)], pa.binary())], ["result"])


def _results(rows: DataFrame) -> list[Any]:
    return [pickle.loads(row["result"]) for row in rows.collect()]
