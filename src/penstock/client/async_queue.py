"""A queue on a server: the implementation of the public types for `connect_async`.

`scripts/generate_sync.py` generates the blocking queue from the asyncio queue. `handles.py` has the differences between
the two. `commands.py` has the commands and the meaning of their replies.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from types import EllipsisType, TracebackType
from typing import Any, TypeVar, Unpack

from penstock import api_async
from penstock.changes import Change
from penstock.client import commands
from penstock.client.async_session import AsyncSession
from penstock.client.backoff import Backoff
from penstock.client.commands import Call
from penstock.client.facts import JobFacts, KnownTube
from penstock.client.handles import AsyncJobHandle, AsyncQueueHandle
from penstock.client.url import ConnectOptions, target
from penstock.core.errors import CommandError, NotOwner, NotTaken, PenstockError, UnknownJob, UnknownTube, WrongType
from penstock.core.job import Draft
from penstock.core.limits import NEVER, UNSET, check_count
from penstock.core.policy import TubePolicy
from penstock.durations import Durations
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.reader import Event
from penstock.options import (
    BatchInfo,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    JobProgress,
    NewJob,
    PutOptions,
    ReleaseOptions,
    Seconds,
    SessionEvents,
    StateName,
    TakeOptions,
    TubeOptions,
    TubeType,
    boolean,
    check_tubes,
    duration_ms,
    encode_body,
    follow_up_draft,
    integer,
    take_options,
    to_bytes,
    to_text,
)

T = TypeVar("T")


def connect_async(url: str | None = None, **options: Unpack[ConnectOptions]) -> AsyncQueue:
    """Connect to a server and return a session on it.

    The URL is `penstock://[user:password@]host[:port][,host…][?option=value&…]`. The default is the URL in
    PENSTOCK_URL, or else port 7711 of this machine. Further hosts are tried if the first one does not answer. See
    ConnectOptions for the options, which can also be part of the URL: `?tls=1&grace=30s`. `math.inf` means no limit.

    A blocking queue connects in this call. An asyncio queue connects at the start of its `with` block, or with the
    first call.

    Raises BadUrl, NoServer if no server answers, and WrongPassword or Unauthenticated if the server refuses the user.
    """
    return AsyncQueue(AsyncSession(target(url, "connect_async", **options)))


class AsyncQueue(AsyncQueueHandle):
    """A session on a server."""

    async def session(self) -> AsyncQueue:
        self._session.check_open()
        other = AsyncQueue(AsyncSession(self._target))
        await other._session.connect()
        return other

    @property
    def token(self) -> str:
        return self._session.token

    async def identify(self, token: str | None = None, *, grace: Seconds | None = None) -> None:
        await self._session.identify(token, grace)

    async def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        alter: bool = False,
        **options: Unpack[TubeOptions],
    ) -> AsyncTube:
        raw = to_bytes(name, "a tube's name")
        if boolean(alter, "alter") and (type is not None or options):
            with contextlib.suppress(UnknownTube):
                return AsyncTube(self, raw, await self._call(commands.alter_to(raw, type, dict(options))))
        return AsyncTube(self, raw, await self._call(commands.tube(raw, type, dict(options))))

    async def find_tube(self, name: str | bytes) -> AsyncTube:
        raw = to_bytes(name, "a tube's name")
        return AsyncTube(self, raw, await self._call(commands.find_tube(raw)))

    async def tubes(self) -> list[str]:
        return await self._call(commands.tubes())

    async def stats(self) -> dict[str, dict[str, int]]:
        return dict(await self._scan_tubes(lambda answer: (commands.name(answer), commands.states(answer))))

    async def overview(self) -> list[dict[str, Any]]:
        return await self._scan_tubes(commands.info)

    async def sessions(self) -> list[dict[str, Any]]:
        cursor, found = await self._call(commands.scan_sessions(b"0"))
        while cursor != b"0":
            cursor, some = await self._call(commands.scan_sessions(cursor))
            found += some
        return found

    async def _scan_tubes(self, of_tube: Callable[[Any], T]) -> list[T]:
        cursor, found = await self._call(commands.scan_tubes(b"0", of_tube))
        while cursor != b"0":
            cursor, some = await self._call(commands.scan_tubes(cursor, of_tube))
            found += some
        return found

    async def scan(
        self,
        cursor: int = 0,
        *,
        tube: api_async.AsyncTube | None = None,
        states: Iterable[StateName] = (),
        count: int = 1_000,
        where: str | None = None,
    ) -> tuple[list[api_async.AsyncJob], int]:
        name = None if tube is None else self._tube_name(tube)
        found, following = await self._call(commands.scan(cursor, name, states, count, where))
        return [AsyncJob(self, facts) for facts in found], following

    async def job(self, id: str) -> AsyncJob:
        return AsyncJob(self, await self._call(commands.peek(id)))

    async def take(
        self, tubes: Iterable[api_async.AsyncTube], count: int = 1, timeout: Duration = 0
    ) -> list[api_async.AsyncJob]:
        names = [self._tube_name(tube) for tube in check_tubes(tubes, AsyncTube)]
        return await self._take(names, count, timeout, None, UNSET)

    def _tube_name(self, tube: api_async.AsyncTube) -> bytes:
        """Return the name of a tube. Raise WrongType if it is a tube of another server."""
        (place,) = check_tubes([tube], AsyncTube)
        if place._queue._target is not self._target:
            raise WrongType(f"tube {place.name!r} belongs to another queue")
        return place._raw

    async def _take(
        self, names: list[bytes], count: int, timeout: Duration, key: bytes | None, ttr_ms: int
    ) -> list[api_async.AsyncJob]:
        wanted = check_count(integer(count, "count"), "the number of jobs to take")
        timeout_ms = duration_ms(timeout, "timeout")
        found = await self._wait_for_jobs(names, wanted, timeout_ms, key, ttr_ms)
        jobs: list[api_async.AsyncJob] = [AsyncJob(self, facts) for facts in found]
        try:
            while len(jobs) < wanted and commands.may_be_more(found):
                found = await self._call(commands.take(names, wanted - len(jobs), 0, key, ttr_ms))
                jobs += [AsyncJob(self, facts) for facts in found]
        except PenstockError:
            pass  # Return the jobs that were taken. The next call raises the error, if it persists.
        except BaseException:
            self._session.give_back_later([job.id for job in jobs])
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
            # The server ends a take early if another call asks which jobs this session holds.
            if timeout_ms != NEVER:
                timeout_ms = max(0, int((end - time.monotonic()) * 1000))
                if timeout_ms == 0:
                    return []

    async def ack(self, jobs: Iterable[api_async.AsyncJob]) -> int:
        handles = self._own_jobs(jobs)
        if len(handles) == 1:
            try:
                await handles[0].ack()
            except (UnknownJob, NotTaken, NotOwner):
                return 0
            return 1
        acked = await self._call(commands.ack_many([job.id for job in handles])) if handles else 0
        for job in handles:
            self._session.held_jobs.remove(job.id, job._hold())
            job._finished = True
        return acked

    def _own_jobs(self, jobs: Iterable[api_async.AsyncJob]) -> list[AsyncJob]:
        """Return the jobs as a list. Raise WrongType if one belongs to another queue."""
        handles: list[AsyncJob] = []
        for job in jobs:
            if not isinstance(job, AsyncJob) or job._queue._target is not self._target:
                raise WrongType("give jobs of this queue")
            handles.append(job)
        return handles

    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        return await self._subscribe(callback, None)

    async def _subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        if not callable(callback):
            raise WrongType(f"a subscriber is a function, not {type(callback).__name__}")
        if tube is not None:
            await self._call(commands.find_tube(tube))
        return _AsyncSubscription(self._session, callback, tube, await self._call(commands.journal_head())).cancel

    async def events(self, start: int = 1) -> AsyncIterator[Event]:
        return self._events(*await self._call(commands.journal_events(start, None)))

    async def _events(self, position: int, found: list[Event]) -> AsyncIterator[Event]:
        while found:
            for event in found:
                yield event
            position, found = await self._call(commands.journal_events(position, None))

    async def digests(self, start: int = 1, end: int | None = None) -> AsyncIterator[BlockDigest]:
        return self._digests(end, *await self._call(commands.journal_digest(start, end)))

    async def _digests(self, end: int | None, position: int, found: list[BlockDigest]) -> AsyncIterator[BlockDigest]:
        while found:
            for block in found:
                yield block
            if position == end:
                return
            position, found = await self._call(commands.journal_digest(position, end))

    async def history(self, id: str) -> list[Event]:
        return await self._call(commands.history(id))

    async def checkpoint(self) -> None:
        await self._call(commands.checkpoint())

    async def read_claim(self, consumer: str, number: int, shard: tuple[int, int] = (0, 1)) -> list[api_async.AsyncJob]:
        return [AsyncJob(self, facts) for facts in await self._call(commands.read_claim(consumer, number, shard))]

    async def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        return await self._call(commands.ack_claims(consumer, upto, token))

    async def execute(self, *words: str | bytes | int) -> Any:
        """Send any command and return the reply unchanged.

        Raises ConnectionLost if the reply was lost; the command may have been executed.
        """
        return await self._call(commands.execute(words))

    async def renew_claims(self, consumer: str, *, lease: Seconds | None = None, token: int = 0) -> int:
        return await self._call(commands.renew_claims(consumer, lease, token))

    async def release_claims(self, consumer: str, *, token: int = 0) -> int:
        return await self._call(commands.release_claims(consumer, token))

    async def claim_info(self, consumer: str) -> ClaimInfo:
        return await self._call(commands.claim_info(consumer))

    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> AsyncStage:
        return AsyncStage(self, to_bytes(name, "the name of a stage"), expire)

    async def publish(self, *stages: api_async.AsyncStage | str | bytes) -> int:
        return await self._close_stages(b"PUBLISH", stages)

    async def discard(self, *stages: api_async.AsyncStage | str | bytes) -> int:
        return await self._close_stages(b"DISCARD", stages)

    async def _close_stages(self, word: bytes, stages: Iterable[api_async.AsyncStage | str | bytes]) -> int:
        names = [each._name if isinstance(each, AsyncStage) else each for each in stages]
        return await self._call(commands.close_stages(word, names))

    async def create_batch(
        self, name: str | bytes, *, then: api_async.AsyncFollowUps = (), expire: Seconds | None = None
    ) -> None:
        raw = to_bytes(name, "the name of a batch")
        await self._call(commands.create_batch(raw, self._follow_ups(then), expire))

    async def seal_batch(self, name: str | bytes) -> int:
        return await self._call(commands.seal_batch(to_bytes(name, "the name of a batch")))

    async def batch_info(self, name: str | bytes) -> BatchInfo:
        return await self._call(commands.batch_info(to_bytes(name, "the name of a batch")))

    def _follow_ups(self, then: api_async.AsyncFollowUps) -> list[tuple[bytes, Draft]]:
        """Return the name of the tube and the draft of each job that follows."""
        return [
            (to_bytes(tube, "a tube's name") if isinstance(tube, (str, bytes)) else self._tube_name(tube), draft)
            for tube, draft in map(follow_up_draft, then)
        ]

    async def session_events(
        self, after: int = 0, timeout: Duration = 0, *, tube: api_async.AsyncTube | None = None
    ) -> SessionEvents:
        place = None if tube is None else self._tube_name(tube)
        return await self._call(commands.session_events(after, timeout, place))

    async def close(self) -> None:
        await self._session.close()

    def __repr__(self) -> str:
        return f"<penstock queue at {self._target}>"


class _AsyncSubscription:
    """An asyncio task or thread that reads the journal of the server and calls a subscriber."""

    def __init__(
        self, session: AsyncSession, callback: Callable[[Change], None], tube: bytes | None, position: int
    ) -> None:
        self._session = session
        self._callback = callback
        self._tube = tube
        self._position = position
        self._cancelled = False
        self._stop = session.start(self._run)

    def cancel(self) -> None:
        """End the subscription. The subscriber is not called again."""
        self._cancelled = True
        self._stop()

    async def _run(self) -> None:
        search = Backoff(None)
        while not self._cancelled:
            call = commands.journal_events(self._position, self._tube, commands.EVENTS_WAIT_MS)
            try:
                self._position, found = await self._session.call(call)
            except CommandError:
                return  # The session is closed, or the history at this position was deleted.
            except PenstockError:
                # The server was not reachable for as long as a call tries. Keep trying.
                await asyncio.sleep(search.pause() or 0)
                continue
            search = Backoff(None)
            for event in found:
                change = commands.change(event)
                if change is not None and not self._cancelled:
                    self._report(change)

    def _report(self, change: Change) -> None:
        try:
            self._callback(change)
        except Exception as error:
            # Other subscribers go on, even where warnings are errors.
            with contextlib.suppress(Warning):
                warnings.warn(f"subscriber failed: error={error!r}", RuntimeWarning, stacklevel=1)


class AsyncStage(api_async.AsyncStage):
    """A stage on a server."""

    __slots__ = ("_expire_ms", "_name", "_queue")

    def __init__(self, queue: AsyncQueue, name: bytes, expire: Seconds | None) -> None:
        self._queue: AsyncQueue = queue
        self._name = name
        self._expire_ms = UNSET if expire is None else duration_ms(expire, "expire")

    @property
    def name(self) -> str:
        return to_text(self._name)

    async def put_many(
        self, tube: api_async.AsyncTube | str | bytes, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[api_async.AsyncJob]:
        place = to_bytes(tube, "a tube's name") if isinstance(tube, (str, bytes)) else self._queue._tube_name(tube)
        call = commands.stage(self._name, place, self._expire_ms, bodies, options)
        return [] if call is None else [AsyncJob(self._queue, facts) for facts in await self._queue._call(call)]


class AsyncTube(KnownTube, api_async.AsyncTube):
    """A tube on a server."""

    __slots__ = ("_call", "_policy", "_queue", "_raw")

    def __init__(self, queue: AsyncQueue, raw: bytes, policy: TubePolicy) -> None:
        self._queue = queue
        self._call = queue._call
        self._raw = raw
        self._policy = policy

    @property
    def type(self) -> str:
        return self._policy.type

    @property
    def policy(self) -> TubePolicy:
        return self._policy

    async def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> AsyncJob:
        given = commands.put_options(self._policy, options)
        return AsyncJob(self._queue, await self._call(commands.put(self._raw, body, timeout, given)))

    async def put_many(
        self, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[api_async.AsyncJob]:
        call = commands.put_many(self._raw, bodies, options)
        return [] if call is None else [AsyncJob(self._queue, facts) for facts in await self._call(call)]

    async def take(self, timeout: Duration = 0, **options: Unpack[TakeOptions]) -> api_async.AsyncJob | None:
        if timeout == 0 and not options:
            found = await self._call(commands.take_one(self._raw))
            return AsyncJob(self._queue, found[0]) if found else None
        key, ttr_ms = take_options("take", options)
        jobs = await self._queue._take([self._raw], 1, timeout, key, ttr_ms)
        return jobs[0] if jobs else None

    async def take_many(
        self, count: int, timeout: Duration = 0, **options: Unpack[TakeOptions]
    ) -> list[api_async.AsyncJob]:
        key, ttr_ms = take_options("take_many", options, "count")
        return await self._queue._take([self._raw], count, timeout, key, ttr_ms)

    async def job(self, id: str) -> AsyncJob:
        facts = await self._call(commands.peek(id))
        if facts.raw_tube != self._raw:
            raise UnknownJob()
        return AsyncJob(self._queue, facts)

    async def named(self, name: str | bytes) -> AsyncJob:
        return AsyncJob(self._queue, await self._call(commands.named(self._raw, name)))

    async def jobs(self, state: StateName, limit: int = 1_000) -> list[api_async.AsyncJob]:
        return [AsyncJob(self._queue, facts) for facts in await self._call(commands.list_jobs(self._raw, state, limit))]

    async def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        return await self._call(commands.kick(self._raw, count, delay, ttl))

    async def release_all(self) -> int:
        return await self._call(commands.release_all(self._raw))

    async def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        await self._call(commands.pause(self._raw, puts, takes))

    async def alter(self, **options: Unpack[TubeOptions]) -> None:
        self._policy = await self._call(commands.alter(self._raw, dict(options)))

    async def truncate(self) -> int:
        return await self._call(commands.truncate(self._raw))

    async def drop(self) -> None:
        await self._call(commands.drop(self._raw))

    async def info(self) -> dict[str, Any]:
        return await self._call(commands.tube_stats(self._raw, commands.info))

    async def stats(self) -> dict[str, int]:
        return await self._call(commands.tube_stats(self._raw, commands.states))

    async def keys(self, count: int = 100) -> list[dict[str, Any]]:
        return await self._call(commands.tube_keys(self._raw, count))

    async def causes(self, count: int = 100) -> list[dict[str, Any]]:
        return await self._call(commands.tube_causes(self._raw, count))

    async def events(self) -> dict[str, int]:
        return await self._call(commands.tube_stats(self._raw, lambda answer: commands.counts(answer[b"events"])))

    async def transitions(self) -> dict[str, int]:
        return await self._call(commands.tube_stats(self._raw, lambda answer: commands.counts(answer[b"transitions"])))

    async def durations(self) -> dict[str, Durations]:
        return await self._call(commands.tube_stats(self._raw, commands.durations))

    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        return await self._queue._subscribe(callback, self._raw)

    async def claim(
        self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0
    ) -> list[api_async.AsyncJob] | None:
        found = await self._call(commands.claim(self._raw, consumer, number, count, lease, token))
        return None if found is None else [AsyncJob(self._queue, facts) for facts in found]


class AsyncJob(AsyncJobHandle):
    """A job on a server."""

    __slots__ = ()

    _queue: AsyncQueue

    async def ack(self, *, then: api_async.AsyncFollowUps = ()) -> list[api_async.AsyncJob]:
        return await self._settle(commands.ack(self.id), then)

    async def done(
        self, result: Body, *, ttl: Duration | EllipsisType = ..., then: api_async.AsyncFollowUps = ()
    ) -> list[api_async.AsyncJob]:
        jobs = await self._settle(commands.done(self.id, result, ttl), then)
        self._facts.is_guess = False
        self._facts.raw_body, self._facts.body_kind = encode_body(result)
        return jobs

    async def release(self, delay: Seconds = 0, **options: Unpack[ReleaseOptions]) -> None:
        await self._finish(commands.release(self.id, delay, options, self._hold()))

    async def requeue(self) -> None:
        await self._finish(commands.requeue(self.id, self._hold()))

    async def nack(
        self, reason: str = "", *, delay: Seconds | None = None, then: api_async.AsyncFollowUps = ()
    ) -> list[api_async.AsyncJob]:
        jobs = await self._settle(commands.nack(self.id, reason, self._hold(), delay), then)
        self._facts.nacks += 1
        return jobs

    async def bury(self, reason: str = "", *, then: api_async.AsyncFollowUps = ()) -> list[api_async.AsyncJob]:
        return await self._settle(commands.bury(self.id, reason, self._hold()), then)

    async def touch(self, seconds: Seconds | None = None) -> None:
        await self._queue._call(commands.touch(self.id, seconds))

    async def dig(self, delay: Seconds = 0, *, ttl: Duration | None = None, priority: int | None = None) -> None:
        await self._finish(commands.dig(self.id, delay, ttl, priority))

    async def delete(self) -> None:
        await self._finish(commands.delete(self.id))

    async def snatch(self, delay: Seconds = 0) -> None:
        await self._finish(commands.snatch(self.id, delay))

    async def restart(self, delay: Seconds = 0) -> None:
        await self._finish(commands.restart(self.id, delay))

    async def set_priority(self, priority: int) -> None:
        await self._queue._call(commands.set_priority(self.id, priority))

    async def run_now(self) -> None:
        await self._queue._call(commands.run_now(self.id))

    async def edit(self, body: Body) -> None:
        await self._queue._call(commands.edit(self.id, body))
        self._facts.raw_body, self._facts.body_kind = encode_body(body)

    async def switch(self, state: StateName, delay: Seconds = 0) -> None:
        await self._finish(commands.switch(self.id, state, delay))

    async def move(self, tube: api_async.AsyncTube, delay: Seconds = 0) -> None:
        name = self._queue._tube_name(tube)
        await self._finish(commands.move(self.id, name, delay))
        self._facts.raw_tube = name

    async def wait(self, timeout: Duration = None) -> JobOutcome:
        return await self._known_outcome(await self._queue._call(commands.wait(self.id, self._facts.raw_tube, timeout)))

    async def _known_outcome(self, ended: JobOutcome) -> JobOutcome:
        """Return an outcome. If the server only knows that the job is gone, look for its end in the history."""
        if ended.outcome != "gone":
            return ended
        try:
            return await self._queue._call(commands.ended_before(self.id))
        except CommandError:
            return ended  # The server has no history of the job, or this user may not read it.

    async def cancel(self, reason: str = "") -> bool:
        return await self._queue._call(commands.cancel(self.id, reason))

    async def report(self, value: Body) -> None:
        await self._queue._call(commands.report(self.id, value))

    async def watch(self, after: int = 0, timeout: Duration = None) -> JobProgress:
        news = await self._queue._call(commands.watch(self.id, self._facts.raw_tube, after, timeout))
        return news if news.outcome is None else news._replace(outcome=await self._known_outcome(news.outcome))

    async def history(self) -> list[Event]:
        return await self._queue._call(commands.history(self.id))

    async def meta(self) -> dict[str, Any]:
        meta = await self._queue._call(commands.job_meta(self.id))
        self._facts.state = meta["state"]
        return meta

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        try:
            await self._finish(commands.leave(self._facts, kind, error))
        except PenstockError:
            # The session lost the job, or the server is gone. The error of the block is more important.
            if kind is None:
                raise

    async def _settle(self, call: Call[None], then: api_async.AsyncFollowUps) -> list[api_async.AsyncJob]:
        """Send a call that ends the delivery of the job, and put the jobs of `then`. Return these jobs."""
        named = self._queue._follow_ups(then)
        if not named:
            await self._finish(call)
            return []
        found = await self._finish(commands.then(call, self._facts.hold(), named))
        return [AsyncJob(self._queue, facts) for facts in found]

    async def _finish(self, call: Call[T]) -> T:
        """Send a call after which this session no longer holds the job."""
        try:
            result = await self._queue._call(call)
        except (UnknownJob, NotTaken, NotOwner):
            self._queue._session.held_jobs.remove(self.id, call.hold())
            raise
        self._queue._session.held_jobs.remove(self.id, call.hold())
        self._finished = True
        return result
