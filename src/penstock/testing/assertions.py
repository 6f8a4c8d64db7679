"""Comparisons that the checkers share, and the text of their failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.core import states as s
from penstock.core.job import Job

HEAP_CHILDREN: Final = 4


def same(invariant: str, what: str, maintained: object, rebuilt: object) -> None:
    """Assert that `maintained`, a value of the engine, equals `rebuilt`, the value computed from the jobs."""
    assert maintained == rebuilt, f"{invariant}: {what}: the engine has {maintained!r}, there should be {rebuilt!r}"


def same_jobs(invariant: str, what: str, maintained: Iterable[Job], rebuilt: Iterable[Job]) -> None:
    """Assert that two collections contain the same jobs, in any order."""
    same(invariant, what, sorted(job.id for job in maintained), sorted(job.id for job in rebuilt))


def same_job(invariant: str, what: str, maintained: Job | None, rebuilt: Job | None) -> None:
    """Assert that both arguments are None, or that both are jobs with the same rank."""
    if maintained is None or rebuilt is None or rank(maintained) != rank(rebuilt):
        same(invariant, what, maintained and maintained.id, rebuilt and rebuilt.id)


def check_bag(what: str, items: Sequence[Job]) -> None:
    """Check invariant E2 of invariants.py for an unordered list: each job's stored index is right."""
    for index, job in enumerate(items):
        assert job.pos == index, f"E2: {what}: {shown(job)} is at {index} and says {job.pos}"


def check_heap(what: str, items: Sequence[Job]) -> None:
    """Check invariant E2 of invariants.py for a heap: each job's stored index is right, and the heap is in order."""
    check_bag(what, items)
    for index in range(1, len(items)):
        parent = items[(index - 1) // HEAP_CHILDREN]
        # Jobs that were made on different nodes may have the same creation time.
        assert rank(parent) <= rank(items[index]), f"E2: {what}: {shown(items[index])} is out of order"


def in_state(jobs: Iterable[Job], state: int) -> list[Job]:
    return [job for job in jobs if job.state == state]


def least(jobs: Iterable[Job]) -> Job | None:
    return min(jobs, key=rank, default=None)


def rank(job: Job) -> tuple[int, int]:
    """Return the key by which jobs are sorted: priority, then `job.order`."""
    return job.priority, job.order


def filled(slots: Sequence[object]) -> dict[int, object]:
    return {slot: there for slot, there in enumerate(slots) if there is not None}


def free(slots: Sequence[object]) -> list[int]:
    return [slot for slot, there in enumerate(slots) if there is None]


def shown(job: Job) -> str:
    return f"job {job.id}, which is {s.STATE_NAMES[job.state]}"
