"""The state of an engine that has to survive a restart, as plain data that can be compared."""

from __future__ import annotations

from typing import Any

from penstock.core import states as s
from penstock.core.batches import Stage
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import NEVER
from penstock.core.tube import Tube, key_of


def picture(engine: Engine, restarted: bool) -> dict[str, Any]:
    """Return the tubes and jobs. With `restarted`, return them as they will be after a restart of the process."""
    stages = engine.stages
    return {name.hex(): _stage(stages.by_name[name]) for name in stages.names()} | {
        tube.name.decode(): {
            "policy": tube.policy,
            "paused": (tube.paused_in, tube.paused_out),
            **({} if tube.temporary else _content(tube, engine, restarted)),
        }
        for tube in engine.tubes.values()
    }


def _content(tube: Tube, engine: Engine, restarted: bool) -> dict[str, Any]:
    """Return the jobs and counts of a tube. Those of a temporary tube do not survive a restart."""
    ends = [job for job in _jobs(tube) if restarted and _ends(job, engine)]
    keys = [key_of(tube, job) for job in ends]
    return {
        "jobs": [_job(job, tube, engine, restarted) for job in _jobs(tube) if job not in ends],
        "counts": _counted(tube.counts, tube.counts_before, len(ends)),
        "keys": {key: _counted(of.counts, of.counts_before, keys.count(key)) for key, of in tube.key_stats.items()},
        "dedups": [] if tube.dedups is None else tube.dedups.entries(),
    }


def _stage(stage: Stage) -> tuple[Any, ...]:
    jobs = [job.id for job in stage.jobs[stage.at :] if job.state == s.STAGED and job.position > 0]
    found = (stage.phase, stage.until, stage.expire_ms, stage.published, jobs)
    members = stage.members
    return found if members is None else (*found, members.sealed, members.total, members.failed)


def _jobs(tube: Tube) -> list[Job]:
    found = [job for state in range(1, s.STATES_COUNT) for job in tube.jobs_in(state)]
    return sorted(found, key=lambda job: job.id)


def _job(job: Job, tube: Tube, engine: Engine, restarted: bool) -> dict[str, Any]:
    extra = job.ensure_extra()
    state, wake, returns = job.state, job.wake, job.returns
    if restarted and state == s.TAKEN and tube.session_owned and not extra.consumer and not _has_grace(job, engine):
        # Its session has ended, as if it had just disconnected.
        state, wake, returns = s.READY, NEVER, returns + 1
    return {
        "id": job.id,
        "local": job.local,
        "state": s.STATE_NAMES[state],
        "wake": wake,
        "returns": returns,
        "body": (engine.outbox.body_of(job), job.body_kind),
        "key": key_of(tube, job),
        "times": (job.created, job.expiry, job.ttr),
        "place": (job.priority, job.order),
        "counters": (job.deliveries, job.nacks, extra.buries, job.ttl_minutes, job.once),
        "extra": (extra.reason, extra.name, extra.unique, extra.priority_given),
        "claim": (extra.consumer, extra.claim, extra.claim_place, extra.doomed),
        "verdict": None if extra.verdict is None else extra.verdict.encode(),
        "batch": extra.batch,
        "cancelled": extra.cancelled,
        "retry": None if extra.retry is None else extra.retry.text,
        **({"stage": extra.stage} if extra.stage else {}),
        # A restart returns a taken job, and then the time of the restart counts.
        "since": None if state == s.READY and returns else job.since,
        "headers": extra.headers,
        "format": job.format,
    }


def _ends(job: Job, engine: Engine) -> bool:
    """Return whether a restart removes the job, because it was cancelled and its session ends."""
    return job.ensure_extra().cancelled and not _has_grace(job, engine)


def _has_grace(job: Job, engine: Engine) -> bool:
    session = engine.session_slots[job.holder] if job.holder >= 0 else None
    return session is not None and engine.grace_of(session) > 0


def _counted(now: list[int], before: list[int], ends: int) -> dict[tuple[str, str], int]:
    """Return how often each event happened, except for the disconnects of the restart itself.

    The restart removes `ends` jobs that were cancelled.
    """
    found: dict[tuple[str, str], int] = {}
    for rule, (event, source, _) in enumerate(s.TRANSITIONS):
        count = now[rule] + before[rule] + (ends if (event, source) == (s.DELETED, s.READY) else 0)
        if event != s.DISCONNECTED and count > 0:
            found[s.EVENT_NAMES[event], s.STATE_NAMES[source]] = count
    return found
