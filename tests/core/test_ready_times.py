"""The age of the oldest ready job is exact up to 768 different times, and nearly exact beyond."""

from __future__ import annotations

import random
from bisect import insort
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.limits import NEVER
from penstock.core.order import GROUPS_MAX, ReadyTimes

EXACT = GROUPS_MAX * 3 // 4
DAY = 86_400_000


class Model:
    """A sorted list of times next to the real thing."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.real = ReadyTimes()
        self.now = 1_700_000_000_000

    def add(self, later: int) -> None:
        self.now += later
        insort(self.times, self.now)
        self.real.add(self.now)

    def remove(self, index: int) -> None:
        self.real.remove(self.times.pop(index % len(self.times)))

    def check(self) -> None:
        assert self.real.oldest() == (self.times[0] if self.times else NEVER)
        assert sum(count for _, count in self.real.groups()) == len(self.times)

    def error(self) -> int:
        """Return by how many ms the oldest time is too early."""
        groups = self.real.groups()
        assert sum(count for _, count in groups) == len(self.times)
        if not self.times:
            assert groups == [] and self.real.oldest() == NEVER
            return 0
        return self.times[0] - self.real.oldest()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 3)),
            st.tuples(st.just("add"), st.integers(0, 10**9)),
            st.tuples(st.just("remove"), st.integers(0, 10**6)),
        ),
        max_size=300,
    )
)
def test_it_equals_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for what, number in steps:
        if what == "add":
            model.add(number)
        elif model.times:
            model.remove(number)
        model.check()
    while model.times:
        model.remove(0)
        model.check()
    assert model.real.groups() == []


@pytest.mark.parametrize("seed", range(4))
def test_it_is_exact_while_at_most_768_different_times_are_present(seed: int) -> None:
    """Also after any number of times that are gone."""
    chance, model = random.Random(seed), Model()
    different = Counter[int]()
    for step in range(8_000):
        if len(different) < EXACT and chance.random() < 0.7:
            model.add(chance.choice([0, 1, 1, 50, 10_000]))
            different[model.now] += 1
        elif model.times:
            index = 0 if chance.random() < 0.5 else chance.randrange(len(model.times))
            different[model.times[index]] -= 1
            if different[model.times[index]] == 0:
                del different[model.times[index]]
            model.remove(index)
        if step % 7 == 0:
            model.check()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [3_000, 12_000])
def test_with_more_times_it_is_too_early_by_at_most_3_percent_of_the_age_within_a_day(seed: int, most: int) -> None:
    chance, model = random.Random(seed), Model()
    start, worst = model.now, 0.0
    while model.now - start < DAY:
        if len(model.times) < most:
            model.add(chance.choice([0, 1, 7, 200, DAY // most, 3 * DAY // most]))
        if len(model.times) >= most or chance.random() < 0.3:
            for _ in range(chance.choice([1, 1, most // 2]) if len(model.times) >= most else 1):
                model.remove(0 if chance.random() < 0.9 else chance.randrange(len(model.times)))
        if chance.random() < 0.8:
            continue
        error = model.error()
        assert error >= 0, "never too late"
        age = model.now - model.real.oldest()
        assert error <= max(10, 0.03 * age), f"{error} ms of {age}"
        worst = max(worst, error)
    assert worst > 0


@pytest.mark.parametrize("step", [1, 4, 15, 300])
def test_the_age_of_young_jobs_is_nearly_exact_after_all_older_ones_are_gone(step: int) -> None:
    model = Model()
    for _ in range(3_000):
        model.add(step)
    while model.times:
        model.remove(0)
        error = model.error()
        age = model.now - model.real.oldest() if model.times else 0
        assert 0 <= error <= max(10, 0.03 * age), f"{error} ms of {age}"


def test_its_memory_is_bounded() -> None:
    model = ReadyTimes()
    for time in range(0, 100_000 * 37, 37):
        model.add(time)
    assert len(model.groups()) <= GROUPS_MAX
    for time in range(0, 100_000 * 37, 37):
        model.remove(time)
    assert model.oldest() == NEVER and model.groups() == []


def test_times_that_are_years_apart_are_merged_too() -> None:
    """The part of the age is doubled as often as necessary."""
    model, time = ReadyTimes(), 0
    for number in range(5_000):
        time += 1_000 * (1 + number % 97) ** 4
        model.add(time)
    assert len(model.groups()) <= GROUPS_MAX and sum(count for _, count in model.groups()) == 5_000


def test_the_memory_is_limited_if_just_three_quarters_of_the_groups_are_left() -> None:
    times = ReadyTimes()
    for number in range(GROUPS_MAX):
        times.add(number * 100_000)
    for number in range(1, GROUPS_MAX // 4 + 1):
        times.remove(number * 100_000)
    for number in range(GROUPS_MAX, 3 * GROUPS_MAX):
        times.add(number * 100_000)
        assert len(times.groups()) <= GROUPS_MAX
