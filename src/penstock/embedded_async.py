"""The embedded queue for asyncio: the same calls as `embedded.py`, awaited.

`async with penstock.open_async() as queue:`. Calls that need not wait run at once; those that wait suspend the task and
not the loop. Both faces may share a queue: `AsyncQueue.sync` is the other one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from types import EllipsisType, TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, TypeVar, Unpack

from penstock.changes import Change
from penstock.core import staging
from penstock.core.engine import Engine
from penstock.core.errors import Full
from penstock.core.limits import BODY_BYTES_MAX, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.waits import Waiting
from penstock.embedded import (
    Closing,
    Job,
    Queue,
    Stage,
    Tube,
    as_jobs,
    open,
    outcome_of,
    stage_names,
    take_now,
    time_left,
)
from penstock.host.handed import Handed
from penstock.host.host import Host
from penstock.journal.reader import Event
from penstock.journal.retention import HISTORY_BYTES, HISTORY_MS
from penstock.options import (
    PUT_KEYWORDS,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    NewJob,
    PutOptions,
    Seconds,
    StateName,
    TubeOptions,
    TubeType,
    check_keywords,
    check_tubes,
    duration_ms,
    integer,
    to_bytes,
)


def open_async(
    path: str | os.PathLike[str] = ":memory:",
    *,
    fsync: Literal["always", "everysec", "never"] = "always",
    grace: Seconds = 0,
    max_body: int = BODY_BYTES_MAX,
    memory_limit: int | None = None,
    history: Duration = HISTORY_MS // 1_000,
    history_bytes: int | None = HISTORY_BYTES,
    history_bodies: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> AsyncQueue:
    """Open a queue in this process, for asyncio: see `open`."""
    return AsyncQueue(
        open(
            path,
            fsync=fsync,
            grace=grace,
            max_body=max_body,
            memory_limit=memory_limit,
            history=history,
            history_bytes=history_bytes,
            history_bodies=history_bodies,
            progress=progress,
        )
    )


# How many events are read at a time.
_EVENTS_TOGETHER: Final = 1_000

P = ParamSpec("P")
T = TypeVar("T")


async def _call(host: Host, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call of the other face, and return when what it did, or its refusal rests on, is durable."""
    try:
        return function(*args, **kwargs)
    finally:
        await host.until_durable()


class _Task:
    """A task in a wait. It keeps no time: its loop may be busy with something else."""

    __slots__ = ("_event", "_loop")

    keeps_time = False

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
    """Sleep until a wait is over, and what ended it is durable."""
    try:
        while (timeout_ms := host.how_long(wait, sleeper)) is not None:
            await sleeper.sleep(timeout_ms)
        await host.until_durable()
    except BaseException:
        host.take_back(wait)
        raise
    finally:
        host.wake_up(sleeper)


class AsyncQueue:
    """A session on a queue, for asyncio."""

    def __init__(self, queue: Queue) -> None:
        self.sync = queue
        self._quick = Queue(queue._session.for_tasks(), queue)
        self._host = queue._host

    async def session(self) -> AsyncQueue:
        """Another session on the same queue: a consumer with jobs of its own. Close it to give them back."""
        return AsyncQueue(self.sync.session())

    @property
    def token(self) -> str:
        """The session's name: whoever knows it may take the session over with `identify`."""
        return self.sync.token

    async def identify(self, token: str | None = None, *, grace: Seconds | None = None) -> None:
        """Take over the session of this token, with the jobs it holds; None: stay in this one, with another grace."""
        await _call(self._host, lambda: self._quick.identify(token, grace=grace))

    async def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        alter: bool = False,
        **options: Unpack[TubeOptions],
    ) -> AsyncTube:
        """The tube of this name, made if it is not there; with `alter`, one that exists gets the given options."""
        tube = await _call(self._host, lambda: self._quick.tube(name, type, alter=alter, **options))
        return AsyncTube(self, tube)

    async def find_tube(self, name: str | bytes) -> AsyncTube:
        """The tube of this name, if it is there; it is not made."""
        return AsyncTube(self, await _call(self._host, self._quick.find_tube, name))

    async def tubes(self) -> list[str]:
        """The names of all tubes, in the order they were made."""
        return await _call(self._host, self._quick.tubes)

    async def stats(self) -> dict[str, dict[str, int]]:
        """For each tube, how many jobs are in each state."""
        return await _call(self._host, self._quick.stats)

    async def overview(self) -> list[dict[str, Any]]:
        """Every tube as its `info` tells it, in the order they were made."""
        return await _call(self._host, self._quick.overview)

    async def scan(
        self, cursor: int = 0, *, tube: AsyncTube | None = None, states: Iterable[StateName] = (), count: int = 1_000
    ) -> tuple[list[AsyncJob], int]:
        """About `count` jobs from a cursor on, and the cursor to go on from; 0 begins, and 0 is the end."""
        place = None if tube is None else check_tubes([tube], AsyncTube)[0]._tube
        jobs, following = await _call(self._host, self._quick.scan, cursor, tube=place, states=states, count=count)
        return [AsyncJob(job) for job in jobs], following

    async def job(self, id: str) -> AsyncJob:
        """The job of this id, in either form, or of a number within a tube: `emails#7`."""
        return AsyncJob(await _call(self._host, self._quick.job, id))

    async def take(self, tubes: Iterable[AsyncTube], count: int = 1, timeout: Duration = 0) -> list[AsyncJob]:
        """Take up to `count` jobs from several tubes, one of each in turn; wait for the first up to `timeout`."""
        places = [tube._tube for tube in check_tubes(tubes, AsyncTube)]
        for tube in places:
            tube._check_host(self._host)
        return await _take(self._quick, places, count, timeout, None, UNSET)

    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back, from a thread of its own, on every change of every job; call what this returns to end it."""
        return self._quick.subscribe(callback)

    async def events(self, start: int = 1) -> AsyncIterator[Event]:
        """Everything that happened in this queue from a position on, as far as it is durable. It needs a directory."""
        return _read_on(self._quick.events(start))

    async def history(self, id: str) -> list[Event]:
        """What happened to the job of this id, whether it is there or gone, as far as it is kept and durable."""
        return await asyncio.get_running_loop().run_in_executor(None, self.sync.history, id)

    async def checkpoint(self) -> None:
        """Take a snapshot now and remove history that is not to be kept, instead of when it is due by itself."""
        await asyncio.get_running_loop().run_in_executor(None, self.sync.checkpoint)

    async def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        """Ack all jobs of all claims of a consumer up to this number; tell how many jobs."""
        return await _call(self._host, lambda: self._quick.ack_claims(consumer, upto, token=token))

    async def read_claim(self, consumer: str, number: int, shard: tuple[int, int] = (0, 1)) -> list[AsyncJob]:
        """The jobs of a claim as it was given out; of shard `(i, n)`, every n-th of them from the i-th on."""
        return [AsyncJob(job) for job in await _call(self._host, self._quick.read_claim, consumer, number, shard)]

    async def renew_claims(self, consumer: str, *, lease: Seconds | None = None, token: int = 0) -> int:
        """Let the leases of all claims of a consumer begin anew, as long as the last one if it is not said."""
        return await _call(self._host, lambda: self._quick.renew_claims(consumer, lease=lease, token=token))

    async def release_claims(self, consumer: str, *, token: int = 0) -> int:
        """End all claims of a consumer, whose jobs go back to their tubes; tell how many claims."""
        return await _call(self._host, lambda: self._quick.release_claims(consumer, token=token))

    async def claim_info(self, consumer: str) -> ClaimInfo:
        """How far a consumer is: the last number it acked, its newest, its token, and which are open."""
        return await _call(self._host, self._quick.claim_info, consumer)

    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> AsyncStage:
        """A stage: jobs that are put into it are seen when it is published, all at once, or never.

        `expire`: how long it waits for another put, or to be published, in seconds; a day if it is not said.
        """
        return AsyncStage(self, self._quick.stage(name, expire=expire))

    async def publish(self, *stages: AsyncStage | str | bytes) -> int:
        """Publish all of these stages, or none; tell how many jobs. Doing so again does nothing, and tells the same."""
        return await self._close_stages(staging.publish, stages)

    async def discard(self, *stages: AsyncStage | str | bytes) -> int:
        """Remove the jobs of stages that were not published; tell how many."""
        return await self._close_stages(staging.discard, stages)

    async def _close_stages(
        self, close: Callable[[Engine, list[bytes], int], int], stages: Iterable[AsyncStage | str | bytes]
    ) -> int:
        names = stage_names(each._stage if isinstance(each, AsyncStage) else each for each in stages)
        closing: Closing = await _call(self._host, self._quick._close_stages, close, names)
        while staging.are_closing(closing.left):
            # A turn's worth at a time, so that other tasks get theirs.
            await asyncio.sleep(0)
            await _call(self._host, self._quick._go_on_closing, closing)
        return closing.jobs

    async def close(self) -> None:
        """End this session: the jobs it has taken go back to their tubes."""
        await asyncio.get_running_loop().run_in_executor(None, self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _read_on(events: Iterator[Event]) -> AsyncIterator[Event]:
    """What is read from disk, some at a time and in a thread."""
    loop = asyncio.get_running_loop()
    while some := await loop.run_in_executor(None, list, islice(events, _EVENTS_TOGETHER)):
        for event in some:
            yield event


class AsyncStage:
    """Jobs to be published together. As a context it is published at its end, or discarded where that is an error."""

    __slots__ = ("_queue", "_stage")

    def __init__(self, queue: AsyncQueue, stage: Stage) -> None:
        self._queue = queue
        self._stage = stage

    @property
    def name(self) -> str:
        """The stage's name."""
        return self._stage.name

    def __repr__(self) -> str:
        return repr(self._stage)

    async def put(self, tube: AsyncTube | str | bytes, body: Body, **options: Unpack[PutOptions]) -> AsyncJob:
        """Put a job for a tube, to be seen when the stage is published: its delay and its ttl begin then."""
        check_keywords("put", options, PUT_KEYWORDS)
        return (await self.put_many(tube, [body], **options))[0]

    async def put_many(
        self, tube: AsyncTube | str | bytes, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[AsyncJob]:
        """Put a job for each body, or none at all. A `NewJob` is a body with options of its own, such as its key."""
        place = tube._tube if isinstance(tube, AsyncTube) else tube
        jobs = await _call(self._queue._host, lambda: self._stage.put_many(place, bodies, **options))
        return [AsyncJob(job) for job in jobs]

    async def publish(self) -> int:
        """Let its jobs be in their tubes, all at once; tell how many. Doing so again does nothing."""
        return await self._queue.publish(self)

    async def discard(self) -> int:
        """Remove its jobs; tell how many."""
        return await self._queue.discard(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.publish()
        else:
            await self.discard()


class AsyncTube:
    """One tube, as one session sees it, for asyncio."""

    def __init__(self, queue: AsyncQueue, tube: Tube) -> None:
        self._queue = queue
        self._tube = tube
        self._host = tube._host

    @property
    def name(self) -> str:
        """The tube's name."""
        return self._tube.name

    @property
    def type(self) -> str:
        """The type of the tube."""
        return self._tube.type

    @property
    def policy(self) -> TubePolicy:
        """What the tube promises."""
        return self._tube.policy

    @property
    def sync(self) -> Tube:
        """The same tube for threads."""
        return self._queue.sync._tube(self._tube._core)

    def __repr__(self) -> str:
        return repr(self._tube)

    async def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> AsyncJob:
        """Add a job; wait for room up to `timeout` seconds (None: for ever)."""
        timeout_ms = duration_ms(timeout, "timeout")
        try:
            return AsyncJob(await _call(self._host, lambda: self._tube.put(body, **options)))
        except Full:
            if timeout_ms == 0:
                raise
        host, session = self._tube._host, self._tube._session
        sleeper = _Task()
        with session.lock, session:
            asked = self._tube._draft("put", body, options)
            wait = host.engine.wait_put(session.connection, self._tube._live(), asked, host.now(), timeout_ms, sleeper)
        await _sleep_through(host, wait, sleeper)
        return AsyncJob(Job(self._tube, self._tube._put_at_last(wait)))

    async def put_many(self, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]) -> list[AsyncJob]:
        """Add a job for each body, or none at all. A `NewJob` is a body with options of its own, such as its key."""
        jobs = await _call(self._host, lambda: self._tube.put_many(bodies, **options))
        return [AsyncJob(job) for job in jobs]

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
        return await _take(self._queue._quick, [self._tube], count, timeout, raw_key, ttr_ms)

    async def __aiter__(self) -> AsyncIterator[AsyncJob]:
        """Take jobs for ever, waiting for each: `async for job in tube:`. Finish each, best by `async with job:`."""
        while True:
            job = await self.take(timeout=None)
            if job is not None:
                yield job

    async def job(self, id: str) -> AsyncJob:
        """The job of this id, if it is in this tube."""
        return AsyncJob(await _call(self._host, self._tube.job, id))

    async def named(self, name: str | bytes) -> AsyncJob:
        """The job that was put under this name."""
        return AsyncJob(await _call(self._host, self._tube.named, name))

    async def jobs(self, state: StateName, limit: int = 1_000) -> list[AsyncJob]:
        """Up to `limit` jobs that are in a state, in the order they would be served."""
        return [AsyncJob(job) for job in await _call(self._host, self._tube.jobs, state, limit)]

    async def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        """Dig up to `count` buried jobs up, with a delay or another ttl if given; tell how many there were."""
        return await _call(self._host, self._tube.kick, count, delay=delay, ttl=ttl)

    async def release_all(self) -> int:
        """Give every taken job back, whoever holds it; tell how many there were."""
        return await _call(self._host, self._tube.release_all)

    async def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        """Refuse puts, hold takes back, or both; `pause()` with neither resumes."""
        await _call(self._host, self._tube.pause, puts=puts, takes=takes)

    async def alter(self, **options: Unpack[TubeOptions]) -> None:
        """Change what the tube promises while it runs."""
        await _call(self._host, lambda: self._tube.alter(**options))

    async def truncate(self) -> int:
        """Remove every job, whatever its state; tell how many there were."""
        return await _call(self._host, self._tube.truncate)

    async def drop(self) -> None:
        """Remove the tube with its jobs; refused while jobs of it are taken or clients wait on it."""
        await _call(self._host, self._tube.drop)

    async def info(self) -> dict[str, Any]:
        """How the tube is now: jobs in each state, the age of the next job in seconds, who waits, what is paused."""
        return await _call(self._host, self._tube.info)

    async def stats(self) -> dict[str, int]:
        """How many jobs are in each state now."""
        return await _call(self._host, self._tube.stats)

    async def events(self) -> dict[str, int]:
        """How often each thing happened to jobs of this tube."""
        return await _call(self._host, self._tube.events)

    async def transitions(self) -> dict[str, int]:
        """How often jobs of this tube went from one state to another, as "ready-taken"."""
        return await _call(self._host, self._tube.transitions)

    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back, from a thread of its own, on every change of a job here; call what this returns to end it."""
        return self._tube.subscribe(callback)

    async def claim(
        self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0
    ) -> list[AsyncJob] | None:
        """Claim number n of a consumer: the same jobs on every call until it is acked; None if there is nothing."""
        jobs = await _call(self._host, self._tube.claim, consumer, number, count, lease=lease, token=token)
        return None if jobs is None else [AsyncJob(job) for job in jobs]


async def _take(
    queue: Queue, tubes: list[Tube], count: int, timeout: Duration, key: bytes | None, ttr_ms: int
) -> list[AsyncJob]:
    number = integer(count, "count")
    left = time_left(queue._host, duration_ms(timeout, "timeout"))
    while handed := await _take_cores(queue, tubes, number, left(), key, ttr_ms):
        if jobs := await _as_jobs(queue, handed):
            return jobs
    return []


async def _take_cores(
    queue: Queue, tubes: list[Tube], number: int, timeout_ms: int, key: bytes | None, ttr_ms: int
) -> Handed | None:
    host, session = queue._host, queue._session
    with session.lock, session:
        cores = [tube._live() for tube in tubes]
        handed = Handed(take_now(queue, tubes, number, key, ttr_ms))
        wait = None
        if not handed.jobs and timeout_ms > 0:
            sleeper = _Task()
            wait = host.engine.wait(session.connection, cores, host.now(), timeout_ms, number, key, ttr_ms, sleeper)
    if wait is not None:
        await _sleep_through(host, wait, sleeper)
        handed = Handed(wait.jobs, wait.deliveries)
        if not wait.jobs:
            with session.lock, session:
                return None
    else:
        try:
            await host.until_durable()
        except BaseException:
            host.give_back(handed)
            raise
    return handed if handed.jobs else None


async def _as_jobs(queue: Queue, handed: Handed) -> list[AsyncJob]:
    """What was taken, as users see it; in a thread if bodies have to be read."""
    if all(isinstance(core.body, bytes) for core in handed.jobs):
        jobs = as_jobs(queue, handed)
    else:
        try:
            jobs = await asyncio.get_running_loop().run_in_executor(None, as_jobs, queue, handed)
        except asyncio.CancelledError:
            queue._host.not_seen(handed)
            raise
    return [AsyncJob(job) for job in jobs]


class AsyncJob:
    """A job of this queue, for asyncio. Its state and counters are live: they tell how it is now."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    @property
    def id(self) -> str:
        """Its id: 40 characters, the same for ever."""
        return self._job.id

    @property
    def tube(self) -> str:
        """The name of its tube."""
        return self._job.tube

    @property
    def state(self) -> str:
        """What the job is now: ready, taken, delayed, buried, done, zombie or gone."""
        return self._job.state

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        return self._job.deliveries

    @property
    def nacks(self) -> int:
        """How often a taker said that it failed."""
        return self._job.nacks

    @property
    def body(self) -> Any:
        """What was put."""
        return self._job.body

    @property
    def sync(self) -> Job:
        """The same job for threads."""
        queue = self._job._tube._queue
        blocking = queue._blocking or queue
        return blocking._tube(self._job._tube._core)._job(self._job._core)

    def __repr__(self) -> str:
        return repr(self._job)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJob) and self._job == other._job

    def __hash__(self) -> int:
        return hash(self._job)

    async def ack(self) -> None:
        """The work is done: the job goes, or is kept if its tube keeps acked jobs."""
        await self._call(self._job.ack)

    async def done(self, result: Body, *, ttl: Duration | EllipsisType = ...) -> None:
        """The work is done, and its result takes the place of the body for `ttl` seconds, a day if it is not given."""
        await self._call(self._job.done, result, ttl=ttl)

    async def release(
        self,
        delay: Seconds = 0,
        *,
        ttl: Duration | None = None,
        priority: int | None = None,
        key: str | bytes | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Give the job back unfinished: to its old place, or after `delay` seconds."""
        await self._call(self._job.release, delay, ttl=ttl, priority=priority, key=key, options=options)

    async def requeue(self) -> None:
        """Give the job back to behind all others."""
        await self._call(self._job.requeue)

    async def nack(self, reason: str = "") -> None:
        """Give the job back because it failed: its retry policy says what becomes of it."""
        await self._call(self._job.nack, reason)

    async def bury(self, reason: str = "") -> None:
        """Put the job aside until somebody kicks it, and say why."""
        await self._call(self._job.bury, reason)

    async def touch(self, seconds: Seconds | None = None) -> None:
        """Ask for more time: so many seconds more, or without a number a whole ttr from now."""
        await self._call(self._job.touch, seconds)

    async def dig(self, delay: Seconds = 0, *, ttl: Duration | None = None, priority: int | None = None) -> None:
        """Dig the buried job up: to its old place, or after `delay` seconds, with what else is given changed."""
        await self._call(self._job.dig, delay, ttl=ttl, priority=priority)

    async def delete(self) -> None:
        """Remove the job, whatever its state and whoever holds it."""
        await self._call(self._job.delete)

    async def snatch(self, delay: Seconds = 0) -> None:
        """Take the job away from whoever holds it."""
        await self._call(self._job.snatch, delay)

    async def restart(self, delay: Seconds = 0) -> None:
        """Bring the job back that is delayed, or was acked and kept."""
        await self._call(self._job.restart, delay)

    async def switch(self, state: StateName, delay: Seconds = 0) -> None:
        """Turn the job, if it is not taken, into another state."""
        await self._call(self._job.switch, state, delay)

    async def move(self, tube: AsyncTube, delay: Seconds = 0) -> None:
        """Move the job to the end of another tube."""
        await self._call(self._job.move, tube._tube, delay)

    async def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job is acked, buried, dead-lettered, dropped, expired or deleted, or the time is over."""
        host, session = self._job._tube._host, self._job._tube._session
        sleeper = _Task()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.lock, session:
            wait = self._job._wait(timeout_ms, sleeper)
        await _sleep_through(host, wait, sleeper)
        ended = outcome_of(wait)
        if ended.outcome != "gone":
            return ended
        return await asyncio.get_running_loop().run_in_executor(None, self._job._in_history)

    async def history(self) -> list[Event]:
        """Everything that happened to the job, also when it is gone. It needs a queue in a directory."""
        return await asyncio.get_running_loop().run_in_executor(None, self._job.history)

    async def meta(self) -> dict[str, Any]:
        """Everything the queue knows about the job, times in seconds since 1970."""
        return await self._call(self._job.meta)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack when the work is done, nack when it raised; leave alone what was finished by hand."""
        await self._call(self._job.__exit__, kind, error, trace)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await _call(self._job._tube._host, function, *args, **kwargs)
