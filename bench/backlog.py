"""What a cycle costs in front of a backlog of jobs with a ttl, served from its head.

Of random priorities, jobs that follow each other lie anywhere in memory; in the order of arrival, side by side. The
backlog stays as it is while cycles run: each puts one more job and takes the first.
"""

from __future__ import annotations

from functools import partial

from bench.clock import ns_each
from bench.rig import PRIORITIES_COUNT, Rig
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale, said
from bench.trial import Sample, Trial
from penstock.core.policy import FIFOTTL

_CYCLES = 4_000
_BASE_JOBS = 1_000
_GOAL = Goal(1_500, Of.EXTRA)


def trials(scale: Scale) -> list[Trial]:
    """A thousand jobs, and how much more of them cost more."""
    count = scale.calls(_CYCLES)
    mixed = sorted({_BASE_JOBS, 100_000, scale.jobs(5_000_000, 1_000_000)})
    alike = (_BASE_JOBS, scale.jobs(5_000_000, 200_000))
    return [
        *(_trial("", f"{PRIORITIES_COUNT} priorities", jobs, PRIORITIES_COUNT, count) for jobs in mixed),
        *(_trial("arrival-", "one priority", jobs, 1, count) for jobs in alike),
    ]


def _trial(prefix: str, of: str, jobs: int, priorities: int, count: int) -> Trial:
    name = f"backlog/{prefix}{said(jobs)}"
    what = f"a cycle in front of {jobs:,} jobs of {of}, fifottl"
    if jobs == _BASE_JOBS:
        spec = Spec(name, what, Unit.NS)
    else:
        spec = Spec(name, what, Unit.NS, f"backlog/{prefix}{said(_BASE_JOBS)}", _GOAL)
    return Trial((spec,), partial(_prepare, jobs, priorities, count))


def _prepare(jobs: int, priorities: int, count: int) -> Sample:
    rig = Rig(FIFOTTL, priorities)
    rig.fill(jobs)
    return lambda: [ns_each(lambda: rig.cycles(count), count)]
