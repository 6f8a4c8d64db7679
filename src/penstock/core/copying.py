"""The commands of copies: what a cluster does to jobs of which other nodes have copies, too. See job.Copy.

A job that waits for its copies is STAGED in no stage: it is there, with its id and its body, and nobody gets it.
After a crash nobody knows whether it has enough of them, so it is let in: it may be there although nobody was told
so.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import NO_KEY, Copy, Draft, Job
from penstock.core.limits import NEVER, ROW_ROOM_BYTES, check_duration
from penstock.core.tube import Tube
from penstock.core.waits import Connection, CopyWait, Waiting


def is_shared(tube: Tube) -> bool:
    """Whether jobs of a tube may be on any node: nothing it promises depends on all of them being on one."""
    return tube.by_creation and not tube.owned and tube.keys is None and tube.goes and not tube.driven


def hold(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    """Add a job that nobody gets before it is let in."""
    job = _make(engine, tube, draft, copy, now)
    _enter(engine, job, tube, s.PUT_STAGED, now)
    return job


def put(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    """Add a job with copies that may be had at once, whatever becomes of them."""
    job = _make(engine, tube, draft, copy, now)
    _enter(engine, job, tube, s.PUT if job.wake == NEVER else s.PUT_DELAYED, now)
    engine._settle(now)
    return job


def put_for(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    """Add a job that is about to be handed to another node, before anybody here gets it."""
    job = _make(engine, tube, draft, copy, now)
    _enter(engine, job, tube, s.PUT if job.wake == NEVER else s.PUT_DELAYED, now)
    return job


def _make(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    engine.advance(now)
    engine._check_put(tube, draft)
    job = tube.make(engine._next_id, draft, now)
    job.rare().copy = copy
    job.order = engine._creation(now)
    return job


def let_in(engine: Engine, job: Job, now: i64) -> None:
    """Let a job that was held go to its queue, or begin its delay, which began when it was made."""
    engine._let_in(job, engine.tube_of(job), now)
    engine._settle(now)


def withdraw(engine: Engine, job: Job, now: i64) -> None:
    """Remove a job that was held."""
    engine._move(job, engine.tube_of(job), s.WITHDRAWN, now)


def admit(engine: Engine, job: Job, tube: Tube, buried: bool, now: i64) -> None:
    """Let a job in that comes from another node, with the next id of this one: ready, or delayed if it is to wake."""
    assert job.id == engine._next_id
    event: i64 = s.MOVED_IN_READY if job.wake == NEVER else s.MOVED_IN_DELAYED
    _enter(engine, job, tube, s.MOVED_IN_BURIED if buried else event, now)


def _enter(engine: Engine, job: Job, tube: Tube, event: i64, now: i64) -> None:
    engine._next_id += 1
    if engine.room_bytes != NEVER:
        engine.room_bytes -= job.body_length() + ROW_ROOM_BYTES
    engine._enter_tube(job, tube, NO_KEY, now)
    engine.jobs.add(job)
    engine._move(job, tube, event, now)


def queue(engine: Engine, job: Job, now: i64) -> None:
    """Put a job that waits here into its queue."""
    engine._move(job, engine.tube_of(job), s.SWITCHED_READY, now)
    engine._settle(now)


def set_aside(engine: Engine, job: Job, wake: i64, now: i64) -> None:
    """Take a job out of its queue, or away from its taker, until a moment: another node has it."""
    job.wake = wake
    event: i64 = s.SNATCHED_DELAYED if job.state == s.TAKEN else s.SWITCHED_DELAYED
    engine._move(job, engine.tube_of(job), event, now)


def postpone(engine: Engine, job: Job, wake: i64) -> None:
    """Let a job that is taken or delayed wake at another moment. The log need not know: asking comes first then."""
    if job.state == s.TAKEN or job.state == s.DELAYED:
        job.wake = wake
        engine._arm(job, engine.tube_of(job))


def take_out(engine: Engine, job: Job, now: i64) -> None:
    """Take a job that nobody holds, wherever it is, to give it to another node: as if that had taken it."""
    tube = engine.tube_of(job)
    if job.state != s.READY:
        engine._move(job, tube, s.SWITCHED_READY, now)
    job.deliveries += 1
    job.wake = NEVER
    engine._move(job, tube, s.TOOK, now)


def take_back(engine: Engine, job: Job, wake: i64, buried: bool, now: i64) -> None:
    """Have a job again that was taken out: ready, buried, or delayed until it is to wake."""
    tube = engine.tube_of(job)
    job.deliveries -= 1
    engine._move(job, tube, s.UNDELIVERED, now)
    if buried:
        engine._move(job, tube, s.SWITCHED_BURIED, now)
    elif wake > now:
        job.wake = wake
        engine._move(job, tube, s.SWITCHED_DELAYED, now)


def bury(engine: Engine, job: Job, reason: bytes, now: i64) -> None:
    """Let a job that waits here be buried, as it is elsewhere."""
    job.rare().reason = reason
    engine._move(job, engine.tube_of(job), s.SWITCHED_BURIED, now)


def first_ready(engine: Engine, tube: Tube, now: i64) -> Job | None:
    """The job of a tube that would be served next."""
    return engine._first(tube, None, now)


def finish(engine: Engine, job: Job, event: i64, now: i64) -> None:
    """Let a job be gone, because it was acked or deleted elsewhere."""
    if event == s.ACKED:
        if job.state == s.STAGED:
            engine._let_in(job, engine.tube_of(job), now)
        elif job.state == s.DONE or job.state == s.ZOMBIE:
            # It was switched to that here: acked it cannot be twice.
            event = s.DELETED
    engine._move(job, engine.tube_of(job), event, now)
    engine._settle(now)


def wait_copies(
    engine: Engine, connection: Connection, job: Job, now: i64, timeout_ms: int = NEVER, tag: object = None
) -> CopyWait:
    """Wait until other nodes have copies of a job that is held."""
    check_duration(timeout_ms, "timeout")
    wait = CopyWait(engine._number(), connection, job, tag)
    engine._begin_wait(wait, timeout_ms, now)
    return wait


def begin_wait(engine: Engine, wait: Waiting, timeout_ms: int, now: i64) -> None:
    """Let somebody wait for something that other nodes will say."""
    engine._begin_wait(wait, timeout_ms, now)


def end_wait(engine: Engine, wait: Waiting, outcome: i64) -> None:
    """Tell one who waits for other nodes that it is over."""
    engine._end_wait(wait, outcome)
