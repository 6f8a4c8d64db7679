"""The clock of a simulated machine: it goes a little fast or slow, and what time it thinks it is may be changed."""

from __future__ import annotations

from penstock.testing.clock import SOME_MOMENT_MS
from penstock.testing.sim.schedule import MS, Schedule

_MILLION = 1_000_000


class MachineClock:
    """A monotonic clock with a drift, and a wall clock that can be set."""

    def __init__(self, schedule: Schedule) -> None:
        self.offset_ms = 0  # How wrong the wall clock is.
        self._schedule = schedule
        self._ppm = 0
        self._since = 0  # When the drift was set,
        self._then = 0  # and what the monotonic clock said.

    def set_drift(self, ppm: int) -> None:
        """Go faster or slower from now on, by so many millionths."""
        self._then = self.monotonic_us()
        self._since = self._schedule.now
        self._ppm = ppm

    def monotonic_us(self) -> int:
        """How long it has been going."""
        passed = self._schedule.now - self._since
        return self._then + passed + passed * self._ppm // _MILLION

    def wall_ms(self) -> int:
        """What time it thinks it is."""
        return SOME_MOMENT_MS + self.offset_ms + self.monotonic_us() // MS

    def truly(self, us: int) -> int:
        """How long so many microseconds of this clock last."""
        return us * _MILLION // (_MILLION + self._ppm) + 1
