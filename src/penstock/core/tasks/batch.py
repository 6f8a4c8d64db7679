"""Batches: many jobs, and callbacks that are put exactly once when all of them have ended.

A batch is created with its callbacks, gets members (puts with the option BATCH), and is sealed by its producer when all
members are put. A member ends when it is acked, buried, dead-lettered, deleted, dropped or expired. When the last one
has ended, the callbacks become ready. A job that is kicked after it was buried is no member any more.

**How the count survives a crash.** The callbacks are the jobs of a stage (`Stage.members`), so they were checked and
logged when the batch was created, and one row publishes all of them. The number of pending members is not logged: every
row of a job names its batch until the job has ended, so a restart counts the jobs that still do. The end of a member
costs O(1): it decreases a counter, and sets the deadline of the stage if it was the last one. The callbacks are
published when this deadline fires. If a crash comes in between, the restart sets it again.

A member can put further members with the same command that acks it (`follow_ups.py`), because the deadline fires after
the command.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.batches import BATCH_PREFIX, OPEN, PUBLISHED, BatchMembers, Stage
from penstock.core.engine import Engine
from penstock.core.errors import BatchOver, OutOfRange, UnknownBatch
from penstock.core.job import Draft
from penstock.core.limits import BATCH_EXPIRE_MS, FOLLOW_UPS_MAX, STAGE_MEMORY_BYTES, UNSET, check_finite, check_name
from penstock.core.stages import check_drafts
from penstock.core.tasks.follow_ups import open_tubes

BATCH_STATES: Final = ["open", "sealed", "ended", "expired"]
_OPEN: Final = 0
_SEALED: Final = 1
_ENDED: Final = 2
_EXPIRED: Final = 3


def create_batch(
    engine: Engine, name: bytes, tubes: list[bytes], drafts: list[Draft], expire_ms: int, now: i64
) -> Stage:
    """Create a batch whose callbacks are `drafts[i]`, put into the tube `tubes[i]`. Create tubes that do not exist.

    A repeated call returns the batch, as long as it has no members. If no member is put for `expire_ms` (UNSET: a week)
    and the batch has not ended, the callbacks are discarded.
    """
    engine.advance(now)
    check_name(name, "the name of a batch")
    if expire_ms == UNSET:
        expire_ms = BATCH_EXPIRE_MS
    check_finite(expire_ms, "expire")
    if len(drafts) > FOLLOW_UPS_MAX:
        raise OutOfRange(f"a batch may have up to {FOLLOW_UPS_MAX} callbacks")
    there = engine.stages.find(BATCH_PREFIX + name, now)
    if there is not None:
        members = there.members
        if members is None or there.phase != OPEN or members.total > 0 or there.count != len(drafts) or members.sealed:
            raise BatchOver()
        return there
    check_drafts(drafts)
    engine.check_room(0, 0, STAGE_MEMORY_BYTES + 2 * len(name))
    places = open_tubes(engine, tubes, drafts, now) if drafts else []
    stage = Stage(BATCH_PREFIX + name, i64(expire_ms))
    stage.members = BatchMembers()
    stage.until = now + stage.expire_ms
    engine.stages.by_name[stage.name] = stage
    engine.deadlines.set(stage, stage.until)
    engine.outbox.stages_changed([stage], now)
    for at in range(len(drafts)):
        job = places[at].make(engine.next_id, drafts[at], now)
        engine._admit_staged(job, places[at], drafts[at], stage, now)
    engine.settle(now)
    return stage


def seal_batch(engine: Engine, name: bytes, now: i64) -> int:
    """State that all members of a batch were put. Return how many have not ended. A repetition has no effect."""
    engine.advance(now)
    stage = find_batch(engine, name, now)
    members = stage.members
    assert members is not None
    if stage.phase == OPEN and not members.sealed:
        members.sealed = True
        stage.until = now + stage.expire_ms
        engine.deadlines.set(stage, now if members.pending == 0 else stage.until)
        engine.outbox.stages_changed([stage], now)
        engine.advance(now)
    elif stage.phase != OPEN and stage.phase != PUBLISHED:
        raise BatchOver("the batch expired before it was sealed, and its callbacks were discarded")
    return int(members.pending)


def find_batch(engine: Engine, name: bytes, now: i64) -> Stage:
    """Return a batch. Raise UnknownBatch if there is none, or if it ended so long ago that it was removed."""
    check_name(name, "the name of a batch")
    stage = engine.stages.find(BATCH_PREFIX + name, now)
    if stage is None or stage.members is None:
        raise UnknownBatch()
    return stage


def state_of(stage: Stage) -> str:
    """Return the state of a batch: one of BATCH_STATES."""
    if stage.phase == OPEN:
        return BATCH_STATES[_SEALED if stage.members is not None and stage.members.sealed else _OPEN]
    return BATCH_STATES[_ENDED if stage.phase == PUBLISHED else _EXPIRED]
