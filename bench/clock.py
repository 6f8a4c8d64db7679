"""Time measurement: the clock, the cost of single calls, and the garbage collector as the server configures it."""

from __future__ import annotations

import gc
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

clock = time.perf_counter_ns


def ns_each(work: Callable[[], object], count: int) -> float:
    """Run `work`, which does `count` things. Return the ns per thing."""
    began = clock()
    work()
    return (clock() - began) / count


def per_second(work: Callable[[], object], count: int) -> float:
    """Run `work`, which does `count` things. Return the things per second."""
    return 1e9 / ns_each(work, count)


def typical_ns(step: Callable[[], int], count: int) -> float:
    """Return the median of the ns that `step` reports, minus the cost of reading the clock."""
    return statistics.median(step() for _ in range(count)) - statistics.median(_nothing() for _ in range(count))


def _nothing() -> int:
    began = clock()
    return clock() - began


class Repeated:
    """The minimum time of each call in a series, over all runs of the series.

    The engine is deterministic: its n-th call does the same work in every run. Other processes delay different calls
    in each run, so the minimum is the time of the engine itself.
    """

    def __init__(self) -> None:
        self._least_ns: array[int] | None = None

    def add(self, took_ns: array[int]) -> None:
        """Add a run of the series."""
        least = self._least_ns
        self._least_ns = took_ns if least is None else array("q", map(min, least, took_ns))

    def longest_ms(self) -> float:
        """Return the longest call of the series in ms."""
        assert self._least_ns is not None
        return max(self._least_ns) / 1e6


@contextmanager
def server_gc() -> Iterator[None]:
    """Configure the collector like the server: automatic runs are off, and existing objects are frozen (`freeze`)."""
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def freeze() -> None:
    """Within `server_gc`: collect garbage, and exclude the remaining objects from later collections."""
    gc.collect()
    gc.freeze()


@contextmanager
def host_gc() -> Iterator[None]:
    """Within `server_gc`: use the default collector, as in a process with an embedded queue."""
    gc.unfreeze()
    gc.enable()
    try:
        yield
    finally:
        gc.disable()
