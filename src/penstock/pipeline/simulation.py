"""Simulation of a tube as a first-in, first-out queue with a number of workers, for `penstock pipeline whatif`.

Each job arrives at its real time and has its real run time. The number of workers, and the maximum number of running
jobs per key, can be changed. Times are in milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Final

Progress = Callable[[int, int], None]

# Progress is reported after this many jobs.
PROGRESS_EVERY: Final = 50_000


@dataclass(frozen=True)
class Arrivals:
    """Jobs in order of arrival: their arrival times, run times and keys."""

    at_ms: Sequence[int]
    run_ms: Sequence[float]
    keys: Sequence[object]

    def __len__(self) -> int:
        return len(self.at_ms)


@dataclass(frozen=True)
class WorkerPool:
    """The workers of a simulation."""

    workers: int
    per_key: int | None = None  # Jobs of one key that may run at the same time. None: no limit.
    begin_ms: int = 0  # When the workers start.
    pause_ms: float = 0  # Time that a worker needs between two jobs.


def waits(arrivals: Arrivals, crew: WorkerPool, progress: Progress = lambda done, total: None) -> list[float]:
    """Return how long each job would have waited with these workers."""
    assert crew.workers > 0 and (crew.per_key is None or crew.per_key > 0)
    if crew.per_key is None or crew.per_key >= crew.workers:
        return _waits_in_one_line(arrivals, crew, progress)
    return _waits_by_key(arrivals, crew, crew.per_key, progress)


def _waits_in_one_line(arrivals: Arrivals, crew: WorkerPool, progress: Progress) -> list[float]:
    # The worker that is free first gets the next job, so only the times at which workers become free are stored.
    free_at: list[float] = [crew.begin_ms] * crew.workers
    waited = []
    for number, (came, runs) in enumerate(zip(arrivals.at_ms, arrivals.run_ms)):
        starts = max(came, free_at[0])
        heapreplace(free_at, starts + runs + crew.pause_ms)
        waited.append(starts - came)
        if number % PROGRESS_EVERY == 0:
            progress(number, len(arrivals))
    return waited


class _KeyQueue:
    """The waiting jobs of one key, and the number of its running jobs."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[int] = deque()


# Stands for a job number in `ends`: the pause of a worker ends.
_PAUSE: Final = -1


def _waits_by_key(arrivals: Arrivals, crew: WorkerPool, per_key: int, progress: Progress) -> list[float]:
    lines: dict[object, _KeyQueue] = {}
    # Heap of keys with a waiting job that may run, by their first waiting job. Workers need not skip busy keys.
    open_keys: list[tuple[int, object]] = []
    ends: list[tuple[float, int]] = []
    waited = [0.0] * len(arrivals)
    coming, idle = 0, crew.workers
    now: float

    while coming < len(arrivals) or ends:
        if coming < len(arrivals) and (not ends or arrivals.at_ms[coming] < ends[0][0]):
            now, key = max(arrivals.at_ms[coming], crew.begin_ms), arrivals.keys[coming]
            line = lines.setdefault(key, _KeyQueue())
            line.waiting.append(coming)
            if len(line.waiting) == 1 and line.busy < per_key:
                heappush(open_keys, (coming, key))
            coming += 1
            if coming % PROGRESS_EVERY == 0:
                progress(coming, len(arrivals))
        else:
            now = ends[0][0]
            # Process everything that ends now before any job starts, so that the next job is chosen among all.
            while ends and ends[0][0] == now:
                _, ended = heappop(ends)
                if ended == _PAUSE:
                    idle += 1
                    continue
                key = arrivals.keys[ended]
                line = lines[key]
                line.busy -= 1
                # If the key was below its limit before, it is in open_keys already.
                if line.waiting and line.busy == per_key - 1:
                    heappush(open_keys, (line.waiting[0], key))
        while idle and open_keys:
            number, key = heappop(open_keys)
            line = lines[key]
            line.waiting.popleft()
            idle -= 1
            waited[number] = now - arrivals.at_ms[number]
            end = now + arrivals.run_ms[number]
            # A job with a run time of 0 has ended already, so it does not block the next job of its key.
            if end > now:
                line.busy += 1
                heappush(ends, (end, number))
            heappush(ends, (end + crew.pause_ms, _PAUSE))
            if line.waiting and line.busy < per_key:
                heappush(open_keys, (line.waiting[0], key))
    return waited


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return a percentile: the smallest value such that at least a `share` (0 to 1) of all values are not greater."""
    return sorted_values[max(0, -(-len(sorted_values) * round(share * 1000) // 1000) - 1)]


def max_concurrent(spans: Iterable[tuple[float, float]]) -> int:
    """Return the greatest number of spans (start, end) that overlap."""
    steps = sorted(step for begins, ends in spans for step in ((begins, 1), (ends, -1)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most
