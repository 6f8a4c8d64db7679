"""One client over RESP: its bytes in, its answers out.

It is read no faster than it reads: while its answers pile up, or its commands do because it waits, its socket is left
alone. `clients.py` closes what cannot end well.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from mypy_extensions import i64, mypyc_attr

from penstock.core.waits import Connection as EngineConnection
from penstock.core.waits import Waiting
from penstock.dialects.calls import CallInbox
from penstock.dialects.inbox import ALL_RUN, MORE_LEFT, STOPPED, Inbox
from penstock.server.access import Account
from penstock.server.node import Client, Node

# Above this a client that cannot be served now is not read from; its commands wait where they are.
_UNREAD_BYTES_MAX: Final = 64 * 1024

# One that waits is read from for longer: else it cannot be heard leaving, and what it has taken stays taken.
_UNREAD_BYTES_MAX_WAITING: Final = 1024 * 1024

# How many bytes of answers may wait in a socket's buffer before its client is served no more until it reads.
UNSENT_BYTES_HIGH: Final = 256 * 1024

# Whether a client reads its answers is looked at when it was sent so many more of them, bytes: to ask costs as much as
# a short answer.
_UNLOOKED_BYTES_MAX: Final = 16 * 1024


class Overseer(Protocol):
    """Whoever looks after all connections."""

    def came(self, connection: Connection) -> None:
        """It was made."""

    def left(self, connection: Connection) -> None:
        """It is gone."""

    def is_known(self, connection: Connection) -> None:
        """Its client has said who it is."""

    def is_unfinished(self, connection: Connection, unfinished: bool) -> None:
        """Its client has sent a part of a command, or the rest of it."""

    def is_slow(self, connection: Connection, slow: bool) -> None:
        """Its client does not read what it is sent, or does so again."""

    def is_held(self, connection: Connection, held: bool) -> None:
        """It is not read from, or is so again."""

    def is_behind(self, connection: Connection, unread: int) -> None:
        """Its client has still to read so many bytes of answers before the last."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Client):
    """One client. asyncio calls it as a Protocol."""

    inbox: Inbox | CallInbox
    transport: asyncio.Transport
    user: Account

    def __init__(self, node: Node, overseer: Overseer, number: int, engine_connection: EngineConnection) -> None:
        super().__init__(number, engine_connection)
        self._node = node
        self._overseer = overseer
        self.name = b""
        self.library = b""
        self.library_version = b""
        self.address = ""
        self.local_address = ""  # Where it has found us; empty if by a Unix socket.
        self.is_local = False  # It came from this machine.
        self.created = node.now
        self.active = node.now  # When it last sent something.
        self.is_monitor = False
        self.bulk_max = 0  # What an argument may have once it is known who it is, bytes.
        self._eof = False  # It sends no more.
        self._left = False  # It will send no more, though not all that it has sent was read.
        self._unfinished = False  # It has sent a part of a command.
        self._held = False  # It is not read from.
        self._closed = False  # It was sent its last answer.
        self._unlooked: i64 = 0  # How many bytes it was sent since it was looked at whether it reads them.

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:
        """It is there."""
        self.transport = transport
        self._node.join(self)
        self._overseer.came(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        self._node.bytes_in += len(data)
        self.inbox.parser.feed(data)
        if len(data) > _UNREAD_BYTES_MAX and not self._held:
            # The loop reads on and on from one who sends that fast, and comes to the others when it is through.
            self._stop_reading()
            self._node.run_later(self)
        else:
            self._node.arrived(self)

    def eof_received(self) -> bool:
        """It sends no more. What it has sent is run and answered; but a take does not wait for one who has left."""
        self._eof = True
        self._node.end_waits(self)
        self._node.run(self)
        # TLS has no half of a connection: asyncio closes it, and complains of whoever wants it open.
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self.lost = self._closed = True
        self._node.leave(self)
        self._overseer.left(self)

    def pause_writing(self) -> None:
        """It does not read what it is sent."""
        self.is_unread = True
        self._overseer.is_slow(self, True)
        self.hold()

    def resume_writing(self) -> None:
        """It reads again."""
        self.is_unread = False
        self._overseer.is_slow(self, False)
        if not self.lost:
            self._node.reads_again(self)

    # What the node calls

    def run(self, budget: int) -> bool:
        """Run what it has sent, no more than so many commands; tell whether there is more."""
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
        """Everything it has sent was run, except perhaps a command that is not complete."""
        self.active = self._node.now
        parser = self.inbox.parser
        if parser.error:
            self.refuse_bytes(parser.error)
            self.closing = True
        elif self._eof and not self.abroad:
            self.closing = True
        self._note_unfinished(parser.is_unfinished())
        if self._held and not self.lost:
            self._read_on()

    def refuse_bytes(self, why: bytes) -> None:
        """Say why nothing more of it is read."""
        self.reply.error(b"ERR " + why)

    def turned_away(self, why: bytes) -> bytes:
        """What it is told if it may not stay."""
        return why

    def end_wait(self, wait: Waiting, now: int, refusal: bytes = b"") -> None:
        """What it waited for has ended: answer it, or refuse it."""
        self._node.desk.end_wait(self, wait, now, refusal)

    def _note_unfinished(self, unfinished: bool) -> None:
        if self._unfinished != unfinished:
            self._unfinished = unfinished
            self._overseer.is_unfinished(self, unfinished)

    def send(self, answers: bytes) -> None:
        """Send it answers, and close it if they were the last."""
        # What a socket that the system has closed is handed was not delivered.
        if self._closed or (self.unsent and self.transport.is_closing()):
            return
        were_last = self.were_sent()
        length: i64 = len(answers)
        if length > 0:
            self.transport.write(answers)
            self._node.bytes_out += length
            self._unlooked += length
            if self._unlooked > _UNLOOKED_BYTES_MAX:
                self._look_whether_it_reads(length)
        if were_last:
            self.close()

    def _look_whether_it_reads(self, length: i64) -> None:
        self._unlooked = 0
        # What was just handed over is one answer, however long; only what is left of those before counts.
        unread = self.transport.get_write_buffer_size() - length
        if unread > 0:
            self._overseer.is_behind(self, unread)

    def close(self) -> None:
        """Close it when what it was sent has left; it is sent no more."""
        self._closed = True
        self.transport.close()

    def abort(self) -> None:
        """Close it at once, whatever it was to be sent."""
        self.closing = self._closed = True
        self.transport.abort()

    def become(self, user: Account) -> None:
        """It has said who it is."""
        self.user = user
        self.known = True
        self.groups = user.groups
        self.restrict(user.tubes)
        self.truncates = user.truncates
        self.inbox.parser.trust(self.bulk_max)
        self._overseer.is_known(self)

    def fileno(self) -> int:
        """The number of its socket."""
        socket = self.transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def has_answers(self) -> bool:
        """Whether there is anything that it was not sent yet."""
        return self.reply.length > 0 or self.sending > 0 or self.buffered() > 0

    def buffered(self) -> int:
        """How many bytes of answers wait until it reads: in its socket's buffer, and what is to follow them."""
        return self.transport.get_write_buffer_size() + int(self.owed)

    def hold(self) -> None:
        """Do not read from it while it has sent much that cannot be run yet, or does not read itself."""
        if self.lost:
            return
        most = _UNREAD_BYTES_MAX_WAITING if self.is_waiting else _UNREAD_BYTES_MAX
        if self.is_unread or self.inbox.parser.pending() > most:
            if not self._held:
                self._stop_reading()
        elif self._held and self.is_waiting:
            self._read_on()

    def has_left(self) -> None:
        """It has left while it was not read from. A take does not wait for it, so that the rest comes to be read."""
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
