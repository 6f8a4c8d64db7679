"""A worker: takes jobs, runs their tasks, and reports how they end.

    queue -- take many --> attempts -- threads or asyncio tasks --> ends -- Settler: ack many --> queue

One event loop does everything except plain functions, which run in threads. The worker takes as many jobs ahead as it
finishes in about a tenth of a second, so that short tasks need few commands and long tasks do not wait in a worker
that is busy. Tasks run at most `concurrency` at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from penstock import api_async
from penstock.core.errors import Closed, PenstockError, UnknownTube
from penstock.tasks import message
from penstock.tasks.attempt import Attempt, Ending
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.execution import Execution
from penstock.tasks.middleware import Pipeline
from penstock.tasks.settling import Settler
from penstock.tasks.task import Producer
from penstock.tasks.threads import TaskThreads

_log = logging.getLogger("penstock.tasks")

# A worker holds this many jobs at most.
_AHEAD_MAX: Final = 1_000
# It takes as many jobs ahead as it finishes in this time.
_AHEAD_S: Final = 0.1
# The pause after a take that failed for a reason that does not pass quickly.
_FAILED_TAKE_S: Final = 1.0


class Worker:
    """A worker in the present event loop. `find_tubes` returns its tubes, and creates those that do not exist."""

    def __init__(
        self,
        queue: api_async.AsyncQueue,
        find_tubes: Callable[[api_async.AsyncQueue], Awaitable[list[api_async.AsyncTube]]],
        tasks: Mapping[str, TaskDeclaration[Any]],
        *,
        middleware: Pipeline,
        codec: message.Codec,
        producer: Producer,
        concurrency: int,
        drain_s: float,
    ) -> None:
        self._queue = queue
        self._find_tubes = find_tubes
        self._tasks = tasks
        self._execution = Execution(middleware, codec)
        self._concurrency = concurrency
        self._drain_s = drain_s
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._ready: deque[Attempt] = deque()  # Taken, but neither started nor passed to the threads.
        self._held = 0  # The number of attempts that are not settled.
        self._in_threads = 0
        self._in_tasks = 0
        self._running: set[Attempt] = set()  # Attempts of async functions that have started.
        self._ended: deque[Attempt] = deque()
        self._is_flush_due = False
        self._rate = 0.0  # Ends per second, smoothed.
        self._rate_at = self._loop.time()
        self._threads = TaskThreads(concurrency, self._run_in_thread)
        self._settler = Settler(queue, middleware, producer, self._after_settling)
        self._idle = asyncio.Event()
        self._idle.set()
        self.finished = 0  # The number of attempts that have ended since the start.

    def stop(self) -> None:
        """Take no more jobs, and end when the running tasks have ended or the drain time is over."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until `stop` is called."""
        tubes = await self._find_tubes(self._queue)
        fetching = asyncio.ensure_future(self._fetch(tubes))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([fetching, stopping], return_when=asyncio.FIRST_COMPLETED)
            if fetching.done():
                fetching.result()
        finally:
            stopping.cancel()
            fetching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await fetching
            await self._drain()

    # Taking

    async def _fetch(self, tubes: list[api_async.AsyncTube]) -> None:
        while True:
            room = self._limit() - self._held
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                jobs = await self._queue.take(tubes, room, timeout=None)
            except Closed:
                raise
            except UnknownTube:
                tubes = await self._find_tubes(self._queue)
                continue
            except PenstockError as error:
                # The client has logged that the server is lost, and tried to reach it.
                _log.warning("take failed: error=%r", str(error))
                await asyncio.sleep(_FAILED_TAKE_S)
                continue
            self.admit(jobs)

    def _limit(self) -> int:
        """Return how many jobs to hold."""
        ahead = int(self._rate * _AHEAD_S)
        return min(_AHEAD_MAX, self._concurrency + ahead) if ahead > self._concurrency else self._concurrency

    def admit(self, jobs: Iterable[api_async.AsyncJob]) -> None:
        """Start the tasks of jobs that were taken, or as many of them as may run."""
        for job in jobs:
            self._held += 1
            task = self._task_of(job)
            if task is None:
                continue
            self._ready.append(Attempt(job, task))
        self._idle.clear()
        self._start_ready()

    def _task_of(self, job: api_async.AsyncJob) -> TaskDeclaration[Any] | None:
        name = job.headers.get(message.TASK, "")
        task = self._tasks.get(name)
        if task is None:
            _log.warning("unknown task: task=%s job=%s", name, job.id)
        return task

    # Running

    def _start_ready(self) -> None:
        ready = self._ready
        while ready:
            attempt = ready[0]
            if attempt.task.is_async:
                if self._in_tasks + min(self._in_threads, self._concurrency) >= self._concurrency:
                    return
                self._start_task(ready.popleft())
            else:
                # Without async tasks, the number of threads is the limit, and threads fetch attempts by themselves.
                if self._in_tasks and self._in_tasks + self._in_threads >= self._concurrency:
                    return
                self._in_threads += 1
                self._threads.submit(ready.popleft())

    def _start_task(self, attempt: Attempt) -> None:
        self._in_tasks += 1
        self._running.add(attempt)
        attempt.started_at = self._loop.time()
        attempt.handle = self._loop.create_task(self._run_task(attempt))

    async def _run_task(self, attempt: Attempt) -> None:
        try:
            await self._execution.run_async(attempt)
        finally:
            self._in_tasks -= 1
            self._running.discard(attempt)
            self._ended.append(attempt)
            if not self._is_flush_due:
                self._is_flush_due = True
                self._loop.call_soon(self._flush)

    def _run_in_thread(self, attempt: Attempt) -> None:
        attempt.started_at = time.monotonic()
        self._execution.run(attempt)
        self._ended.append(attempt)
        # Two threads may both see False. Then the second flush finds nothing.
        if not self._is_flush_due:
            self._is_flush_due = True
            with contextlib.suppress(RuntimeError):  # The loop is closed: the worker has given up waiting.
                self._loop.call_soon_threadsafe(self._flush)

    # Settling

    def _flush(self) -> None:
        """Send all ends that have occurred."""
        # Before the loop, because a thread that appends now may not schedule another flush otherwise.
        self._is_flush_due = False
        ended: list[Attempt] = []
        while self._ended:
            attempt = self._ended.popleft()
            if not attempt.task.is_async:
                self._in_threads -= 1
            ended.append(attempt)
        if ended:
            self._count(len(ended))
            self._settler.send(ended)
            self._start_ready()

    def _count(self, ended: int) -> None:
        """Update the rate at which attempts end."""
        self.finished += ended
        now = self._loop.time()
        passed = max(now - self._rate_at, 0.000_1)
        weight = min(1.0, passed / _AHEAD_S)
        self._rate += (ended / passed - self._rate) * weight
        self._rate_at = now

    def _after_settling(self, attempts: list[Attempt]) -> None:
        self._held -= len(attempts)
        # Short tasks are taken many at a time: a take for each one that finishes would cost a command each.
        if self._held < max(self._concurrency, self._limit() // 2):
            self._room.set()
        if self._held == 0:
            self._idle.set()

    # Stopping

    async def _drain(self) -> None:
        """Wait until the running tasks have ended, for up to the drain time. Then release their jobs."""
        waiting = [*self._ready, *self._threads.withdraw()]
        self._ready.clear()
        for attempt in waiting:
            attempt.ending = Ending.RELEASE
        if waiting:
            self._settler.send(waiting)
        try:
            async with asyncio.timeout(self._drain_s):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("drain time is over: running=%d", self._held)
            for attempt in list(self._running):
                if attempt.handle is not None:
                    attempt.handle.cancel()
        self._threads.stop()
        await self._settler.flush()

    async def close(self) -> None:
        """End the session of this worker. Jobs that it still holds return to their tubes."""
        await self._queue.close()
