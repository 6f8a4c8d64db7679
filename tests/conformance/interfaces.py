"""Adapters for all interfaces of a queue, so that a scenario is written once and runs over all of them.

A scenario is written for the async interfaces: calls that may take time are awaited, and values that a handle has by
itself (`job.id`, `tube.name`) are attributes. `Awaited` gives the sync interfaces the same form. The present state of a
job is not an attribute of clients, because they have to ask the server: scenarios use `state_of` and `queue.job(id)`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import penstock
from penstock.client import async_queue as client_async
from penstock.client import queue as client
from penstock.core.errors import UnknownJob
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.journal.identity import identity
from penstock.journal.real_disk import RealDisk
from tests.server.serving import Server, Wire

# Far longer than any scenario takes: a test that needs this long has lost a wake-up.
PATIENCE_S = 10.0

# The place of queues with a journal: in memory if the system supports it, because these scenarios do not test disks.
JOURNALS = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Interface:
    """One interface to a queue."""

    # Whether a handle shows changes by other sessions at once.
    is_live = True

    def __init__(self, journal: bool = False) -> None:
        self._journal = journal

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Any]:
        """Open a queue for a scenario. It is always closed at the end."""
        with TemporaryDirectory(dir=JOURNALS) if self._journal else nullcontext(":memory:") as path:
            async with self.opened(path, **options) as queue:
                try:
                    yield queue
                finally:
                    # An open session keeps the queue and its directory open.
                    await close_others()

    def opened(self, path: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        """Open a queue in a directory or in memory."""
        raise NotImplementedError

    async def vanish(self, queue: Any) -> None:
        """End a session as if its process had ended. Its grace time begins."""
        await settled(queue.close())

    def waiting(self, queue: Any) -> int:
        """Return how many calls of this session wait now: for a take, for a put, or for the end of a job."""
        raise NotImplementedError

    def hex_id(self, job: Any) -> str:
        """Return the id of a job in its other form."""
        raise NotImplementedError


class AsyncFace(Interface):
    """The embedded queue for asyncio, without an adapter."""

    @asynccontextmanager
    async def opened(self, path: str, **options: Any) -> AsyncIterator[Any]:
        async with penstock.open_async(path, **options) as queue:
            yield queue

    def waiting(self, queue: Any) -> int:
        return len(queue.sync._session.connection.waits)

    def hex_id(self, job: Any) -> str:
        return job.sync._tube._host.ids.hex(job.sync._core.id).decode()


class SyncFace(Interface):
    """The blocking embedded queue. Each call that may sleep gets its own thread."""

    @asynccontextmanager
    async def opened(self, path: str, **options: Any) -> AsyncIterator[Any]:
        with penstock.open(path, **options) as queue:
            yield Awaited(queue)

    def waiting(self, queue: Any) -> int:
        return len(queue.inner._session.connection.waits)

    def hex_id(self, job: Any) -> str:
        return job.inner._tube._host.ids.hex(job.inner._core.id).decode()


class Servers:
    """Servers that all scenarios share. They are started at the first use and stopped at the end."""

    def __init__(self) -> None:
        self._homes: list[TemporaryDirectory[str]] = []
        self.all: list[Server] = []

    def server(self, number: int) -> Server:
        if number == len(self.all):
            self._homes.append(TemporaryDirectory(dir=JOURNALS))
            self.all.append(Server(Path(self._homes[-1].name), "--dir", "."))
        return self.all[number]

    def stop(self) -> None:
        for server, home in zip(self.all, self._homes, strict=True):
            server.stop()
            home.cleanup()


SERVERS = Servers()


class ServerFace(Interface):
    """A server that all scenarios share. Each scenario finds it empty."""

    is_live = False

    def __init__(self) -> None:
        super().__init__()
        self._open = 0
        self._wires: dict[int, Wire] = {}

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Any]:
        if set(options) - {"grace"}:
            pytest.skip("a server is told this when it is started")
        # A second queue at the same time belongs to another server.
        number = self._open
        self._wire(number).call("DEBUG", "FLUSHALL")
        self._open += 1
        try:
            async with self.opened(f"penstock://127.0.0.1:{SERVERS.server(number).port}", **options) as queue:
                yield queue
                await close_others()
        finally:
            self._open -= 1

    def _wire(self, number: int) -> Wire:
        server = SERVERS.server(number)
        if number not in self._wires:
            self._wires[number] = server.connect()
        return self._wires[number]

    def _blocked(self, numbers: set[int]) -> int:
        """Return how many of these connections wait, as the server reports it."""
        lines = self._wire(0).call("CLIENT", "LIST").decode().splitlines()
        told = [dict(part.partition("=")[::2] for part in line.split(" ")) for line in lines]
        return sum(int(each["id"]) in numbers and "b" in each["flags"] for each in told)

    def hex_id(self, job: Any) -> str:
        for server in SERVERS.all:
            known = identity(RealDisk(str(server.home)))
            ids = IdForms(known.node[:8].encode(), known.key)
            number = ids.parse_long(job.id.encode())
            if number != NOT_AN_ID:
                return ids.hex(number).decode()
        raise AssertionError("it is of no server")


class AsyncServerFace(ServerFace):
    """The client for asyncio."""

    @asynccontextmanager
    async def opened(self, path: str, **options: Any) -> AsyncIterator[Any]:
        async with penstock.connect_async(path, **options) as queue:
            yield queue

    async def vanish(self, queue: Any) -> None:
        await queue._session._shared.finish()

    def waiting(self, queue: Any) -> int:
        return self._blocked({connection.number for connection in queue._session._waiting_connections})


class SyncServerFace(ServerFace):
    """The blocking client."""

    @asynccontextmanager
    async def opened(self, path: str, **options: Any) -> AsyncIterator[Any]:
        with penstock.connect(path, **options) as queue:
            yield Awaited(queue)

    async def vanish(self, queue: Any) -> None:
        for connection in queue.inner._session._idle:
            connection.finish()

    def waiting(self, queue: Any) -> int:
        return self._blocked({connection.number for connection in list(queue.inner._session._busy)})


FACES: dict[str, Interface] = {
    "memory-sync": SyncFace(),
    "memory-async": AsyncFace(),
    "server-sync": SyncServerFace(),
    "server-async": AsyncServerFace(),
}
# A journal does not change the results of a scenario, and it is slow: only in CI, or with PENSTOCK_FACES=all.
if os.environ.get("CI") == "true" or os.environ.get("PENSTOCK_FACES") == "all":
    FACES |= {"journal-sync": SyncFace(journal=True), "journal-async": AsyncFace(journal=True)}


_HANDLES = (
    penstock.Queue,
    penstock.Tube,
    penstock.Job,
    penstock.Stage,
    client.Queue,
    client.Tube,
    client.Job,
    client.Stage,
)


class Awaited:
    """A queue, tube or job of a sync interface in the form of its async twin."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return value

        async def call(*args: Any, **options: Any) -> Any:
            args = tuple(_plain(arg) for arg in args)
            options = {name: _plain(option) for name, option in options.items()}
            if _may_sleep(value, args, options):
                return _awaited(await in_thread(value, *args, **options))
            return _awaited(value(*args, **options))

        return call

    async def __aenter__(self) -> Awaited:
        self.inner.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        jobs = iter(self.inner)
        while True:
            yield _awaited(await in_thread(next, jobs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Awaited) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)


def _may_sleep(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    try:
        given = inspect.signature(function).bind(*args, **options)
    except TypeError:
        return False  # The call itself reports what is wrong.
    given.apply_defaults()
    timeout = given.arguments.get("timeout", 0)
    return timeout is None or (isinstance(timeout, (int, float)) and timeout > 0)


def _awaited(value: Any) -> Any:
    if isinstance(value, list):
        return [_awaited(item) for item in value]
    if type(value) is tuple:
        return tuple(_awaited(item) for item in value)
    return Awaited(value) if isinstance(value, _HANDLES) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if type(value) is tuple:
        return tuple(_plain(item) for item in value)
    return value.inner if isinstance(value, Awaited) else value


async def in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run a call in its own thread. An executor has too few threads, and waits for them at the end."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result(result) if error is None else outcome.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function(*args, **options)
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:
            pass  # The test is over, so the result is not needed.

    threading.Thread(target=run, daemon=True).start()
    return await outcome


async def settled(value: Any) -> Any:
    """Await a value if it is awaitable. Some interfaces answer at once, and others ask a server."""
    return await value if inspect.isawaitable(value) else value


_scenarios = [0]


def begin_scenario() -> None:
    """Begin another scenario."""
    _scenarios[0] += 1


def own(name: str) -> str:
    """Return a name that no other scenario uses, for names that a server keeps: consumers of claims, and stages."""
    return f"{name} {_scenarios[0]}"


async def state_of(job: Any) -> str:
    """Return the present state of a job. Only the client for asyncio has to await it."""
    if not isinstance(job, client_async.AsyncJob):
        return str(job.state)
    try:
        return str((await job.meta())["state"])
    except UnknownJob:
        return "gone"


async def another(queue: Any) -> Any:
    """Return another session on the same queue. It is closed with the scenario."""
    other = await settled(queue.session())
    _others.append(other)
    return other


_others: list[Any] = []


async def close_others() -> None:
    """Close the sessions of a scenario."""
    while _others:
        await settled(_others.pop().close())


async def eventually(condition: Callable[[], Awaitable[Any]] | Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not await settled(condition()):
        assert time.monotonic() < end, "this never came true"
        await asyncio.sleep(0.001)


async def code_of(call: Awaitable[Any]) -> str:
    """Return the error code of a refused call."""
    try:
        answer = await call
    except penstock.CommandError as refusal:
        return refusal.code
    raise AssertionError(f"it was not refused, but gave {answer!r}")
