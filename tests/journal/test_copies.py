"""A backup of a queue in use, and a restore to any position, give the queue as it was then."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.errors import CommandError, DamagedJournal, OutOfRange
from penstock.journal.copies import copy_log
from penstock.journal.disk import ReadOnlyDisk, RealDisk
from penstock.journal.recovery import open_log
from penstock.journal.snapshot import take_snapshot
from penstock.testing.disk import MemoryDisk
from tests.journal.picture import picture
from tests.journal.scripts import Script
from tests.journal.test_snapshot import SEGMENT, WALL, Life, reopen, trim


def copied(source: MemoryDisk, to_position: int | None = None) -> MemoryDisk:
    target = MemoryDisk()
    copy_log(source, target, to_position)
    return target


@pytest.mark.parametrize("seed", range(2))
def test_a_restore_to_any_position_is_the_state_after_the_last_commit_up_to_it(seed: int) -> None:
    disk = MemoryDisk()
    opened = open_log(disk, WALL, "boot", segment_bytes=SEGMENT)
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
    with pytest.raises(OutOfRange, match=f"behind the end of the log, which is {last}"):
        copied(disk, last + 1)


def test_what_a_snapshot_has_replaced_cannot_be_restored_and_the_first_position_that_can_is_told() -> None:
    disk = MemoryDisk()
    life = Life(disk, 1)
    life.work(60)
    life.take_snapshot(3)
    life.work(30)
    target = MemoryDisk()
    with pytest.raises(OutOfRange, match=r"the first position to restore to is (\d+)") as refusal:
        copy_log(trim(disk), target, 5)
    assert target.names() == []
    first = int(str(refusal.value).rsplit(" ", 1)[1])
    assert picture(reopen(copied(trim(disk), first)).engine, restarted=False) == picture(
        reopen(copied(disk, first)).engine, restarted=False
    )


def test_a_backup_of_a_queue_in_use_holds_everything_that_was_acknowledged_before_it_began(tmp_path: Path) -> None:
    stop = threading.Event()
    with penstock.open(tmp_path / "queue", fsync="never", history_bytes=0) as queue:
        tube = queue.tube("t", "fifottl")
        acked: set[str] = set()
        put: list[str] = []

        def work() -> None:
            number = 0
            while not stop.is_set():
                put.append(tube.put(f"body {number}").id)
                number += 1
                if number % 3 == 0 and (job := tube.take()) is not None:
                    job.ack()
                    acked.add(job.id)
                if number % 500 == 0:
                    queue.checkpoint()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for round in range(5):
                while len(put) < 700 * (round + 1):
                    pass
                expected, gone = set(put), set(acked)
                target = tmp_path / f"backup-{round}"
                copy_log(ReadOnlyDisk(str(tmp_path / "queue")), RealDisk(str(target)))
                later = set(put), set(acked)
                with penstock.open(target) as restored:
                    there = {job.id: job.body for job in restored.tube("t").jobs("ready", 100_000)}
                assert expected - later[1] <= set(there) <= later[0] - gone
                assert all(body.startswith("body ") for body in there.values())
        finally:
            stop.set()
            worker.join()


def test_a_copy_gives_out_no_id_that_the_original_gives_out_later(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("t").put("x")
    copy_log(ReadOnlyDisk(str(tmp_path / "queue")), RealDisk(str(tmp_path / "copy")))
    ids = []
    for _ in range(5):
        for name in ("queue", "copy"):
            with penstock.open(tmp_path / name) as queue:
                ids += [queue.tube("t").put("x").id for _ in range(3)]
    assert len(set(ids)) == len(ids)


def test_a_copy_is_not_made_over_something_else_and_damage_is_not_copied(tmp_path: Path) -> None:
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
