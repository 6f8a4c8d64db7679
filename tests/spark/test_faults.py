"""A driver that dies at any point, and tasks that die: nothing is lost, and nothing comes twice.

Spark notes in its checkpoint what it is about to do and what it has done. A directory in the place of such a note lets
the query die at just that point, with everything as a kill would leave it. A task puts it there.
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
    """Work that hands all rows on, and in a batch of this number makes the obstacle."""

    def work(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty("streaming.sql.batchId") == str(during):
            os.makedirs(obstacle, exist_ok=True)
        yield from batches

    return work


def test_a_query_that_dies_after_it_claimed_and_after_it_wrote_goes_on(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(400)])
    claimed, wrote = tmp_path / "checkpoint" / "offsets" / "1", tmp_path / "checkpoint" / "commits" / "2"
    for obstacle, during, left in (claimed, 0, 200), (wrote, 2, 100):
        with pytest.raises(Exception, match="STREAM_FAILED"):
            stream(spark, url, tube, tmp_path, obstructing(obstacle, during), maxRowsPerTrigger=100)
        # What came before was finished and acked; one batch is claimed.
        assert there(mine.stats()) == {"ready": left, "taken": 100}
        obstacle.rmdir()
    stream(spark, url, tube, tmp_path, maxRowsPerTrigger=100)
    assert there(mine.stats()) == {}
    rows = [int(row.body) for row in spark.read.parquet(str(tmp_path / "jobs")).collect()]
    assert sorted(rows) == list(range(400))


def test_a_task_that_dies_in_the_middle_of_a_write_is_done_again_and_adds_nothing(
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


def test_claims_that_ended_come_back_as_other_claims(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(20)])
    obstacle = tmp_path / "checkpoint" / "commits" / "0"
    with pytest.raises(Exception, match="STREAM_FAILED"):
        stream(spark, url, tube, tmp_path, obstructing(obstacle, 0), consumer="faults")
    obstacle.rmdir()
    # As if the query had been away for longer than its lease.
    token = queue.claim_info("faults").token
    assert queue.release_claims("faults", token=token) == 1
    stream(spark, url, tube, tmp_path, consumer="faults")
    assert there(mine.stats()) == {}
    rows = {int(row.body) for row in spark.read.parquet(str(tmp_path / "jobs")).collect()}
    assert rows == set(range(20))
