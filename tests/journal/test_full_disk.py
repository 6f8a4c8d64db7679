"""On a full disk, whether of jobs or of other files, the queue refuses calls, loses nothing, and resumes with space."""

from __future__ import annotations

import errno
import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.core.errors import NoSpace
from penstock.core.limits import NEVER
from penstock.embedded import Job, Queue, Tube
from penstock.host.host import Host, Store
from penstock.host.maintenance.runner import Maintenance
from penstock.host.session import Session
from penstock.options import NewJob
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.maintenance_waits import wait_for, wait_for_rest

MEGABYTE = 1024 * 1024


def a_queue(disk: MemoryDisk, **store: Any) -> Queue:
    return Queue(Session(Host(0, NEVER, Store(disk, fsync="never", **store))))


@contextmanager
def absent_maintenance(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold all maintenance threads before their next turn, as if they got no CPU time. Release them at the end."""
    may_go_on = threading.Event()
    turn = Maintenance._turn

    def late(maintenance: Maintenance, served: Any) -> float:
        while not may_go_on.wait(0.01):
            if maintenance._stopping.is_set():
                return 0.0
        return turn(maintenance, served)

    monkeypatch.setattr(Maintenance, "_turn", late)
    try:
        yield
    finally:
        may_go_on.set()


def others_fill(disk: MemoryDisk, queue: Queue) -> None:
    """Fill the disk as another program would. The queue has not checked its free space since."""
    disk.capacity = sum(map(len, list(disk.files.values())))


def fill(tube: Tube) -> int:
    """Put empty jobs until puts are refused. Return the number of jobs."""
    for accepted in itertools.count():
        try:
            tube.put(b"")
        except NoSpace:
            return accepted
    raise AssertionError


def use_up(tube: Tube) -> int:
    """Take and release until that is refused. Return the number of times."""
    for times in itertools.count():
        try:
            job = tube.take()
        except NoSpace:
            return times
        assert job is not None
        job.release()
    raise AssertionError


def can_put(queue: Queue, tube: Tube) -> bool:
    try:
        tube.put("there is room again")
    except NoSpace:
        queue._host.require_journal()._maintenance.wake()  # Otherwise it would check again after a second.
        return False
    return True


# ---- Full of jobs ----------------------------------------------------------------------------------------------------


def test_files_that_maintenance_creates_do_not_count_as_free_space() -> None:
    disk = MemoryDisk(capacity=10 * MEGABYTE)
    with a_queue(disk) as queue:
        wait_for_rest(queue)
        assert queue._host.require_journal().log.room.free == disk.free()


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("key", [None, "k" * 1_000], ids=["", "long keys"])
def test_all_accepted_jobs_can_be_taken_returned_and_taken_again(at_once: bool, key: str | None) -> None:
    disk = MemoryDisk(capacity=10 * MEGABYTE)
    with a_queue(disk) as queue:
        tube = queue.tube("t", "fifottl" if key is None else "utube")
        accepted = 0
        with pytest.raises(NoSpace):
            while True:
                tube.put(b"", key=None if key is None else f"{accepted} {key}")
                accepted += 1
        assert accepted > (500 if key else 3_000)
        for end in (Job.release, Job.ack):
            jobs = tube.take_many(accepted) if at_once else [tube.take() for _ in range(accepted)]
            assert len(jobs) == accepted
            for job in jobs:
                assert job is not None
                end(job)


def test_a_disk_that_is_filled_before_the_first_turn_of_maintenance_has_room_when_all_jobs_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk(capacity=10 * MEGABYTE)
    with absent_maintenance(monkeypatch):
        queue = a_queue(disk)
        tube = queue.tube("t")
        accepted = fill(tube)
        assert accepted > 3_000
        for job in tube.take_many(accepted):
            job.release()
        for _ in range(accepted):
            job = tube.take()
            assert job is not None
            job.ack()
    with queue:
        wait_for(lambda: can_put(queue, tube), "the disk stays full although all jobs are done")
        wait_for(lambda: "ballast" in disk.names(), "it is not ready for the next time")


def test_a_lost_reserve_file_is_created_again_from_the_space_of_finished_jobs() -> None:
    """Without a reserve file, the disk would stay full the next time."""
    disk = MemoryDisk(capacity=24 * MEGABYTE)
    with a_queue(disk) as queue:
        wait_for_rest(queue)
        tube = queue.tube("t")
        for _ in range(3):
            for job in tube.put_many([bytes(10_000)] * 100):
                job.delete()
        journal = queue._host.require_journal()
        wait_for(lambda: journal.log.room.spare is not None, "no next segment was created")
        disk.capacity = sum(map(len, list(disk.files.values()))) - disk.size("ballast") + 64 * 1024
        disk.remove("ballast")
        journal._maintenance.wake()
        wait_for(lambda: "ballast" in disk.names(), "there is none")
        for _ in range(2):
            accepted = fill(tube)
            assert accepted > 1_000
            for _ in range(accepted):
                taken = tube.take()
                assert taken is not None
                taken.ack()
            wait_for(lambda: can_put(queue, tube), "the disk stays full although all jobs are done")


# ---- Full of other files ---------------------------------------------------------------------------------------------


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[MemoryDisk, Queue, Tube]]:
    """Yield a queue with 3,000 jobs, whose disk is to be filled by others while its maintenance does not run."""
    disk = MemoryDisk(capacity=32 * MEGABYTE)
    with absent_maintenance(monkeypatch):
        queue = a_queue(disk)
        tube = queue.tube("t", "fifottl")
        tube.put_many([b""] * 3_000)
        yield disk, queue, tube
    disk.capacity = None
    queue.close()


def test_takes_are_refused_before_the_log_is_full_and_resume_with_space(
    filled: tuple[MemoryDisk, Queue, Tube],
) -> None:
    disk, queue, tube = filled
    held = tube.take_many(500)
    others_fill(disk, queue)
    assert use_up(tube) > 1_000
    with pytest.raises(NoSpace):
        tube.put(b"")
    for job in held:
        job.ack()
    check(queue._host.engine)
    disk.capacity = None
    queue._host.require_journal().log.room.refresh_not_before = 0
    wait_for(lambda: can_put(queue, tube), "the free space is not noticed")
    assert len(tube.take_many(3_000)) == 2_501


def test_a_take_of_many_is_accepted_only_if_all_of_them_can_end(filled: tuple[MemoryDisk, Queue, Tube]) -> None:
    disk, queue, tube = filled
    for _ in range(9):
        tube.put_many([b""] * 2_000)
    others_fill(disk, queue)
    held = []
    with pytest.raises(NoSpace):
        while True:
            held += tube.take_many(20_000)
            assert len(held) < 21_000, "there was room for all"
    assert len(held) > 3_000
    for job in held:
        job.ack()
    check(queue._host.engine)


def test_a_take_that_exceeds_a_segment_is_complete_if_there_is_room(
    filled: tuple[MemoryDisk, Queue, Tube],
) -> None:
    disk, queue, tube = filled
    disk.capacity = None
    tube.put_many([b""] * 30_000)
    jobs = tube.take_many(33_000)
    assert len(jobs) == 33_000
    others_fill(disk, queue)
    for job in jobs:
        job.ack()


@pytest.mark.parametrize("distinct", [True, False], ids=["a key of each", "one key of all"])
def test_jobs_with_long_keys_can_end_beside_many_jobs_without_keys(
    filled: tuple[MemoryDisk, Queue, Tube], distinct: bool
) -> None:
    """The space that is reserved for taken jobs depends on the keys of these jobs, not on those of other jobs."""
    disk, queue, tube = filled
    disk.capacity = None
    keyed = queue.tube("keyed", "utubettl", key_limit=3_000)
    keyed.put_many([NewJob(b"", key=f"{number if distinct else 0} {'k' * 1_000}") for number in range(2_000)])
    held = keyed.take_many(2_000)
    assert len(held) == 2_000
    tube.put_many([b""] * 20_000)
    others_fill(disk, queue)
    use_up(tube)
    for job in held:
        job.ack()
    check(queue._host.engine)


def test_a_take_of_many_jobs_with_long_keys_is_accepted_only_if_all_of_them_can_end(
    filled: tuple[MemoryDisk, Queue, Tube],
) -> None:
    disk, queue, tube = filled
    disk.capacity = None
    keyed = queue.tube("keyed", "utube")
    keyed.put_many([NewJob(b"", key=f"{number} {'k' * 4_000}") for number in range(3_000)])
    tube.put_many([b""] * 20_000)
    others_fill(disk, queue)
    held = keyed.take_many(3_000)
    assert 100 < len(held) < 3_000
    use_up(tube)
    for job in held:
        job.ack()
    check(queue._host.engine)


def test_timers_wait_for_disk_space(filled: tuple[MemoryDisk, Queue, Tube]) -> None:
    disk, queue, tube = filled
    held = tube.take_many(100)
    tube.put_many([b"delayed"] * 20_000, delay=0.001)
    others_fill(disk, queue)
    host = queue._host
    wait_for(lambda: not tube.stats()["delayed"] or host.engine.moves_left <= 0, "the time does not pass")
    use_up(tube)
    check(host.engine)
    with host.lock, host:
        host.advance()
    for job in held:
        job.ack()
    disk.capacity = None
    host.require_journal().log.room.refresh_not_before = 0
    wait_for(lambda: can_put(queue, tube) and not tube.stats()["delayed"], "what was due has not happened")


def test_a_job_that_is_not_taken_is_deleted_only_if_there_is_room(filled: tuple[MemoryDisk, Queue, Tube]) -> None:
    disk, queue, tube = filled
    held = tube.take_many(10)
    others = tube.put_many([b"other"] * 10)
    others_fill(disk, queue)
    use_up(tube)
    with pytest.raises(NoSpace):
        others[0].delete()
    for job in held:
        job.delete()
    with pytest.raises(NoSpace):
        tube.drop()
    disk.capacity = None
    wait_for(lambda: can_put(queue, tube), "the free space is not noticed")
    tube.drop()


# ---- Not full --------------------------------------------------------------------------------------------------------


def test_history_is_kept_if_files_cannot_be_created_for_other_reasons_than_space(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without file descriptors, no next segment and no reserve file can be created. Deleting history is no help."""
    disk = MemoryDisk()
    with a_queue(disk) as queue:
        tube, log = queue.tube("t"), queue._host.require_journal().log
        for _ in range(3):
            tube.put(bytes(log.room.segment_bytes // 2))
            taken = tube.take()
            assert taken is not None
            taken.ack()
        queue.checkpoint()
        wait_for_rest(queue)
        refused: list[str] = []

        def no_files(name: str, size: int, head: bytes) -> Any:
            refused.append(name)
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(disk, "create", no_files)
            disk.remove("ballast")
            with log.room.lock:
                log._remove_spare()
            history = set(disk.names())
            maintenance = queue._host.require_journal()._maintenance
            # It tries to create each of the two, and again, in every turn.
            wait_for(lambda: maintenance.wake() or len(refused) > 8, "no file was created")
        wait_for(lambda: maintenance.wake() or log.room.spare is not None, "no next segment was created")
        assert history <= set(disk.names()) and "history deleted" not in caplog.text


def test_a_full_disk_is_logged_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    disk = MemoryDisk(capacity=10 * MEGABYTE)
    with a_queue(disk) as queue:
        tube, maintenance = queue.tube("t"), queue._host.require_journal()._maintenance
        fill(tube)
        wait_for(lambda: maintenance.wake() or bool(caplog.messages), "the full disk was not logged")
        disk.capacity = 100 * MEGABYTE
        wait_for(lambda: maintenance.wake() or len(caplog.messages) > 1, "the end of the full disk was not logged")
        assert caplog.messages == [
            "puts refused: the log cannot grow, because the disk is full or no file can be opened",
            "puts accepted again: the log can grow",
        ]
