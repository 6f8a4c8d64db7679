"""Cancel a job, report its progress, and wait for both: the commands between a worker and the clients of its jobs."""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.engine import Engine, check_reason
from penstock.core.errors import OutOfRange
from penstock.core.ids import epoch_of
from penstock.core.job import HELD_BY_CLAIM, Job
from penstock.core.limits import NEVER, check_duration
from penstock.core.sessions import Session
from penstock.core.states import FINISHED, NO_JOB, OK
from penstock.core.tasks.progress import VALUE_BYTES_MAX
from penstock.core.tube import Tube
from penstock.core.waits import Connection, SignalWait, WatchWait


def cancel(engine: Engine, job: Job, reason: bytes, now: i64) -> int:
    """Cancel a job. If nobody has taken it, remove it.

    A taken job is marked, and its session is told. The session can still ack it or bury it. If its delivery ends in any
    other way, the job is removed instead of returned. A job of a claim is removed when the claim ends.
    """
    check_reason(reason)
    engine._check_moves()
    if job.state == s.GONE:
        return NO_JOB
    if job.state == s.DONE or job.state == s.ZOMBIE:
        return FINISHED
    tube = engine.tube_of(job)
    if job.state == s.TAKEN and job.holder != HELD_BY_CLAIM:
        if tube.driven or job.holder < 0:
            raise tube.lacks("cancelling of taken jobs, because they belong to no session; delete the job instead")
        extra = job.ensure_extra()
        if extra.cancelled:
            return OK
        extra.cancelled = True
        extra.reason = reason or b"cancelled"
        engine._move(job, tube, s.CANCELLED, now)
        holder = engine.session_slots[job.holder]
        assert holder is not None
        holder.open_signals().cancel(job, extra.reason, now)
        engine.serve_signals(holder)
        return OK
    job.ensure_extra().reason = reason or b"cancelled"
    return engine.delete(job, now)


def report_progress(engine: Engine, session: Session, job: Job, value: bytes, kind: int, now: i64) -> int:
    """Store a value that describes the progress of a taken job, and send it to the clients that watch the job."""
    if len(value) > VALUE_BYTES_MAX:
        raise OutOfRange(f"a progress value may have up to {VALUE_BYTES_MAX} bytes; put longer results into a job")
    refusal = engine._not_held_job(job, session)
    if refusal != OK:
        return refusal
    board = engine.progress
    progress = board.add(job, engine.tube_of(job).name, value, kind, epoch_of(engine.next_id))
    engine.deadlines.set(progress, NEVER)
    while (surplus := board.oldest_surplus()) is not None:
        engine.forget_progress(surplus)
    for wait in list(engine.end_waits_by_id.get(job.id, [])):
        if isinstance(wait, WatchWait):
            engine._end_wait(wait, w.SERVED)
    return OK


def watch(
    engine: Engine,
    connection: Connection,
    job: Job,
    after: int,
    now: i64,
    timeout_ms: int = NEVER,
    tag: object = None,
    home: Tube | None = None,
) -> WatchWait:
    """Create a wait for progress of a job after the number `after`, or for its end. See `Engine.wait_end` for `home`.

    The values are those of `engine.progress` when the wait has ended.
    """
    engine.advance(now)
    check_duration(timeout_ms, "timeout")
    check_after(after)
    wait = WatchWait(engine.new_number(), connection, job, after, tag)
    engine._begin_end_wait(wait, timeout_ms, home, now)
    progress = engine.progress.by_job.get(job.id)
    if wait.outcome == w.WAITING and progress is not None and progress.newest > wait.after:
        engine._end_wait(wait, w.SERVED)
    return wait


def wait_signals(
    engine: Engine, connection: Connection, after: int, now: i64, timeout_ms: int = NEVER, tag: object = None
) -> SignalWait:
    """Create a wait for a signal to the session of a connection with a number greater than `after`."""
    engine.advance(now)
    check_duration(timeout_ms, "timeout")
    check_after(after)
    signals = connection.session.open_signals()
    signals.listens = True
    wait = SignalWait(engine.new_number(), connection, signals, after, tag)
    engine._begin_wait(wait, timeout_ms, now)
    signals.waits[wait.number] = wait
    if signals.newest > after and signals.since(after):
        engine._end_wait(wait, w.SERVED)
    return wait


def check_after(after: int) -> None:
    """Raise OutOfRange if `after` cannot be the number of a progress value or signal."""
    if after < 0 or after >= NEVER:
        raise OutOfRange("AFTER must be 0, or the number that the last reply returned")
