"""Guarantees of a lake for readers, and after a writer was killed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.client import commands
from penstock.client.commands import Call
from penstock.pipeline import lake as lakes
from penstock.pipeline import nodes
from penstock.pipeline.errors import BadLake
from penstock.pipeline.gold_reader import GoldReader
from penstock.pipeline.lake import Lake
from penstock.pipeline.source import Source
from penstock.pipeline.stream import behind
from penstock.pipeline.tables import gold_table
from penstock.pipeline.whatif import histories
from penstock.spark.events.ranges import time_at
from penstock.spark.node import Head, Node
from tests.server.serving import Server, wait_for

from .lake_rows import make_lake
from .test_report import minutes

RATES = gold_table("rates")
DAY = "2026-11-16"


def put(lake: Lake, puts: int) -> None:
    """Run a turn that replaces the day."""
    rows = [{**row, "date": datetime.date(2026, 11, 16)} for row in minutes(1, puts=puts)]
    with lake.writing():
        change = lake.change()
        change.replace(RATES, pa.Table.from_pylist(rows, RATES.arrow), [DAY])
        change.commit()


def puts(gold: GoldReader) -> int:
    return int(gold.summed("rates", [], puts="sum")[0]["puts"])


def folder(root: Path) -> list[dict[str, Any]]:
    """Return the rows that a tool sees that reads the whole folder."""
    return [row for path in (root / RATES.path).glob("*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


def test_a_reader_is_not_disturbed_by_later_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    put(lake, 1)
    began = GoldReader(Lake(tmp_path))
    put(lake, 2)
    put(lake, 3)
    assert puts(began) == 1 and puts(GoldReader(Lake(tmp_path))) == 3
    assert [row["puts"] for row in folder(tmp_path)] == [3]

    # Longer than any reader takes.
    monkeypatch.setattr(lakes, "REMOVED_FILES_KEPT_S", -1)
    put(lake, 4)
    assert len(list(lake.folder(RATES).glob("*/*.parquet"))) == 1


def test_links_that_a_killed_writer_did_not_create_are_created_by_the_next(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    put(lake, 1)
    old = next((tmp_path / RATES.path).glob("*/*.parquet"))
    body = old.read_bytes()
    put(lake, 2)
    next((tmp_path / RATES.path).glob("*/*.parquet")).unlink()
    old.write_bytes(body)
    began = GoldReader(Lake(tmp_path))
    with lake.writing():
        assert [row["puts"] for row in folder(tmp_path)] == [2]
    assert puts(began) == 2


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("manifest.json", "{", "is not a manifest"),
        ("manifest.json", '{"version": 1}', "was written by an older version; use that version, or create a new"),
        ("manifest.json", '{"version": 99}', "was written by a newer version"),
        ("nodes.json", "{", "remove it, and the next `once` creates it again"),
    ],
)
def test_a_damaged_lake_is_refused_with_one_sentence(tmp_path: Path, file: str, text: str, words: str) -> None:
    (tmp_path / "_state").mkdir()
    (tmp_path / "_state" / file).write_text(text)
    with pytest.raises(BadLake, match=words):
        nodes.load(Lake(tmp_path))


def test_a_node_that_reuses_positions_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "queue", jobs=20) as source:
        (head,) = source.heads().values()
        lake = Lake(tmp_path / "lake")
        with Node(source.urls[0]) as node, lake.writing():
            moment = time_at(node, head.end - 1)
            assert moment is not None
            lake.change().commit({head.node: head.end}, newest={head.node: moment})
        nodes.refresh(lake, source)
    do("backup", tmp_path / "queue", tmp_path / "backup")

    do("restore", tmp_path / "backup", tmp_path / "whole")
    with serving(tmp_path / "whole", jobs=1) as source:
        nodes.refresh(lake, source)  # The node has all events of the lake.

    do("restore", tmp_path / "backup", tmp_path / "part", "--to-position", 10)
    with serving(tmp_path / "part", jobs=1) as source:
        for _ in range(2):  # Its log ends before the last event of the lake, and then after it.
            with pytest.raises(BadLake, match=f"node {head.node} was restored, or .* create a new lake"):
                nodes.refresh(lake, Source(source.urls, gaps=True))
            put_jobs(source, 30)


def test_trimmed_rows_after_the_last_event_are_no_gap_if_they_were_read(tmp_path: Path) -> None:
    with serving(tmp_path / "queue", 5, "--history-bytes", "0") as source:
        lake = Lake(tmp_path / "lake")
        nodes.refresh(lake, source)
        last = end_of(source)
        for _ in range(10):
            penstock.connect(source.urls[0]).close()  # Sessions use positions, too.
        (head,) = source.heads().values()
        assert head.end > last
        with lake.writing():
            read = nodes.record_read(lake, source, {head.node: head.end})
            lake.change().commit({head.node: last}, newest=newest(source, last), read=read)
        trim(source)
        (trimmed,) = source.heads().values()
        assert last < trimmed.first == head.end
        nodes.refresh(lake, source)
        assert nodes.load(lake)[head.node]["since"] == 1
        assert nodes.read_to(lake, source.heads()) == {head.node: head.end} and behind(lake, source) == 0


def test_history_that_was_trimmed_before_it_was_read_is_always_a_gap(tmp_path: Path) -> None:
    with serving(tmp_path / "queue", 5, "--history-bytes", "0") as source:
        lake = Lake(tmp_path / "lake")
        nodes.refresh(lake, source)
        (node,) = source.heads()
        # Trimmed before the first read.
        trim(source)
        (head,) = source.heads().values()
        with lake.writing():
            read = nodes.record_read(lake, source, {node: head.end})
            assert nodes.load(lake)[node]["since"] == head.first > 1
            put_jobs(source, 1)
            last = end_of(source)
            lake.change().commit({node: last}, newest=newest(source, last), read=read)
        # Trimmed later, while a stream runs.
        put_jobs(source, 5)
        trim(source)
        (head,) = source.heads().values()
        nodes.record_read(lake, source, {node: head.end})
        assert nodes.load(lake)[node]["since"] == head.first > last


def test_a_lake_of_version_2_without_read_positions_can_be_continued(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.writing():
        lake.change().commit({"n": 100}, newest={"n": 1})
    path = tmp_path / "_state" / "manifest.json"
    old = {**json.loads(path.read_text()), "version": 2}
    del old["read"]
    path.write_text(json.dumps(old))
    lake = Lake(tmp_path)
    heads = {"n": Head("n", 0, 1, 200)}
    assert nodes.read_to(lake, heads) == {"n": 100}
    with lake.writing():
        lake.change().commit(read={"n": 150})
    assert nodes.read_to(Lake(tmp_path), heads) == {"n": 150}
    # The node was restored, so the rows at positions that were read before are new.
    assert nodes.read_to(Lake(tmp_path), {"n": Head("n", 0, 1, 120)}) == {"n": 100}


def end_of(source: Source) -> int:
    (head,) = source.heads().values()
    return head.end


def newest(source: Source, end: int) -> dict[str, int]:
    """Return the time of the row before a position, in the format of the manifest."""
    with Node(source.urls[0]) as node:
        moment = time_at(node, end - 1)
        assert moment is not None
        return {node.head().node: moment}


def trim(source: Source) -> None:
    """Replace the log by a snapshot. Node is used because it opens no session, which would add rows to the log."""
    end = end_of(source)
    with Node(source.urls[0]) as node:
        node.call(Call([b"BGREWRITEAOF"], commands.ignored, commands.REPEAT))
        wait_for(lambda: node.head().first >= end)


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


def test_whatif_includes_kept_jobs_that_were_removed_on_a_later_day(tmp_path: Path) -> None:
    noon = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
    done = {"tube": "t", "outcome": "acked", "wait_ms": 5, "run_ms": 7, "node": "n", "session": 1, "ready_at": noon}
    row = {**done, "first_take_at": noon, "finished_at": noon + datetime.timedelta(seconds=1)}
    lake = make_lake(tmp_path, {"2026-11-18": {"jobs": [row]}})
    day = datetime.date(2026, 11, 16)
    (history,) = histories(lake, None, day, day)
    assert history.waited_ms == [5]
