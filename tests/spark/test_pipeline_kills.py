"""A pipeline that is killed between any two steps of a turn loses and repeats nothing.

Afterwards three readers, which share no code, count every event once, and gold equals that of a lake in peace.
`make test-kills` kills at every step of a turn and of a compaction, on a disk and on S3.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import penstock
from penstock.lake.lake import TURN, Lake
from penstock.lake.tables import EVENTS, TURNS
from penstock.pipeline.audit import audit
from penstock.pipeline.compact import compact
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source, unread
from penstock.pipeline.tasks import read_files
from tests.lake.stores import s3_server
from tests.server.serving import Server
from tests.short_spark import short_spark

from .conftest import url_of
from .history_model import events_of
from .killed_pipeline import COMPACTION_STEPS, STEPS, kill_at
from .lake_work import PUTS, contents, positions, sums, work
from .test_kills import patiently
from .test_kills import program as program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IS_LONG = bool(os.environ.get("PENSTOCK_KILLS"))

# The steps at which a short test kills: before and after the commit of bronze, within gold, and before the last commit.
FEW = ("before bronze/events", "after bronze/events", "after gold/fairness", "before _turns")


def work_and_leave(url: str, tube: str) -> None:
    """Produce rows for all tables: events, a session and a tube of its own."""
    with penstock.connect(url, name="worker") as queue:
        work(queue).ack()
        queue.tube(tube, "fifo").put("new")


def check(spark: SparkSession, lake: Lake, url: str, peaceful: Lake, copy: Path) -> None:
    """Check that every reader finds every event once, and that silver and gold are right. `copy` is a local lake."""
    expected = sorted((row["node"], row["position"]) for row in events_of(url))
    assert positions(lake) == expected
    options = dict(lake.place.options) or None
    rows = DeltaTable(f"{lake.place}/{EVENTS.path}", storage_options=options).to_pyarrow_table(
        columns=["node", "position"]
    )
    assert sorted((row["node"], row["position"]) for row in rows.to_pylist()) == expected
    assert counted_by_duckdb(copy) == (len(expected), len(expected))
    by_spark = read_files(spark, lake.place, EVENTS, lake.files(EVENTS)).select("node", "position")
    assert (by_spark.count(), by_spark.distinct().count()) == (len(expected), len(expected))
    Pipeline(spark, peaceful, Source((url,))).once()
    assert contents(lake) == contents(peaceful)


def kill_and_check(spark: SparkSession, place: str, url: str, folder: Path, local_copy: Callable[[], Path]) -> None:
    """Kill a pipeline at each step of a turn, and in the long test of a compaction. Check the lake afterwards."""
    for step in STEPS if IS_LONG else FEW:
        work_and_leave(url, step)
        kill_at(spark, step, place, url)
    lake = Lake(place)
    Pipeline(spark, lake, Source((url,))).once()
    check(spark, lake, url, Lake(folder / "peaceful"), local_copy())
    assert not audit(spark, lake, Source((url,))).broken
    if IS_LONG:
        for step in COMPACTION_STEPS:
            kill_at(spark, step, place)
        lake = Lake(place)
        with lake.writing():
            assert compact(spark, lake) == (0, 0)
        check(spark, lake, url, Lake(folder / "peaceful"), local_copy())
        assert not audit(spark, lake, Source((url,))).broken


def counted_by_duckdb(lake: Path) -> tuple[int, int]:
    """Return the number of events, and of different positions, that DuckDB finds."""
    import duckdb
    import duckdb_extension_delta

    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as base:
        base.execute(f"LOAD '{extension}'")
        found = base.execute(
            f"SELECT count(*), count(DISTINCT (node, position)) FROM delta_scan('{lake}/{EVENTS.path}')"
        ).fetchone()
    assert found is not None
    return found[0], found[1]


def test_a_killed_pipeline_loses_and_repeats_nothing(
    spark: SparkSession, start: Callable[..., Server], tmp_path: Path
) -> None:
    url = url_of(start())
    root = tmp_path / "lake"
    kill_and_check(spark, str(root), url, tmp_path, lambda: root)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, needs: Callable[[object, str], None]) -> Iterator[str]:
    """The place of a lake on S3. Its settings are in the environment, also for other processes."""
    needs(find_spec("moto"), "moto is not installed")
    with s3_server() as store:
        for name, value in store.options.items():
            monkeypatch.setenv(name, value)
        yield store.new_lake()


def downloaded(place: str, root: Path) -> Path:
    """Copy a lake from its bucket to a new directory, because this DuckDB has no extension for S3."""
    import boto3

    shutil.rmtree(root, ignore_errors=True)
    name, _, prefix = place.removeprefix("s3://").partition("/")
    client: Any = boto3.client("s3", region_name="us-east-1")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=name, Prefix=f"{prefix}/"):
        for each in page.get("Contents", ()):
            path = root / each["Key"].removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(name, each["Key"], str(path))
    return root


@pytest.mark.skipif(not IS_LONG, reason="kills a pipeline on S3 at every step; run `make test-kills`")
def test_a_killed_pipeline_on_s3_loses_and_repeats_nothing(
    spark: SparkSession, start: Callable[..., Server], bucket: str, tmp_path: Path
) -> None:
    url = url_of(start())
    kill_and_check(spark, bucket, url, tmp_path, lambda: downloaded(bucket, tmp_path / "copy"))


@pytest.mark.skipif(not IS_LONG, reason="starts Spark three times; run `make test-kills`")
def test_a_killed_command_is_started_again_and_loses_and_repeats_nothing(
    start: Callable[..., Server],
    program: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in short_spark(tmp_path / "conf").items():
        monkeypatch.setenv(name, value)
    url, root = url_of(start()), tmp_path / "lake"
    words = [sys.executable, "-m", "penstock", "pipeline", "run", "--lake", str(root), "--from", url]
    words += ["--every", "100ms", "--master", "local[1]"]
    for number in (1, 2):
        work_and_leave(url, f"tube {number}")
        killed = program(*words)

        # Bronze has the turn, and the derived tables probably lack it.
        def has_turn(turn: int = number) -> bool:
            time.sleep(0.05)
            return Lake(root).turn >= turn

        patiently(has_turn, killed, tmp_path)
        killed.kill()  # The lock of the lake ends with the process. Java ends a little later.
        killed.wait(30)
    last = program(*words)

    def is_complete() -> bool:
        time.sleep(0.2)
        now = Lake(root)
        return now.log(TURNS).counter(TURN) == now.turn and not any(unread(now, Source((url,))).values())

    patiently(is_complete, last, tmp_path)
    last.send_signal(signal.SIGTERM)
    assert last.wait(300) == 0, (tmp_path / "said").read_text()
    assert positions(Lake(root)) == sorted((row["node"], row["position"]) for row in events_of(url))
    puts = sums(Lake(root).pin(), "rates", "tube")
    assert {tube: counts["puts"] for (tube,), counts in puts.items() if tube in PUTS} == {
        tube: 2 * count for tube, count in PUTS.items()
    }
