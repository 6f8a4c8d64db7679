"""The commands `penstock backup`, `penstock restore` and `penstock journal repair`."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a queue of ten jobs. Three of them were acked after a snapshot."""
    with penstock.open(tmp_path / "queue") as queue:
        tube = queue.tube("emails", "fifottl")
        for number in range(10):
            tube.put(f"{number}")
        queue.checkpoint()
        for _ in range(3):
            job = tube.take()
            assert job is not None
            job.ack()
    return tmp_path / "queue"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def ready(directory: Path) -> list[str]:
    with penstock.open(directory) as queue:
        return [job.body for job in queue.tube("emails").jobs("ready")]


def test_a_backup_is_a_queue_that_only_its_owner_may_read(directory: Path, tmp_path: Path) -> None:
    result = run("backup", directory, tmp_path / "copy")
    assert result.exit_code == 0 and "the state after position" in result.output
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()} == {0o600}
    assert ready(tmp_path / "copy") == ready(directory) == [f"{number}" for number in range(3, 10)]


def test_a_backup_may_be_made_while_the_queue_is_in_use(directory: Path, tmp_path: Path) -> None:
    with penstock.open(directory) as queue:
        queue.tube("emails").put("new")
        assert run("backup", directory, tmp_path / "copy").exit_code == 0
    assert ready(tmp_path / "copy")[-1] == "new"


def test_a_restore_goes_back_to_a_position(directory: Path, tmp_path: Path) -> None:
    tail = run("journal", "tail", directory).output
    position = next(int(line.split()[0]) for line in tail.splitlines() if "acked" in line)
    result = run("restore", directory, tmp_path / "earlier", "--to-position", position)
    assert result.exit_code == 0 and f"the state after position {position}" in result.output
    assert ready(tmp_path / "earlier") == [f"{number}" for number in range(1, 10)]
    result = run("restore", directory, tmp_path / "never", "--to-position", 10_000)
    assert result.exit_code == 2 and re.search(r"after the end of the log, which is \d+", result.output)


@pytest.mark.parametrize("command", [("backup",), ("restore",)])
def test_a_source_without_a_queue_is_refused_and_creates_nothing(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for source, code in (("empty", 4), ("missing", 3), ("file", 1)):
        result = run(*command, tmp_path / source, tmp_path / "target")
        assert result.exit_code == code and source in result.output and "Traceback" not in result.output
        assert not (tmp_path / "target").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_a_copy_that_fails_leaves_nothing_behind(directory: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    target = tmp_path / "a" / "b"
    assert run("restore", directory, target, "--to-position", 10_000).exit_code == 2
    (tmp_path / "mine").mkdir()
    assert run("restore", directory, tmp_path / "mine", "--to-position", 10_000).exit_code == 2
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "mine"])


def test_a_restore_counts_the_files_that_it_made(directory: Path, tmp_path: Path) -> None:
    result = run("restore", directory, tmp_path / "copy", "--to-position", 3)
    made = len(list((tmp_path / "copy").iterdir()))
    assert result.exit_code == 0 and f": {made} files," in result.output.replace("\n", "")


def test_repair_does_what_its_dry_run_shows(directory: Path) -> None:
    assert "There is nothing to repair." in run("journal", "repair", directory).output
    segment = directory / "segment-0000000002.log"
    data = bytearray(segment.read_bytes())
    data[4_700] ^= 1
    segment.write_bytes(data)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert "see `penstock journal repair`" in run("journal", "check", directory).output
    dry = run("journal", "repair", directory, "--dry-run")
    assert dry.exit_code == 0 and "segment-0000000002.log" in dry.output
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    done = run("journal", "repair", directory)
    assert done.exit_code == 0 and "Kept files: segment-0000000002.log.damaged." in done.output
    assert run("journal", "check", directory).exit_code == 0
    assert len(ready(directory)) >= 7


def test_repair_refuses_what_it_cannot_repair(directory: Path, tmp_path: Path) -> None:
    result = run("journal", "repair", tmp_path / "missing")
    assert result.exit_code == 3 and not (tmp_path / "missing").exists()
    with penstock.open(directory):
        result = run("journal", "repair", directory)
        assert result.exit_code == 75 and "pid" in result.output


def test_a_restore_names_the_target_that_is_not_empty(directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / "file").touch()
    result = run("restore", directory, target)
    assert result.exit_code == 4 and f"the target {target} is not empty; name a new directory" in result.output


def test_a_repair_of_a_newer_log_is_refused_and_changes_nothing(directory: Path) -> None:
    segment = directory / "segment-0000000002.log"
    data = bytearray(segment.read_bytes())
    data[8] = 3
    segment.write_bytes(data)
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}
    for words in (["journal", "check"], ["journal", "repair"], ["journal", "stat"]):
        result = run(*words, directory)
        output = " ".join(result.output.split())
        assert result.exit_code != 0 and "written by a newer Penstock (format 3" in output
        assert "see `penstock journal repair`" not in output
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"} == before
