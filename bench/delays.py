"""Many delayed jobs: their cost while none is due, and when all are due in the same millisecond."""

from __future__ import annotations

from array import array
from functools import partial

from bench.clock import Repeated, clock, ns_each
from bench.rig import Rig, body
from bench.rows import NO_EXTRA_COST, Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.core.policy import FIFOTTL
from penstock.core.states import READY

_IDLE_CALLS = 20_000
_DELAY_MS = 3_600_000  # Longer than the simulated idle time.
_PAUSE_MS_MAX = 5


def trials(scale: Scale) -> list[Trial]:
    """Return trials of idle turns without and with delayed jobs, and of all jobs becoming due."""
    jobs = scale.jobs(1_000_000, 100_000)
    count = scale.calls(_IDLE_CALLS)
    idle = "advance() with nothing due"
    beside = f"{idle}, {jobs:,} delayed jobs"
    return [
        Trial((Spec("delays/none", f"{idle}, no job", Unit.NS),), partial(_prepare_idle, 0, count)),
        Trial(
            (Spec("delays/idle", beside, Unit.NS, "delays/none", Goal(NO_EXTRA_COST, Of.RATIO)),),
            partial(_prepare_idle, jobs, count),
        ),
        Trial(
            (
                Spec("delays/fire", f"{jobs:,} jobs due in one millisecond, cost per job", Unit.NS),
                Spec("delays/pause", "the longest advance() of them", Unit.MS, goal=Goal(_PAUSE_MS_MAX)),
            ),
            partial(_prepare_fire, jobs),
            scale.rounds_long,
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


def _prepare_idle(jobs: int, count: int) -> Sample:
    rig = _delayed(jobs)
    advance = rig.engine.advance

    def idle() -> None:
        for now in range(rig.now, rig.now + count):
            advance(now)
        rig.now += count

    return lambda: [ns_each(idle, count)]


def _prepare_fire(jobs: int) -> Sample:
    turns = Repeated()

    def sample() -> list[float]:
        took = _fire(_delayed(jobs), jobs)
        turns.add(took)
        return [sum(took) / jobs, turns.longest_ms()]

    return sample


def _fire(rig: Rig, jobs: int) -> array[int]:
    """Run turns like the server until no job is due. Return the time of each turn."""
    engine = rig.engine
    now = engine.deadlines.next_due
    took = array("q")
    while engine.deadlines.next_due <= now:
        began = clock()
        engine.advance(now)
        took.append(clock() - began)
    assert rig.tube.count_in(READY) == jobs
    return took
