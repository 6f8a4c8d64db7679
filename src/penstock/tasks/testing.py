"""Tests of programs with tasks, without a server: `with app.testing() as tasks:`.

Within the block, the app uses a queue in memory with a clock that the test advances. Puts only add jobs. `drain` runs
those that are due, and `drain(timedelta(days=3))` advances the clock and also runs retries and delayed jobs. With
`inline=True`, each put runs its task immediately.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from penstock import api, api_async
from penstock.core.errors import PenstockError
from penstock.options import Seconds, duration_ms
from penstock.tasks import message
from penstock.tasks.attempt import Attempt
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.execution import Execution
from penstock.tasks.message import Codec
from penstock.tasks.middleware import Pipeline
from penstock.tasks.task import Producer
from penstock.tasks.workers.leases import Leases
from penstock.tasks.workers.settling import Settler
from penstock.testing.clocked_queue import ClockedQueue

T = TypeVar("T")

_PAGE_JOBS: Final = 1_000


class NotDrained(PenstockError):
    """A task puts new jobs without end, so that `drain` would never return."""


class TestQueue:
    """The queue of an app during a test: what `app.testing()` returns."""

    __test__ = False  # pytest would collect it as a test.

    def __init__(
        self,
        tasks: Mapping[str, TaskDeclaration[Any]],
        producer: Producer,
        middleware: Pipeline,
        codec: Codec,
        swap: Callable[[TestQueue | None], None],
        inline: bool,
    ) -> None:
        self._tasks = tasks
        self._producer = producer
        self._middleware = middleware
        self._execution = Execution(tasks, middleware, codec)
        self._swap = swap
        self._inline = inline
        self._clocked = ClockedQueue()
        self._draining = False

    @property
    def queue(self) -> api.Queue:
        """The queue in memory."""
        return self._clocked.queue

    @property
    def async_queue(self) -> api_async.AsyncQueue:
        """The queue in memory, for asyncio."""
        return self._clocked.async_queue

    @property
    def now(self) -> datetime:
        """The time of the queue. It advances only in `drain`."""
        return datetime.fromtimestamp(self._clocked.clock.ms / 1_000, UTC)

    def jobs(self, task: TaskDeclaration[Any] | str | None = None) -> list[dict[str, Any]]:
        """Return the arguments of the jobs of a task, or of all tasks, that have not ended."""
        name = task.name if isinstance(task, TaskDeclaration) else task
        found: list[dict[str, Any]] = []
        cursor, begun = 0, False
        while cursor or not begun:
            begun = True
            jobs, cursor = self.queue.scan(cursor, states=("ready", "delayed", "taken"), count=_PAGE_JOBS)
            for job in jobs:
                if name is None or job.headers.get(message.TASK) == name:
                    found.append(message.split_body(job.body, job.headers)[0])
        return found

    def drain(self, advance: Seconds = 0, *, limit: int = 100_000) -> int:
        """Run all jobs that are due, and those that become due while the clock advances. Return the number of attempts.

        `advance` is a number of seconds or a timedelta. Raises NotDrained after `limit` attempts. In asyncio code,
        await `adrain` instead.
        """
        return _run(lambda: self.adrain(advance, limit=limit))

    async def adrain(self, advance: Seconds = 0, *, limit: int = 100_000) -> int:
        """Run all jobs that are due, and those that become due while the clock advances, for asyncio."""
        if self._draining:
            return 0  # A task that runs inline has put a job. The drain that runs it goes on with the new one.
        self._draining = True
        try:
            return await self._drain(self._clocked.clock.ms + duration_ms(advance, "advance"), limit)
        finally:
            self._draining = False

    async def _drain(self, until_ms: int, limit: int) -> int:
        attempts = 0
        while True:
            while jobs := await self._take():
                attempts += len(jobs)
                if attempts > limit:
                    raise NotDrained(f"more than {limit} attempts; pass a greater limit if this is intended")
                await self._run_jobs(jobs)
            due = self._clocked.next_deadline_ms
            if due is None or due > until_ms:
                self._clocked.advance_to(until_ms)
                if not (jobs := await self._take()):
                    return attempts
                attempts += len(jobs)
                await self._run_jobs(jobs)
            else:
                self._clocked.advance_to(due)

    async def _take(self) -> list[api_async.AsyncJob]:
        tubes = {task.options.tube for task in self._tasks.values()}
        names = [name for name in await self.async_queue.tubes() if name in tubes]
        if not names:
            return []
        return await self.async_queue.take([await self.async_queue.find_tube(name) for name in names], _PAGE_JOBS)

    async def _run_jobs(self, jobs: Iterable[api_async.AsyncJob]) -> None:
        leases = Leases(asyncio.get_running_loop(), lambda _: None, lambda *_: None)
        settler = Settler(self.async_queue, self._middleware, self._producer, lambda _: None)
        ended: list[Attempt] = []
        for job in jobs:
            task = self._tasks.get(job.headers.get(message.TASK, ""))
            if task is None:
                await job.bury(f"no task {job.headers.get(message.TASK, '')!r}")
                continue
            attempt = Attempt(job, task, 0.0)
            attempt.make_link = leases.link
            if task.is_async:
                await self._execution.run_async(attempt)
            else:
                self._execution.run(attempt)
            await asyncio.sleep(0)  # Reports are sent in the next turn of the event loop.
            ended.append(attempt)
        settler.send(ended)
        await settler.flush()

    def after_put(self) -> None:
        """Run the job that was put, if the tasks run inline. The app calls this."""
        if self._inline:
            self.drain()

    async def after_aput(self) -> None:
        """Run the job that was put, if the tasks run inline, for asyncio. The app calls this."""
        if self._inline:
            await self.adrain()

    def __enter__(self) -> Self:
        self._swap(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._swap(None)
        self.queue.close()


def _run(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop: here, or in another thread if an event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(start()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
