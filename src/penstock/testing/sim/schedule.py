"""Time in a simulation: what happens next, and when. Nothing else makes it pass."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

# The schedule counts microseconds: a network is faster than a millisecond, and nodes must not be in step by chance.
MS = 1_000
SECOND = 1_000_000

Act = Callable[[], None]


class Schedule:
    """Everything that is going to happen, in order; what falls on one moment happens in the order it was said."""

    def __init__(self) -> None:
        self.now = 0  # Microseconds since the world began.
        self.events = 0  # How many have happened.
        self._coming: list[tuple[int, int, Act]] = []
        self._said = 0

    def at(self, when: int, act: Act) -> None:
        """Let something happen at a moment, or at once if that is over."""
        self._said += 1
        heapq.heappush(self._coming, (max(when, self.now), self._said, act))

    def after(self, delay: int, act: Act) -> None:
        """Let something happen in so many microseconds."""
        self.at(self.now + delay, act)

    def run(self, until: int, over: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to a moment, or until it is over; tell whether it was."""
        coming = self._coming
        while coming and coming[0][0] <= until:
            when, _, act = heapq.heappop(coming)
            self.now = when
            self.events += 1
            act()
            if over is not None and over():
                return True
        self.now = max(self.now, until)
        return False


class Streams:
    """Chance, in streams with names: one draw more in one of them changes nothing in the others."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> Random:
        """A stream of its own. (Seeded with text, Python's generator does not depend on the hash seed.)"""
        return Random(f"{self.seed}/{name}")


def spread(random: Random, mean: float, most: float) -> int:
    """How long something takes that mostly takes little and sometimes much, as a network does."""
    return int(min(random.expovariate(1.0 / mean), most)) if mean > 0 else 0
