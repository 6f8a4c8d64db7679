"""One to 24 producers and one consumer, as in xqueue's own benchmark: each producer puts a job, the consumer takes all.

There is one thread, like in the engine. A producer is a connection.
"""

from __future__ import annotations

from functools import partial

from bench.clock import per_second
from bench.rig import Rig
from bench.rows import XQUEUE, Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.policy import FIFOTTL

_CYCLES = 4_000
_PRODUCERS = (1, 2, 4, 8, 12, 16, 20, 24)


def trials(scale: Scale) -> list[Trial]:
    """Return a trial for each number of producers in that benchmark."""
    count = scale.calls(_CYCLES)
    return [_trial(number, count // number) for number in _PRODUCERS]


def _trial(number: int, turns: int) -> Trial:
    what = f"fifottl, {number} producer{'s' if number > 1 else ''}, 1 consumer"
    base = None if number == 1 else "producers/1"
    spec = Spec(f"producers/{number}", what, Unit.CYCLES, base, Goal(8 * XQUEUE.value))
    return Trial((spec,), partial(_prepare, number, turns))


def _prepare(producers: int, turns: int) -> Sample:
    rig = Rig(FIFOTTL)
    for _ in range(producers):
        rig.connect()
    return lambda: [per_second(lambda: rig.cycles(turns, producers), turns * producers)]
