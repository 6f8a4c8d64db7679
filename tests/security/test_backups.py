"""Backups, restores, exports and imports."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app
from penstock.core.errors import DamagedJournal, PenstockError
from tests.journal.maintenance_waits import wait_for_rest
from tests.security.attempts import attempt

SECRET = "nobody else reads this"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask with which files created without a mode can be read and written by all users."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """The directory of a queue with history and a snapshot."""
    directory = tmp_path / "queue"
    with penstock.open(directory) as queue:
        tube = queue.tube("t")
        for number in range(20):
            tube.put(f"{SECRET} {number}")
        queue.checkpoint()
        tube.put(SECRET)
        wait_for_rest(queue)
    return directory


def run(*words: object, code: int | None = None) -> Result:
    """Run the command line."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr
    assert code is None or done.exit_code == code, (words, done.exit_code, done.stderr)
    return done


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in directory.rglob("*") if path.is_file()}


@attempt(
    "read jobs as another user of the machine: from the queue's directory, a backup, a restored one or an export",
    port="files",
    caller="another user, where the owner has umask 0",
    result="directories have mode 0700 and files 0600",
)
def test_copies_are_as_private_as_the_queue(queue: Path, tmp_path: Path, open_umask: None) -> None:
    run("backup", queue, tmp_path / "copy", code=0)
    run("restore", tmp_path / "copy", tmp_path / "restored", code=0)
    for directory in ("queue", "copy", "restored"):
        assert stat.S_IMODE((tmp_path / directory).stat().st_mode) == 0o700
        assert modes(tmp_path / directory) == {0o600}, directory
    run("journal", "export", queue, "--bodies", "--to", tmp_path / "events.jsonl", code=0)
    assert SECRET in (tmp_path / "events.jsonl").read_text()
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600
    run("journal", "export", queue, "--format", "parquet", "--bodies", "--to", tmp_path / "events.parquet", code=0)
    assert stat.S_IMODE((tmp_path / "events.parquet").stat().st_mode) == 0o600


@attempt(
    "let an export write through a link: FILE.part and FILE are links to another file",
    port="files",
    caller="another user who may write to the directory of the export",
    result="the links are replaced; the other file is unchanged",
)
def test_an_export_follows_no_link(queue: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out").symlink_to(victim)
    (tmp_path / "out.part").symlink_to(victim)
    run("journal", "export", queue, "--to", tmp_path / "out", code=0)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out").is_symlink() and not (tmp_path / "out.part").exists()


@attempt(
    "restore into a directory that has files, hidden files, links or directories",
    port="files",
    caller="operator by mistake",
    result="refused (exit code 4); nothing is changed",
)
def test_only_an_empty_directory_is_restored_into(queue: Path, tmp_path: Path) -> None:
    for number, make in enumerate[Callable[[Path], object]](
        [
            lambda place: (place / "file").write_text("x"),
            lambda place: (place / ".hidden").write_text("x"),
            lambda place: (place / "link").symlink_to("/nowhere"),
            lambda place: (place / "directory").mkdir(),
        ]
    ):
        target = tmp_path / f"target{number}"
        target.mkdir()
        make(target)
        before = sorted(os.listdir(target))
        for command in ("backup", "restore"):
            done = run(command, queue, target, code=4)
            assert "not empty" in done.stderr
            assert sorted(os.listdir(target)) == before


@attempt(
    "a hostile backup: links in place of its files, files with odd names, a log under another name",
    port="files",
    caller="author of the backup",
    result="links are refused; other names are not copied; nothing outside is read or written",
)
def test_a_backup_reaches_nothing_outside(queue: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("node.json", "lock", *(path.name for path in queue.glob("*.log"))):
        hostile = tmp_path / f"hostile-{name}"
        shutil.copytree(queue, hostile)
        (hostile / name).unlink(missing_ok=True)
        (hostile / name).symlink_to(victim)
        done = run("restore", hostile, tmp_path / f"restored-{name}")
        if name != "lock":
            assert done.exit_code == 1 and "is a symbolic link" in done.stderr, done.stderr
            assert not (tmp_path / f"restored-{name}").exists()
        try:
            penstock.open(hostile).close()
            assert name not in ("node.json", "lock")
        except (PenstockError, RuntimeWarning) as error:
            assert "is a symbolic link" in str(error)
        run("put", "t", "x", "--dir", hostile)
        assert victim.read_text() == "precious", name
    odd = tmp_path / "odd"
    shutil.copytree(queue, odd)
    names = (
        "segment-..%2f..%2fx.log",
        "snapshot-1.log\n",
        "segment-00000000099.log",
        "-rf",
        "\x1b[2J",
        "node.json.new",
    )
    for name in names:
        (odd / name).write_text("x")
    run("restore", odd, tmp_path / "plain", code=0)
    assert not {path.name for path in (tmp_path / "plain").iterdir()} & set(names)
    shutil.copyfile(next(odd.glob("segment-*.log")), odd / "segment-0000000077.log")
    assert run("restore", odd, tmp_path / "never").exit_code == 1
    assert not (tmp_path / "never").exists()


@attempt(
    "open the files that an interrupted restore left: a snapshot, a segment, or a part of one, without node.json",
    port="files",
    caller="operator after a crash",
    result="refused: it is not a queue, and no new one is created there",
)
def test_an_incomplete_restore_is_not_opened(queue: Path, tmp_path: Path) -> None:
    snapshot = next(queue.glob("snapshot-*.log")).name
    segment = next(queue.glob("segment-*.log")).name
    for number, (source, name) in enumerate(
        ((snapshot, snapshot), (segment, segment), (snapshot, f"{snapshot}.new"), (segment, f"{segment}.new"))
    ):
        half = tmp_path / f"half{number}"
        half.mkdir(mode=0o700)
        shutil.copyfile(queue / source, half / name)
        with pytest.raises(DamagedJournal, match="interrupted"):
            penstock.open(half)
        assert [path.name for path in half.iterdir() if path.name != "lock"] == [name]
        assert run("restore", queue, half).exit_code == 4


LINES = [
    b'{"tube": "t", "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"tube": "t", "body": ' + b'{"a":' * 2_000 + b"1" + b"}" * 2_000 + b"}",
    b'{"tube": "t", "body": ' + b"9" * 5_000 + b"}",
    b'{"tube": "t", "body": 1, "priority": ' + b"9" * 100 + b"}",
    b'{"tube": "t", "body": 1, "priority": 1e400}',
    b'{"tube": "t", "body": 1, "nacks": 99999999999999999999}',
    b'{"tube": "t", "body": 1, "nacks": -1}',
    b'{"tube": "t", "body": 1, "delay": 1e400}',
    b'{"tube": "t", "body": 1, "delay": NaN}',
    b'{"tube": "t", "body": 1, "delay": -Infinity}',
    b'{"tube": "t", "body": 1, "ttl": 99999999999999999999999999}',
    b'{"tube": "t", "body": 1, "ttr": [1]}',
    b'{"tube": "t", "body": 1, "key": {"a": 1}}',
    b'{"tube": "t", "body": 1, "retry": "99999999999999999999x then move t"}',
    b'{"tube": "t", "body": 1, "once": "yes", "urgent": 7}',
    b'{"tube": "t", "body": 1, "name": "\\ud800"}',
    b'{"tube": "t", "body": "\\ud800"}',
    b'{"tube": "\\ud800", "body": 1}',
    b'{"tube": "' + b"t" * 70_000 + b'", "body": 1}',
    b'{"tube": "", "body": 1}',
    b'{"tube": ["t"], "body": 1}',
    b'{"tube": "t", "body_base64": 7}',
    b'{"tube": "t", "body_base64": "%%%"}',
    b'{"tube": "t", "body": 1, "body_base64": ""}',
    b'{"tube": "t", "body": 1, "../x": 1}',
    b'{"tube": "t", "body": 1, "tube\\u001b[2J": 1}',
    b'"t"',
    b"[]",
    b"\xff\xfe",
    b"\x00" * 1_000,
    b"{" * 1_000,
]


@attempt(
    "import JSON lines with deep nesting, huge numbers, wrong types, bytes that are not text, and names with escapes",
    port="files",
    caller="author of the file",
    result="each bad line is reported in one sentence and skipped; the good ones are imported (exit code 1)",
)
def test_hostile_lines_are_passed_over(tmp_path: Path) -> None:
    file, target = tmp_path / "jobs.jsonl", tmp_path / "into"
    good = b'{"tube": "t", "body": "good"}'
    file.write_bytes(b"\n".join([good, *LINES, good]) + b"\n")
    dry = run("import", "jsonl", file, "--into", target, "--dry-run", code=1)
    assert "would be imported" in dry.stdout
    done = run("import", "jsonl", file, "--into", target, code=1)
    assert "\x1b" not in done.stderr and "\x1b" not in done.stdout
    assert all(line.startswith("penstock: ") for line in done.stderr.splitlines())
    with penstock.open(target) as queue:
        assert [job.body for job in queue.tube("t").jobs("ready")] == ["good", "good"]
    state = json.loads(next(tmp_path.glob("jobs.jsonl.*")).read_text())
    assert state["imported"] == 2


def loadjob(**changes: int) -> bytes:
    """Return a line of Disque's AOF."""
    fields = {"expires": 2**32 - 1, "created": 2**64 - 1, "delay": 2**32 - 1, "retry": 2**32 - 1, "nodes": 0} | changes
    id = b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
    head = struct.pack(
        *("<40sBBHIQIIHH", id, 2, 0, 65_535, fields["expires"], fields["created"], fields["delay"]),
        *(fields["retry"], 65_535, 65_535),
    )
    body = head + struct.pack("<I", 1) + b"q" + struct.pack("<I", fields.get("body", 4)) + b"body"
    body += struct.pack("<I", fields["nodes"])
    raw = struct.pack("<I", fields.get("length", len(body))) + body
    return b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n" % len(raw) + raw + b"\r\n"


@attempt(
    "import a Disque file with absurd lengths, counts and times",
    port="files",
    caller="author of the file",
    result="one sentence and exit code 1; times that are too long are refused job by job",
)
@pytest.mark.parametrize(
    "data",
    [
        loadjob(length=2**32 - 1),
        loadjob(body=2**32 - 1),
        loadjob(nodes=2**32 - 1),
        b"*2\r\n$7\r\nLOADJOB\r\n$999999999999\r\n",
        b"*1048577\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*" + b"9" * 10_000 + b"\r\n",
        b"*2\r\n$7\r\nSHUTDOW\r\n$1\r\nx\r\n",
        b"REDIS0009" + b"\xff" * 1_000,
    ],
    ids=lambda data: repr(data[:16]),
)
def test_a_hostile_file_of_disque_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "aof").write_bytes(data)
    done = run("import", "disque-aof", tmp_path / "aof", "--into", tmp_path / "into", code=1)
    assert done.stderr.startswith("penstock: ") and done.stderr.count("\n") == 1


@attempt(
    "import a Disque job whose times and counters are as large as their fields",
    port="files",
    caller="author of the file",
    result="imported or refused in a sentence",
)
def test_a_job_of_disque_with_the_largest_times(tmp_path: Path) -> None:
    (tmp_path / "aof").write_bytes(loadjob())
    done = run("import", "disque-aof", tmp_path / "aof", "--into", tmp_path / "into")
    assert done.exit_code in (0, 1)
