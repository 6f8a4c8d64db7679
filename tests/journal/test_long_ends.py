"""What ends in slices ends after a crash in the middle: all of it, and in the way it had begun to."""

from __future__ import annotations

from penstock.core import claiming
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.job import Draft
from penstock.core.limits import FIRED_PER_TURN_MAX
from penstock.journal.recovery import Opened, open_log
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check

WALL = 1_700_000_000_000
JOBS = FIRED_PER_TURN_MAX + 300


def reopen(disk: MemoryDisk) -> Opened:
    return open_log(disk, WALL, "boot")


def settled(opened: Opened) -> None:
    """Let everything happen that is due."""
    while opened.engine.deadlines.next_due <= WALL:
        opened.engine.advance(WALL)
        opened.log.commit(WALL, WALL)
    check(opened.engine)


def claimed(disk: MemoryDisk) -> Opened:
    opened = reopen(disk)
    tube = opened.engine.create_tube(b"t", p.FIFO, WALL)
    opened.engine.put_many(tube, [Draft(b"%d" % number) for number in range(JOBS)], WALL)
    assert claiming.claim(opened.engine, b"c", 0, 1, tube, JOBS, 60_000, WALL) is not None
    opened.log.commit(WALL, WALL)
    return opened


def test_a_claim_that_was_being_acked_is_acked_and_not_given_back() -> None:
    disk = MemoryDisk()
    opened = claimed(disk)
    assert claiming.ack_claims(opened.engine, b"c", 0, 1, WALL) == JOBS
    opened.log.commit(WALL, WALL)
    assert len(opened.engine.tube(b"t").taken) == JOBS - FIRED_PER_TURN_MAX
    again = reopen(disk)
    assert claiming.is_acking(again.engine, b"c")
    settled(again)
    tube = again.engine.tube(b"t")
    assert tube.total() == 0 and not claiming.is_acking(again.engine, b"c")
    acked = s.rule_of(s.ACKED, s.TAKEN)
    assert tube.counts[acked] + tube.counts_before[acked] == JOBS
    assert reopen(disk).engine.consumers[b"c"].acked == 1


def test_a_claim_that_was_being_given_back_is_given_back_and_not_acked() -> None:
    disk = MemoryDisk()
    opened = claimed(disk)
    claiming.release_claims(opened.engine, b"c", 0, WALL)
    # One that is acked behind it must not take it along.
    tube = opened.engine.tube(b"t")
    assert claiming.claim(opened.engine, b"c", 0, 2, tube, 1, 60_000, WALL) is not None
    assert claiming.ack_claims(opened.engine, b"c", 0, 2, WALL) == 1
    opened.log.commit(WALL, WALL)
    again = reopen(disk)
    settled(again)
    assert again.engine.tube(b"t").count_in(s.READY) == JOBS - 1
