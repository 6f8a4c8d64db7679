"""Engine time is the wall clock after the journal was loaded, and is never behind the journal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock
from penstock.host import host as host_module
from penstock.host.host import Host, Store
from penstock.journal.disk import ReadableFile
from penstock.journal.real_disk import RealDisk, RealFile
from penstock.journal.recovery.opening import open_log
from penstock.testing.clock import SOME_MOMENT_MS
from penstock.testing.disk import MemoryDisk

# How long the journal takes to load here, and how much of that the clock may lag.
LOADING_S = 0.5
LAG_MS_MAX = 50


def put_jobs(directory: Path, count: int) -> None:
    with penstock.open(str(directory), fsync="never") as queue:
        queue.tube("q", type="fifottl").put_many([b"x"] * count)


def lag_ms(host: Host) -> int:
    """Return how far engine time is at least behind the wall clock."""
    before = time.time_ns() // 1_000_000
    return before - host.now()


def test_the_clock_does_not_lag_by_the_time_that_the_journal_took_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_jobs(tmp_path, 100)
    read, slow = RealFile.read, [LOADING_S]

    def read_slowly(file: RealFile, offset: int, length: int) -> bytes:
        if slow:
            time.sleep(slow.pop())
        return read(file, offset, length)

    monkeypatch.setattr(RealFile, "read", read_slowly)
    host = Host(0, store=Store(RealDisk(str(tmp_path))))
    assert not slow
    try:
        assert lag_ms(host) < LAG_MS_MAX
    finally:
        with host.lock:
            host.close()


def test_changes_during_an_open_have_the_time_after_the_journal_was_read() -> None:
    """Grace times start then, because a client cannot return to its session before."""
    disk, wall = MemoryDisk(), [SOME_MOMENT_MS]
    open_log(disk, lambda: wall[0], "boot").log.close(wall[0], wall[0])
    read = disk.open_to_read

    def open_slowly(name: str) -> ReadableFile:
        wall[0] += 1_000
        return read(name)

    disk.open_to_read = open_slowly  # type: ignore[method-assign]
    opened = open_log(disk, lambda: wall[0], "boot")
    assert opened.engine.now == wall[0] > SOME_MOMENT_MS


def test_a_clock_that_was_set_ahead_and_back_ends_no_job_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock is set ahead by an hour while the queue is open, and set back before the next open."""
    wall = [time.time_ns() // 1_000_000]
    monkeypatch.setattr(host_module, "wall_ms", lambda: wall[0])
    with penstock.open(str(tmp_path), fsync="never") as queue:
        tube = queue.tube("q", type="fifottl")
        tube.put(b"before", ttl=60)
        wall[0] += 3_600_000
        tube.put(b"after", ttl=60)
    wall[0] -= 3_600_000
    with penstock.open(str(tmp_path), fsync="never") as queue:
        assert [job.body for job in queue.tube("q", type="fifottl").take_many(10)] == [b"before", b"after"]


def test_the_clock_is_never_behind_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [time.time_ns() // 1_000_000]
    monkeypatch.setattr(host_module, "wall_ms", lambda: wall[0])
    host = Host(0, store=Store(RealDisk(str(tmp_path))))
    seen = host.now()
    with host.lock:
        host.close()
    wall[0] -= 3_600_000
    host = Host(0, store=Store(RealDisk(str(tmp_path))))
    assert host.now() >= seen
    with host.lock:
        host.close()
