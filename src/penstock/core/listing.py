"""The first jobs of a tube in a state, or the last of them, in the order they would be served.

A heap knows its first ones. Of all others every job has to be looked at, and so this goes a slice at a time: what was
found is told at the end, as far as it still is what it was.
"""

from __future__ import annotations

import heapq

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import FIRED_PER_TURN_MAX
from penstock.core.tube import Tube


class Listing:
    """Some jobs of a tube, while they are looked for."""

    _engine: Engine
    _tube: Tube
    _state: int
    _count: int
    _last: bool
    _is_over: bool
    _cursor: int
    _kept: list[tuple[int, int, int]]  # A heap of the best so far, the worst of them on top; negated for the first.
    _found: list[Job]

    def __init__(
        self, engine: Engine, tube: Tube, state: int, count: int, at_once_max: int, last: bool = False
    ) -> None:
        """Up to `at_once_max` of them are had at once where a heap knows them."""
        self._engine = engine
        self._tube = tube
        self._state = state
        self._count = count
        self._last = last
        self._cursor = 0
        self._kept = []
        self._found = []
        is_known = state == s.READY and tube.keys is None
        at_once = count <= at_once_max if is_known else tube.count_in(state) <= FIRED_PER_TURN_MAX
        self._is_over = count == 0 or (at_once and not last)
        if self._is_over:
            self._found = tube.first_jobs(state, count)

    def step(self, limit: int) -> bool:
        """Look at about so many jobs of the tube; tell whether all were looked at."""
        if self._is_over:
            return True
        jobs, self._cursor = self._engine.scan(self._cursor, limit, self._tube, 1 << self._state)
        kept = self._kept
        sign = 1 if self._last else -1
        for job in jobs:
            place = (sign * job.priority, sign * job.order, sign * job.id)
            if len(kept) < self._count:
                heapq.heappush(kept, place)
            elif place > kept[0]:
                heapq.heapreplace(kept, place)
        self._is_over = self._cursor == 0
        if self._is_over:
            for _, _, number in sorted(kept, reverse=True):
                found = self._engine.jobs.find(sign * number)
                if found is not None:
                    self._found.append(found)
        return self._is_over

    def jobs(self) -> list[Job]:
        """Those that were found, and still are in that state of that tube."""
        if self._tube.dropped:
            return []
        return [job for job in self._found if job.state == self._state and job.tube == self._tube.slot]
