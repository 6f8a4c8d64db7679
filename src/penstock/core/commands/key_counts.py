"""The keys of a tube with the most ready jobs, found in slices."""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import i64

from penstock.core.errors import OutOfRange
from penstock.core.limits import check_integer
from penstock.core.tube import Tube

# A summary of a tube has at most this many keys, or causes of failure.
SUMMARY_COUNT_MAX: Final = 1_000


def check_summary_count(value: int) -> int:
    """Return the number of rows of a summary if it is 1 to SUMMARY_COUNT_MAX. Raise OutOfRange otherwise."""
    check_integer(value, "count")
    if value < 1 or value > SUMMARY_COUNT_MAX:
        raise OutOfRange(f"count must be 1 to {SUMMARY_COUNT_MAX}")
    return value


class KeyCount:
    """A key and its jobs."""

    def __init__(self, name: bytes, ready: int, taken: int, jobs: int) -> None:
        self.name = name
        self.ready = ready
        self.taken = taken
        self.jobs = jobs  # Jobs in any state.


class KeyCounts:
    """A search for the keys with the most ready jobs. Of keys with equally many, those with more taken jobs come first.

    Keys that are added or removed meanwhile can be missing.
    """

    def __init__(self, tube: Tube, count: int) -> None:
        self._tube = tube
        self._count = count
        self._at = 0  # The next slot of the tube's table of keys.
        self._kept: list[tuple[int, int, int]] = []  # Heap of ready jobs, taken jobs and slot, with the least on top.

    def step(self, limit: int) -> bool:
        """Examine up to `limit` slots. Return whether all were examined."""
        keys = self._tube.keys
        if keys is None or self._tube.dropped:
            return True
        kept = self._kept
        slots = keys.slots
        end = min(self._at + limit, len(slots))
        for at in range(self._at, end):
            key = slots[at]
            if key is None:
                continue
            ready: i64 = 0 if key.first is None else 1
            if key.rest is not None:
                ready += len(key.rest)
            place = (int(ready), int(key.taken), at)
            if len(kept) < self._count:
                heapq.heappush(kept, place)
            elif place > kept[0]:
                heapq.heapreplace(kept, place)
        self._at = end
        return end >= len(slots)

    def found(self) -> list[KeyCount]:
        """Return the keys that were found, first the one with the most ready jobs."""
        keys = self._tube.keys
        found: list[KeyCount] = []
        if keys is not None and not self._tube.dropped:
            for ready, taken, at in sorted(self._kept, reverse=True):
                key = keys.slots[at]
                if key is not None:
                    found.append(KeyCount(key.name, ready, taken, int(key.jobs)))
        return found
