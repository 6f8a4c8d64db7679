"""The counters of one command: how often it was called, with which result, and how long it ran. They never decrease."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.statistics.histogram import Histogram

# How a call of a command ended.
REPLIED: Final = 0
REFUSED: Final = 1  # The reply is an error.
REPLIES_LATER: Final = 2  # The command waits, runs in slices, or was forwarded. How it ends then is not counted.

RESULT_NAMES: Final = ["ok", "error", "waited"]

_NS_PER_US: Final = 1_000


class CommandCounts:
    """The counters of one command."""

    replied: i64
    refused: i64
    later: i64
    durations: Histogram  # In microseconds, without the time that a command waits.

    def __init__(self) -> None:
        self.replied = 0
        self.refused = 0
        self.later = 0
        self.durations = Histogram()

    def add(self, result: i64, ns: i64) -> None:
        """Count one call that ended with `result` and ran for `ns` nanoseconds."""
        if result == REPLIED:
            self.replied += 1
        elif result == REFUSED:
            self.refused += 1
        else:
            self.later += 1
        self.durations.add(ns // _NS_PER_US)

    def by_result(self) -> list[int]:
        """Return the number of calls with each result, in the order of RESULT_NAMES."""
        return [int(self.replied), int(self.refused), int(self.later)]
