"""The context of a running task: what its function can ask for and report while it runs.

A function gets its context if its first parameter is annotated with `penstock.Context`. All methods are thread-safe
and return immediately. The worker sends their effects from its event loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.errors import PenstockError
from penstock.tasks import message
from penstock.tasks.progress import Progress


class LeaseLost(PenstockError):
    """The task no longer holds its job, because its ttr has passed or the job was cancelled; stop working on it."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The job of a running task."""

    id: str
    tube: str
    task: str  # The name of the task.
    attempt: int  # The number of this delivery. The first one is 1.
    headers: Mapping[str, str]

    @property
    def deliveries(self) -> int:
        """The number of deliveries of the job, which is that of the attempt."""
        return self.attempt

    @property
    def tags(self) -> list[str]:
        """The tags that the producer gave."""
        return message.tags_of(self.headers)


class PutCall(Protocol):
    """A call of a task, as `task.call(…)` returns it."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments by name."""


class TaskLink(Protocol):
    """The connection of a context with the worker that runs its task."""

    def heartbeat(self) -> None:
        """Renew the lease of the job."""

    def report(self, progress: Progress) -> None:
        """Send a report to the handles of the job. It also renews the lease."""


class Context:
    """The context of one attempt of a task."""

    __slots__ = ("_cancelled", "_link", "_reports", "job", "puts")

    def __init__(self, job: RunningJob, link: TaskLink) -> None:
        self.job = job
        self.puts: list[PutCall] = []  # The calls of `put`, which are put together with the ack of the job.
        self._link = link
        self._cancelled = False
        self._reports = itertools.count(1)

    @property
    def attempt(self) -> int:
        """The number of this attempt. The first one is 1."""
        return self.job.attempt

    @property
    def cancelled(self) -> bool:
        """Whether the task should stop: its job was cancelled or lost. An async task is cancelled as well."""
        return self._cancelled

    def cancel(self) -> None:
        """Set `cancelled`. The worker calls this."""
        self._cancelled = True

    def heartbeat(self) -> None:
        """Renew the lease of the job, so that it is not delivered again while the task works.

        A task that sends no heartbeat for as long as the `ttr` of its job loses the job. Raises LeaseLost if the task
        has lost it already.
        """
        if self._cancelled:
            raise LeaseLost()
        self._link.heartbeat()

    def progress(self, done: float, total: float | None = None, message: str = "", *, partial: Any = None) -> None:
        """Report progress to `handle.stream()`. This is a heartbeat, too.

        `partial` is a partial result of your own.
        """
        self.heartbeat()
        self._link.report(Progress(done, total, message, partial, next(self._reports)))

    def log(self, message: str) -> None:
        """Send a message to `handle.stream()`. This is a heartbeat, too."""
        self.heartbeat()
        self._link.report(Progress(message=message, number=next(self._reports)))

    def put(self, call: PutCall) -> None:
        """Put the job of a call when this task succeeds: `ctx.put(other.call(7))`.

        The queue acks the job of this task and puts the new ones in one commit, so a crash cannot separate them. If
        this attempt fails, nothing is put.
        """
        self.puts.append(call)
