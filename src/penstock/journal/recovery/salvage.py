"""Removes the contradictions in the replay of a damaged log that are caused by lost rows."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from penstock.core import policy as p
from penstock.core import restore
from penstock.core import states as s
from penstock.core.batches import Consumer
from penstock.core.job import Job
from penstock.journal.recovery.replay import Replay, ReplayedTube

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
        _count_anew(tube, jobs)
        _remove_duplicate_labels(jobs)
        _end_claims(replay, jobs)
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
