"""The differences between the blocking and the asyncio handles of the client. `async_queue.py` has the common code.

A property cannot be awaited. So for some properties, a blocking handle asks the server, but an asyncio handle returns
the last known value: `job.state`, and the body and headers of a job that was put with `unique` or `dedup`.
"""

from __future__ import annotations

from typing import Any, Self

from penstock import api, api_async
from penstock.client import commands
from penstock.client.async_session import AsyncSession
from penstock.client.facts import KnownJob
from penstock.client.pipeline import Pipeline
from penstock.client.session import Session
from penstock.core.errors import UnknownJob


class AsyncQueueHandle(api_async.AsyncQueue):
    """A session on a server, for asyncio."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._call = session.call
        self._target = session.target

    async def __aenter__(self) -> Self:
        await self._session.connect()
        return self


class QueueHandle(api.Queue):
    """A session on a server, with blocking calls."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._call = session.call
        self._target = session.target

    def pipeline(self) -> Pipeline:
        """Return a pipeline, which sends many commands in one round trip: `with queue.pipeline() as p:`."""
        return Pipeline(self._session)


class AsyncJobHandle(KnownJob, api_async.AsyncJob):
    """A job on a server, for asyncio."""

    __slots__ = ()

    @property
    def state(self) -> str:
        return self._facts.state

    @property
    def body(self) -> Any:
        return self._facts.body()


class JobHandle(KnownJob, api.Job):
    """A job on a server, with blocking calls."""

    __slots__ = ()

    @property
    def state(self) -> str:
        queue: QueueHandle = self._queue
        try:
            return queue._call(commands.state_of(self.id))
        except UnknownJob:
            return "gone"

    @property
    def body(self) -> Any:
        self._verify()
        return self._facts.body()

    @property
    def headers(self) -> dict[str, str]:
        self._verify()
        return super().headers

    def _verify(self) -> None:
        """Ask the server for a job that was put with `unique` or `dedup`. An existing job can have another body."""
        if self._facts.is_guess:
            try:
                self._facts = self._queue._call(commands.peek(self.id))
            except UnknownJob:
                self._facts.is_guess = False
