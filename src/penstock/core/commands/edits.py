"""Changes of a job that waits in its tube: its priority, its body, and the end of its delay.

Any client may make them, as with `Engine.switch`. A job that a consumer has taken is not changed, because the consumer
works with the priority and the body that it got. Each change is one event. It does not change the state, so `since`,
the place among jobs of equal priority and the deadlines stay as they are.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine, quoted_name
from penstock.core.errors import Full, HasCopies, NoSpace, OutOfRange
from penstock.core.job import BODY_BYTES, BODY_MSGPACK, Job
from penstock.core.limits import PRIORITY_UNSET, check_body
from penstock.core.moves import index_body
from penstock.core.states import IS_STAGED, IS_TAKEN, NO_JOB, NOT_DELAYED, NOT_WAITING, OK
from penstock.core.tube import Tube


def set_priority(engine: Engine, job: Job, now: i64, priority: int) -> int:
    """Change the priority of a job that is ready, delayed or buried. Jobs of equal priority keep their order."""
    refusal = _not_waiting(engine, job)
    if refusal != OK:
        return refusal
    tube = _tube_of(engine, job)
    tube.check_change(None, priority)
    extra = job.extra
    if job.priority == priority and (extra is None or extra.priority_given == PRIORITY_UNSET):
        return OK
    tube.set_priority(job, priority)
    engine._move(job, tube, s.PRIORITIZED, now)
    return OK


def edit(engine: Engine, job: Job, now: i64, body: bytes, body_kind: int = BODY_BYTES) -> int:
    """Replace the body of a job that is ready, delayed or buried."""
    if body_kind < BODY_BYTES or body_kind > BODY_MSGPACK:
        raise OutOfRange(f"the kind of a body must be {BODY_BYTES} to {BODY_MSGPACK}")
    refusal = _not_waiting(engine, job)
    if refusal != OK:
        return refusal
    tube = _tube_of(engine, job)
    copy = job.copy()
    if copy is not None and (len(copy.holders) > 1 or copy.aside):
        raise HasCopies()
    check_body(len(body), engine.body_bytes_max)
    if len(body) > engine.room_bytes:
        raise NoSpace()
    engine._check_growth(job, body)
    _check_capacity(tube, len(body) - job.body_length())
    state = i64(job.state)
    is_indexed = tube.ready_bodies is not None
    if is_indexed:
        index_body(tube, job, state, s.GONE)
    engine._replace_body(job, tube, body, body_kind)
    if is_indexed:
        index_body(tube, job, s.GONE, state)
    engine._move(job, tube, s.EDITED, now)
    engine.settle(now)
    return OK


def end_delay(engine: Engine, job: Job, now: i64) -> int:
    """Make a delayed job ready now. The event is that of `Engine.restart`."""
    if job.state == s.DELAYED:
        return engine.restart(job, now)
    if job.state == s.TAKEN:
        return IS_TAKEN
    if job.state == s.STAGED:
        return IS_STAGED
    return NO_JOB if job.state == s.GONE else NOT_DELAYED


def _not_waiting(engine: Engine, job: Job) -> int:
    """Return OK if the job is ready, delayed or buried. Return the refusal otherwise."""
    engine._check_moves()
    if s.allowed(i64(job.state), s.EDITED):
        return OK
    if job.state == s.TAKEN:
        return IS_TAKEN
    if job.state == s.STAGED:
        return IS_STAGED
    return NO_JOB if job.state == s.GONE else NOT_WAITING


def _tube_of(engine: Engine, job: Job) -> Tube:
    tube = engine.tube_of(job)
    if tube.driven:
        raise tube.lacks("edits: its driver decides in which order it serves its tasks, and has their bodies")
    return tube


def _check_capacity(tube: Tube, more_bytes: int) -> None:
    """Raise Full if the tube has no room for a body that is longer than the old one by `more_bytes`."""
    capacity = tube.policy.capacity_bytes
    if more_bytes > 0 and 0 < capacity < tube.body_bytes + more_bytes:
        raise Full(
            f"tube {quoted_name(tube.name)} has no room for a body that is {more_bytes} bytes longer; "
            "wait for room, or take from it"
        )
