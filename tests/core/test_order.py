"""The heap serves by priority, then order, after any removals. The bag neither loses nor invents jobs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.deadlines import NOWHERE
from penstock.core.job import Job
from penstock.core.order import JobBag, JobHeap, TakenBag
from penstock.testing.assertions import check_bag, check_heap, rank


def job(number: int, priority: int = 0) -> Job:
    made = Job(number, 0, b"", 0, 0)
    made.priority = priority
    return made


# A script: a priority is a push, None removes the first, a negative index removes the job at that index.
SCRIPTS = st.lists(st.one_of(st.integers(0, 4), st.none(), st.integers(-40, -1)), max_size=120)


@given(SCRIPTS)
def test_the_heap_does_what_a_sorted_list_does(script: list[int | None]) -> None:
    heap, there = JobHeap(), []
    for number, step in enumerate(script):
        if step is not None and step >= 0:
            made = job(number, step)
            heap.push(made)
            there = sorted([*there, made], key=rank)
        elif there:
            leaving = there[0] if step is None else there[step % len(there)]
            heap.remove(leaving)
            there.remove(leaving)
            assert leaving.pos == NOWHERE
        assert heap.first() is (there[0] if there else None)
        assert len(heap) == len(there)
        check_heap("heap", heap.items)


@given(st.lists(st.integers(-3, 3), max_size=60), st.integers(0, 70))
def test_first_many_returns_the_jobs_that_are_served_first(priorities: list[int], count: int) -> None:
    heap = JobHeap()
    jobs = [job(number, priority) for number, priority in enumerate(priorities)]
    for made in jobs:
        heap.push(made)
    assert heap.first_many(count) == sorted(jobs, key=rank)[:count]
    check_heap("looking changes nothing", heap.items)


def test_equal_priorities_are_served_in_their_order_and_extremes_compare() -> None:
    heap = JobHeap()
    extremes = [job(3, 2**60 - 1), job(2, -(2**60)), job(1, 2**60 - 1), job(0, 0)]
    for made in extremes:
        heap.push(made)
    served = []
    while (first := heap.first()) is not None:
        heap.remove(first)
        served.append(first.id)
    assert served == [2, 0, 1, 3]


def test_a_job_that_is_pushed_again_has_its_old_place() -> None:
    heap = JobHeap()
    jobs = [job(number) for number in range(10)]
    for made in jobs:
        heap.push(made)
    heap.remove(jobs[0])
    heap.remove(jobs[4])
    heap.push(jobs[4])
    heap.push(jobs[0])
    assert heap.first_many(10) == jobs


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 6, 20, 21, 22, 84, 85, 86])
def test_the_heap_is_ordered_at_the_boundaries_of_its_levels(count: int) -> None:
    heap = JobHeap()
    for number in range(count, 0, -1):
        heap.push(job(number))
    check_heap("heap", heap.items)
    served = []
    while (first := heap.first()) is not None:
        heap.remove(first)
        served.append(first.id)
    assert served == list(range(1, count + 1))


@given(st.lists(st.integers(-20, 20), max_size=80))
def test_a_bag_contains_the_jobs_that_were_pushed_and_not_removed(script: list[int]) -> None:
    bag, there = JobBag(), []
    for number, step in enumerate(script):
        if step >= 0 or not there:
            there.append(job(number))
            bag.push(there[-1])
        else:
            leaving = there.pop(step % len(there))
            bag.remove(leaving)
            assert leaving.pos == NOWHERE
        assert sorted(x.id for x in bag.items) == [x.id for x in there]
        assert len(bag) == len(there)
        check_bag("bag", bag.items)


@given(st.lists(st.integers(-20, 20), max_size=80), st.randoms(use_true_random=False))
def test_doomed_jobs_come_before_all_others(script: list[int], chance: Random) -> None:
    bag, there, doomed = TakenBag(), [], []
    for number, step in enumerate(script):
        if step >= 0 or not there:
            there.append(job(number))
            bag.push(there[-1])
        else:
            leaving = there.pop(step % len(there))
            bag.remove(leaving)
            doomed = [other for other in doomed if other is not leaving]
            assert leaving.pos == NOWHERE
        if len(doomed) < len(there) and chance.random() < 0.3:
            doomed.append(chance.choice([other for other in there if other not in doomed]))
            bag.doom(doomed[-1])
        check_bag("bag", bag.items)
        assert len(bag) == len(there) and bag.doomed == len(doomed)
        assert {other.id for other in bag.items} == {other.id for other in there}
        assert {other.id for other in bag.items[: bag.doomed]} == {other.id for other in doomed}
