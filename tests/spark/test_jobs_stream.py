"""format("penstock") as a stream: jobs are acked when their batch is finished, and rows are put exactly once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.spark import SourceError
from penstock.spark.jobs.options import StreamOptions
from penstock.spark.jobs.stream import JobsStreamReader
from penstock.spark.versions import ReadMaxRows
from tests.server.serving import Server
from tests.short_spark import until_done

from .conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stream(spark: SparkSession, url: str, tube: str, directory: Path, work: Any = None, **options: Any) -> list[Any]:
    """Write all ready jobs to Parquet, starting where the last stream with this directory ended.

    Return the progress of all batches that have rows.
    """
    read = spark.readStream.format("penstock").option("url", url).option("tube", tube).options(**options).load()
    if work is not None:
        read = read.mapInArrow(work, read.schema)
    write = read.writeStream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    return until_done(lambda: write.format("parquet").start(str(directory / "jobs")))


def there(stats: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in stats.items() if count}


def test_every_job_is_acked_when_its_batch_is_finished_including_the_last(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(1_000)])
    batches = stream(spark, url, tube, tmp_path, maxRowsPerTrigger=300, rowsPerPartition=100)
    assert [progress.numInputRows for progress in batches] == [300, 300, 300, 100]
    assert there(mine.stats()) == {}
    assert mine.events()["acked"] == 1_000
    mine.put(b"later")
    stream(spark, url, tube, tmp_path)
    assert there(mine.stats()) == {}
    seen = [bytes(row.body) for row in spark.read.parquet(str(tmp_path / "jobs")).collect()]
    assert sorted(seen) == sorted([*(b"%d" % number for number in range(1_000)), b"later"])


def test_a_repeated_batch_of_a_stream_adds_no_duplicates(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    spark.range(50).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "rows"))
    for _ in range(2):
        read = spark.readStream.schema("value string").parquet(str(tmp_path / "rows"))
        write = read.writeStream.format("penstock").option("url", url).option("tube", tube).trigger(availableNow=True)
        query = write.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(180)
        assert mine.stats()["ready"] == 50
        # As if the driver had died between the publication and its commit file.
        (tmp_path / "checkpoint" / "commits" / "0").unlink()
        (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink()
    assert there(mine.stats()) == {"ready": 50}


def test_a_named_consumer_with_a_new_checkpoint_starts_after_its_acked_claims(url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube)
    options = StreamOptions.read({"url": url, "tube": tube, "consumer": tube})

    def batches(count: int) -> list[int]:
        """Run a query with a new checkpoint for `count` batches and one more. Return the claims of its offsets."""
        reader = JobsStreamReader(options)
        reader.prepareForTriggerAvailableNow()
        offset = reader.initialOffset()
        ends = [offset["claim"]]
        for _ in range(count + 1):
            offset = reader.latestOffset(offset, ReadMaxRows(1))
            ends.append(offset["claim"])
        reader.stop()
        return ends

    mine.put_many([b"%d" % number for number in range(3)])
    assert batches(3) == [0, 1, 2, 3, 3]
    mine.put(b"later")
    assert batches(1) == [3, 4, 4]
    assert there(mine.stats()) == {}


def test_a_query_continues_after_the_server_has_lost_its_newest_claims(url: str, queue: Any, tube: str) -> None:
    """After a crash with `fsync everysec`, the checkpoint may have a claim that the server does not have."""
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(3)])
    reader = JobsStreamReader(StreamOptions.read({"url": url, "tube": tube}))
    first = reader.initialOffset()
    lost = {**reader.latestOffset(first, ReadMaxRows(1)), "claim": 7}
    reader.stop()

    again = JobsStreamReader(StreamOptions.read({"url": url, "tube": tube}))
    assert again.partitions(first, lost)  # The lost batch is read again, as far as the server has it.
    end = again.latestOffset(lost, ReadMaxRows(10))
    rows = [row for part in again.partitions(lost, end) for batch in again.read(part) for row in batch.to_pylist()]
    assert sorted(row["body"] for row in rows) == [b"1", b"2"]
    assert again.latestOffset(end, ReadMaxRows(10)) == end  # No jobs are left.
    assert there(mine.stats()) == {}
    again.stop()

    named = JobsStreamReader(StreamOptions.read({"url": url, "tube": tube, "consumer": tube}))
    mine.put(b"x")
    with pytest.raises(
        SourceError, match=r"the server has 0 claims of consumer .*, and the checkpoint 7: the server has lost"
    ):
        named.latestOffset({"consumer": tube, "claim": 7}, ReadMaxRows(1))
    named.stop()


def test_a_reader_with_an_open_connection_can_be_pickled_for_a_task(url: str, queue: Any, tube: str) -> None:
    queue.tube(tube).put(b"x")
    reader = JobsStreamReader(StreamOptions.read({"url": url, "tube": tube}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(1))
    (part,) = reader.partitions(start, end)
    copy = pickle.loads(pickle.dumps(reader))
    assert [row["body"] for batch in copy.read(part) for row in batch.to_pylist()] == [b"x"]
    reader.stop()


def batches_of(reader: JobsStreamReader, count: int, most: int) -> list[list[bytes]]:
    """Run a stream of `count` batches and one more offset. Return the bodies of each batch."""
    offset, found = reader.initialOffset(), []
    for _ in range(count):
        end = reader.latestOffset(offset, ReadMaxRows(most))
        parts = reader.partitions(offset, end)
        found.append([row["body"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()])
        offset = end
    assert reader.latestOffset(offset, ReadMaxRows(0)) == offset
    reader.stop()
    return found


def test_a_stream_takes_the_jobs_of_several_tubes_of_several_servers(
    url: str, queue: Any, tube: str, start: Callable[..., Server]
) -> None:
    other = url_of(start())
    with penstock.connect(other) as elsewhere:
        mine = [queue.tube(f"{tube}.a"), queue.tube(f"{tube}.b"), elsewhere.tube(f"{tube}.b")]
        for each, letter in zip(mine, (b"a", b"b", b"c"), strict=True):
            each.put_many([letter] * 10)
        options = {"url": f"{url},{other}", "tube": f"{tube}.a, {tube}.b"}
        reader = JobsStreamReader(StreamOptions.read(options))
        reader.prepareForTriggerAvailableNow()
        first, *others = batches_of(reader, 4, 12)
        assert Counter(first) == {b"a": 4, b"b": 4, b"c": 4}, "the tubes have equal shares of a batch"
        assert Counter(body for batch in (first, *others) for body in batch) == {b"a": 10, b"b": 10, b"c": 10}
        assert [there(each.stats()) for each in mine] == [{}] * 3


def test_a_stream_of_several_tubes_continues_from_its_checkpoint(url: str, queue: Any, tube: str) -> None:
    """After a restart, one tube was removed from the options, and another one was added."""
    tubes = {name: queue.tube(f"{tube}.{name}") for name in "abc"}
    for each in tubes.values():
        each.put_many([b"x", b"y"])

    def stream(*names: str) -> JobsStreamReader:
        return JobsStreamReader(StreamOptions.read({"url": url, "tube": ",".join(f"{tube}.{name}" for name in names)}))

    first = stream("a", "b")
    begin = first.initialOffset()
    end = first.latestOffset(begin, ReadMaxRows(2))
    first.stop()

    second = stream("b", "c")
    again = [row for part in second.partitions(begin, end) for batch in second.read(part) for row in batch.to_pylist()]
    assert sorted(row["tube"] for row in again) == [f"{tube}.a", f"{tube}.b"]
    last = second.latestOffset(end, ReadMaxRows(10))
    rest = [row for part in second.partitions(end, last) for batch in second.read(part) for row in batch.to_pylist()]
    assert Counter(row["tube"] for row in rest) == {f"{tube}.b": 1, f"{tube}.c": 2}
    assert second.latestOffset(last, ReadMaxRows(0)) == last
    second.stop()
    assert [there(each.stats()) for each in tubes.values()] == [{"ready": 1}, {}, {}]


def test_a_named_consumer_of_several_tubes_starts_after_its_acked_claims(url: str, queue: Any, tube: str) -> None:
    for _ in range(2):
        for name in "ab":
            queue.tube(f"{tube}.{name}").put(name.encode())
        options = {"url": url, "tube": f"{tube}.a,{tube}.b", "consumer": tube}
        assert sorted(batches_of(JobsStreamReader(StreamOptions.read(options)), 1, 10)[0]) == [b"a", b"b"]
