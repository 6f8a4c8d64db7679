"""Signals: what a session is told about its taken jobs while a worker runs them.

There are two kinds. A job was *cancelled*: its consumer should stop, and the job ends with its delivery. A job was
*lost*: its ttr passed, or another client deleted or snatched it, so its consumer should stop, too.

A session waits for signals with a command (`waits.SignalWait`) and names the last number that it has seen. A cancelled
job is signalled until it leaves the session, so a repeated request returns it again. Lost jobs are kept in a list of
limited length, for a session that has asked for signals at least once. Signals are not in the log. After a restart,
the cancelled jobs of a session are signalled again, with greater numbers, because numbers begin at the present time.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from penstock.core.deadlines import Timed
from penstock.core.job import Job

# Kinds of signals.
CANCELLED: Final = 0
LOST: Final = 1
SIGNAL_NAMES: Final = ["cancelled", "lost"]

# The lost jobs that a session remembers. A session that does not read its signals must not use up memory.
LOST_MAX: Final = 1_024

# Numbers of signals begin at the time of the first one, times this.
_NUMBERS_PER_MS: Final = 1_024


class Signal:
    """One signal about a job."""

    def __init__(self, number: i64, kind: i64, job: Job, reason: bytes) -> None:
        self.number = number  # Increases with each signal of a session.
        self.kind = kind
        self.reason = reason  # Of the cancellation; the event by which a job was lost.
        # The job can end and its body must be freed, so the signal refers to an object with the parts of its id.
        self.job = Job(job.id, job.tube, b"", 0, job.created)
        self.job.ttl_minutes = i32(job.ttl_minutes)
        copy = job.copy()
        if copy is not None:
            self.job.ensure_extra().copy = copy


class Signals:
    """The signals of one session."""

    newest: i64  # Number of the newest signal.
    cancelled: dict[int, Signal]  # Of cancelled jobs that the session still holds, by job id, in the order of numbers.
    lost: list[Signal]  # Of the jobs that the session lost last, in the order of numbers.
    listens: bool  # The session has asked for signals.
    waits: dict[int, Timed]  # Waits for signals by number.

    def __init__(self) -> None:
        self.newest = 0
        self.cancelled = {}
        self.lost = []
        self.listens = False
        self.waits = {}

    def cancel(self, job: Job, reason: bytes, now: i64) -> None:
        """Add the signal that a job was cancelled."""
        self.cancelled[job.id] = Signal(self._next(now), CANCELLED, job, reason)

    def left(self, job: Job, lost_by: bytes, now: i64) -> None:
        """Remove the signal of a job that leaves the session. If `lost_by` is not empty, the session lost the job."""
        self.cancelled.pop(job.id, None)
        if lost_by and self.listens:
            self.lost.append(Signal(self._next(now), LOST, job, lost_by))
            if len(self.lost) > 2 * LOST_MAX:
                self.lost = self.lost[LOST_MAX:]

    def since(self, after: i64) -> list[Signal]:
        """Return all signals with a number greater than `after`, in order."""
        if self.newest <= after:
            return []
        found = [each for each in self.cancelled.values() if each.number > after]
        found += [each for each in self.lost[-LOST_MAX:] if each.number > after]
        found.sort(key=_number)
        return found

    def _next(self, now: i64) -> i64:
        number = now * _NUMBERS_PER_MS
        if number <= self.newest:
            number = self.newest + 1
        self.newest = number
        return number


def _number(signal: Signal) -> int:
    return signal.number
