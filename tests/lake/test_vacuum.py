"""Vacuum: which files are deleted, in a directory and in an object store. Without Spark."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.lake.files import write_table
from penstock.lake.lake import Lake
from penstock.lake.tables import USER, USER_KEYS, USER_MEASURES, gold_table, tally
from penstock.lake.vacuum import unused_files, vacuum

from .stores import S3

RATES = gold_table("rates")
DAY = datetime.date(2026, 11, 16)
NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)


@pytest.fixture(params=["directory", "s3"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Lake]:
    """Open an empty lake, again and again."""
    if request.param == "directory":
        return lambda: Lake(tmp_path / "lake")
    s3: S3 = request.getfixturevalue("s3")
    place = s3.new_lake()
    return lambda: Lake(place, s3.options)


def put(lake: Lake, puts: int, turn: int) -> None:
    """Replace all rows of a gold table by one row, and do not end the turn."""
    rows = pa.Table.from_pylist([{"tube": "mail", "minute": NOON, "puts": puts, "date": DAY}], RATES.arrow)
    lake.log(RATES).commit(write_table(lake.place, RATES, rows, turn), lake.files(RATES))


def stored(lake: Lake) -> set[str]:
    """Return the data files of the gold table that the store has."""
    found = lake.place.files().get_file_info(fs.FileSelector(RATES.path, recursive=True))
    return {each.path for each in found if each.path.endswith(".parquet") and "_delta_log" not in each.path}


def test_only_files_that_no_version_in_use_has_are_deleted(new: Callable[[], Lake]) -> None:
    lake = new()
    with lake.writing():
        lake.create()
        put(lake, 1, 1)
        lake.close_turn(1)
        pinned = stored(lake)
        # A checkpoint is written after ten commits. It remembers when files were removed.
        for number in range(2, 15):
            put(lake, number, number)
        newest = {f"{RATES.path}/{file.path}" for file in lake.files(RATES)}
        assert len(stored(lake)) == 14
        assert unused_files(lake, 3600) == [], "files were removed a moment ago, and a reader may use them"
        assert len(vacuum(lake, 0)) == 12
        assert stored(lake) == pinned | newest
        assert new().pin().read(RATES)["puts"].to_pylist() == [1]
        lake.close_turn(14)
        assert {each.path for each in vacuum(lake, 0)} >= pinned
    assert stored(lake) == newest
    assert new().pin().read(RATES)["puts"].to_pylist() == [14]


def test_files_of_an_interrupted_turn_are_deleted_and_tables_of_users_are_kept(new: Callable[[], Lake]) -> None:
    lake = new()
    mine = tally("mine", "tube string", "jobs", USER)
    rows = pa.Table.from_pylist([{"tube": "mail", "jobs": 3, "date": DAY}], mine.arrow)
    with lake.writing():
        lake.create()
        lake.log(mine).create({USER_KEYS: "tube string", USER_MEASURES: "jobs"})
        lake.log(mine).commit(write_table(lake.place, mine, rows, 1))
        write_table(lake.place, mine, rows, 2)
        # The first turn of this table was interrupted before it had a log.
        strays = write_table(lake.place, RATES, pa.Table.from_pylist([{"tube": "a", "date": DAY}], RATES.arrow), 1)
        lake.close_turn(1)
        assert lake.user_tables() == [mine]
        gone = [each.path for each in vacuum(lake, 0)]
        assert len(gone) == 2 and f"{RATES.path}/{strays[0].path}" in gone
    assert new().pin().read(mine)["jobs"].to_pylist() == [3]


def test_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.writing():
        lake.create()
        put(lake, 1, 1)
        put(lake, 2, 2)
        lake.close_turn(2)
    words = ["pipeline", "vacuum", "--lake", str(tmp_path), "--older-than", "0"]
    planned = CliRunner().invoke(app, [*words, "--dry-run"])
    assert (
        planned.exit_code == 0
        and planned.output.startswith("1 unused files with ")
        and "would be deleted" in planned.output
    )
    assert len(stored(lake)) == 2
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and " deleted" in done.output
    assert len(stored(lake)) == 1
    refused = CliRunner().invoke(app, ["pipeline", "vacuum", "--lake", str(tmp_path), "--older-than", "forever"])
    assert refused.exit_code == 2 and "nothing is older than forever" in refused.output
    with lake.writing():
        busy = CliRunner().invoke(app, words)
    assert busy.exit_code != 0 and "is in use by another writer" in busy.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "use one of --before, --tube and --job"),
        (["--tube", "a", "--before", "2026-11-16"], "use one of --before, --tube and --job"),
        (["--key", "k", "--before", "2026-11-16"], "--key needs the tube of the jobs; add --tube"),
        (["--job", "17"], "'17' is not a job of a node; write it as NODE:NUMBER"),
        (["--before", "monday"], "'monday' is not a day; write it as 2026-11-16"),
    ],
)
def test_a_wrong_request_to_forget_is_refused_before_spark_starts(
    tmp_path: Path, words: list[str], sentence: str, needs: Callable[[object, str], None]
) -> None:
    needs(find_spec("pyspark"), "Spark is not installed")
    refused = CliRunner().invoke(app, ["pipeline", "forget", "--lake", str(tmp_path), *words])
    assert refused.exit_code == 2 and sentence in refused.output
