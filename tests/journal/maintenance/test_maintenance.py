"""Maintenance shortens the log during work. Callers are not affected, even if it fails."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import policy
from penstock.core.errors import Closed, CommandError, JournalFailed, NoSpace
from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.embedded import Queue
from penstock.host.host import Host, Store
from penstock.host.maintenance.disk_space import DiskSpaceService
from penstock.host.maintenance.pacing import Pacing
from penstock.host.maintenance.runner import Maintenance
from penstock.host.session import Session
from penstock.journal.disk import UNFINISHED
from penstock.journal.log import SEGMENT_BYTES, Log
from penstock.journal.maintenance.retention import Retention
from penstock.journal.real_disk import RealDisk, RealFile
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.maintenance_waits import wait_for, wait_for_rest
from tests.journal.shortened_queue import SEGMENT, WALL, reopen

MEGABYTE = 1024 * 1024


def run_all(*tasks: Callable[[], None]) -> None:
    """Run each function in a thread, and raise the error of any of them."""
    raised: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "it hangs"
    if raised:
        raise raised[0]


def bodies(directory: Path, tube: str = "t") -> list[Any]:
    with penstock.open(directory) as queue:
        return [job.body for job in queue.tube(tube).take_many(100_000)]


@pytest.mark.parametrize(
    ("fsync", "puts", "memory_limit"), [("always", 200, None), ("never", 1_000, None), ("never", 600, MEGABYTE)]
)
def test_checkpoints_under_load_lose_nothing_and_invent_nothing(
    tmp_path: Path, fsync: Any, puts: int, memory_limit: int | None
) -> None:
    put: set[str] = set()
    seen: set[str] = set()
    acked: set[str] = set()
    numbers: list[int] = []
    working = {0, 1, 2}
    with penstock.open(
        tmp_path, fsync=fsync, memory_limit=memory_limit, history_bytes=0, history_bodies=False
    ) as queue:
        tube = queue.tube("t", "fifottl")

        def produce(worker: int) -> None:
            try:
                for number in range(puts):
                    body = f"{worker} {number} ".ljust(2_000, ".")
                    numbers.append(tube.put(body, priority=number % 3)._core.local)
                    put.add(body)
            finally:
                working.discard(worker)

        def consume() -> None:
            with queue.session() as session:
                own = session.tube("t")
                while working:
                    job = own.take(timeout=0.01)
                    if job is not None:
                        seen.add(job.body)
                        if int(job.body.split()[1]) % 4 == 0:
                            job.release(delay=0.01)
                        else:
                            job.ack()
                            acked.add(job.body)

        def shorten() -> None:
            while working:
                queue.checkpoint()

        run_all(*(lambda worker=worker: produce(worker) for worker in range(3)), consume, consume, shorten)
        check(queue._host.engine)
        assert len(snapshot_names(queue._host.require_journal().disk)) == 1
    assert len(numbers) == len(set(numbers)) == 3 * puts
    assert acked and seen <= put
    left = bodies(tmp_path)
    assert len(left) == len(set(left))
    assert set(left) == put - acked


@pytest.mark.parametrize("phase", range(1, 14))
def test_a_queue_closed_at_any_pause_of_a_checkpoint_opens_with_everything(tmp_path: Path, phase: int) -> None:
    queue = penstock.open(tmp_path, history_bytes=0, history_bodies=False, memory_limit=MEGABYTE, fsync="never")
    tube = queue.tube("t", "fifottl")
    expected = [str(number).ljust(1_000, ".") for number in range(1_500)]
    tube.put_many(expected)
    maintenance = queue._host.require_journal()._maintenance
    pauses = 0
    reached = threading.Event()
    pause = maintenance._pacing.pause

    def until_closed(spent: float, *share: int) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == phase:
            reached.set()
            maintenance._stopping.wait(20)
        pause(spent, *share)

    maintenance._pacing.pause = until_closed  # type: ignore[method-assign]

    def shorten() -> None:
        try:
            queue.checkpoint()
        except Closed:
            pass
        reached.set()

    def close() -> None:
        reached.wait(20)
        queue.close()

    run_all(shorten, close)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(UNFINISHED)]
    assert bodies(tmp_path) == expected
    assert bodies(tmp_path) == expected


def test_a_checkpoint_interrupted_by_close_is_refused_as_closed(tmp_path: Path) -> None:
    queue = penstock.open(tmp_path)
    queue.tube("t").put("x")
    maintenance = queue._host.require_journal()._maintenance
    reached = threading.Event()
    told: list[str] = []

    def until_closed(spent: float, *share: int) -> None:
        reached.set()
        maintenance._stopping.wait(20)
        Pacing.pause(maintenance._pacing, spent, *share)

    maintenance._pacing.pause = until_closed  # type: ignore[method-assign]

    def shorten() -> None:
        try:
            queue.checkpoint()
            told.append("there")
        except CommandError as error:
            told.append(error.code)

    def close() -> None:
        reached.wait(20)
        queue.close()

    run_all(shorten, close)
    assert snapshot_names(queue._host.require_journal().disk) == []
    assert told == ["CLOSED"]


def test_a_checkpoint_requested_during_another_one_is_a_new_one(tmp_path: Path) -> None:
    """The snapshot in progress may lack changes that were made before the second request."""
    with penstock.open(tmp_path, history_bodies=False) as queue:
        journal = queue._host.require_journal()
        maintenance = journal._maintenance
        walking, go_on = threading.Event(), threading.Event()
        pause = maintenance._pacing.pause

        def held(spent: float, *share: int) -> None:
            walking.set()
            go_on.wait(20)
            pause(spent, *share)

        maintenance._pacing.pause = held  # type: ignore[method-assign]
        first = threading.Thread(target=queue.checkpoint)
        first.start()
        assert walking.wait(20)
        second = threading.Thread(target=journal.take_snapshot)
        second.start()
        # It waits for the end of the present turn.
        wait_for(lambda: len(maintenance._turned._waiters) == 2, "the second checkpoint was not requested")  # type: ignore[attr-defined]
        queue.tube("t").put("x")
        asked_at = journal.log.segment
        go_on.set()
        for thread in (first, second):
            thread.join(20)
        assert journal.log.recovery_range.segment > asked_at


def test_a_long_log_is_shortened_automatically(tmp_path: Path) -> None:
    with penstock.open(tmp_path, fsync="never", history_bytes=0) as queue:
        journal = queue._host.require_journal()
        journal._maintenance._snapshots._snapshot_bytes = 4 * MEGABYTE
        tube = queue.tube("t")
        for number in range(30):
            tube.put(os.urandom(MEGABYTE))
            if number % 2:
                job = tube.take()
                assert job is not None
                job.ack()
        wait_for(lambda: segment_names(journal.disk)[0] > "segment-0000000001.log", "nothing was removed")
        wait_for(lambda: len(snapshot_names(journal.disk)) == 1, "old snapshots were not removed")
    assert len(bodies(tmp_path)) == 15


class SmallDisk(MemoryDisk):
    """A disk of limited size, with a queue on it."""

    def queue(self, **store: Any) -> Queue:
        return Queue(Session(Host(0, NEVER, Store(self, **store))))

    def used(self) -> int:
        return sum(map(len, list(self.files.values())))


@pytest.fixture
def full(request: pytest.FixtureRequest) -> Iterator[tuple[SmallDisk, Queue, int]]:
    """Yield a queue on a full disk, where puts are refused, and the number of its jobs."""
    disk = SmallDisk(capacity=2 * SEGMENT_BYTES + 3 * MEGABYTE)
    queue = disk.queue(**getattr(request, "param", {}))
    queue.tube("t", "fifottl")
    yield disk, queue, fill(queue, 200_000)
    disk.capacity = None
    queue.close()


def fill(queue: Queue, body_bytes: int) -> int:
    """Put jobs until puts are refused. Return the number of jobs."""
    for accepted in itertools.count():
        try:
            queue.tube("t").put(os.urandom(body_bytes))
        except NoSpace:
            return accepted
    raise AssertionError


def take_and_ack(queue: Queue, count: int) -> None:
    for _ in range(count):
        job = queue.tube("t").take()
        assert job is not None
        job.ack()


def test_a_full_disk_ends_a_checkpoint_and_not_the_queue(full: tuple[SmallDisk, Queue, int]) -> None:
    disk, queue, accepted = full
    take_and_ack(queue, 10)
    with pytest.raises((OSError, NoSpace), match=r"space|room"):
        queue.checkpoint()
    take_and_ack(queue, 10)
    assert snapshot_names(disk) == []
    disk.capacity = None
    queue.checkpoint()
    assert len(snapshot_names(disk)) == 1
    queue.tube("t").put("there is room again")
    left = [job.body for job in queue.tube("t").take_many(1_000)]
    assert len(left) == accepted - 20 + 1
    queue.close()
    with disk.queue() as again:
        assert [job.body for job in again.tube("t").take_many(1_000)] == left


def test_checkpoints_that_fail_on_a_full_disk_leave_the_reserve_to_acks(full: tuple[SmallDisk, Queue, int]) -> None:
    """Maintenance tries again and again. Each attempt must leave as much space as before."""
    _, queue, accepted = full
    for _ in range(8):
        with pytest.raises((OSError, NoSpace)):
            queue.checkpoint()
    take_and_ack(queue, accepted)


def test_a_checkpoint_that_fails_leaves_no_file_behind(full: tuple[SmallDisk, Queue, int]) -> None:
    disk, queue, _ = full
    for _ in range(8):
        with pytest.raises((OSError, NoSpace)):
            queue.checkpoint()
        assert not [name for name in disk.names() if name.endswith(UNFINISHED)]


@pytest.mark.parametrize(
    ("full", "told"),
    [({}, ""), ({"snapshot_bytes": MEGABYTE}, "maintenance failed")],
    ids=["", "though a snapshot failed"],
    indirect=["full"],
)
def test_a_waiting_take_is_served_when_a_full_disk_has_room_again(
    full: tuple[SmallDisk, Queue, int], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, queue, accepted = full
    # An earlier failure may have been logged before the capture started, and is not logged again for a minute.
    queue._host.require_journal()._maintenance._quiet_until = 0.0
    others = iter(queue.tube("t").take_many(accepted))
    held = next(others)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.tube("t").take, timeout=60)
        wait_for(lambda: queue.tube("t").info()["waiting"] == 1, "nobody waits")
        # Another program fills the rest of the disk, and also the space that a failed snapshot releases.
        disk.capacity = 0
        queue._host.require_journal().log.room.refresh()
        with pytest.raises(NoSpace):
            # As often as existing files have room for, and no more.
            for _ in range(100_000):
                held.touch(1)
        held.release()
        assert queue.tube("t").info()["waiting"] == 1
        wait_for(lambda: told in caplog.text, "maintenance has not tried to take a snapshot")
        disk.capacity = None
        assert waiting.result(20) is not None


@pytest.fixture
def filled() -> Iterator[tuple[SmallDisk, Queue, int]]:
    """Yield a full disk with a reserve file and with history."""
    disk = SmallDisk()
    queue = disk.queue()
    wait_for_rest(queue)
    queue.tube("t", "fifottl").put("done")
    take_and_ack(queue, 1)
    queue.checkpoint()
    disk.capacity = disk.used() + SEGMENT_BYTES + 6 * MEGABYTE
    yield disk, queue, fill(queue, 200_000) + fill(queue, 20)
    disk.capacity = None
    queue.close()


def let_look(disk: SmallDisk, queue: Queue) -> None:
    """Make maintenance check the free space now. Otherwise it does so when the log has grown."""
    journal = queue._host.require_journal()
    journal._maintenance.wake()
    wait_for(lambda: journal.log.room.free == disk.free(), "the free space was not checked")


def put_again(queue: Queue) -> bool:
    try:
        queue.tube("t").put("there is room again")
    except NoSpace:
        queue._host.require_journal()._maintenance.wake()  # Otherwise it would check again after a second.
        return False
    return True


def test_a_full_disk_has_room_again_when_its_jobs_are_done(filled: tuple[SmallDisk, Queue, int]) -> None:
    disk, queue, accepted = filled
    take_and_ack(queue, accepted)
    wait_for(lambda: put_again(queue), "the disk stays full although all jobs are done")
    queue.close()
    with disk.queue() as again:
        assert [job.body for job in again.tube("t").take_many(1_000)] == ["there is room again"]


def test_every_job_on_a_full_disk_can_be_taken_come_back_once_and_be_acked() -> None:
    """This holds for the smallest jobs: their remaining rows need more space than the jobs themselves."""
    disk = SmallDisk(capacity=10 * MEGABYTE)
    with disk.queue(fsync="never") as queue:
        wait_for_rest(queue)  # Without the reserve file, the disk would stay full.
        let_look(disk, queue)
        accepted = fill(queue, 0)
        assert accepted > 4_000
        jobs = queue.tube("t").take_many(accepted)
        for job in jobs:
            job.release()
        take_and_ack(queue, accepted)
        wait_for(lambda: put_again(queue), "the disk stays full although all jobs are done")


def test_a_disk_filled_by_other_programs_lets_jobs_end_and_refuses_endless_changes() -> None:
    disk = SmallDisk(capacity=8 * MEGABYTE)
    with disk.queue(fsync="never") as queue:
        wait_for(lambda: queue._host.require_journal()._maintenance._seen > 0, "no next segment was created")
        tube = queue.tube("t")
        tube.put_many([b""] * 2_000)
        waiting = queue.tube("t").take_many(100)
        disk.capacity = disk.used()
        let_look(disk, queue)
        takes = 0
        with pytest.raises(NoSpace, match="for acks"):
            while True:
                held = tube.take()
                assert held is not None
                held.release()
                takes += 1
        assert takes > 1_000
        for job in waiting:
            job.ack()
        with pytest.raises(NoSpace):
            tube.put("nothing new")
        disk.capacity = None
        wait_for(lambda: put_again(queue), "the free space is not noticed")
        assert len(tube.take_many(2_000)) == 1_900 + 1


def test_a_disk_full_of_jobs_keeps_them_and_the_reserve_file(filled: tuple[SmallDisk, Queue, int]) -> None:
    disk, queue, accepted = filled
    take_and_ack(queue, 3)
    with pytest.raises(NoSpace):
        queue.checkpoint()
    # Three acks make room for one small job at most.
    with pytest.raises(NoSpace):
        queue.tube("t").put(os.urandom(1_000))
    assert "ballast" in disk.names()
    assert not [name for name in disk.names() if name.endswith(UNFINISHED)]
    assert len(queue.tube("t").take_many(1_000)) == accepted - 3


def test_a_snapshot_that_turns_out_too_long_for_a_full_disk_is_tried_again(
    filled: tuple[SmallDisk, Queue, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, queue, accepted = filled
    monkeypatch.setattr(DiskSpaceService, "_is_little", lambda *_: True)
    with pytest.raises((OSError, NoSpace)):
        queue.checkpoint()
    assert snapshot_names(disk)[1:] == []
    monkeypatch.undo()
    take_and_ack(queue, accepted)
    wait_for(lambda: put_again(queue), "puts stay refused after a failed snapshot")


def test_a_snapshot_that_cannot_be_renamed_closes_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor that is closed twice may belong to another file the second time."""
    queue = penstock.open(tmp_path)
    tube = queue.tube("t")
    tube.put("x")
    closed: list[RealFile] = []
    rename, close = os.rename, RealFile.close

    def no_rename(source: str, target: str) -> None:
        if "snapshot-" in source:
            raise OSError(errno.EIO, "the disk is broken")
        rename(source, target)

    def noted_close(self: RealFile) -> None:
        if self._fd >= 0:
            closed.append(self)
        close(self)

    monkeypatch.setattr(os, "rename", no_rename)
    monkeypatch.setattr(RealFile, "close", noted_close)
    with pytest.raises(OSError):
        queue.checkpoint()
    monkeypatch.undo()
    assert len(closed) == len(set(closed))
    assert not [name for name in os.listdir(tmp_path) if name.endswith(UNFINISHED)]
    tube.put("y")
    queue.checkpoint()
    queue.close()
    assert bodies(tmp_path) == ["x", "y"]


def test_a_checkpoint_of_a_queue_whose_log_failed_is_refused_and_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = penstock.open(tmp_path)
    tube = queue.tube("t")
    tube.put("x")

    def broken(self: RealFile) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(RealFile, "sync", broken)
    with pytest.raises(JournalFailed):
        tube.put("y")
    monkeypatch.undo()
    with pytest.raises(JournalFailed):
        queue.checkpoint()
    queue.close()
    assert bodies(tmp_path)[0] == "x"


def test_an_unexpected_error_is_raised_by_the_waiting_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with penstock.open(tmp_path) as queue:
        maintenance = queue._host.require_journal()._maintenance
        told: list[BaseException] = []

        def broken(served: object) -> None:
            raise RuntimeError("nobody thought of this")

        def shorten() -> None:
            try:
                queue.checkpoint()
            except Exception as error:
                told.append(error)

        monkeypatch.setattr(maintenance, "_tidy", broken)
        waiting = threading.Thread(target=shorten, daemon=True)
        waiting.start()
        waiting.join(20)
        assert len(told) == 1


def test_maintenance_continues_after_a_shortage_of_file_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path) as queue:
        maintenance = queue._host.require_journal()._maintenance
        looked = threading.Event()
        queue.checkpoint()

        def too_many(self: RealDisk) -> list[str]:
            looked.set()
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "names", too_many)
            maintenance.wake()
            assert looked.wait(20)
        queue.checkpoint()


def test_a_closed_queue_takes_no_checkpoint(tmp_path: Path) -> None:
    before = threads()
    queue = penstock.open(tmp_path, fsync="everysec")
    assert len(threads() - before) == 2
    queue.close()
    with pytest.raises(Closed):
        queue.checkpoint()
    wait_for(lambda: threads() <= before, "the threads of the queue do not end")


def threads() -> set[threading.Thread]:
    """Return the background threads of all queues."""
    return {thread for thread in threading.enumerate() if thread.name in ("penstock-maintenance", "penstock-sync")}


@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
def test_a_garbage_collected_queue_ends_its_threads(tmp_path: Path, fsync: Any) -> None:
    before = threads()
    queue = penstock.open(tmp_path, fsync=fsync)
    queue.tube("t").put("x")
    own = threads() - before
    assert len(own) == (1 if fsync == "always" else 2)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del queue
        # A thread may still be working for the queue.
        wait_for(lambda: not any(thread.is_alive() for thread in own), "the threads of the queue do not end")


def test_the_next_segment_is_not_created_twice_if_it_is_used_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance creates the next segment while others write, and one of them may switch to it at that moment."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    engine, log = opened.engine, opened.log
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    log.prepare()
    following = Log._next_segment

    def with_maintenance_in_between(self: Log, number: int, length: int) -> Any:
        tail = following(self, number, length)
        maintenance = threading.Thread(target=self.prepare)
        maintenance.start()
        # It may have to wait until the segment is started.
        maintenance.join(0.2)
        return tail

    monkeypatch.setattr(Log, "_next_segment", with_maintenance_in_between)
    for number in range(60):
        engine.put(tube, Draft(b"%04d" % number * 750), WALL)
        log.commit(WALL, WALL)
        log.make_durable(log.written)
    assert log.segment > 2
    found = reopen(disk).engine
    assert [found.outbox.body_of(job)[:4] for job in found.jobs.scan(0, 100)] == [b"%04d" % n for n in range(60)]


@pytest.mark.parametrize("meanwhile", ["a put", "another promise"])
def test_a_next_segment_that_was_just_used_or_dropped_is_not_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, meanwhile: str
) -> None:
    """While the next segment is filled, others write and may switch to it. History must not be deleted for that."""
    with penstock.open(tmp_path, fsync="never") as queue:
        tube, host = queue.tube("t"), queue._host
        for _ in range(3):
            # Segments of history, which a snapshot has replaced.
            tube.put(bytes(SEGMENT_BYTES // 2))
        take_and_ack(queue, 3)
        queue.checkpoint()
        journal = host.require_journal()
        wait_for_rest(queue)
        names, fill, log = set(journal.disk.names()), Log.fill, journal.log
        done: list[int] = []

        def with_others_in_between(self: Log) -> None:
            fill(self)
            if not done:
                before = log.segment
                if meanwhile == "a put":
                    while log.segment == before:
                        tube.put(bytes(MEGABYTE))
                else:
                    with host.lock:
                        log.change_fsync("everysec", host.now(), host.wall())
                assert log.room.spare is None
                done.append(log.segment)

        monkeypatch.setattr(Log, "fill", with_others_in_between)
        journal._maintenance.wake()
        wait_for(lambda: bool(done), "the next segment was not filled")
        # Each write requests the next segment.
        tube.put(b"x")
        wait_for(lambda: log.room.spare is not None, "no next segment was created")
        wait_for_rest(queue)
        assert names - {"ballast"} <= set(journal.disk.names()) and not caplog.messages


def test_history_that_need_not_be_kept_makes_room_for_a_snapshot() -> None:
    """On a full disk, the snapshot would fail, and with it the deletion of history."""
    disk = SmallDisk()
    with disk.queue() as queue:
        for _ in range(3):
            queue.checkpoint()
            queue.tube("t").put(os.urandom(8 * MEGABYTE))
            take_and_ack(queue, 1)
    # Space for the segment that every open starts, but not for the one that a snapshot starts.
    disk.capacity = disk.used() + SEGMENT_BYTES + MEGABYTE
    with disk.queue(retention=Retention(bytes_max=0), snapshot_bytes=6 * MEGABYTE) as queue:
        queue.checkpoint()
        assert disk.used() < 2 * SEGMENT_BYTES + MEGABYTE


@contextlib.contextmanager
def unfinished(maintenance: Maintenance) -> Iterator[None]:
    """Let maintenance find a snapshot due and start it, but not finish it meanwhile."""
    looked = threading.Event()

    def held(spent: float, *share: int) -> None:
        looked.wait(20)
        Pacing.pause(maintenance._pacing, spent, *share)

    maintenance._pacing.pause = held  # type: ignore[method-assign]
    try:
        yield
    finally:
        looked.set()
        del maintenance._pacing.pause


def test_a_short_retention_time_causes_a_snapshot_only_if_it_is_worth_it() -> None:
    disk = SmallDisk()
    with disk.queue(retention=Retention(age_ms=0)) as queue:
        journal = queue._host.require_journal()
        maintenance, tube = journal._maintenance, queue.tube("t")
        queue.checkpoint()
        for _ in range(5):
            tube.put(os.urandom(2 * MEGABYTE))
            assert not maintenance._snapshots.is_due(journal)
        # It is due after an hour, unless nothing happened, and after a segment of log.
        with unfinished(maintenance):
            journal.wall = lambda: journal.log.recovery_range.since + 3_600_001
            assert maintenance._snapshots.is_due(journal)
        queue.checkpoint()
        assert not maintenance._snapshots.is_due(journal)
        journal.wall = lambda: journal.log.recovery_range.since + 1
        tube.put("x")
        assert not maintenance._snapshots.is_due(journal)
        with unfinished(maintenance):
            tube.put(os.urandom(8 * MEGABYTE))
            tube.put(os.urandom(SEGMENT_BYTES))
            assert maintenance._snapshots.is_due(journal)


def test_a_snapshot_with_a_time_in_the_future_is_replaced() -> None:
    disk = SmallDisk()
    with disk.queue() as queue:
        journal = queue._host.require_journal()
        with unfinished(journal._maintenance):
            journal.log.recovery_range.since = journal.wall() + 86_400_000
            queue.tube("t").put("x")
            assert journal._maintenance._snapshots.is_due(journal)
        queue.checkpoint()
        assert not journal._maintenance._snapshots.is_due(journal)


def test_the_log_of_a_queue_that_is_never_open_for_long_is_shortened() -> None:
    """Each time, maintenance is stopped before it can do anything."""
    disk = SmallDisk()
    kept: list[bytes] = []
    for number in range(12):
        with disk.queue(snapshot_bytes=100_000, fsync="never", retention=Retention(bytes_max=0)) as queue:
            queue._host.require_journal()._maintenance.stop()
            kept.append(b"%d" % number * 10_000)
            queue.tube("t").put(kept[-1])
            queue.tube("t").put(bytes(40_000))
            for job in queue.tube("t").jobs("ready"):
                if job.body == bytes(40_000):
                    job.delete()
            # Twice the threshold of a snapshot, the log written since, and the live data.
            assert (
                queue._host.require_journal().log.needed_bytes() < 2 * max(100_000, 2 * sum(map(len, kept))) + 100_000
            )
    assert len(snapshot_names(disk)) == 1
    assert disk.used() < 1_000_000
    with disk.queue() as queue:
        assert [job.body for job in queue.tube("t").take_many(99)] == kept


def test_an_overdue_snapshot_that_fails_does_not_keep_a_queue_from_opening() -> None:
    disk = SmallDisk()
    with disk.queue() as queue:
        queue.tube("t").put(os.urandom(5 * MEGABYTE))
    disk.capacity = disk.used() + 4 * MEGABYTE
    with disk.queue(snapshot_bytes=MEGABYTE) as queue:
        assert snapshot_names(disk) == []
        take_and_ack(queue, 1)


def test_the_next_segment_is_created_ahead_during_a_snapshot(tmp_path: Path) -> None:
    with penstock.open(tmp_path, fsync="never") as queue:
        journal, tube = queue._host.require_journal(), queue.tube("t")
        maintenance, log = journal._maintenance, journal.log
        tube.put_many([b"x"] * 2_000)
        pause, before, ready = maintenance._pacing.pause, log.segment, []

        def write(spent: float, *share: int) -> None:
            if not ready:
                # Write enough to use up the segment that was created ahead.
                while log.segment < before + 2:
                    tube.put(bytes(MEGABYTE))
                assert not log.room.spare_body_bytes
                ready.append(False)
            else:
                ready.append(log.room.spare_body_bytes > 0)
            pause(spent, *share)

        maintenance._pacing.pause = write  # type: ignore[method-assign]
        queue.checkpoint()
        assert ready[1], "the segment must be created ahead, so that no caller waits for it"


@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
def test_waiting_calls_fail_if_maintenance_finds_a_broken_disk(fsync: str) -> None:
    disk = SmallDisk()
    queue = disk.queue(fsync=fsync)
    tube = queue.tube("t")
    told: list[str] = []

    def sleep() -> None:
        try:
            tube.take(timeout=60)
        except CommandError as error:
            told.append(error.code)

    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    wait_for(lambda: len(queue._session.connection.waits) == 1, "the call does not wait")
    wait_for(
        lambda: queue._host.require_journal().log.durable == queue._host.require_journal().log.written,
        "the row was not synced",
    )
    disk.sync_error = OSError(errno.EIO, "the disk is broken")
    maintenance = queue._host.require_journal()._maintenance
    with pytest.raises((JournalFailed, Closed)):
        with queue._session.lock:
            # No other thread may sync before maintenance does.
            queue._host.engine.put(tube._core, Draft(b"x", key=None), queue._host.now())
        maintenance.take_snapshot()
    sleeper.join(5)
    assert told == ["JOURNALFAILED"]
    queue.close()
