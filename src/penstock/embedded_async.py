"""A queue in this process for asyncio: the implementation of the types of `api_async.py` for `penstock.open_async`.

Each object wraps a blocking object of `embedded.py`. A call that cannot wait runs directly in the event loop and
returns when its effect is durable (`_AsyncWrapper`). A call that can wait for a job, for room or for the end of a job
suspends its asyncio task. A call that can read or write many bytes of files runs in a thread. Threads and asyncio
tasks can share a queue: `sync` returns the wrapped blocking object.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import operator
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack

from penstock import api_async
from penstock.core import stages as stage_commands
from penstock.core.engine import Engine
from penstock.core.errors import Full
from penstock.core.limits import UNSET
from penstock.core.waits import END_UNKNOWN, Waiting
from penstock.embedded import (
    Closing,
    Job,
    Queue,
    Tube,
    as_jobs,
    outcome_of,
    stage_names,
    take_now,
    time_left,
)
from penstock.host.host import Host
from penstock.host.pending_delivery import PendingDelivery
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.reader import Event
from penstock.options import (
    Body,
    Duration,
    JobOutcome,
    JobProgress,
    PutOptions,
    Seconds,
    SessionEvents,
    TakeOptions,
    duration_ms,
    integer,
    take_options,
)

# The number of events that a thread reads at a time.
_EVENTS_TOGETHER: Final = 1_000

# Calls that read or write files, and so run in a thread.
_IN_THREAD: Final = ("history", "checkpoint", "close")

P = ParamSpec("P")
T = TypeVar("T")


async def _call(host: Host, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of `embedded.py`. Return, or raise, when everything that the result depends on is durable."""
    try:
        return function(*args, **kwargs)
    finally:
        await host.until_durable()


async def _in_thread(function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


class _AsyncWrapper:
    """An asyncio object that wraps a blocking one and passes on all calls that it does not implement itself."""

    __slots__ = ("_inner", "_queue")

    _inner: Any
    _queue: AsyncQueue

    @classmethod
    def _of(cls, queue: AsyncQueue, inner: Any) -> Self:
        self = cls()
        self._queue, self._inner = queue, inner
        return self

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        abstract = {name for base in cls.__mro__ for name in getattr(base, "__abstractmethods__", ())}
        for name in abstract - set(vars(cls)):
            template = inspect.getattr_static(cls, name)
            if isinstance(template, property):
                setattr(cls, name, property(operator.attrgetter(f"_inner.{name}"), doc=template.__doc__))
            else:
                setattr(cls, name, _delegate(name, template))


def _delegate(name: str, template: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls the method `name` of the wrapped object. It has the signature of `template`."""

    @functools.wraps(template, updated=())
    async def call(self: _AsyncWrapper, *args: Any, **kwargs: Any) -> Any:
        # A queue that refers to itself would outlive its last user.
        queue = self if isinstance(self, AsyncQueue) else self._queue
        function = getattr(self._inner, name)
        args = tuple(_inner_of(each) for each in args)
        kwargs = {keyword: _inner_of(each) for keyword, each in kwargs.items()}
        if "then" in kwargs:
            kwargs["then"] = [
                tuple(map(_inner_of, each)) if isinstance(each, tuple) else each for each in kwargs["then"]
            ]
        if name in _IN_THREAD:
            return await _in_thread(functools.partial(function, *args, **kwargs))
        return _front_of(queue, await _call(queue._host, function, *args, **kwargs))

    return call


def _inner_of(value: Any) -> Any:
    """Return the blocking object that an argument wraps, or the argument itself if it wraps none."""
    return value._inner if isinstance(value, _AsyncWrapper) else value


def _front_of(queue: AsyncQueue, value: Any) -> Any:
    """Return a result in which each job and tube is wrapped in its asyncio object."""
    if isinstance(value, Job):
        return AsyncJob._of(queue, value)
    if isinstance(value, Tube):
        return AsyncTube._of(queue, value)
    # The elements of a list have one type. A scan returns a list and a cursor.
    if isinstance(value, list) and value and isinstance(value[0], Job):
        return [AsyncJob._of(queue, job) for job in value]
    return tuple(_front_of(queue, each) for each in value) if type(value) is tuple else value


class _Task:
    """An asyncio task that waits for a change of the queue.

    While it waits, it does not run the timers of the queue for other waiters, because its event loop can be busy.
    """

    __slots__ = ("_event", "_loop")

    keeps_time = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def sleep(self, timeout_ms: int) -> None:
        """Sleep until woken, or for `timeout_ms`; a negative time means no limit."""
        try:
            async with asyncio.timeout(None if timeout_ms < 0 else timeout_ms / 1000):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    def wake(self) -> None:
        """Wake the task, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # Its event loop is closed, so the task is gone.


async def _sleep_through(host: Host, wait: Waiting, sleeper: _Task) -> None:
    """Sleep until a wait is over and the change that ended it is durable."""
    try:
        while (timeout_ms := host.sleep_ms(wait, sleeper)) is not None:
            await sleeper.sleep(timeout_ms)
        await host.until_durable()
    except BaseException:
        host.cancel_wait(wait)
        raise
    finally:
        host.stop_sleeping(sleeper)


def wrap(queue: Queue) -> AsyncQueue:
    """Wrap a blocking queue for asyncio. Both use the same session."""
    return AsyncQueue._around(queue)


class AsyncQueue(_AsyncWrapper, api_async.AsyncQueue):
    """A session on a queue in this process, for asyncio."""

    def __init__(self, queue: Queue) -> None:
        self._sync = queue
        self._inner: Queue = Queue(queue._session.for_tasks(), queue)
        self._host = queue._host

    @classmethod
    def _around(cls, queue: Queue) -> Self:
        # mypy takes the class for abstract, because `_AsyncWrapper` adds its methods at run time. `cls` is allowed.
        return cls(queue)

    @property
    def sync(self) -> Queue:
        return self._sync

    async def session(self) -> AsyncQueue:
        return wrap(self.sync.session())

    async def take(
        self, tubes: Iterable[api_async.AsyncTube], count: int = 1, timeout: Duration = 0
    ) -> list[api_async.AsyncJob]:
        is_list = isinstance(tubes, Iterable) and not isinstance(tubes, (str, bytes))
        places = self._inner._own([_inner_of(tube) for tube in tubes] if is_list else _inner_of(tubes))
        return await self._take(places, count, timeout, None, UNSET)

    async def ack(self, jobs: Iterable[api_async.AsyncJob]) -> int:
        return await _call(self._host, self._inner.ack, [_inner_of(job) for job in jobs])

    async def events(self, start: int = 1) -> AsyncIterator[Event]:
        return _read_on(self._inner.events(start))

    async def digests(self, start: int = 1, end: int | None = None) -> AsyncIterator[BlockDigest]:
        return _read_on(await _in_thread(self._inner.digests, start, end))

    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> AsyncStage:
        return AsyncStage._of(self, self._inner.stage(name, expire=expire))

    async def publish(self, *stages: api_async.AsyncStage | str | bytes) -> int:
        return await self._close_stages(stage_commands.publish, stages)

    async def discard(self, *stages: api_async.AsyncStage | str | bytes) -> int:
        return await self._close_stages(stage_commands.discard, stages)

    async def _close_stages(
        self, close: Callable[[Engine, list[bytes], int], int], stages: Iterable[api_async.AsyncStage | str | bytes]
    ) -> int:
        names = stage_names(_inner_of(each) for each in stages)
        closing: Closing = await _call(self._host, self._inner._close_stages, close, names)
        while stage_commands.are_closing(closing.left):
            # One turn's worth at a time, so that other tasks run in between.
            await asyncio.sleep(0)
            await _call(self._host, self._inner._go_on_closing, closing)
        return closing.jobs

    async def session_events(
        self, after: int = 0, timeout: Duration = 0, *, tube: api_async.AsyncTube | None = None
    ) -> SessionEvents:
        sleeper = _Task()
        wait = self._inner._begin_session_events(after, timeout, _inner_of(tube), sleeper)
        await _sleep_through(self._host, wait, sleeper)
        return self._inner._session_events(wait)

    async def close(self) -> None:
        await _in_thread(self.sync.close)

    async def _take(
        self, tubes: list[Tube], count: int, timeout: Duration, key: bytes | None, ttr_ms: int
    ) -> list[api_async.AsyncJob]:
        number = integer(count, "count")
        left = time_left(self._host, duration_ms(timeout, "timeout"))
        while handed := await self._take_cores(tubes, number, left(), key, ttr_ms):
            if jobs := await self._jobs(handed):
                return [AsyncJob._of(self, job) for job in jobs]
        return []

    async def _take_cores(
        self, tubes: list[Tube], number: int, timeout_ms: int, key: bytes | None, ttr_ms: int
    ) -> PendingDelivery | None:
        host, session = self._host, self._inner._session
        with session.lock, session:
            cores = [tube._live() for tube in tubes]
            handed = PendingDelivery(take_now(self._inner, tubes, number, key, ttr_ms))
            wait = sleeper = None
            if not handed.jobs and timeout_ms > 0:
                sleeper = _Task()
                wait = host.engine.wait(session.connection, cores, host.now(), timeout_ms, number, key, ttr_ms, sleeper)
        if wait is not None and sleeper is not None:
            await _sleep_through(host, wait, sleeper)
            handed = PendingDelivery(wait.jobs, wait.deliveries)
            if not wait.jobs:
                # Raise Closed if the session was closed meanwhile.
                with session.lock, session:
                    return None
        else:
            try:
                await host.until_durable()
            except BaseException:
                host.undeliver(handed)
                raise
        return handed if handed.jobs else None

    async def _jobs(self, handed: PendingDelivery) -> list[Job]:
        """Return the asyncio objects of taken jobs. A thread reads the bodies that are on disk."""
        if all(isinstance(core.body, bytes) for core in handed.jobs):
            return as_jobs(self._inner, handed)
        try:
            return await _in_thread(as_jobs, self._inner, handed)
        except asyncio.CancelledError:
            self._host.undeliver_quietly(handed)
            raise


async def _read_on(found: Iterator[T]) -> AsyncIterator[T]:
    """Yield events or digests, which a thread reads from disk in batches."""
    some: list[T]
    while some := await _in_thread(lambda: list(islice(found, _EVENTS_TOGETHER))):
        for each in some:
            yield each


class AsyncStage(_AsyncWrapper, api_async.AsyncStage):
    """A stage of a queue in this process, for asyncio."""

    __slots__ = ()


class AsyncTube(_AsyncWrapper, api_async.AsyncTube):
    """A tube of a queue in this process, for asyncio."""

    __slots__ = ()

    _inner: Tube

    @property
    def sync(self) -> Tube:
        return self._queue.sync._tube(self._inner._core)

    async def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> api_async.AsyncJob:
        timeout_ms = duration_ms(timeout, "timeout")
        tube, host, session = self._inner, self._queue._host, self._inner._session
        try:
            return AsyncJob._of(self._queue, await _call(host, lambda: tube.put(body, **options)))
        except Full:
            if timeout_ms == 0:
                raise
        sleeper = _Task()
        with session.lock, session:
            asked = tube._draft("put", body, options)
            wait = host.engine.wait_put(session.connection, tube._live(), asked, host.now(), timeout_ms, sleeper)
        await _sleep_through(host, wait, sleeper)
        return AsyncJob._of(self._queue, Job(tube, tube._put_at_last(wait)))

    async def take(self, timeout: Duration = 0, **options: Unpack[TakeOptions]) -> api_async.AsyncJob | None:
        jobs = await self._queue._take([self._inner], 1, timeout, *take_options("take", options))
        return jobs[0] if jobs else None

    async def take_many(
        self, count: int, timeout: Duration = 0, **options: Unpack[TakeOptions]
    ) -> list[api_async.AsyncJob]:
        return await self._queue._take([self._inner], count, timeout, *take_options("take_many", options, "count"))


class AsyncJob(_AsyncWrapper, api_async.AsyncJob):
    """A job of a queue in this process, for asyncio. Its properties are current."""

    __slots__ = ()

    _inner: Job

    @property
    def sync(self) -> Job:
        return self._queue.sync._tube(self._inner._tube._core)._job(self._inner._core)

    def __repr__(self) -> str:
        return repr(self._inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJob) and self._inner == other._inner

    def __hash__(self) -> int:
        return hash(self._inner)

    async def wait(self, timeout: Duration = None) -> JobOutcome:
        host, session = self._queue._host, self._inner._tube._session
        sleeper = _Task()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.lock, session:
            wait = self._inner._wait(timeout_ms, sleeper)
        await _sleep_through(host, wait, sleeper)
        ended = outcome_of(wait)
        return ended if ended.outcome != "gone" else await _in_thread(self._inner._in_history)

    async def watch(self, after: int = 0, timeout: Duration = None) -> JobProgress:
        host, session = self._queue._host, self._inner._tube._session
        sleeper = _Task()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.lock, session:
            wait = self._inner._watch(integer(after, "after"), timeout_ms, sleeper)
        await _sleep_through(host, wait, sleeper)
        # The outcome of a job that ended earlier may have to be read from the journal.
        return await _in_thread(self._inner._watched, wait) if wait.end == END_UNKNOWN else self._inner._watched(wait)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _call(self._queue._host, self._inner.__exit__, kind, error, trace)
