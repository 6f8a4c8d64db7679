"""A client connection over RESP: bytes in, replies out.

Backpressure: the connection is not read while its replies pile up, or while many of its commands wait for an earlier
one. `clients.py` closes connections that exceed a limit.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from mypy_extensions import i64, mypyc_attr

from penstock.core.waits import Connection as EngineConnection
from penstock.core.waits import Waiting
from penstock.dialects.tarantool.calls import CallInbox
from penstock.node.inbox import ALL_RUN, MORE_LEFT, STOPPED, Inbox
from penstock.server.net.access import Account
from penstock.server.node import Client, Node

# A client that cannot be served now is not read from above this number of bytes. The rest stays in its socket.
_UNREAD_BYTES_MAX: Final = 64 * 1024

# A waiting client is read further, because otherwise its disconnect goes unnoticed and the jobs it took stay taken.
_UNREAD_BYTES_MAX_WAITING: Final = 1024 * 1024

# A client that has more unsent reply bytes than this in its socket's buffer is not served until it reads.
UNSENT_BYTES_HIGH: Final = 256 * 1024

# The size of the write buffer is checked after this many bytes of replies. A check costs as much as a short reply.
_UNCHECKED_BYTES_MAX: Final = 16 * 1024


class ConnectionObserver(Protocol):
    """The interface of `Clients` that connections report to."""

    def opened(self, connection: Connection) -> None:
        """Register a connection that was opened, or refuse it."""

    def closed(self, connection: Connection) -> None:
        """Remove a connection that was closed."""

    def authenticated(self, connection: Connection) -> None:
        """Record that the client has authenticated."""

    def is_unfinished(self, connection: Connection, unfinished: bool) -> None:
        """Record whether the client has sent an incomplete command."""

    def is_slow(self, connection: Connection, slow: bool) -> None:
        """Record whether the client reads its replies slower than they are written."""

    def is_held(self, connection: Connection, held: bool) -> None:
        """Record whether reading from the connection is paused."""

    def note_unread(self, connection: Connection, unread: int) -> None:
        """Check `unread`, the bytes of earlier replies that the client has not read, against the hard limit."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Client):
    """A client connection over RESP. asyncio calls it as a Protocol."""

    inbox: Inbox | CallInbox
    transport: asyncio.Transport
    user: Account

    def __init__(
        self, node: Node, overseer: ConnectionObserver, number: int, engine_connection: EngineConnection
    ) -> None:
        super().__init__(number, engine_connection)
        self._node = node
        self._overseer = overseer
        self.name = b""
        self.library = b""
        self.library_version = b""
        self.address = ""
        self.local_address = ""  # The server's address that the client connected to; empty for a Unix socket.
        self.is_local = False  # The client is on this machine.
        self.created = node.now
        self.active = node.now  # The time of its last command.
        self.is_monitor = False
        self.bulk_max = 0  # The maximum bytes of an argument after the client has authenticated.
        self._eof = False  # The client has closed its sending side.
        self._left = False  # The client has disconnected, but not all of its bytes are read.
        self._unfinished = False  # It has sent a part of a command.
        self._held = False  # Reading is paused.
        self._closed = False  # It was sent its last reply.
        self._unchecked_bytes: i64 = 0  # Bytes sent since the write buffer was checked.

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Register the connection."""
        self.transport = transport
        self._node.join(self)
        self._overseer.opened(self)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the parser. Complete commands run at the end of the turn."""
        self._node.bytes_in += len(data)
        self.inbox.parser.feed(data)
        if len(data) > _UNREAD_BYTES_MAX and not self._held:
            # asyncio keeps reading from a client that sends this fast, and the other clients would have to wait.
            self._stop_reading()
            self._node.run_later(self)
        else:
            self._node.arrived(self)

    def eof_received(self) -> bool:
        """Run all received commands, because the client sends no more. End its waits immediately."""
        self._eof = True
        self._node.end_waits(self)
        self._node.run(self)
        # TLS connections cannot be half-open: asyncio closes them, and logs a warning if the protocol asks otherwise.
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection, because it was closed."""
        self.lost = self._closed = True
        self._node.leave(self)
        self._overseer.closed(self)

    def pause_writing(self) -> None:
        """Stop running the client's commands, because it does not read its replies."""
        self.is_unread = True
        self._overseer.is_slow(self, True)
        self.hold()

    def resume_writing(self) -> None:
        """Run the client's commands again, because it reads its replies again."""
        self.is_unread = False
        self._overseer.is_slow(self, False)
        if not self.lost:
            self._node.reads_again(self)

    # Called by the node

    def run(self, budget: int) -> bool:
        """Run up to `budget` commands that the client has sent. Return whether there are more."""
        node = self._node
        if self.is_unread:
            self.hold()
            return False
        left = self.inbox.run(node.desk, self, budget, node.now)
        if left == ALL_RUN and not (self._unfinished or self._held or self._eof):
            self.active = node.now
            return False
        if (self._eof or self._left) and node.cancel_waits(self):
            left = MORE_LEFT
        if self.inbox.ran:
            self._note_unfinished(False)
        if left in (STOPPED, MORE_LEFT):
            self.hold()
        else:
            self._all_run()
        return left == MORE_LEFT

    def _all_run(self) -> None:
        """Continue to read if reading was paused, because all complete commands have run.

        After malformed bytes, or if the client sends no more, close the connection when its replies are sent.
        """
        self.active = self._node.now
        parser = self.inbox.parser
        if parser.error:
            self.refuse_bytes(parser.error)
            self.closing = True
        elif self._eof and not self.remote_count:
            self.closing = True
        self._note_unfinished(parser.is_unfinished())
        if self._held and not self.lost:
            self._read_on()

    def refuse_bytes(self, why: bytes) -> None:
        """Write an error reply, because malformed bytes were received. Nothing more of this connection is read."""
        self.reply.error(b"ERR " + why)

    def refusal(self, why: bytes) -> bytes:
        """Return the reply to a client that may not stay connected. `why` is a RESP error line."""
        return why

    def end_wait(self, wait: Waiting, now: int, refusal: bytes = b"") -> None:
        """Write the reply of a command whose wait has ended, or the error `refusal` if it is not empty."""
        self._node.desk.end_wait(self, wait, now, refusal)

    def _note_unfinished(self, unfinished: bool) -> None:
        if self._unfinished != unfinished:
            self._unfinished = unfinished
            self._overseer.is_unfinished(self, unfinished)

    def send(self, answers: bytes) -> None:
        """Send replies. Close the connection if they were the last ones."""
        # If the system has closed the socket, the jobs in the reply are not delivered.
        if self._closed or (self.unsent and self.transport.is_closing()):
            return
        were_last = self.confirm_sent()
        length: i64 = len(answers)
        if length > 0:
            self.transport.write(answers)
            self._node.bytes_out += length
            self._unchecked_bytes += length
            if self._unchecked_bytes > _UNCHECKED_BYTES_MAX:
                self._check_write_buffer(length)
        if were_last:
            self.close()

    def _check_write_buffer(self, length: i64) -> None:
        self._unchecked_bytes = 0
        # The reply just written counts as one, however long it is. Only the rest of earlier replies is checked.
        unread = self.transport.get_write_buffer_size() - length
        if unread > 0:
            self._overseer.note_unread(self, unread)

    def close(self) -> None:
        """Close the connection after all written replies are sent. Nothing more is written."""
        self._closed = True
        self.transport.close()

    def abort(self) -> None:
        """Close the connection immediately and drop its replies."""
        self.closing = self._closed = True
        self.transport.abort()

    def log_in(self, user: Account) -> None:
        """Give the connection the permissions of a user who has logged in."""
        self.user = user
        self.is_authenticated = True
        self.groups = user.groups
        self.restrict(user.tubes)
        self.truncates = user.truncates
        self.inbox.parser.raise_limits(self.bulk_max)
        self._overseer.authenticated(self)

    def fileno(self) -> int:
        """Return the file descriptor of the socket, or -1 if there is none."""
        socket = self.transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def has_answers(self) -> bool:
        """Return whether there are replies that are not sent completely."""
        return self.reply.length > 0 or self.sending > 0 or self.buffered() > 0

    def buffered(self) -> int:
        """Return how many bytes of replies are not sent: in the write buffer, and in results of a running command."""
        return self.transport.get_write_buffer_size() + int(self.owed)

    def hold(self) -> None:
        """Pause reading while the client has sent more than can be run now, or does not read its replies."""
        if self.lost:
            return
        most = _UNREAD_BYTES_MAX_WAITING if self.is_waiting else _UNREAD_BYTES_MAX
        if self.is_unread or self.inbox.parser.pending() > most:
            if not self._held:
                self._stop_reading()
        elif self._held and self.is_waiting:
            self._read_on()

    def has_left(self) -> None:
        """End the client's waits, because it has disconnected while reading was paused. Reading then continues."""
        self._left = True
        self._node.end_waits(self)

    def _read_on(self) -> None:
        self._held = False
        self._overseer.is_held(self, False)
        self.transport.resume_reading()

    def _stop_reading(self) -> None:
        self._held = True
        self._overseer.is_held(self, True)
        self.transport.pause_reading()
