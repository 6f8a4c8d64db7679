"""What the checkers share: how they compare, and how they name what they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.core import states as s
from penstock.core.job import Job

HEAP_CHILDREN: Final = 4


def same(invariant: str, what: str, maintained: object, rebuilt: object) -> None:
    """What the engine maintains must be what was rebuilt."""
    assert maintained == rebuilt, f"{invariant}: {what}: the engine has {maintained!r}, there should be {rebuilt!r}"


def same_jobs(invariant: str, what: str, maintained: Iterable[Job], rebuilt: Iterable[Job]) -> None:
    """The same, of jobs in no particular order, each as often."""
    same(invariant, what, sorted(job.id for job in maintained), sorted(job.id for job in rebuilt))


def same_job(invariant: str, what: str, maintained: Job | None, rebuilt: Job | None) -> None:
    """The same, of one job or none; or of another one with the same rank."""
    if maintained is None or rebuilt is None or rank(maintained) != rank(rebuilt):
        same(invariant, what, maintained and maintained.id, rebuilt and rebuilt.id)


def check_bag(what: str, items: Sequence[Job]) -> None:
    """E2: each job knows its place."""
    for index, job in enumerate(items):
        assert job.pos == index, f"E2: {what}: {shown(job)} is at {index} and says {job.pos}"


def check_heap(what: str, items: Sequence[Job]) -> None:
    """E2: each job knows its place, and none stands behind one that is served after it."""
    check_bag(what, items)
    for index in range(1, len(items)):
        parent = items[(index - 1) // HEAP_CHILDREN]
        # Two that were made on different nodes may have been made at the same moment.
        assert rank(parent) <= rank(items[index]), f"E2: {what}: {shown(items[index])} is out of order"


def in_state(jobs: Iterable[Job], state: int) -> list[Job]:
    """Those in a state."""
    return [job for job in jobs if job.state == state]


def least(jobs: Iterable[Job]) -> Job | None:
    """The one that is served first."""
    return min(jobs, key=rank, default=None)


def rank(job: Job) -> tuple[int, int]:
    """By what jobs are served."""
    return job.priority, job.order


def filled(slots: Sequence[object]) -> dict[int, object]:
    """Who is in which slot."""
    return {slot: there for slot, there in enumerate(slots) if there is not None}


def free(slots: Sequence[object]) -> list[int]:
    """Which slots nobody is in."""
    return [slot for slot, there in enumerate(slots) if there is None]


def shown(job: Job) -> str:
    """A job for people."""
    return f"job {job.id}, which is {s.STATE_NAMES[job.state]}"
