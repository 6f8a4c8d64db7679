"""Which puts the model accepts: supported options, room, and duplicates."""

from __future__ import annotations

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import PRIORITY_UNSET, UNSET

from .model_parts import ModelJob, ModelTube, check_key, check_label, check_ttr, is_duration, require, ttl_of


def check_draft(tube: ModelTube, draft: Draft, body_bytes_max: int) -> None:
    policy = tube.policy
    require(not tube.paused_in, "PAUSED")
    require(len(draft.body) <= body_bytes_max, "TOOBIG")
    require(policy.capacity_bytes == 0 or len(draft.body) <= policy.capacity_bytes, "TOOBIG")
    if draft.ttl_ms != UNSET:
        require(policy.has_ttl, "UNSUPPORTED")
        require(is_duration(draft.ttl_ms), "RANGE")
    if draft.ttr_ms != UNSET:
        check_ttr(tube, draft.ttr_ms)
    if draft.priority != PRIORITY_UNSET:
        require(policy.order == p.BY_PRIORITY, "UNSUPPORTED")
        require(abs(draft.priority) <= limits.PRIORITY_MAX, "RANGE")
    if draft.delay_ms != 0:
        require(policy.has_delay, "UNSUPPORTED")
        require(0 < draft.delay_ms <= limits.DURATION_MS_MAX, "RANGE")
        require(policy.delay_stretches_ttl or draft.delay_ms < ttl_of(tube, draft), "RANGE")
    if draft.key is not None:
        check_key(tube, draft.key)
    if draft.once:
        require(policy.owner == p.ANYONE, "UNSUPPORTED")
    check_label(draft.name)
    check_label(draft.unique)
    if draft.same_body:
        require(policy.unique_bodies, "UNSUPPORTED")
    check_label(draft.dedup)


def has_room(jobs: list[ModelJob], tube: ModelTube, count: int, body_bytes: int) -> bool:
    """Return whether `count` more jobs with `body_bytes` bytes fit. Jobs in all states count."""
    mine = [job for job in jobs if job.tube is tube]
    fits = tube.policy.capacity == 0 or len(mine) + count <= tube.policy.capacity
    used = sum(len(job.body) for job in mine)
    return fits and (tube.policy.capacity_bytes == 0 or used + body_bytes <= tube.policy.capacity_bytes)


def twin(jobs: list[ModelJob], tube: ModelTube, draft: Draft, now: int) -> ModelJob | None:
    """Return the job that exists for a draft already, even if it has ended. Refuse a name that another job has."""
    mine = [job for job in jobs if job.tube is tube]
    count, window = tube.policy.dedup_count, tube.policy.dedup_ms
    tube.seen = [put for put in tube.seen[max(len(tube.seen) - count, 0) :] if put[2] + window > now]
    for dedup, job, _ in tube.seen:
        if dedup == draft.dedup:
            return job
    for job in mine:
        if draft.unique is not None and job.unique == draft.unique:
            return job
    if draft.same_body:
        alike = tube.alike.get(("ready", draft.body), [])
        if not alike and draft.delay_ms:
            alike = tube.alike.get(("delayed", draft.body), [])
        if alike:
            return alike[0]
    require(draft.name is None or draft.name not in [job.name for job in mine], "NAMETAKEN")
    return None
