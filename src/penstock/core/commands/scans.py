"""Work on many jobs of a tube, in slices: listing them, and removing them all.

`Listing` finds the first or last jobs in one state, in the order in which they would be taken. The heap of ready jobs
gives its first jobs directly. In all other cases every job of the tube has to be examined. Jobs that changed in the
meantime are left out of the result.

`Emptying` stops when it has removed the number of jobs that the tube had at the start. It does not run until the tube
is empty, because producers may put jobs as fast as they are removed.
"""

from __future__ import annotations

import heapq

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import FIRED_PER_TURN_MAX
from penstock.core.tube import Tube


class Listing:
    """A search, in slices, for the first or last jobs of a tube in one state."""

    def __init__(
        self, engine: Engine, tube: Tube, state: int, count: int, at_once_max: int, last: bool = False
    ) -> None:
        """Start a listing of up to `count` jobs.

        If a heap has the jobs in order, up to `at_once_max` of them are listed immediately, without a scan.
        """
        self._engine = engine
        self._tube = tube
        self._state = state
        self._count = count
        self._last = last
        self._cursor = 0
        # Heap of the best jobs so far with the worst on top. Values are negated for the first jobs.
        self._kept: list[tuple[int, int, int]] = []
        self._found: list[Job] = []
        is_known = state == s.READY and tube.keys is None
        at_once = count <= at_once_max if is_known else tube.count_in(state) <= FIRED_PER_TURN_MAX
        self._is_over: bool = count == 0 or (at_once and not last)
        if self._is_over:
            self._found = tube.first_jobs(state, count)

    def step(self, limit: int) -> bool:
        """Examine about `limit` jobs of the tube. Return whether the listing is complete."""
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
        """Return the jobs that were found and are still in this state of this tube."""
        if self._tube.dropped:
            return []
        return [job for job in self._found if job.state == self._state and job.tube == self._tube.slot]


class Emptying:
    """The removal of a tube's jobs, in slices."""

    def __init__(self, engine: Engine, tube: Tube) -> None:
        self.removed = 0  # Number of jobs that were removed, or that will be when the claims that hold them end.
        self._engine = engine
        self._tube = tube
        self._left: int = tube.total()

    def step(self, limit: int, now: i64) -> bool:
        """Remove up to `limit` further jobs. Return whether the removal is complete."""
        if self._left == 0 or self._tube.dropped:
            return True
        gone = self._engine.truncate(self._tube, now, min(self._left, limit))
        self.removed += gone
        self._left = self._left - gone if gone else 0
        return self._left == 0
