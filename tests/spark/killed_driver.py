"""A driver program that a test kills: `python -m tests.spark.killed_driver DIRECTORY NAME=URL…`.

It runs all `STREAMS` at once, because starting Java takes longer than all of them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark import session
from tests.short_spark import TUNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

JOBS = 200

# Several batches, so that the driver is killed after the checkpoint has a finished one.
_JOBS_A_BATCH = JOBS // 2
_EVENTS_A_BATCH = JOBS * 2


def processed(spark: SparkSession, url: str, tube: str, directory: Path, **trigger: Any) -> StreamingQuery:
    """Start a stream that writes the jobs of a tube to Parquet."""
    read = spark.readStream.format("penstock").options(url=url, tube=tube, maxRowsPerTrigger=_JOBS_A_BATCH).load()
    return _started(read, directory, "parquet", trigger, path=str(directory / "done"))


def put(spark: SparkSession, url: str, tube: str, directory: Path, **trigger: Any) -> StreamingQuery:
    """Start a stream that puts the rows of two Parquet files into a tube."""
    read = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(directory / "rows"))
    return _started(read, directory, "penstock", trigger, url=url, tube=tube)


def judged(spark: SparkSession, url: str, tube: str, directory: Path, **trigger: Any) -> StreamingQuery:
    """Start a stream that buries every tenth job of a tube, nacks another tenth, and acks the others."""
    read = spark.readStream.format("penstock").options(url=url, tube=tube, maxRowsPerTrigger=_JOBS_A_BATCH).load()
    rows = read.selectExpr("id", "claim", "cast(cast(body as string) as int) % 10 as digit")
    verdicts = rows.selectExpr(
        "id",
        "claim",
        "case digit when 0 then 'bury' when 5 then 'nack' else 'ack' end as verdict",
        "if(digit = 5, '1h', null) as delay",
    )
    return _started(verdicts, directory, "penstock", trigger, url=url)


def told(spark: SparkSession, url: str, tube: str, directory: Path, **trigger: Any) -> StreamingQuery:
    """Start a stream that writes the events of a tube to Parquet."""
    read = spark.readStream.format("penstock_events").options(url=url, tube=tube, startingOffsets="earliest")
    read = read.option("maxRowsPerTrigger", _EVENTS_A_BATCH)
    return _started(read.load(), directory, "parquet", trigger, path=str(directory / "done"))


def _started(read: DataFrame, directory: Path, sink: str, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
    write: Any = read.writeStream.format(sink).options(checkpointLocation=str(directory / "checkpoint"), **options)
    query: StreamingQuery = (write.trigger(**trigger) if trigger else write).start()
    return query


# By name: the function that starts the stream, and the command and its occurrence whose reply is withheld.
_ALL: dict[str, tuple[Callable[..., StreamingQuery], tuple[str, ...], int]] = {
    "plan": (processed, ("CLAIM", "TAKE"), 2),
    "read": (processed, ("CLAIM", "READ"), 2),
    "ack": (processed, ("CLAIM", "ACK"), 1),
    "write": (put, ("STAGE",), 2),
    "publish": (put, ("PUBLISHONCE",), 2),
    "verdict": (judged, ("CLAIM", "VERDICT"), 2),
    "verdict planned": (judged, ("CLAIM", "TAKE"), 2),
    "verdict read": (judged, ("CLAIM", "READ"), 2),
    "verdict executed": (judged, ("CLAIM", "ACK"), 1),
    "history": (told, ("JOURNAL", "READ"), 2),
}
# The cases in which the server has executed a command without a reply. `make test-spark-versions` uses all cases.
_MOST_TELLING = ("ack", "publish", "verdict")
IS_DEEP = os.environ.get("PENSTOCK_SPARK_KILLS") == "1"
STREAMS = {name: each for name, each in _ALL.items() if IS_DEEP or name in _MOST_TELLING}


def main(directory: str, *named: str) -> None:
    """Start all streams, and wait to be killed."""
    # Two cores per stream, because tasks that wait for a withheld reply keep their core.
    spark = session(f"local[{2 * len(STREAMS)}]", **TUNED)
    for name, url in (each.split("=", 1) for each in named):
        query = STREAMS[name][0](spark, url, name, Path(directory, name))
        # One after another, because Spark has a timeout for the start of a Python process.
        while query.isActive and not query.lastProgress:
            time.sleep(0.02)
        assert query.isActive
    java: Any = spark.sparkContext._gateway
    print(f"java is {java.proc.pid}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
