"""A queue on a server, for asyncio: `penstock.connect_async()`, with the interface of the embedded one.

Everything is as in `queue.py`, awaited. Two things a server has to be asked for, which an attribute cannot do:
`job.state` is what the server told last (`await job.meta()` asks), and the body of a job that was put with `unique` or
`dedup` is what was put, also where another was there before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from types import EllipsisType, TracebackType
from typing import Any, Self, Unpack

from penstock.changes import Change
from penstock.client import commands
from penstock.client.async_session import AsyncSession
from penstock.client.backoff import Backoff
from penstock.client.commands import Call
from penstock.client.facts import JobFacts
from penstock.client.url import Target, target
from penstock.core.errors import CommandError, NotOwner, NotTaken, PenstockError, UnknownJob, UnknownTube, WrongType
from penstock.core.limits import NEVER, UNSET, check_count
from penstock.core.policy import TubePolicy
from penstock.journal.reader import Event
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
    boolean,
    check_keywords,
    check_tubes,
    duration_ms,
    encode_body,
    integer,
    to_bytes,
    to_text,
)


def connect_async(
    url: str | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
    tls: bool | ssl.SSLContext | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    name: str | None = None,
    grace: Seconds | None = None,
    connect_timeout: Seconds | None = None,
    timeout: Duration | None = None,
    retry_for: Duration | None = None,
) -> AsyncQueue:
    """Connect to a server, for asyncio: see `connect`. The connection is made at `async with`, or by the first call."""
    return AsyncQueue(
        AsyncSession(
            target(
                url,
                user=user,
                password=password,
                tls=tls,
                ca=ca,
                cert=cert,
                key=key,
                name=name,
                grace=grace,
                connect_timeout=connect_timeout,
                timeout=timeout,
                retry_for=retry_for,
            )
        )
    )


class AsyncQueue:
    """A session on a server, for asyncio: its tubes, and the jobs that this session has taken."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._call = session.call

    @property
    def _target(self) -> Target:
        return self._session.target

    async def session(self) -> AsyncQueue:
        """Another session on the same server: a consumer with jobs of its own. Close it to give them back."""
        self._session.check_open()
        other = AsyncQueue(AsyncSession(self._target))
        await other._session.connect()
        return other

    @property
    def token(self) -> str:
        """The session's name: whoever knows it may take the session over with `identify`."""
        return self._session.token

    async def identify(self, token: str | None = None, *, grace: Seconds | None = None) -> None:
        """Take over the session of this token, with the jobs it holds; None: stay in this one.

        `grace`: how long the jobs of the session wait for us when we are cut off, in seconds, instead of as `connect`
        says; then they do so also when we close.
        """
        await self._session.identify(token, grace)

    async def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        alter: bool = False,
        **options: Unpack[TubeOptions],
    ) -> AsyncTube:
        """The tube of this name, made if it is not there.

        Without a type and options, a tube that exists is found as it is. A new one is a `fifottl` in which a worker has
        5 minutes for a job, and a job that fails is tried 5 times and then buried. With a type or options, a tube that
        exists with others is refused (TUBEEXISTS); with `alter`, it gets the given options, as by `tube.alter`.
        """
        raw = to_bytes(name, "a tube's name")
        if boolean(alter, "alter") and (type is not None or options):
            with contextlib.suppress(UnknownTube):
                return AsyncTube(self, raw, await self._call(commands.alter_to(raw, type, dict(options))))
        return AsyncTube(self, raw, await self._call(commands.tube(raw, type, dict(options))))

    async def find_tube(self, name: str | bytes) -> AsyncTube:
        """The tube of this name, if it is there; it is not made."""
        raw = to_bytes(name, "a tube's name")
        return AsyncTube(self, raw, await self._call(commands.find_tube(raw)))

    async def tubes(self) -> list[str]:
        """The names of all tubes, in the order they were made."""
        return await self._call(commands.tubes())

    async def stats(self) -> dict[str, dict[str, int]]:
        """For each tube, how many jobs are in each state."""
        found: dict[str, dict[str, int]] = {}
        cursor = b"0"
        while True:
            cursor, some = await self._call(commands.scan_tubes(cursor))
            found |= some
            if cursor == b"0":
                return found

    async def overview(self) -> list[dict[str, Any]]:
        """Every tube as its `info` tells it, in the order they were made."""
        found: list[dict[str, Any]] = []
        cursor = b"0"
        while True:
            cursor, some = await self._call(commands.overview(cursor))
            found += some
            if cursor == b"0":
                return found

    async def scan(
        self, cursor: int = 0, *, tube: AsyncTube | None = None, states: Iterable[StateName] = (), count: int = 1_000
    ) -> tuple[list[AsyncJob], int]:
        """About `count` jobs from a cursor on, and the cursor to go on from; 0 begins, and 0 is the end.

        Of one tube and in some states, if these are given: then a page may be short, or even empty. A job that is there
        from beginning to end is found; what comes or goes meanwhile may be.
        """
        if tube is not None:
            check_tubes([tube], AsyncTube)
            tube._check_queue(self)
        call = commands.scan(cursor, None if tube is None else tube._raw, states, count)
        found, following = await self._call(call)
        return [AsyncJob(self, facts) for facts in found], following

    async def job(self, id: str) -> AsyncJob:
        """The job of this id, in either form, or of a number within a tube: `emails#7`."""
        return AsyncJob(self, await self._call(commands.peek(id)))

    async def take(self, tubes: Iterable[AsyncTube], count: int = 1, timeout: Duration = 0) -> list[AsyncJob]:
        """Take up to `count` jobs from several tubes, one of each in turn; wait for the first up to `timeout`."""
        places = check_tubes(tubes, AsyncTube)
        for tube in places:
            tube._check_queue(self)
        return await self._take([tube._raw for tube in places], count, timeout, None, UNSET)

    async def _take(
        self, names: list[bytes], count: int, timeout: Duration, key: bytes | None, ttr_ms: int
    ) -> list[AsyncJob]:
        wanted = check_count(integer(count, "count"), "the number of jobs to take")
        timeout_ms = duration_ms(timeout, "timeout")
        found = await self._wait_for_jobs(names, wanted, timeout_ms, key, ttr_ms)
        jobs = [AsyncJob(self, facts) for facts in found]
        try:
            while len(jobs) < wanted and commands.may_be_more(found):
                found = await self._call(commands.take(names, wanted - len(jobs), 0, key, ttr_ms))
                jobs += [AsyncJob(self, facts) for facts in found]
        except PenstockError:
            pass  # What there is so far is the caller's; what is wrong, the next call will say.
        except BaseException:
            self._session.disown([job.id for job in jobs])
            raise
        return jobs

    async def _wait_for_jobs(
        self, names: list[bytes], wanted: int, timeout_ms: int, key: bytes | None, ttr_ms: int
    ) -> list[JobFacts]:
        end = time.monotonic() + timeout_ms / 1000
        while True:
            found = await self._call(commands.take(names, wanted, timeout_ms, key, ttr_ms))
            if found or timeout_ms == 0:
                return found
            # A take may be ended before its time: somebody wants to know what this session holds.
            if timeout_ms != NEVER:
                timeout_ms = max(0, int((end - time.monotonic()) * 1000))
                if timeout_ms == 0:
                    return []

    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back, from a task of its own, on every change of every job; call what this returns to end it."""
        return await self._subscribe(callback, None)

    async def _subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        if not callable(callback):
            raise WrongType(f"a subscriber is a function, not {type(callback).__name__}")
        if tube is not None:
            await self._call(commands.find_tube(tube))
        position = await self._call(commands.journal_head())
        task = asyncio.ensure_future(_tell_changes(self._session, callback, tube, position))
        self._session.keep(task)

        def cancel() -> None:
            task.cancel()

        return cancel

    async def events(self, start: int = 1) -> AsyncIterator[Event]:
        """Everything that happened on this server from a position on, as far as it is durable. It needs a journal."""
        return self._events(*await self._call(commands.journal_events(start, None)))

    async def _events(self, position: int, found: list[Event]) -> AsyncIterator[Event]:
        while found:
            for event in found:
                yield event
            position, found = await self._call(commands.journal_events(position, None))

    async def history(self, id: str) -> list[Event]:
        """What happened to the job of this id, whether it is there or gone, as far as it is kept and durable."""
        return await self._call(commands.history(id))

    async def checkpoint(self) -> None:
        """Let the server take a snapshot now, and remove history that is not to be kept."""
        await self._call(commands.checkpoint())

    async def read_claim(self, consumer: str, number: int, shard: tuple[int, int] = (0, 1)) -> list[AsyncJob]:
        """The jobs of a claim as it was given out; of shard `(i, n)`, every n-th of them from the i-th on."""
        return [AsyncJob(self, facts) for facts in await self._call(commands.read_claim(consumer, number, shard))]

    async def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        """Ack all jobs of all claims of a consumer up to this number; tell how many jobs."""
        return await self._call(commands.ack_claims(consumer, upto, token))

    async def execute(self, *words: str | bytes | int) -> Any:
        """Send any command, and give its answer as it came. If that is lost, nobody knows whether it was done."""
        return await self._call(commands.execute(words))

    async def renew_claims(self, consumer: str, *, lease: Seconds | None = None, token: int = 0) -> int:
        """Let the leases of all claims of a consumer begin anew, as long as the last one if it is not said."""
        return await self._call(commands.renew_claims(consumer, lease, token))

    async def release_claims(self, consumer: str, *, token: int = 0) -> int:
        """End all claims of a consumer, whose jobs go back to their tubes; tell how many claims."""
        return await self._call(commands.release_claims(consumer, token))

    async def claim_info(self, consumer: str) -> ClaimInfo:
        """How far a consumer is: the last number it acked, its newest, its token, and which are open."""
        return await self._call(commands.claim_info(consumer))

    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> AsyncStage:
        """A stage: jobs that are put into it are seen when it is published, all at once, or never.

        `expire`: how long it waits for another put, or to be published, in seconds; a day if it is not said.
        """
        return AsyncStage(self, to_bytes(name, "the name of a stage"), expire)

    async def publish(self, *stages: AsyncStage | str | bytes) -> int:
        """Publish all of these stages, or none; tell how many jobs. Doing so again does nothing, and tells the same."""
        return await self._close_stages(b"PUBLISH", stages)

    async def discard(self, *stages: AsyncStage | str | bytes) -> int:
        """Remove the jobs of stages that were not published; tell how many."""
        return await self._close_stages(b"DISCARD", stages)

    async def _close_stages(self, word: bytes, stages: Iterable[AsyncStage | str | bytes]) -> int:
        names = [each._name if isinstance(each, AsyncStage) else each for each in stages]
        return await self._call(commands.close_stages(word, names))

    async def close(self) -> None:
        """End this session: the jobs it has taken go back to their tubes."""
        await self._session.close()

    def __repr__(self) -> str:
        return f"<penstock queue at {self._target}>"

    async def __aenter__(self) -> Self:
        await self._session.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _tell_changes(
    session: AsyncSession, callback: Callable[[Change], None], tube: bytes | None, position: int
) -> None:
    """Ask for what happened, and tell it."""
    search = Backoff(None)
    while True:
        try:
            position, found = await session.call(commands.journal_events(position, tube, commands.EVENTS_WAIT_MS))
        except CommandError:
            return  # The session is closed, or what was to be told is trimmed.
        except PenstockError:
            # The server is gone; it was looked for, and is looked for again.
            await asyncio.sleep(search.pause() or 0)
            continue
        search = Backoff(None)
        for event in found:
            change = commands.change(event)
            if change is None:
                continue
            try:
                callback(change)
            except Exception as error:
                # A subscriber that fails harms nobody else, not even where warnings raise.
                try:
                    warnings.warn(f"a subscriber of the queue raised {error!r}", RuntimeWarning, stacklevel=1)
                except Warning:
                    pass


class AsyncStage:
    """Jobs to be published together. As a context it is published at its end, or discarded where that is an error."""

    __slots__ = ("_expire_ms", "_name", "_queue")

    def __init__(self, queue: AsyncQueue, name: bytes, expire: Seconds | None) -> None:
        self._queue = queue
        self._name = name
        self._expire_ms = UNSET if expire is None else duration_ms(expire, "expire")

    @property
    def name(self) -> str:
        """The stage's name."""
        return to_text(self._name)

    def __repr__(self) -> str:
        return f"<penstock stage {self.name!r}>"

    async def put(self, tube: AsyncTube | str | bytes, body: Body, **options: Unpack[PutOptions]) -> AsyncJob:
        """Put a job for a tube, to be seen when the stage is published: its delay and its ttl begin then."""
        check_keywords("put", options, PUT_KEYWORDS)
        return (await self.put_many(tube, [body], **options))[0]

    async def put_many(
        self, tube: AsyncTube | str | bytes, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[AsyncJob]:
        """Put a job for each body, or none at all. A `NewJob` is a body with options of its own, such as its key."""
        if isinstance(tube, AsyncTube):
            tube._check_queue(self._queue)
        place = tube._raw if isinstance(tube, AsyncTube) else to_bytes(tube, "a tube's name")
        call = commands.stage(self._name, place, self._expire_ms, bodies, options)
        return [] if call is None else [AsyncJob(self._queue, facts) for facts in await self._queue._call(call)]

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
    """One tube, as one session sees it."""

    __slots__ = ("_call", "_policy", "_queue", "_raw")

    def __init__(self, queue: AsyncQueue, raw: bytes, policy: TubePolicy) -> None:
        self._queue = queue
        self._call = queue._call
        self._raw = raw
        self._policy = policy

    @property
    def name(self) -> str:
        """The tube's name."""
        return to_text(self._raw)

    @property
    def type(self) -> str:
        """The type of the tube."""
        return self._policy.type

    @property
    def policy(self) -> TubePolicy:
        """What the tube promised when this client heard of it last."""
        return self._policy

    def __repr__(self) -> str:
        return f"<penstock tube {self.name!r} ({self.type})>"

    async def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> AsyncJob:
        """Add a job: see PutOptions for what it may be given.

        Bytes and text come back as they are, any other value by way of JSON. If the tube is full, wait for room up to
        `timeout` seconds (None: for ever). With `unique` or `dedup`, the job that is there already is returned. With
        `dedup`, a put whose answer is lost is repeated; any other raises ConnectionLost then.
        """
        return AsyncJob(
            self._queue,
            await self._call(commands.put(self._raw, body, timeout, commands.put_options(self._policy, options))),
        )

    async def put_many(self, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]) -> list[AsyncJob]:
        """Add a job for each body, or none at all. A `NewJob` is a body with options of its own, such as its key."""
        call = commands.put_many(self._raw, bodies, options)
        return [] if call is None else [AsyncJob(self._queue, facts) for facts in await self._call(call)]

    async def take(
        self, timeout: Duration = 0, *, key: str | bytes | None = None, ttr: Duration | None = None
    ) -> AsyncJob | None:
        """Take the next job; wait for one up to `timeout` seconds (None: for ever). None if there was none.

        `key`: only of this key. `ttr`: hold it this long instead of its own time.
        """
        if timeout == 0 and key is None and ttr is None:
            found = await self._call(commands.take_one(self._raw))
            return AsyncJob(self._queue, found[0]) if found else None
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
        return await self._queue._take([self._raw], count, timeout, raw_key, ttr_ms)

    async def __aiter__(self) -> AsyncIterator[AsyncJob]:
        """Take jobs for ever, waiting for each: `async for job in tube:`. Finish each, best by `async with job:`."""
        while True:
            job = await self.take(timeout=None)
            if job is not None:
                yield job

    async def job(self, id: str) -> AsyncJob:
        """The job of this id, if it is in this tube."""
        facts = await self._call(commands.peek(id))
        if facts.raw_tube != self._raw:
            raise UnknownJob()
        return AsyncJob(self._queue, facts)

    async def named(self, name: str | bytes) -> AsyncJob:
        """The job that was put under this name."""
        return AsyncJob(self._queue, await self._call(commands.named(self._raw, name)))

    async def jobs(self, state: StateName, limit: int = 1_000) -> list[AsyncJob]:
        """Up to `limit` jobs that are in a state, in the order they would be served."""
        return [AsyncJob(self._queue, facts) for facts in await self._call(commands.list_jobs(self._raw, state, limit))]

    async def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        """Dig up to `count` buried jobs up, with a delay or another ttl if given; tell how many there were."""
        return await self._call(commands.kick(self._raw, count, delay, ttl))

    async def release_all(self) -> int:
        """Give every taken job back, whoever holds it; tell how many there were."""
        return await self._call(commands.release_all(self._raw))

    async def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        """Refuse puts, hold takes back, or both; `pause()` with neither resumes."""
        await self._call(commands.pause(self._raw, puts, takes))

    async def alter(self, **options: Unpack[TubeOptions]) -> None:
        """Change what the tube promises while it runs."""
        self._policy = await self._call(commands.alter(self._raw, dict(options)))

    async def truncate(self) -> int:
        """Remove every job, whatever its state; tell how many there were."""
        return await self._call(commands.truncate(self._raw))

    async def drop(self) -> None:
        """Remove the tube with its jobs; refused while jobs of it are taken or clients wait on it."""
        await self._call(commands.drop(self._raw))

    async def info(self) -> dict[str, Any]:
        """How the tube is now: jobs in each state, the age of the next job in seconds, who waits, what is paused."""
        return await self._call(commands.tube_stats(self._raw, commands.info))

    async def stats(self) -> dict[str, int]:
        """How many jobs are in each state now."""
        return await self._call(commands.tube_stats(self._raw, commands.states))

    async def events(self) -> dict[str, int]:
        """How often each thing happened to jobs of this tube."""
        return await self._call(commands.tube_stats(self._raw, lambda answer: commands.counts(answer[b"events"])))

    async def transitions(self) -> dict[str, int]:
        """How often jobs of this tube went from one state to another, as "ready-taken"."""
        return await self._call(commands.tube_stats(self._raw, lambda answer: commands.counts(answer[b"transitions"])))

    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back, from a task of its own, on every change of a job here; call what this returns to end it."""
        return await self._queue._subscribe(callback, self._raw)

    async def claim(
        self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0
    ) -> list[AsyncJob] | None:
        """Claim number n of a consumer: the same jobs on every call until it is acked; None if there is nothing.

        The first claim is number 1. A consumer that comes with a greater token takes over from the one before.
        """
        found = await self._call(commands.claim(self._raw, consumer, number, count, lease, token))
        return None if found is None else [AsyncJob(self._queue, facts) for facts in found]

    def _check_queue(self, queue: AsyncQueue) -> None:
        """Refuse to be used with another server than the tube is on."""
        if self._queue._target is not queue._target:
            raise WrongType(f"tube {self.name!r} belongs to another queue")


class AsyncJob:
    """A job on a server, for asyncio, as it was when this client heard of it last."""

    __slots__ = ("_facts", "_finished", "_queue")

    def __init__(self, queue: AsyncQueue, facts: JobFacts) -> None:
        self._queue = queue
        self._facts = facts
        self._finished = False  # By hand, through this object: then leaving its `with` block does nothing more.

    @property
    def id(self) -> str:
        """Its id: 40 characters, the same for ever."""
        return self._facts.id

    @property
    def tube(self) -> str:
        """The name of its tube."""
        return to_text(self._facts.raw_tube)

    @property
    def state(self) -> str:
        """What the job was when this client heard of it last: `await job.meta()` asks what it is now."""
        return self._facts.state

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        return self._facts.deliveries

    @property
    def nacks(self) -> int:
        """How often a taker said that it failed."""
        return self._facts.nacks

    @property
    def body(self) -> Any:
        """What was put: bytes as bytes, text as text, any other value as it came out of JSON."""
        return self._facts.body()

    def __repr__(self) -> str:
        return f"<penstock job {self.id} in {self.tube!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AsyncJob):
            return NotImplemented
        return self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def ack(self) -> None:
        """The work is done: the job goes, or is kept if its tube keeps acked jobs."""
        await self._finish(commands.ack(self.id))

    async def done(self, result: Body, *, ttl: Duration | EllipsisType = ...) -> None:
        """The work is done, and its result takes the place of the body for `ttl` seconds, a day if it is not given."""
        call = commands.done(self.id, result, ttl)
        await self._finish(call)
        self._facts.raw_body, self._facts.body_kind = encode_body(result)

    async def release(
        self,
        delay: Seconds = 0,
        *,
        ttl: Duration | None = None,
        priority: int | None = None,
        key: str | bytes | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Give the job back unfinished: to its old place, or after `delay` seconds, with what else is given changed.

        `options`: in a tube with a driver, what the driver gets, as it is.
        """
        await self._finish(commands.release(self.id, delay, ttl, priority, key, options, self._hold()))

    async def requeue(self) -> None:
        """Give the job back to behind all others."""
        await self._finish(commands.requeue(self.id, self._hold()))

    async def nack(self, reason: str = "") -> None:
        """Give the job back because it failed: its retry policy says what becomes of it."""
        await self._finish(commands.nack(self.id, reason, self._hold()))
        self._facts.nacks += 1

    async def bury(self, reason: str = "") -> None:
        """Put the job aside until somebody kicks it, and say why."""
        await self._finish(commands.bury(self.id, reason, self._hold()))

    async def touch(self, seconds: Seconds | None = None) -> None:
        """Ask for more time: so many seconds more, or without a number a whole ttr from now."""
        await self._queue._call(commands.touch(self.id, seconds))

    async def dig(self, delay: Seconds = 0, *, ttl: Duration | None = None, priority: int | None = None) -> None:
        """Dig the buried job up: to its old place, or after `delay` seconds, with what else is given changed."""
        await self._finish(commands.dig(self.id, delay, ttl, priority))

    async def delete(self) -> None:
        """Remove the job, whatever its state and whoever holds it."""
        await self._finish(commands.delete(self.id))

    async def snatch(self, delay: Seconds = 0) -> None:
        """Take the job away from whoever holds it: back to its place, or after `delay` seconds."""
        await self._finish(commands.snatch(self.id, delay))

    async def restart(self, delay: Seconds = 0) -> None:
        """Bring the job back that is delayed, or was acked and kept."""
        await self._finish(commands.restart(self.id, delay))

    async def switch(self, state: StateName, delay: Seconds = 0) -> None:
        """Turn the job, if it is not taken, into another state; delayed and zombie need a delay."""
        await self._finish(commands.switch(self.id, state, delay))

    async def move(self, tube: AsyncTube, delay: Seconds = 0) -> None:
        """Move the job to the end of another tube; it keeps its id, its body and its ttl."""
        check_tubes([tube], AsyncTube)
        tube._check_queue(self._queue)
        await self._finish(commands.move(self.id, tube._raw, delay))
        self._facts.raw_tube = tube._raw

    async def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job is acked, buried, dead-lettered, dropped, expired or deleted, or the time is over."""
        ended = await self._queue._call(commands.wait(self.id, self._facts.raw_tube, timeout))
        if ended.outcome != "gone":
            return ended
        try:
            return await self._queue._call(commands.ended_before(self.id))
        except CommandError:
            return ended  # The server keeps no history of it, or does not show it to this user.

    async def history(self) -> list[Event]:
        """Everything that happened to the job, also when it is gone. It needs a server with a journal."""
        return await self._queue._call(commands.history(self.id))

    async def meta(self) -> dict[str, Any]:
        """Everything the server knows about the job, times in seconds since 1970."""
        meta = await self._queue._call(commands.job_meta(self.id))
        self._facts.state = meta["state"]
        return meta

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack when the work is done, nack when it raised, release when interrupted; leave alone what was finished."""
        if self._finished:
            return
        try:
            await self._finish(commands.leave(self._facts, kind, error))
        except PenstockError:
            # The job is not ours any more, or the server is gone. What went wrong first is what the caller has to hear.
            if kind is None:
                raise

    def _hold(self) -> int:
        """Which delivery of the job this object stands for; 0 if it was not taken when it was heard of, or is over."""
        return 0 if self._finished else self._facts.hold()

    async def _finish(self, call: Call[None]) -> None:
        """Do something after which the job is not held any more."""
        try:
            await self._queue._call(call)
        except (UnknownJob, NotTaken, NotOwner):
            self._queue._session.belongings.remove(self.id, call.hold())
            raise
        self._queue._session.belongings.remove(self.id, call.hold())
        self._finished = True
