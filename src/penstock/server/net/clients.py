"""All client connections of a node: which are accepted, and which are closed.

Connections and unfinished TLS handshakes together never exceed `max-clients`. When the limit is reached, a new
connection replaces the oldest member of the larger of two groups: unfinished handshakes, and connections that have not
authenticated. So a flood on one port replaces its own connections. A new connection is refused if all others
have authenticated.

A connection is closed if a request is not complete in time, if its replies are not read, if it does not authenticate,
or if it is idle for too long. The candidates of each kind are kept in the order in which they began, so a check costs
nothing while no client misbehaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.core.waits import Connection as EngineConnection
from penstock.node.client import Client
from penstock.node.inbox import RespInbox
from penstock.node.turn import Turn
from penstock.server.net.access import ANONYMOUS, Accounts
from penstock.server.net.addresses import shown_address
from penstock.server.net.connection import UNSENT_BYTES_HIGH, Connection
from penstock.server.net.tls import Handshakes
from penstock.wire.resp import RespParser

_log = logging.getLogger("penstock")

_TCP_ESTABLISHED: Final = 1

# Linux accepts no longer idle time than this before the first keepalive probe.
_KEEPALIVE_S_MAX: Final = 32_767

# An unauthenticated client that has more unread reply bytes than this is not served until it reads.
_UNKNOWN_UNSENT_BYTES: Final = 16 * 1024

# How many TLS handshakes of clients may be unfinished. A handshake takes two round trips, so with 100 ms each a
# thousand clients can connect in a second. An unfinished one costs 50 KB with uvloop, and 300 KB with asyncio.
HANDSHAKES_MAX: Final = 256

# The reply if the server had a password, or protected-mode no, when it started, and has neither now.
_PROTECTED: Final = (
    b"-DENIED this server has no password, so it serves only clients on its own machine; "
    b"set one from there with CONFIG SET requirepass, or set protected-mode no to serve everyone\r\n"
)


_PASSWORD_SET: Final = b"-NOAUTH a password was just set; connect again\r\n"


class Limits:
    """The limits of clients. A change also applies to connected clients where that is possible."""

    def __init__(self) -> None:
        self.clients = 10_000
        self.bulk_max = 64 * 1024 * 1024  # Bytes of one argument.
        self.buffer_max = 1024 * 1024 * 1024  # Bytes of commands that are not run yet.
        self.output_hard = 64 * 1024 * 1024  # Bytes of unread replies; 0 for no limit.
        self.output_soft = 16 * 1024 * 1024  # Bytes of unread replies, for at most `output_soft_s`; 0 for no limit.
        self.output_soft_s = 30.0
        self.progress_s = 30.0  # Time from the first byte of a command to its last.
        self.auth_s = 10.0  # Time from the connection to the password.
        self.idle_s = 0.0  # Time without a command; 0 for no limit. Waiting clients are not idle.
        self.keepalive_s = 300.0  # Idle time before TCP keepalive probes; 0 sends none.
        self.buffers_max = 0  # Bytes of all buffers of clients; 0 for no limit.
        self.protected = True  # Remote clients need a password or TLS.


class Clients:
    """All client connections of a node."""

    def __init__(self, turn: Turn, accounts: Accounts, limits: Limits) -> None:
        self.limits = limits
        self.accounts = accounts
        self.accepted = 0
        self.rejected = 0
        self.monitors: dict[Client, None] = {}
        self._turn = turn
        self._unknown: dict[Connection, float] = {}
        self._unfinished: dict[Connection, float] = {}
        self._slow: dict[Connection, float] = {}
        self._with_tokens: dict[Connection, None] = {}  # Clients that logged in with a token, which expires.
        self._held: dict[Connection, None] = {}
        self._closing: dict[Connection, None] = {}  # Connections closed here whose transports have not reported it yet.
        self.handshakes = Handshakes(self._make_room_for_handshake)
        # Counted since the last log line: connections closed to make room for others, and refused ones.
        self._displaced = 0
        self._refused = 0

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._turn.clients.values()))

    def _own(self) -> list[Connection]:
        """Return the clients that are connected to this node itself."""
        return [client for client in self._turn.clients.values() if isinstance(client, Connection)]

    def __len__(self) -> int:
        return len(self._turn.clients)

    def accept(self) -> asyncio.BaseProtocol:
        """Return the asyncio protocol object for the next RESP connection."""
        return self.accept_as(self.resp)

    def resp(self, number: int, engine_connection: EngineConnection) -> Connection:
        connection = Connection(self._turn, self, number, engine_connection)
        parser = RespParser(self.limits.bulk_max, self.limits.buffer_max, not self.accounts.any)
        connection.inbox = RespInbox(parser, self._turn.dispatcher)
        return connection

    def accept_as(self, make: Callable[[int, EngineConnection], Connection]) -> asyncio.BaseProtocol:
        """Return the asyncio protocol object for the next connection. `make` builds it."""
        # Sixteen bytes of text, because Tarantool clients receive them as a string.
        return self.connection(make, secrets.token_urlsafe(12).encode())  # type: ignore[return-value]

    def connection(self, make: Callable[[int, EngineConnection], Connection], token: bytes) -> Connection:
        """Return a new connection that `make` builds. Its session has this token."""
        turn = self._turn
        turn.begin()
        connection = make(turn.next_number(), turn.engine.connect(token))
        connection.bulk_max = self.limits.bulk_max
        connection.is_authenticated = not self.accounts.any
        connection.user, connection.user_name = ANONYMOUS, ANONYMOUS.name
        return connection

    def limit_bulks(self, bulk_max: int) -> None:
        """Set the maximum bytes of an argument, also for connected clients."""
        if bulk_max == self.limits.bulk_max:
            return
        self.limits.bulk_max = bulk_max
        for connection in self:
            connection.bulk_max = bulk_max
            if connection.is_authenticated:
                connection.inbox.buffer.raise_limits(bulk_max)

    def opened(self, connection: Connection) -> None:
        """Register a connection that was opened. Refuse it if it exceeds a limit or is not allowed."""
        transport = connection.transport
        self.accepted += 1
        found_at = transport.get_extra_info("sockname")
        if isinstance(found_at, tuple):
            connection.address, connection.is_local = shown_address(transport.get_extra_info("peername"))
            connection.local_address, _ = shown_address(found_at)
        else:
            # As in Redis and Disque, all clients of a Unix socket have the address of the socket.
            connection.address, connection.is_local = f"{found_at}:0", True
        transport.set_write_buffer_limits(
            high=UNSENT_BYTES_HIGH if connection.is_authenticated else _UNKNOWN_UNSENT_BYTES
        )
        _keep_alive(transport.get_extra_info("socket"), self.limits.keepalive_s)
        if not self.make_room(0):
            self._refused += 1
            self._refuse(connection, b"-ERR max number of clients reached\r\n")
        elif not connection.is_authenticated:
            self._unknown[connection] = time.monotonic()
        elif not self.accounts.admits(connection.user):
            # A password was set after the system accepted the connection and before the loop announced it.
            self._refuse(connection, _PASSWORD_SET)
        elif self.limits.protected and not connection.is_local and transport.get_extra_info("sslcontext") is None:
            self._refuse(connection, _PROTECTED)

    def make_room(self, wanted: int) -> bool:
        """Close connections until `wanted` more are within the limit. Return whether that was possible."""
        while len(self) - len(self._closing) + len(self.handshakes) + wanted > self.limits.clients:
            if len(self._unknown) > len(self.handshakes):
                self._abort(next(iter(self._unknown)))
            elif not self.handshakes.close_oldest():
                return False
            self._displaced += 1
            self.rejected += 1
        return True

    def _make_room_for_handshake(self) -> bool:
        if len(self.handshakes) >= HANDSHAKES_MAX:
            self.handshakes.close_oldest()
            self._displaced += 1
            self.rejected += 1
        if self.make_room(1):
            return True
        # A reason cannot be sent before the handshake is finished.
        self._refused += 1
        self.rejected += 1
        return False

    def _refuse(self, connection: Connection, why: bytes) -> None:
        self.rejected += 1
        self._closing[connection] = None
        connection.closing = True
        connection.transport.write(connection.inbox.refusal(why))
        connection.close()

    def closed(self, connection: Connection) -> None:
        self._closing.pop(connection, None)
        self._unwatch(connection)

    def _unwatch(self, connection: Connection) -> None:
        those: dict[Any, Any]
        for those in (self._unknown, self._unfinished, self._slow, self._held, self._with_tokens, self.monitors):
            those.pop(connection, None)

    def authenticated(self, connection: Connection) -> None:
        self._unknown.pop(connection, None)
        if connection.user.is_of_token:
            self._with_tokens[connection] = None
        else:
            self._with_tokens.pop(connection, None)
        connection.transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)

    def set_unfinished(self, connection: Connection, unfinished: bool) -> None:
        """Record whether a client has sent an incomplete command. `sweep` closes clients that stay unfinished."""
        if unfinished:
            self._unfinished[connection] = time.monotonic()
        else:
            self._unfinished.pop(connection, None)

    def set_slow(self, connection: Connection, slow: bool) -> None:
        """Record whether a client reads its replies too slowly. `sweep` closes clients that stay slow."""
        if slow:
            self._slow.setdefault(connection, time.monotonic())
        else:
            self._slow.pop(connection, None)

    def set_held(self, connection: Connection, held: bool) -> None:
        """Record whether reading from a client is paused. `sweep` checks whether such a client has disconnected."""
        if held:
            self._held[connection] = None
        else:
            self._held.pop(connection, None)

    def note_unread(self, connection: Connection, unread: int) -> None:
        """Close a client if `unread`, the bytes of its earlier replies that it has not read, exceed the hard limit."""
        hard = self.limits.output_hard
        if hard and unread > hard:
            self._close(connection, "hard limit of client-output-buffer-limit exceeded")

    def close_outdated(self, keep: Connection | None) -> None:
        """Close the clients whose accounts are no longer valid after a change of passwords, except `keep`.

        The clients of other nodes stay. Their own node closes them.
        """
        for connection in self._own():
            may_stay = connection is keep or not connection.is_authenticated
            if not may_stay and not self.accounts.admits(connection.user):
                self._close(connection, "password changed")

    def sweep(self, now: float) -> None:
        """Close the connections that exceed a limit. This is called periodically."""
        limits = self.limits
        self._log_limit()
        for connection in _began_before(self._unknown, now - limits.auth_s):
            self._close(connection, "auth-timeout exceeded")
        for connection in _began_before(self._unfinished, now - limits.progress_s):
            self._close(connection, "progress-timeout exceeded")
        for connection in _began_before(self._slow, now - limits.output_soft_s):
            if limits.output_soft and connection.buffered() > limits.output_soft:
                self._close(connection, "soft limit of client-output-buffer-limit exceeded")
        for connection in [each for each in self._with_tokens if each.user.expires_ms <= self._turn.clock.now()]:
            self._close(connection, "token expired")
        self._close_largest()
        for connection in list(self._held):
            # The end of a connection that is not read goes unnoticed otherwise.
            if connection.is_waiting and _has_left(connection.transport.get_extra_info("socket")):
                connection.stopped_sending()
        if limits.idle_s:
            since = self._turn.clock.now() - int(limits.idle_s * 1000)
            for connection in self._own():
                if connection.active < since and self._is_silent(connection, now - limits.idle_s):
                    self._close(connection, "timeout exceeded")

    def _log_limit(self) -> None:
        """Log how many connections were closed or refused for lack of room since the last call."""
        if self._displaced or self._refused:
            _log.warning(
                "connection limit reached: max_clients=%d closed_unauthenticated=%d refused=%d",
                self.limits.clients,
                self._displaced,
                self._refused,
            )
            self._displaced = self._refused = 0

    def _is_silent(self, connection: Connection, since: float) -> bool:
        """Return whether an idle client may be closed: it waits for no reply, or has read no replies since `since`."""
        if connection.is_waiting or connection.is_monitor:
            return False
        is_unrun = connection.inbox.buffer.pending() > 0 and connection not in self._unfinished
        if connection.busy or is_unrun:
            # A client that has not read since then holds up its reply itself.
            unread_since = self._slow.get(connection)
            return unread_since is not None and unread_since < since
        return True

    def _close_largest(self) -> None:
        """Close the clients with the largest buffers while all buffers together exceed the limit."""
        with_buffers: set[Client] = {*self._unfinished, *self._slow, *self._held}
        with_buffers.update(client for client in self if client.owed or client.is_unread)
        sizes = {each: int(each.inbox.buffer.pending()) + each.buffered() for each in with_buffers}
        total = sum(sizes.values())
        if self.limits.buffers_max and total > self.limits.buffers_max:
            for client, size in sorted(sizes.items(), key=lambda item: -item[1]):
                self._close(client, "buffers of all clients exceed a quarter of maxmemory")
                total -= size
                if total <= self.limits.buffers_max:
                    break

    def _close(self, client: Client, why: str) -> None:
        _log.info("client closed: address=%s reason=%s", client.address, why)
        if isinstance(client, Connection):
            self._abort(client)
        else:
            client.abort()

    def _abort(self, connection: Connection) -> None:
        self._unwatch(connection)
        self._closing[connection] = None
        connection.abort()


def _began_before(those: dict[Connection, float], when: float) -> list[Connection]:
    """Return the connections that were added to `those` before `when`. `those` is sorted by time of addition."""
    found = []
    for connection, began in those.items():
        if began > when:
            break
        found.append(connection)
    return found


def _has_left(sock: socket.socket | None) -> bool:
    """Return whether the peer has closed a TCP connection. This works before all received bytes are read."""
    if sock is None or sock.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def _keep_alive(sock: socket.socket | None, seconds: float) -> None:
    """Turn on TCP keepalive: the system checks whether a client is still connected after `seconds` of silence."""
    if sock is None or sock.family == socket.AF_UNIX or not seconds:
        return
    # A client whose socket does not support this is served all the same.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(max(1, int(seconds)), _KEEPALIVE_S_MAX))
