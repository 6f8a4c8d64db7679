"""How time is taken: one clock, the cost of single calls, and the garbage collector as the server keeps it."""

from __future__ import annotations

import gc
import statistics
import time
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
    return statistics.median(step() for _ in range(count)) - statistics.median(
        _nothing() for _ in range(count)
    )


def _nothing() -> int:
    began = clock()
    return clock() - began


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
