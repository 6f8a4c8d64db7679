"""The buried jobs of a tube, grouped by the cause of their failure (`causes.py`), in slices."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.job import Job
from penstock.core.tube import Tube
from penstock.search.causes import cause_of

# A call examines this many buried jobs, and keeps this many causes. Jobs of further causes are counted together.
EXAMINED_MAX: Final = 100_000
CAUSES_MAX: Final = 1_000

# The cause is found in this many bytes of a reason.
_REASON_BYTES: Final = 2_000


class CauseGroup:
    """The buried jobs that failed with one cause."""

    def __init__(self, cause: str, first: Job) -> None:
        self.cause = cause
        self.jobs = 0
        self.example = first  # The oldest of these jobs. It can have ended meanwhile.
        self.oldest: i64 = first.created  # When the first of them was put.


class CauseGroups:
    """The buried jobs of a tube by cause."""

    def __init__(self, tube: Tube) -> None:
        self.buried = tube.count_in(s.BURIED)  # How many jobs were buried at the start.
        self.examined = 0
        self.others = 0  # Jobs whose causes were one too many.
        self._tube = tube
        self._jobs: list[Job] = tube.buried.items[:EXAMINED_MAX] + tube.spent.items[:EXAMINED_MAX]
        del self._jobs[EXAMINED_MAX:]
        self._at = 0
        self._groups: dict[str, CauseGroup] = {}
        self._causes: dict[bytes, str] = {}  # Causes of recent reasons. Most jobs of a tube have few different ones.

    def step(self, limit: int) -> bool:
        """Examine up to `limit` jobs. Return whether all were examined. Jobs that are no longer buried are left out."""
        end = min(self._at + limit, len(self._jobs))
        for at in range(self._at, end):
            job = self._jobs[at]
            if job.state == s.BURIED and job.tube == self._tube.slot and not self._tube.dropped:
                self._add(job)
        self._at = end
        return end >= len(self._jobs)

    def _add(self, job: Job) -> None:
        self.examined += 1
        reason = b"" if job.extra is None else job.extra.reason[:_REASON_BYTES]
        cause = self._causes.get(reason)
        if cause is None:
            if len(self._causes) >= CAUSES_MAX:
                self._causes.clear()
            cause = cause_of(reason.decode("utf-8", "backslashreplace"))
            self._causes[reason] = cause
        group = self._groups.get(cause)
        if group is None:
            if len(self._groups) >= CAUSES_MAX:
                self.others += 1
                return
            group = CauseGroup(cause, job)
            self._groups[cause] = group
        group.jobs += 1
        if job.created < group.oldest:
            group.oldest = job.created
            group.example = job

    def found(self) -> list[CauseGroup]:
        """Return the causes, first the one with the most jobs."""
        return sorted(self._groups.values(), key=_jobs, reverse=True)


def _jobs(group: CauseGroup) -> int:
    return group.jobs
