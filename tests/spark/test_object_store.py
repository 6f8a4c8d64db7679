"""The pipeline with a lake on S3 (moto), with pip's Spark and without a jar for object stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.lake.errors import BadPlace, LakeInUse, PipelineError
from penstock.lake.lake import Lake
from penstock.lake.merging import merge
from penstock.lake.tables import DERIVED, EVENTS, JOBS, gold_table
from penstock.lake.vacuum import vacuum
from penstock.pipeline.audit import audit
from penstock.pipeline.compact import compact
from penstock.pipeline.forget import Selection, forget
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source
from penstock.spark import SourceError
from penstock.spark.jobs.refused_rows import saved
from tests.lake.faulty_proxy import FaultyStore, faulty_store
from tests.lake.stores import S3, SECRET, s3_server
from tests.server.serving import Server
from tests.spark.conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 40
EVENTS_OF_JOBS = 3 * COUNT  # put, taken and acked

# A failed request is repeated twice, at once.
FAST = {"max_retries": "2", "backoff_config.init_backoff": "10ms", "backoff_config.max_backoff": "50ms"}


@pytest.fixture(scope="module")
def s3(needs: Callable[[object, str], None]) -> Iterator[S3]:
    needs(find_spec("moto"), "moto is not installed")
    with s3_server() as store:
        yield store


@pytest.fixture(scope="module")
def faulty(s3: S3) -> Iterator[FaultyStore]:
    with faulty_store(s3) as store:
        yield store


@pytest.fixture
def history(start: Callable[..., Server]) -> Server:
    """A server with its own history."""
    server = start()
    work(server)
    return server


def work(server: Server) -> None:
    """Put some jobs, take them and ack them."""
    with penstock.connect(url_of(server)) as queue:
        tube = queue.tube("mail", "fifo")
        for number in range(COUNT):
            tube.put(f"letter {number}")
        for _ in range(COUNT):
            tube.take().ack()


def load(spark: SparkSession, lake: Lake, server: Server) -> int:
    return Pipeline(spark, lake, Source((url_of(server),))).once()


def test_turns_and_compaction_on_s3_and_a_report_without_spark(
    spark: SparkSession, s3: S3, history: Server, tmp_path: Path
) -> None:
    place = s3.new_lake()
    assert load(spark, Lake(place, s3.options), history) == EVENTS_OF_JOBS
    work(history)
    lake = Lake(place, s3.options)
    assert load(spark, lake, history) == EVENTS_OF_JOBS
    assert load(spark, lake, history) == 0

    def puts() -> int:
        return sum(Lake(place, s3.options).pin().read(gold_table("rates"))["puts"].to_pylist())

    assert (lake.turn, lake.rows(EVENTS), puts()) == (2, 2 * EVENTS_OF_JOBS, 2 * COUNT)
    with lake.writing():
        before, after = compact(spark, lake)
    assert before > after > 0
    fresh = Lake(place, s3.options).pin()
    assert (fresh.rows(EVENTS), len(fresh.files(EVENTS)), puts()) == (2 * EVENTS_OF_JOBS, 1, 2 * COUNT)
    assert merge(JOBS, fresh.read(JOBS))["outcome"].to_pylist() == ["acked"] * 2 * COUNT

    storage = [word for each in s3.options.items() for word in ("--storage-option", "=".join(each))]
    query = ["pipeline", "replay", "SELECT * FROM jobs", "--lake", place, *storage, "--dry-run", "--json"]
    planned = CliRunner().invoke(app, query)
    assert planned.exit_code == 0, planned.output
    assert [json.loads(line)["jobs"] for line in planned.stdout.splitlines()] == [2 * COUNT]

    # Credentials come from the environment here, and from options above.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    words = [sys.executable, "-m", "penstock", "pipeline", "report", "--lake", place, "--to", "report.html"]
    paths = str(Path(penstock.__file__).parent.parent)
    environment = clean | s3.options | {"PYTHONPATH": paths}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mail" in done.stdout and SECRET not in done.stdout
    assert SECRET not in (tmp_path / "report.html").read_text()


def test_erased_jobs_leave_no_byte_in_a_store(spark: SparkSession, s3: S3, start: Callable[..., Server]) -> None:
    place, server = s3.new_lake(), start()
    with penstock.connect(url_of(server)) as queue:
        tube = queue.tube("mail", "utube")
        for key in ("secret-quokka", "public"):
            tube.put(f"letter to {key}", key=key)
    load(spark, Lake(place, s3.options), server)
    lake = Lake(place, s3.options)
    assert stored_with(lake, "secret-quokka") and stored_with(lake, "public")
    assert forget(spark, lake, Selection(tube="mail", keys=(b"secret-quokka",))).events == 1
    with lake.writing():
        assert vacuum(lake, 0)
    assert not stored_with(lake, "secret-quokka") and stored_with(lake, "public")
    assert [row["body"] for row in Lake(place, s3.options).pin().read(EVENTS).to_pylist()] == [b"letter to public"]
    assert load(spark, Lake(place, s3.options), server) == 0
    assert not audit(spark, Lake(place, s3.options), Source((url_of(server),))).broken


def stored_with(lake: Lake, text: str) -> list[str]:
    """Return the objects of a lake that contain a text, compressed or not."""
    files, found = lake.place.files(), []
    for each in files.get_file_info(fs.FileSelector("", recursive=True)):
        if each.type == fs.FileType.File:
            with files.open_input_file(each.path) as stored:
                data = stored.read()
            if each.path.endswith(".parquet"):
                data += repr(pq.read_table(pa.BufferReader(data)).to_pylist()).encode()
            if text.encode() in data:
                found.append(each.path)
    return found


def test_a_store_that_fails_during_a_turn_ends_it_with_one_sentence_and_leaves_nothing_readable(
    spark: SparkSession, s3: S3, faulty: FaultyStore, history: Server
) -> None:
    place = s3.new_lake()
    options = faulty.options | FAST
    faulty.inject("refuse", r"(PUT|POST) .*/bronze/events/.*\.parquet")  # In a Spark task.
    with pytest.raises(PipelineError, match=r"the store refuses access; check the credentials") as error:
        load(spark, Lake(place, options), history)
    assert "\n" not in str(error.value) and SECRET not in str(error.value)
    assert Lake(place, s3.options).rows(EVENTS) == 0

    faulty.inject("throttle", r"PUT .*/gold/rates/_delta_log/.*\.json")  # In the driver.
    with pytest.raises(BadPlace, match=r"gold/rates: the store is overloaded or throttles requests; try again later"):
        load(spark, Lake(place, options), history)
    # Bronze has the turn. The consistent view of all tables has nothing of it.
    unfinished = Lake(place, s3.options)
    assert (unfinished.turn, unfinished.rows(EVENTS), unfinished.rows(gold_table("rates"))) == (1, EVENTS_OF_JOBS, 0)

    faulty.inject("drop", every=3)  # Every third request, which is repeated.
    lake = Lake(place, options)
    assert load(spark, lake, history) == 0
    assert faulty.heal() > 10
    assert {lake.digested(table) for table in DERIVED} == {1}
    assert sum(Lake(place, s3.options).read(gold_table("rates"))["puts"].to_pylist()) == COUNT


def test_the_second_of_two_writers_is_refused(spark: SparkSession, s3: S3, history: Server) -> None:
    place = s3.new_lake()
    load(spark, Lake(place, s3.options), history)
    slow, fast = Lake(place, s3.options), Lake(place, s3.options)
    work(history)
    with slow.writing(), Source((url_of(history),)).connected() as logs:
        ranges = logs.new_ranges(slow, logs.heads())
        load(spark, fast, history)
        with pytest.raises(LakeInUse, match="was changed by another writer"):
            Pipeline(spark, slow, Source((url_of(history),))).copy(ranges)
    assert Lake(place, s3.options).rows(EVENTS) == 2 * EVENTS_OF_JOBS


def test_refused_rows_are_saved_to_s3(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, s3.options[name])
    bucket = s3.new_lake().removesuffix("/lake")
    place = f"{bucket}/refused"
    settings = f"?endpoint_override=127.0.0.1:{s3.port}&scheme=http&region=us-east-1"
    rows = pa.table({"value": ["x"], "error": ["[RANGE] too long"]})
    for _ in range(2):  # A repeated batch replaces the file.
        with saved(rows, f"{place}{settings}".replace("s3:", "s3a:"), "part-1.parquet"):
            pass
    files, path = fs.FileSystem.from_uri(f"{place}{settings}")
    assert [each.base_name for each in files.get_file_info(fs.FileSelector(path))] == ["part-1.parquet"]
    assert pq.read_table(f"{path}/part-1.parquet", filesystem=files).equals(rows)
    with pytest.raises(SourceError, match="nothing was published"), saved(rows, f"s3://missing/x{settings}", "part"):
        raise AssertionError("the block must not run")
