"""Which jobs are alike: by a value their producer gave, by their bodies, or by a put seen lately.

`UniqueIndex` finds a present job of a value; most values have one job, and those that have more keep them in a bag.
`DedupWindow` remembers puts, also of jobs that are gone, for so long and so many: what it has forgotten can be put again,
and docs/GUARANTEES.md says so.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.job import Job


class UniqueIndex:
    """Jobs by value."""

    _one: dict[bytes, Job]
    _more: dict[bytes, list[Job]]  # Values of several jobs; extra.unique_pos is the index.

    def __init__(self) -> None:
        self._one = {}
        self._more = {}

    def __len__(self) -> int:
        return len(self._one) + sum(len(jobs) for jobs in self._more.values())

    def find(self, value: bytes, states: int) -> Job | None:
        """A job of this value in one of these states, a bit each."""
        one = self._one.get(value)
        if one is not None:
            return one if states >> one.state & 1 else None
        for job in self._more.get(value, []):
            if states >> job.state & 1:
                return job
        return None

    def add(self, value: bytes, job: Job) -> None:
        """Enter a job."""
        more = self._more.get(value)
        if more is None:
            one = self._one.get(value)
            if one is None:
                self._one[value] = job
                return
            del self._one[value]
            one.rare().unique_pos = 0
            more = [one]
            self._more[value] = more
        job.rare().unique_pos = len(more)
        more.append(job)

    def remove(self, value: bytes, job: Job) -> None:
        """Remove a job that was entered."""
        more = self._more.get(value)
        if more is None:
            assert self._one[value] is job
            del self._one[value]
            return
        last = more.pop()
        if last is not job:
            pos = job.rare().unique_pos
            more[pos] = last
            last.rare().unique_pos = pos
        if not more:
            del self._more[value]


class DedupWindow:
    """Puts by their dedup ids: the newest so many, of the last so long."""

    _jobs: dict[bytes, int]  # The id of the job that was put.
    _ring: list[bytes]  # In the order they were seen; empty where forgotten.
    _times: list[int]
    _start: int
    count_max: i64
    window_ms: i64

    def __init__(self, count_max: i64, window_ms: i64) -> None:
        self._jobs = {}
        self._ring = []
        self._times = []
        self._start = 0
        self.count_max = count_max
        self.window_ms = window_ms

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, dedup: bytes, now: i64) -> int:
        """The id of the job that was put under this dedup id, or -1."""
        self._forget(now)
        return self._jobs.get(dedup, -1)

    def add(self, dedup: bytes, job_id: i64, now: i64) -> None:
        """Remember a put."""
        self._jobs[dedup] = job_id
        self._ring.append(dedup)
        self._times.append(now)
        self._forget(now)

    def entries(self) -> list[tuple[bytes, int, int]]:
        """Everything remembered, oldest first: dedup id, job id, when."""
        return [
            (self._ring[i], self._jobs[self._ring[i]], self._times[i]) for i in range(self._start, len(self._ring))
        ]

    def _forget(self, now: i64) -> None:
        """Forget what is too old or too much: never more than was added since, so it costs no put more than one."""
        while self._start < len(self._ring) and (
            self._times[self._start] + self.window_ms <= now or len(self._ring) - self._start > self.count_max
        ):
            del self._jobs[self._ring[self._start]]
            self._start += 1
        if self._start > 64 and self._start * 2 > len(self._ring):
            self._ring = self._ring[self._start :]
            self._times = self._times[self._start :]
            self._start = 0
