"""The options of `penstock_events`: names, aliases, contradictions, and the limits of a stream's batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.errors import CommandError, OutOfRange, WrongServer
from penstock.core.limits import NEVER
from penstock.spark.events.admission import Admission, limit_bytes, limit_rows
from penstock.spark.events.options import OPTIONS, EventsOptions
from penstock.spark.events.places import Times
from penstock.spark.events.ranges import NodeLogs, time_at
from penstock.spark.events.stream import EventsStreamReader
from penstock.spark.node import Node
from tests.server.serving import Server
from tests.spark.conftest import url_of


def batch(**given: str) -> EventsOptions:
    return EventsOptions.read(given, streaming=False)


def stream(**given: str) -> EventsOptions:
    return EventsOptions.read(given, streaming=True)


def test_the_names_of_kafka_are_aliases() -> None:
    kafka = stream(
        subscribe="a, b",
        startingOffsets='{"n": -2, "m": -1, "o": 7}',
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="1m",
        failOnDataLoss="false",
        includeHeaders="false",
        maxRecordsPerPartition="5",
        minPartitions="4",
    )
    assert kafka.tubes == ("a", "b")
    assert kafka.start == {"n": "earliest", "m": "latest", "o": 7}
    assert (kafka.rows_per_trigger, kafka.rows_per_trigger_min, kafka.trigger_delay_ms) == (100, 10, 60_000)
    assert (kafka.fails_on_loss, kafka.headers, kafka.rows_per_partition, kafka.partitions_min) == (False, False, 5, 4)
    assert stream(subscribePattern="a.*").tube_pattern == stream(tubePattern="a.*").tube_pattern == "a.*"
    assert stream(SUBSCRIBE="a").tubes == stream(tube="a").tubes
    times = batch(
        startingOffsetsByTimestamp='{"n": 1000, "m": "1970-01-01T00:00:02Z"}', endingOffsetsByTimestamp="5000"
    )
    assert (times.start, times.end) == (Times(None, {"n": 1000, "m": 2000}), Times(5000, {}))
    assert stream(maxBytesPerTrigger="64m").bytes_per_trigger == 64 << 20
    assert stream(maxBytesPerTrigger="1000").bytes_per_trigger == 1000


def test_every_option_of_the_table_is_accepted_by_a_batch_or_a_stream() -> None:
    values = {
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "startingTimestamp": "0",
        "endingTimestamp": "1",
        "startingOffsetsByTimestampStrategy": "error",
        "maxTriggerDelay": "1s",
        "event": "put",
        "columns": "time",
        **dict.fromkeys(("failOnDataLoss", "includeBodies", "includeHeaders"), "true"),
        **dict.fromkeys(("url", "tube", "tubePattern"), "penstock://a"),
    }
    needed = {"maxTriggerDelay": "minRowsPerTrigger", "startingOffsetsByTimestampStrategy": "startingTimestamp"}
    for option in OPTIONS:
        for name in (option.name, *option.aliases):
            others = {needed[name]: "1"} if name in needed else {}
            given = {name: values.get(option.name, "1"), **others}
            assert EventsOptions.read(given, streaming=option.of == "stream")


@pytest.mark.parametrize(
    ("given", "streaming", "sentence"),
    [
        ({"tube": "a", "subscribe": "b"}, False, "subscribe and tube are names of one option; give one of them"),
        ({"tube": "a", "subscribePattern": "b"}, False, "give tube or tubePattern, not both"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, False, "give startingOffsets or startingTimestamp"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, False, "give endingOffsets or endingTimestamp, not both"),
        ({"startingTimestamp": "7", "endingTimestamp": "5"}, False, "the batch ends before its start"),
        ({"startingOffsets": '{"n": 7}', "endingOffsets": '{"n": 5}'}, False, "the batch ends before its start"),
        ({"endingTimestamp": "5"}, True, "a stream has no endingTimestamp; read a batch"),
        ({"minRowsPerTrigger": "5"}, False, "a batch has no minRowsPerTrigger"),
        ({"maxBytesPerTrigger": "5"}, False, "a batch has no maxBytesPerTrigger"),
        ({"maxTriggerDelay": "5s"}, True, "maxTriggerDelay has no effect without minRowsPerTrigger"),
        ({"minRowsPerTrigger": "5", "maxRowsPerTrigger": "4"}, True, "minRowsPerTrigger must not be greater"),
        ({"startingOffsetsByTimestampStrategy": "error"}, True, "has no effect without startingTimestamp"),
        (
            {"startingOffsetsByTimestampStrategy": "x", "startingTimestamp": "1"},
            True,
            "startingOffsetsByTimestampStrategy must be latest or error, not 'x'",
        ),
        ({"maxBytesPerTrigger": "much"}, True, "maxBytesPerTrigger must be a number of bytes like 1000000 or 64m"),
        ({"tubePattern": "("}, True, "tubePattern is not a regular expression"),
        ({"event": "ackd"}, True, "there is no event 'ackd'; the events are put, "),
        ({"startingOffsets": '{"n": -3}'}, True, "positions of a log start at 1; -2 is the earliest, -1 the latest"),
        ({"endingOffsets": '{"n": -2}'}, False, "endingOffsets must be latest or positions by node, not earliest"),
        ({"startingTimestamp": '{"n": "soon"}'}, True, "startingTimestamp must be a time like"),
        ({"subscribed": "a"}, True, "has no option 'subscribed'; did you mean subscribe"),
    ],
)
def test_options_that_contradict_each_other_or_have_no_meaning_are_refused(
    given: dict[str, str], streaming: bool, sentence: str
) -> None:
    with pytest.raises(CommandError) as refused:
        EventsOptions.read(given, streaming)
    assert sentence in str(refused.value)


def test_a_batch_waits_for_enough_rows_or_for_its_delay() -> None:
    now = [0.0]
    waiting = Admission(stream(minRowsPerTrigger="10", maxTriggerDelay="5s"), lambda: now[0])
    assert waiting.default_rows() is not None
    assert not waiting.is_due({"n": 1, "m": 1}, {"n": 5, "m": 5})
    assert waiting.is_due({"n": 1, "m": 1}, {"n": 6, "m": 6})
    now[0] = 4.9
    assert not waiting.is_due({"n": 6}, {"n": 7})
    now[0] = 5.0
    assert waiting.is_due({"n": 6}, {"n": 7})
    assert not waiting.is_due({"n": 7}, {"n": 8})
    forever = Admission(stream(minRowsPerTrigger="10", maxTriggerDelay="forever"), lambda: now[0])
    now[0] = 1e9
    assert forever.is_due({"n": 7}, {"n": 17}) and not forever.is_due({"n": 7}, {"n": 16})
    assert stream(minRowsPerTrigger="1", maxTriggerDelay="forever").trigger_delay_ms == NEVER
    assert Admission(stream()).default_rows() is None


def test_rows_and_bytes_of_a_batch_are_limited() -> None:
    assert limit_rows({"n": 1, "m": 1}, {"n": 101, "m": 301}, 100) == {"n": 26, "m": 76}
    assert limit_rows({"n": 1}, {"n": 101, "new": 5}, None) == {"n": 101}

    def size(name: str, start: int, end: int) -> int:
        """Rows of 10 bytes, and one row of a thousand at position 50 of node m."""
        return 10 * (end - start) + (1_000 if name == "m" and start <= 50 < end else 0)

    assert limit_bytes({"n": 1}, {"n": 101}, 1_000, size) == {"n": 101}
    assert limit_bytes({"n": 1}, {"n": 101}, 500, size) == {"n": 51}
    assert limit_bytes({"n": 1}, {"n": 101}, 3, size) == {"n": 2}  # Every batch has a row.
    ends = limit_bytes({"n": 1, "m": 1, "idle": 7}, {"n": 101, "m": 101, "idle": 7}, 1_000, size)
    assert ends["idle"] == 7 and ends["n"] > 1 and ends["m"] > 1
    assert sum(size(name, 1, ends[name]) for name in ("n", "m")) <= 1_000


def test_the_bytes_of_a_part_of_a_log_are_those_of_its_files(url: str, queue: Any, tube: str) -> None:
    made = queue.tube(tube)
    for _ in range(20):
        made.put_many([b"x" * 1_000] * 10)
    logs = NodeLogs(batch(url=url))
    try:
        [(name, head)] = logs.heads().items()
        whole = logs.bytes_between(name, head.end - 100, head.end)
        assert 100 * 1_000 < whole < 100 * 1_500
        halves = [logs.bytes_between(name, head.end - 100 + at, head.end - 50 + at) for at in (0, 50)]
        assert abs(sum(halves) - whole) < 100
        assert logs.bytes_between(name, head.end, head.end) == 0
        reader = EventsStreamReader(stream(url=url, maxBytesPerTrigger="40000"))
        start = {name: head.end - 100}
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert 20 < end[name] - start[name] < 40
        reader.stop()
    finally:
        logs.close()


def test_a_stream_without_enough_rows_has_no_batch_unless_it_must_end(url: str, queue: Any, tube: str) -> None:
    queue.tube(tube).put_many([b"x"] * 5)
    waiting = EventsStreamReader(stream(url=url, minRowsPerTrigger="1000000", startingOffsets="earliest"))
    start = waiting.initialOffset()
    limit = waiting.getDefaultReadLimit()
    assert waiting.latestOffset(start, limit) == start
    waiting.prepareForTriggerAvailableNow()
    [(name, end)] = waiting.latestOffset(start, limit).items()
    assert end >= start[name] + 5
    waiting.stop()


def test_each_node_has_its_own_start_and_end(start: Callable[..., Server], tmp_path: Path) -> None:
    url = url_of(start("--dir", str(tmp_path)))  # No other test adds events to this log.
    with penstock.connect(url) as queue:
        queue.tube("mail").put_many([b"x"] * 5)
    with Node(url) as node:
        head = node.head()
        last_ms = time_at(node, head.end - 1)
    assert last_ms is not None

    def places(**given: str) -> tuple[int, int]:
        logs = NodeLogs(batch(url=url, **given))
        try:
            heads = logs.heads()
            return logs.positions(logs.options.start, heads)[head.node], logs.ends(heads)[head.node]
        finally:
            logs.close()

    def of_node(value: Any) -> str:
        return json.dumps({head.node: value})

    ends = head.first, head.end
    assert places(startingOffsets=of_node(-2), endingOffsets=of_node(-1)) == ends
    assert places(startingTimestamp=of_node(0), endingTimestamp=of_node(last_ms + 1)) == ends
    assert places(startingTimestamp=of_node(last_ms + 1)) == (head.end, head.end)
    with pytest.raises(OutOfRange, match=f"node {head.node} has no event since .*Strategy=latest"):
        places(startingTimestamp=of_node(last_ms + 1), startingOffsetsByTimestampStrategy="error")
    with pytest.raises(WrongServer, match="node elsewhere is none of"):
        places(startingTimestamp='{"elsewhere": 7}')
    assert places(startingTimestamp='{"elsewhere": 7}', failOnDataLoss="false") == ends


def test_a_batch_has_at_least_the_wanted_number_of_tasks(url: str, queue: Any, tube: str) -> None:
    queue.tube(tube).put_many([b"x"] * 50)
    logs = NodeLogs(batch(url=url, minPartitions="7"))
    try:
        [(name, head)] = logs.heads().items()
        ranges = logs.ranges({name: head.first}, {name: head.end})
        assert 7 <= len(ranges) <= 14
    finally:
        logs.close()
