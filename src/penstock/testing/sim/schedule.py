"""Simulated time: a queue of events. Only `Schedule.run` advances the time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

# Time is in microseconds, because a network is faster than a millisecond, and nodes must not run in lockstep.
MS = 1_000
SECOND = 1_000_000

Act = Callable[[], None]


class Schedule:
    """All future events in order of time. Events of the same time run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0  # Microseconds since the start of the simulation.
        self.events = 0  # How many events have run.
        self._coming: list[tuple[int, int, Act]] = []
        self._said = 0

    def at(self, when: int, act: Act) -> None:
        """Schedule an event at the time `when`, or now if that time has passed."""
        self.after(max(0, when - self.now), act)

    def after(self, delay: int, act: Act) -> None:
        """Schedule an event in `delay` microseconds."""
        self._said += 1
        heappush(self._coming, (self.now + delay, self._said, act))

    def run(self, until: int) -> None:
        """Run all events up to a time."""
        coming = self._coming
        while coming and coming[0][0] <= until:
            self.now, _, act = heappop(coming)
            self.events += 1
            act()
        self.now = max(self.now, until)


class Streams:
    """Named random number generators. A draw from one of them does not change the numbers of the others."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> Random:
        """Return a new random number generator for `name`.

        Its seed is a text, so its numbers do not depend on Python's hash seed.
        """
        return Random(f"{self.seed}/{name}")


def spread(random: Random, mean: float, most: float) -> int:
    """Return a random duration with an exponential distribution, at most `most`."""
    return int(min(random.expovariate(1.0 / mean), most)) if mean > 0 else 0
