"""Invariants of an engine. `check` raises AssertionError with the name of a violated one.

Every index is rebuilt from the job table and compared with the one that the engine maintains. The cost is linear in the
size of the engine, so this is for tests, simulations and debugging, never for production.

    E1  conservation: the jobs in each state are those that entered it minus those that left it
    E2  every index equals the one rebuilt from the job table; nothing is leaked
    E3  no more jobs of a key are taken than the limit of its tube allows; after the limit was lowered, this holds as
        soon as the surplus jobs are no longer taken
    E4  the next job is the least available one, by priority and then order
    E5  a job's deadline is the earliest end of its ttl, its ttr (E6) and its delay (E7), if they count in its state
    E8  a taken job belongs to one live session, to one claim, or to neither; a job in another state belongs to neither
    E9  no command waits for something that is available
    E10 a staged job belongs to one known stage; a stage that has ended and has jobs is being emptied
    E11 the oldest ready time of a tube is the earliest time since which one of its ready jobs is ready; with keys, only
        the first ready job of each key below its limit counts; no job has entered its state before it was created or
        after the present time
    E12 a job that waits for another node is delayed, or is an at-most-once job that is being handed over

While deadlines are due that no turn has processed yet, the engine is *behind*, and E9 is not checked. tube_checks.py
checks one tube, wait_checks.py checks waiting commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core import states as s
from penstock.core.batches import OPEN, Claim
from penstock.core.deadlines import NOWHERE, Timed
from penstock.core.engine import Engine
from penstock.core.job import ASIDE, ASIDE_NEXT, HELD_BY_CLAIM, NO_SLOT, NOT_ASIDE_NEXT, Job
from penstock.core.limits import NEVER, NO_ROOM_MS
from penstock.core.moves import row_label_bytes
from penstock.core.sessions import Session
from penstock.core.waits import Waiting
from penstock.testing.assertions import HEAP_CHILDREN, filled, free, same, same_jobs, shown
from penstock.testing.tube_checks import check_table, check_tube, label_bytes
from penstock.testing.wait_checks import check_lines, check_served


def check(engine: Engine) -> None:
    """Check all invariants of an engine. Raise AssertionError with the name of the invariant if one is violated."""
    if not __debug__:
        raise RuntimeError("python -O takes away the assertions that this check is made of")
    jobs = check_table(engine.jobs, engine.next_id, lambda job: job.id)
    _check_slots(engine)
    by_tube: dict[int, list[Job]] = {tube.slot: [] for tube in engine.tubes.values()}
    for job in jobs:
        assert job.tube in by_tube, f"E2: {shown(job)} is of a tube that is not there"
        by_tube[job.tube].append(job)
        assert job.created <= job.since <= engine.now, f"E11: {shown(job)} is in its state since {job.since}"
        _check_aside(job)
    for tube in engine.tubes.values():
        check_tube(tube, by_tube[tube.slot])
    same("E2", "taken jobs", engine.taken_count, sum(job.state == s.TAKEN for job in jobs))
    labels = sum(row_label_bytes(job, engine.tube_of(job)) for job in jobs if job.state == s.TAKEN)
    same("E2", "labels of taken jobs", engine.taken_label_bytes, labels)
    once = {job.id for job in jobs if job.state == s.TAKEN and job.once}
    same("E2", "delivered jobs of at most one delivery", set(engine.delivered_once), once)
    same("E2", "what names take", engine.labels.total, sum(map(label_bytes, engine.tubes.values())))
    same("E2", "what headers take", engine.labels.headers, sum(len(job.headers()) for job in jobs))
    waits = check_lines(engine)
    claims = _claims(engine)
    _check_deadlines(engine, jobs, waits, claims)
    _check_holders(engine, jobs)
    _check_claims(jobs, claims)
    _check_stages(engine, jobs)
    _check_progress(engine)
    if not is_behind(engine):
        check_served(engine)


def _check_aside(job: Job) -> None:
    """Check E12. Between two events, no change of `aside` is pending."""
    copy = job.copy()
    if copy is not None:
        assert not copy.aside & (ASIDE_NEXT | NOT_ASIDE_NEXT), f"E12: {shown(job)} has an unfinished event"
        may_be = job.state == s.DELAYED or (job.state == s.TAKEN and job.once)
        assert may_be or not copy.aside & ASIDE, f"E12: {shown(job)} waits for another node"


def is_behind(engine: Engine) -> bool:
    """Return whether deadlines are due that no turn has processed yet."""
    return engine.deadlines.next_due <= engine.now


def _check_slots(engine: Engine) -> None:
    """Check E2: tubes and sessions are found by slot, name, number and token."""
    tubes = list(engine.tubes.values())
    same("E2", "tubes by slot", filled(engine.tube_slots), {tube.slot: tube for tube in tubes})
    same("E2", "free tube slots", sorted(engine.tube_slots_free), free(engine.tube_slots))
    same("E2", "tubes by name", engine.tubes, {tube.name: tube for tube in tubes})
    same("E2", "tubes by number", engine.tubes_by_number, {tube.number: tube for tube in tubes})
    sessions = list(engine.sessions.values())
    same("E2", "sessions by slot", filled(engine.session_slots), {x.slot: x for x in sessions})
    same("E2", "free session slots", sorted(engine.session_slots_free), free(engine.session_slots))
    same("E2", "sessions by token", engine.sessions, {session.token: session for session in sessions})


def _check_deadlines(engine: Engine, jobs: list[Job], waits: list[Waiting], claims: list[Claim]) -> None:
    """Check E2 and E5: exactly the objects that should have a deadline have one, and the heap is in order."""
    items = engine.deadlines.items
    for index, item in enumerate(items):
        assert item.deadline_pos == index, f"E2: the deadline at {index} says {item.deadline_pos}"
        parent = items[(index - 1) // HEAP_CHILDREN if index else 0]
        assert index == 0 or _moment(parent) < _moment(item), f"E2: the deadline at {index} is out of order"
    same("E2", "the next deadline", engine.deadlines.next_due, items[0].due if items else NEVER)
    timed: list[Timed] = [job for job in jobs if _check_job_deadline(engine, job)]
    timed += [session for session in engine.sessions.values() if _on_grace(session)]
    timed += [wait for wait in waits if wait.deadline_pos != NOWHERE]
    timed += claims
    timed += [stage for stage in engine.stages.by_name.values() if stage.phase == OPEN]
    timed += [engine.stages] if engine.stages.closing else []
    timed += [progress for progress in engine.progress.by_job.values() if progress.end]
    same("E5", "how many have a deadline", len(items), len(timed))
    for item in timed:
        assert items[item.deadline_pos] is item, "E2: a deadline is not at its stored position"


def _check_job_deadline(engine: Engine, job: Job) -> bool:
    """Check the deadline of a job. Return whether it has one."""
    if job.state in (s.READY, s.BURIED, s.DONE) or job.holder == HELD_BY_CLAIM:
        same("E7", f"when the state of {shown(job)} ends", job.wake, NEVER)
    assert job.wake != NEVER or job.state not in (s.DELAYED, s.ZOMBIE), f"E7: {shown(job)} would never change its state"
    due = job.wake
    ttl_waits = job.holder == HELD_BY_CLAIM or not engine.tube_of(job).ttl_kills
    if job.state != s.ZOMBIE and not (job.state == s.TAKEN and ttl_waits):
        due = min(due, job.expiry)
    if job.state == s.STAGED:
        due = NEVER
    armed = job.deadline_pos != NOWHERE
    if armed and engine.moves_left <= 0 and due <= engine.now < job.due <= engine.now + NO_ROOM_MS:
        # The job waits for space on the disk.
        return armed
    same("E5", f"the deadline of {shown(job)}", job.due if armed else NEVER, due)
    return armed


def _on_grace(session: Session) -> bool:
    """Check that a session is in its grace time if and only if it has no connections. Return whether it is."""
    armed = session.deadline_pos != NOWHERE
    same("E8", f"whether session {session.number} is on its grace time", armed, not session.connections)
    return armed


def _check_holders(engine: Engine, jobs: list[Job]) -> None:
    """Check E8 for sessions: a job that belongs to a session is taken and in the job list of that live session."""
    holdings: dict[int, list[Job]] = {session.slot: [] for session in engine.sessions.values()}
    for job in jobs:
        assert not _cancelled(job) or job.holder >= 0, f"E8: {shown(job)} is marked as cancelled, and no session has it"
        if job.state == s.TAKEN and job.holder >= 0:
            assert job.holder in holdings, f"E8: {shown(job)} has no holder"
            holdings[job.holder].append(job)
        else:
            free_of_sessions = job.holder in (NO_SLOT, HELD_BY_CLAIM) and job.held_pos == NOWHERE
            assert free_of_sessions, f"E8: {shown(job)} is held by a session, and should not be"
    for session in engine.sessions.values():
        same_jobs("E8", f"what session {session.number} holds", session.held, holdings[session.slot])
        told = set() if session.signals is None else set(session.signals.cancelled)
        same("E8", f"cancelled jobs of session {session.number}", told, {x.id for x in session.held if _cancelled(x)})
        for index, job in enumerate(session.held):
            assert job.held_pos == index, f"E8: {shown(job)} is held at {index} and says {job.held_pos}"


def _cancelled(job: Job) -> bool:
    return job.extra is not None and job.extra.cancelled


def _claims(engine: Engine) -> list[Claim]:
    """Return the open claims, and those that have ended and still have jobs to return."""
    opened = [claim for consumer in engine.consumers.values() for claim in consumer.claims.values()]
    ending = [item for item in engine.deadlines.items if isinstance(item, Claim) and item not in opened]
    return opened + ending


def _check_claims(jobs: Sequence[Job], claims: list[Claim]) -> None:
    """Check E8 for claims: a job that belongs to a claim is in exactly one claim."""
    claimed = [job for job in jobs if job.holder == HELD_BY_CLAIM]
    same_jobs("E8", "jobs in claims", [job for claim in claims for job in claim.jobs], claimed)
    assert all(job.state == s.TAKEN for job in claimed), "E8: a job is held by a claim and not taken"


def _check_stages(engine: Engine, jobs: Sequence[Job]) -> None:
    """Check E10: staged jobs and stages refer to each other."""
    stages = engine.stages
    waiting: dict[bytes, list[Job]] = {name: [] for name in stages.by_name}
    for job in jobs:
        name = b"" if job.extra is None else job.extra.stage
        # A job that waits for copies on other nodes is in the staged state without a stage.
        waits_for_copies = job.extra is not None and job.extra.copy is not None and not job.extra.stage
        staged = job.state == s.STAGED and not waits_for_copies
        assert staged == bool(name), f"E10: {shown(job)} is of stage {name!r}"
        if name:
            assert name in waiting, f"E10: {shown(job)} is of a stage that is not there"
            waiting[name].append(job)
    for name, stage in stages.by_name.items():
        left = [job for job in stage.jobs[stage.at :] if job.state == s.STAGED]
        same("E10", f"the name of stage {name!r}", stage.name, name)
        same_jobs("E10", f"jobs of stage {name!r}", left, waiting[name])
        same("E10", f"the order of stage {name!r}", [job.id for job in left], sorted(job.id for job in left))
        same("E10", f"how many jobs stage {name!r} has", stage.count, len(left))
        same("E10", f"whether stage {name!r} is being emptied", stage.closing, stage in stages.closing)
        if stage.members is not None:
            pending = sum(job.extra is not None and job.extra.batch == name for job in jobs)
            same("E10", f"pending members of batch {name!r}", stage.members.pending, pending)
        assert stage.phase == OPEN or stage.closing or not left, f"E10: stage {name!r} is over and has jobs"
    assert all(stages.by_name.get(stage.name) is stage for stage in stages.closing), (
        "E10: a stage was forgotten too soon"
    )


def _check_progress(engine: Engine) -> None:
    """Check E2: the memory of progress values is counted, and the progress of an existing job has not ended unseen."""
    board = engine.progress
    same("E2", "what progress takes of memory", board.used, sum(each.used for each in board.by_job.values()))
    for job_id, progress in board.by_job.items():
        same("E2", f"the progress of job {job_id}", progress.job_id, job_id)
        assert progress.end or engine.jobs.find(job_id) is not None, f"E2: the progress of job {job_id} never ends"


def _moment(item: Timed) -> tuple[int, int]:
    return item.due, item.due_seq
