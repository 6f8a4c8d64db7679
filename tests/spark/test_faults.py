"""If a driver or a task dies at any point, no job is lost or duplicated.

Spark writes to its checkpoint which batch it starts and which it has finished. If a directory has the name of such a
file, the query fails at exactly this point and leaves the same state as a kill. A task creates the directory.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .test_jobs import write
from .test_jobs_stream import stream, there

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession


def obstructing(obstacle: Path, during: int) -> Any:
    """Return a function that passes all rows on, and creates the directory `obstacle` in the batch `during`."""

    def work(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty("streaming.sql.batchId") == str(during):
            os.makedirs(obstacle, exist_ok=True)
        yield from batches

    return work


def test_a_query_that_dies_after_a_claim_or_after_a_write_continues(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(400)])
    claimed, wrote = tmp_path / "checkpoint" / "offsets" / "1", tmp_path / "checkpoint" / "commits" / "2"
    for obstacle, during, left in (claimed, 0, 200), (wrote, 2, 100):
        with pytest.raises(Exception, match="STREAM_FAILED"):
            stream(spark, url, tube, tmp_path, obstructing(obstacle, during), maxRowsPerTrigger=100)
        # Earlier batches are finished and acked. One batch is claimed.
        assert there(mine.stats()) == {"ready": left, "taken": 100}
        obstacle.rmdir()
    stream(spark, url, tube, tmp_path, maxRowsPerTrigger=100)
    assert there(mine.stats()) == {}
    rows = [int(row.body) for row in spark.read.parquet(str(tmp_path / "jobs")).collect()]
    assert sorted(rows) == list(range(400))


def test_a_task_that_dies_during_a_write_is_retried_without_duplicates(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    died = tmp_path / "died"

    def dies_once(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for number, batch in enumerate(batches):
            if number == 2 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        rows = spark.range(0, 4_000, 1, 2).selectExpr("cast(id as string) as value")
        write(rows.mapInPandas(dies_once, "value string"), url, tube)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert died.exists()
    assert there(mine.stats()) == {"ready": 4_000}
    assert len({job.body for job in mine.jobs("ready", 4_000)}) == 4_000


def test_jobs_of_an_expired_claim_are_claimed_again(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(20)])
    obstacle = tmp_path / "checkpoint" / "commits" / "0"
    with pytest.raises(Exception, match="STREAM_FAILED"):
        stream(spark, url, tube, tmp_path, obstructing(obstacle, 0), consumer="faults")
    obstacle.rmdir()
    # As if the query had been stopped for longer than its lease.
    token = queue.claim_info("faults").token
    assert queue.release_claims("faults", token=token) == 1
    stream(spark, url, tube, tmp_path, consumer="faults")
    assert there(mine.stats()) == {}
    rows = {int(row.body) for row in spark.read.parquet(str(tmp_path / "jobs")).collect()}
    assert rows == set(range(20))
