"""A worker: takes jobs, runs their tasks, and reports how they end.

    queue -- take many --> attempts -- Runner: threads, asyncio tasks --> ends -- Settler: ack many --> queue

The worker takes as many jobs ahead as it finishes in about a tenth of a second, so that short tasks need few commands
and long tasks do not wait in a worker that is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from penstock import api_async
from penstock.core.errors import Closed, CommandError, PenstockError, UnknownTube
from penstock.core.limits import NEVER, UNSET
from penstock.options import duration_ms
from penstock.tasks import message
from penstock.tasks.attempt import Attempt, Ending
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.execution import Execution
from penstock.tasks.middleware import Pipeline
from penstock.tasks.task import Producer
from penstock.tasks.workers.leases import Leases
from penstock.tasks.workers.parking import LOOK_S, park, return_parked
from penstock.tasks.workers.process_state import HEARTBEAT_S, ProcessState
from penstock.tasks.workers.runner import Runner
from penstock.tasks.workers.settling import Settler

_log = logging.getLogger("penstock.tasks")

# A worker holds this many jobs at most.
_AHEAD_MAX: Final = 1_000
# It takes as many jobs ahead as it finishes in this time.
_AHEAD_S: Final = 0.1
# The pause after a take that failed for a reason that does not pass quickly.
_FAILED_TAKE_S: Final = 1.0
# How long a worker waits for the ends of tasks that it has cancelled.
_CANCELLED_S: Final = 2.0


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
        state: ProcessState | None = None,
        schedule: Callable[[api_async.AsyncQueue], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._queue = queue
        self._schedule = schedule
        self._find_tubes = find_tubes
        self._tubes: list[api_async.AsyncTube] = []
        self._tasks = tasks
        self._concurrency = concurrency
        self._drain_s = drain_s
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._held: dict[str, Attempt] = {}  # The attempts that are not settled, by the id of the job.
        self._parking: set[asyncio.Task[None]] = set()
        self._rate = 0.0  # Ends per second, smoothed.
        self._rate_at = self._loop.time()
        self._runner = Runner(Execution(tasks, middleware, codec), concurrency, state, self._on_ended)
        self._settler = Settler(queue, middleware, producer, self._on_settled)
        self._leases = Leases(self._loop, self._ttr_s, self._on_lost)
        self._idle = asyncio.Event()
        self._idle.set()
        self.started = asyncio.Event()  # Set when the worker takes jobs.
        self.finished = 0  # The number of attempts that have ended since the start.

    @property
    def running(self) -> int:
        """The number of jobs that the worker holds."""
        return len(self._held)

    def stop(self) -> None:
        """Take no more jobs, and end when the running tasks have ended or the drain time is over."""
        self._stopping.set()

    async def close(self) -> None:
        """End the session of this worker. Jobs that it still holds return to their tubes."""
        await self._queue.close()

    async def run(self) -> None:
        """Run until `stop` is called."""
        parts = [asyncio.ensure_future(part) for part in self._parts()]
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([parts[0], stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._state is not None:
                self._state.set_ready(False)
            for part in (*parts[:2], stopping):
                part.cancel()
            ended = await asyncio.gather(*parts[:2], return_exceptions=True)
            await self._drain()
            for part in parts[2:]:
                part.cancel()
            await asyncio.gather(*parts[2:], return_exceptions=True)
            _log.info("worker stopped: finished=%d", self.finished)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        """Return the parts that run at the same time. The first two end when the worker stops, the others later."""
        return [self._fetch(), self._look_for_parked(), self._listen(), self._tick(), self._put_ticks()]

    async def _put_ticks(self) -> None:
        """Put the jobs of cron schedules."""
        await self.started.wait()
        if self._schedule is not None:
            await self._schedule(self._queue)

    # Taking

    async def _start(self) -> None:
        """Find the tubes. Wait for the server, if it does not answer."""
        self._tubes = await self._find_tubes(self._queue)
        if self._state is not None:
            self._state.begin(self._queue.token)
            self._state.set_ready(True)
        _log.info(
            "worker started: tubes=%s tasks=%d concurrency=%d",
            *(",".join(tube.name for tube in self._tubes), len(self._tasks), self._concurrency),
        )
        self.started.set()

    async def _fetch(self) -> None:
        await self._start()
        while True:
            room = self._limit() - len(self._held)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                jobs = await self._queue.take(self._tubes, room, timeout=None)
            except Closed:
                raise
            except PenstockError as error:
                # The client has logged it if the server is lost, and has tried to reach it for some time.
                _log.warning("take failed: error=%r", str(error))
                await asyncio.sleep(_FAILED_TAKE_S)
                if isinstance(error, UnknownTube):  # It was dropped.
                    self._tubes = await self._find_tubes(self._queue)
                continue
            self.admit(jobs)

    def _limit(self) -> int:
        """Return how many jobs to hold."""
        return min(_AHEAD_MAX, max(self._concurrency, int(self._rate * _AHEAD_S)))

    def admit(self, jobs: Iterable[api_async.AsyncJob]) -> None:
        """Run the tasks of jobs that this session holds."""
        attempts: list[Attempt] = []
        now = self._loop.time()
        for job in jobs:
            headers = job.headers
            task = self._tasks.get(headers[message.TASK]) if message.TASK in headers else self._only_task(job.tube)
            unknown = headers.get(message.TASK, "") if task is None else self._unknown_next(headers)
            if task is None or unknown:
                self._park(job, unknown)
                continue
            attempt = Attempt(job, task, now)
            attempt.make_link = self._leases.link
            self._held[job.id] = attempt
            attempts.append(attempt)
        if attempts:
            self._idle.clear()
            self._runner.submit(attempts)

    def _unknown_next(self, headers: Mapping[str, str]) -> str:
        """Return the task of the next step of a chain if this worker does not know it, and so cannot put it."""
        if message.NEXT not in headers:
            return ""
        name = message.next_tasks(headers)[0]
        return "" if name in self._tasks else name

    def _only_task(self, tube: str) -> TaskDeclaration[Any] | None:
        """Return the only task of a tube, for jobs that a client without tasks has put; None if it has several."""
        found = [task for task in self._tasks.values() if task.options.tube == tube]
        return found[0] if len(found) == 1 else None

    # Jobs of unknown tasks

    def _park(self, job: api_async.AsyncJob, task: str) -> None:
        parking = asyncio.ensure_future(self._quietly(park(self._queue, job, task)))
        self._parking.add(parking)
        parking.add_done_callback(self._parking.discard)

    async def _look_for_parked(self) -> None:
        await self.started.wait()
        while True:
            await self._quietly(self._return_parked())
            await asyncio.sleep(LOOK_S)

    async def _return_parked(self) -> None:
        returned = await return_parked(self._queue, [tube.name for tube in self._tubes], self._tasks)
        if returned:
            _log.info("parked jobs returned: jobs=%d", returned)

    async def _quietly(self, chore: Awaitable[None]) -> None:
        try:
            await chore
        except CommandError as error:
            _log.warning("jobs of unknown tasks not moved: error=%r", str(error))
        except PenstockError:
            pass  # The server is gone. The client logs this.

    # The ends of attempts

    def _on_ended(self, attempts: list[Attempt]) -> None:
        """Settle attempts, and measure the rate at which they end."""
        self.finished += len(attempts)
        now = self._loop.time()
        passed = max(now - self._rate_at, 0.000_1)
        self._rate += (len(attempts) / passed - self._rate) * min(1.0, passed / _AHEAD_S)
        self._rate_at = now
        self._settler.send(attempts)

    def _on_settled(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            self._held.pop(attempt.job.id, None)
        # Short tasks are taken many at a time: a take for each one that finishes would cost a command each.
        if len(self._held) < max(self._concurrency, self._limit() // 2):
            self._room.set()
        if not self._held:
            self._idle.set()

    def _on_lost(self, attempt: Attempt, why: str) -> None:
        """Stop the work on a job that this session no longer holds."""
        if attempt.ending == Ending.NONE:
            _log.warning("job lost: task=%s job=%s reason=%r", attempt.task.name, attempt.job.id, why)
            self._runner.end(attempt, Ending.LOST, why)

    async def _listen(self) -> None:
        """Stop the work on jobs that are cancelled or lost, as soon as the queue reports it."""
        await self.started.wait()
        after = 0
        while True:
            try:
                news = await self._queue.session_events(after, timeout=None)
            except Closed:
                return
            except PenstockError:
                await asyncio.sleep(_FAILED_TAKE_S)  # The client logs that the server is lost.
                after = 0
                continue
            after = news.after
            for each in news.events:
                attempt = self._held.get(each.job)
                if attempt is None:
                    continue
                if each.event == "cancelled":
                    self._runner.end(attempt, Ending.CANCELLED, each.reason)
                else:
                    self._on_lost(attempt, each.reason)

    def _ttr_s(self, attempt: Attempt) -> float | None:
        """Return the ttr of a job as far as it is known here: that of its task, or else of its tube."""
        if attempt.task.options.ttr is not None:
            ttr_ms = duration_ms(attempt.task.options.ttr, "ttr")
        else:
            tubes = (tube.policy.default_ttr_ms for tube in self._tubes if tube.name == attempt.job.tube)
            ttr_ms = next(tubes, UNSET)
        return None if ttr_ms in (UNSET, NEVER) else ttr_ms / 1_000

    async def _tick(self) -> None:
        """Write heartbeats. Release jobs that were taken ahead if the running tasks take longer than expected."""
        finished = -1
        while True:
            if self._state is not None:
                self._state.beat()
                self._state.set_token(self._queue.token)  # A session that has ended was replaced.
            if self.finished == finished and self._runner.has_waiting:
                self._release(self._runner.withdraw())
            finished = self.finished
            await asyncio.sleep(HEARTBEAT_S)

    # Stopping

    async def _drain(self) -> None:
        """Wait until the running tasks have ended, for up to the drain time. Then release their jobs."""
        self._release(self._runner.withdraw())
        try:
            async with asyncio.timeout(self._drain_s):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("drain time is over: running=%d", len(self._held))
            self._runner.end_all(Ending.RELEASE, "")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CANCELLED_S):
                    await self._idle.wait()
        self._runner.stop()
        await self._settler.flush()
        if self._parking:
            await asyncio.wait(self._parking)

    def _release(self, attempts: list[Attempt]) -> None:
        """Return jobs to their tubes whose tasks have not started."""
        for attempt in attempts:
            attempt.ending = Ending.RELEASE
        if attempts:
            self._settler.send(attempts)
