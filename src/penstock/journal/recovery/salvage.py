"""Removes the contradictions in the replay of a damaged log that are caused by lost rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Final

from penstock.core import policy as p
from penstock.core import restore
from penstock.core import states as s
from penstock.core.batches import Consumer
from penstock.core.job import NO_KEY, Job
from penstock.journal.recovery.replay import Replay, ReplayedTube
from penstock.journal.tube_fields import policy_of

# Sessions are numbered from 1. Recovery returns the taken jobs of this one to their tubes.
_ENDED_SESSION: Final = 0

# Events that are counted for a job in a state, because the real ones are lost.
_ARRIVALS: Final = {
    s.READY: [s.MOVED_IN_READY],
    s.DELAYED: [s.MOVED_IN_DELAYED],
    s.BURIED: [s.MOVED_IN_BURIED],
    s.DONE: [s.MOVED_IN_DONE],
    s.TAKEN: [s.MOVED_IN_READY, s.TOOK],
    s.ZOMBIE: [s.MOVED_IN_READY, s.SWITCHED_ZOMBIE],
    s.STAGED: [s.PUT_STAGED],
}


def make_consistent(replay: Replay, now: int) -> None:
    """Remove all references to missing objects, and count the existing jobs again."""
    jobs_of = restore.by_tube(replay.jobs, replay.late, len(replay.tubes))
    names: set[bytes] = set()
    for number in sorted(replay.tube_indexes, reverse=True):
        at = replay.tube_indexes[number]
        tube, jobs = replay.tubes[at], jobs_of[at]
        assert tube is not None
        _complete_tube(tube, jobs, names, now)
        _end_claims(replay, jobs)
        _end_surplus_deliveries(replay, tube, jobs)
        _count_anew(tube, jobs)
        _remove_duplicate_labels(jobs)
        jobs_of[at] = []
    for jobs in jobs_of:
        # Their tubes were dropped, and the rows about the jobs' ends are lost.
        for job in jobs:
            replay.drop(job.id)


def _complete_tube(tube: ReplayedTube, jobs: list[Job], names: set[bytes], now: int) -> None:
    """Give a tube a policy if its own is lost, and a new name if it has none or that of another tube."""
    if jobs and not tube.fields:
        ids = p.ID_INTEGER if all(job.local >= 0 for job in jobs) else p.ID_LONG
        policy = asdict(replace(p.FIFOTTL, ids=ids))
        tube.fields = {"policy": policy, "created": now, "paused_in": False, "paused_out": False}
    if not tube.name or tube.name in names:
        # The tube was dropped and created again, and the row about that is lost.
        tube.name = (tube.name[:60] + b" tube %d" % tube.number).strip()
    names.add(tube.name)
    # If the row of the tube is lost, a snapshot contains the numbers of its jobs only.
    tube.next_local = max([tube.next_local, *(job.local + 1 for job in jobs)])
    tube.reserved = max(tube.reserved, tube.next_local)


def _count_anew(tube: ReplayedTube, jobs: list[Job]) -> None:
    tube.counts = [0] * s.RULES_COUNT
    tube.key_counts = {key: [0] * s.RULES_COUNT for key in tube.key_counts}
    for job in jobs:
        state = s.GONE
        for event in _ARRIVALS[job.state]:
            rule = s.rule_of(event, state)
            tube.counts[rule] += 1
            state = s.TARGET_OF[rule]


def _remove_duplicate_labels(jobs: list[Job]) -> None:
    """If several jobs have the same name or unique value, only the newest job keeps it.

    The rows about the end of the other jobs are lost.
    """
    names: set[bytes] = set()
    uniques: set[bytes] = set()
    for job in reversed(jobs):
        extra = job.extra
        if extra is not None:
            if extra.name in names:
                extra.name = b""
            if extra.unique in uniques:
                extra.unique = b""
            names.add(extra.name)
            uniques.add(extra.unique)


def _end_claims(replay: Replay, jobs: list[Job]) -> None:
    """Let recovery end the claims whose rows are lost, so that their jobs return to their tubes.

    Recovery ends every claim of a consumer that is not in `open_claims`. A consumer whose rows are lost is therefore
    created without open claims.
    """
    for job in jobs:
        if job.extra is not None and job.extra.consumer:
            name = job.extra.consumer
            consumer = replay.consumers.setdefault(name, Consumer(name, 0))
            consumer.newest = max(consumer.newest, job.extra.claim)
            replay.open_claims.setdefault(name, [])
            replay.acked_claims.setdefault(name, [])


def _end_surplus_deliveries(replay: Replay, tube: ReplayedTube, jobs: list[Job]) -> None:
    """If more jobs of a key are taken than the tube allows, keep the newest deliveries and let recovery end the others.

    The newest deliveries began after the others had ended. The rows about these ends are lost.
    """
    if not jobs:
        return
    policy = policy_of(tube.fields["policy"])
    if policy.keys != p.KEYS_LIMITED:
        return
    taken: Counter[bytes] = Counter()
    for job in sorted(jobs, key=lambda job: job.position, reverse=True):
        if job.state != s.TAKEN:
            continue
        key = replay.keys.get(job.id, NO_KEY)
        taken[key] += 1
        if taken[key] <= policy.key_limit:
            continue
        if job.extra is not None and job.extra.doomed:
            # It was deleted while its claim was open.
            replay.drop(job.id)
            jobs.remove(job)
        else:
            _end_delivery(replay, job)


def _end_delivery(replay: Replay, job: Job) -> None:
    """Let recovery return a taken job to its tube, as if its session had ended."""
    extra = job.extra
    if extra is not None:
        extra.consumer = b""
        extra.claim = extra.claim_place = 0
        extra.verdict = None
    replay.held[job.id] = _ENDED_SESSION
