"""The connector works with every supported version of Spark, and one table lists what each version lacks."""

from __future__ import annotations

import importlib
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.spark import versions
from penstock.spark.jobs.options import ReadOptions
from penstock.spark.jobs.scan import JobsReader
from penstock.spark.jobs.write import JobsStreamWriter
from penstock.spark.versions import FILTERS, SUPPORTED, VERSION, EqualTo, Feature, ReadLimit, ReadMaxRows, has
from tests.short_spark import until_done

ROOT = Path(__file__).parent.parent.parent.parent


def exists(name: str) -> bool:
    """Return whether the installed Spark has a module, or an attribute of a module."""
    try:
        importlib.import_module(name)
        return True
    except ImportError:
        module, _, attribute = name.rpartition(".")
        try:
            return hasattr(importlib.import_module(module), attribute)
        except ImportError:
            return False


@pytest.mark.parametrize(
    ("feature", "name"),
    [
        (versions.FILTERS, "pyspark.sql.datasource.Filter"),
        (versions.AVAILABLE_NOW, "pyspark.sql.streaming.datasource"),
        (versions.DECLARATIVE, "pyspark.pipelines"),
    ],
)
def test_the_table_agrees_with_the_installed_spark(feature: Feature, name: str) -> None:
    assert has(feature) == exists(name)


def test_the_extra_allows_exactly_the_supported_versions() -> None:
    [bounds] = re.findall(r'"pyspark>=(\d+)\.(\d+),<(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    first, last = SUPPORTED[0], SUPPORTED[-1]
    assert tuple(map(int, bounds)) == (*first, last[0], last[1] + 1)
    assert VERSION in SUPPORTED
    assert {feature.since for feature in versions.FEATURES} <= set(SUPPORTED)


@pytest.mark.parametrize(
    ("text", "version"), [("4.0.1", (4, 0)), ("4.1.0.dev3", (4, 1)), ("4.12.0", (4, 12)), ("unknown", SUPPORTED[-1])]
)
def test_the_version_of_spark_is_parsed(text: str, version: tuple[int, int]) -> None:
    assert versions.minor_version(text) == version


def test_every_module_of_the_connector_can_be_imported() -> None:
    folder = ROOT / "src" / "penstock" / "spark"
    for path in sorted(folder.rglob("*.py")):
        importlib.import_module(".".join(("penstock", "spark", *path.relative_to(folder).with_suffix("").parts)))
    for name in ("pyspark_penstock", "pyspark_penstock_events"):
        assert issubclass(importlib.import_module(name).DefaultSource, datasource.DataSource)


def test_a_stream_writer_gets_arrow_batches() -> None:
    bases = {base.__name__ for base in JobsStreamWriter.__mro__}
    assert "DataSourceStreamWriter" in bases
    if VERSION == (4, 0):
        assert "DataSourceArrowWriter" in bases  # Spark 4.0 passes Arrow batches to objects of this class.
    else:
        assert issubclass(JobsStreamWriter, datasource.DataSourceStreamArrowWriter)


# ---- Filters ---------------------------------------------------------------------------------------------------------


def test_spark_accepts_a_reader_that_offers_filters_if_pushdown_is_off() -> None:
    """Spark refuses a reader whose `pushFilters` has another `__func__` than its own."""
    reader = JobsReader(ReadOptions.read({}))
    assert reader.pushFilters.__func__ is getattr(DataSourceReader, "pushFilters", None)


def test_accepted_filters_are_kept_in_the_reader_that_is_sent_to_tasks(
    needs_feature: Callable[[Feature], None],
) -> None:
    needs_feature(FILTERS)
    reader = JobsReader(ReadOptions.read({}))
    accepted, other = EqualTo(("tube",), "mails"), EqualTo(("number",), 7)
    assert list(reader.pushFilters([accepted, other])) == [other]
    assert pickle.loads(pickle.dumps(reader))._options.tubes == ("mails",)


def test_the_server_applies_filters_only_if_pushdown_is_on(
    spark: Any, url: str, queue: Any, tube: str, needs_feature: Callable[[Feature], None]
) -> None:
    needs_feature(FILTERS)
    queue.tube(tube).put_many([b"x"] * 3)
    setting = "spark.sql.python.filterPushdown.enabled"
    plans = []
    try:
        for value in ("true", "false"):
            spark.conf.set(setting, value)
            rows = spark.read.format("penstock").option("url", url).load().where(f"tube = '{tube}'")
            assert rows.count() == 3
            plans.append(rows._jdf.queryExecution().executedPlan().toString())
    finally:
        spark.conf.set(setting, "true")
    # Spark filters the rows itself unless the source has accepted the filter.
    assert ["(tube#" in plan and f"= {tube})" in plan for plan in plans] == [False, True]


# ---- Streams ---------------------------------------------------------------------------------------------------------


class Counter(DataSourceStreamReader):
    """A reader of Spark 4.2 whose offsets are numbers. It records the starts that it gets."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.initials = 0

    def initialOffset(self) -> dict[str, int]:
        self.initials += 1
        return {"n": self.initials}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(10)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        assert isinstance(limit, ReadMaxRows)
        self.starts.append(start["n"])
        return {"n": start["n"] + limit.max_rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (partition.value,)


def test_a_reader_gets_the_start_of_a_batch_although_spark_does_not_pass_it() -> None:
    """The calls are in the order of Spark 4.0 and 4.1."""
    reader = Counter()
    first = versions._StartTracker(reader)
    end = first.latestOffset()
    assert first.initialOffset() == {"n": 1} and end == {"n": 11}
    first.partitions({"n": 1}, end)
    assert first.latestOffset() == {"n": 21}
    first.commit(end)
    assert reader.starts == [1, 11]

    finished = Counter()  # After a restart whose last batch was finished.
    again = versions._StartTracker(finished)
    again.partitions({"n": 21}, {"n": 21})
    assert again.latestOffset() == {"n": 31}
    assert finished.starts == [21]

    unfinished = Counter()  # After a restart whose last batch has to be repeated.
    again = versions._StartTracker(unfinished)
    again.partitions({"n": 21}, {"n": 21})
    assert [part.value for part in again.partitions({"n": 11}, {"n": 21})] == [(11, 21)]
    assert again.latestOffset() == {"n": 31}
    assert unfinished.starts == [21]
    assert list(pickle.loads(pickle.dumps(again)).read(InputPartition(7))) == [(7,)]


def test_the_installed_spark_calls_a_reader_of_either_kind() -> None:
    adapted = versions.adapt_stream_reader(Counter())
    assert isinstance(adapted, Counter) == has(versions.AVAILABLE_NOW)


def test_a_query_that_is_started_again_acks_its_last_batch(
    spark: Any, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    """Also in versions that cannot ack the last batch when the query ends."""
    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(30)])
    read = spark.readStream.format("penstock").options(url=url, tube=tube, maxRowsPerTrigger=20).load()
    write = read.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    write = write.format("parquet")
    assert write.start(str(tmp_path / "jobs")).awaitTermination(180)
    assert bool(mine.stats()["taken"]) != has(versions.LAST_ACK)
    until_done(lambda: write.start(str(tmp_path / "jobs")))
    assert (mine.stats()["taken"], mine.stats()["ready"], mine.events()["acked"]) == (0, 0, 30)
    rows = [row.body for row in spark.read.parquet(str(tmp_path / "jobs")).collect()]
    assert len(rows) == len(set(map(bytes, rows))) == 30
