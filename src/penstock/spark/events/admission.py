"""Admission control of a stream: decides at which offset the next batch ends, or that it does not start yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.core.limits import NEVER
from penstock.spark.events.options import ROWS_MAX, EventsOptions

Offset = dict[str, int]

# A position is looked up in the files of a node at most this often to find the end of a batch of limited bytes.
_LOOKUPS_MAX: Final = 8


class Admission:
    """Applies the limits of the options to the batches of one query."""

    def __init__(self, options: EventsOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._last = clock()  # When the last batch was admitted.

    def default_rows(self) -> int | None:
        """Return the largest number of rows in a batch, or None if the options have no limit of any kind."""
        limits = (self._options.rows_per_trigger, self._options.bytes_per_trigger, self._options.rows_per_trigger_min)
        return (self._options.rows_per_trigger or ROWS_MAX) if any(limits) else None

    def is_due(self, starts: Offset, ends: Offset) -> bool:
        """Return whether a batch starts now: there are enough rows, or the last batch was long ago."""
        least, delay_ms = self._options.rows_per_trigger_min, self._options.trigger_delay_ms
        waited_ms = (self._clock() - self._last) * 1000
        if total(starts, ends) < least and (delay_ms == NEVER or waited_ms < delay_ms):
            return False
        self._last = self._clock()
        return True

    def limit(self, starts: Offset, ends: Offset, bytes_between: Callable[[str, int, int], int]) -> Offset:
        """Lower `ends` to the limits. `bytes_between(node, start, end)` returns the size of a part of a log."""
        ends = limit_rows(starts, ends, self._options.rows_per_trigger)
        most = self._options.bytes_per_trigger
        return ends if most is None else limit_bytes(starts, ends, most, bytes_between)


def total(starts: Offset, ends: Offset) -> int:
    """Return the number of rows between two offsets."""
    return sum(max(0, end - starts[name]) for name, end in ends.items() if name in starts)


def limit_rows(starts: Offset, ends: Offset, most: int | None) -> Offset:
    """Lower `ends` so that about `most` rows are read. Each log gets a share in proportion to its unread rows."""
    lags = {name: max(0, end - starts[name]) for name, end in ends.items() if name in starts}
    unread = sum(lags.values())
    if most is None or unread <= most:
        return {name: starts[name] + lag for name, lag in lags.items()}
    # Shares are rounded up, so that every log advances. The batch exceeds `most` by at most one row per node.
    return {name: starts[name] + -(-lag * most // unread) for name, lag in lags.items()}


def limit_bytes(starts: Offset, ends: Offset, most: int, bytes_between: Callable[[str, int, int], int]) -> Offset:
    """Lower `ends` so that at most `most` bytes are read, but at least one row of each log that has unread rows."""
    sizes = {name: bytes_between(name, starts[name], end) for name, end in ends.items() if end > starts[name]}
    unread = sum(sizes.values())
    if unread <= most:
        return ends
    return {
        name: _end_within(name, starts[name], end, sizes[name], sizes[name] * most // unread, bytes_between)
        if name in sizes
        else end
        for name, end in ends.items()
    }


def _end_within(
    name: str, start: int, end: int, size: int, most: int, bytes_between: Callable[[str, int, int], int]
) -> int:
    """Return an end such that the rows from `start` have at most `most` bytes, or `start` + 1 if a row has more.

    Rows have similar sizes, so the end is estimated by a proportion, and lowered until it fits.
    """
    for _ in range(_LOOKUPS_MAX):
        if size <= most or end <= start + 1:
            break
        end = start + max(1, min((end - start) * most // size, end - start - 1))
        size = bytes_between(name, start, end)
    return end if size <= most else start + 1
