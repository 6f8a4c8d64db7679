"""Handles: the job of a task as its producer sees it.

`Handle` is for synchronous code and `AsyncHandle` for asyncio. Both wait for the end of the job, and decode its result.
The handle of a chain is that of its first job. It goes on to the job of the next step when a step has succeeded.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Generic, TypeVar

from penstock import api, api_async
from penstock.core.errors import Finished, UnknownJob, UnknownTube
from penstock.options import Duration, JobOutcome, JobProgress, duration_ms
from penstock.tasks import message
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.failures import ResultExpired, TaskFailed
from penstock.tasks.progress import Progress
from penstock.tasks.steps import Steps

R = TypeVar("R")

# After these outcomes of a step, the next one can exist. A step that ended long ago is gone.
_MAY_CONTINUE: Final = ("acked", "gone")


class _Ended:
    """The outcome of a job, as far as a handle knows it."""

    __slots__ = ("__weakref__", "outcome")

    def __init__(self) -> None:
        self.outcome: JobOutcome | None = None  # How the job ended, if this is known.

    def _remember(self, outcome: JobOutcome) -> JobOutcome:
        """Return the outcome of a wait, and keep it if the job has ended.

        A queue in memory has no history. So if the job has ended before the wait, its outcome is only known if the
        worker of this process has set it.
        """
        if outcome.outcome == "gone" and self.outcome is not None:
            return self.outcome
        if outcome.outcome not in ("gone", "timeout", "buried", "dead-lettered"):  # A buried job can be kicked.
            self.outcome = outcome
        return outcome


class Handle(_Ended, Generic[R]):
    """The job of a task, for synchronous code."""

    __slots__ = ("_queue", "_reached", "_steps", "_task", "job")

    def __init__(
        self, queue: api.Queue, job: api.Job, task: TaskDeclaration[R] | None, steps: Steps | None = None
    ) -> None:
        super().__init__()
        self._queue = queue
        self.job = job
        self._steps = steps if steps is not None else Steps(job.id, 1, [task])
        self._task: TaskDeclaration[R] | None = self._steps.last_task
        self._reached = job  # The job of the step that a chain has reached.

    @property
    def follows_chain(self) -> bool:
        """Whether the handle goes on to the job of another step."""
        return not self._steps.is_last

    @property
    def id(self) -> str:
        """The id of the job. `app.handle(id)` returns a handle for it in another process."""
        return self.job.id

    def __repr__(self) -> str:
        return f"<penstock task {_name(self._task)} {self.id}>"

    def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job ends. The returned outcome is true if the task succeeded, and has a reason if it failed.

        Its field `outcome` is `timeout` if the job has not ended within `timeout` seconds; None waits without limit.
        For a chain, wait until its last step or a failed one has ended. The reason begins with the failed step.
        """
        if self.outcome is not None:
            return self.outcome
        left = _TimeLeft(timeout)
        while True:
            outcome = self._reached.wait(left.seconds)
            if outcome.outcome not in _MAY_CONTINUE or self._steps.is_last:
                return self._remember(self._steps.located(outcome))
            if not self._advance():
                return self._remember(JobOutcome("gone"))

    def _advance(self) -> bool:
        """Go to the job of the next step, or of a later one if it is gone. Return whether there is one."""
        for number, tube, name in self._steps.later_places():
            try:
                self._reached = self._queue.find_tube(tube).named(name)
            except (UnknownTube, UnknownJob):
                continue
            self._steps.advance(number)
            return True
        return False

    def result(self, timeout: Duration = None) -> R:
        """Wait until the task succeeds, and return its result.

        Raises TaskFailed if the job ended in another way, TimeoutError if it has not ended within `timeout` seconds,
        and ResultExpired if the result is no longer stored.
        """
        _check(self.wait(timeout))
        if _has_no_result(self._task):
            return _decode(self._task, None)
        try:
            job = self._queue.job(self._reached.id)
            if job.state == "done":
                return _decode(self._task, job.body)
        except UnknownJob:
            pass
        return _decode_missing(self._task)

    def stream(self, timeout: Duration = None) -> Iterator[Progress]:
        """Return an iterator over the reports of the task, in their order. It ends when the job ends.

        Raises TimeoutError if no report arrives within `timeout` seconds; None waits without limit.
        """
        while True:
            reader = _ReportReader()
            while not reader.ended:
                yield from reader.read(self._reached.watch(reader.after, timeout))
            if self._steps.is_last or not self._advance():
                return

    def cancel(self, reason: str = "") -> None:
        """End the job without a result. A task that runs is cancelled. Does nothing if the job has ended."""
        while True:
            try:
                self._reached.cancel(reason)
                return
            except (UnknownJob, Finished):
                if self._steps.is_last or not self._advance():
                    return


class AsyncHandle(_Ended, Generic[R]):
    """The job of a task, for asyncio. Its methods are those of `Handle`."""

    __slots__ = ("_queue", "_reached", "_steps", "_task", "job")

    def __init__(
        self,
        queue: api_async.AsyncQueue,
        job: api_async.AsyncJob,
        task: TaskDeclaration[R] | None,
        steps: Steps | None = None,
    ) -> None:
        super().__init__()
        self._queue = queue
        self.job = job
        self._steps = steps if steps is not None else Steps(job.id, 1, [task])
        self._task: TaskDeclaration[R] | None = self._steps.last_task
        self._reached = job  # The job of the step that a chain has reached.

    @property
    def follows_chain(self) -> bool:
        """Whether the handle goes on to the job of another step."""
        return not self._steps.is_last

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.id

    def __repr__(self) -> str:
        return f"<penstock task {_name(self._task)} {self.id}>"

    async def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job ends. See `Handle.wait`."""
        if self.outcome is not None:
            return self.outcome
        left = _TimeLeft(timeout)
        while True:
            outcome = await self._reached.wait(left.seconds)
            if outcome.outcome not in _MAY_CONTINUE or self._steps.is_last:
                return self._remember(self._steps.located(outcome))
            if not await self._advance():
                return self._remember(JobOutcome("gone"))

    async def _advance(self) -> bool:
        """Go to the job of the next step, or of a later one if it is gone. Return whether there is one."""
        for number, tube, name in self._steps.later_places():
            try:
                found = await (await self._queue.find_tube(tube)).named(name)
            except (UnknownTube, UnknownJob):
                continue
            self._reached = found
            self._steps.advance(number)
            return True
        return False

    async def result(self, timeout: Duration = None) -> R:
        """Wait until the task succeeds, and return its result. See `Handle.result`."""
        _check(await self.wait(timeout))
        if _has_no_result(self._task):
            return _decode(self._task, None)
        try:
            job = await self._queue.job(self._reached.id)
            if job.state == "done":
                return _decode(self._task, job.body)
        except UnknownJob:
            pass
        return _decode_missing(self._task)

    async def stream(self, timeout: Duration = None) -> AsyncIterator[Progress]:
        """Return an iterator over the reports of the task. See `Handle.stream`."""
        while True:
            reader = _ReportReader()
            while not reader.ended:
                for report in reader.read(await self._reached.watch(reader.after, timeout)):
                    yield report
            if self._steps.is_last or not await self._advance():
                return

    async def cancel(self, reason: str = "") -> None:
        """End the job without a result. See `Handle.cancel`."""
        while True:
            try:
                await self._reached.cancel(reason)
                return
            except (UnknownJob, Finished):
                if self._steps.is_last or not await self._advance():
                    return


class _TimeLeft:
    """The rest of a timeout that is used for several waits."""

    def __init__(self, timeout: Duration) -> None:
        self._until = None if timeout is None else time.monotonic() + duration_ms(timeout, "timeout") / 1_000

    @property
    def seconds(self) -> float | None:
        """The time that is left; None without limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


class _ReportReader:
    """Decodes the reports of a job, and skips those that a worker has sent twice because it lost its connection."""

    def __init__(self) -> None:
        self.after = 0  # The number of the last value that was read.
        self.ended = False
        self._last = (0, 0)  # The attempt and the number of the last report.

    def read(self, news: JobProgress) -> Iterator[Progress]:
        """Return the new reports. Raise TimeoutError if there is no news."""
        if not news.values and news.outcome is None:
            raise TimeoutError("the task has sent no report in time")
        self.after = news.after
        self.ended = news.outcome is not None
        for each in news.values:
            attempt, report = message.decode_report(each.value)
            place = (attempt, report.number)
            if attempt == 0 or place > self._last:
                self._last = max(self._last, place)
                yield report


def _name(task: TaskDeclaration[Any] | None) -> str:
    return "" if task is None else task.name


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
