"""Cost of busy keys for the take of a job with a free key: a utube with one free and ten thousand busy keys."""

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
_READY_BEHIND = 10  # Waiting jobs per busy key.
_BASE = "keys/free"


def trials(scale: Scale) -> list[Trial]:
    """Return trials without and with busy keys."""
    count = scale.calls(_TAKES)
    what = f"the same with {_BUSY_KEYS:,} busy keys of {_READY_BEHIND} ready jobs each"
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
    assert engine.take(session, tube, now) is None, "a job of a busy key was taken"

    def step() -> int:
        engine.put(tube, Draft(body(), key=b"free"), now)
        began = clock()
        job = engine.take(session, tube, now)
        took = clock() - began
        assert job is not None
        engine.ack(session, job, now)
        return took

    return lambda: [typical_ns(step, count)]
