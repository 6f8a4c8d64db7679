"""A backup of a queue in use, and a restore to any position, have the state of the queue at that position."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.errors import CommandError, DamagedJournal, OutOfRange
from penstock.host.boot import boot_id
from penstock.journal.maintenance.backup import copy_log
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import ReadOnlyDisk, RealDisk
from penstock.journal.recovery.check import check_log
from penstock.journal.recovery.opening import open_log
from penstock.journal.recovery.repair import examine, repair
from penstock.journal.segment import FrameFile, segment_names
from penstock.testing.disk import MemoryDisk
from tests.journal import shortened_queue
from tests.journal.engine_state import picture
from tests.journal.maintenance.test_snapshot import SEGMENT, WALL, Life, reopen, trim
from tests.journal.random_commands import Script


def copied(source: MemoryDisk, to_position: int | None = None) -> MemoryDisk:
    target = MemoryDisk()
    copy_log(source, target, to_position)
    return target


@pytest.mark.parametrize("seed", range(2))
def test_a_restore_to_any_position_is_the_state_after_the_last_commit_up_to_it(seed: int) -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    script = Script(opened.engine, seed)
    known: dict[int, dict[str, Any]] = {opened.log.written - 1: picture(opened.engine, restarted=True)}
    for step in range(120):
        opened.engine.advance(WALL + step)
        script.step(WALL + step)
        opened.log.commit(WALL + step, WALL)
        known[opened.log.written - 1] = picture(opened.engine, restarted=True)
        if step == 60:
            take_snapshot(disk, opened.log, opened.engine, WALL + step, WALL)
    last = opened.log.written - 1
    for position in range(last + 1):
        commit = max((known_at for known_at in known if known_at <= position), default=0)
        restored = copied(disk, position)
        if commit in known:
            assert picture(reopen(restored).engine, restarted=False) == known[commit], f"position {position}"
    with pytest.raises(OutOfRange, match=f"after the end of the log, which is {last}"):
        copied(disk, last + 1)


def test_a_restore_before_the_oldest_snapshot_is_refused_with_the_first_possible_position() -> None:
    disk = MemoryDisk()
    life = Life(disk, 1)
    life.work(60)
    life.take_snapshot(3)
    life.work(30)
    target = MemoryDisk()
    with pytest.raises(OutOfRange, match=r"the first position that can be restored is (\d+)") as refusal:
        copy_log(trim(disk), target, 5)
    assert target.names() == []
    first = int(str(refusal.value).rsplit(" ", 1)[1])
    assert picture(reopen(copied(trim(disk), first)).engine, restarted=False) == picture(
        reopen(copied(disk, first)).engine, restarted=False
    )


def test_a_backup_of_a_queue_in_use_holds_everything_that_was_acknowledged_before_it_began(tmp_path: Path) -> None:
    """The queue works, takes one snapshot after the other, and keeps only the newest."""
    stop = threading.Event()
    noting = threading.Lock()  # Everything in the log is in these lists, too.
    with penstock.open(tmp_path / "queue", fsync="never", history_bytes=0) as queue:
        tube = queue.tube("t", "fifottl")
        acked: set[str] = set()
        put: list[str] = []

        def work() -> None:
            number = 0
            while not stop.is_set():
                with noting:
                    put.append(tube.put(f"body {number}").id)
                number += 1
                if number > 200 and (job := tube.take()) is not None:
                    with noting:
                        job.ack()
                        acked.add(job.id)

        def shorten() -> None:
            while not stop.is_set():
                queue.checkpoint()

        source = ReadOnlyDisk(str(tmp_path / "queue"))
        threads = [threading.Thread(target=work), threading.Thread(target=shorten)]
        for thread in threads:
            thread.start()
        try:
            for round in range(5):
                while len(put) < 300 * (round + 1):
                    stop.wait(0.001)
                expected, gone = set(put), set(acked)
                target = tmp_path / f"backup-{round}"
                copy_log(source, RealDisk(str(target)))
                with noting:
                    later = set(put), set(acked)
                assert not check_log(source, boot_id()).damaged
                assert examine(source, boot_id()) == []
                with penstock.open(target) as restored:
                    there = {job.id: job.body for job in restored.tube("t").jobs("ready", 10_000)}
                assert expected - later[1] <= set(there) <= later[0] - gone
                assert all(body.startswith("body ") for body in there.values())
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_a_copy_issues_no_id_that_the_original_issues_later(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("t").put("x")
    copy_log(ReadOnlyDisk(str(tmp_path / "queue")), RealDisk(str(tmp_path / "copy")))
    ids = []
    for _ in range(5):
        for name in ("queue", "copy"):
            with penstock.open(tmp_path / name) as queue:
                ids += [queue.tube("t").put("x").id for _ in range(3)]
    assert len(set(ids)) == len(ids)


def test_a_copy_needs_an_empty_directory_and_an_undamaged_log(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        for _ in range(20):
            queue.tube("t").put("x")
    source = ReadOnlyDisk(str(tmp_path / "queue"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    with pytest.raises(CommandError, match="not empty"):
        copy_log(source, RealDisk(str(tmp_path / "full")))
    segment = tmp_path / "queue" / "segment-0000000001.log"
    data = bytearray(segment.read_bytes())
    data[5_000] ^= 1
    segment.write_bytes(data)
    with pytest.raises(DamagedJournal, match=r"segment-0000000001\.log is damaged at offset"):
        copy_log(source, RealDisk(str(tmp_path / "copy")))
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_log_that_could_not_be_opened_is_not_copied() -> None:
    """With a frame header of zeros, or without a segment, the remaining files would look complete."""
    disk = MemoryDisk()
    queue = shortened_queue.Life(disk, 3)
    queue.work(160)
    queue.log.close(queue.now, queue.now)
    names = segment_names(disk)
    assert len(names) > 2
    for name in names[:-1]:
        with FrameFile(disk, name) as file:
            frames = [found.base + found.frame.at for found in file.frames()]
        for place in (frames[0], frames[len(frames) // 2], frames[-1]):
            damaged = disk.copy()
            damaged.files[name][place : place + 64] = bytes(64)
            check_refused(damaged, name)
        missing = disk.copy()
        missing.remove(name)
        check_refused(missing, f"{name} is missing")
    with FrameFile(disk, names[-1]) as file:
        place = next(file.frames()).base
    damaged = disk.copy()
    damaged.files[names[-1]][place : place + 64] = bytes(64)
    check_refused(damaged, names[-1])


def check_refused(source: MemoryDisk, what: str) -> None:
    target = MemoryDisk()
    with pytest.raises(DamagedJournal, match=re.escape(what)):
        copy_log(source, target)
    assert target.names() == []


def test_incomplete_history_is_not_copied() -> None:
    disk = MemoryDisk()
    life = shortened_queue.Life(disk, 3)
    life.work(60)
    life.take_snapshot(3)
    life.work(30)
    first, second = segment_names(disk)[:2]
    missing = disk.copy()
    missing.remove(second)
    check_refused(missing, f"{second} is missing")
    with FrameFile(disk, first) as file:
        place = [found.base + found.frame.at for found in file.frames()][2]
    damaged = disk.copy()
    damaged.files[first][place : place + 64] = bytes(64)
    check_refused(damaged, first)
    # Rows that a repair has left out are not expected.
    repair(damaged, WALL, "boot")
    assert picture(reopen(copied(damaged)).engine, restarted=False) == picture(reopen(damaged).engine, restarted=False)
