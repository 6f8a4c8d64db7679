"""`penstock journal` shows, checks and exports a log, and reports errors in one sentence."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.commands import journal
from penstock.cli.errors import REFUSED
from penstock.cli.main import app
from penstock.core.errors import DamagedJournal
from penstock.spark.events.schema import arrow_schema


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a queue with some events."""
    with penstock.open(tmp_path / "queue") as queue:
        tube = queue.tube("emails", "fifottl")
        tube.put("hello")
        job = tube.take()
        assert job is not None
        job.nack("no answer")
    return tmp_path / "queue"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["journal", *map(str, arguments)])


def test_check_reports_an_intact_log(directory: Path) -> None:
    result = run("check", directory)
    assert result.exit_code == 0 and "The log is intact." in result.output


def test_check_distinguishes_a_torn_tail_from_damage(directory: Path) -> None:
    path = directory / "segment-0000000001.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    result = run("check", directory)
    assert result.exit_code == 0 and "torn tail" in result.output
    path.write_bytes(whole)
    with penstock.open(directory) as queue:
        queue.tube("emails").put("again")
    path.write_bytes(whole[:4_200] + b"?" + whole[4_201:])
    result = run("check", directory)
    assert result.exit_code == 1 and "segment-0000000001.log is damaged at offset 4096" in result.output


def test_stat_counts_events(directory: Path) -> None:
    result = run("stat", directory)
    assert result.exit_code == 0
    for words in ("segments", "positions", "nacked", "stopped"):
        assert words in result.output


def test_tail_shows_the_last_events_in_words(directory: Path) -> None:
    result = run("tail", directory, "-n", 2)
    assert result.exit_code == 0
    nacked, stopped = result.output.splitlines()
    assert "nacked" in nacked and "taken → ready" in nacked and "(no answer)" in nacked
    assert "stopped" in stopped


def test_tail_and_export_name_the_client_that_acted(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue._session.connection.session.set_client(b"worker-3", b"ann")
        queue.tube("emails").put("hello")
    lines = run("tail", tmp_path).output.splitlines()
    assert [line.endswith("  by worker-3 (ann)") for line in lines if "put" in line or "session named" in line] == [
        True,
        True,
    ]
    told = [json.loads(line) for line in run("export", tmp_path).output.splitlines()]
    assert [(line["actor_name"], line["actor_user"]) for line in told if line["event"] == "put"] == [
        ("worker-3", "ann")
    ]


def test_follow_with_zero_lines_shows_only_new_events(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt
        if looks == 2:
            with penstock.open(directory) as queue:
                queue.tube("emails").put("again")

    monkeypatch.setattr(journal, "time", SimpleNamespace(sleep=sleep))
    lines = run("tail", "-n", 0, "-f", directory).output.splitlines()
    assert [line.split()[3] for line in lines] == ["tube", "put", "stopped"], lines


def test_control_characters_in_events_are_escaped(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        job = queue.tube("a\x1b[2J").put("hello")
        queue.tube("a\x1b[2J").take_many(1)[0].bury("no\nroute\x1b[31m")
    tail, history = ["journal", "tail", tmp_path / "queue"], ["job", "history", job.id, "-d", tmp_path / "queue"]
    # In the history of a job, a reason of several lines is one line.
    for words, reason in ((tail, "no\\nroute\\x1b[31m"), (history, "no route\\x1b[31m")):
        shown = CliRunner().invoke(app, [*map(str, words)]).output
        assert "\x1b" not in shown and "a\\x1b[2J" in shown
        assert reason in shown


def test_digest_shows_the_blocks_of_a_directory(directory: Path) -> None:
    with penstock.open(directory) as queue:
        [*expected] = queue.digests()
    shown = [json.loads(line) for line in run("digest", directory, "--json").output.splitlines()]
    assert shown[: len(expected) - 1] == [block.as_json() for block in expected[:-1]]
    assert shown[-1]["end"] >= expected[-1].end and sum(block["rows"] for block in shown) == 3
    [line] = run("digest", directory, "--from", 3, "--to", 5, "--json").output.splitlines()
    assert {**json.loads(line), "rows_sha256": "", "bodies_sha256": ""} == {
        **{"first": 3, "end": 5, "rows": 2},
        **{"rows_sha256": "", "bodies_sha256": ""},
    }
    text = run("digest", directory, "--from", 3, "--to", 5).output
    assert text.split()[-5:] == [str(value) for value in json.loads(line).values()]


def test_digest_of_rows_that_do_not_exist_is_empty(directory: Path) -> None:
    result = run("digest", directory, "--from", 1_000)
    assert result.exit_code == 0 and result.stdout == "" and "no rows there" in result.stderr


def test_digest_names_the_first_position_that_is_kept(directory: Path) -> None:
    with penstock.open(directory, history_bytes=0) as queue:
        queue.checkpoint()
    result = run("digest", directory, "--from", 1)
    assert result.exit_code == REFUSED and "the first that is kept is" in result.output


def test_export_writes_a_line_of_json_for_every_event(directory: Path) -> None:
    lines = [json.loads(line) for line in run("export", directory).output.splitlines()]
    assert [line["event"] for line in lines] == ["tube made", "integers reserved", "put", "taken", "nacked", "stopped"]
    assert lines[2]["body"] == "hello"
    without = [json.loads(line) for line in run("export", directory, "--from", 3, "--no-bodies").output.splitlines()]
    assert [line["position"] for line in without] == [3, 4, 5, 6] and "body" not in without[0]


def test_export_writes_the_events_of_jobs_as_parquet(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    assert run("export", directory, "--format", "parquet", "--to", path).exit_code == 0
    table = pq.read_table(path)
    assert table.schema.equals(arrow_schema()) and set(table["node"].to_pylist()) == {
        json.loads((directory / "node.json").read_text())["node"]
    }
    assert table["event"].to_pylist() == ["put", "taken", "nacked"]
    assert table["position"].to_pylist() == [3, 4, 5]
    assert table["body"].to_pylist()[0] == b"hello" and table["reason"].to_pylist()[2] == "no answer"

    piped = run("export", directory, "--format", "parquet", "--from", 4, "--no-bodies").stdout_bytes
    rows = pq.read_table(io.BytesIO(piped)).to_pylist()
    assert [row["position"] for row in rows] == [4, 5] and not any(row["body"] for row in rows)


def test_an_export_file_appears_only_when_complete(directory: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "events", tmp_path / "events"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        result = run("export", tmp_path / "empty", "--to", path)
        assert result.exit_code and isinstance(result.exception, SystemExit)
    assert not list(tmp_path.glob("events*"))


@pytest.mark.parametrize("command", ["check", "stat", "tail", "export"])
def test_a_directory_without_a_log_is_reported_in_one_sentence(tmp_path: Path, command: str) -> None:
    for place, code in ((tmp_path / "nowhere", 3), (tmp_path, 4)):
        result = run(command, place)
        assert result.exit_code == code and str(place) in result.output and "Traceback" not in result.output


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """Yield a queue whose segment this process may not read. As root, the process switches to another user."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "queue"
        with penstock.open(directory) as queue:
            queue.tube("emails").put("hello")
        for path in (Path(place), directory, directory / "node.json"):
            path.chmod(0o755)
        (directory / "segment-0000000001.log").chmod(0)
        (directory / "lock").chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)
        yield directory
        os.seteuid(user)


@pytest.mark.parametrize("command", ["check", "stat", "tail", "export", "repair"])
def test_missing_permissions_are_reported_in_one_sentence(forbidden: Path, command: str) -> None:
    result = run(command, forbidden)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert re.search(r"(segment-0000000001\.log|lock) is not readable or writable for you", result.output)


@pytest.mark.parametrize("command", ["check", "stat", "tail", "export", "repair"])
def test_a_missing_directory_is_reported_in_one_sentence(directory: Path, command: str) -> None:
    for place in (directory / "nothing", directory / "node.json"):
        result = run(command, place)
        assert result.exit_code == (3 if place.name == "nothing" else 1)
        assert isinstance(result.exception, SystemExit) and str(place) in result.output


def test_other_files_in_the_directory_are_not_changed(directory: Path) -> None:
    for name in ("segment-old.log", "snapshot-.log", "segment-1.log", "segment-0000000001.log.bak"):
        (directory / name).write_text("mine")
    with penstock.open(directory) as queue:
        queue.tube("emails").put("again")
        queue.checkpoint()
    assert run("check", directory).exit_code == 0
    assert run("stat", directory).exit_code == 0
    assert (directory / "segment-old.log").read_text() == "mine"


@pytest.mark.parametrize(
    "told",
    [
        '{"node": "ab", "key": "%s"}' % ("0" * 64),
        '{"node": "%s", "key": "00"}' % ("0" * 40),
        "[]",
        '{"node": 1, "key": 2}',
    ],
)
def test_an_invalid_identity_is_reported_in_one_sentence(directory: Path, told: str) -> None:
    (directory / "node.json").write_text(told)
    with pytest.raises(DamagedJournal, match=r"node\.json is damaged"):
        penstock.open(directory)
    result = run("stat", directory)
    assert result.exit_code == 1 and "node.json is damaged" in result.output
    assert "node.json is lost" in run("repair", directory, "--dry-run").output
    assert run("repair", directory).exit_code == 0
    assert (directory / "node.json.damaged").read_text() == told
    assert run("check", directory).exit_code == 0
