"""Handles: the job of a task as its producer sees it.

`Handle` is for synchronous code and `AsyncHandle` for asyncio. Both wait for the end of the job, and decode its result.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock import api, api_async
from penstock.core.errors import UnknownJob
from penstock.options import Duration, JobOutcome
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.failures import ResultExpired, TaskFailed

R = TypeVar("R")


class Handle(Generic[R]):
    """The job of a task, for synchronous code."""

    __slots__ = ("__weakref__", "_queue", "_task", "is_acked", "job")

    def __init__(self, queue: api.Queue, job: api.Job, task: TaskDeclaration[R] | None) -> None:
        self._queue = queue
        self.job = job
        self._task = task
        self.is_acked = False  # Set by a worker of this process, if the queue has no history.

    @property
    def id(self) -> str:
        """The id of the job. `app.handle(id)` returns a handle for it in another process."""
        return self.job.id

    def __repr__(self) -> str:
        return f"<penstock task {_name(self._task)} {self.id}>"

    def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job ends. The returned outcome is true if the task succeeded, and has a reason if it failed.

        Its field `outcome` is `timeout` if the job has not ended within `timeout` seconds; None waits without limit.
        """
        return _known(self.job.wait(timeout), self.is_acked)

    def result(self, timeout: Duration = None) -> R:
        """Wait until the task succeeds, and return its result.

        Raises TaskFailed if the job ended in another way, TimeoutError if it has not ended within `timeout` seconds,
        and ResultExpired if the result is no longer stored.
        """
        _check(self.wait(timeout))
        if _has_no_result(self._task):
            return _decode(self._task, None)
        try:
            job = self._queue.job(self.id)
            if job.state == "done":
                return _decode(self._task, job.body)
        except UnknownJob:
            pass
        return _decode_missing(self._task)

    def cancel(self) -> None:
        """End the job without a result. A task that runs is cancelled. Does nothing if the job has ended."""
        try:
            self.job.delete()
        except UnknownJob:
            pass


class AsyncHandle(Generic[R]):
    """The job of a task, for asyncio. Its methods are those of `Handle`."""

    __slots__ = ("__weakref__", "_queue", "_task", "is_acked", "job")

    def __init__(self, queue: api_async.AsyncQueue, job: api_async.AsyncJob, task: TaskDeclaration[R] | None) -> None:
        self._queue = queue
        self.job = job
        self._task = task
        self.is_acked = False  # Set by a worker of this process, if the queue has no history.

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.id

    def __repr__(self) -> str:
        return f"<penstock task {_name(self._task)} {self.id}>"

    async def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job ends. See `Handle.wait`."""
        return _known(await self.job.wait(timeout), self.is_acked)

    async def result(self, timeout: Duration = None) -> R:
        """Wait until the task succeeds, and return its result. See `Handle.result`."""
        _check(await self.wait(timeout))
        if _has_no_result(self._task):
            return _decode(self._task, None)
        try:
            job = await self._queue.job(self.id)
            if job.state == "done":
                return _decode(self._task, job.body)
        except UnknownJob:
            pass
        return _decode_missing(self._task)

    async def cancel(self) -> None:
        """End the job without a result. See `Handle.cancel`."""
        try:
            await self.job.delete()
        except UnknownJob:
            pass


def _name(task: TaskDeclaration[Any] | None) -> str:
    return "" if task is None else task.name


def _known(outcome: JobOutcome, is_acked: bool) -> JobOutcome:
    return JobOutcome("acked") if outcome.outcome == "gone" and is_acked else outcome


def _check(outcome: JobOutcome) -> None:
    """Raise an error unless the job was acked."""
    if outcome.outcome == "timeout":
        raise TimeoutError("the task has not ended yet")
    if not outcome:
        raise TaskFailed(outcome)


def _has_no_result(task: TaskDeclaration[Any] | None) -> bool:
    return task is not None and task.signature.returns_none


def _decode(task: TaskDeclaration[R] | None, stored: Any) -> R:
    return stored if task is None else task.decode_result(stored)


def _decode_missing(task: TaskDeclaration[R] | None) -> R:
    """Return the result of a job that is gone: None if the task can return None. Otherwise raise ResultExpired."""
    if task is not None and task.always_stores_result:
        raise ResultExpired()
    return _decode(task, None)
