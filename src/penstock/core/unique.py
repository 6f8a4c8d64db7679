"""Which puts are alike: by their bodies, or by a put seen lately.

`BodyIndex` finds a ready or a delayed job of the same body; most bodies have one job, and those that have more keep
them in a bag, so a million jobs of one body cost no more than one. `DedupWindow` remembers puts, also of jobs that are
gone, for so long and so many: what it has forgotten can be put again, and docs/explanation/guarantees.md says so.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.job import Job
from penstock.core.labels import LabelBytes
from penstock.core.limits import DEDUP_MEMORY_BYTES, NEVER


class BodyIndex:
    """The jobs of one state by their bodies."""

    _one: dict[bytes, Job]
    _more: dict[bytes, list[Job]]  # Bodies of several jobs; extra.unique_pos is the index.

    def __init__(self) -> None:
        self._one = {}
        self._more = {}

    def __len__(self) -> int:
        return len(self._one) + sum(len(jobs) for jobs in self._more.values())

    def find(self, body: bytes) -> Job | None:
        """A job of this body."""
        more = self._more.get(body)
        return more[0] if more is not None else self._one.get(body)

    def add(self, body: bytes, job: Job) -> None:
        """Enter a job."""
        more = self._more.get(body)
        if more is None:
            one = self._one.get(body)
            if one is None:
                self._one[body] = job
                return
            del self._one[body]
            one.rare().unique_pos = 0
            more = [one]
            self._more[body] = more
        job.rare().unique_pos = len(more)
        more.append(job)

    def remove(self, body: bytes, job: Job) -> None:
        """Remove a job that was entered."""
        more = self._more.get(body)
        if more is None:
            assert self._one[body] is job
            del self._one[body]
            return
        last = more.pop()
        if last is not job:
            pos = job.rare().unique_pos
            more[pos] = last
            last.rare().unique_pos = pos
        if not more:
            del self._more[body]


class DedupWindow:
    """Puts by their dedup ids: the newest so many, of the last so long."""

    count_max: i64
    window_ms: i64
    _jobs: dict[bytes, tuple[int, int]]  # The job that was put: its id, and the ttl class that its long form shows.
    _ring: list[bytes]  # In the order they were seen.
    _times: list[int]
    _start: int  # Everything before this index is forgotten.
    _cut: int  # How many were cut off at the front of the ring, once they were forgotten.
    _labels: LabelBytes

    def __init__(self, count_max: i64, window_ms: i64, labels: LabelBytes | None = None) -> None:
        self._labels = LabelBytes() if labels is None else labels
        self.count_max = count_max
        self.window_ms = window_ms
        self._jobs = {}
        self._ring = []
        self._times = []
        self._start = 0
        self._cut = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, dedup: bytes, now: i64) -> int:
        """The id of the job that was put under this dedup id, or -1."""
        self.forget(now)
        seen = self._jobs.get(dedup)
        return -1 if seen is None else seen[0]

    def ttl_minutes(self, dedup: bytes) -> int:
        """The ttl class of the job that was put under this dedup id."""
        return self._jobs[dedup][1]

    def add(self, dedup: bytes, job_id: i64, ttl_minutes: i64, now: i64) -> None:
        """Remember a put."""
        self._jobs[dedup] = (job_id, ttl_minutes)
        self._ring.append(dedup)
        self._times.append(now)
        self._labels.total += DEDUP_MEMORY_BYTES + len(dedup)
        if len(self._ring) - self._start > self.count_max:
            self.forget(now)

    def entries(self) -> list[tuple[bytes, int, int]]:
        """Everything remembered, oldest first: dedup id, job id, when."""
        seen = range(self._start, len(self._ring))
        return [(self._ring[i], self._jobs[self._ring[i]][0], self._times[i]) for i in seen]

    def some(self, number: int, count: int) -> tuple[int, list[tuple[bytes, int, int, int]]]:
        """Up to so many from a number on, oldest first, and the number to go on with.

        Each is a dedup id, the job's id and ttl class, and when it was seen. Puts are numbered as they are remembered,
        so a walk sees each that is there throughout, whatever comes and goes.
        """
        first = max(number - self._cut, self._start)
        end = min(first + count, len(self._ring))
        ring = self._ring
        return self._cut + end, [(ring[i], *self._jobs[ring[i]], self._times[i]) for i in range(first, end)]

    def forget_all(self) -> None:
        """The tube goes."""
        self.count_max = 0
        self.forget(0)

    def forget(self, now: i64, most: i64 = NEVER) -> None:
        """Forget what is too old or too much. Each is forgotten once, so a put pays for one on average."""
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
