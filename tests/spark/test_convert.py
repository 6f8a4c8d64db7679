"""Conversion of a lake that an older version has made: tests/data/lake/manifest-v3.tar.xz."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from penstock.lake.errors import BadLake, PipelineError
from penstock.lake.lake import Lake
from penstock.lake.merging import merge_parts
from penstock.lake.tables import EVENTS, JOBS, gold_table
from penstock.pipeline.audit import audit
from penstock.pipeline.convert import convert
from penstock.pipeline.steps import _hooks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = Path(__file__).parents[1] / "data" / "lake" / "manifest-v3.tar.xz"
NODE = "cd89175e36aeb4555121fa60598b5bf8b83a29e7"
STEPS = (
    "before bronze/coverage",
    "before bronze/events",
    "after bronze/events",
    "after gold/rates",
    "before old files",
)
LAST_STEPS = ("before the manifest",)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A lake with 33 events of 17 jobs, in two turns."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "lake"


def kill_at(step: str) -> None:
    """Interrupt the next conversion at a step."""

    def stop(name: str) -> None:
        if name == step:
            _hooks.remove(stop)
            raise KeyboardInterrupt

    _hooks.append(stop)


def test_an_interrupted_conversion_continues_and_keeps_every_event_once(spark: SparkSession, old: Path) -> None:
    with pytest.raises(BadLake, match="penstock pipeline convert"):
        Lake(old)
    for step in (*STEPS, *LAST_STEPS):
        kill_at(step)
        with pytest.raises(KeyboardInterrupt):
            convert(spark, Lake(old, converting=True))
        with pytest.raises(BadLake, match="penstock pipeline convert"):
            Lake(old)
    assert convert(spark, Lake(old, converting=True)) == 33
    lake = Lake(old)
    positions = lake.read(EVENTS)["position"].to_pylist()
    assert (len(positions), len(set(positions)), lake.position(NODE)) == (33, 33, 39)
    jobs = merge_parts(lake.read(JOBS))
    assert (len(jobs), jobs["outcome"].to_pylist().count("acked")) == (17, 6)
    assert sum(lake.read(gold_table("rates"))["puts"].to_pylist()) == 17
    assert not (old / "_state").exists()
    used = {old / table.path / file.path for table in (EVENTS, JOBS) for file in lake.files(table)}
    stored = {path for table in (EVENTS, JOBS) for path in (old / table.path).glob("*/*.parquet")}
    assert stored == used
    assert not (old / "gold" / "latency").exists()
    verdict = audit(spark, lake)
    assert not verdict.broken, verdict.findings
    with pytest.raises(PipelineError, match="nothing to convert"):
        convert(spark, Lake(old, converting=True))


def test_a_lake_of_version_2_whose_events_lack_the_newer_columns_is_converted(spark: SparkSession, old: Path) -> None:
    # Version 2 did not store how far the logs were read.
    manifest = json.loads((old / "_state" / "manifest.json").read_text())
    del manifest["read"]
    (old / "_state" / "manifest.json").write_text(json.dumps({**manifest, "version": 2}))
    newer = ["since", "actor", "tube_number", "headers", "flags", "format"]
    for path in (old / "_state" / "files" / EVENTS.path).glob("*/*.parquet"):
        rows = pq.ParquetFile(path).read().drop_columns(newer)
        path.unlink()
        pq.write_table(rows, path)
    assert convert(spark, Lake(old, converting=True)) == 33
    lake = Lake(old)
    assert set(lake.read(EVENTS)["flags"].to_pylist()) == {0}
    assert lake.position(NODE) == manifest["positions"][NODE]
    assert [file.span.node for file in lake.files(EVENTS) if file.span] == [NODE, NODE]
    assert len(merge_parts(lake.read(JOBS))) == 17
    assert {row["rows_digest"] for row in lake.coverage()} == {None}
