"""format("penstock_events"): the events of the log as a batch and as a stream."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.journal.history.reader import Reader
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.opening import open_log
from penstock.wire.headers import encode_headers
from tests.journal.recovery.old_logs import LOGS, WALL
from tests.server.serving import Server
from tests.short_spark import until_done
from tests.spark.conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_batch_has_every_event_once(spark: SparkSession, url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube, "utube", key_limit=3)
    for number in range(3):
        mine.put({"n": number}, key="k")
    mine.take().ack()
    events = spark.read.format("penstock_events").option("url", url).option("tube", tube).load()
    rows = events.orderBy("position").collect()
    assert [(row.event, row.before, row.after) for row in rows] == [
        *[("put", "gone", "ready")] * 3,
        ("taken", "ready", "taken"),
        ("acked", "taken", "gone"),
    ]
    assert [bytes(row.body) for row in rows[:3]] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert {bytes(row.key) for row in rows} == {b"k"}
    assert len({(row.node, row.position) for row in rows}) == 5


def events(spark: SparkSession, url: str, **options: Any) -> Any:
    return spark.read.format("penstock_events").option("url", url).options(**options).load()


def stream(spark: SparkSession, url: str, directory: Path, **options: Any) -> list[Any]:
    """Write all new events to Parquet, starting where the last stream with this directory ended.

    Return the progress of all batches that have rows.
    """
    read = spark.readStream.format("penstock_events").option("url", url).options(**options).load()
    write = read.writeStream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    return until_done(lambda: write.format("parquet").start(str(directory / "events")))


def test_a_stream_has_every_event_once_over_many_batches_and_restarts(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    head = queue.execute("JOURNAL", "HEAD")
    node = head[b"node"].decode()
    start = json.dumps({node: head[b"durable"] + 1})
    mine.put_many([b"x"] * 50)
    options = {"tube": tube, "startingOffsets": start, "rowsPerPartition": 20}
    first = stream(spark, url, tmp_path, maxRowsPerTrigger=40, **options)
    assert len(first) > 1
    head = queue.execute("JOURNAL", "HEAD")
    # JSON, or in Spark 4.0 and 4.1 the text of a dict.
    assert ast.literal_eval(first[-1].sources[0].endOffset) == {node: head[b"durable"] + 1}
    assert first[-1].sources[0].latestOffset is not None
    for _ in range(10):
        mine.take().ack()
    stream(spark, url, tmp_path, **options)
    seen = spark.read.parquet(str(tmp_path / "events")).select("position").collect()
    there = events(spark, url, tube=tube).select("position").collect()
    assert len(there) == 70
    assert sorted(seen) == sorted(there)
    stream(spark, url, tmp_path, **options)
    assert spark.read.parquet(str(tmp_path / "events")).count() == 70


def test_a_batch_starts_and_ends_at_the_given_offsets(spark: SparkSession, url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube)
    mine.put_many([b"x"] * 5)
    everything = events(spark, url, tube=tube).orderBy("position").collect()
    node, third, last = everything[0].node, everything[2].position, everything[4].position
    some = events(
        spark,
        url,
        startingOffsets=json.dumps({node: third}),
        endingOffsets=json.dumps({node: last}),
        includeBodies=False,
    )
    assert [row.position for row in some.collect()] == [third, third + 1]
    assert [row.body for row in some.collect()] == [None, None]
    later = mine.put(b"later")
    since = later.meta()["created"]
    told = events(spark, url, tube=tube, startingTimestamp=str(int(since * 1000))).collect()
    assert told[-1].position > last
    assert all(row.time.replace(tzinfo=UTC).timestamp() >= since for row in told)


def test_only_the_selected_columns_are_read(spark: SparkSession, url: str, queue: Any, tube: str) -> None:
    mine, other = queue.tube(tube), queue.tube(f"{tube} other")
    for number in range(3):
        mine.put(b"%d" % number)
        other.put(b"x")
    some = events(spark, url, tube=tube, columns="event, body,node")
    assert [(field.name, field.nullable) for field in some.schema] == [
        ("event", False),
        ("body", True),
        ("node", False),
    ]
    node = queue.execute("JOURNAL", "HEAD")[b"node"].decode()
    assert [tuple(row) for row in some.collect()] == [("put", b"%d" % number, node) for number in range(3)]
    assert [tuple(row) for row in events(spark, url, tube=tube, columns="body", includeBodies=False).collect()] == [
        (None,)
    ] * 3


def test_columns_that_version_1_lacks_are_null_in_its_events_and_set_in_later_ones(
    spark: SparkSession, start: Callable[..., Server], tmp_path: Path
) -> None:
    directory = shutil.copytree(LOGS / "v1", tmp_path / "upgraded")
    old = {event.position for event in Reader(RealDisk(str(directory))).events()}
    opened = open_log(RealDisk(str(directory)), lambda: WALL + 300_000, "boot")
    now = opened.engine.now
    tube = opened.engine.create_tube(b"new", FIFO, now)
    opened.engine.put(tube, Draft(b"x", headers=encode_headers([("trace", b"\xff"), ("of", b"mail")])), now)
    opened.log.commit(now, now)
    opened.log.close(now, now)
    url = url_of(start("--dir", str(directory), "--history", "9999d"))
    with penstock.connect(url) as queue:
        job = queue.tube("new").take()
        assert job is not None
        job.ack()
        read = events(spark, url)
        assert [(field.name, field.dataType.simpleString(), field.nullable) for field in read.schema[-6:]] == [
            ("since", "timestamp", True),
            ("actor", "bigint", True),
            ("tube_number", "bigint", False),
            ("headers", "map<string,binary>", True),
            ("flags", "int", False),
            ("format", "int", False),
        ]
        rows = read.orderBy("position").collect()
        put, taken, acked = (row for row in rows if row.tube == "new")
        of_old = [(row.since, row.actor, row.headers) for row in rows if row.position in old]
        assert len(of_old) > 100 and set(of_old) == {(None, None, None)}
        assert {name: bytes(value) for name, value in put.headers.items()} == {"trace": b"\xff", "of": b"mail"}
        assert (put.actor, taken.headers, acked.headers) == (None, None, None)
        assert (taken.since, acked.since) == (put.time, taken.time)
        assert taken.actor == taken.session == acked.actor == acked.session
        assert put.tube_number == taken.tube_number == acked.tube_number
        few = events(spark, url, tube="new", columns="event,since").collect()
        assert [(row.event, row.since) for row in few] == [(row.event, row.since) for row in (put, taken, acked)]
