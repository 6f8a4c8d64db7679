"""`LagListener`: how far streams of events are behind, in rows and seconds, for each node."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from penstock.spark import LagListener
from penstock.spark.lag import Lag
from tests.server.serving import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODE = "a" * 40


def progress(
    name: str | None, reached: Any, end: Any, run: str = "run", as_text: Callable[[Any], str] = json.dumps
) -> Any:
    source = SimpleNamespace(endOffset=as_text(reached), latestOffset=as_text(end))
    return SimpleNamespace(progress=SimpleNamespace(sources=[source], runId=run, id="id", name=name))


def test_the_lag_is_that_of_the_last_batch_if_no_node_can_be_asked() -> None:
    listener = LagListener()
    listener.onQueryProgress(progress('to "lake"', {NODE: 100}, {NODE: 150}))
    listener.onQueryProgress(progress(None, {"seq": 7}, {"seq": 9}, "jobs"))  # A stream of jobs.
    listener.onQueryProgress(progress(None, None, None, "rate"))
    [lag] = listener.lags()
    assert (lag.node, lag.rows, lag.seconds) == (NODE, 50, None)
    assert f'penstock_spark_lag_rows{{query="to \\"lake\\"",node="{NODE}"}} 50\n' in listener.metrics()
    assert "penstock_spark_lag_seconds{" not in listener.metrics()
    listener.onQueryTerminated(SimpleNamespace(runId="run"))  # type: ignore[arg-type]
    assert listener.lags() == []


def test_offsets_can_be_the_text_of_a_dict_as_in_older_versions_of_spark() -> None:
    listener = LagListener()
    listener.onQueryProgress(progress("q", {NODE: 100}, {NODE: 150}, as_text=str))
    assert [lag.rows for lag in listener.lags()] == [50]


def test_a_node_that_is_down_does_not_hide_the_lag() -> None:
    listener = LagListener("penstock://127.0.0.1:1")
    listener.onQueryProgress(progress("q", {NODE: 100}, {NODE: 150}))
    assert [(lag.rows, lag.seconds) for lag in listener.lags()] == [(50, None)]


def test_the_lag_grows_while_a_query_reads_nothing(url: str, queue: Any, tube: str) -> None:
    head = queue.execute("JOURNAL", "HEAD")
    node, end = head[b"node"].decode(), head[b"durable"] + 1
    listener = LagListener(url)
    listener.onQueryProgress(progress("q", {node: end}, {node: end}))
    queue.tube(tube).put_many([b"x"] * 30)
    [lag] = listener.lags()
    assert lag.rows >= 30 and lag.seconds is not None and 0 <= lag.seconds < 3_600
    behind = queue.execute("JOURNAL", "HEAD")[b"durable"] + 1_000_000
    listener.onQueryProgress(progress("q", {node: behind}, {node: behind}))
    assert [(lag.rows, lag.seconds) for lag in listener.lags()] == [(0, 0.0)]


def test_the_metrics_are_served(url: str, queue: Any) -> None:
    node = queue.execute("JOURNAL", "HEAD")[b"node"].decode()
    listener = LagListener(url)
    listener.onQueryProgress(progress("q", {node: 1}, {node: 1}))
    port = listener.serve()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            text = page.read().decode()
        assert f'penstock_spark_lag_seconds{{query="q",node="{node}"}} ' in text
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/")
    finally:
        listener.close()


def test_spark_passes_the_progress_of_a_stream_to_the_listener(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    class Recorder(LagListener):
        lags_seen: ClassVar[list[Lag]] = []

        def onQueryProgress(self, event: Any) -> None:
            super().onQueryProgress(event)
            self.lags_seen.extend(self.lags())

    listener = Recorder(url)
    spark.streams.addListener(listener)
    try:
        queue.tube(tube).put_many([b"x"] * 30)
        node = queue.execute("JOURNAL", "HEAD")[b"node"].decode()
        read = spark.readStream.format("penstock_events").options(url=url, columns="event", startingOffsets="earliest")
        write = read.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).queryName("of lag")
        assert write.trigger(availableNow=True).start().awaitTermination(180)
        wait_for(lambda: listener.lags_seen)
        assert {(lag.query, lag.node) for lag in listener.lags_seen} == {("of lag", node)}
        wait_for(lambda: not listener.lags())  # The query has ended.
    finally:
        spark.streams.removeListener(listener)
