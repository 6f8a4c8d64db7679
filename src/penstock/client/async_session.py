"""A session on a server, for asyncio. It implements the abstract methods of `base_session.py`.

All asyncio tasks share one connection for calls that do not wait. A call that waits has a connection to itself. If an
asyncio task is cancelled while it waits for a job, the client closes its side of the connection. The server then
replies immediately. If that reply contains jobs, they go back to their tubes.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.client import commands
from penstock.client.addresses import Address
from penstock.client.async_connection import AsyncConnection
from penstock.client.backoff import MARGIN_S, Backoff, Deadline, end_of
from penstock.client.base_session import IDLE_MAX, NO_DEADLINE, TAKES_END_S, BaseSession
from penstock.client.commands import Call
from penstock.client.handshake import LOST, refusal
from penstock.client.job_origins import JobOrigins
from penstock.client.url import address
from penstock.core.errors import BadAnswer, Closed, CommandError, ConnectionLost, NoServer, PenstockError
from penstock.core.limits import NEVER
from penstock.options import Seconds
from penstock.wire.resp_client import ErrorReply, encode

T = TypeVar("T")


class _Limit(Deadline):
    """A deadline that cancels its call when the timeout and a margin are over. A slow server gets a longer margin."""

    __slots__ = ("_margin_s", "_until", "is_answering", "timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, until: float, margin_s: float) -> None:
        super().__init__(until)
        self.is_answering = False
        self._until = loop.time() + until - time.monotonic()  # On the clock of the loop.
        self._margin_s = margin_s
        self.timeout = asyncio.timeout_at(self._until + MARGIN_S)

    def answering(self) -> int:
        """Record that a reply is expected now. Return the milliseconds that the server may wait before it replies."""
        self.is_answering = True
        self._reschedule(self._until + self._margin_s)
        # Rounded up, because a server that replies too early would be asked again.
        return math.ceil((self.until - time.monotonic()) * 1000)

    def reconnecting(self) -> None:
        self.is_answering = False
        self._reschedule(self._until + MARGIN_S)

    def _reschedule(self, when: float) -> None:
        if not self.timeout.expired():
            self.timeout.reschedule(when)


class AsyncSession(BaseSession[AsyncConnection]):
    """A session with its connections. It connects when it is used first."""

    _loop: asyncio.AbstractEventLoop | None = None
    _pid = 0

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reset the session when it is created, used in another event loop, or used in a child process.

        A connection belongs to one event loop.
        """
        outlives = self.has_grace
        self._begin_anew()
        self.has_grace = outlives
        self._loop = loop
        self._pid = os.getpid()
        self._connected = False
        self._shared: AsyncConnection | None = None
        self._idle: list[AsyncConnection] = []
        self._waiting_connections: set[AsyncConnection] = set()  # The connections of calls that wait.
        self._all: set[AsyncConnection] = set()  # Every connection that is not closed yet.
        self._opening = asyncio.Lock()
        self._takes = 0  # The number of takes in progress.
        self._settling: asyncio.Future[None] | None = None
        self._no_takes: asyncio.Event = asyncio.Event()
        self._chores: set[asyncio.Task[None]] = set()

    # Calls

    async def call(self, call: Call[T]) -> T:
        """Send a call and return its result."""
        self._check()
        until = end_of(call)
        if until == math.inf:
            return await self._call_settled(call, NO_DEADLINE)
        # A cancelled call loses no job, so the timeout may cancel it as its caller might.
        assert self._loop is not None
        limit = _Limit(self._loop, until, self._margin.seconds)
        error: NoServer | ConnectionLost = NoServer("the time of the call is over")
        try:
            async with limit.timeout:
                found = await self._call_settled(call, limit)
            self._margin.met()
            return found
        except TimeoutError:
            if self.closed:
                raise Closed() from None
            self.target.reach.lost(TimeoutError("the server does not answer"))
            if limit.is_answering:
                error = ConnectionLost()
                self._margin.missed()
        except (NoServer, ConnectionLost) as why:
            error = why
        return self._without_server(call, error, limit)

    def _check(self) -> None:
        self.check_open()
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._pid != os.getpid():
            self._begin(loop)

    async def connect(self) -> None:
        """Connect now, instead of with the first call."""
        self._check()
        await self._open(True)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _try(self, call: Call[T], deadline: Deadline) -> T:
        if call.wait_ms:
            connection = await self._own_connection(deadline)
            try:
                if isinstance(deadline, _Limit):
                    call.wait_at_most(deadline.answering())
                return self._read(connection, call, await self._send(connection, call))
            finally:
                self._release_connection(connection)
        else:
            shared = self._shared
            connection = shared if shared is not None and shared.lost is None else await self._open(True)
            if connection.is_full():
                await connection.drained()
            return self._read(connection, call, await self._send(connection, call))

    def _read(self, connection: AsyncConnection, call: Call[T], answer: Any) -> T:
        """Return the result in a reply. Close the connection if the reply is malformed."""
        if self.target.reach.lost_at is not None:
            self.target.reach.found(address(*self._addresses.current))
        if isinstance(answer, ErrorReply):
            raise refusal(answer)
        try:
            return call.read(answer)
        except BadAnswer as error:
            connection.abort(error)
            raise

    async def _send(self, connection: AsyncConnection, call: Call[Any]) -> Any:
        wait_s = None if call.wait_ms == NEVER else call.wait_ms / 1000
        waiting = connection.send(encode(call.words), call.delivered is not None, wait_s)
        try:
            return await waiting
        except asyncio.CancelledError:
            # The reply may have arrived in the same turn of the event loop.
            if (
                call.delivered is not None
                and waiting.done()
                and not waiting.cancelled()
                and waiting.exception() is None
            ):
                self._give_back_reply(waiting.result())
            raise

    async def _try_take(self, call: Call[T], deadline: Deadline) -> T:
        while self._settling is not None:
            await asyncio.shield(self._settling)
        self._takes += 1
        try:
            return self._record_jobs(call, await self._try(call, deadline))
        except LOST:
            # The lost reply may have contained jobs.
            self._in_doubt = True
            raise
        finally:
            self._end_take()

    def _end_take(self) -> None:
        self._takes -= 1
        if self._takes == 0:
            self._no_takes.set()

    # Connections

    async def _own_connection(self, deadline: Deadline) -> AsyncConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.lost is None:
                break
        else:
            connection = await self._open(False, deadline)
        self._waiting_connections.add(connection)
        return connection

    def _release_connection(self, connection: AsyncConnection) -> None:
        """Keep or close a connection that a call had to itself, because the call has ended.

        If the call was cancelled before its reply came, close this side, so that the server replies immediately. The
        call stays in the count of takes in progress until the connection is closed.
        """
        self._waiting_connections.discard(connection)
        if connection.lost is not None:
            return
        if connection.is_idle():
            if connection.token == self.token and len(self._idle) < IDLE_MAX and not self.closed:
                self._idle.append(connection)
            else:
                connection.abort(ConnectionAbortedError("it is not needed"))
        elif connection.can_close_write():
            self._takes += 1
            connection.close_write()
            self._do_later(self._await_close(connection))
        else:
            connection.abort(ConnectionAbortedError("its caller was cancelled"))

    async def _await_close(self, connection: AsyncConnection) -> None:
        try:
            async with asyncio.timeout(TAKES_END_S):
                await connection.wait_closed()
        except TimeoutError:
            connection.abort(ConnectionAbortedError("its caller was cancelled"))
        finally:
            self._end_take()

    async def _open(self, shared: bool, deadline: Deadline = NO_DEADLINE) -> AsyncConnection:
        """Return the connection that all tasks share, or one for a single call. Retry for the time `retry_for`."""
        search = Backoff(self.target.retry_s if self._connected else self.target.first_s, deadline.until)
        while True:
            # One at a time: the first connection begins the session, and the others join it.
            async with self._opening:
                if shared and self._shared is not None and self._shared.lost is None:
                    return self._shared
                found = await self._try_seeds(deadline)
                if isinstance(found, AsyncConnection):
                    if self.closed:
                        await found.finish()
                        raise Closed()
                    self._connected = True
                    self.target.reach.found(address(*self._addresses.current))
                    if shared:
                        self._shared = found
                    return found
            pause_s = search.pause()
            if pause_s is not None or self._connected:
                self.target.reach.lost(found)
            if pause_s is None:
                raise found
            await asyncio.sleep(pause_s)

    async def _connect(self, seed: Address, token: str, connect_s: float) -> AsyncConnection:
        connection = AsyncConnection(self._give_back_reply, self._settle_later, self._all.discard, self.target.answer_s)
        self._all.add(connection)
        await connection.open(self.target, seed, token, self.grace_ms, connect_s)
        return connection

    def _drop(self, connection: AsyncConnection) -> None:
        connection.abort(ConnectionAbortedError("its session was left"))

    async def _follow_jobs(self, sources: JobOrigins) -> None:
        to = self._target_of_move(sources)
        if to is None or self._takes or self._settling is not None or self._in_doubt:
            return
        if self.held_jobs.is_empty():
            sources.moved(time.monotonic())
            await self._move(to)

    async def _move(self, to: Address | None = None) -> None:
        if to is None:
            self._addresses.leave(self._addresses.current)
        else:
            self._addresses.current = to
        self.token = ""
        shared, self._shared = self._shared, None
        idle, self._idle = self._idle, []
        for connection in [*idle, *([] if shared is None else [shared])]:
            self._do_later(connection.finish())

    async def identify(self, token: str | None, grace: Seconds | None) -> None:
        """Join the session of another token. The previous session ends, unless it has another connection."""
        self._check()
        # All tasks share what is changed here, so cancelling the caller must not leave it half done.
        joining = asyncio.ensure_future(self._identify(commands.identify(token, grace), grace is not None))
        self.keep(joining)
        await asyncio.shield(joining)

    async def _identify(self, call: Call[tuple[str, int]], outlives: bool) -> None:
        # A user who names a session wants it on this node.
        self._sources = None
        await self._settle(NO_DEADLINE)
        # No take may begin meanwhile, and the jobs that are taken over must not be given back as lost ones.
        await self._begin_to_settle()
        try:
            joined, self.grace_ms = await self._call(call)
            self.has_grace = self.has_grace or outlives
            if joined != self.token:
                await self._change_to(joined)
        finally:
            self._end_settling()

    async def _change_to(self, joined: str) -> None:
        """Continue as the session that the shared connection has joined, and leave the previous session."""
        left, self.token = self.token, joined
        self.held_jobs.clear()
        idle, self._idle = self._idle, []
        shared = self._shared
        if shared is not None:
            shared.token = joined
            words = commands.leave_session(left, joined)
            try:
                await asyncio.gather(*(shared.send(encode(each)) for each in words))
            except LOST:
                pass  # The session ends when its grace time has passed.
        try:
            # A caller of the session received these jobs before.
            held = await self._call(commands.held(end_waits=False))
            self.held_jobs.add(dict.fromkeys(held, 0))
        except CommandError:
            pass  # This user may not ask for them.
        await asyncio.gather(*(connection.finish() for connection in idle))

    # Jobs in replies to cancelled calls

    def give_back_later(self, ids: list[str]) -> None:
        """Return jobs to their tubes, because their caller was cancelled before it received them."""
        self.held_jobs.remove_all(ids)
        self._settle_later()

    def _give_back_reply(self, answer: Any) -> None:
        """Return the jobs in the reply to a cancelled take to their tubes."""
        if isinstance(answer, list) and answer and not self.closed:
            try:
                ids = [job.id for job in commands.jobs(answer)]
            except Exception:
                # The reply is malformed, so it is unknown which jobs the session holds.
                self._settle_later()
            else:
                self._do_later(self._give_back(ids))

    def _settle_later(self) -> None:
        """Start to find the jobs of this session that no caller received, and to return them to their tubes."""
        if not self.closed:
            self._in_doubt = True
            self._do_later(self._settle(NO_DEADLINE))

    def _do_later(self, chore: Any) -> None:
        self.keep(asyncio.ensure_future(self._quietly(chore)))

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], object]:
        """Run a coroutine as an asyncio task until it or the session ends. Return a function that cancels it."""
        task = asyncio.ensure_future(run())
        self.keep(task)
        return task.cancel

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep an asyncio task until it ends, so that it is not garbage-collected. `close` cancels it."""
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _quietly(self, chore: Any) -> None:
        try:
            await chore
        except (PenstockError, OSError):
            pass  # The server is gone. The jobs go back when the session is settled or has ended.

    async def _settle(self, deadline: Deadline) -> None:
        if not self._in_doubt:
            return
        await self._begin_to_settle()
        try:
            if not self._in_doubt or self.closed:
                return
            self._in_doubt = False
            await self._return_lost(deadline)
        except BaseException:
            self._in_doubt = True
            raise
        finally:
            self._end_settling()

    async def _begin_to_settle(self) -> None:
        """Wait until no other asyncio task is in `_settle`. Then no take begins until `_end_settling` is called."""
        while self._settling is not None:
            await asyncio.shield(self._settling)
        assert self._loop is not None
        self._settling = self._loop.create_future()

    def _end_settling(self) -> None:
        settling, self._settling = self._settling, None
        assert settling is not None
        settling.set_result(None)

    async def _takes_ended(self, deadline: Deadline) -> bool:
        try:
            async with asyncio.timeout(TAKES_END_S):
                while self._takes:
                    self._no_takes.clear()
                    await self._no_takes.wait()
        except TimeoutError:
            pass
        return self._takes == 0

    def _interrupt_takes(self) -> None:
        for connection in list(self._waiting_connections):
            connection.abort(ConnectionResetError("the server did not end its wait"))

    # The end

    async def close(self) -> None:
        """End the session. Its jobs go back to their tubes, unless it has a grace time. Waiting calls raise Closed."""
        if self.closed:
            return
        self.closed = True
        if not self.token or self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            return
        try:
            await self._end_on_server()
        finally:
            # This also runs if closing was cancelled, because a second `close` does nothing.
            for connection in list(self._all):
                connection.abort(ConnectionAbortedError("the queue was closed"))

    async def _end_on_server(self) -> None:
        """End the session on the server, and wait until the server has closed all connections."""
        for connection in list(self._waiting_connections):
            connection.abort(ConnectionAbortedError("the queue was closed"))
        chores = list(self._chores)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        shared = self._shared
        try:
            if shared is None or shared.lost is not None:
                shared = await self._connect(self._addresses.current, self.token, self.target.connect_s)
            if not self.has_grace:
                await shared.send(encode(commands.end_session()))
        except (*LOST, PenstockError):
            pass  # The session ends when its grace time has passed.
        await asyncio.gather(*(connection.finish() for connection in list(self._all)))
