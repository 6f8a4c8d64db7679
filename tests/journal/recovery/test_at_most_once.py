"""At-most-once jobs are never delivered twice, after any loss and any crash of the next open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.core import policy
from penstock.core import states as s
from penstock.core.errors import NoSpace
from penstock.core.job import Draft
from penstock.host.host import Host, Store
from penstock.journal.identity import abandon_log, identity
from penstock.journal.layout import FRAME_HEADER_BYTES
from penstock.journal.log import ALWAYS, EVERYSEC, FSYNC_CHOICES, NEVER_SYNC
from penstock.journal.recovery import filling
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import FrameFile, all_headers, segment_names
from penstock.testing import check
from penstock.testing.disk import MemoryDisk, crashes, killed
from tests.journal.shortened_queue import SEGMENT, WALL


def opened_on(disk: MemoryDisk, boot: str, fsync: str = NEVER_SYNC) -> Opened:
    return open_log(disk, lambda: WALL, boot, fsync=fsync, segment_bytes=SEGMENT)


def put(opened: Opened, count: int = 1, delay_ms: int = 0) -> list[int]:
    """Put at-most-once jobs, and return their ids."""
    tube = opened.engine.create_tube(b"once", policy.DISQUE, WALL)
    jobs = [opened.engine.put(tube, Draft(b"x", once=True, delay_ms=delay_ms), WALL) for _ in range(count)]
    opened.log.commit(WALL, WALL)
    return [job.id for job in jobs]


def deliver(opened: Opened) -> int:
    """Deliver all jobs that can be delivered, and return their number."""
    engine = opened.engine
    session = engine.connect(b"c" * 16).session
    count = 0
    while engine.take(session, engine.tubes[b"once"], engine.now) is not None:
        count += 1
    opened.log.commit(engine.now, WALL)
    return count


def can_be_delivered(opened: Opened) -> bool:
    """Return whether any command can lead to a delivery."""
    engine = opened.engine
    check(engine)
    for job in engine.jobs.scan(0, 1_000):
        if job.state != s.TAKEN:
            engine.switch(job, s.READY, engine.now)
    engine.kick(engine.tubes[b"once"], 1_000, engine.now)
    return deliver(opened) > 0


def with_its_rows_lost() -> MemoryDisk:
    """Return the disk of a queue that delivered jobs, and lost the rows about that in a power cut."""
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot")
    put(opened, 3)
    opened.log.make_durable(opened.log.written)
    assert deliver(opened) == 3
    return next(crashes(disk, len(disk.effects)))


def forsaken() -> MemoryDisk:
    """Return the disk of a queue that delivered jobs after it had abandoned its log."""
    disk = MemoryDisk()
    opened = opened_on(disk, "second boot")
    put(opened, 3)
    opened.log.close(WALL, WALL)
    abandon_log(disk)
    return disk.copy()


@pytest.mark.parametrize("fsync", FSYNC_CHOICES)
@pytest.mark.parametrize("lose", [with_its_rows_lost, forsaken])
def test_a_crash_during_open_does_not_make_doubtful_jobs_deliverable(
    lose: Callable[[], MemoryDisk], fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each job that is buried is a commit of its own.
    monkeypatch.setattr(filling, "_COMMIT_BYTES", FRAME_HEADER_BYTES)
    disk = lose()
    assert not can_be_delivered(opened_on(disk.copy(), "second boot", fsync))
    opened_on(disk, "second boot", fsync)
    for count in range(len(disk.effects) + 1):
        assert not can_be_delivered(opened_on(killed(disk, count), "second boot", fsync)), disk.effects[:count][-1:]
        for cut in crashes(disk, count):
            assert not can_be_delivered(opened_on(cut, "third boot", fsync)), disk.effects[:count][-1:]


@pytest.mark.parametrize("lose", [with_its_rows_lost, forsaken])
def test_jobs_put_after_a_complete_open_are_not_doubtful(lose: Callable[[], MemoryDisk]) -> None:
    disk = lose()
    opened = opened_on(disk, "second boot")
    assert not identity(disk).doubtful
    (job,) = put(opened)
    found = opened_on(killed(disk, len(disk.effects)), "second boot").engine.find(job, WALL)
    assert found is not None and found.state == s.READY


def test_a_job_that_was_delayed_may_have_been_enqueued_and_delivered() -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot")
    (job_id,) = put(opened, delay_ms=60_000)
    opened.log.make_durable(opened.log.written)
    job = opened.engine.find(job_id, WALL)
    assert job is not None
    opened.engine.switch(job, s.READY, WALL)
    assert deliver(opened) == 1
    again = opened_on(next(crashes(disk, len(disk.effects))), "second boot")
    assert not can_be_delivered(again)


def test_a_buried_job_may_have_been_enqueued_and_delivered() -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot")
    (job_id,) = put(opened)
    engine = opened.engine
    job = engine.find(job_id, WALL)
    assert job is not None
    engine.bury(engine.connect(b"d" * 16).session, job, WALL, b"dequeued")
    opened.log.commit(WALL, WALL)
    opened.log.make_durable(opened.log.written)
    engine.switch(job, s.READY, WALL)
    assert deliver(opened) == 1
    disk = next(crashes(disk, len(disk.effects)))
    again = opened_on(disk, "second boot")
    found = again.engine.find(job_id, WALL)
    assert found is not None and found.state == s.BURIED and b"may have been delivered" in found.ensure_extra().reason
    assert not can_be_delivered(again)
    assert not can_be_delivered(opened_on(disk, "second boot"))


def test_only_at_most_once_jobs_are_doubtful() -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot")
    tube = opened.engine.create_tube(b"once", policy.DISQUE, WALL)
    job = opened.engine.put(tube, Draft(b"x"), WALL)
    opened.log.commit(WALL, WALL)
    found = opened_on(disk.copy(), "second boot").engine.find(job.id, WALL)
    assert found is not None and found.state == s.READY


def test_doubtful_jobs_are_buried_in_frames_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 4_096
    monkeypatch.setattr(filling, "_COMMIT_BYTES", most)
    disk = MemoryDisk()
    put(opened_on(disk, "first boot"), 100)
    opened_on(disk, "second boot")
    with FrameFile(disk, segment_names(disk)[-1]) as file:
        lengths = [found.frame.length for found in file.frames()]
    assert len(lengths) > 4
    assert max(lengths) < most + 1_024


@pytest.mark.parametrize("promised", [EVERYSEC, NEVER_SYNC])
@pytest.mark.parametrize("ahead", [False, True])
def test_the_present_fsync_policy_decides_what_a_power_cut_may_lose(promised: str, ahead: bool) -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot", ALWAYS)
    put(opened)
    opened.log.make_durable(opened.log.written)
    if ahead:
        opened.log.prepare()
    opened.log.change_fsync(promised, WALL, WALL)
    assert deliver(opened) == 1
    for cut in crashes(disk, len(disk.effects)):
        assert not can_be_delivered(opened_on(cut, "second boot"))


def test_switching_to_fsync_always_syncs_earlier_rows() -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot", NEVER_SYNC)
    opened.log.prepare()
    put(opened)
    assert deliver(opened) == 1
    opened.log.change_fsync(ALWAYS, WALL, WALL)
    (job,) = put(opened)
    opened.log.make_durable(opened.log.written)
    again = opened_on(next(crashes(disk, len(disk.effects))), "second boot")
    found = again.engine.find(job, WALL)
    assert found is not None and found.state == s.READY
    assert deliver(again) == 1


@pytest.mark.parametrize("before", FSYNC_CHOICES)
@pytest.mark.parametrize("after", FSYNC_CHOICES)
def test_a_crash_during_a_change_of_the_fsync_policy_leaves_the_old_or_the_new_one(before: str, after: str) -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot", before)
    opened.log.prepare()
    (job,) = put(opened)
    opened.log.make_durable(opened.log.written)
    done = len(disk.effects)
    opened.log.change_fsync(after, WALL, WALL)
    for count in range(done, len(disk.effects) + 1):
        for cut in crashes(disk, count):
            found = opened_on(cut, "second boot").engine.find(job, WALL)
            may_be = {s.READY if fsync == ALWAYS else s.BURIED for fsync in (before, after)}
            assert found is not None and found.state in may_be


def test_a_changed_fsync_policy_is_written_to_the_log() -> None:
    disk = MemoryDisk()
    host = Host(0, store=Store(disk, ALWAYS))
    host.require_journal().log.prepare()
    with host.lock, host:
        host.set_fsync(EVERYSEC)
    host.require_journal().log.prepare()
    promises = [header.fsync for header in all_headers(disk)]
    host.close()
    assert promises == [ALWAYS, EVERYSEC, EVERYSEC]


def test_a_change_of_the_fsync_policy_that_a_full_disk_refuses_has_no_effect() -> None:
    disk = MemoryDisk()
    opened = opened_on(disk, "first boot", ALWAYS)
    (job,) = put(opened)
    disk.capacity = 0
    with pytest.raises(NoSpace):
        opened.log.change_fsync(NEVER_SYNC, WALL, WALL)
    assert opened.log.fsync == ALWAYS
    disk.capacity = None
    put(opened)
    opened.log.make_durable(opened.log.written)
    found = opened_on(next(crashes(disk, len(disk.effects))), "second boot").engine.find(job, WALL)
    assert found is not None and found.state == s.READY
