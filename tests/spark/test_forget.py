"""Erasure from a lake with a real server and a real Spark session. The tests share a lake, because turns are slow."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.lake.tables import ALL, EVENTS, FLOWS, JOBS
from penstock.lake.vacuum import unused_files, vacuum
from penstock.pipeline.audit import Verdict, _erased, audit
from penstock.pipeline.forget import Selection, forget, plan
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source
from penstock.pipeline.steps import _hooks
from tests.server.serving import Server
from tests.spark.conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "quokka-4711"  # In names, keys and bodies that are erased.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own for this module, so that the lake has exactly its history."""
    server = Server(tmp_path_factory.mktemp("history"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def source(server: Server) -> Source:
    return Source((url_of(server),))


@pytest.fixture(scope="module")
def made(spark: SparkSession, server: Server, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with jobs of other tubes and keys around those that are erased."""
    root = tmp_path_factory.mktemp("made") / "lake"
    with penstock.connect(url_of(server)) as queue:
        kept = queue.tube("kept", "fifottl", max_deliveries=1, dead_letter=f"tube {MARK}")
        keyed = queue.tube("keyed", "utube")
        for n in range(5):
            kept.put(f"letter {n}")
            keyed.put(f"{MARK} {n}", key=MARK)
            keyed.put(f"other {n}", key="other")
        kept.take().ack()
        kept.take().nack(f"reason {MARK}")
        queue.tube(f"tube {MARK}").put(f"body {MARK}")
        Pipeline(spark, Lake(root), source).once()
        for _ in range(3):
            keyed.take().ack()
        Pipeline(spark, Lake(root), source).once()
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Lake:
    """A lake that a test may change."""
    shutil.copytree(made, tmp_path / "lake")
    return Lake(tmp_path / "lake")


def files_with(lake: Lake, text: str) -> list[str]:
    """Return the files of a lake that contain a text, compressed or not."""
    found = []
    for path in Path(lake.place.uri).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".parquet":
                data += repr(pq.ParquetFile(path).read().to_pylist()).encode()
            if text.encode() in data:
                found.append(str(path))
    return found


def findings(verdict: Verdict) -> list[str]:
    return [f"{each.name}: {each.examples}" for each in verdict.findings if each.broken]


def test_a_key_is_erased_with_all_its_bytes_and_the_audit_still_passes(
    spark: SparkSession, copy: Lake, source: Source
) -> None:
    selection = Selection(tube="keyed", keys=(MARK.encode(),))
    planned = plan(spark, copy, selection)
    assert (planned.jobs, planned.events > 5) == (5, True)
    assert files_with(copy, f"{MARK} 3"), "the plan erases nothing"
    done = forget(spark, copy, selection)
    assert (done.jobs, done.events) == (planned.jobs, planned.events)
    copy.reload()
    assert copy.read(EVENTS, None, pc.field("key") == MARK.encode()).num_rows == 0
    assert copy.read(EVENTS, None, pc.field("key") == b"other").num_rows > 5
    assert copy.read(JOBS, None, pc.field("key") == MARK.encode()).num_rows == 0
    with copy.writing():
        vacuum(copy, 0)
    assert files_with(copy, f"{MARK} 3") == []
    verdict = audit(spark, copy, source)
    assert findings(verdict) == []
    assert f"{done.events:,} events were erased" in verdict.findings[0].unjudged


def test_a_tube_is_erased_with_its_name_and_with_jobs_that_moved_into_it(spark: SparkSession, copy: Lake) -> None:
    done = forget(spark, copy, Selection(tube=f"tube {MARK}"))
    assert done.jobs == 2
    forget(spark, copy, Selection(tube="keyed"))
    with copy.writing():
        vacuum(copy, 0)
    assert files_with(copy, MARK) == []
    copy.reload()
    assert set(copy.read(EVENTS)["tube"].to_pylist()) == {"kept"}
    assert set(copy.read(FLOWS)["tube"].to_pylist()) == {"kept"}
    assert findings(audit(spark, copy)) == []


def interrupt(spark: SparkSession, lake: Lake, selection: Selection, step: str) -> None:
    """Interrupt an erasure at a step."""

    def stop(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    _hooks.append(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            forget(spark, lake, selection)
    finally:
        _hooks.remove(stop)
    lake.reload()


def test_an_interrupted_erasure_is_completed_by_the_next_one(spark: SparkSession, copy: Lake) -> None:
    selection = Selection(tube="keyed", keys=(MARK.encode(),))
    for step in ("before bronze/coverage", "before bronze/events", "after bronze/events", "before the end"):
        interrupt(spark, copy, selection, step)
        assert "a `forget` was interrupted: repeat it" in _erased(copy)
        if step == "after bronze/events":
            assert copy.read(JOBS, None, pc.field("key") == MARK.encode()).num_rows > 0
    forget(spark, copy, selection)
    copy.reload()
    assert copy.read(JOBS, None, pc.field("key") == MARK.encode()).num_rows == 0
    assert "interrupted" not in _erased(copy)
    assert findings(audit(spark, copy)) == []


def test_old_days_are_erased_and_levels_stay(spark: SparkSession, copy: Lake, source: Source) -> None:
    tomorrow = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
    levels = _ready(copy)
    done = forget(spark, copy, Selection(before=tomorrow))
    copy.reload()
    assert (copy.rows(EVENTS), copy.rows(JOBS)) == (0, 0)
    assert done.events > 0
    assert _ready(copy) == levels
    assert Pipeline(spark, copy, source).once() == 0, "erased events are read again"
    assert not [each for each in audit(spark, copy).findings if each.broken]


def _ready(lake: Lake) -> dict[str, int]:
    sums = lake.read(FLOWS).group_by("tube").aggregate([("ready", "sum")]).to_pylist()
    return {row["tube"]: row["ready_sum"] for row in sums if row["ready_sum"]}


def test_a_damaged_block_is_still_reported_after_an_erasure(spark: SparkSession, copy: Lake) -> None:
    rows = copy.read(EVENTS, None, pc.field("tube") == "kept")
    _remove_one(copy, rows["position"][0].as_py())
    forget(spark, copy, Selection(tube="keyed", keys=(MARK.encode(),)))
    copy.reload()
    assert any(line.startswith("unchanged") for line in findings(audit(spark, copy)))


def _remove_one(lake: Lake, position: int) -> None:
    from penstock.lake.files import write_table

    with lake.writing():
        rows = lake.read(EVENTS, None, pc.field("position") != position)
        lake.log(EVENTS).commit(write_table(lake.place, EVENTS, rows, 0), lake.files(EVENTS))


def test_vacuum_deletes_only_files_that_no_turn_uses(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    used = {file.path for table in ALL for file in lake.files(table)}
    stray = Path(lake.place.uri, EVENTS.path, "date=2026-01-01", "00000009-stray.parquet")
    stray.parent.mkdir()
    stray.write_bytes(b"half a file")
    assert unused_files(lake, 3600) == []
    with lake.writing():
        gone = vacuum(lake, 0)
    assert any(each.path.endswith("stray.parquet") for each in gone)
    assert not stray.exists()
    for table in ALL:
        for file in Lake(lake.place).files(table):
            assert Path(lake.place.uri, table.path, file.path).exists()
    assert used
