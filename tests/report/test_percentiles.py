"""Percentiles from buckets are exact up to 50 ms, and accurate to 2 % above."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.report.percentiles import add_counts, bucket_ms, percentiles, rank_of, slower_than

from .sample import bucket_of

RANKS = [rank_of(percent) for percent in ("50", "95", "99", "99.9")]
DURATIONS = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 10**10)), min_size=1, max_size=300)


def true_percentile(durations: list[int], rank: Fraction) -> int:
    """Return the smallest duration that is not exceeded by this share of the durations: the definition."""
    ordered = sorted(durations)
    return next(each for at, each in enumerate(ordered, 1) if at >= rank * len(ordered))


@given(DURATIONS)
def test_percentiles_are_exact_up_to_50_ms_and_accurate_to_2_percent_above(durations: list[int]) -> None:
    found = percentiles(add_counts((bucket_of(ms), 1) for ms in durations), RANKS)
    for value, rank in zip(found, RANKS):
        true = true_percentile(durations, rank)
        assert value is not None
        assert value == true if true <= 50 else true <= value <= true * 1.02


@given(DURATIONS, st.integers(0, 10**10))
def test_a_target_is_missed_exactly_if_more_durations_are_slower_than_it_allows(durations: list[int], ms: int) -> None:
    counts = add_counts((bucket_of(each), 1) for each in durations)
    for rank, value in zip(RANKS, percentiles(counts, RANKS)):
        assert value is not None
        assert (value > ms) == (slower_than(counts, ms) > (1 - rank) * len(durations))


@given(DURATIONS, st.integers(1, 9))
def test_only_the_proportions_of_the_counts_matter(durations: list[int], times: int) -> None:
    rows = [(bucket_of(ms), 1) for ms in durations]
    assert percentiles(add_counts(rows * times), RANKS) == percentiles(add_counts(rows), RANKS)


@pytest.mark.parametrize(("bucket", "ms"), [(0, 0), (1, 1), (37, 2), (57, 3)])
def test_a_bucket_stands_for_the_greatest_whole_number_that_it_contains(bucket: int, ms: int) -> None:
    assert bucket_ms(bucket) == ms and bucket_of(ms) == bucket


def test_no_durations_have_no_percentiles() -> None:
    assert percentiles({}, RANKS) == [None] * 4
