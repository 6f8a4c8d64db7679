"""A connected client of a node: its inbox, its replies, and when it is read from. Pure.

Subclasses have the connection: a socket (`server/net/connection.py`), a tunnel to another node (`node/forwarding.py`),
or a simulated one (`testing/sim`).

Backpressure: a client is not read from while its replies pile up. It is also not read from while it waits for a reply
and has already sent many more commands.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core.tube_patterns import TubePatterns
from penstock.core.waits import Connection, Waiting
from penstock.node.caller import Caller
from penstock.node.inbox import ALL_RUN, MORE_LEFT, Inbox

# The user of clients that have not logged in, and, as in Redis, of those that log in with a password alone.
DEFAULT_USER: Final = "default"

# A client that cannot be served now is not read from above this number of bytes. The rest stays in its socket.
UNREAD_BYTES_MAX: Final = 64 * 1024

# A waiting client is read further, because otherwise its disconnect goes unnoticed and the jobs it took stay taken.
_UNREAD_BYTES_MAX_WAITING: Final = 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(Caller):
    """A connected client. Subclasses send and receive its bytes."""

    inbox: Inbox

    def __init__(self, number: int, connection: Connection, now: i64) -> None:
        super().__init__(connection)
        self.number = number
        self.user_name = ""
        self.name = b""  # The name that the client chose with CLIENT SETNAME.
        self.library = b""
        self.library_version = b""
        self.address = ""
        self.local_address = ""  # The server's address that the client connected to; empty for a Unix socket.
        self.is_monitor = False
        self.bulk_max: i64 = 0  # The maximum bytes of an argument after the client has authenticated.
        self.created: i64 = now
        self.active: i64 = now  # The time of its last command.
        self.lost = False  # The connection is gone.
        self.has_arrived = False  # It has sent bytes that are run at the end of the turn.
        self.is_dirty = False  # It has replies to be sent.
        self.is_unread = False  # It does not read its replies.
        self.is_held = False  # Reading is paused.
        # It has closed its sending side, or has disconnected while reading was paused, or its node sent STOP_WAITING.
        self.sends_no_more = False
        self.has_eof = False  # It has closed its sending side, so the connection is closed after the last reply.
        self.is_unfinished = False  # It has sent a part of a command.
        self.is_closed = False  # It was sent its last reply.

    @property
    def is_waiting(self) -> bool:
        """Return whether the client waits for the reply of a command."""
        return bool(self.connection.waits) or self.remote_count > 0

    # Called by the turn

    def run(self, budget: i64, now: i64) -> i64:
        """Run up to `budget` commands that the client has sent. Return why no more were run: a constant of inbox.py."""
        return self.inbox.run(self, budget, now)

    def ran(self, left: i64, now: i64) -> None:
        """Pause or resume reading after commands ran. `left` is the result of `run`: why no more were run."""
        if left == ALL_RUN and not (self.is_unfinished or self.is_held or self.has_eof):
            self.active = now
            return
        if self.inbox.ran:
            self._set_unfinished(False)
        if left >= MORE_LEFT:
            self.hold()
        else:
            self._all_run(now)

    def _all_run(self, now: i64) -> None:
        """Resume reading after all complete commands have run.

        If the client sent malformed bytes or sends no more, close the connection after the replies.
        """
        self.active = now
        buffer = self.inbox.buffer
        if buffer.error:
            self.inbox.refuse_bytes(self, buffer.error)
            self.closing = True
        elif self.has_eof and not self.is_waiting:
            # The calls of an IPROTO client run on while others of it wait, for example for the election of a home.
            self.closing = True
        self._set_unfinished(buffer.is_unfinished())
        if self.is_held and not self.lost:
            self.set_held(False)

    def hold(self) -> None:
        """Pause reading while the client has sent more than can be run now, or does not read its replies."""
        if self.lost:
            return
        most = _UNREAD_BYTES_MAX_WAITING if self.is_waiting else UNREAD_BYTES_MAX
        if self.is_unread or self.inbox.buffer.pending() > most:
            if not self.is_held:
                self.set_held(True)
        elif self.is_held and self.is_waiting:
            self.set_held(False)

    def end_wait(self, wait: Waiting, now: i64, refusal: bytes = b"") -> None:
        """Write the reply of a command whose wait has ended, or the RESP error line `refusal` if it is not empty."""
        self.inbox.end_wait(self, wait, now, refusal)

    def send(self, replies: bytes) -> None:
        """Send replies. If the connection is to be closed after them, close it."""
        # If the connection is closed, the jobs in the reply are not delivered.
        if self.is_closed or (self.unsent and self.is_closing()):
            return
        were_last = self.confirm_sent()
        if replies:
            self.write(replies)
        if were_last:
            self.close()

    def _set_unfinished(self, unfinished: bool) -> None:
        if self.is_unfinished != unfinished:
            self.is_unfinished = unfinished
            self.note_unfinished()

    def log_in(self, user_name: str, groups: i64, tubes: TubePatterns) -> None:
        """Give the client the permissions of a user."""
        self.user_name = user_name
        self.is_authenticated = True
        self.groups = groups
        self.restrict(tubes)
        self.inbox.buffer.raise_limits(self.bulk_max)
        self.introduce()

    def set_name(self, name: bytes) -> None:
        """Set the name that the client chose."""
        self.name = name
        self.introduce()

    def introduce(self) -> None:
        """Copy the client's name and user to its session, for the history.

        The default user is not copied, because it identifies no client.
        """
        user = b"" if self.user_name == DEFAULT_USER else self.user_name.encode()
        self.connection.session.set_client(self.name, user)

    def has_answers(self) -> bool:
        """Return whether there are replies that are not sent completely."""
        return self.reply.length > 0 or self.sending > 0 or self.buffered() > 0

    # The connection, which subclasses have

    def fileno(self) -> int:
        """Return the file descriptor of the socket, or -1 if there is none."""
        return -1

    def buffered(self) -> int:
        """Return how many bytes of replies wait to be sent, including those that a running command has yet to write."""
        return int(self.owed)

    def write(self, data: bytes) -> None:
        """Send bytes on the connection."""
        raise NotImplementedError

    def is_closing(self) -> bool:
        """Return whether the connection is closed already, so that bytes written to it are lost."""
        return False

    def close(self) -> None:
        """Close the connection after all written bytes are sent."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close the connection immediately and drop its replies."""
        raise NotImplementedError

    def set_held(self, held: bool) -> None:
        """Pause reading from the connection, or resume it. Set `is_held`."""
        self.is_held = held

    def note_unfinished(self) -> None:
        """Do nothing. Subclasses override this method to react when `is_unfinished` has changed."""
