"""A histogram of durations: how many were shorter than 1, 2, 4, 8 … units.

The limits of the buckets are powers of two, so that `add` finds the bucket with a few shifts and without a search. It
allocates nothing, because it runs once for each take and each ack. The unit is that of the durations: a tube uses
milliseconds, and the server uses microseconds.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

# The number of limits: 1 to 2 ** 27. In milliseconds, the last one is 37 hours, and in microseconds two minutes.
LIMITS_COUNT: Final = 28

# One more bucket has the durations that are not below the last limit.
BUCKETS_COUNT: Final = LIMITS_COUNT + 1


class Histogram:
    """Counts of durations by their length. The counts never decrease."""

    total: i64  # The sum of all durations.
    _counts: vec[i64]

    def __init__(self) -> None:
        self.total = 0
        self._counts = vec[i64]([0] * BUCKETS_COUNT)

    def add(self, duration: i64) -> None:
        """Count a duration. A negative one counts as 0."""
        if duration < 0:
            duration = 0
        self.total += duration
        # The bucket is the number of bits of the duration.
        bucket: i64 = 0
        rest = duration
        if rest >= 0x10000:
            rest >>= 16
            bucket = 16
        if rest >= 0x100:
            rest >>= 8
            bucket += 8
        if rest >= 0x10:
            rest >>= 4
            bucket += 4
        if rest >= 4:
            rest >>= 2
            bucket += 2
        # `rest` is the number of its own bits, unless it is 3 or more.
        bucket += 2 if rest >= 2 else rest
        if bucket > LIMITS_COUNT:
            bucket = LIMITS_COUNT
        self._counts[bucket] = self._counts[bucket] + 1

    def counts(self) -> list[int]:
        """Return the number of durations in each bucket: below 1, from 1 to below 2, from 2 to below 4, and so on.

        The last bucket has all durations that are not below the last limit.
        """
        return [int(self._counts[i]) for i in range(BUCKETS_COUNT)]

    def used_buckets(self) -> list[int]:
        """Return `counts` without the zeros at its end."""
        counts = self.counts()
        while counts and counts[-1] == 0:
            counts.pop()
        return counts
