"""A real directory, real processes, real faults: killed, full, failing, opened twice."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.errors import DamagedJournal, InUse, JournalFailed, NoSpace
from penstock.journal.log import SEGMENT_BYTES
from penstock.journal.real_disk import RealDisk, RealFile
from tests.journal.maintenance_waits import wait_for_rest


def test_a_directory_is_open_in_one_process_at_a_time(tmp_path: Path) -> None:
    program = "import penstock, sys; queue = penstock.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "queue")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(InUse, match=f"another process \\(pid {other.pid}\\)"):
        penstock.open(tmp_path / "queue")
    other.communicate()
    penstock.open(tmp_path / "queue").close()


def test_other_users_cannot_read_the_files(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("t").put("secret")
        wait_for_rest(queue)  # File names change until then.
        assert stat.S_IMODE(os.stat(tmp_path / "queue").st_mode) == 0o700
        for entry in os.scandir(tmp_path / "queue"):
            assert stat.S_IMODE(entry.stat().st_mode) == 0o600, entry.name


def test_a_sync_that_fails_stops_the_queue_and_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = penstock.open(tmp_path / "queue")
    tube = queue.tube("t")
    tube.put("durable")
    calls = []

    def fail(self: RealFile) -> None:
        calls.append(self)
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(RealFile, "sync", fail)
    with pytest.raises(JournalFailed, match="the disk is broken"):
        tube.put("not acknowledged")
    monkeypatch.undo()
    for attempt in (lambda: tube.put("later"), tube.take, tube.stats):
        with pytest.raises(JournalFailed):
            attempt()
    assert len(calls) == 1
    queue.close()
    with penstock.open(tmp_path / "queue") as again:
        assert "durable" in [job.body for job in again.tube("t").take_many(10)]


def test_a_full_disk_refuses_puts_while_takes_and_acks_go_on_and_puts_resume_with_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 * 1024 * 1024))
    body = os.urandom(256 * 1024)
    with penstock.open(small_disk / "queue") as queue:
        tube = queue.tube("t")
        accepted = 0
        with pytest.raises(NoSpace):
            for _ in range(1_000):
                tube.put(body)
                accepted += 1
        assert accepted > 20
        assert tube.stats()["ready"] == accepted
        for _ in range(accepted // 2):
            job = tube.take()
            assert job is not None
            job.ack()
        with pytest.raises(NoSpace):
            tube.put(body)
        ballast.unlink()
    with penstock.open(small_disk / "queue") as queue:
        assert queue.tube("t").stats()["ready"] == accepted - accepted // 2


def test_a_segment_that_is_full_is_followed_by_the_next(tmp_path: Path) -> None:
    body = os.urandom(3_000_000)
    with penstock.open(tmp_path / "queue", fsync="never") as queue:
        for _ in range(20):
            queue.tube("t").put(body)
    names = [name for name in os.listdir(tmp_path / "queue") if name.startswith("segment-")]
    assert len(names) >= 4
    with penstock.open(tmp_path / "queue") as queue:
        jobs = queue.tube("t").take_many(100)
        assert len(jobs) == 20 and all(job.body == body for job in jobs)


def test_a_body_larger_than_a_segment_is_kept(tmp_path: Path) -> None:
    body = os.urandom(20 * 1024 * 1024)
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("t").put(body)
        queue.tube("t").put("small")
    with penstock.open(tmp_path / "queue") as queue:
        assert [job.body for job in queue.tube("t").take_many(9)] == [body, "small"]


@pytest.mark.parametrize("fsync", ["everysec", "never"])
def test_an_idle_queue_syncs_its_last_rows_within_a_second_or_so(
    tmp_path: Path, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = penstock.open(tmp_path / "queue", fsync=fsync)
    log = queue._host.require_journal().log
    for _ in range(3):
        queue.tube("t").put("x")
        end = time.monotonic() + 10
        while log.durable < log.written:
            assert time.monotonic() < end
            time.sleep(0.01)
    syncs: list[int] = []
    sync = RealFile.sync
    monkeypatch.setattr(RealFile, "sync", lambda self: (syncs.append(1), sync(self)))
    time.sleep(2.5)
    assert not syncs, "a log without new rows is not synced"
    queue.close()


def test_a_busy_queue_is_synced_as_it_grows_and_not_every_second(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        host = queue._host
        journal, log = host.require_journal(), host.require_journal().log
        tube = queue.tube("t")
        tube.put("x")
        # No thread syncs in the background, because the queue was opened with another policy.
        log.fsync, host.syncs = "never", False
        # The calls of a session that exists already would still wait for the disk.
        with queue.session() as second:
            other = second.tube("t")
            for _ in range(2):
                other.put(os.urandom(1024 * 1024 + 1))
                assert journal.sync_in_background(grown=False) == 1.0
                assert log.durable < log.written
            other.put("the last one")
            assert journal.sync_in_background(grown=False) == 1.0
            assert log.durable == log.written
            other.put(os.urandom(1024 * 1024 + 1))
            journal.sync_in_background(grown=True)
            assert log.durable == log.written
            log.fsync = "always"
            assert journal.sync_in_background(grown=False) is None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: (path / "node.json").write_text("{}"), "node.json is damaged"),
        (lambda path: (path / "node.json").unlink(), "node.json is missing"),
        (lambda path: (path / "segment-0000000001.log").write_bytes(b"x" * 5_000), "not a file of a Penstock log"),
        (lambda path: (path / "segment-0000000001.log").write_bytes(b""), "not a file of a Penstock log"),
        (lambda path: (path / "segment-0000000001.log").rename(path / "segment-0000000007.log"), "0001.log is missing"),
        (lambda path: (path / "segment-0000000003.log").rename(path / "segment-0000000007.log"), "renamed by mistake"),
        (lambda path: (path / "segment-0000000002.log").unlink(), "segment-0000000002.log is missing"),
        (lambda path: _link(path, ["segment-0000000002.log"]), "segment-0000000002.log is a symbolic link"),
        (
            lambda path: _link(path, [f"segment-000000000{number}.log" for number in (1, 2, 3)]),
            "log is a symbolic link",
        ),
        (lambda path: _patch(path / "segment-0000000001.log", 8, b"\x03"), "newer Penstock"),
        (lambda path: _patch(path / "segment-0000000001.log", 10, b"\x01"), "newer Penstock"),
        (lambda path: _patch(path / "segment-0000000001.log", 40, b"\xff"), "offset 0"),
    ],
)
def test_a_directory_that_was_tampered_with_is_refused_by_name(tmp_path: Path, spoil: Any, words: str) -> None:
    for _ in range(3):
        with penstock.open(tmp_path / "queue") as queue:
            queue.tube("t").put("x")
    spoil(tmp_path / "queue")
    before = {entry.name: entry.stat().st_size for entry in os.scandir(tmp_path / "queue")}
    with pytest.raises(DamagedJournal, match=words):
        penstock.open(tmp_path / "queue")
    assert {entry.name: entry.stat().st_size for entry in os.scandir(tmp_path / "queue")} == before


def _link(path: Path, names: list[str]) -> None:
    """Move files elsewhere and leave symbolic links in their place."""
    for name in names:
        (path / name).rename(path.parent / name)
        (path / name).symlink_to(path.parent / name)


def _patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_file_where_the_directory_should_be_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("not a directory")
    with pytest.raises(OSError):
        RealDisk(str(tmp_path / "queue"))


def test_a_garbage_collected_queue_unlocks_its_directory_and_warns(tmp_path: Path) -> None:
    queue = penstock.open(tmp_path)
    queue.tube("t").put("x")
    wait_for_maintenance(queue)
    with pytest.warns(ResourceWarning, match=f"the queue in {tmp_path} was not closed"):
        del queue
    assert open_files(tmp_path) == []
    with penstock.open(tmp_path) as queue:
        job = queue.tube("t").take()
        assert job is not None and job.body == "x"


def open_files(directory: Path) -> list[str]:
    """Return the open files of this process below a directory."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # For example the descriptor that lists them.
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(str(directory))]


def test_a_garbage_collected_session_does_not_keep_the_queue_open(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifottl")
        tube.put("x")
        assert queue.session().tube("t").take() is not None
        assert tube.stats()["taken"] == 1
    with penstock.open(tmp_path) as queue:
        assert queue.tube("t").stats()["ready"] == 1


def wait_for_maintenance(queue: penstock.Queue) -> None:
    """Wait until maintenance has no reference to the queue, because it keeps one while it works."""
    queue.checkpoint()
    end = time.monotonic() + 10
    while queue._host.require_journal()._maintenance._seen == 0 or sys.getrefcount(queue._host.journal) > 2:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_created_directories_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    penstock.open(tmp_path / "a" / "b" / "queue").close()
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= synced
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "b" / "queue").st_mode) == 0o700
    synced.clear()
    penstock.open(tmp_path / "a" / "b" / "queue").close()
    assert str(tmp_path / "a" / "b") not in synced


@pytest.mark.parametrize("done", ["create", "replace", "rename", "remove"])
def test_a_name_is_durable_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: str) -> None:
    disk = RealDisk(str(tmp_path))
    disk.replace("old", b"content")
    happened: list[str] = []

    def note(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def noted(*args: Any) -> None:
            call(*args)
            path = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else ""
            happened.append(f"{name} names" if path == str(tmp_path) else name)

        return noted

    for name in ("fsync", "rename", "unlink"):
        monkeypatch.setattr(os, name, note(name, getattr(os, name)))
    if done == "create":
        disk.create("new", 8_192, b"head").close()
    elif done == "replace":
        disk.replace("new", b"content")
    elif done == "rename":
        disk.rename("old", "new")
    else:
        disk.remove("old")
    assert happened[-2:] == ["unlink" if done == "remove" else "rename", "fsync names"]


def test_filling_a_segment_keeps_its_size_and_content(tmp_path: Path) -> None:
    with penstock.open(tmp_path, fsync="never") as queue:
        log = queue._host.require_journal().log
        log.prepare()
        log.fill()
        path = tmp_path / "segment-0000000002.log"
        assert path.stat().st_size == SEGMENT_BYTES <= path.stat().st_blocks * 512
        assert not any(path.read_bytes()[4_096:])
        queue.tube("x").put("before")
        queue.checkpoint()
        queue.tube("x").put("after")
        assert log.segment == 2
    with penstock.open(tmp_path) as queue:
        assert [job.body for job in queue.tube("x").jobs("ready")] == ["before", "after"]
