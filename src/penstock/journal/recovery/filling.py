"""Fills an engine with the result of a replay: tubes, jobs, sessions and claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core import restore
from penstock.core import states as s
from penstock.core.copy_commands import let_in
from penstock.core.engine import Engine
from penstock.core.errors import DamagedJournal
from penstock.core.job import Job
from penstock.core.limits import UNSET
from penstock.core.tube import Tube
from penstock.journal.log import Log
from penstock.journal.recovery.replay import Replay, ReplayedTube
from penstock.journal.tube_fields import policy_of

# Replayed changes are committed after this many bytes, so that a frame has a bounded size.
_COMMIT_BYTES: Final = 16 * 1024 * 1024

# Progress is reported after this many jobs, which take a few milliseconds.
_SLICE_JOBS: Final = 4096


def fill(engine: Engine, replay: Replay, report: Callable[[], None]) -> None:
    """Fill `engine` with the tubes and jobs of `replay`. `report` is called from time to time."""
    restore.restore_table(engine, replay.jobs, replay.late)
    jobs_of = restore.by_tube(replay.jobs, replay.late, len(replay.tubes))
    creation = replay.counters.get("last_creation", 0)
    for number in sorted(replay.tube_indexes):
        at = replay.tube_indexes[number]
        told, jobs = replay.tubes[at], jobs_of[at]
        if told is None or not told.fields:
            if jobs:
                raise DamagedJournal(f"{len(jobs)} jobs are in a tube that no row describes")
            continue
        tube = _fill_tube(engine, told, jobs, replay, report)
        if tube.by_creation:
            creation = max(creation, restore.creation_of(jobs))
    restore.used_number(engine, max(replay.highest_number, replay.counters.get("next_number", 0) - 1))
    restore.used_orders(engine, min(replay.lowest_order, replay.counters.get("next_front", 0)), creation)
    restore.restore_notes(engine, replay.notes)
    staged = [job for tube in engine.tubes.values() for job in tube.staged.items if job.ensure_extra().stage]
    restore.restore_stages(engine, list(replay.stages.values()), sorted(staged, key=lambda job: job.id))
    for number, dedup, job_id, ttl_minutes, when in replay.dedups:
        known = engine.tubes_by_number.get(number)
        if known is not None:
            restore.restore_dedup(known, dedup, job_id, ttl_minutes, when)


def _fill_tube(
    engine: Engine, so_far: ReplayedTube, jobs: list[Job], replay: Replay, report: Callable[[], None]
) -> Tube:
    told = so_far.fields
    tube = restore.restore_tube(engine, so_far.number, so_far.name, policy_of(told["policy"]), told["created"])
    tube.paused_in, tube.paused_out = told["paused_in"], told["paused_out"]
    tube.counts_before = so_far.counts
    for key, stats in tube.key_stats.items():
        stats.counts_before = so_far.key_counts[key]
    # After a crash, consumers may have seen integers up to the reserved ceiling.
    tube.promised = tube.reserved = max(so_far.reserved, tube.reserved)
    tube.next_local = so_far.next_local if replay.stopped else max(so_far.next_local, tube.reserved)
    if tube.ready_bodies is not None:
        for job in jobs:
            # The tube looks up ready jobs by their bodies.
            job.body = engine.outbox.body_of(job)
    # Index all jobs before the first is placed, because its place depends on the other jobs of its key.
    for at in range(0, len(jobs), _SLICE_JOBS):
        restore.index_jobs(engine, tube, jobs[at : at + _SLICE_JOBS], replay.keys)
        report()
    for at in range(0, len(jobs), _SLICE_JOBS):
        restore.place_jobs(engine, tube, jobs[at : at + _SLICE_JOBS])
        report()
    restore.count_ready_times(tube)
    restore.number_jobs(tube, jobs)
    return tube


def fill_holders(engine: Engine, replay: Replay, now: int, log: Log, wall: int) -> None:
    """Restore the sessions and claims that hold taken jobs.

    Claimed jobs stay claimed. Jobs of a session with a grace time stay taken, so that the session can be resumed. All
    others return to their tubes.
    """
    claimed: dict[bytes, list[Job]] = {name: [] for name in replay.consumers}
    held: dict[int, list[Job]] = {}
    orphans: list[Job] = []
    for tube in engine.tubes.values():
        for job in tube.taken.items:
            if job.extra is not None and job.extra.consumer:
                claimed[job.extra.consumer].append(job)
            elif job.id in replay.held:
                session = replay.held[job.id]
                if session in replay.sessions and replay.graces.get(session, engine.session_grace_ms) > 0:
                    held.setdefault(session, []).append(job)
                else:
                    orphans.append(job)
    for name, jobs in claimed.items():
        jobs.sort(key=lambda job: (job.ensure_extra().claim, job.ensure_extra().claim_place))
        restore.restore_claims(engine, replay.consumers[name], jobs, now)
        restore.end_claims(engine, replay.consumers[name], replay.open_claims[name], replay.acked_claims[name], now)
    for session, jobs in held.items():
        restore.restore_session(engine, session, replay.sessions[session], replay.graces.get(session, UNSET), jobs, now)
    # Sort by id, so that the same log always continues in the same way.
    for orphan in sorted(orphans, key=lambda job: job.id):
        restore.release_orphan(engine, orphan, now)
        _commit_if_long(log, now, wall)


def queue_held(engine: Engine, now: int) -> None:
    """Queue the jobs that were waiting for copies on other nodes when the log ended.

    The log does not say whether they had enough copies.
    """
    held = [job for tube in engine.tubes.values() for job in tube.staged.items if not job.ensure_extra().stage]
    for job in sorted(held, key=lambda job: job.id):
        let_in(engine, job, now)


def bury_doubtful(engine: Engine, now: int, log: Log, wall: int) -> None:
    """Bury the at-most-once jobs. The newest rows may be lost, so any of these jobs may have been delivered already."""
    doubtful = [
        job
        for tube in engine.tubes.values()
        # A delayed or buried job may have been queued early and then taken.
        for jobs in (tube.jobs_in(s.READY), tube.delayed.items, tube.buried.items)
        for job in jobs
        if job.once
    ]
    for job in sorted(doubtful, key=lambda job: job.id):
        restore.bury_doubtful(engine, job, now)
        _commit_if_long(log, now, wall)


def _commit_if_long(log: Log, now: int, wall: int) -> None:
    if log.writer.frame_bytes() > _COMMIT_BYTES:
        log.commit(now, wall)
