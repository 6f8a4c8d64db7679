"""Cost of optional rules compared with a plain fifo: fairness over keys, unique values, dedup ids, a retry policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from itertools import count

from bench.clock import ns_each
from bench.rig import Rig, body
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.core.policy import FAIR, FIFO, UTUBE, TubePolicy
from penstock.core.retry import RetryPolicy, parse_retry

_CYCLES = 4_000
_KEYS = 100_000
_BASE = "rules/plain"

MakeDraft = Callable[[int], Draft]


def trials(scale: Scale) -> list[Trial]:
    """Return trials of a plain fifo, and of each rule."""
    cycles = scale.calls(_CYCLES)
    keys = scale.jobs(_KEYS, _KEYS // 10)
    fair = dataclasses.replace(UTUBE, key_order=FAIR)
    forgetful = dataclasses.replace(FIFO, dedup_count=_KEYS // 2)  # Small, so that repeated labels are not duplicates.
    retry = parse_retry("5x exp(1s..10m) jitter then bury")

    def row(name: str, what: str, bound: float | None, prepare: Callable[[], Sample]) -> Trial:
        goal = None if bound is None else Goal(bound, Of.RATIO)
        return Trial((Spec(f"rules/{name}", what, Unit.NS, None if name == "plain" else _BASE, goal),), prepare)

    return [
        row("plain", "put + take + ack, fifo", None, partial(_prepare, FIFO, cycles, 1_000, _plain)),
        row("fair", f"fair over {keys:,} keys", 2.0, partial(_prepare, fair, cycles, keys, partial(_keyed, keys))),
        row("unique", "each with a unique value", 1.5, partial(_prepare, FIFO, cycles, 1_000, _unique)),
        row("dedup", "each with a dedup id", 1.5, partial(_prepare, forgetful, cycles, 1_000, _dedup)),
        row("retry", "each with a retry policy", None, partial(_prepare, FIFO, cycles, 1_000, partial(_retry, retry))),
    ]


def _plain(_: int) -> Draft:
    return Draft(body())


def _keyed(keys: int, number: int) -> Draft:
    draft = Draft(body())
    draft.key = _labels()[number % keys]
    return draft


def _unique(number: int) -> Draft:
    draft = Draft(body())
    draft.unique = _labels()[number % _KEYS]
    return draft


def _dedup(number: int) -> Draft:
    draft = Draft(body())
    draft.dedup = _labels()[number % _KEYS]
    return draft


def _retry(policy: RetryPolicy, _: int) -> Draft:
    draft = Draft(body())
    draft.retry = policy
    return draft


@cache
def _labels() -> list[bytes]:
    """Return the labels of keys and jobs. They are created in advance, because this is not work of the queue."""
    return [b"label-%d" % number for number in range(_KEYS)]


def _prepare(policy: TubePolicy, cycles: int, backlog: int, make: MakeDraft) -> Sample:
    rig = Rig(policy)
    engine, tube, session, now = rig.engine, rig.tube, rig.consumer.session, rig.now
    numbers = count()
    for _ in range(backlog):
        engine.put(tube, make(next(numbers)), now)

    def work() -> None:
        put, take, ack, find = engine.put, engine.take, engine.ack, engine.find
        for _ in range(cycles):
            put(tube, make(next(numbers)), now)
            job = take(session, tube, now)
            assert job is not None
            found = find(job.id, now)
            assert found is not None
            ack(session, found, now)

    return lambda: [ns_each(work, cycles)]
