"""A client connection over a socket: bytes in, replies out. Compiled.

`node/client.py` decides which commands run, and when the socket is read. `clients.py` closes connections that exceed a
limit.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from mypy_extensions import i64, mypyc_attr

from penstock.core.waits import Connection as EngineConnection
from penstock.node.client import Client
from penstock.node.turn import Turn
from penstock.server.net.access import Account

# A client that has more unsent reply bytes than this in its socket's buffer is not served until it reads.
UNSENT_BYTES_HIGH: Final = 256 * 1024

# The size of the write buffer is checked after this many bytes of replies. A check costs as much as a short reply.
_UNCHECKED_BYTES_MAX: Final = 16 * 1024


class ConnectionObserver(Protocol):
    """The interface of `Clients` that connections report to. `clients.py` describes its methods."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...
    def authenticated(self, connection: Connection) -> None: ...
    def set_unfinished(self, connection: Connection, unfinished: bool) -> None: ...
    def set_slow(self, connection: Connection, slow: bool) -> None: ...
    def set_held(self, connection: Connection, held: bool) -> None: ...
    def note_unread(self, connection: Connection, unread: int) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Client):
    """A client connection over a socket. asyncio calls it as a Protocol."""

    transport: asyncio.Transport
    user: Account

    def __init__(
        self, turn: Turn, overseer: ConnectionObserver, number: int, engine_connection: EngineConnection
    ) -> None:
        super().__init__(number, engine_connection, turn.now)
        self._turn = turn
        self._overseer = overseer
        self.is_local = False  # The client is on this machine.
        self.greeting = b""  # Sent first, over IPROTO.
        self.salt = b""  # The part of the greeting with which passwords are scrambled.
        self._unchecked_bytes: i64 = 0  # Bytes sent since the write buffer was checked.

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        if self.greeting:
            transport.write(self.greeting)
        self._turn.join(self)
        self._overseer.opened(self)

    def data_received(self, data: bytes) -> None:
        self._turn.received(self, data)

    def eof_received(self) -> bool:
        """Run all received commands, because the client sends no more. Return whether replies can still be sent."""
        self._turn.end_input(self)
        # TLS connections cannot be half-open: asyncio closes them, and logs a warning if the protocol asks otherwise.
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = self.is_closed = True
        self._turn.leave(self)
        self._overseer.closed(self)

    def pause_writing(self) -> None:
        """Stop running the client's commands, because it does not read its replies."""
        self.is_unread = True
        self._overseer.set_slow(self, True)
        self.hold()

    def resume_writing(self) -> None:
        self.is_unread = False
        self._overseer.set_slow(self, False)
        if not self.lost:
            self._turn.reads_again(self)

    # Called by the turn: see Client

    def write(self, data: bytes) -> None:
        self.transport.write(data)
        length: i64 = len(data)
        self._unchecked_bytes += length
        if self._unchecked_bytes > _UNCHECKED_BYTES_MAX:
            self._check_write_buffer(length)

    def _check_write_buffer(self, length: i64) -> None:
        self._unchecked_bytes = 0
        # The reply just written counts as one, however long it is. Only the rest of earlier replies is checked.
        unread = self.transport.get_write_buffer_size() - length
        if unread > 0:
            self._overseer.note_unread(self, unread)

    def is_closing(self) -> bool:
        """Return whether the system has closed the socket, so that replies are lost."""
        return self.transport.is_closing()

    def close(self) -> None:
        """Close the connection after all written replies are sent. Nothing more is written."""
        self.is_closed = True
        self.transport.close()

    def abort(self) -> None:
        self.closing = self.is_closed = True
        self.transport.abort()

    def set_held(self, held: bool) -> None:
        """Pause reading from the socket, or resume it."""
        self.is_held = held
        self._overseer.set_held(self, held)
        if held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def note_unfinished(self) -> None:
        """Report whether a command is incomplete. `clients.py` closes the connection if the rest comes too late."""
        self._overseer.set_unfinished(self, self.is_unfinished)

    # Called by commands and by the overseer

    def log_in_as(self, user: Account) -> None:
        """Give the connection the permissions of a user who has logged in."""
        self.user = user
        self.truncates = user.truncates
        self.log_in(user.name, user.groups, user.tubes)
        self._overseer.authenticated(self)

    def stopped_sending(self) -> None:
        """End the waits of a client that has disconnected while reading was paused. Its other commands can then run."""
        self._turn.stopped_sending(self)

    def fileno(self) -> int:
        """Return the file descriptor of the socket, or -1 if there is none."""
        socket = self.transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def buffered(self) -> int:
        """Return how many bytes of replies are not sent: in the write buffer, and in results of a running command."""
        return self.transport.get_write_buffer_size() + int(self.owed)
