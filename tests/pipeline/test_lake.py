"""Guarantees of a lake for readers and writers, and the sentences about a damaged lake."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.client import commands
from penstock.client.commands import Call
from penstock.core.errors import Trimmed
from penstock.lake.errors import BadLake, PipelineError
from penstock.lake.lake import Lake
from penstock.lake.report_source import LakeSource
from penstock.lake.tables import GOLD, JOBS, gold_table
from penstock.pipeline.source import Source, unread
from penstock.pipeline.whatif import histories
from penstock.spark.node import Node
from tests.server.serving import Server, wait_for

from .lake_rows import add_rows, make_lake, minutes, read_logs

RATES = gold_table("rates")
DAY = "2026-11-16"


def puts(lake: Lake) -> int:
    return sum(lake.read(RATES)["puts"].to_pylist())


# ---- Readers and writers ---------------------------------------------------------------------------------------------


def test_a_pinned_reader_sees_the_last_complete_turn(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.writing():
        lake.create("second")
        add_rows(lake, {DAY: {"rates": minutes(1, puts=1)}})
        # The first turn is not complete.
        early = Lake(tmp_path).pin()
        assert puts(early) == 0 and early.turn == 0 and early.exists and early.grain == "second"
        lake.close_turn(lake.turn)
        # The second turn also creates a table.
        durations = {"tube": "t", "minute": minutes(1)[0]["minute"], "kind": "wait", "bucket": 1, "count": 1}
        add_rows(lake, {DAY: {"rates": minutes(1, puts=10), "durations": [durations]}})
        began = Lake(tmp_path).pin()
        assert puts(began) == 1 and began.turn == 1 and began.rows(gold_table("durations")) == 0
        assert puts(Lake(tmp_path)) == 11
        lake.close_turn(lake.turn)
    assert puts(began) == 1
    assert puts(Lake(tmp_path).pin()) == 11 and Lake(tmp_path).pin().rows(gold_table("durations")) == 1


# ---- Lakes that cannot be read ---------------------------------------------------------------------------------------


def sentence(read: Callable[[], object]) -> str:
    """Return the error of a read, which must be one line."""
    with pytest.raises(PipelineError) as refused:
        read()
    text = str(refused.value)
    assert "\n" not in text and "Traceback" not in text and len(text) < 400, text
    return text


def test_a_deleted_file_is_named(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {DAY: {"rates": minutes(1, puts=1)}})
    (file,) = (tmp_path / RATES.path).glob("*/*.parquet")
    file.unlink()
    said = sentence(lambda: Lake(tmp_path).read(RATES))
    assert file.name in said and str(lake.place) in said
    assert file.name in sentence(lambda: LakeSource(Lake(tmp_path)).gold("rates"))


def test_a_changed_byte_is_named_wherever_it_is(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, {DAY: {"rates": minutes(50, puts=1)}})
    (file,) = (tmp_path / RATES.path).glob("*/*.parquet")
    whole = file.read_bytes()
    before = lake.read(RATES)
    named = 0
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = Lake(tmp_path).read(RATES)
        except PipelineError as error:
            assert file.name in str(error) and "\n" not in str(error)
            named += 1
        else:
            # A byte of statistics, which are not used to read the rows.
            assert found.equals(before), at
    assert named > len(whole) / 7 / 4


# ---- Logs ------------------------------------------------------------------------------------------------------------


def test_a_node_that_reuses_positions_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with serving(tmp_path / "queue", jobs=20) as source:
        (head,) = source.heads().values()
        assert read_logs(lake, source) == 20
    do("backup", tmp_path / "queue", tmp_path / "backup")

    do("restore", tmp_path / "backup", tmp_path / "whole")
    with serving(tmp_path / "whole", jobs=1) as source, source.connected() as logs:
        logs.check_continues(lake)  # The node has all events of the lake.

    do("restore", tmp_path / "backup", tmp_path / "part", "--to-position", 10)
    with serving(tmp_path / "part", jobs=1) as source:
        for _ in range(2):  # Its log ends before the last event of the lake, and then after it.
            with pytest.raises(BadLake, match=f"node {head.node} was restored, or .* create a new lake"):
                read_logs(lake, Source(source.urls, gaps=True))
            put_jobs(source, 30)


def test_trimmed_rows_after_the_last_event_are_no_gap_if_they_were_read(tmp_path: Path) -> None:
    with serving(tmp_path / "queue", 5, "--history-bytes", "0") as source:
        lake = Lake(tmp_path / "lake")
        (node,) = source.heads()
        for _ in range(10):
            penstock.connect(source.urls[0]).close()  # Sessions use positions, too.
        assert read_logs(lake, source) == 5
        trim(source)
        assert source.heads()[node].first == lake.position(node) > 15
        assert read_logs(lake, source) == 0 and unread(lake, source) == {node: 0}


def test_history_that_was_trimmed_before_it_was_read_is_a_gap(tmp_path: Path) -> None:
    with serving(tmp_path / "queue", 5, "--history-bytes", "0") as source:
        lake = Lake(tmp_path / "lake")
        read_logs(lake, source)
        put_jobs(source, 5)
        trim(source)
        with pytest.raises(Trimmed, match=r"is no longer kept; .* continue there with --allow-gaps"):
            read_logs(lake, source)
        put_jobs(source, 2)
        assert read_logs(lake, Source(source.urls, gaps=True)) == 2


def trim(source: Source) -> None:
    """Replace the log by a snapshot. Node is used because it opens no session, which would add rows to the log."""
    (head,) = source.heads().values()
    with Node(source.urls[0]) as node:
        node.call(Call([b"BGREWRITEAOF"], commands.ignored, commands.REPEAT))
        wait_for(lambda: node.head().first >= head.end)


@contextmanager
def serving(directory: Path, jobs: int, *options: str) -> Iterator[Source]:
    """Run a server and put `jobs` jobs into it."""
    server = Server(directory.parent, "--dir", str(directory), *options)
    source = Source((f"penstock://127.0.0.1:{server.port}",))
    try:
        put_jobs(source, jobs)
        yield source
    finally:
        server.stop()


def put_jobs(source: Source, count: int) -> None:
    with penstock.connect(source.urls[0]) as queue:
        tube = queue.tube("t", "fifottl")
        for number in range(count):
            tube.put(str(number))


def do(*words: object) -> None:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.output


# ---- What if ---------------------------------------------------------------------------------------------------------


def test_whatif_includes_kept_jobs_that_were_removed_on_a_later_day(tmp_path: Path) -> None:
    noon = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
    done = {"tube": "t", "outcome": "acked", "wait_ms": 5, "run_ms": 7, "node": "n", "session": 1, "ready_at": noon}
    first = {**done, "job": 1, "position": 3, "outcome_position": 3, "first_take_at": noon, "state": "done"}
    first |= {"finished_at": noon + datetime.timedelta(seconds=1), "put_at": noon, "last_take_at": noon}
    later = {"tube": "t", "node": "n", "job": 1, "position": 9, "state": "gone", "event": "deleted"}
    lake = make_lake(tmp_path, {DAY: {"jobs": [first]}, "2026-11-18": {"jobs": [later]}})
    assert lake.rows(JOBS) == 2 and all(table.keys for table in GOLD)
    day = datetime.date(2026, 11, 16)
    (history,) = histories(lake, None, day, day)
    assert history.waited_ms == [5]
    with pytest.raises(PipelineError, match=r"no job of other was taken .*; tubes with such jobs: t$"):
        histories(lake, "other", day, day)
