"""Containers of the jobs of one state: heaps for states that are served in order, bags for the others.

A job is in one state at a time, so all containers share `job.pos`. Heaps are ordered by (priority, order). A job that
is given back returns to its old place, which is usually not the end, so an append-only structure is wrong for every
type of tube. Rejected: heapq of tuples (four times slower at a million jobs, 100 bytes per entry, no removal), and a
dict as a fifo, whose `next(iter(d))` passes over all entries that were deleted before (87 µs at a million).
"""

from __future__ import annotations

import heapq
from typing import Final

from librt.vecs import vec
from mypy_extensions import i32, i64

from penstock.core.deadlines import NOWHERE
from penstock.core.job import Job
from penstock.core.limits import NEVER

# Limits of ReadyTimes.
GROUPS_MAX: Final = 1_024
_GROUPS_MIN: Final = 8

# Neighbours are merged if their interval is at most this part of its age. The part is doubled as often as necessary.
_FINEST_PART: Final = 128

# Neighbours are also merged if their interval is at most this long, in ms.
_SHORT_MS: Final = 10


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


class ReadyTimes:
    """The times at which the ready jobs of a tube without keys became ready, in limited memory.

    Ready jobs are served by priority and order, so the first one is often not the one that has been ready for the
    longest time: a released job returns to its old place, and an urgent job overtakes all others. This class counts the
    ready jobs by the time at which they became ready. Time never decreases, so a new time is always the last one.

    A *group* counts the jobs that became ready in one interval. At first, each time has a group of its own. When there
    are GROUPS_MAX groups, two neighbours are merged if their common interval is short compared with its age. The oldest
    time is therefore exact for up to three quarters of GROUPS_MAX different times. With more times, it can be up to
    10 ms too early, or 3 % of the age if the jobs became ready within a day. Rejected: a second heap by time, which
    makes each take a third slower.
    """

    _starts: vec[i64]  # The first time of each group, in ascending order. A group ends where the next one starts.
    _counts: vec[i64]  # The number of jobs in each group.
    _begin: i64  # Index of the oldest group. It is not empty.
    _end: i64  # Index after the newest group.

    def __init__(self) -> None:
        self._starts = vec[i64]()
        self._counts = vec[i64]()
        self._begin = 0
        self._end = 0

    def oldest(self) -> i64:
        """Return the time at which the oldest ready job became ready, or NEVER if there is none."""
        return self._starts[self._begin] if self._begin < self._end else NEVER

    def groups(self) -> list[tuple[int, int]]:
        """Return the start of each group and its number of jobs. A group ends where the next one starts."""
        return [(self._starts[i], self._counts[i]) for i in range(self._begin, self._end)]

    def is_exact(self) -> bool:
        """Return whether `oldest` is exact, because no groups of times were merged so far."""
        return len(self._starts) < GROUPS_MAX

    def add(self, time: i64) -> None:
        """Add a job that became ready at `time`, which is not less than the times added before."""
        last = self._end - 1
        if last >= self._begin and self._starts[last] == time:
            self._counts[last] = self._counts[last] + 1
            return
        if self._end == len(self._starts):
            self._make_room(time)
        end = self._end
        self._starts[end] = time
        self._counts[end] = 1
        self._end = end + 1

    def remove(self, time: i64) -> None:
        """Remove a job that became ready at `time`."""
        begin = self._begin
        end = self._end
        low = begin
        if begin + 1 < end and time >= self._starts[begin + 1]:
            # Find the last group that does not start after `time`.
            high = end
            while high - low > 1:
                middle = (low + high) >> 1
                if self._starts[middle] <= time:
                    low = middle
                else:
                    high = middle
        self._counts[low] = self._counts[low] - 1
        while begin < end and self._counts[begin] == 0:
            begin += 1
        if begin == end:
            begin = 0
            self._end = 0
        self._begin = begin

    def _make_room(self, now: i64) -> None:
        """Remove empty groups. If less than a quarter of the space is free then, merge groups or enlarge the arrays."""
        self._merge(now, 0)
        part: i64 = _FINEST_PART
        while self._end > GROUPS_MAX * 3 // 4:
            self._merge(now, part)
            part >>= 1
        size: i64 = len(self._starts)
        if self._end * 4 >= size * 3 and size < GROUPS_MAX:
            size = size * 2 if size > 0 else _GROUPS_MIN
            starts = vec[i64]([0] * size)
            counts = vec[i64]([0] * size)
            for i in range(self._end):
                starts[i] = self._starts[i]
                counts[i] = self._counts[i]
            self._starts = starts
            self._counts = counts

    def _merge(self, now: i64, part: i64) -> None:
        """Move all groups to the front without the empty ones.

        If `part` is not 0, merge two neighbours if their common interval is at most _SHORT_MS, or at most 1/`part` of
        the time since the later group started.
        """
        starts = self._starts
        counts = self._counts
        kept: i64 = 0
        for i in range(self._begin, self._end):
            if counts[i] == 0:
                continue
            behind = starts[i + 1] if i + 1 < self._end else now
            if part > 0 and kept > 0:
                length = behind - starts[kept - 1]
                if length <= _SHORT_MS or length * part <= now - starts[i]:
                    counts[kept - 1] = counts[kept - 1] + counts[i]
                    continue
            starts[kept] = starts[i]
            counts[kept] = counts[i]
            kept += 1
        self._begin = 0
        self._end = kept
