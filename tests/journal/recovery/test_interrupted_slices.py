"""Work that is done in slices is completed after a crash in the middle, in the way in which it began."""

from __future__ import annotations

from penstock.core import claims, stages
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.job import Draft
from penstock.core.limits import FIRED_PER_TURN_MAX, UNSET
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import Opened, open_log
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check

WALL = 1_700_000_000_000
JOBS = FIRED_PER_TURN_MAX + 300


def reopen(disk: MemoryDisk) -> Opened:
    return open_log(disk, lambda: WALL, "boot")


def settled(opened: Opened) -> None:
    """Run all due timers."""
    while opened.engine.deadlines.next_due <= WALL:
        opened.engine.advance(WALL)
        opened.log.commit(WALL, WALL)
    check(opened.engine)


def claimed(disk: MemoryDisk) -> Opened:
    opened = reopen(disk)
    tube = opened.engine.create_tube(b"t", p.FIFO, WALL)
    opened.engine.put_many(tube, [Draft(b"%d" % number) for number in range(JOBS)], WALL)
    assert claims.claim(opened.engine, b"c", 0, 1, tube, JOBS, 60_000, WALL) is not None
    opened.log.commit(WALL, WALL)
    return opened


def test_a_claim_that_was_being_acked_is_acked_and_not_given_back() -> None:
    disk = MemoryDisk()
    opened = claimed(disk)
    assert claims.ack_claims(opened.engine, b"c", 0, 1, WALL) == JOBS
    opened.log.commit(WALL, WALL)
    assert len(opened.engine.tube(b"t").taken) == JOBS - FIRED_PER_TURN_MAX
    again = reopen(disk)
    assert claims.is_acking(again.engine, b"c")
    settled(again)
    tube = again.engine.tube(b"t")
    assert tube.total() == 0 and not claims.is_acking(again.engine, b"c")
    acked = s.rule_of(s.ACKED, s.TAKEN)
    assert tube.counts[acked] + tube.counts_before[acked] == JOBS
    assert reopen(disk).engine.consumers[b"c"].acked == 1


def test_a_claim_that_was_being_given_back_is_given_back_and_not_acked() -> None:
    disk = MemoryDisk()
    opened = claimed(disk)
    claims.release_claims(opened.engine, b"c", 0, WALL)
    # A claim that is acked after it must not ack this one.
    tube = opened.engine.tube(b"t")
    assert claims.claim(opened.engine, b"c", 0, 2, tube, 1, 60_000, WALL) is not None
    assert claims.ack_claims(opened.engine, b"c", 0, 2, WALL) == 1
    opened.log.commit(WALL, WALL)
    again = reopen(disk)
    settled(again)
    assert again.engine.tube(b"t").count_in(s.READY) == JOBS - 1


def staged(disk: MemoryDisk) -> Opened:
    """Two stages of one tube. The second has fewer jobs."""
    opened = reopen(disk)
    tube = opened.engine.create_tube(b"t", p.FIFO, WALL)
    for name, first, count in ((b"a", 0, JOBS), (b"b", JOBS, 10)):
        drafts = [Draft(b"%d" % number) for number in range(first, first + count)]
        stages.stage_jobs(opened.engine, name, tube, drafts, UNSET, WALL)
    opened.log.commit(WALL, WALL)
    return opened


def served(opened: Opened) -> list[bytes]:
    session = opened.engine.connect(b"me").session
    tube, found = opened.engine.tube(b"t"), []
    while (job := opened.engine.take(session, tube, WALL)) is not None:
        found.append(opened.engine.outbox.body_of(job))
    return found


ALL = [b"%d" % number for number in range(JOBS + 10)]


def test_an_interrupted_publication_is_completed_in_order_and_once() -> None:
    disk = MemoryDisk()
    opened = staged(disk)
    assert stages.publish(opened.engine, [b"a", b"b"], WALL) == JOBS + 10
    opened.log.commit(WALL, WALL)
    assert opened.engine.tube(b"t").count_in(s.STAGED) == JOBS + 10 - FIRED_PER_TURN_MAX
    again = reopen(disk)
    check(again.engine)
    assert stages.publish(again.engine, [b"b", b"a"], WALL) == JOBS + 10
    settled(again)
    assert served(again) == ALL
    assert stages.publish(reopen(disk).engine, [b"a", b"b"], WALL) == JOBS + 10


def test_a_publication_is_completed_after_a_snapshot_in_the_middle() -> None:
    disk = MemoryDisk()
    opened = staged(disk)
    stages.publish(opened.engine, [b"a", b"b"], WALL)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    again = reopen(disk)
    settled(again)
    assert served(again) == ALL
    assert stages.publish(reopen(disk).engine, [b"a"], WALL) == JOBS


def test_an_interrupted_discard_is_completed() -> None:
    disk = MemoryDisk()
    opened = staged(disk)
    assert stages.discard(opened.engine, [b"a"], WALL) == JOBS
    opened.log.commit(WALL, WALL)
    again = reopen(disk)
    settled(again)
    assert again.engine.tube(b"t").count_in(s.STAGED) == 10 and served(again) == []


def test_a_publication_whose_frame_was_not_written_did_not_happen() -> None:
    disk = MemoryDisk()
    opened = staged(disk)
    stages.publish(opened.engine, [b"a", b"b"], WALL)
    # The frame was never written, so neither was published.
    again = reopen(disk)
    settled(again)
    assert again.engine.tube(b"t").count_in(s.STAGED) == JOBS + 10
    assert stages.publish(again.engine, [b"a", b"b"], WALL) == JOBS + 10
    settled(again)
    assert served(again) == ALL


def test_a_stage_expires_over_a_restart() -> None:
    disk = MemoryDisk()
    opened = reopen(disk)
    tube = opened.engine.create_tube(b"t", p.FIFOTTL, WALL)
    stages.stage_jobs(opened.engine, b"a", tube, [Draft(b"1", delay_ms=5, ttl_ms=5)], 1_000, WALL)
    opened.log.commit(WALL, WALL)
    again = reopen(disk)
    again.engine.advance(WALL + 999)
    assert again.engine.tube(b"t").count_in(s.STAGED) == 1
    again.engine.advance(WALL + 1_000)
    assert again.engine.tube(b"t").total() == 0
