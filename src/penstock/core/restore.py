"""Restoring an engine from a log: tubes and jobs are put back without applying rules.

Jobs are added when all rows have been read, in the states that they have in the log. Consequences of the restart itself
are ordinary events, which happen afterwards. For example, jobs of sessions that ended are given back.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.batches import OPEN, Claim, Consumer, Stage
from penstock.core.engine import Engine
from penstock.core.ids import SEQUENCE_BITS
from penstock.core.job import HELD_BY_CLAIM, NO_KEY, NO_SLOT, Job
from penstock.core.limits import NEVER, NOTE_MEMORY_BYTES, STAGE_EXPIRE_MS
from penstock.core.moves import resident_length, row_label_bytes
from penstock.core.policy import TubePolicy
from penstock.core.sessions import Session
from penstock.core.table import JobTable
from penstock.core.tube import Tube


def restore_tube(engine: Engine, number: i64, name: bytes, policy: TubePolicy, created: i64) -> Tube:
    tube = Tube(name, number, len(engine.tube_slots), policy, created, engine.labels)
    engine.add_tube(tube)
    used_number(engine, number)
    return tube


def index_jobs(engine: Engine, tube: Tube, jobs: list[Job], keys: dict[int, bytes]) -> None:
    """Add jobs to the indexes of a tube. They must be in ascending order of ids. Call `place_jobs` afterwards."""
    keyed = tube.keys is not None
    for job in jobs:
        job.tube = tube.slot
        tube.index(job, keys.get(job.id, NO_KEY) if keyed else NO_KEY)
        engine.index_old_id(job, tube)
        engine.resident_bytes += resident_length(job)
        if not isinstance(job.body, bytes):
            tube.spilled += 1
        if job.state == s.TAKEN:
            engine.taken_count += 1
            engine.taken_label_bytes += row_label_bytes(job, tube)
            if job.once:
                engine.delivered_once[job.id] = job
            if tube.keys is not None:
                tube.keys.of(job).taken += 1


def place_jobs(engine: Engine, tube: Tube, jobs: list[Job]) -> None:
    """Add jobs to the containers of their states, and set their deadlines.

    All jobs of the tube are in its indexes already.
    """
    for job in jobs:
        tube.place(job)
        engine._arm(job, tube)
        _index(tube, job)
        if job.extra is not None and job.extra.batch:
            engine.stages.restored_members.append(job)


def count_ready_times(tube: Tube) -> None:
    """Count the ready jobs of a tube by their age. Called once, after all of its jobs were placed."""
    for since in sorted([job.since for job in tube.ready.items]):
        tube.ready_times.add(since)


def number_jobs(tube: Tube, jobs: list[Job]) -> None:
    """Index the jobs of a tube by integer id, if it has such ids."""
    if tube.jobs_by_number is not None:
        for job in sorted(jobs, key=_local):
            tube.jobs_by_number.add(job)


def by_tube(table: JobTable, late: dict[int, Job], tubes: int) -> list[list[Job]]:
    """Return a list of jobs for each tube, in ascending order of their ids. `tubes` is the number of tubes.

    `job.tube` is the index of the job's tube.
    """
    found: list[list[Job]] = [[] for _ in range(tubes)]
    jobs = table.scan(0, NEVER)
    if late:
        jobs = sorted([*jobs, *late.values()], key=_id)
    for job in jobs:
        found[job.tube].append(job)
    return found


def restore_table(engine: Engine, table: JobTable, late: dict[int, Job]) -> None:
    """Set the engine's table of jobs by id. `late` are the jobs that were read out of order."""
    if not late:
        engine.jobs = table
        return
    for job in sorted([*table.scan(0, NEVER), *late.values()], key=_id):
        engine.jobs.add(job)


def _id(job: Job) -> int:
    return job.id


def _local(job: Job) -> int:
    return job.local


def _index(tube: Tube, job: Job) -> None:
    body = job.body
    if isinstance(body, bytes) and tube.ready_bodies is not None and tube.delayed_bodies is not None:
        if job.state == s.READY:
            tube.ready_bodies.add(body, job)
        elif job.state == s.DELAYED:
            tube.delayed_bodies.add(body, job)
    stats = tube.key_stats.get(tube.keys.of(job).name) if tube.key_stats and tube.keys is not None else None
    if stats is not None:
        stats.states[i64(job.state)] += 1


def restore_dedup(tube: Tube, dedup: bytes, job_id: i64, ttl_minutes: i64, when: i64) -> None:
    """Add the dedup id of a put to the dedup window of a tube."""
    dedups = tube.dedup_window()
    if dedups.find(dedup, when) < 0:
        dedups.add(dedup, job_id, ttl_minutes, when)


def restore_notes(engine: Engine, notes: dict[bytes, bytes]) -> None:
    engine.notes = notes
    for key, value in notes.items():
        engine.notes_bytes += NOTE_MEMORY_BYTES + len(key) + len(value)


def restore_session(engine: Engine, number: i64, token: bytes, grace_ms: i64, held: list[Job], now: i64) -> None:
    """Restore a session. It has no connection, so its grace time starts."""
    slot = len(engine.session_slots)
    session = Session(number, slot, token, grace_ms)
    engine.session_slots.append(session)
    engine.sessions[token] = session
    for job in held:
        session.hold(job)
        if job.extra is not None and job.extra.cancelled:
            session.open_signals().cancel(job, job.extra.reason, now)
    used_number(engine, number)
    engine.deadlines.set(session, now + engine.grace_of(session))


def restore_claims(engine: Engine, consumer: Consumer, jobs: list[Job], now: i64) -> None:
    """Restore the claims of a consumer, with their jobs in the order in which they were claimed.

    Their leases restart.
    """
    engine.add_consumer(consumer)
    for job in jobs:
        number = job.ensure_extra().claim
        job.holder = HELD_BY_CLAIM
        tube = engine.tube_of(job)
        if job.ensure_extra().doomed:
            tube.taken.doom(job)
        engine._arm(job, tube)
        claim = consumer.claims.get(number)
        if claim is None:
            claim = Claim(consumer, number)
            consumer.claims[number] = claim
            engine.deadlines.set(claim, now + consumer.lease_ms)
        claim.jobs.append(job)


def end_claims(engine: Engine, consumer: Consumer, still_open: list[int], acked: list[int], now: i64) -> None:
    """Continue to end the claims that were acked or had ended, but still had jobs at the end of the log."""
    for claim in list(consumer.claims.values()):
        if claim.number not in still_open:
            engine._close_claim(claim)
            engine.deadlines.set(claim, now)
            if claim.number in acked:
                claim.acked = True
                consumer.acking[claim.number] = claim


def restore_stages(engine: Engine, stages: list[Stage], jobs: list[Job]) -> None:
    """Restore stages in the order of their last change, and the staged jobs in the order of their ids.

    If jobs were leaving a published or discarded stage, they continue to leave it.
    """
    known = engine.stages.by_name
    for stage in stages:
        known[stage.name] = stage
    for job in jobs:
        name = job.ensure_extra().stage
        if name not in known:
            # The row of the stage is lost. Keep the stage open, so that a client can publish or discard it, or it
            # expires.
            lost = Stage(name, STAGE_EXPIRE_MS)
            lost.until = engine.now + STAGE_EXPIRE_MS
            known[name] = lost
        known[name].jobs.append(job)
        known[name].count += 1
    _count_members(engine)
    for stage in known.values():
        if stage.phase == OPEN:
            is_over = stage.members is not None and stage.members.is_over()
            engine.deadlines.set(stage, engine.now if is_over else stage.until)
    for stage in stages:
        if stage.phase != OPEN:
            stage.closing = stage.count > 0
            if stage.closing:
                engine.stages.closing.append(stage)
            engine.stages.add_closed(stage, engine.now)
    if engine.stages.closing:
        engine.deadlines.set(engine.stages, engine.now)


def _count_members(engine: Engine) -> None:
    """Count the pending members of each batch: the jobs that name it."""
    for job in engine.stages.restored_members:
        extra = job.ensure_extra()
        stage = engine.stages.by_name.get(extra.batch)
        if stage is None or stage.members is None:
            # The row of the batch is lost, or the batch expired long ago.
            if job.state == s.TAKEN:
                engine.taken_label_bytes -= row_label_bytes(job, engine.tube_of(job))
            extra.batch = b""
            if job.state == s.TAKEN:
                engine.taken_label_bytes += row_label_bytes(job, engine.tube_of(job))
        else:
            # All members share the object of the name.
            extra.batch = stage.name
            stage.members.pending += 1
    engine.stages.restored_members = []


def release_orphan(engine: Engine, job: Job, now: i64) -> None:
    """Return a job to its tube, as after a disconnect, because its session was not restored."""
    assert job.state == s.TAKEN and job.holder == NO_SLOT
    job.returns += 1
    engine._fail(job, engine.tube_of(job), s.DISCONNECTED, now)


def bury_doubtful(engine: Engine, job: Job, now: i64) -> None:
    """Bury an at-most-once job that may have been delivered, because the row of the delivery may be lost."""
    tube = engine.tube_of(job)
    if job.state == s.BURIED:
        # A lost row may have kicked it. If it had stayed buried, it could not have been delivered.
        engine._move(job, tube, s.KICKED, now)
    # Count a delivery, so that the job cannot be kicked by mistake.
    job.deliveries += 1
    extra = job.ensure_extra()
    extra.reason = b"may have been delivered by then: the log may lack its newest rows"
    extra.buries += 1
    engine._move(job, tube, s.BURIED_BY, now)


def used_number(engine: Engine, number: i64) -> None:
    """Reserve the number of a tube or session, so that it is not assigned again."""
    if number >= engine.next_number:
        engine.next_number = number + 1


def used_orders(engine: Engine, front: i64, creation: i64) -> None:
    """Reserve the order numbers in the log, so that they are not assigned again.

    `front` is the least one. New urgent jobs get numbers below it. `creation` is the greatest one in tubes that are
    ordered by creation. New jobs of such tubes get numbers above it.
    """
    if front < engine.next_front:
        engine.next_front = front
    if creation > engine.last_creation:
        engine.last_creation = creation


def creation_of(jobs: list[Job]) -> i64:
    """Return the greatest order number of these jobs, or 0. Their tube is ordered by creation."""
    newest: i64 = 0
    for job in jobs:
        if job.order > newest:
            newest = job.order
    return newest


def next_epoch(highest_id: i64, epoch: i64) -> i64:
    """Return an epoch that no id has, even if the ids of an epoch overflowed into the next one."""
    return max(epoch, highest_id >> SEQUENCE_BITS) + 1
