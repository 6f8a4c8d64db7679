"""A batch of task calls with callbacks: what `app.batch(…)` returns.

    with app.batch("crawl 7", then=[report.call("crawl 7")]) as batch:
        batch.put_many(fetch.call(url) for url in urls)

At the end of the block the batch is sealed: the callbacks are put exactly once when all of its jobs have ended. If the
block fails, the batch stays open, and expires without its callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

from penstock import api, api_async
from penstock.options import BatchInfo, NewJob, Seconds
from penstock.tasks.call import TaskCall
from penstock.tasks.handle import AsyncHandle, Handle

R = TypeVar("R")


class BatchProducer(Protocol):
    """Puts the jobs of calls: an app, as its batches see it."""

    @property
    def queue(self) -> api.Queue:
        """The queue, for synchronous code."""

    @property
    def async_queue(self) -> api_async.AsyncQueue:
        """The queue, for asyncio."""

    def callback(self, call: TaskCall[Any]) -> tuple[str, NewJob]:
        """Return the tube and the job of a call that is put later."""

    async def acallback(self, call: TaskCall[Any]) -> tuple[str, NewJob]:
        """Return the tube and the job of a call that is put later, for asyncio."""

    def put_many(self, calls: Iterable[TaskCall[R]]) -> list[Handle[R]]:
        """Put a job for each call."""

    async def aput_many(self, calls: Iterable[TaskCall[R]]) -> list[AsyncHandle[R]]:
        """Put a job for each call, for asyncio."""


class TaskBatch:
    """A batch of calls. Use it in a `with` or an `async with` block."""

    def __init__(self, app: BatchProducer, name: str, then: Sequence[TaskCall[Any]], expire: Seconds | None) -> None:
        self.name = name
        self._app = app
        self._then = then
        self._expire = expire

    def put(self, call: TaskCall[R]) -> Handle[R]:
        """Put a call as a member of the batch. Return its handle."""
        return self.put_many([call])[0]

    def put_many(self, calls: Iterable[TaskCall[R]]) -> list[Handle[R]]:
        """Put calls as members of the batch. The jobs of one tube are put together, all or none of them."""
        return self._app.put_many([call.with_options(batch=self.name) for call in calls])

    async def aput(self, call: TaskCall[R]) -> AsyncHandle[R]:
        """Put a call as a member of the batch, for asyncio. Return its handle."""
        return (await self.aput_many([call]))[0]

    async def aput_many(self, calls: Iterable[TaskCall[R]]) -> list[AsyncHandle[R]]:
        """Put calls as members of the batch, for asyncio."""
        return await self._app.aput_many([call.with_options(batch=self.name) for call in calls])

    def info(self) -> BatchInfo:
        """Return the state of the batch and the numbers of its members."""
        return self._app.queue.batch_info(self.name)

    async def ainfo(self) -> BatchInfo:
        """Return the state of the batch and the numbers of its members, for asyncio."""
        return await self._app.async_queue.batch_info(self.name)

    def __enter__(self) -> TaskBatch:
        callbacks = [self._app.callback(call) for call in self._then]
        self._app.queue.create_batch(self.name, then=callbacks, expire=self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._app.queue.seal_batch(self.name)

    async def __aenter__(self) -> TaskBatch:
        callbacks = [await self._app.acallback(call) for call in self._then]
        await self._app.async_queue.create_batch(self.name, then=callbacks, expire=self._expire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._app.async_queue.seal_batch(self.name)
