"""Put, take, find by id and ack, one job at a time: every tube type, and the cost of Python's default collector."""

from __future__ import annotations

from functools import partial

from bench.clock import per_second
from bench.rig import Rig
from bench.rows import XQUEUE, Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.policy import FIFO, PRESETS, TubePolicy

_CYCLES = 4_000
_GOALS = {
    "fifo": Goal(8 * XQUEUE.value),
    "fifottl": Goal(8 * XQUEUE.value),
    "utube": Goal(180_000),
}
_OTHERS_GOAL = Goal(0.5, Of.RATIO)


def trials(scale: Scale) -> list[Trial]:
    """Return a trial for each preset."""
    count = scale.calls(_CYCLES)
    return [
        *(_trial(name, policy, count) for name, policy in PRESETS.items()),
        Trial(
            (Spec("cycle/fifo+gc", "fifo, with the default garbage collector", Unit.CYCLES, "cycle/fifo"),),
            partial(_prepare, FIFO, count),
            host_gc=True,
        ),
    ]


def _trial(name: str, policy: TubePolicy, count: int) -> Trial:
    base = XQUEUE if name == "fifo" else "cycle/fifo"
    goal = _GOALS.get(name, _OTHERS_GOAL)
    spec = Spec(f"cycle/{name}", f"put + take + ack, {name}", Unit.CYCLES, base, goal)
    return Trial((spec,), partial(_prepare, policy, count))


def _prepare(policy: TubePolicy, count: int) -> Sample:
    rig = Rig(policy)
    return lambda: [per_second(lambda: rig.cycles(count), count)]
