"""The durations of a tube as users see them: how long jobs waited, and how long work on them took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.statistics.histogram import LIMITS_COUNT


@dataclass(frozen=True, slots=True)
class Durations:
    """A histogram of durations, counted since the node started. All times are in seconds."""

    count: int
    total: float
    buckets: dict[float, int]  # By limit: the durations below it, and not below the limit before. The last is infinity.

    def quantile(self, part: float) -> float | None:
        """Return an estimate of a quantile, for example of the median for `part` 0.5. Return None without durations.

        The estimate is in the right bucket, so it is wrong by a factor of two at most. Durations above the last finite
        limit count as that limit.
        """
        if not 0 <= part <= 1:
            raise ValueError(f"a quantile is between 0 and 1, not {part}")
        wanted, passed, below = part * self.count, 0, 0.0
        for limit, count in self.buckets.items():
            if count and passed + count >= wanted:
                return below if math.isinf(limit) else below + (limit - below) * (wanted - passed) / count
            passed += count
            below = below if math.isinf(limit) else limit
        return None


def durations_from(buckets: Sequence[int], total_ms: int) -> Durations:
    """Return the histogram with these counts. `buckets` may end with the last count that is not 0."""
    counts = [*buckets, *[0] * (LIMITS_COUNT + 1 - len(buckets))]
    limits = [*((1 << power) / 1000 for power in range(LIMITS_COUNT)), math.inf]
    return Durations(sum(counts), total_ms / 1000, dict(zip(limits, counts, strict=True)))
