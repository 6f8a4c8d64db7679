"""Progress: the last values that the consumer of a job reported, for clients that watch the job.

Values are only in memory: a value is out of date when the next one is reported, and a row of the log per value would
cost more than the work of many jobs. The values of a job have consecutive numbers, so a client that watches a job
names the last number that it has, and gets the following ones in order, also over another connection. A gap means that
values were dropped. Numbers begin at a value that contains the epoch, so they increase over restarts.

The values of a job that has ended are kept for a minute, together with its outcome, so that a client which reads them
one reply at a time gets the last ones, too.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.deadlines import Timed
from penstock.core.job import Job

# The values of a job that are kept: at most this many, with at most this many bytes. The newest one is always kept.
VALUES_MAX: Final = 256
JOB_BYTES_MAX: Final = 256 * 1024
# The length of one value.
VALUE_BYTES_MAX: Final = 64 * 1024
# The memory of all values. If there are more, those of the jobs whose last report is oldest are dropped.
TOTAL_BYTES_MAX: Final = 16 * 1024 * 1024
# How long the values and the outcome of a job that has ended are kept, ms.
REMEMBERED_MS: Final = 60_000

# The memory of a value without its bytes, and of a job with values.
_VALUE_MEMORY_BYTES: Final = 150
_JOB_MEMORY_BYTES: Final = 500
# Numbers of values contain the epoch in the bits from this one on.
_EPOCH_BIT: Final = 40


class ProgressValue:
    """One reported value."""

    def __init__(self, number: i64, value: bytes, kind: int) -> None:
        self.number = number
        self.value = value
        self.kind = kind  # The kind of the value, one of the kinds of bodies.


class JobProgress(Timed):
    """The progress of one job. Its deadline is set when the job has ended: then the object is removed."""

    def __init__(self, job_id: i64, tube: bytes, newest: i64) -> None:
        super().__init__()
        self.job_id = job_id
        self.tube = tube  # Name of the tube in which the job was when the last value was reported.
        self.newest = newest  # Number of the newest value.
        self.values: list[ProgressValue] = []
        self.used: i64 = _JOB_MEMORY_BYTES
        self.end: i64 = 0  # How the job ended: one of the constants END_… of waits.py.
        self.reason = b""

    def since(self, after: i64) -> list[ProgressValue]:
        """Return the kept values with numbers greater than `after`, in order."""
        if self.newest <= after:
            return []
        first = self.newest - len(self.values)
        return self.values[max(0, after - first) :]


class ProgressBoard:
    """The progress of all jobs of a node that have reported any."""

    by_job: dict[int, JobProgress]  # By job id. The job whose last report is oldest comes first.
    used: i64  # Memory of all values.

    def __init__(self) -> None:
        self.by_job = {}
        self.used = 0

    def add(self, job: Job, tube: bytes, value: bytes, kind: int, epoch: i64) -> JobProgress:
        """Add a value, and drop values that exceed the limits."""
        progress = self.by_job.pop(job.id, None)
        if progress is None:
            progress = JobProgress(job.id, tube, epoch << _EPOCH_BIT)
            self.used += progress.used
        self.by_job[job.id] = progress
        progress.tube = tube
        progress.end = 0
        progress.newest += 1
        progress.values.append(ProgressValue(progress.newest, value, kind))
        self._count(progress, len(value) + _VALUE_MEMORY_BYTES)
        while len(progress.values) > VALUES_MAX or (progress.used > JOB_BYTES_MAX and len(progress.values) > 1):
            self._count(progress, -(len(progress.values.pop(0).value) + _VALUE_MEMORY_BYTES))
        return progress

    def oldest_surplus(self) -> JobProgress | None:
        """Return the progress to remove next, because all values together use too much memory; None if they do not."""
        if self.used <= TOTAL_BYTES_MAX or len(self.by_job) < 2:
            return None
        return next(iter(self.by_job.values()))

    def remove(self, progress: JobProgress) -> None:
        """Remove the progress of a job."""
        if self.by_job.pop(progress.job_id, None) is not None:
            self.used -= progress.used

    def _count(self, progress: JobProgress, more: i64) -> None:
        progress.used += more
        self.used += more
