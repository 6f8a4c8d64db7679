"""What a cycle costs in front of a backlog: jobs of 256 priorities and a ttl, served first in, first out.

The backlog stays as it is while cycles run: each puts one more job behind it and takes the first.
"""

from __future__ import annotations

from functools import partial

from bench.clock import ns_each
from bench.rig import PRIORITIES_COUNT, Rig
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.policy import FIFOTTL

_CYCLES = 100_000
_EXTRA_NS_MAX = 1_500
_BASE = "backlog/1k"


def trials() -> list[Trial]:
    """A thousand jobs, and how much more of them cost more."""
    return [
        _trial("1k", "1,000", 1_000, 1_000),
        _trial("100k", "100,000", 100_000, 100_000),
        _trial("5M", "5,000,000 (short form: 1,000,000)", 5_000_000, 1_000_000),
    ]


def _trial(name: str, said: str, full: int, quick: int) -> Trial:
    what = f"a cycle behind {said} jobs of {PRIORITIES_COUNT} priorities, fifottl"
    row = f"backlog/{name}"
    if row == _BASE:
        spec = Spec(row, what, Unit.NS)
    else:
        spec = Spec(row, what, Unit.NS, _BASE, Goal(_EXTRA_NS_MAX, Of.EXTRA))
    return Trial((spec,), partial(_prepare, full, quick))


def _prepare(full: int, quick: int, scale: Scale) -> Sample:
    count = scale.calls(_CYCLES)
    rig = Rig(FIFOTTL)
    rig.fill(scale.jobs(full, quick))
    return lambda: [ns_each(lambda: rig.cycles(count), count)]
