"""A tube as a line of jobs before a number of workers, played through again: what `penstock pipeline whatif` rests on.

Each job comes when it came and takes as long as it took; what changes is how many workers there are, and how many jobs
of one key may be worked on at a time. Jobs are served in the order they came. Times are milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Final

Progress = Callable[[int, int], None]

# How often progress is told.
TOLD_EVERY: Final = 50_000


@dataclass(frozen=True)
class Arrivals:
    """Jobs in the order they came: when, how long they keep a worker and their key busy, and of which key they are."""

    at_ms: Sequence[int]
    run_ms: Sequence[float]
    keys: Sequence[object]

    def __len__(self) -> int:
        return len(self.at_ms)


@dataclass(frozen=True)
class Crew:
    """Who works on them."""

    workers: int
    per_key: int | None = None  # So many jobs of one key at a time; None: as many as there are.
    begin_ms: int = 0  # When they come.
    pause_ms: float = 0  # What a worker needs between the end of a job and the next.


def waits(arrivals: Arrivals, crew: Crew, progress: Progress = lambda done, total: None) -> list[float]:
    """How long each job would have waited for this crew."""
    assert crew.workers > 0 and (crew.per_key is None or crew.per_key > 0)
    if crew.per_key is None or crew.per_key >= crew.workers:
        return _waits_in_one_line(arrivals, crew, progress)
    return _waits_by_key(arrivals, crew, crew.per_key, progress)


def _waits_in_one_line(arrivals: Arrivals, crew: Crew, progress: Progress) -> list[float]:
    # Whoever is free first gets the next job, so when each is free again is all that has to be known.
    free_at: list[float] = [crew.begin_ms] * crew.workers
    waited = []
    for number, (came, runs) in enumerate(zip(arrivals.at_ms, arrivals.run_ms)):
        starts = max(came, free_at[0])
        heapreplace(free_at, starts + runs + crew.pause_ms)
        waited.append(starts - came)
        if number % TOLD_EVERY == 0:
            progress(number, len(arrivals))
    return waited


class _Line:
    """The jobs of one key that wait, and how many of it are being worked on."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: deque[int] = deque()


# In the place of a job's number: what ends is the pause of a worker.
_PAUSE: Final = -1


def _waits_by_key(arrivals: Arrivals, crew: Crew, per_key: int, progress: Progress) -> list[float]:
    lines: dict[object, _Line] = {}
    # Keys that have a job waiting and room for it, by the first of those jobs: a worker never looks past busy keys.
    open_keys: list[tuple[int, object]] = []
    ends: list[tuple[float, int]] = []
    waited = [0.0] * len(arrivals)
    coming, idle = 0, crew.workers
    now: float

    while coming < len(arrivals) or ends:
        if coming < len(arrivals) and (not ends or arrivals.at_ms[coming] < ends[0][0]):
            now, key = max(arrivals.at_ms[coming], crew.begin_ms), arrivals.keys[coming]
            line = lines.setdefault(key, _Line())
            line.waiting.append(coming)
            if len(line.waiting) == 1 and line.busy < per_key:
                heappush(open_keys, (coming, key))
            coming += 1
            if coming % TOLD_EVERY == 0:
                progress(coming, len(arrivals))
        else:
            now = ends[0][0]
            # All that end now, before anybody takes: who is first is decided by the jobs that are free by then.
            while ends and ends[0][0] == now:
                _, ended = heappop(ends)
                if ended == _PAUSE:
                    idle += 1
                    continue
                key = arrivals.keys[ended]
                line = lines[key]
                line.busy -= 1
                # With room for one more before this end, the key is among the open ones already.
                if line.waiting and line.busy == per_key - 1:
                    heappush(open_keys, (line.waiting[0], key))
        while idle and open_keys:
            number, key = heappop(open_keys)
            line = lines[key]
            line.waiting.popleft()
            line.busy += 1
            idle -= 1
            waited[number] = now - arrivals.at_ms[number]
            end = now + arrivals.run_ms[number]
            heappush(ends, (end, number))
            heappush(ends, (end + crew.pause_ms, _PAUSE))
            if line.waiting and line.busy < per_key:
                heappush(open_keys, (line.waiting[0], key))
    return waited


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all is not above."""
    return sorted_values[max(0, -(-len(sorted_values) * round(share * 1000) // 1000) - 1)]


def most_at_a_time(spans: Iterable[tuple[float, float]]) -> int:
    """How many of these spans, each from its beginning to its end, there were at a time at most."""
    steps = sorted(step for begins, ends in spans for step in ((begins, 1), (ends, -1)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most
