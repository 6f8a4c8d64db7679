"""What a cycle costs in front of a backlog: jobs of 256 priorities and a ttl, served first in, first out.

The backlog stays as it is while cycles run: each puts one more job behind it and takes the first.
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
_EXTRA_NS_MAX = 1_500


def trials(scale: Scale) -> list[Trial]:
    """A thousand jobs, and how much more of them cost more."""
    count = scale.calls(_CYCLES)
    sizes = {_BASE_JOBS, 100_000, scale.jobs(5_000_000, 1_000_000)}
    return [_trial(jobs, count) for jobs in sorted(sizes)]


def _trial(jobs: int, count: int) -> Trial:
    name = f"backlog/{said(jobs)}"
    what = f"a cycle in front of {jobs:,} jobs of {PRIORITIES_COUNT} priorities, fifottl"
    if jobs == _BASE_JOBS:
        spec = Spec(name, what, Unit.NS)
    else:
        spec = Spec(name, what, Unit.NS, f"backlog/{said(_BASE_JOBS)}", Goal(_EXTRA_NS_MAX, Of.EXTRA))
    return Trial((spec,), partial(_prepare, jobs, count))


def _prepare(jobs: int, count: int) -> Sample:
    rig = Rig(FIFOTTL)
    rig.fill(jobs)
    return lambda: [ns_each(lambda: rig.cycles(count), count)]
