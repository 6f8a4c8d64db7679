"""The clock of a simulated machine: a monotonic clock that drifts and a wall clock that can be set."""

from __future__ import annotations

from penstock.testing.clock import SOME_MOMENT_MS
from penstock.testing.sim.schedule import MS, Schedule

_MILLION = 1_000_000


class MachineClock:
    """A monotonic clock with a drift, and a wall clock with an offset."""

    def __init__(self, schedule: Schedule) -> None:
        self.offset_ms = 0  # The error of the wall clock.
        self._schedule = schedule
        self._ppm = 0
        self._since = 0  # When the drift was set, in simulated time.
        self._then = 0  # The monotonic clock when the drift was set.

    def set_drift(self, ppm: int) -> None:
        """Make the clock run faster or slower from now on, by `ppm` millionths."""
        self._then = self.monotonic_us()
        self._since = self._schedule.now
        self._ppm = ppm

    def monotonic_us(self) -> int:
        """Return the time of the monotonic clock in microseconds."""
        passed = self._schedule.now - self._since
        return self._then + passed + passed * self._ppm // _MILLION

    def wall_ms(self) -> int:
        """Return the time of the wall clock in milliseconds since 1970."""
        return SOME_MOMENT_MS + self.offset_ms + self.monotonic_us() // MS

    def truly(self, us: int) -> int:
        """Convert a duration measured by this clock to microseconds of simulated time, which has no drift."""
        return us * _MILLION // (_MILLION + self._ppm) + 1
