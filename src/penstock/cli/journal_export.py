"""The formats of `penstock journal export`: JSON lines and Parquet."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from penstock.cli.errors import printable_json
from penstock.journal.disk import ReadableDisk
from penstock.journal.history.reader import Reader, to_json_line

Progress = Callable[[int, int], None]


def write_json_lines(disk: ReadableDisk, output: BinaryIO, start: int, bodies: bool, progress: Progress) -> None:
    reader = Reader(disk)
    first, last = reader.positions()
    for event in reader.events(start):
        output.write(f"{printable_json(to_json_line(event, bodies))}\n".encode("utf-8", "backslashreplace"))
        if event.position % 1_000 == 0:
            progress(event.position - first, last - first)


def write_parquet(disk: ReadableDisk, output: BinaryIO, start: int, bodies: bool, progress: Progress) -> None:
    """Write the events of jobs as Parquet, in the schema of the Spark source and the lake."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from penstock.journal.history.columns import batches
    from penstock.journal.identity import identity
    from penstock.spark.events.columns import spark_batch
    from penstock.spark.events.schema import arrow_schema

    node = identity(disk).node
    first, last = Reader(disk).positions()
    schema = arrow_schema()
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for found in batches(disk):
            batch = spark_batch(found if bodies else found.drop_columns(["body"]), node, schema)
            batch = batch.filter(pc.greater_equal(batch.column("position"), start))
            if batch.num_rows:
                writer.write_batch(batch)
                progress(batch.column("position")[-1].as_py() - first, last - first)
