"""The clock of the machine. Compiled, because it is read several times per turn."""

from __future__ import annotations

import time

from mypy_extensions import i64

from penstock.node.clock import Clock


class MachineClock(Clock):
    """A monotonic clock that starts at a given time. Deadlines do not move when the system clock is set."""

    def __init__(self, start_ms: i64) -> None:
        self._offset_ns: i64 = start_ms * 1_000_000 - time.monotonic_ns()

    def now(self) -> i64:
        monotonic_ns: i64 = time.monotonic_ns()
        return (monotonic_ns + self._offset_ns) // 1_000_000

    def wall(self) -> i64:
        return wall_ms()


def wall_ms() -> i64:
    """Return the wall time in ms since 1970."""
    wall_ns: i64 = time.time_ns()
    return wall_ns // 1_000_000
