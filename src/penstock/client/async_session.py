"""A session on a server, for asyncio: what `session.py` is for threads, by the same rules.

All tasks share one connection for what need not wait; what waits has a connection to itself. A task that is cancelled
while it waits for a job hangs up politely: the server then answers at once, and if that answer has jobs after all, they
go back to their tubes.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from penstock.client import commands
from penstock.client.addresses import Address, Addresses
from penstock.client.async_connection import AsyncConnection
from penstock.client.backoff import MARGIN_S, Backoff, Margin, end_of
from penstock.client.belongings import Belongings
from penstock.client.commands import AGAIN, NOT_AGAIN, Call, Happened
from penstock.client.facts import JobFacts
from penstock.client.greeting import no_answer, refusal
from penstock.client.session import LOST
from penstock.client.sources import Sources
from penstock.client.url import Target, address
from penstock.core.errors import (
    BadAnswer,
    Closed,
    CommandError,
    ConnectionLost,
    Leaving,
    NoServer,
    NotAllowed,
    OnlyOnce,
    PenstockError,
    UnknownJob,
    UnknownSession,
)
from penstock.core.limits import NEVER, check_body
from penstock.options import Seconds
from penstock.wire.answers import Refusal, encode

T = TypeVar("T")

_IDLE_MAX: Final = 8
_HOME_S: Final = 2.0


class _Limit:
    """The end of a call that has a timeout: a little later than the timeout, and later still for a slow server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, until: float, margin_s: float) -> None:
        self.until = until  # On the monotonic clock.
        self.is_answering = False
        self._until = loop.time() + until - time.monotonic()  # On the clock of the loop.
        self._margin_s = margin_s
        self.timeout = asyncio.timeout_at(self._until + MARGIN_S)

    def answering(self) -> int:
        """The server gets the command. Return how many milliseconds it may wait."""
        self.is_answering = True
        self._reschedule(self._until + self._margin_s)
        # Rounded up: a server that answers a moment early would be asked again until the time is over.
        return math.ceil((self.until - time.monotonic()) * 1000)

    def reconnecting(self) -> None:
        """The connection was lost."""
        self.is_answering = False
        self._reschedule(self._until + MARGIN_S)

    def _reschedule(self, when: float) -> None:
        if not self.timeout.expired():
            self.timeout.reschedule(when)


class AsyncSession:
    """One session, and its connections. It connects when it is used first."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.grace_ms = target.grace_ms
        self.closed = False
        self.outlives = False  # It was told how long it waits for whoever comes with its token, when it is closed.
        self.token = ""
        self.belongings = Belongings()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be as new: at first, in another loop, and in a child after a fork; connections belong to one loop only."""
        self.token = ""
        self.max_body = 0
        self.belongings.forget()
        self._loop = loop
        self._pid = os.getpid()
        self._connected = False
        self._shared: AsyncConnection | None = None
        self._idle: list[AsyncConnection] = []
        self._alone: set[AsyncConnection] = set()
        self._all: set[AsyncConnection] = set()  # Every connection that is not gone yet.
        self._opening = asyncio.Lock()
        self._addresses = Addresses(self.target.seeds, learns=self.target.tls is None)
        self._takes = 0
        self._settling: asyncio.Future[None] | None = None
        self._home: asyncio.Event = asyncio.Event()
        self._in_doubt = False
        self._margin = Margin()
        self._chores: set[asyncio.Task[None]] = set()
        # Where one node was named, it is meant.
        self._sources = Sources() if len(self.target.seeds) > 1 else None

    # Calls

    async def call(self, call: Call[T]) -> T:
        """Send a command, and return what its answer means."""
        self._check()
        until = end_of(call)
        return await (self._call_settled(call) if until == math.inf else self._call_until(call, until))

    async def _call_until(self, call: Call[T], until: float) -> T:
        """Send a command whose timeout limits all that it does. If its time is over while the server is away, a take
        returns nothing, unless the server has been away for longer than `retry_for`.

        What is cancelled here loses no job, as if the caller had cancelled it.
        """
        assert self._loop is not None
        limit = _Limit(self._loop, until, self._margin.seconds)
        reach, error = self.target.reach, cast("NoServer | ConnectionLost", NoServer("the time of the call is over"))
        try:
            async with limit.timeout:
                found = await self._call_settled(call, limit)
            self._margin.met()
            return found
        except TimeoutError:
            if self.closed:
                raise Closed() from None
            reach.lost(TimeoutError("the server does not answer"))
            if limit.is_answering:
                error = ConnectionLost()
                self._margin.missed()
        except (NoServer, ConnectionLost) as why:
            if isinstance(why, BadAnswer) or time.monotonic() < until:
                raise
            error = why
        if call.empty is None or reach.is_gone(self.target.retry_s):
            raise error
        return call.read(call.empty)

    async def _call_settled(self, call: Call[T], limit: _Limit | None = None) -> T:
        if self._in_doubt:
            await self._settle()
        if call.taken is not None:
            await self._check_belongings()
            if self._sources is not None:
                self._follow_jobs(self._sources)
        if call.largest > self.max_body:
            await self._check_body(call.largest)
        return await self._call(call, limit)

    async def _check_body(self, length: int) -> None:
        """Refuse a body that the server would not even read: it hangs up on those who send one."""
        self.max_body = await self._call(commands.max_body())
        check_body(length, self.max_body)

    def _check(self) -> None:
        if self.closed:
            raise Closed()
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._pid != os.getpid():
            self._begin(loop)

    def check_open(self) -> None:
        """Refuse to be used after the end."""
        if self.closed:
            raise Closed()

    async def connect(self) -> None:
        """Connect now, so that what is wrong is said now."""
        self._check()
        await self._open(True)

    async def _call(self, call: Call[T], limit: _Limit | None = None) -> T:
        """Send a command where everything is settled."""
        search: Backoff | None = None
        lost = False
        while True:
            token = self.token
            try:
                if lost and call.happened is not None and call.hold():
                    await self._check_hold(call.happened)
                return await (self._try_take(call, limit) if call.taken is not None else self._try(call, limit))
            except LOST as error:
                if limit is not None:
                    limit.reconnecting()
                if self.closed:
                    raise Closed() from None
                if isinstance(error, (NoServer, BadAnswer)):
                    raise
                if call.repeat == NOT_AGAIN:
                    raise ConnectionLost() from error
                lost = True
                if search is None:
                    search = Backoff(self.target.retry_s)
                elif (pause_s := search.pause()) is None:
                    raise ConnectionLost("the connection was lost again and again, until time was over") from error
                else:
                    await asyncio.sleep(pause_s)
            except Leaving:
                # Nothing was done. What is held here is finished here, and then the session goes elsewhere.
                search = search or Backoff(self.target.retry_s)
                pause_s = search.pause()
                if pause_s is None or not self._addresses.others():
                    raise
                if self.token != token:
                    continue  # It has.
                if self.belongings.is_empty():
                    self._move()
                else:
                    await asyncio.sleep(pause_s)
            except CommandError as refused:
                if not lost or call.happened is None:
                    raise
                await self._judge(call.happened, refused)
                return call.read(commands.DONE)
            if call.taken is not None:
                await self._settle()

    async def _try(self, call: Call[T], limit: _Limit | None = None) -> T:
        if call.wait_ms:
            connection = await self._own_connection(math.inf if limit is None else limit.until)
            try:
                if limit is not None:
                    call.wait_at_most(limit.answering())
                return self._read(connection, call, await self._send(connection, call))
            finally:
                self._leave(connection)
        else:
            shared = self._shared
            connection = shared if shared is not None and shared.lost is None else await self._open(True)
            if connection.is_full():
                await connection.drained()
            return self._read(connection, call, await self._send(connection, call))

    def _read(self, connection: AsyncConnection, call: Call[T], answer: Any) -> T:
        """Return what an answer means. Close a connection whose answers make no sense."""
        if self.target.reach.lost_at is not None:
            self.target.reach.found(address(*self._addresses.current))
        if isinstance(answer, Refusal):
            raise refusal(answer)
        try:
            return call.read(answer)
        except BadAnswer as error:
            connection.abort(error)
            raise

    async def _send(self, connection: AsyncConnection, call: Call[Any]) -> Any:
        wait_s = None if call.wait_ms == NEVER else call.wait_ms / 1000
        waiting = connection.send(encode(call.words), call.taken is not None, wait_s)
        try:
            return await waiting
        except asyncio.CancelledError:
            # The answer may have come in the same turn.
            if call.taken is not None and waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._unseen(waiting.result())
            raise

    async def _try_take(self, call: Call[T], limit: _Limit | None) -> T:
        while self._settling is not None:
            await asyncio.shield(self._settling)
        self._takes += 1
        try:
            found = await self._try(call, limit)
            assert call.taken is not None
            held = call.taken(found)
            self.belongings.add(held)
            if self._sources is not None:
                self._sources.took(held)
            return found
        except LOST:
            # Perhaps it was answered with jobs that nobody will see.
            self._in_doubt = True
            raise
        finally:
            self._end_take()

    def _end_take(self) -> None:
        self._takes -= 1
        if self._takes == 0:
            self._home.set()

    async def _check_hold(self, happened: Happened) -> None:
        """Refuse to send what the holder of a job has said once more, if the job is not in the same hands any more."""
        try:
            there = await self._call(Call(happened.ask, commands.job, AGAIN))
        except NotAllowed:
            return  # Who may not look at the job cannot know.
        over = happened.over(there)
        if over is not None:
            raise over

    async def _judge(self, happened: Happened, refused: CommandError) -> None:
        """A call was refused that had been sent before: perhaps because it has happened then. If not, refuse it."""
        there: JobFacts | None = None
        if not isinstance(refused, UnknownJob):
            try:
                there = await self._call(Call(happened.ask, commands.job, AGAIN))
            except UnknownJob:
                pass
            except NotAllowed:
                # Who may not look at the job cannot know.
                raise ConnectionLost() from refused
        happened.judge(refused, there)

    # Connections

    async def _own_connection(self, until: float) -> AsyncConnection:
        """A connection that nobody else uses."""
        while self._idle:
            connection = self._idle.pop()
            if connection.lost is None:
                break
        else:
            connection = await self._open(False, until)
        self._alone.add(connection)
        return connection

    def _leave(self, connection: AsyncConnection) -> None:
        """Nobody waits on a connection any more. If its answer is still to come, because whoever asked was cancelled,
        the server is told not to wait, and the take counts until it has answered."""
        self._alone.discard(connection)
        if connection.lost is not None:
            return
        if connection.is_idle():
            if connection.token == self.token and len(self._idle) < _IDLE_MAX and not self.closed:
                self._idle.append(connection)
            else:
                connection.abort(ConnectionAbortedError("nobody needs it"))
        elif connection.can_hang_up_politely():
            self._takes += 1
            connection.hang_up()
            self._do_later(self._see_off(connection))
        else:
            connection.abort(ConnectionAbortedError("its caller was cancelled"))

    async def _see_off(self, connection: AsyncConnection) -> None:
        try:
            async with asyncio.timeout(_HOME_S):
                await connection.gone()
        except TimeoutError:
            connection.abort(ConnectionAbortedError("its caller was cancelled"))
        finally:
            self._end_take()

    async def _open(self, shared: bool, until: float = math.inf) -> AsyncConnection:
        """Return the connection of all tasks, or one for a single task. Try the addresses for a while."""
        search = Backoff(self.target.retry_s if self._connected else self.target.first_s, until)
        while True:
            # One at a time: the first begins the session, the others join it.
            async with self._opening:
                if shared and self._shared is not None and self._shared.lost is None:
                    return self._shared
                found = await self._try_seeds()
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

    async def _try_seeds(self) -> AsyncConnection | NoServer:
        """A connection to the first address that answers, or why the last does not."""
        for seed in self._addresses.all():
            if self.closed:
                raise Closed()
            try:
                connection = await self._join(seed)
                self._addresses.current = seed
                return connection
            except LOST as error:
                wrong = no_answer(self.target, seed, error)
        self._addresses.fail()
        return wrong

    async def _join(self, seed: tuple[str, int]) -> AsyncConnection:
        """A connection of this session; of a new one, if it has ended."""
        while True:
            token = self.token
            try:
                connection = await self._made(seed, token)
            except UnknownSession:
                if not token:
                    # It was asked for a new session.
                    raise
                if self.token == token:
                    # Its grace has passed, and its jobs went back to their tubes.
                    self._in_doubt = False
                    self.belongings.forget()
                    self.token = ""
                continue
            if self.token == token:
                break
            # The session was left for another meanwhile.
            connection.abort(ConnectionAbortedError("its session was left"))
        self.token = connection.token
        self.max_body = connection.max_body
        self._addresses.learn(connection.nodes)
        return connection

    async def _made(self, seed: tuple[str, int], token: str) -> AsyncConnection:
        connection = AsyncConnection(self._unseen, self._doubt, self._all.discard, self.target.answer_s)
        self._all.add(connection)
        await connection.open(self.target, seed, token, self.grace_ms)
        return connection

    def _follow_jobs(self, sources: Sources) -> None:
        """Go to the node that most jobs come from, unless something here is held or waited for."""
        main = sources.main()
        to = self._addresses.of_node(main) if main else None
        now = time.monotonic()
        if to is None or not sources.may_move(now) or self._takes or self._settling is not None or self._in_doubt:
            return
        if self.belongings.is_empty():
            sources.moved(now)
            self._move(to)

    def _move(self, to: Address | None = None) -> None:
        """Begin a session on another node, because this one leaves its cluster if none is named."""
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
        """Become the session of another token. The one before ends, unless somebody else is in it."""
        self._check()
        # Whoever is cancelled meanwhile leaves nothing half done: all tasks share what is changed here.
        joining = asyncio.ensure_future(self._identify(commands.identify(token, grace), grace is not None))
        self.keep(joining)
        await asyncio.shield(joining)

    async def _identify(self, call: Call[tuple[str, int]], outlives: bool) -> None:
        # Whoever names a session wants this one, here.
        self._sources = None
        await self._settle()
        # No take begins meanwhile, and nobody thinks that what is taken over was lost.
        await self._begin_to_settle()
        try:
            joined, self.grace_ms = await self._call(call)
            self.outlives = self.outlives or outlives
            if joined != self.token:
                await self._change_to(joined)
        finally:
            self._end_settling()

    async def _change_to(self, joined: str) -> None:
        """Go on as the session that the shared connection has joined, and leave the one that it was of."""
        left, self.token = self.token, joined
        self.belongings.forget()
        idle, self._idle = self._idle, []
        shared = self._shared
        if shared is not None:
            shared.token = joined
            words = commands.leave_session(left, joined)
            try:
                await asyncio.gather(*(shared.send(encode(each)) for each in words))
            except LOST:
                pass  # Then it ends with its grace.
        try:
            # What it holds was handed to whoever had the session before. Who may not ask cannot know.
            held = await self._call(commands.held(end_waits=False))
            self.belongings.add(dict.fromkeys(held, 0))
        except CommandError:
            pass
        await asyncio.gather(*(connection.finish() for connection in idle))

    # Jobs in answers that nobody saw

    def disown(self, ids: list[str]) -> None:
        """Whoever took these was cancelled before it was given them: they go back."""
        self.belongings.remove_all(ids)
        self._doubt()

    def _unseen(self, answer: Any) -> None:
        """An answer to a take came whose task was cancelled."""
        if isinstance(answer, list) and answer and not self.closed:
            try:
                ids = [job.id for job in commands.jobs(answer)]
            except Exception:
                # Not jobs: then nobody knows what the session holds.
                self._doubt()
            else:
                self._do_later(self._give_back_all(ids))

    def _doubt(self) -> None:
        """The answer to a take will not come, and its task was cancelled."""
        if not self.closed:
            self._in_doubt = True
            self._do_later(self._settle())

    def _do_later(self, chore: Any) -> None:
        self.keep(asyncio.ensure_future(self._quietly(chore)))

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], object]:
        """Run a task until it ends or the session does. Return a function that cancels it."""
        task = asyncio.ensure_future(run())
        self.keep(task)
        return task.cancel

    def keep(self, task: asyncio.Task[None]) -> None:
        """Let a task run until it ends, or the session does."""
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _quietly(self, chore: Any) -> None:
        try:
            await chore
        except (PenstockError, OSError):
            pass  # The server is gone; what was not given back is when the session is settled, or has ended.

    async def _settle(self) -> None:
        """Give back what the session holds and nobody was given: see `Session._settle`."""
        if not self._in_doubt:
            return
        await self._begin_to_settle()
        try:
            if not self._in_doubt or self.closed:
                return
            self._in_doubt = False
            held = await self._call(commands.held(end_waits=True))
            if not await self._are_home():
                for connection in list(self._alone):
                    connection.abort(ConnectionResetError("the server did not end its wait"))
                await self._are_home()
            await self._give_back_all(self.belongings.unknown(held))
        except BaseException:
            self._in_doubt = True
            raise
        finally:
            self._end_settling()

    async def _begin_to_settle(self) -> None:
        """Wait until nobody else settles anything; then no take begins until this is ended."""
        while self._settling is not None:
            await asyncio.shield(self._settling)
        assert self._loop is not None
        self._settling = self._loop.create_future()

    def _end_settling(self) -> None:
        settling, self._settling = self._settling, None
        assert settling is not None
        settling.set_result(None)

    async def _are_home(self) -> bool:
        """Wait until no take is under way; tell whether none is."""
        try:
            async with asyncio.timeout(_HOME_S):
                while self._takes:
                    self._home.clear()
                    await self._home.wait()
        except TimeoutError:
            pass
        return self._takes == 0

    async def _give_back_all(self, ids: list[str]) -> None:
        for id in ids:
            try:
                await self._call(commands.release(id))
            except OnlyOnce:
                # It may have been seen, so nobody may see it again; buried, it can still be looked at.
                await self._call(commands.bury(id, "its delivery was lost with a connection"))
            except CommandError:
                pass  # It is not ours any more.

    async def _check_belongings(self) -> None:
        """Forget jobs that were taken and left to themselves, when there are many."""
        asked = self.belongings.to_check()
        if asked is not None:
            held = await self._call(commands.held(end_waits=False))
            self.belongings.keep(asked, held)

    # The end

    async def close(self) -> None:
        """End the session: its jobs go back, unless it outlives this, and whoever waits in it is told."""
        if self.closed:
            return
        self.closed = True
        if not self.token or self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            return
        try:
            await self._take_leave()
        finally:
            # Also where closing was cancelled: nobody could close it again.
            for connection in list(self._all):
                connection.abort(ConnectionAbortedError("the queue was closed"))

    async def _take_leave(self) -> None:
        """Let the server know that nobody will come back, and see it let go of everything."""
        for connection in list(self._alone):
            connection.abort(ConnectionAbortedError("the queue was closed"))
        chores = list(self._chores)
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        shared = self._shared
        try:
            if shared is None or shared.lost is not None:
                shared = await self._made(self._addresses.current, self.token)
            if not self.outlives:
                await shared.send(encode(commands.end_session()))
        except (*LOST, PenstockError):
            pass  # Then it ends with its grace.
        await asyncio.gather(*(connection.finish() for connection in list(self._all)))
