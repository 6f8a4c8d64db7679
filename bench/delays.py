"""A million delayed jobs: what they cost while nothing is due, and what happens when all fall due in one millisecond."""

from __future__ import annotations

from functools import partial

from bench.clock import clock, ns_each
from bench.rig import Rig, body
from bench.rows import NO_EXTRA_COST, Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.core.policy import FIFOTTL

_IDLE_CALLS = 100_000
_JOBS = 1_000_000
_JOBS_QUICK = 200_000
_DELAY_MS = 3_600_000  # Longer than all the milliseconds that pass idly.
_PAUSE_MS_MAX = 5


def trials() -> list[Trial]:
    """Idle without and with them, then all of them at once."""
    idle = "advance() with nothing due"
    said = f"{_JOBS:,} delayed jobs (short form: {_JOBS_QUICK:,})"
    return [
        Trial((Spec("delays/none", f"{idle}, no job", Unit.NS),), partial(_prepare_idle, 0, 0)),
        Trial(
            (Spec("delays/idle", f"{idle}, {said}", Unit.NS, "delays/none", Goal(NO_EXTRA_COST, Of.RATIO)),),
            partial(_prepare_idle, _JOBS, _JOBS_QUICK),
        ),
        Trial(
            (
                Spec("delays/fire", "all of them due in one millisecond, cost of each", Unit.NS),
                Spec("delays/pause", "the longest advance() meanwhile", Unit.MS, goal=Goal(_PAUSE_MS_MAX)),
            ),
            _prepare_fire,
        ),
    ]


def _delayed(jobs: int) -> Rig:
    rig = Rig(FIFOTTL)
    due = rig.now + _DELAY_MS
    for i in range(jobs):
        now = rig.now + i // 1_000
        rig.engine.put(rig.tube, Draft(body(), delay_ms=due - now), now)
    rig.now += jobs // 1_000
    return rig


def _prepare_idle(full: int, quick: int, scale: Scale) -> Sample:
    rig = _delayed(scale.jobs(full, quick))
    count = scale.calls(_IDLE_CALLS)
    advance = rig.engine.advance

    def idle() -> None:
        for now in range(rig.now, rig.now + count):
            advance(now)
        rig.now += count

    return lambda: [ns_each(idle, count)]


def _prepare_fire(scale: Scale) -> Sample:
    jobs = scale.jobs(_JOBS, _JOBS_QUICK)
    return lambda: _fire(_delayed(jobs), jobs)


def _fire(rig: Rig, jobs: int) -> list[float]:
    """Turn by turn, as the shell does, until nothing is due any more."""
    engine = rig.engine
    now = engine.deadlines.next_due
    total = worst = 0
    while engine.deadlines.next_due <= now:
        began = clock()
        engine.advance(now)
        took = clock() - began
        total += took
        worst = max(worst, took)
    assert len(rig.tube.ready) == jobs
    return [total / jobs, worst / 1e6]
