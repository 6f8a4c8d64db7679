"""Containers of the jobs of one state: heaps for states that are served in order, bags for the others.

A job is in one state at a time, so all containers share `job.pos`. Heaps are ordered by (priority, order). A job that
is given back returns to its old place, which is usually not the end, so an append-only structure is wrong for every
type of tube. Rejected: heapq of tuples (four times slower at a million jobs, 100 bytes per entry, no removal), and a
dict as a fifo, whose `next(iter(d))` passes over all entries that were deleted before (87 µs at a million).
"""

from __future__ import annotations

import heapq

from mypy_extensions import i32

from penstock.core.deadlines import NOWHERE
from penstock.core.job import Job


class JobHeap:
    """A 4-ary indexed heap of jobs by (priority, order). The job with the least values is first."""

    def __init__(self) -> None:
        self.items: list[Job] = []

    def __len__(self) -> int:
        return len(self.items)

    def first(self) -> Job | None:
        """Return the job to take next, or None if the heap is empty."""
        items = self.items
        return items[0] if items else None

    def first_many(self, count: int) -> list[Job]:
        """Return up to `count` jobs in the order in which they would be taken. This examines about 4 * `count` jobs."""
        items = self.items
        found: list[Job] = []
        reached = [(items[0].priority, items[0].order, 0)] if items else []
        while reached and len(found) < count:
            _, _, pos = heapq.heappop(reached)
            found.append(items[pos])
            for child in range(4 * pos + 1, min(4 * pos + 5, len(items))):
                heapq.heappush(reached, (items[child].priority, items[child].order, child))
        return found

    def push(self, job: Job) -> None:
        pos: i32 = len(self.items)
        self.items.append(job)
        self._up(job, pos)

    def remove(self, job: Job) -> None:
        items = self.items
        pos = job.pos
        last = items.pop()
        job.pos = NOWHERE
        if last is not job:
            if pos > 0:
                parent = items[(pos - 1) >> 2]
                if last.priority < parent.priority or (last.priority == parent.priority and last.order < parent.order):
                    self._up(last, pos)
                    return
            self._down(last, pos)

    def _up(self, job: Job, start: i32) -> None:
        items = self.items
        pos = start
        priority = job.priority
        order = job.order
        while pos > 0:
            parent: i32 = (pos - 1) >> 2
            other = items[parent]
            if other.priority < priority or (other.priority == priority and other.order < order):
                break
            items[pos] = other
            other.pos = pos
            pos = parent
        items[pos] = job
        job.pos = pos

    def _down(self, job: Job, start: i32) -> None:
        items = self.items
        size: i32 = len(items)
        pos = start
        priority = job.priority
        order = job.order
        while True:
            child: i32 = (pos << 2) + 1
            if child >= size:
                break
            best = items[child]
            best_pos = child
            end = child + 4
            if end > size:
                end = size
            child += 1
            while child < end:
                other = items[child]
                if other.priority < best.priority or (other.priority == best.priority and other.order < best.order):
                    best = other
                    best_pos = child
                child += 1
            if priority < best.priority or (priority == best.priority and order < best.order):
                break
            items[pos] = best
            best.pos = pos
            pos = best_pos
        items[pos] = job
        job.pos = pos


class TakenBag:
    """Taken jobs in no particular order, except that doomed jobs come first.

    A job is doomed if it was deleted while a claim had it. A truncate in slices can skip these jobs without examining
    them.
    """

    def __init__(self) -> None:
        self.items: list[Job] = []
        self.doomed: i32 = 0  # Number of doomed jobs: those at the front, which are removed when their claims end.

    def __len__(self) -> int:
        return len(self.items)

    def push(self, job: Job) -> None:
        job.pos = len(self.items)
        self.items.append(job)

    def doom(self, job: Job) -> None:
        """Move a job to the doomed jobs, because it was deleted while a claim had it."""
        items = self.items
        other = items[self.doomed]
        items[job.pos] = other
        other.pos = job.pos
        items[self.doomed] = job
        job.pos = self.doomed
        self.doomed += 1

    def remove(self, job: Job) -> None:
        items = self.items
        pos = job.pos
        if pos < self.doomed:
            # Fill its place with the last doomed job, whose place then gets the last job of the bag.
            self.doomed -= 1
            other = items[self.doomed]
            items[pos] = other
            other.pos = pos
            pos = self.doomed
        job.pos = NOWHERE
        last = items.pop()
        if pos < len(items):
            items[pos] = last
            last.pos = pos


class JobBag:
    """Jobs in no particular order. When a job is removed, the last one takes its place."""

    def __init__(self) -> None:
        self.items: list[Job] = []

    def __len__(self) -> int:
        return len(self.items)

    def push(self, job: Job) -> None:
        job.pos = len(self.items)
        self.items.append(job)

    def remove(self, job: Job) -> None:
        items = self.items
        pos = job.pos
        job.pos = NOWHERE
        last = items.pop()
        if last is not job:
            items[pos] = last
            last.pos = pos
