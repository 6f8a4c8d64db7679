"""History is limited by size and by age, with or without bodies. Jobs are never removed."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import policy
from penstock.core.errors import OutOfRange
from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.journal.history.reader import Reader
from penstock.journal.log import SEGMENT_BYTES
from penstock.journal.maintenance.retention import Retention, trim, without_bodies
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import number_of, segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk
from tests.journal.shortened_queue import SEGMENT, WALL, busy, put, reopen

HOUR = 3_600_000


def disk_bytes(directory: Path) -> int:
    """Return the used bytes, without the reserve file, which is released when space is needed."""
    total = 0
    for entry in os.scandir(directory):
        # The next segment may get its name meanwhile.
        with contextlib.suppress(FileNotFoundError):
            total += 0 if entry.name.startswith("ballast") else entry.stat().st_size
    return total


def names(directory: Path, kind: str) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith(kind))


def files_with(directory: Path, secret: bytes) -> list[str]:
    found = []
    for path in directory.iterdir():
        # The next segment may get its name meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if secret in path.read_bytes():
                found.append(path.name)
    return sorted(found)


def pass_through(tube: penstock.Tube, count: int, body: bytes) -> None:
    """Put, take and ack `count` jobs."""
    for _ in range(count):
        tube.put(body)
        job = tube.take()
        assert job is not None
        job.ack()


@pytest.mark.parametrize("history_bytes", [0, 1024 * 1024, 20 * 1024 * 1024])
def test_disk_use_is_bounded_while_the_oldest_job_stays_readable(tmp_path: Path, history_bytes: int) -> None:
    body, old_body = os.urandom(100_000), os.urandom(5_000)
    options: dict[str, Any] = {"fsync": "never", "history_bytes": history_bytes}
    for _ in range(2):
        with penstock.open(tmp_path, **options) as queue:
            old, tube = queue.tube("old"), queue.tube("t")
            if not old.stats()["ready"]:
                old.put(old_body)
            for _ in range(5):
                pass_through(tube, 60, body)
                queue.checkpoint()
                # The present segment, the next one, a snapshot of one job, and the history that is allowed.
                assert disk_bytes(tmp_path) <= 2 * SEGMENT_BYTES + 50_000 + history_bytes
                assert len(names(tmp_path, "snapshot")) == 1
    with penstock.open(tmp_path, **options) as queue:
        job = queue.tube("old").take()
        assert job is not None and job.body == old_body
        assert queue.tube("t").events()["acked"] == 600


def test_history_is_kept_up_to_its_limit_and_no_further(tmp_path: Path) -> None:
    with penstock.open(tmp_path, history_bytes=10 * 1024 * 1024) as queue:
        tube = queue.tube("t")
        for _ in range(6):
            pass_through(tube, 3, bytes(1024 * 1024))
            queue.checkpoint()
        # Each full segment has 3 MB, so there is room for three of them.
        full = [f"segment-{number:010d}.{kind}" for number in (4, 5, 6) for kind in ("idx", "log")]
        # The next segment may have been created ahead.
        made = [name for name in names(tmp_path, "segment") if name != "segment-0000000008.log"]
        assert made == [*full, "segment-0000000007.log"]
        kept = [event.position for event in queue.events()]
        # Each round has 9 rows, and one row with the name of the tube.
        assert kept == list(range(kept[0], kept[-1] + 1)) and 3 * 9 <= len(kept) <= 3 * 10


def test_without_a_limit_all_of_the_history_is_kept(tmp_path: Path) -> None:
    with penstock.open(tmp_path, fsync="never", history_bytes=None, history=None) as queue:
        tube = queue.tube("t")
        for _ in range(4):
            pass_through(tube, 5, b"x")
            queue.checkpoint()
        events = list(queue.events())
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        assert [event.event for event in events].count("acked") == 20


def test_a_negative_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfRange, match="history_bytes"):
        penstock.open(tmp_path, history_bytes=-1)


@pytest.mark.parametrize(("age", "kept"), [(0, 0), (HOUR, 0), (HOUR + 1, 2), (3 * HOUR, 3), (NEVER, 5)])
def test_a_segment_of_history_is_removed_when_all_of_it_is_too_old(age: int, kept: int) -> None:
    """A segment ends when the next one has its first row. The segments end an hour apart, the last one an hour ago."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    for hour in range(5):
        put(opened, b"hour %d" % hour, WALL + hour * HOUR)
        take_snapshot(disk, opened.log, opened.engine, WALL, WALL + hour * HOUR)
    assert [number_of(name) for name in segment_names(disk)] == [1, 2, 3, 4, 5, 6]
    trim(disk, opened.log, Retention(NEVER, age), WALL + 5 * HOUR)
    assert [number_of(name) for name in segment_names(disk)] == list(range(6 - kept, 7))
    assert snapshot_names(disk) == ["snapshot-0000000006.log"]
    engine = reopen(disk).engine
    assert [engine.outbox.body_of(job) for job in engine.jobs.scan(0, 9)] == [b"hour %d" % hour for hour in range(5)]


def test_a_clock_that_was_ahead_once_does_not_keep_history_for_ever() -> None:
    """All rows of a segment were written before any later segment started, even if the next header says otherwise."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    for hour in (0, 1, 100_000, 3, 4):
        put(opened, b"hour %d" % hour, WALL + hour * HOUR)
        take_snapshot(disk, opened.log, opened.engine, WALL, WALL + hour * HOUR)
    trim(disk, opened.log, Retention(NEVER, HOUR), WALL + 5 * HOUR)
    assert [number_of(name) for name in segment_names(disk)] == [6]


def test_a_snapshot_of_a_queue_that_was_idle_is_as_young_as_it_is() -> None:
    """Otherwise it would be too old at once, and would be taken again at each check."""
    disk = MemoryDisk()
    opened = busy(disk)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL + 1_000 * HOUR)
    assert opened.log.recovery_range.since == WALL + 1_000 * HOUR


def test_without_a_snapshot_nothing_is_removed_however_old() -> None:
    disk = MemoryDisk()
    opened = busy(disk)
    before = disk.names()
    trim(disk, opened.log, Retention(0, 0), WALL + 1_000 * HOUR)
    assert disk.names() == before
    assert without_bodies(disk, opened.log) is None


def test_an_abandoned_snapshot_does_not_allow_removal_of_segments() -> None:
    """Its segment was started, but it does not replace the segments before."""
    disk = MemoryDisk()
    opened = busy(disk)
    opened.log.begin_snapshot(WALL, WALL)
    put(opened, b"second")
    before = disk.names()
    trim(disk, opened.log, Retention(0, 0), WALL + 1_000 * HOUR)
    assert disk.names() == before


def test_bodies_of_finished_jobs_are_in_no_file_after_a_checkpoint(tmp_path: Path) -> None:
    acked, deleted, replaced, result, kept, waiting = (os.urandom(30).hex() for _ in range(6))
    with penstock.open(tmp_path, history_bodies=False) as queue:
        tube = queue.tube("t")
        for body in (acked, replaced, kept):
            tube.put(body)
        tube.put(deleted).delete()
        first, second = tube.take_many(2)
        first.ack()
        second.done(result)
        assert files_with(tmp_path, acked.encode()) and files_with(tmp_path, deleted.encode())
        queue.checkpoint()
        tube.put(waiting)
        for gone in (acked, deleted, replaced):
            assert files_with(tmp_path, gone.encode()) == []
        # The bodies of live jobs are in the snapshot, or in the log after it.
        assert files_with(tmp_path, result.encode()) == names(tmp_path, "snapshot")
        assert files_with(tmp_path, kept.encode()) == names(tmp_path, "snapshot")
        story = [(event.event, event.body) for event in queue.history(first.id)]
        assert story == [("put", None), ("taken", None), ("acked", None)]
    with penstock.open(tmp_path, history_bodies=False) as queue:
        tube = queue.tube("t")
        assert [job.body for job in tube.take_many(9)] == [kept, waiting]
        assert [job.body for job in tube.jobs("done")] == [result]


def test_bodies_of_an_earlier_open_that_kept_them_are_removed_too(tmp_path: Path) -> None:
    secret = os.urandom(30)
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put(secret)
        queue.checkpoint()
    assert len(files_with(tmp_path, secret)) == 2
    with penstock.open(tmp_path, history_bodies=False) as queue:
        job = queue.tube("t").take()
        assert job is not None and job.body == secret
        job.ack()
        queue.checkpoint()
        assert files_with(tmp_path, secret) == []


def test_a_segment_rewritten_without_bodies_has_the_same_history_and_is_shorter() -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    engine = opened.engine
    tube = engine.create_tube(b"t", policy.UTUBE, WALL)
    session = engine.connect(b"c" * 16).session
    for number in range(30):
        engine.put(tube, Draft(bytes(5_000), key=b"key-%d" % number, name=b"name-%d" % number), WALL)
        job = engine.take(session, tube, WALL)
        assert job is not None
        engine.bury(session, job, WALL, b"because")
        opened.log.commit(WALL, WALL)
    before = list(Reader(disk).events())
    size = sum(map(len, disk.files.values()))
    take_snapshot(disk, opened.log, engine, WALL, WALL)
    rewritten = []
    while (name := without_bodies(disk, opened.log)) is not None:
        rewritten.append(name)
    assert rewritten == segment_names(disk)[:-1] and len(rewritten) > 2
    after = list(Reader(disk).events())
    assert [(event.key, event.reason) for event in after] == [(event.key, event.reason) for event in before]
    assert [event.as_json(bodies=False) for event in after] == [event.as_json(bodies=False) for event in before]
    assert all(event.body is None for event in after)
    history = sum(len(disk.files[name]) for name in rewritten)
    assert history < size / 5
    found = reopen(disk).engine
    assert [found.outbox.body_of(job) for job in found.jobs.scan(0, 100)] == [bytes(5_000)] * 30


def test_other_users_cannot_read_any_created_file(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue", history_bodies=False, history_bytes=None) as queue:
        for _ in range(3):
            pass_through(queue.tube("t"), 3, b"secret")
            queue.checkpoint()
        kinds = set()
        for entry in os.scandir(tmp_path / "queue"):
            assert stat.S_IMODE(entry.stat().st_mode) == 0o600, entry.name
            kinds.add((entry.name.split("-")[0], entry.name.split(".")[-1]))
        assert {("segment", "log"), ("segment", "idx"), ("snapshot", "log")} <= kinds


CHECKPOINT_AND_DIE = """
import os, signal, sys, penstock
queue = penstock.open(sys.argv[1], history_bytes=0)
queue.tube("t").put("first")
queue.checkpoint()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_job_put_after_a_checkpoint_and_a_kill_is_kept(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", CHECKPOINT_AND_DIE, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put("second")
    with penstock.open(tmp_path) as queue:
        assert [job.body for job in queue.tube("t").take_many(9)] == ["first", "second"]
