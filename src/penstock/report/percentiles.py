"""Percentiles of durations, computed from the buckets of the table `durations`.

Bucket 0 has durations of 0 ms. Bucket n has durations above 1.02^(n-2) ms, up to and including 1.02^(n-1) ms. Durations
are whole milliseconds, so each bucket stands for the greatest whole number that it can contain. Up to 50 ms a bucket
contains at most one whole number, and the result is exact. Above, it is at most 2 % greater than the true value.

Buckets, unlike percentiles, can be added over minutes, days and tubes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Final

GROWTH: Final = 1.02


@cache
def bucket_ms(bucket: int) -> int:
    """Return the duration in ms that a bucket stands for."""
    return int(GROWTH ** (bucket - 1)) if bucket > 0 else 0


def rank_of(percent: str) -> Fraction:
    """Return the rank of a percentile as an exact share: 19/20 for "95"."""
    return Fraction(Decimal(percent)) / 100


def percentiles(counts: Mapping[int, int], ranks: Sequence[Fraction]) -> list[int | None]:
    """Return the duration in ms at each rank, from the counts by bucket. The ranks must be in ascending order.

    The p95 is the smallest duration that is not exceeded by at least 95 % of all durations.
    """
    total = sum(counts.values())
    # Whole numbers, because a comparison with a Fraction is slow.
    needed = [math.ceil(total * rank) for rank in ranks] if total else []
    found: list[int | None] = []
    upto = 0
    for bucket in sorted(counts):
        upto += counts[bucket]
        while len(found) < len(needed) and upto >= needed[len(found)]:
            found.append(bucket_ms(bucket))
    return found + [None] * (len(ranks) - len(found))


def slower_than(counts: Mapping[int, int], ms: int) -> int:
    """Return how many durations exceed `ms`.

    The result agrees with `percentiles`: the p95 exceeds `ms` exactly if more than 5 % of the durations do.
    """
    return sum(count for bucket, count in counts.items() if bucket_ms(bucket) > ms)


def add_counts(rows: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return counts by bucket from pairs of a bucket and a count. Equal buckets are added."""
    counts: dict[int, int] = {}
    for bucket, count in rows:
        counts[bucket] = counts.get(bucket, 0) + count
    return counts
