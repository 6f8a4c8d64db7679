"""Everybody who is connected: who may come in, and who has to go.

Connections and unfinished TLS handshakes together never exceed `max-clients`. When the limit is reached, a new
connection takes the place of the oldest unfinished handshake, or of the oldest connection that has not authenticated:
the larger of the two groups gives way, so a flood on one port displaces itself. A new connection is refused if all
others have authenticated.

Whoever harms others goes: a request that is not complete in time, answers that nobody fetches, a client that does not
say who it is, one that has been silent for too long. Those who could are remembered in the order in which they began,
so looking after them costs nothing while nobody misbehaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.core.waits import Connection as EngineConnection
from penstock.dialects.inbox import Inbox
from penstock.server.access import ANYBODY, Accounts
from penstock.server.connection import UNSENT_BYTES_HIGH, Connection
from penstock.server.node import Node
from penstock.server.tls import Handshakes
from penstock.wire.resp import RespParser

_log = logging.getLogger("penstock")

_TCP_ESTABLISHED: Final = 1

# Linux refuses to wait longer before it asks whether a silent client is there, seconds.
_KEEPALIVE_S_MAX: Final = 32_767

# How many bytes of answers wait for one who has not said who it is.
_UNKNOWN_UNSENT_BYTES: Final = 16 * 1024

# How many TLS handshakes of clients may be unfinished. A handshake takes two round trips, so with 100 ms each a
# thousand clients can connect in a second. An unfinished one costs 50 KB with uvloop, and 300 KB with asyncio.
HANDSHAKES_MAX: Final = 256

# There was a password, or protected-mode was no, when the server started.
_PROTECTED: Final = (
    b"-DENIED this server has no password, so only clients on its own machine are served; "
    b"CONFIG SET requirepass from there, or protected-mode no if you mean it\r\n"
)


_PASSWORD_SET: Final = b"-NOAUTH a password was set just now; connect again\r\n"


class Limits:
    """What clients may use. Changing it holds for those who are connected too, as far as it can."""

    def __init__(self) -> None:
        self.clients = 10_000
        self.bulk_max = 64 * 1024 * 1024  # Of one argument, bytes.
        self.buffer_max = 1024 * 1024 * 1024  # Of commands that were not run yet, bytes.
        self.output_hard = 64 * 1024 * 1024  # Of answers that were not read yet, bytes; 0 for any number.
        self.output_soft = 16 * 1024 * 1024  # The same, for so long.
        self.output_soft_s = 30.0
        self.progress_s = 30.0  # From the first byte of a command to its last.
        self.auth_s = 10.0  # From the connection to the password.
        self.idle_s = 0.0  # Without a command; 0 for any time. Those who wait for an answer do not count as idle.
        self.keepalive_s = 300.0  # After which a silent client is asked whether it is there; 0 for never.
        self.buffers_max = 0  # Of all that is buffered for clients, bytes; 0 for any number.
        self.protected = True  # Nobody comes in from elsewhere without a password or TLS.


class Clients:
    """Everybody who is connected to a node."""

    def __init__(self, node: Node, accounts: Accounts, limits: Limits) -> None:
        self.limits = limits
        self.accounts = accounts
        self.accepted = 0
        self.rejected = 0
        self.monitors: dict[Connection, None] = {}
        self._node = node
        self._numbers = 0
        self._unknown: dict[Connection, float] = {}
        self._unfinished: dict[Connection, float] = {}
        self._slow: dict[Connection, float] = {}
        self._held: dict[Connection, None] = {}
        self._closing: dict[Connection, None] = {}  # Closed here; their transports have not reported the end yet.
        self.handshakes = Handshakes(self._make_room_for_handshake)
        # Since the last line of the log about them: connections closed to make room for others, and refused ones.
        self._displaced = 0
        self._refused = 0

    def __iter__(self) -> Iterator[Connection]:
        return iter([client for client in self._node.clients.values() if isinstance(client, Connection)])

    def __len__(self) -> int:
        return len(self._node.clients)

    def accept(self) -> asyncio.BaseProtocol:
        """Make what asyncio wants for the next connection over RESP."""
        return self.accept_as(self.resp)

    def resp(self, number: int, engine_connection: EngineConnection) -> Connection:
        connection = Connection(self._node, self, number, engine_connection)
        connection.inbox = Inbox(RespParser(self.limits.bulk_max, self.limits.buffer_max, not self.accounts.any))
        return connection

    def accept_as(self, make: Callable[[int, EngineConnection], Connection]) -> asyncio.BaseProtocol:
        """Make what asyncio wants for the next connection, of whatever kind."""
        # Sixteen bytes that are text too: clients of Tarantool get them as a string.
        return self.connection(make, secrets.token_urlsafe(12).encode())  # type: ignore[return-value]

    def connection(self, make: Callable[[int, EngineConnection], Connection], token: bytes) -> Connection:
        """Make the next connection, of whatever kind, with a session of this token."""
        node = self._node
        node.begin_turn()
        self._numbers += 1
        connection = make(self._numbers, node.engine.connect(token))
        connection.bulk_max = self.limits.bulk_max
        connection.known = not self.accounts.any
        connection.user = ANYBODY
        return connection

    def limit_bulks(self, bulk_max: int) -> None:
        """Let no argument have more bytes than this, also of clients that are connected."""
        if bulk_max == self.limits.bulk_max:
            return
        self.limits.bulk_max = bulk_max
        for connection in self:
            connection.bulk_max = bulk_max
            if connection.known:
                connection.inbox.parser.trust(bulk_max)

    def came(self, connection: Connection) -> None:
        """A connection was made, if it may stay."""
        transport = connection.transport
        self.accepted += 1
        found_at = transport.get_extra_info("sockname")
        if isinstance(found_at, tuple):
            connection.address, connection.is_local = _address(transport.get_extra_info("peername"))
            connection.local_address, _ = _address(found_at)
        else:
            # As Redis and Disque tell it: all have one address, that of the socket.
            connection.address, connection.is_local = f"{found_at}:0", True
        transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH if connection.known else _UNKNOWN_UNSENT_BYTES)
        _keep_alive(transport.get_extra_info("socket"), self.limits.keepalive_s)
        if not self._make_room(0):
            self._refused += 1
            self._turn_away(connection, b"-ERR max number of clients reached\r\n")
        elif not connection.known:
            self._unknown[connection] = time.monotonic()
        elif not self.accounts.admits(connection.user):
            # A password was set after the system accepted the connection and before the loop announced it.
            self._turn_away(connection, _PASSWORD_SET)
        elif self.limits.protected and not connection.is_local and transport.get_extra_info("sslcontext") is None:
            self._turn_away(connection, _PROTECTED)

    def _make_room(self, wanted: int) -> bool:
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
        if self._make_room(1):
            return True
        # Before the handshake is finished the client cannot be told why.
        self._refused += 1
        self.rejected += 1
        return False

    def _turn_away(self, connection: Connection, why: bytes) -> None:
        self.rejected += 1
        self._closing[connection] = None
        connection.closing = True
        connection.transport.write(connection.turned_away(why))
        connection.close()

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self._closing.pop(connection, None)
        self._watch_no_more(connection)

    def _watch_no_more(self, connection: Connection) -> None:
        those: dict[Connection, Any]
        for those in (self._unknown, self._unfinished, self._slow, self._held, self.monitors):
            those.pop(connection, None)

    def is_known(self, connection: Connection) -> None:
        """A client has said who it is."""
        self._unknown.pop(connection, None)
        connection.transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)

    def is_unfinished(self, connection: Connection, unfinished: bool) -> None:
        """A client has sent a part of a command, or the rest of it."""
        if unfinished:
            self._unfinished[connection] = time.monotonic()
        else:
            self._unfinished.pop(connection, None)

    def is_slow(self, connection: Connection, slow: bool) -> None:
        """A client does not read what it is sent, or does so again."""
        if slow:
            self._slow.setdefault(connection, time.monotonic())
        else:
            self._slow.pop(connection, None)

    def is_held(self, connection: Connection, held: bool) -> None:
        """A client is not read from, or is so again."""
        if held:
            self._held[connection] = None
        else:
            self._held.pop(connection, None)

    def is_behind(self, connection: Connection, unread: int) -> None:
        """A client has still to read so many bytes of answers before the last."""
        hard = self.limits.output_hard
        if hard and unread > hard:
            self._close(connection, "it does not read its answers, and they have grown too many")

    def close_outdated(self, keep: Connection | None) -> None:
        """Close the clients that are not admitted any more after a change of passwords, except `keep`.

        The clients of other nodes stay. Their own node closes them.
        """
        for connection in self:
            may_stay = connection is keep or connection.entry or not connection.known
            if not may_stay and not self.accounts.admits(connection.user):
                self._close(connection, "its password was changed")

    def sweep(self, now: float) -> None:
        """Close those who have to go."""
        limits = self.limits
        self._log_limit()
        for connection in _older(self._unknown, now - limits.auth_s):
            self._close(connection, "it did not say who it is in time")
        for connection in _older(self._unfinished, now - limits.progress_s):
            self._close(connection, "it did not complete a command in time")
        for connection in _older(self._slow, now - limits.output_soft_s):
            if limits.output_soft and connection.buffered() > limits.output_soft:
                self._close(connection, "it does not read its answers")
        self._close_largest()
        for connection in list(self._held):
            # Whoever is not read from cannot be heard leaving.
            if connection.is_waiting and _has_left(connection.transport.get_extra_info("socket")):
                connection.has_left()
        if limits.idle_s:
            since = self._node.host.now() - int(limits.idle_s * 1000)
            for connection in self:
                if connection.active < since and self._is_silent(connection, now - limits.idle_s):
                    self._close(connection, "it was silent for too long")

    def _log_limit(self) -> None:
        """Log how many connections the limits have cost since the last line, which is at least a second ago."""
        if self._displaced or self._refused:
            _log.warning(
                "connection limit reached: max_clients=%d closed_unauthenticated=%d refused=%d",
                self.limits.clients,
                self._displaced,
                self._refused,
            )
            self._displaced = self._refused = 0

    def _is_silent(self, connection: Connection, since: float) -> bool:
        """Whether a client that has sent nothing for so long could have: nothing of it is still to be answered."""
        if connection.is_waiting or connection.is_monitor or connection.entry:
            # Those of other nodes are closed there.
            return False
        is_unrun = connection.inbox.parser.pending() > 0 and connection not in self._unfinished
        if connection.busy or is_unrun:
            # One that has not read for as long holds its answer up itself.
            unread_since = self._slow.get(connection)
            return unread_since is not None and unread_since < since
        return True

    def _close_largest(self) -> None:
        """Close those who have most in buffers, while all of them together have too much."""
        sizes = {
            each: int(each.inbox.parser.pending()) + each.buffered()
            for each in {**self._unfinished, **self._slow, **self._held, **{each: None for each in self if each.owed}}
        }
        total = sum(sizes.values())
        if self.limits.buffers_max and total > self.limits.buffers_max:
            for connection, size in sorted(sizes.items(), key=lambda item: -item[1]):
                self._close(connection, "too much is buffered for all clients, and for it most")
                total -= size
                if total <= self.limits.buffers_max:
                    break

    def _close(self, connection: Connection, why: str) -> None:
        _log.info("client %s was closed: %s", connection.address, why)
        self._abort(connection)

    def _abort(self, connection: Connection) -> None:
        self._watch_no_more(connection)
        self._closing[connection] = None
        connection.abort()


def _older(those: dict[Connection, float], when: float) -> list[Connection]:
    """Those who began before a moment. They are in the order in which they began."""
    found = []
    for connection, began in those.items():
        if began > when:
            break
        found.append(connection)
    return found


def _has_left(sock: socket.socket | None) -> bool:
    """Whether the other side of a socket has closed it, as the system knows before all of it was read."""
    if sock is None or sock.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def _keep_alive(sock: socket.socket | None, seconds: float) -> None:
    """Let the system find out whether a silent client is still there."""
    if sock is None or sock.family == socket.AF_UNIX or not seconds:
        return
    # One that cannot be asked is served all the same.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(max(1, int(seconds)), _KEEPALIVE_S_MAX))


def _address(name: object) -> tuple[str, bool]:
    """An address as people read it, and whether it is of this machine."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return shown, ipaddress.ip_address(host.split("%")[0]).is_loopback
    # It is gone already.
    return "unknown:0", False
