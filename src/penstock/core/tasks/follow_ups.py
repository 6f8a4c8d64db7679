"""Follow-up jobs: puts that happen together with the end of a delivery, in one frame of the log, or not at all.

A worker that finishes a step and starts the next one with two commands can crash between them: then the next step is
lost, or runs twice. `settle_then` checks all puts before it settles the job, so that none of them can be refused
afterwards. Settling only makes room: it can free a name, a unique value or a place in a tube, and takes none.

If the reply is lost, the client repeats the command. Then the job is no longer held, and the puts tell whether the
command was executed: if the tubes remember the dedup ids of all puts, it was, because they were put together.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.errors import BodyTooLarge, JobExists, OutOfRange
from penstock.core.job import Draft, Job
from penstock.core.limits import BATCH_BYTES_MAX, FOLLOW_UPS_MAX
from penstock.core.moves import puts_bytes
from penstock.core.policy import DEFAULT
from penstock.core.sessions import Session
from penstock.core.states import OK
from penstock.core.tube import Tube


def check_follow_ups(engine: Engine, tubes: list[Tube], drafts: list[Draft], now: i64) -> None:
    """Raise an error if one of these puts would be refused: `drafts[i]` into `tubes[i]`. Change nothing."""
    _check_together(engine, [tube.name for tube in tubes], drafts, now)
    by_tube: dict[int, list[Draft]] = {}
    for at in range(len(drafts)):
        tube = tubes[at]
        if tube.driven:
            raise tube.lacks("puts that follow another command: its driver puts one job at a time")
        by_tube.setdefault(tube.slot, []).append(drafts[at])
    for slot, some in by_tube.items():
        there = engine.tube_at(slot)
        assert there is not None
        engine._check_many(there, some, now, 0)


def _check_together(engine: Engine, names: list[bytes], drafts: list[Draft], now: i64) -> None:
    """Raise an error if these puts would be refused together, even if each of them would be accepted alone."""
    engine.advance(now)
    if len(drafts) < 1 or len(drafts) > FOLLOW_UPS_MAX:
        raise OutOfRange(f"a command may put 1 to {FOLLOW_UPS_MAX} jobs after it has settled one; use a stage for more")
    values: set[tuple[bytes, bytes]] = set()
    log_bytes: i64 = 0
    for at in range(len(drafts)):
        draft = drafts[at]
        log_bytes += draft.log_bytes()
        for value in (draft.unique, draft.dedup):
            if value is not None and draft.new and (names[at], value) in values:
                raise JobExists()
            if value is not None:
                values.add((names[at], value))
    if puts_bytes(len(drafts), log_bytes) > BATCH_BYTES_MAX:
        raise BodyTooLarge(f"the jobs of one command may have {BATCH_BYTES_MAX} bytes in all; put fewer at a time")
    engine.check_room(len(drafts), log_bytes)


def hold_refusal(engine: Engine, session: Session, job: Job) -> int:
    """Return OK if the session holds the job, so that it can be settled. Return the refusal otherwise."""
    return engine._not_held_job(job, session)


def open_tubes(engine: Engine, names: list[bytes], drafts: list[Draft], now: i64) -> list[Tube]:
    """Return the tubes of these puts: `drafts[i]` into the tube `names[i]`. Create tubes that do not exist.

    If one of the puts would be refused, raise an error and create no tube.
    """
    _check_together(engine, names, drafts, now)
    there = [at for at in range(len(names)) if names[at] in engine.tubes]
    if there:
        check_follow_ups(engine, [engine.tubes[names[at]] for at in there], [drafts[at] for at in there], now)
    missing: dict[bytes, list[Draft]] = {}
    for at in range(len(names)):
        if names[at] not in engine.tubes:
            missing.setdefault(names[at], []).append(drafts[at])
    engine.check_new(list(missing), DEFAULT)
    for name, some in missing.items():
        engine.check_first(name, DEFAULT, some, now)
    for name in missing:
        engine.create_tube(name, DEFAULT, now)
    return [engine.tubes[name] for name in names]


def settle_then(
    engine: Engine,
    session: Session,
    job: Job,
    settle: Callable[[], int],
    tubes: list[Tube],
    drafts: list[Draft],
    now: i64,
) -> tuple[int, list[Job]]:
    """Settle a job that a session holds by a call of `settle`, and put jobs. Return the outcome, and these jobs.

    If a put or `settle` is refused, nothing changes.
    """
    refusal = hold_refusal(engine, session, job)
    if refusal != OK:
        return refusal, []
    check_follow_ups(engine, tubes, drafts, now)
    outcome = settle()
    if outcome != OK:
        return outcome, []
    jobs: list[Job] = []
    for at in range(len(drafts)):
        tube, draft = tubes[at], drafts[at]
        put = engine._existing_job(tube, draft, now)
        if put is None:
            put = tube.make(engine.next_id, draft, now)
            engine._admit(put, tube, draft, now)
        jobs.append(put)
    engine.report_joined(now)
    engine.settle(now)
    return OK, jobs


def were_put(engine: Engine, tubes: list[Tube | None], drafts: list[Draft], now: i64) -> list[Job] | None:
    """Return the jobs that an earlier copy of a command has put.

    Return None if the command was not executed before, or so long ago that the dedup ids are not remembered.
    """
    jobs: list[Job] = []
    for at in range(len(drafts)):
        tube, draft = tubes[at], drafts[at]
        if tube is None or draft.dedup is None or tube.dedups is None or tube.dedups.find(draft.dedup, now) < 0:
            return None
        job = engine._find_duplicate(tube, draft, now)
        assert job is not None
        jobs.append(job)
    return jobs
