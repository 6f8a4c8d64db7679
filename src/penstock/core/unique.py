"""Detection of duplicate puts: by body, or by dedup id.

`BodyIndex` finds a ready or delayed job with the same body. Most bodies belong to one job. Several jobs with the same
body are kept in a list, and each stores its index, so that removing one of a million costs O(1). `DedupWindow` keeps
the dedup ids of recent puts, also of jobs that have ended. It is limited in time and number. An id that has left the
window can be put again: see docs/explanation/guarantees.md.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.job import Job, LabelBytes
from penstock.core.limits import DEDUP_MEMORY_BYTES, NEVER


class BodyIndex:
    """The jobs of one state by body."""

    single: dict[bytes, Job]  # Bodies of one job.
    several: dict[bytes, list[Job]]  # Bodies of several jobs. extra.unique_pos is the index.

    def __init__(self) -> None:
        self.single = {}
        self.several = {}

    def __len__(self) -> int:
        return len(self.single) + sum(len(jobs) for jobs in self.several.values())

    def find(self, body: bytes) -> Job | None:
        more = self.several.get(body)
        return more[0] if more is not None else self.single.get(body)

    def add(self, body: bytes, job: Job) -> None:
        more = self.several.get(body)
        if more is None:
            one = self.single.get(body)
            if one is None:
                self.single[body] = job
                return
            del self.single[body]
            one.ensure_extra().unique_pos = 0
            more = [one]
            self.several[body] = more
        job.ensure_extra().unique_pos = len(more)
        more.append(job)

    def remove(self, body: bytes, job: Job) -> None:
        more = self.several.get(body)
        if more is None:
            assert self.single[body] is job
            del self.single[body]
            return
        last = more.pop()
        if last is not job:
            pos = job.ensure_extra().unique_pos
            more[pos] = last
            last.ensure_extra().unique_pos = pos
        if not more:
            del self.several[body]


class DedupWindow:
    """Recent puts by dedup id: at most `count_max`, and none older than `window_ms`."""

    def __init__(self, count_max: i64, window_ms: i64, labels: LabelBytes | None = None) -> None:
        self._labels: LabelBytes = LabelBytes() if labels is None else labels
        self.count_max = count_max
        self.window_ms = window_ms
        self._jobs: dict[bytes, tuple[int, int]] = {}  # Id and ttl class of the job that was put.
        self._ring: list[bytes] = []  # Dedup ids in the order of the puts.
        self._times: list[int] = []
        self._start = 0  # Entries before this index have left the window.
        self._cut = 0  # Number of entries that were cut off at the front of the ring.

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, dedup: bytes, now: i64) -> int:
        """Return the id of the job that was put with this dedup id, or -1 if there is none in the window."""
        self.expire(now)
        seen = self._jobs.get(dedup)
        return -1 if seen is None else seen[0]

    def ttl_minutes(self, dedup: bytes) -> int:
        """Return the ttl class (see ids.py) of the job that was put with this dedup id."""
        return self._jobs[dedup][1]

    def add(self, dedup: bytes, job_id: i64, ttl_minutes: i64, now: i64) -> None:
        self._jobs[dedup] = (job_id, ttl_minutes)
        self._ring.append(dedup)
        self._times.append(now)
        self._labels.total += DEDUP_MEMORY_BYTES + len(dedup)
        if len(self._ring) - self._start > self.count_max:
            self.expire(now)

    def entries(self) -> list[tuple[bytes, int, int]]:
        """Return all puts in the window, oldest first: dedup id, job id, time."""
        seen = range(self._start, len(self._ring))
        return [(self._ring[i], self._jobs[self._ring[i]][0], self._times[i]) for i in seen]

    def some(self, number: int, count: int) -> tuple[int, list[tuple[bytes, int, int, int]]]:
        """Return up to `count` puts, starting at put `number`, oldest first, and the number of the next put.

        Each put is returned as its dedup id, the job's id and ttl class (see ids.py), and the time of the put. Puts are
        numbered in order. Repeated calls therefore return each put that stays in the window exactly once, even if other
        puts are added or removed.
        """
        first = max(number - self._cut, self._start)
        end = min(first + count, len(self._ring))
        ring = self._ring
        return self._cut + end, [(ring[i], *self._jobs[ring[i]], self._times[i]) for i in range(first, end)]

    def clear(self) -> None:
        """Remove all puts, because the tube is dropped."""
        self.count_max = 0
        self.expire(0)

    def expire(self, now: i64, most: i64 = NEVER) -> None:
        """Remove the puts that are too old or too many, at most `most` of them.

        Each is removed once, so the cost per put is O(1).
        """
        ring = self._ring
        end = min(len(ring), self._start + most)
        while self._start < end and (
            self._times[self._start] + self.window_ms <= now or len(ring) - self._start > self.count_max
        ):
            dedup = ring[self._start]
            del self._jobs[dedup]
            self._labels.total -= DEDUP_MEMORY_BYTES + len(dedup)
            self._start += 1
        if self._start > 64 and self._start * 2 > len(ring):
            self._ring = ring[self._start :]
            self._times = self._times[self._start :]
            self._cut += self._start
            self._start = 0
