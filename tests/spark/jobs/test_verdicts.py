"""Verdicts: single jobs of a stream are nacked, buried or moved while the rest of their batch is acked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.core.errors import CommandError
from penstock.spark import SourceError
from penstock.spark.jobs.claim_names import ClaimName, parse_claim
from penstock.spark.jobs.options import StreamOptions, VerdictOptions
from penstock.spark.jobs.stream import JobsStreamReader
from penstock.spark.jobs.verdicts import TaskVerdicts, VerdictsStreamWriter, VerdictsWriter
from penstock.spark.versions import ReadMaxRows
from tests.short_spark import until_done
from tests.spark.conftest import url_of
from tests.spark.test_errors import told
from tests.spark.test_jobs_stream import there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Driver:
    """A driver of a stream without Spark: the calls that Spark makes for a batch, one by one."""

    def __init__(self, url: str, tube: str, checkpoint: list[dict[str, Any]], **options: str) -> None:
        self.reader = JobsStreamReader(StreamOptions.read({"url": url, "tube": tube, **options}))
        self.writer = VerdictsStreamWriter(VerdictOptions.read({"url": url}))
        self.checkpoint = checkpoint  # The offsets. The last one is the end of the planned batch.

    def plan(self, most: int = 100) -> None:
        if not self.checkpoint:
            self.checkpoint.append(self.reader.initialOffset())
        self.checkpoint.append(self.reader.latestOffset(self.checkpoint[-1], ReadMaxRows(most)))

    def read(self) -> list[dict[str, Any]]:
        parts = self.reader.partitions(self.checkpoint[-2], self.checkpoint[-1])
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def write(self, rows: list[dict[str, Any]]) -> TaskVerdicts:
        return self.writer.write(iter([pa.RecordBatch.from_pylist(rows)]))

    def commit(self, *messages: TaskVerdicts) -> None:
        self.writer.commit(list(messages), 0)

    def finish(self) -> None:
        """Ask for the next offset, as Spark does when a batch is finished."""
        self.reader.latestOffset(self.checkpoint[-1], ReadMaxRows(0))
        self.reader.stop()


def judged(rows: list[dict[str, Any]], verdict: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": row["id"], "claim": row["claim"], "verdict": verdict, **more} for row in rows]


def verdicts_of(stream: DataFrame) -> DataFrame:
    """Bury jobs that are not JSON, nack those without an amount, and move negative amounts to another tube."""
    parsed = stream.selectExpr(
        "id", "claim", "tube as source", "try_parse_json(cast(body as string)) as body", "since", "session"
    )
    return parsed.selectExpr(
        "id",
        "claim",
        """case when body is null then 'bury' when variant_get(body, '$.amount', 'int') is null then 'nack'
                when variant_get(body, '$.amount', 'int') < 0 then 'MOVE' end as verdict""",
        "if(body is null, 'not JSON', null) as reason",
        "if(body is null, null, '1h') as delay",
        "concat(source, '.refunds') as tube",
    )


def test_rows_that_cannot_be_parsed_are_buried_and_their_batch_continues(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine, refunds = queue.tube(tube, "fifottl"), queue.tube(f"{tube}.refunds", "fifottl")
    good = [b'{"amount": %d}' % number for number in range(20)]
    mine.put_many([*good[:10], b"{", b'{"amount": -3}', b"{}", *good[10:]])
    read = spark.readStream.format("penstock").options(url=url, tube=tube, rowsPerPartition=5).load()
    write = verdicts_of(read).writeStream.format("penstock").options(url=url).trigger(availableNow=True)
    until_done(write.option("checkpointLocation", str(tmp_path)).start)
    assert there(mine.stats()) == {"buried": 1, "delayed": 1}
    assert mine.events()["acked"] == 20
    assert [(job.body, job.meta()["reason"]) for job in mine.jobs("buried")] == [(b"{", "not JSON")]
    assert [(job.body, job.nacks) for job in mine.jobs("delayed")] == [(b"{}", 1)]
    assert [job.body for job in refunds.jobs("delayed")] == [b'{"amount": -3}']


def test_foreach_batch_gives_verdicts_without_the_column_claim(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube, "fifottl")
    mine.put_many([b"%d" % number for number in range(10)])

    def process(rows: DataFrame, number: int) -> None:
        bad = rows.where("cast(cast(body as string) as int) % 4 = 0")
        bad.selectExpr("id", "'bury' as verdict", "'divisible' as reason").write.format("penstock").mode(
            "append"
        ).options(url=url).save()

    read = spark.readStream.format("penstock").options(url=url, tube=tube, columns="id,body").load()
    write = read.writeStream.foreachBatch(process).trigger(availableNow=True)
    until_done(write.option("checkpointLocation", str(tmp_path)).start)
    assert there(mine.stats()) == {"buried": 3}
    assert sorted(job.body for job in mine.jobs("buried")) == [b"0", b"4", b"8"]


def test_a_batch_that_runs_again_has_the_verdicts_of_its_last_run_only(url: str, queue: Any, tube: str) -> None:
    """The first driver is killed between the write of its verdicts and Spark's commit of the batch."""
    mine = queue.tube(tube, "fifottl")
    mine.put_many([b"%d" % number for number in range(4)])
    checkpoint: list[dict[str, Any]] = []
    first = Driver(url, tube, checkpoint)
    first.plan()
    rows = first.read()
    first.commit(first.write(judged(rows[:2], "bury")))
    first.commit(first.write(judged(rows[:2], "bury")))  # A repeated command changes nothing.
    assert there(mine.stats()) == {"taken": 4}, "verdicts are executed when the batch is finished"

    second = Driver(url, tube, checkpoint)
    again = second.read()
    assert [row["id"] for row in again] == [row["id"] for row in rows]
    second.commit(second.write(judged(again[1:2], "nack", delay=3600)))
    with pytest.raises(SourceError, match="FENCED"):
        # The first driver only hung, and continues.
        first.commit(first.write(judged(rows[2:], "bury")))
    first.reader.stop()
    second.finish()
    assert there(mine.stats()) == {"delayed": 1}
    assert mine.events()["acked"] == 3


def test_a_driver_that_is_killed_between_commit_and_ack_executes_its_verdicts_after_a_restart(
    url: str, queue: Any, tube: str
) -> None:
    mine = queue.tube(tube, "fifottl")
    mine.put_many([b"%d" % number for number in range(3)])
    checkpoint: list[dict[str, Any]] = []
    first = Driver(url, tube, checkpoint)
    first.plan()
    rows = first.read()
    lost = first.write(judged(rows, "bury"))  # The result of a task that Spark has replaced: it is not committed.
    first.commit(first.write(judged(rows[:1], "bury")))
    first.reader.stop()

    second = Driver(url, tube, checkpoint)
    second.finish()
    assert there(mine.stats()) == {"buried": 1}
    with pytest.raises(SourceError, match="FENCED"):
        second.commit(lost)
    assert there(mine.stats()) == {"buried": 1}


def test_a_verdict_of_an_earlier_delivery_has_no_effect_on_a_later_one(url: str, queue: Any, tube: str) -> None:
    """The job was nacked and claimed again by the same consumer, while an old driver hung with its verdict."""
    mine = queue.tube(tube, "fifottl", retry="")
    mine.put(b"x")
    checkpoint: list[dict[str, Any]] = []
    first = Driver(url, tube, checkpoint)
    first.plan()
    late = first.write(judged(first.read(), "bury"))

    second = Driver(url, tube, checkpoint)
    second.commit(second.write(judged(second.read(), "nack")))
    second.plan()
    assert [row["deliveries"] for row in second.read()] == [2]
    with pytest.raises(SourceError, match=r"(CLAIMGONE|FENCED)"):
        first.commit(late)
    first.reader.stop()
    second.finish()
    assert there(mine.stats()) == {}


def test_verdicts_reach_the_server_that_has_the_claim(url: str, queue: Any, tube: str, start: Any) -> None:
    other = url_of(start())
    with penstock.connect(other) as elsewhere:
        tubes = [of.tube(tube, "fifottl") for of in (queue, elsewhere)]
        for each in tubes:
            each.put_many([b"good", b"bad"])
        driver = Driver(f"{url},{other}", tube, [])
        driver.plan()
        rows = driver.read()
        assert len(rows) == 4 and len({row["claim"] for row in rows}) == 2
        driver.commit(driver.write(judged([row for row in rows if row["body"] == b"bad"], "bury")))
        driver.finish()
        assert [there(each.stats()) for each in tubes] == [{"buried": 1}] * 2


ID = "D-00000000-000000000000000000000000-0000"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"id": ID, "verdict": "eat", "claim": "1/1/c"}, r"a verdict is one of ack, nack, bury, move, not 'eat'"),
        ({"id": None, "verdict": "bury", "claim": "1/1/c"}, r"a row has the verdict bury but no id"),
        ({"id": ID, "verdict": "move", "claim": "1/1/c"}, rf"the verdict on job {ID} is move, but its row has no tube"),
        ({"id": ID, "verdict": "bury", "claim": None}, rf"job {ID} is in no claim; verdicts are for the jobs of the"),
        ({"id": ID, "verdict": "bury", "claim": "x"}, r"'x' is not a value of the column claim of a stream"),
    ],
)
def test_wrong_verdicts_are_refused_in_one_sentence(row: dict[str, Any], sentence: str) -> None:
    writer = VerdictsWriter(VerdictOptions.read({}))
    schema = pa.schema([(name, pa.string()) for name in row])
    with pytest.raises((SourceError, CommandError), match=sentence):
        writer.write(iter([pa.RecordBatch.from_pylist([row], schema)]))


def test_a_verdict_on_a_job_that_no_claim_holds_is_refused(url: str, queue: Any, tube: str) -> None:
    id = queue.tube(tube).put(b"x").id
    writer = VerdictsWriter(VerdictOptions.read({"url": url}))
    with pytest.raises(SourceError, match=re.escape(f"job {id} is in no claim")):
        writer.write(iter([pa.RecordBatch.from_pylist([{"id": id, "verdict": "bury"}])]))


def test_wrong_columns_of_verdicts_are_refused_in_one_sentence(spark: SparkSession, url: str) -> None:
    def write(row: str, **options: str) -> str:
        rows = spark.sql(f"select {row}").write.format("penstock").mode("append").option("url", url)
        return told(rows.options(**options).save)

    assert write("'bury' as verdict") == "the rows have a verdict but no column id, which names the job"
    assert write("'i' as id, 'bury' as verdict, 'x' as body").startswith(
        "a row with a verdict has no column 'body'; its columns are id, verdict, reason, delay, tube, claim"
    )
    assert write("'i' as id, 7 as verdict") == "column 'verdict' of a verdict cannot be of type int"
    assert write("'i' as id, 'bury' as verdict", stageExpire="1h").startswith('format("penstock") has no option')


def test_the_column_claim_can_be_parsed() -> None:
    for name in (ClaimName("a/spark/0", 7, 2), ClaimName("ä", 1, 0)):
        assert parse_claim(str(name)) == name
