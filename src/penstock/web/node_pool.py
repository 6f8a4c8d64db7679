"""The connections of the API to the nodes: a few for each user, which all requests of the user share.

Requests that do not wait share one connection per user and session, on which their commands are pipelined. A request
that waits, or that makes the node work for long, has a connection to itself meanwhile. Connections are closed when
they were unused for IDLE_S. They are replaced at least every AGE_S, so a changed password or an expired token is
noticed even if a node does not close the connections of its user.

The pool stores no passwords: a connection is found by the digest of the credentials, and opened with the credentials
of the request that needs it.

If the client of a waiting take disconnects, the pool closes its side of the connection to the node. The node then
replies at once. If that reply has jobs, they go back to their tubes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import Any, Final, TypeVar

from penstock.client import commands
from penstock.client.addresses import Address, Addresses
from penstock.client.async_connection import AsyncConnection
from penstock.client.commands import REPEAT, Call
from penstock.client.handshake import LOST, no_answer, refusal
from penstock.client.url import Target
from penstock.core.errors import (
    BadAnswer,
    ConnectionLost,
    NoServer,
    OnlyOnce,
    PenstockError,
    Unauthenticated,
    UnknownSession,
    WrongPassword,
)
from penstock.core.limits import NEVER
from penstock.web.credentials import NONE, Credentials
from penstock.web.login_limit import LoginLimit
from penstock.web.node_connection import NodeConnection
from penstock.web.refusals import Refused
from penstock.wire.resp_client import ErrorReply, encode

T = TypeVar("T")

IDLE_S: Final = 30.0
AGE_S: Final = 60.0
_SWEEP_S: Final = 1.0

# How many unused connections a user keeps for requests that wait.
_SPARE_MAX: Final = 4
# How long the node may take to end a cancelled wait.
_CANCEL_S: Final = 5.0

_log = logging.getLogger("penstock.web")


class _Channel:
    """The connections with the same credentials and the same session."""

    def __init__(self, credentials: bytes, session: str) -> None:
        self.credentials = credentials
        self.session = session
        self.opening = asyncio.Lock()
        self.shared: NodeConnection | None = None
        self.spare: list[NodeConnection] = []
        self.busy: set[NodeConnection] = set()  # Those of requests that have a connection to themselves.
        self.used_at = 0.0
        self.keep_s = IDLE_S  # A session keeps its connection for its grace time.

    def connections(self) -> list[NodeConnection]:
        return [*([] if self.shared is None else [self.shared]), *self.spare, *self.busy]


class NodePool:
    """All connections to the nodes."""

    def __init__(self, target: Target, connections_max: int, logins: LoginLimit) -> None:
        self.target = target
        self.logins = logins
        self._addresses = Addresses(target.seeds, learns=False)
        self._connections_max = connections_max
        self._channels: OrderedDict[tuple[bytes, str], _Channel] = OrderedDict()
        self._all: set[AsyncConnection] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self.closed = False
        self.is_open_node: bool | None = None  # Whether the node has no users; None if it is not known yet.

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._all)

    # Calls

    async def run(self, who: Credentials, call: Call[T], client: str = "", session: str = "", alone: bool = False) -> T:
        """Send a call as the user with these credentials. Return its result.

        `client` is the address that failed logins are counted for. With `session`, the call runs in this session. A
        call that waits, or a call with `alone`, has a connection to itself.
        """
        channel = self._channel(who, session)
        for attempt in (1, 2):
            try:
                if call.wait_ms or alone:
                    return await self._run_alone(channel, who, call, client)
                connection = channel.shared
                if connection is None or not self._is_usable(connection):
                    connection = await self._share(channel, who, client)
                if connection.is_full():
                    await connection.drained()
                return self._read(connection, call, await connection.send(encode(call.words)))
            except LOST as error:
                if isinstance(error, (NoServer, BadAnswer)):
                    raise
                # The connection may have been lost while it was unused. A request that can be repeated safely is.
                if attempt == 2 or call.repeat != REPEAT or call.wait_ms:
                    if isinstance(error, TimeoutError):
                        raise Refused("TIMEOUT", "the node did not answer in time") from error
                    raise ConnectionLost() from error
        raise AssertionError("unreachable")

    def _read(self, connection: NodeConnection, call: Call[T], answer: Any) -> T:
        connection.used_at = asyncio.get_running_loop().time()
        if isinstance(answer, ErrorReply):
            error = refusal(answer)
            if isinstance(error, (Unauthenticated, WrongPassword)):
                connection.abort(ConnectionAbortedError("the user was removed or has another password"))
            raise error
        try:
            return call.read(answer)
        except BadAnswer as wrong:
            connection.abort(wrong)
            raise

    async def _run_alone(self, channel: _Channel, who: Credentials, call: Call[T], client: str) -> T:
        connection = None
        while channel.spare:
            connection = channel.spare.pop()
            if self._is_usable(connection):
                break
            connection.abort(ConnectionAbortedError("it is too old"))
            connection = None
        if connection is None:
            connection = await self._open(channel, who, client)
        channel.busy.add(connection)
        wait_s = None if call.wait_ms == NEVER else call.wait_ms / 1000
        reply = connection.send(encode(call.words), call.delivered is not None, wait_s)
        try:
            return self._read(connection, call, await reply)
        except asyncio.CancelledError:
            if call.delivered is not None and reply.done() and not reply.cancelled() and reply.exception() is None:
                self._return_jobs(channel, who, reply.result())
            raise
        finally:
            self._release(channel, connection)

    def _release(self, channel: _Channel, connection: NodeConnection) -> None:
        """Keep a connection for the next request that waits, or close it."""
        channel.busy.discard(connection)
        if connection.lost is not None:
            return
        if not connection.is_idle():
            # The request was cancelled, so its reply is not read.
            self._do_later(self._end_wait(connection))
        elif len(channel.spare) < _SPARE_MAX and not self.closed:
            channel.spare.append(connection)
        else:
            connection.abort(ConnectionAbortedError("it is not needed"))

    async def _end_wait(self, connection: NodeConnection) -> None:
        """Let the node reply to a cancelled wait at once, and close the connection."""
        if connection.can_close_write():
            connection.close_write()
            try:
                async with asyncio.timeout(_CANCEL_S):
                    await connection.wait_closed()
            except TimeoutError:
                pass
        connection.abort(ConnectionAbortedError("its request was cancelled"))

    def _return_jobs(self, channel: _Channel, who: Credentials, answer: Any) -> None:
        """Return the jobs in the reply to a take whose client has disconnected to their tubes."""
        if not isinstance(answer, list) or not answer or self.closed:
            return
        try:
            ids = [job.id for job in commands.jobs(answer)]
        except (PenstockError, AttributeError, KeyError):
            return
        self._do_later(self._release_jobs(channel, who, ids))

    async def _release_jobs(self, channel: _Channel, who: Credentials, ids: list[str]) -> None:
        for id in ids:
            try:
                await self.run(who, commands.release(id), session=channel.session)
            except OnlyOnce:
                await self.run(who, commands.bury(id, "its delivery was lost with a request"), session=channel.session)
            except (PenstockError, OSError, Refused) as error:
                _log.warning("job not returned: job=%s error=%s", id, error)

    # Sessions

    async def begin_session(self, who: Credentials, grace_ms: int, client: str) -> tuple[str, int]:
        """Begin a session. Return its token, and its grace time."""
        channel = _Channel(who.key, "")
        connection = await self._open(channel, who, client, [b"IDENTIFY", b"GRACE", b"%dms" % grace_ms])
        channel.session = connection.session
        channel.shared = connection
        channel.used_at = connection.used_at
        self._channels[who.key, channel.session] = channel
        return channel.session, connection.grace_ms

    async def end_session(self, who: Credentials, token: str, client: str) -> None:
        """End a session. Its jobs return to their tubes at once. Its waiting requests get no job."""
        channel = self._channel(who, token)
        connection = channel.shared
        if connection is None or not self._is_usable(connection):
            connection = await self._share(channel, who, client)
        self._channels.pop((who.key, token), None)
        await self._finish_session(channel)

    async def _finish_session(self, channel: _Channel) -> None:
        """Set the grace time of a session to 0 and leave it."""
        connection = channel.shared
        for busy in channel.busy:
            busy.abort(ConnectionAbortedError("the session has ended"))
        for spare in channel.spare:
            spare.abort(ConnectionAbortedError("the session has ended"))
        if connection is not None and connection.lost is None:
            try:
                await connection.send(encode(commands.end_session()))
            except LOST:
                pass  # The session ends when its grace time is over.
            await connection.finish()

    # Connections

    def _channel(self, who: Credentials, session: str) -> _Channel:
        if self.closed:
            raise Refused("STOPPING", "the API is stopping")
        channel = self._channels.get((who.key, session))
        if channel is None:
            channel = self._channels[who.key, session] = _Channel(who.key, session)
        else:
            self._channels.move_to_end((who.key, session))
        channel.used_at = asyncio.get_running_loop().time()
        return channel

    async def forget(self, who: Credentials) -> None:
        """Close the connections of these credentials that are not in a session."""
        channel = self._channels.pop((who.key, ""), None)
        if channel is not None:
            await self._finish(channel)

    def _is_usable(self, connection: NodeConnection) -> bool:
        if connection.lost is not None:
            return False
        # A session keeps its connection, because the session would end with it.
        return bool(connection.session) or asyncio.get_running_loop().time() - connection.opened_at < AGE_S

    async def _share(self, channel: _Channel, who: Credentials, client: str) -> NodeConnection:
        async with channel.opening:
            connection = channel.shared
            if connection is not None and self._is_usable(connection):
                return connection
            if connection is not None:
                self._do_later(connection.finish())  # Its replies are still read.
            channel.shared = await self._open(channel, who, client)
            return channel.shared

    async def _open(
        self, channel: _Channel, who: Credentials, client: str, identify: list[bytes] | None = None
    ) -> NodeConnection:
        """Return a new connection to the first node that answers."""
        self._make_room()
        login = who.user_and_secret()
        if login is not None:
            self.logins.check(client)
        if channel.session:
            identify = [b"IDENTIFY", channel.session.encode()]
        wrong: Exception = NoServer()
        until = time.monotonic() + self.target.connect_s
        addresses: list[Address] = self._addresses.all()
        for address in addresses:
            connect_s = until - time.monotonic()
            if connect_s <= 0:
                break
            connection = NodeConnection(
                lambda answer: self._return_jobs(channel, who, answer), self._all.discard, self.target.answer_s
            )
            self._all.add(connection)
            try:
                await connection.authenticate(self.target, address, login, identify, connect_s)
            except WrongPassword:
                self.logins.failed(client)
                raise
            except UnknownSession as error:
                wrong = error  # Another node may have the session.
                continue
            except LOST as error:
                wrong = no_answer(self.target, address, error)
                continue
            if who.kind == NONE:
                self.is_open_node = True
            if connection.session:
                channel.keep_s = connection.grace_ms / 1000
            else:
                self._addresses.current = address
            self._sweep_later()
            return connection
        if isinstance(wrong, UnknownSession):
            self._channels.pop((channel.credentials, channel.session), None)
        else:
            self._addresses.fail()
        raise wrong

    def _make_room(self) -> None:
        """Close an unused connection if there are too many. Raise Refused if all are in use."""
        if len(self._all) < self._connections_max:
            return
        for channel in self._channels.values():
            if channel.spare:
                channel.spare.pop().abort(ConnectionAbortedError("there are too many connections"))
                return
            if channel.shared is not None and channel.shared.is_idle() and not channel.session:
                channel.shared.abort(ConnectionAbortedError("there are too many connections"))
                channel.shared = None
                return
        raise Refused(
            "TOOMANY",
            "the API has as many connections to the node as it may have",
            "let waiting requests end, or raise --connections",
        )

    def _sweep_later(self) -> None:
        if self._sweeping is None and not self.closed:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were unused for long, and sessions whose grace time is over."""
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for key, channel in list(self._channels.items()):
            if channel.busy:
                channel.used_at = now
            kept: list[NodeConnection] = []
            for spare in channel.spare:
                if now - spare.used_at > IDLE_S or not self._is_usable(spare):
                    spare.abort(ConnectionAbortedError("it is not needed"))
                else:
                    kept.append(spare)
            channel.spare = kept
            is_pending = channel.shared is not None and not channel.shared.is_idle()
            if now - channel.used_at > channel.keep_s and not channel.busy and not is_pending:
                del self._channels[key]
                self._do_later(self._finish_session(channel) if channel.session else self._finish(channel))
        if self._channels:
            self._sweep_later()

    async def _finish(self, channel: _Channel) -> None:
        for connection in channel.connections():
            await connection.finish()

    def _do_later(self, chore: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(_quietly(chore))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def close(self) -> None:
        """Close all connections. Sessions end when their grace time is over, unless they are resumed."""
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in list(self._chores):
            task.cancel()
        for connection in list(self._all):
            connection.abort(ConnectionAbortedError("the API is stopping"))
        await asyncio.gather(*self._chores, return_exceptions=True)


async def _quietly(chore: Any) -> None:
    try:
        await chore
    except (PenstockError, OSError, EOFError, Refused):
        pass
