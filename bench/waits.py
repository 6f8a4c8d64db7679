"""Takes that wait: what a put costs that serves one of ten thousand, and what a put costs that they do not wait for."""

from __future__ import annotations

from functools import partial

from bench.clock import clock, typical_ns
from bench.rig import Rig, body
from bench.rows import NO_EXTRA_COST, Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.core.tube import Tube

_PUTS = 20_000
_WAITING = 10_000


def trials() -> list[Trial]:
    """With and without them."""
    served, beside = "a put that serves the only waiting take", "a put while nobody waits"
    return [
        _trial("waits/serve-1", served, 1, True, None),
        _trial("waits/serve-10k", f"a put that serves one of {_WAITING:,}", _WAITING, True, "waits/serve-1"),
        _trial("waits/beside-0", beside, 0, False, None),
        _trial(
            "waits/beside-10k",
            f"a put while {_WAITING:,} wait for another tube",
            _WAITING,
            False,
            "waits/beside-0",
        ),
    ]


def _trial(name: str, what: str, waiting: int, serving: bool, base: str | None) -> Trial:
    goal = Goal(NO_EXTRA_COST, Of.RATIO) if base is not None else None
    return Trial((Spec(name, what, Unit.NS, base, goal),), partial(_prepare, waiting, serving))


def _prepare(waiting: int, serving: bool, scale: Scale) -> Sample:
    rig = Rig(FIFO)
    engine, now = rig.engine, rig.now
    for _ in range(waiting):
        engine.wait(rig.connect(), [rig.tube], now)
    tube = rig.tube if serving else engine.create_tube(b"other", FIFO, now)
    count = scale.calls(_PUTS)
    finish = partial(_wait_again, rig) if serving else partial(_take_again, rig, tube)

    def step() -> int:
        draft = Draft(body())
        began = clock()
        engine.put(tube, draft, now)
        took = clock() - began
        finish()
        return took

    return lambda: [typical_ns(step, count)]


def _wait_again(rig: Rig) -> None:
    """Ack what the last put was served as, and let its taker wait once more."""
    (wait,) = rig.outbox.ended_waits
    rig.outbox.ended_waits.clear()
    rig.engine.ack(wait.connection.session, wait.jobs[0], rig.now)
    rig.engine.wait(wait.connection, [rig.tube], rig.now)


def _take_again(rig: Rig, tube: Tube) -> None:
    job = rig.engine.take(rig.consumer.session, tube, rig.now)
    assert job is not None
    rig.engine.ack(rig.consumer.session, job, rig.now)
