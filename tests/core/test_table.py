"""The job table finds the same jobs as a dict, scans them in order exactly once, and frees memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.job import Job
from penstock.core.table import BLOCK_SLOTS, PAGE_SLOTS, SPARSE_JOBS, JobTable, NumberSet
from penstock.testing.tube_checks import check_table


def job(number: int) -> Job:
    made = Job(number, 0, b"", 0, 0)
    made.local = number
    return made


def page_slots(table: JobTable) -> int:
    """Return how many slots the pages of the table have."""
    return sum(len(page.slots) for page in table.pages.values())


# Steps: the increment of the next id, and how many jobs to remove from which position.
STEPS = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 2, 100, 255, 256, 257, 5_000]), st.integers(0, 3), st.integers(0, 10**6)),
    max_size=200,
)


@pytest.mark.parametrize("local", [False, True])
@given(steps=STEPS)
def test_the_table_does_what_a_dict_does(local: bool, steps: list[tuple[int, int, int]]) -> None:
    table, there, number = JobTable(local), {}, 0
    for jump, removals, where in steps:
        number += jump
        there[number] = job(number)
        table.add(there[number])
        for _ in range(min(removals, len(there))):
            gone = list(there)[where % len(there)]
            table.remove(there.pop(gone))
            assert table.find(gone) is None
    assert table.count == len(there)
    assert table.scan(0, len(there) + 1) == [there[n] for n in sorted(there)]
    assert table.scan_back(2**61, len(there) + 1) == [there[n] for n in sorted(there, reverse=True)]
    half = number // 2
    assert table.scan_back(half, len(there) + 1) == [there[n] for n in sorted(there, reverse=True) if n <= half]
    for n in (*there, 0, number + 1, -1, 2**62):
        assert table.find(n) is there.get(n)
    check_table(table, number + 1, (lambda x: x.local) if local else (lambda x: x.id))


@given(
    numbers=st.lists(st.integers(0, 3_000), unique=True, max_size=300),
    removed=st.lists(st.integers(0, 10**6), max_size=300),
    first=st.integers(0, 700),
)
def test_jobs_can_be_inserted_below_others(numbers: list[int], removed: list[int], first: int) -> None:
    """Some numbers arrive in any order, others increase, and both are removed in any order."""
    table, there, newest = JobTable(True), {}, first
    for at, number in enumerate(numbers):
        if number < first:
            there[number] = job(number)
            table.insert(there[number])
        else:
            there[newest] = job(newest)
            table.add(there[newest])
            newest += 1
        if at < len(removed) and removed[at] % 3 == 0:
            table.remove(there.pop(sorted(there)[removed[at] % len(there)]))
    assert table.count == len(there)
    assert table.scan(0, len(there) + 1) == [there[n] for n in sorted(there)]
    for n in range(-1, 3_100):
        assert table.find(n) is there.get(n)
    check_table(table, newest, lambda x: x.local)


@given(
    count=st.integers(1, 900),
    examine=st.integers(1, 400),
    stable_every=st.integers(2, 9),
    removals=st.lists(st.integers(0, 10**6), max_size=300),
)
def test_a_scan_returns_each_remaining_job_exactly_once(
    count: int, examine: int, stable_every: int, removals: list[int]
) -> None:
    """Jobs are added and removed between the pages of a scan."""
    table = JobTable()
    there = {number: job(number) for number in range(1, count + 1)}
    for made in there.values():
        table.add(made)
    stable = {number for number in there if number % stable_every == 0}
    seen: list[int] = []
    cursor, newest = 0, count
    while batch := table.scan(cursor, examine):
        seen += [made.id for made in batch]
        cursor = batch[-1].id + 1
        movable = sorted(set(there) - stable)
        for choice in removals[:20]:
            if movable:
                table.remove(there.pop(movable.pop(choice % len(movable))))
        del removals[:20]
        if newest < count + 300:
            newest += 7
            there[newest] = job(newest)
            table.add(there[newest])
    assert len(seen) == len(set(seen)) and seen == sorted(seen)
    assert stable <= set(seen)


def test_a_scan_returns_at_least_as_many_jobs_as_requested_if_there_are_enough() -> None:
    table = JobTable()
    for number in range(1, 1_001):
        table.add(job(number))
    assert 10 <= len(table.scan(0, 10)) <= 10 + PAGE_SLOTS
    assert [made.id for made in table.scan(990, 1_000)] == list(range(990, 1_001))
    assert table.scan(1_001, 10) == []
    assert 10 <= len(table.scan_back(1_000, 10)) <= 10 + PAGE_SLOTS
    assert [made.id for made in table.scan_back(11, 1_000)] == list(range(11, 0, -1))
    assert table.scan_back(-1, 10) == []


def test_a_page_that_is_nearly_empty_shrinks_to_its_jobs() -> None:
    table, jobs = JobTable(), [job(number) for number in range(3 * PAGE_SLOTS)]
    for made in jobs:
        table.add(made)
    for made in jobs[: PAGE_SLOTS - SPARSE_JOBS - 1]:
        table.remove(made)
    assert page_slots(table) == 3 * PAGE_SLOTS  # One job too many to shrink.
    table.remove(jobs[PAGE_SLOTS - SPARSE_JOBS - 1])
    assert page_slots(table) == 2 * PAGE_SLOTS + SPARSE_JOBS
    left = jobs[PAGE_SLOTS - SPARSE_JOBS : PAGE_SLOTS]
    assert [table.find(made.id) for made in left] == left
    assert table.find(0) is None


def test_a_page_is_removed_with_its_last_job() -> None:
    table, jobs = JobTable(), [job(number) for number in range(10 * PAGE_SLOTS)]
    for made in jobs:
        table.add(made)
    for made in jobs[:-1]:
        table.remove(made)
    assert table.scan(0, 10) == [jobs[-1]]
    assert page_slots(table) <= PAGE_SLOTS  # The newest page is still being filled.
    for number in range(10 * PAGE_SLOTS, 12 * PAGE_SLOTS):
        made = job(number)
        table.add(made)
        table.remove(made)
    assert page_slots(table) <= PAGE_SLOTS + SPARSE_JOBS


def test_one_old_job_on_each_page_takes_little_memory() -> None:
    table, jobs = JobTable(), [job(number) for number in range(100 * PAGE_SLOTS)]
    for made in jobs:
        table.add(made)
    for made in jobs:
        if made.id % PAGE_SLOTS:
            table.remove(made)
    assert table.count == 100
    assert page_slots(table) <= 99 * SPARSE_JOBS + PAGE_SLOTS
    assert [made.id for made in table.scan(0, 200)] == [n * PAGE_SLOTS for n in range(100)]


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 10**6)), max_size=300))
def test_a_number_set_iterates_its_numbers_in_order(steps: list[tuple[int, bool, int]]) -> None:
    numbers, there, newest = NumberSet(), [], 0
    for jump, remove, where in steps:
        newest += jump
        numbers.add(newest)
        there.append(newest)
        if remove:
            numbers.remove(there.pop(where % len(there)))
    for start in (0, newest // 2, newest + 1):
        number, walked = numbers.next_from(start), []
        while number >= 0:
            walked.append(number)
            number = numbers.next_from(number + 1)
        assert walked == [number for number in there if number >= start]


def test_a_number_set_frees_removed_numbers() -> None:
    numbers = NumberSet()
    for number in range(10_000):
        numbers.add(number)
    for number in range(1, 9_999):
        numbers.remove(number)
    assert sum(len(chunk) for chunk in numbers._chunks) == 2 and len(numbers._chunks) <= 2


@given(steps=STEPS, shards=st.integers(2, 5), examine=st.sampled_from([1, 300, 10**6]))
def test_the_shards_of_a_scan_are_disjoint_and_together_have_every_job(
    steps: list[tuple[int, int, int]], shards: int, examine: int
) -> None:
    table, there, number = JobTable(), {}, 0
    for jump, removals, where in steps:
        number += jump * 7  # Sparse enough that some blocks are missing.
        there[number] = job(number)
        table.add(there[number])
        for _ in range(min(removals, len(there))):
            table.remove(there.pop(list(there)[where % len(there)]))
    found: list[int] = []
    for shard in range(shards):
        start, part = 0, []
        while True:
            some, start = table.scan_shard(start, examine, shard, shards)
            part += [each.id for each in some]
            if not start:
                break
        assert part == sorted(part)
        found += part
    assert sorted(found) == sorted(there)


@pytest.mark.parametrize("shards", [1, 2, 8, 40])
def test_a_scan_in_shards_does_the_work_of_one_scan(shards: int) -> None:
    """A skipped block counts as one examined job, so the number of calls shows the work."""
    table, jobs, examine = JobTable(), 40 * BLOCK_SLOTS, 1_024
    for number in range(jobs):
        table.add(job(number))
    calls, found = 0, 0
    for shard in range(shards):
        start = 0
        while True:
            some, start = table.scan_shard(start, examine, shard, shards)
            calls, found = calls + 1, found + len(some)
            if not start:
                break
    assert found == jobs
    assert calls <= 1.2 * jobs / examine + shards
