"""Findings of a review of the journal's first version. In each, jobs were lost, duplicated or locked away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import claims, policy
from penstock.core.engine import Engine
from penstock.core.errors import ClaimGone, DamagedJournal, Fenced, JournalFailed, NoSpace, OutOfRange, Unsupported
from penstock.core.job import Draft
from penstock.core.outbox import Outbox
from penstock.journal.real_disk import RealFile
from penstock.journal.recovery.opening import open_log
from penstock.testing.disk import MemoryDisk, crashes
from tests.journal.maintenance_waits import wait_for_rest
from tests.server.serving import wait_for

WALL = 1_700_000_000_000
SEGMENT = 256 * 1024


def bodies(directory: Path, tube: str) -> list[Any]:
    with penstock.open(directory) as queue:
        return [job.body for job in queue.tube(tube).take_many(100)]


def test_a_crash_while_a_segment_is_created_does_not_prevent_the_next_open(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put("x")
    crash = (
        "import os, signal, sys, penstock\n"
        "os.posix_fallocate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "penstock.open(sys.argv[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", crash, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    assert bodies(tmp_path, "t") == ["x"]
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]


def test_zeros_in_the_middle_are_damage_and_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        for number in range(10):
            queue.tube("t").put(number)
    path = tmp_path / "segment-0000000001.log"
    data = bytearray(path.read_bytes())
    at = data.index(b"PENF", 5_000)
    data[at : at + 512] = bytes(512)
    path.write_bytes(data)
    with pytest.raises(DamagedJournal, match=f"offset {at}"):
        penstock.open(tmp_path)
    assert path.read_bytes() == data


def test_the_child_of_a_fork_writes_nothing(tmp_path: Path) -> None:
    queue = penstock.open(tmp_path)
    tube = queue.tube("t")
    late = tube.put("late", delay=0.05)
    child = os.fork()
    if child == 0:
        time.sleep(0.1)
        repr(late)
        for call in (lambda: tube.put("x"), lambda: tube.put_many([bytes(20_000_000)]), queue.close):
            try:
                call()
            except penstock.CommandError:
                pass
        os._exit(0)
    for number in range(5):
        tube.put(number)
    os.waitpid(child, 0)
    for number in range(5, 8):
        tube.put(number)
    queue.close()
    assert bodies(tmp_path, "t") == ["late", *range(8)]


def test_an_interrupt_in_the_middle_of_a_commit_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t")
        tube.put("one")
        wait_for_rest(queue)
        write = RealFile.write

        def interrupted(self: RealFile, offset: int, *parts: bytes) -> None:
            monkeypatch.undo()
            write(self, offset, parts[0])  # A part of it is written.
            raise KeyboardInterrupt

        monkeypatch.setattr(RealFile, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tube.put("two")
        tube.put("three")
    assert bodies(tmp_path, "t") == ["one", "two", "three"]


def test_a_take_that_is_interrupted_while_it_becomes_durable_gives_the_job_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t")
        tube.put("x")
        wait_for_rest(queue)
        for take in (tube.take, lambda: tube.take_many(2)):

            def interrupted(self: RealFile) -> None:
                monkeypatch.undo()
                raise KeyboardInterrupt

            monkeypatch.setattr(RealFile, "sync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                take()
            assert tube.stats()["ready"] == 1
        job = tube.take()
        assert job is not None and job.deliveries == 1


def test_a_cancelled_take_returns_its_jobs_on_disk_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.open_async(tmp_path) as queue:
            tube = await queue.tube("t")
            for _ in range(20):
                take = asyncio.ensure_future(tube.take(timeout=None))
                await asyncio.sleep(0)
                await tube.put("x")
                take.cancel()
                try:
                    job = await take
                except asyncio.CancelledError:
                    job = await tube.take()
                assert job is not None
                await job.ack()
            assert not any((await tube.stats()).values())

    asyncio.run(main())


def test_a_job_that_moves_out_of_the_log_leaves_no_ghost_in_it(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        logged, temporary = queue.tube("logged"), queue.tube("temporary", "fifo", temporary=True)
        gone, back = logged.put("gone"), logged.put("back")
        gone.move(temporary)
        back.move(temporary)
        back.move(logged)
        logged.put("other")
    with penstock.open(tmp_path) as queue:
        assert queue.tubes() == ["logged", "temporary"]
        assert queue.tube("temporary").take() is None
        assert [job.body for job in queue.tube("logged").take_many(9)] == ["back", "other"]


def test_a_dedup_id_of_a_temporary_tube_is_not_applied_to_another_tube(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("temporary", "fifo", temporary=True).put("1", dedup="order")
        queue.tube("t").put("other")
    with penstock.open(tmp_path) as queue:
        assert queue.tube("t").put("order", dedup="order").body == "order"


def test_integers_stay_used_over_a_power_cut_and_an_orderly_life_after_it() -> None:
    disk = MemoryDisk()
    seen: list[int] = []
    for life, orderly in enumerate([False, True, False]):
        opened = open_log(disk, lambda: WALL, f"boot {life}", fsync="never", segment_bytes=SEGMENT)
        tube = opened.engine.create_tube(b"t", policy.FIFO, WALL)
        if orderly:
            opened.log.close(WALL, WALL)
        else:
            for _ in range(10):
                seen.append(opened.engine.put(tube, Draft(b""), WALL).local)
                opened.log.commit(WALL, WALL)
            disk = next(crashes(disk, len(disk.effects)))
    assert len(seen) == len(set(seen)) == 20


def test_a_tube_cannot_leave_or_enter_the_log_while_it_runs(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue, pytest.raises(Unsupported, match="temporary"):
        queue.tube("t").alter(temporary=True)


def test_a_failed_close_unlocks_the_directory_and_fails_waiting_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = penstock.open(tmp_path)
    tube = queue.tube("t")
    told: list[str] = []

    def wait() -> None:
        try:
            tube.take(timeout=None)
        except penstock.CommandError as error:
            told.append(error.code)

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_for(lambda: queue._session.connection.waits)

    def broken(self: RealFile) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(RealFile, "sync", broken)
    with pytest.raises(JournalFailed):
        queue.close()
    monkeypatch.undo()
    waiter.join(10)
    assert told in (["CLOSED"], ["JOURNALFAILED"])
    penstock.open(tmp_path).close()


def test_a_torn_tail_under_warnings_as_errors_does_not_lock_the_directory(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put("x")
    path = tmp_path / "segment-0000000001.log"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RuntimeWarning, match="torn tail"):
        penstock.open(tmp_path)
    assert bodies(tmp_path, "t") == ["x"]


def test_the_warning_about_a_torn_tail_names_the_line_that_opened_the_queue(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put("x")
    path = tmp_path / "segment-0000000001.log"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.warns(RuntimeWarning, match="torn tail") as warned:
        penstock.open(tmp_path).close()
    assert [warning.filename for warning in warned] == [__file__]


def claims_engine(disk: MemoryDisk, boot: str) -> tuple[Any, Engine]:
    opened = open_log(disk, lambda: WALL, boot, segment_bytes=4 * SEGMENT)
    return opened, opened.engine


def test_claims_keep_their_order_their_fence_and_their_end() -> None:
    disk = MemoryDisk()
    opened, engine = claims_engine(disk, "one")
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    jobs = [engine.put(tube, Draft(b"%d" % n), WALL).id for n in range(1_500)]
    first = claims.claim(engine, b"c", 1, 1, tube, 3, 60_000, WALL)
    claims.claim(engine, b"c", 1, 2, tube, 1_400, 1_000, WALL)
    assert first is not None
    engine.delete(first.jobs[0], WALL)
    claims.claim(engine, b"fenced", 5, 1, engine.create_tube(b"empty", policy.FIFO, WALL), 1, 1_000, WALL)
    engine.advance(WALL + 1_000)  # The lease of the second claim ends. One turn returns a part of its jobs.
    with pytest.raises(ClaimGone):
        claims.read_claim(engine, b"c", 2, WALL + 1_000)
    opened.log.commit(WALL + 1_000, WALL)
    opened.log.make_durable(opened.log.written)

    _, engine = claims_engine(next(crashes(disk, len(disk.effects))), "two")
    now = WALL + 1_000
    assert [job.id for job in claims.read_claim(engine, b"c", 1, now).jobs] == jobs[:3]
    with pytest.raises(ClaimGone):
        claims.read_claim(engine, b"c", 2, now)
    with pytest.raises(Fenced):
        claims.claim(engine, b"fenced", 4, 1, engine.tubes[b"empty"], 1, 1_000, now)
    while engine.deadlines.next_due <= now:
        engine.advance(now)
    assert engine.tubes[b"t"].count_in(1) == 1_497


def test_the_log_begins_at_its_beginning(tmp_path: Path) -> None:
    for _ in range(2):
        with penstock.open(tmp_path) as queue:
            queue.tube("t").put("x")
    (tmp_path / "segment-0000000001.log").unlink()
    with pytest.raises(DamagedJournal, match=r"segment-0000000001\.log is missing"):
        penstock.open(tmp_path)


def test_a_full_disk_refuses_everything_that_would_make_the_log_grow() -> None:
    disk = MemoryDisk(capacity=3 * 1024 * 1024)
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=3 * 1024 * 1024 - 100_000)
    engine, log = opened.engine, opened.log
    connection = engine.connect(b"c" * 16)
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    engine.put(tube, Draft(b"small"), WALL)

    def commit() -> None:
        log.commit(WALL, WALL)
        log.update_room()

    commit()
    with pytest.raises(NoSpace):
        engine.put_many(tube, [Draft(b"x")] * 50_000, WALL)
    with pytest.raises(NoSpace):
        while True:
            engine.put(tube, Draft(bytes(100_000)), WALL)
            commit()
    job = engine.take(connection.session, tube, WALL)
    assert job is not None
    with pytest.raises(NoSpace):
        engine.done(connection.session, job, bytes(2_000_000), 0, WALL)
    engine.ack(connection.session, job, WALL)
    commit()


def test_one_put_is_one_frame_and_has_to_fit_in_one() -> None:
    engine = Engine(1, WALL, Outbox())
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    body = bytes(60 * 1024 * 1024)
    with pytest.raises(penstock.CommandError) as refused:
        engine.put_many(tube, [Draft(body)] * 18, WALL)
    assert refused.value.code == "TOOBIG" and tube.total() == 0
    with pytest.raises(OutOfRange):
        engine.put_many(tube, [], WALL)
