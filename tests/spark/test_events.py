"""format("penstock_events"): the log as a batch and as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
