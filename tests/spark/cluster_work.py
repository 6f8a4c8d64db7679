"""A typical program for a Spark cluster: `python -m tests.spark.cluster_work MASTER URL DIRECTORY`.

A driver puts jobs, processes them as a stream, and reads their events. One executor is killed while it writes, and one
while it reads. The driver then starts this program again with itself as the Spark Connect server, and the program does
the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark import session
from tests.ports import free_port
from tests.short_spark import QUERIES, until_done

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

JOBS = 2_000


def main(master: str, url: str, directory: str) -> None:
    """Do the work in a driver, or over Spark Connect if `master` is a Connect URL."""
    if master.startswith("sc://"):
        work(session(master, **QUERIES), "connect", url, directory)
        return
    port = free_port()
    spark = session(
        master,
        **QUERIES,
        **{
            "spark.executor.memory": "512m",
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": port,
        },
    )
    work(spark, "driver", url, directory)
    subprocess.run([sys.executable, "-m", __spec__.name, f"sc://127.0.0.1:{port}", url, directory], check=True)
    spark.stop()


def work(spark: SparkSession, who: str, url: str, directory: str) -> None:
    """Put jobs, process them, read their events, and print the counts."""

    def dies_once(during: str) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
        """Return a function that kills the executor of its first task: the grandparent of the task's Python process."""
        marker = Path(directory, f"killed-{during}")

        def work(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            for batch in batches:
                if not marker.exists():
                    marker.touch()
                    daemon = os.getppid()
                    stat = Path(f"/proc/{daemon}/stat").read_text()
                    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
                yield batch

        return work

    there = {"url": url, "tube": who}
    rows = (
        spark.range(0, JOBS, 1, 4)
        .selectExpr("cast(id as string) as value")
        .mapInArrow(dies_once("writing"), "value string")
    )
    rows.write.format("penstock").mode("append").options(**there).save()
    stream = spark.readStream.format("penstock").options(**there).option("rowsPerPartition", 500).load()
    write = (
        stream.selectExpr("cast(body as string) as value")
        .mapInArrow(dies_once("reading"), "value string")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/{who}-checkpoint")
        .trigger(availableNow=True)
    )
    until_done(lambda: write.start(f"{directory}/{who}"))
    done = spark.read.parquet(f"{directory}/{who}")
    events = spark.read.format("penstock_events").options(**there).load().groupBy("event").count().collect()
    print(who, done.count(), done.distinct().count(), sorted((row[0], row[1]) for row in events), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
