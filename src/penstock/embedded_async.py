"""The embedded queue for asyncio: the same calls as `embedded.py`, awaited.

`async with penstock.open_async() as queue:`. Calls that need not wait run at once; those that wait suspend the task and
not the loop. Both faces may share a queue: `AsyncQueue.sync` is the other one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.core import states as s
from penstock.core.errors import Full
from penstock.core.limits import UNSET, duration_ms
from penstock.core.policy import TubePolicy
from penstock.core.waits import Waiting
from penstock.embedded import Job, Queue, Tube, as_jobs, open, take_now
from penstock.host import Host
from penstock.options import (
    Body,
    Duration,
    PutOptions,
    Seconds,
    StateName,
    TubeOptions,
    TubeType,
    draft,
    integer,
    to_bytes,
)


def open_async(path: str | os.PathLike[str] = ":memory:", *, grace: Seconds = 0) -> AsyncQueue:
    """Open a queue in this process, for asyncio."""
    return AsyncQueue(open(path, grace=grace))


class _Task:
    """A task in a wait."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def sleep(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            await self._event.wait()
        else:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._event.wait()
            except TimeoutError:
                pass
        self._event.clear()

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            # Its loop is closed: the task is gone, and whoever wakes it has other things to do.
            pass


async def _sleep_through(host: Host, wait: Waiting, sleeper: _Task) -> None:
    """Sleep until a wait is over."""
    try:
        while (timeout_ms := host.how_long(wait, sleeper)) is not None:
            await sleeper.sleep(timeout_ms)
    except BaseException:
        host.take_back(wait)
        raise
    finally:
        host.wake_up(sleeper)


class AsyncQueue:
    """A session on a queue, for asyncio."""

    def __init__(self, queue: Queue) -> None:
        self.sync = queue

    def session(self) -> AsyncQueue:
        """Another session on the same queue."""
        return AsyncQueue(self.sync.session())

    @property
    def token(self) -> str:
        """The session's name: whoever knows it may take the session over with `identify`."""
        return self.sync.token

    async def identify(self, token: str) -> None:
        """Take over the session of this token, with the jobs it holds."""
        self.sync.identify(token)

    async def tube(
        self, name: str | bytes, type: TubeType | TubePolicy | None = None, **options: Unpack[TubeOptions]
    ) -> AsyncTube:
        """The tube of this name, made if it is not there."""
        return AsyncTube(self, self.sync.tube(name, type, **options))

    async def tubes(self) -> list[str]:
        """The names of all tubes, in the order they were made."""
        return self.sync.tubes()

    async def stats(self) -> dict[str, dict[str, int]]:
        """For each tube, how many jobs are in each state."""
        return self.sync.stats()

    async def job(self, id: str) -> AsyncJob:
        """The job of this id, in either form."""
        return AsyncJob(self.sync.job(id))

    async def take(self, tubes: Iterable[AsyncTube], count: int = 1, timeout: Duration = 0) -> list[AsyncJob]:
        """Take up to `count` jobs from several tubes, one of each in turn; wait for the first up to `timeout`."""
        return await _take(self.sync, [tube.sync for tube in tubes], count, timeout, None, UNSET)

    async def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        """Ack all jobs of all claims of a consumer up to this number; tell how many jobs."""
        return self.sync.ack_claims(consumer, upto, token=token)

    async def close(self) -> None:
        """End this session: the jobs it has taken go back to their tubes."""
        self.sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTube:
    """One tube, as one session sees it, for asyncio."""

    def __init__(self, queue: AsyncQueue, tube: Tube) -> None:
        self._queue = queue
        self.sync = tube

    @property
    def name(self) -> str:
        """The tube's name."""
        return self.sync.name

    @property
    def type(self) -> str:
        """The type of the tube."""
        return self.sync.type

    @property
    def policy(self) -> TubePolicy:
        """What the tube promises."""
        return self.sync.policy

    def __repr__(self) -> str:
        return repr(self.sync)

    async def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> AsyncJob:
        """Add a job; wait for room up to `timeout` seconds (None: for ever)."""
        try:
            return AsyncJob(self.sync.put(body, **options))
        except Full:
            if timeout == 0:
                raise
        host, session = self.sync._host, self.sync._session
        sleeper = _Task()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.guard:
            wait = host.engine.wait_put(
                session.connection, self.sync._live(), draft(body, **options), host.now(), timeout_ms, sleeper
            )
            host.settle()
        await _sleep_through(host, wait, sleeper)
        if wait.job is None:
            with session.guard:
                raise Full(f"tube {self.name!r} was full for {timeout} seconds; take from it, or wait longer")
        return AsyncJob(Job(self.sync, wait.job))

    async def put_many(self, bodies: Iterable[Body], **options: Unpack[PutOptions]) -> list[AsyncJob]:
        """Add a job for each body, or none at all."""
        return [AsyncJob(job) for job in self.sync.put_many(bodies, **options)]

    async def take(
        self, timeout: Duration = 0, *, key: str | bytes | None = None, ttr: Duration | None = None
    ) -> AsyncJob | None:
        """Take the next job; wait for one up to `timeout` seconds (None: for ever). None if there was none."""
        jobs = await self.take_many(1, timeout, key=key, ttr=ttr)
        return jobs[0] if jobs else None

    async def take_many(
        self,
        count: int,
        timeout: Duration = 0,
        *,
        key: str | bytes | None = None,
        ttr: Duration | None = None,
    ) -> list[AsyncJob]:
        """Take up to `count` jobs; wait for the first up to `timeout` seconds (None: for ever)."""
        ttr_ms = UNSET if ttr is None else duration_ms(ttr, "ttr")
        raw_key = None if key is None else to_bytes(key, "a key")
        return await _take(self._queue.sync, [self.sync], count, timeout, raw_key, ttr_ms)

    async def __aiter__(self) -> AsyncIterator[AsyncJob]:
        """Take jobs for ever, waiting for each: `async for job in tube:`. Finish each one, best by `async with job:`."""
        while True:
            job = await self.take(timeout=None)
            if job is not None:
                yield job

    async def job(self, id: str) -> AsyncJob:
        """The job of this id, if it is in this tube."""
        return AsyncJob(self.sync.job(id))

    async def named(self, name: str | bytes) -> AsyncJob:
        """The job that was put under this name."""
        return AsyncJob(self.sync.named(name))

    async def jobs(self, state: StateName, limit: int = 1_000) -> list[AsyncJob]:
        """Up to `limit` jobs that are in a state, in the order they would be served."""
        return [AsyncJob(job) for job in self.sync.jobs(state, limit)]

    async def kick(self, count: int = 1, *, delay: Seconds = 0) -> int:
        """Dig up to `count` buried jobs up; tell how many there were."""
        return self.sync.kick(count, delay=delay)

    async def release_all(self) -> int:
        """Give every taken job back, whoever holds it; tell how many there were."""
        return self.sync.release_all()

    async def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        """Refuse puts, hold takes back, or both; `pause()` with neither resumes."""
        self.sync.pause(puts=puts, takes=takes)

    async def alter(self, **options: Unpack[TubeOptions]) -> None:
        """Change what the tube promises while it runs."""
        self.sync.alter(**options)

    async def truncate(self) -> int:
        """Remove every job, whatever its state; tell how many there were."""
        return self.sync.truncate()

    async def drop(self) -> None:
        """Remove the tube with its jobs; refused while jobs of it are taken or clients wait on it."""
        self.sync.drop()

    async def stats(self) -> dict[str, int]:
        """How many jobs are in each state now."""
        return self.sync.stats()

    async def events(self) -> dict[str, int]:
        """How often each thing happened to jobs of this tube."""
        return self.sync.events()

    async def transitions(self) -> dict[str, int]:
        """How often jobs of this tube went from one state to another, as "ready-taken"."""
        return self.sync.transitions()

    async def claim(
        self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0
    ) -> list[AsyncJob] | None:
        """Claim number n of a consumer: the same jobs on every call until it is acked; None if there is nothing."""
        jobs = self.sync.claim(consumer, number, count, lease=lease, token=token)
        return None if jobs is None else [AsyncJob(job) for job in jobs]


async def _take(
    queue: Queue, tubes: list[Tube], count: int, timeout: Duration, key: bytes | None, ttr_ms: int
) -> list[AsyncJob]:
    host, session = queue._host, queue._session
    timeout_ms = duration_ms(timeout, "timeout")
    number = integer(count, "count")
    with session.guard:
        cores = [tube._live() for tube in tubes]
        found = take_now(queue, tubes, number, key, ttr_ms)
        wait = None
        if not found and timeout_ms > 0:
            sleeper = _Task()
            wait = host.engine.wait(
                session.connection, cores, host.now(), timeout_ms, number, key, ttr_ms, sleeper
            )
            host.settle()
    if wait is not None:
        await _sleep_through(host, wait, sleeper)
        found = wait.jobs
        if not found:
            with session.guard:
                return []
    return [AsyncJob(job) for job in as_jobs(tubes, found)]


class AsyncJob:
    """A job of this queue, for asyncio. Its state and counters are live: they tell how it is now."""

    __slots__ = ("sync",)

    def __init__(self, job: Job) -> None:
        self.sync = job

    @property
    def id(self) -> str:
        """Its id: 40 characters, the same for ever."""
        return self.sync.id

    @property
    def tube(self) -> str:
        """The name of its tube."""
        return self.sync.tube

    @property
    def state(self) -> str:
        """What the job is now: ready, taken, delayed, buried, done, zombie or gone."""
        return self.sync.state

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        return self.sync.deliveries

    @property
    def nacks(self) -> int:
        """How often a taker said that it failed."""
        return self.sync.nacks

    @property
    def body(self) -> Any:
        """What was put."""
        return self.sync.body

    def __repr__(self) -> str:
        return repr(self.sync)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJob) and self.sync == other.sync

    def __hash__(self) -> int:
        return hash(self.sync)

    async def ack(self) -> None:
        """The work is done: the job goes, or is kept if its tube keeps acked jobs."""
        self.sync.ack()

    async def done(self, result: Body) -> None:
        """The work is done, and its result takes the place of the body until the job's ttl ends."""
        self.sync.done(result)

    async def release(
        self,
        delay: Seconds = 0,
        *,
        ttl: Duration | None = None,
        priority: int | None = None,
        key: str | bytes | None = None,
    ) -> None:
        """Give the job back unfinished: to its old place, or after `delay` seconds."""
        self.sync.release(delay, ttl=ttl, priority=priority, key=key)

    async def requeue(self) -> None:
        """Give the job back to behind all others."""
        self.sync.requeue()

    async def nack(self, reason: str = "") -> None:
        """Give the job back because it failed: its retry policy says what becomes of it."""
        self.sync.nack(reason)

    async def bury(self, reason: str = "") -> None:
        """Put the job aside until somebody kicks it, and say why."""
        self.sync.bury(reason)

    async def touch(self, seconds: Seconds | None = None) -> None:
        """Ask for more time: so many seconds more, or without a number a whole ttr from now."""
        self.sync.touch(seconds)

    async def dig(self, delay: Seconds = 0) -> None:
        """Dig the buried job up: to its old place, or after `delay` seconds."""
        self.sync.dig(delay)

    async def delete(self) -> None:
        """Remove the job, whatever its state and whoever holds it."""
        self.sync.delete()

    async def snatch(self, delay: Seconds = 0) -> None:
        """Take the job away from whoever holds it."""
        self.sync.snatch(delay)

    async def restart(self, delay: Seconds = 0) -> None:
        """Bring the job back that is delayed, or was acked and kept."""
        self.sync.restart(delay)

    async def switch(self, state: StateName, delay: Seconds = 0) -> None:
        """Turn the job, if it is not taken, into another state."""
        self.sync.switch(state, delay)

    async def move(self, tube: AsyncTube, delay: Seconds = 0) -> None:
        """Move the job to the end of another tube."""
        self.sync.move(tube.sync, delay)

    async def wait(self, timeout: Duration = None) -> bool:
        """Wait until the job ends; tell whether it was acked."""
        host, session = self.sync._tube._host, self.sync._tube._session
        sleeper = _Task()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.guard:
            wait = host.engine.wait_end(session.connection, self.sync._core, host.now(), timeout_ms, sleeper)
            host.settle()
        await _sleep_through(host, wait, sleeper)
        return wait.processed

    async def meta(self) -> dict[str, Any]:
        """Everything the queue knows about the job, times in seconds since 1970."""
        return self.sync.meta()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack when the work is done, nack when it raised; leave alone what was finished by hand."""
        if self.sync._core.state == s.TAKEN:
            self.sync.__exit__(kind, error, trace)
