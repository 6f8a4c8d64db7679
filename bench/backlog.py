"""Cost of a cycle with a backlog of waiting jobs that have a ttl.

With random priorities, consecutive jobs are anywhere in memory. In order of arrival, they are next to each other. The
size of the backlog is constant, because each cycle puts one job and takes the first one.
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
    """Return trials with a thousand jobs, and with more."""
    count = scale.calls(_CYCLES)
    mixed = sorted({_BASE_JOBS, 100_000, scale.jobs(5_000_000, 1_000_000)})
    alike = (_BASE_JOBS, scale.jobs(5_000_000, 200_000))
    return [
        *(_trial("", f"{PRIORITIES_COUNT} priorities", jobs, PRIORITIES_COUNT, count) for jobs in mixed),
        *(_trial("arrival-", "one priority", jobs, 1, count) for jobs in alike),
    ]


def _trial(prefix: str, of: str, jobs: int, priorities: int, count: int) -> Trial:
    name = f"backlog/{prefix}{said(jobs)}"
    what = f"a cycle with {jobs:,} waiting jobs of {of}, fifottl"
    if jobs == _BASE_JOBS:
        spec = Spec(name, what, Unit.NS)
    else:
        spec = Spec(name, what, Unit.NS, f"backlog/{prefix}{said(_BASE_JOBS)}", _GOAL)
    return Trial((spec,), partial(_prepare, jobs, priorities, count))


def _prepare(jobs: int, priorities: int, count: int) -> Sample:
    rig = Rig(FIFOTTL, priorities)
    rig.fill(jobs)
    return lambda: [ns_each(lambda: rig.cycles(count), count)]
