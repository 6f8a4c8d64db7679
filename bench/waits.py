"""Ten thousand waiting takes: cost of a put that serves one of them, and of a put while all wait for another tube."""

from __future__ import annotations

from functools import partial
from itertools import cycle

from bench.clock import clock, typical_ns
from bench.rig import Rig, body
from bench.rows import NO_EXTRA_COST, Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.core.states import OK

_PUTS = 1_000
_WAITING = 10_000


def trials(scale: Scale) -> list[Trial]:
    """Return trials with and without many waiting takes."""
    count = scale.calls(_PUTS)
    one_of = f"a put that serves one of {_WAITING:,}"
    beside = f"a put while {_WAITING:,} wait for another tube"
    return [
        _trial("waits/serve-1", "a put that serves the only waiting take", 1, True, count),
        _trial("waits/serve-10k", one_of, _WAITING, True, count, "waits/serve-1"),
        _trial("waits/beside-0", "a put without waiting takes", 0, False, count),
        _trial("waits/beside-10k", beside, _WAITING, False, count, "waits/beside-0"),
    ]


def _trial(name: str, what: str, waiting: int, serving: bool, count: int, base: str | None = None) -> Trial:
    goal = Goal(NO_EXTRA_COST, Of.RATIO) if base is not None else None
    return Trial((Spec(name, what, Unit.NS, base, goal),), partial(_prepare, waiting, serving, count))


def _prepare(waiting: int, serving: bool, count: int) -> Sample:
    rig = Rig(FIFO)
    engine, now = rig.engine, rig.now
    waiters = [rig.connect() for _ in range(waiting)]
    for waiter in waiters:
        engine.wait(waiter, [rig.tube], now)
    tube = rig.tube if serving else engine.create_tube(b"other", FIFO, now)
    # The connection that has waited longest is served, and then waits again.
    served = cycle(waiters)

    def step() -> int:
        draft = Draft(body())
        began = clock()
        job = engine.put(tube, draft, now)
        took = clock() - began
        if serving:
            taker = next(served)
            outcome = engine.ack(taker.session, job, now)
            engine.wait(taker, [tube], now)
            rig.outbox.ended_waits.clear()
        else:
            engine.take(rig.consumer.session, tube, now)
            outcome = engine.ack(rig.consumer.session, job, now)
        assert outcome == OK
        return took

    return lambda: [typical_ns(step, count)]
