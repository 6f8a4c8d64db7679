"""What a user does on a cluster, as a program of its own: `python -m tests.spark.cluster_work MASTER URL DIRECTORY`.

It puts jobs, processes them as a stream, and reads what happened. In between one of the executors is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark import session
from tests.spark.conftest import QUERIES

if TYPE_CHECKING:
    from pyarrow import RecordBatch

JOBS = 2_000

# Of the cluster, for whoever starts the driver.
EXECUTORS = {"spark.executor.memory": "512m"}


def main(master: str, url: str, directory: str) -> None:
    """Do it, and say what came of it."""
    spark = session(master, **QUERIES, **({} if master.startswith("sc://") else EXECUTORS))
    marker = Path(directory, "killed")

    def dies_once(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """The first task that comes here takes its executor along: the parent of the parent of its Python."""
        if not marker.exists():
            marker.touch()
            daemon = os.getppid()
            stat = Path(f"/proc/{daemon}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        yield from batches

    there = {"url": url, "tube": "work"}
    rows = spark.range(0, JOBS, 1, 4).selectExpr("cast(id as string) as value").mapInArrow(dies_once, "value string")
    rows.write.format("penstock").mode("append").options(**there).save()
    stream = spark.readStream.format("penstock").options(**there).option("rowsPerPartition", 500).load()
    query = (
        stream.selectExpr("cast(body as string) as value")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/done")
    )
    query.awaitTermination(120)
    done = spark.read.parquet(f"{directory}/done")
    events = spark.read.format("penstock_events").options(**there).load().groupBy("event").count().collect()
    print("done", done.count(), done.distinct().count(), sorted((row[0], row[1]) for row in events))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
