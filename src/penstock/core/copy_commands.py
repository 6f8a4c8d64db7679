"""Commands of the cluster on jobs that have copies on other nodes. See job.Copy.

A job that waits for its copies is STAGED, but in no stage. It has its id and body, but cannot be delivered. After a
crash it is unknown whether the job has enough copies, so it becomes ready. Such a job may exist although its producer
got no confirmation.
"""

from __future__ import annotations

from mypy_extensions import i64, u8

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import ASIDE_NEXT, NO_KEY, NOT_ASIDE_NEXT, Copy, Draft, Job
from penstock.core.limits import NEVER, ROW_ROOM_BYTES, check_duration
from penstock.core.tube import Tube
from penstock.core.waits import Connection, CopyWait, Waiting


def is_shared(tube: Tube) -> bool:
    """Return whether the jobs of a tube can be on any node.

    They can if none of the tube's guarantees, for example a limit per key, needs all jobs on one node.
    """
    return tube.by_creation and not tube.session_owned and tube.keys is None and tube.deletes_on_ack and not tube.driven


def hold(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    """Add a job that cannot be delivered until `let_in` is called."""
    job = _make(engine, tube, draft, copy, now)
    _enter(engine, job, tube, s.PUT_STAGED, now)
    return job


def put(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    """Add a job that can be delivered immediately, even if other nodes do not have their copies of it yet."""
    job = _make(engine, tube, draft, copy, now)
    _enter(engine, job, tube, s.PUT if job.wake == NEVER else s.PUT_DELAYED, now)
    engine.settle(now)
    return job


def put_for(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    """Add a job that is about to be handed over to another node, without serving the takes that wait here."""
    job = _make(engine, tube, draft, copy, now)
    _enter(engine, job, tube, s.PUT if job.wake == NEVER else s.PUT_DELAYED, now)
    return job


def _make(engine: Engine, tube: Tube, draft: Draft, copy: Copy, now: i64) -> Job:
    engine.advance(now)
    engine._check_put(tube, draft)
    if tube.limited:
        engine._check_capacity(tube, draft)
    job = tube.make(engine.next_id, draft, now)
    job.ensure_extra().copy = copy
    job.order = engine._creation(now)
    return job


def let_in(engine: Engine, job: Job, now: i64) -> None:
    """Make a job that was added by `hold` ready or delayed. Its delay counts from its creation."""
    engine._publish_now(job, engine.tube_of(job), now)
    engine.settle(now)


def withdraw(engine: Engine, job: Job, now: i64) -> None:
    """Remove a job that was added by `hold`."""
    engine._move(job, engine.tube_of(job), s.WITHDRAWN, now)


def admit(engine: Engine, job: Job, tube: Tube, buried: bool, now: i64) -> None:
    """Add a job from another node, with the next id of this node.

    The job is buried if `buried`, delayed if it has a wake time, and ready otherwise.
    """
    assert job.id == engine.next_id
    event: i64 = s.MOVED_IN_READY if job.wake == NEVER else s.MOVED_IN_DELAYED
    _enter(engine, job, tube, s.MOVED_IN_BURIED if buried else event, now)


def _enter(engine: Engine, job: Job, tube: Tube, event: i64, now: i64) -> None:
    engine.next_id += 1
    if engine.room_bytes != NEVER:
        engine.room_bytes -= job.body_length() + len(job.headers()) + ROW_ROOM_BYTES
    engine._enter_tube(job, tube, NO_KEY, now)
    engine.jobs.add(job)
    engine._move(job, tube, event, now)


def queue(engine: Engine, job: Job, now: i64) -> None:
    """Make a job ready that is not taken, for example a delayed copy."""
    engine._move(job, engine.tube_of(job), s.SWITCHED_READY, now)
    engine.settle(now)


def set_aside(engine: Engine, job: Job, wake: i64, now: i64) -> None:
    """Delay a job that is not gone until `wake`, because another node has it queued or taken, or is about to."""
    _mark(job, ASIDE_NEXT)
    job.wake = wake
    event: i64 = s.SNATCHED_DELAYED if job.state == s.TAKEN else s.SWITCHED_DELAYED
    engine._move(job, engine.tube_of(job), event, now)


def delay(engine: Engine, job: Job, wake: i64, now: i64) -> None:
    """Delay a delayed job until `wake`. From then on, this node is to queue it, and not another one."""
    _mark(job, NOT_ASIDE_NEXT)
    job.wake = wake
    engine._move(job, engine.tube_of(job), s.SWITCHED_DELAYED, now)


def _mark(job: Job, bit: u8) -> None:
    copy = job.copy()
    if copy is not None:
        copy.aside |= bit


def postpone(engine: Engine, job: Job, wake: i64) -> None:
    """Change the wake time of a taken or delayed job.

    This is not logged, because after a restart the node asks the other holders before it queues the job.
    """
    if job.state == s.TAKEN or job.state == s.DELAYED:
        job.wake = wake
        engine._arm(job, engine.tube_of(job))


def take_out(engine: Engine, job: Job, now: i64) -> None:
    """Take a job that no session has taken, to hand it over to another node. This counts as a delivery."""
    tube = engine.tube_of(job)
    if job.state != s.READY:
        engine._move(job, tube, s.SWITCHED_READY, now)
    job.deliveries += 1
    job.wake = NEVER
    _mark(job, ASIDE_NEXT)
    engine._move(job, tube, s.TOOK, now)


def take_back(engine: Engine, job: Job, wake: i64, buried: bool, now: i64) -> None:
    """Undo `take_out`. The job becomes ready, buried, or delayed until `wake`."""
    tube = engine.tube_of(job)
    job.deliveries -= 1
    engine._move(job, tube, s.UNDELIVERED, now)
    if buried:
        engine._move(job, tube, s.SWITCHED_BURIED, now)
    elif wake > now:
        job.wake = wake
        engine._move(job, tube, s.SWITCHED_DELAYED, now)


def bury(engine: Engine, job: Job, reason: bytes, now: i64) -> None:
    """Bury a job that is not taken, because it is buried on another node."""
    job.ensure_extra().reason = reason
    engine._move(job, engine.tube_of(job), s.SWITCHED_BURIED, now)


def first_ready(engine: Engine, tube: Tube, now: i64) -> Job | None:
    """Return the job of a tube that would be taken next, or None."""
    return engine._first(tube, None, now)


def finish(engine: Engine, job: Job, event: i64, now: i64) -> None:
    """Remove a job that was acked or deleted on another node."""
    if event == s.ACKED:
        if job.state == s.STAGED:
            engine._publish_now(job, engine.tube_of(job), now)
        elif job.state == s.DONE or job.state == s.ZOMBIE:
            # The job was switched to this state here. A job cannot be acked twice.
            event = s.DELETED
    engine._move(job, engine.tube_of(job), event, now)
    engine.settle(now)


def wait_copies(
    engine: Engine, connection: Connection, job: Job, now: i64, timeout_ms: int = NEVER, tag: object = None
) -> CopyWait:
    """Create a wait that ends when other nodes have copies of a job that was added by `hold`."""
    check_duration(timeout_ms, "timeout")
    wait = CopyWait(engine.new_number(), connection, job, tag)
    engine._begin_wait(wait, timeout_ms, now)
    return wait


def begin_wait(engine: Engine, wait: Waiting, timeout_ms: int, now: i64) -> None:
    engine._begin_wait(wait, timeout_ms, now)


def end_wait(engine: Engine, wait: Waiting, outcome: i64) -> None:
    engine._end_wait(wait, outcome)
