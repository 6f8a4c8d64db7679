"""Histograms of durations, and those that a tube counts."""

from __future__ import annotations

import math

import pytest

from penstock.core import policy as p
from penstock.core.statistics.histogram import BUCKETS_COUNT, LIMITS_COUNT, Histogram
from penstock.core.tube import Tube
from penstock.durations import durations_from
from tests.core.engine_harness import EngineHarness


@pytest.mark.parametrize("power", range(62))
def test_a_duration_is_counted_below_the_next_power_of_two(power: int) -> None:
    histogram = Histogram()
    for duration in ((1 << power) - 1, 1 << power):
        histogram.add(duration)
    expected = [0] * BUCKETS_COUNT
    expected[min(power, LIMITS_COUNT)] += 1
    expected[min(power + 1, LIMITS_COUNT)] += 1
    assert histogram.counts() == expected
    assert histogram.total == (1 << power + 1) - 1


def test_a_negative_duration_counts_as_none() -> None:
    histogram = Histogram()
    histogram.add(-5)
    assert histogram.used_buckets() == [1] and histogram.total == 0


def test_a_wait_is_from_ready_to_taken_and_a_run_from_taken_to_acked() -> None:
    desk = EngineHarness()
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube, delay_ms=100)
    desk.pass_ms(100)
    desk.pass_ms(5)
    desk.take(tube)
    desk.pass_ms(40)
    desk.do("release", job)
    assert tube.runs is None, "a release does not end a run"
    desk.pass_ms(3)
    desk.take(tube)
    desk.pass_ms(1_000)
    desk.do("ack", job)
    assert counted(tube) == ([0, 0, 1, 1], [*[0] * 10, 1])
    assert tube.waits is not None and tube.waits.total == 5 + 3


def counted(tube: Tube) -> tuple[list[int], list[int]]:
    assert tube.waits is not None and tube.runs is not None
    return tube.waits.used_buckets(), tube.runs.used_buckets()


def test_a_quantile_is_in_the_bucket_of_its_duration() -> None:
    durations = durations_from([1, 0, 0, 0, 3], 33)
    assert durations.quantile(0) == 0
    assert durations.quantile(0.25) == 0.001
    assert durations.quantile(1) == 0.016
    assert 0.008 < (durations.quantile(0.5) or 0) < 0.016
    assert list(durations.buckets)[-1] == math.inf and durations.total == 0.033
    assert durations_from([0] * LIMITS_COUNT + [2], 0).quantile(0.5) == durations_from([0] * 27 + [1], 0).quantile(1)
    with pytest.raises(ValueError, match="a quantile is between 0 and 1, not 2"):
        durations.quantile(2)
