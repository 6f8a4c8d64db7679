"""Filters on events: the source reads only the part of the log that they need, and loses no event."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.host.clock import wall_ms
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.opening import open_log
from penstock.spark.events.filters import Condition, EventFilters
from penstock.spark.events.options import EventsOptions
from penstock.spark.events.ranges import EventsRange, NodeLogs
from tests.server.serving import Server
from tests.spark.conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
HOURS = 12
TUBES = (b"mail", b"mail/bulk", b"pages", b"caf\xc3\xa9", b"\xff")

COLUMNS = "node,position,time,event,tube,job,body"


def fill(directory: Path) -> datetime:
    """Fill a log with twelve hours of puts, takes and acks. Return the time of the first event.

    The log is opened three times. Before the second time, the clock of the machine was set back by six hours.
    """
    first_ms = now = (wall_ms() - (HOURS + 1) * HOUR_MS) // 1_000 * 1_000
    directory.mkdir()
    for clock_ms in (now, now - 6 * HOUR_MS, now + HOURS // 2 * HOUR_MS):
        opened = open_log(RealDisk(str(directory)), lambda ms=clock_ms: ms, "boot", segment_bytes=64 * 1024)  # type: ignore[misc]
        engine, log = opened.engine, opened.log
        now = engine.now
        session = engine.connect(b"worker").session
        for _ in range(HOURS // 3 * 2):
            for name in TUBES:
                tube = engine.create_tube(name, FIFO, now)
                engine.put_many(tube, [Draft(b"x" * 50)] * 20, now)
                log.commit(now, now)
                now += 60_000
                for job in engine.take_many(session, [tube], 10, now):
                    engine.ack(session, job, now)
                log.commit(now, now)
            now += HOUR_MS // 2 - 60_000 * len(TUBES)
        log.close(now, now)
    return datetime.fromtimestamp(first_ms / 1000, UTC)


@pytest.fixture
def filters_of_spark(needs_feature: Callable[[Any], None]) -> None:
    """Skip a test if the installed Spark has no filters."""
    from penstock.spark.versions import FILTERS

    needs_feature(FILTERS)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, datetime]]:
    """A server with a history of twelve hours: its URL and the time of its first event."""
    directory = tmp_path_factory.mktemp("history") / "log"
    first = fill(directory)
    server = Server(directory.parent, "--dir", str(directory))
    yield url_of(server), first
    server.stop()


def planned(url: str, filters: list[Any], **options: str) -> list[EventsRange]:
    """Return the tasks that Spark's driver plans for a query with some filters."""
    from penstock.spark.events.source import EventsReader

    reader = EventsReader(EventsOptions.read({"url": url, **options}, streaming=False))
    assert list(reader.pushFilters(filters)) == []
    return [each for each in reader.partitions() if isinstance(each, EventsRange)]


def read_filtered(url: str, filters: list[Any], **options: str) -> list[dict[str, Any]]:
    """Return the events that the tasks of a query yield."""
    from penstock.spark.events.source import EventsReader

    reader = EventsReader(EventsOptions.read({"url": url, "columns": COLUMNS, **options}, streaming=False))
    assert list(reader.pushFilters(filters)) == []
    ranges = reader.partitions()
    return [row for range in ranges for batch in reader.read(range) for row in batch.to_pylist()]


def rows_of(ranges: list[EventsRange]) -> int:
    return sum(each.end - each.start for each in ranges)


@pytest.mark.usefixtures("filters_of_spark")
def test_a_filter_reads_only_the_part_of_the_log_that_it_needs(history: tuple[str, datetime]) -> None:
    from penstock.spark.versions import EqualTo, GreaterThanOrEqual, In, LessThan, StringStartsWith

    url, first = history
    everything = planned(url, [])
    [whole] = everything
    assert rows_of(everything) > 2_000
    hour = [
        GreaterThanOrEqual(("time",), first + timedelta(hours=3)),
        LessThan(("time",), first + timedelta(hours=4)),
    ]
    assert 0 < rows_of(planned(url, hour)) < rows_of(everything) / 8
    assert rows_of(planned(url, [EqualTo(("position",), 100)])) == 1
    assert rows_of(planned(url, [In(("position",), (100, 120))])) == 21
    assert rows_of(planned(url, [LessThan(("position",), whole.start)])) == 0
    assert planned(url, [EqualTo(("node",), "another")]) == []
    assert planned(url, [StringStartsWith(("node",), whole.node[:4])]) == everything
    assert rows_of(planned(url, [GreaterThanOrEqual(("time",), first - timedelta(days=1))])) == rows_of(everything)
    assert rows_of(planned(url, [GreaterThanOrEqual(("time",), datetime.now(UTC) + timedelta(days=1))])) == 0


@pytest.mark.usefixtures("filters_of_spark")
def test_filters_return_the_same_events_as_plain_python(history: tuple[str, datetime]) -> None:
    from penstock.spark import versions as d

    url, first = history
    everything = read_filtered(url, [])
    node, minute, us = everything[0]["node"], timedelta(minutes=1), timedelta(microseconds=1)
    assert len({row["tube"] for row in everything}) == len(TUBES) and node != "another"

    def is_same(filters: list[Any], holds: Callable[[dict[str, Any]], bool]) -> None:
        expected = [row for row in everything if holds(row)]
        assert read_filtered(url, filters) == expected, filters
        assert 0 < len(expected) < len(everything)

    time, position, tube, event = ("time",), ("position",), ("tube",), ("event",)
    is_same(
        [d.GreaterThan(time, first + minute), d.LessThanOrEqual(time, first + 2 * minute)],
        lambda row: first + minute < row["time"] <= first + 2 * minute,
    )
    is_same([d.EqualTo(time, first + minute)], lambda row: row["time"] == first + minute)
    is_same([d.In(time, (first, first + us))], lambda row: row["time"] == first)
    is_same([d.LessThan(time, first + us)], lambda row: row["time"] == first)
    is_same([d.GreaterThanOrEqual(time, first + us)], lambda row: row["time"] > first)
    is_same([d.Not(d.EqualTo(time, first))], lambda row: row["time"] != first)
    is_same([d.Not(d.GreaterThan(time, first + minute))], lambda row: row["time"] <= first + minute)
    is_same([d.In(position, (50, 51, 10**9))], lambda row: row["position"] in (50, 51))
    is_same(
        [d.Not(d.EqualTo(position, 100)), d.LessThan(position, 120), d.EqualTo(event, "put")],
        lambda row: row["position"] < 120 and row["position"] != 100 and row["event"] == "put",
    )
    is_same([d.EqualTo(tube, "mail")], lambda row: row["tube"] == "mail")
    is_same([d.EqualNullSafe(tube, r"\xff")], lambda row: row["tube"] == r"\xff")
    is_same(
        [d.In(tube, ("mail", "café", "nowhere")), d.Not(d.EqualTo(event, "put"))],
        lambda row: row["tube"] in ("mail", "café") and row["event"] != "put",
    )
    is_same(
        [d.StringStartsWith(tube, "mail"), d.Not(d.In(tube, ("mail", "x")))], lambda row: row["tube"] == "mail/bulk"
    )
    is_same(
        [d.StringContains(tube, "a"), d.GreaterThan(tube, "mail"), d.Not(d.StringEndsWith(tube, "bulk"))],
        lambda row: row["tube"] == "pages",
    )
    is_same([d.StringEndsWith(event, "ed")], lambda row: row["event"] in ("acked",))
    assert read_filtered(url, [d.EqualTo(tube, "nowhere")]) == read_filtered(url, [d.EqualTo(("node",), "x")]) == []
    assert read_filtered(url, [d.EqualTo(("node",), node)]) == everything


def test_the_options_filter_like_the_columns(history: tuple[str, datetime]) -> None:
    url, _ = history
    everything = read_filtered(url, [])
    assert read_filtered(url, [], tube="mail,pages", event="put,acked") == [
        row for row in everything if row["tube"] in ("mail", "pages") and row["event"] in ("put", "acked")
    ]
    assert read_filtered(url, [], subscribePattern="mail(/.*)?") == [
        row for row in everything if row["tube"].startswith("mail")
    ]
    assert read_filtered(url, [], tubePattern="mai") == []  # The whole name must match.


@pytest.mark.usefixtures("filters_of_spark")
def test_spark_passes_filters_to_the_source(spark: SparkSession, history: tuple[str, datetime]) -> None:
    url, first = history
    until = first + timedelta(hours=2)
    query = (
        f"time < '{until}' and tube like 'mail%' and event in ('put', 'acked') and position > 30 and job is not null"
    )
    rows = spark.read.format("penstock_events").options(url=url, columns=COLUMNS).load().where(query)
    expected = [
        row
        for row in read_filtered(url, [])
        if row["time"] < until
        and row["tube"].startswith("mail")
        and row["event"] in ("put", "acked")
        and row["position"] > 30
    ]
    assert sorted(row.position for row in rows.collect()) == [row["position"] for row in expected] != []
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert "BatchScan penstock_events" in plan and "Filter (" not in plan


@pytest.mark.usefixtures("filters_of_spark")
def test_filters_that_spark_must_apply_are_not_accepted() -> None:
    from penstock.spark.versions import EqualTo, GreaterThan, In, IsNotNull, Not, StringContains

    left = [
        EqualTo(("job",), 1),
        EqualTo(("headers", "a"), b"x"),
        In(("tube",), ("a", None)),
        Not(In(("tube",), ("a", None))),
        EqualTo(("tube",), None),
        GreaterThan(("time",), datetime(2026, 11, 16)),  # Only Spark knows the time zone of its session.
        IsNotNull(("body",)),
        StringContains(("reason",), "404"),
    ]
    filters, refused = EventFilters().push(left)
    assert (filters.conditions, refused) == ((), left)


@pytest.mark.parametrize("negated", [False, True])
def test_a_condition_is_true_for_the_numbers_for_which_python_says_so(negated: bool) -> None:
    import numpy as np

    numbers = np.arange(1, 12)
    operators = {
        "EqualTo": operator.eq,
        "LessThan": operator.lt,
        "LessThanOrEqual": operator.le,
        "GreaterThan": operator.gt,
        "GreaterThanOrEqual": operator.ge,
        "In": lambda number, values: number in values,
    }
    for kind, holds in operators.items():
        value: Any = (3, 7) if kind == "In" else 5
        condition = Condition("position", kind, value, negated)
        expected = [n for n in numbers.tolist() if holds(n, value) != negated]
        assert numbers[condition.mask(numbers)].tolist() == expected
        low, high = condition.bounds()
        assert set(expected) <= {n for n in numbers.tolist() if low <= n <= high}


def test_every_time_is_found_although_the_clock_was_set_back(history: tuple[str, datetime]) -> None:
    """`startingTimestamp` and `endingTimestamp` split the log at the first event that is not older."""
    from penstock.spark.events.columns import batches

    url, first = history
    options = EventsOptions.read({"url": url, "columns": "position,time"}, streaming=False)
    [whole] = planned(url, [])
    rows = [row for batch in batches(whole, options) for row in batch.to_pylist()]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    for moment in (first, first + timedelta(minutes=1), first + timedelta(hours=4, seconds=7), rows[-1]["time"]):
        text = moment.isoformat()
        given = {"url": url, "startingTimestamp": text, "endingTimestamp": text}
        logs = NodeLogs(EventsOptions.read(given, streaming=False))
        try:
            heads = logs.heads()
            start = logs.positions(logs.options.start, heads)[whole.node]
            assert logs.ends(heads)[whole.node] == start
        finally:
            logs.close()
        assert all((row["time"] >= moment) == (row["position"] >= start) for row in rows)
