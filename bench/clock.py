"""How time is taken: one clock, the cost of single calls, and the garbage collector as the server keeps it."""

from __future__ import annotations

import gc
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

clock = time.perf_counter_ns


def ns_each(work: Callable[[], object], count: int) -> float:
    """What one of `count` things costs that `work` does in one go."""
    began = clock()
    work()
    return (clock() - began) / count


def per_second(work: Callable[[], object], count: int) -> float:
    """How many a second, if `work` does `count` of them."""
    return 1e9 / ns_each(work, count)


def typical_ns(step: Callable[[], int], count: int) -> float:
    """The median of what a step says its one call took, less what reading the clock costs."""
    return statistics.median(step() for _ in range(count)) - statistics.median(_nothing() for _ in range(count))


def _nothing() -> int:
    began = clock()
    return clock() - began


class Repeated:
    """The least that each of a series of calls took, in all the runs of the series.

    The engine is deterministic: its n-th call does the same work in every run. What other processes do to the machine
    falls on other calls each time, so what remains is the engine's own.
    """

    def __init__(self) -> None:
        self._least_ns: array[int] | None = None

    def add(self, took_ns: array[int]) -> None:
        """One more run of the series."""
        least = self._least_ns
        self._least_ns = took_ns if least is None else array("q", map(min, least, took_ns))

    def longest_ms(self) -> float:
        """The longest call of the series."""
        assert self._least_ns is not None
        return max(self._least_ns) / 1e6


@contextmanager
def server_gc() -> Iterator[None]:
    """Keep the collector as the server does: it does not run on its own, and what is there is frozen (`freeze`)."""
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def freeze() -> None:
    """Within `server_gc`: collect what is new, and never look at the rest again."""
    gc.collect()
    gc.freeze()


@contextmanager
def host_gc() -> Iterator[None]:
    """Within `server_gc`: the collector as a host process has it when the queue is embedded."""
    gc.unfreeze()
    gc.enable()
    try:
        yield
    finally:
        gc.disable()
