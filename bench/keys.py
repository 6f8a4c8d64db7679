"""What busy keys cost a take that they are none of: a utube with one free key beside ten thousand busy ones."""

from __future__ import annotations

from functools import partial

from bench.clock import clock, typical_ns
from bench.rig import Rig, body
from bench.rows import NO_EXTRA_COST, Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.core.policy import UTUBE

_TAKES = 1_000
_BUSY_KEYS = 10_000
_READY_BEHIND = 10  # Jobs of a busy key that wait behind the taken one.
_BASE = "keys/free"


def trials(scale: Scale) -> list[Trial]:
    """Without busy keys, and with them."""
    count = scale.calls(_TAKES)
    what = f"the same beside {_BUSY_KEYS:,} busy keys with {_READY_BEHIND} ready jobs each"
    return [
        Trial((Spec(_BASE, "take from the one free key of a utube", Unit.NS),), partial(_prepare, 0, count)),
        Trial(
            (Spec("keys/busy", what, Unit.NS, _BASE, Goal(NO_EXTRA_COST, Of.RATIO)),),
            partial(_prepare, _BUSY_KEYS, count),
        ),
    ]


def _prepare(busy: int, count: int) -> Sample:
    rig = Rig(UTUBE)
    engine, tube, session, now = rig.engine, rig.tube, rig.consumer.session, rig.now
    for _ in range(1 + _READY_BEHIND):
        for number in range(busy):
            engine.put(tube, Draft(body(), key=b"busy-%d" % number), now)
    for _ in range(busy):
        engine.take(session, tube, now)
    assert engine.take(session, tube, now) is None, "a key is free that should be busy"

    def step() -> int:
        engine.put(tube, Draft(body(), key=b"free"), now)
        began = clock()
        job = engine.take(session, tube, now)
        took = clock() - began
        assert job is not None
        engine.ack(session, job, now)
        return took

    return lambda: [typical_ns(step, count)]
