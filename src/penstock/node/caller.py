"""The client that calls a command: its permissions, its pending wait, and its replies that are not sent yet."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster.questions import QuestionWait
from penstock.core.job import Job
from penstock.core.sessions import Session
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns
from penstock.core.waits import Connection, Waiting
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# Permission groups of commands, as bits of a mask.
READ: Final = 1
WRITE: Final = 2
ADMIN: Final = 4
DEBUG: Final = 8
EVERYTHING: Final = READ | WRITE | ADMIN | DEBUG
GROUPS: Final[dict[str, int]] = {"read": READ, "write": WRITE, "admin": ADMIN, "debug": DEBUG}

# Whether the replies of a caller are sent or dropped (CLIENT REPLY).
ANSWERED: Final = 0
SKIP_NEXT: Final = 1  # The CLIENT REPLY SKIP itself is running.
SKIP_THIS: Final = 2
SILENT: Final = 3

# When a caller's unsent replies exceed this many bytes, its remaining commands run in a later turn.
ANSWERS_BYTES_MAX: Final = 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Caller:
    """A connected client, with its permissions, its pending wait and its unsent replies."""

    reply: Reply
    connection: Connection
    is_authenticated: bool  # The client is authenticated, or does not have to be.
    groups: i64  # The permission groups of the commands that it may run.
    tubes: TubePatterns  # The tubes that it may use.
    any_tube: bool  # It may use all tubes. A copy of `tubes.any_tube` for the hot path.
    truncates: set[bytes]  # Tubes that it may empty without being an administrator.
    wait: Waiting | None  # The pending wait of its command. Its next command runs when the wait has ended.
    busy: bool  # A command that runs in slices is in progress. Its next command runs when the slices have ended.
    remote_count: i64  # The number of its commands that are in progress on other nodes.
    closing: bool  # The connection is closed when all replies have been sent.
    reply_mode: i64  # ANSWERED, SKIP_NEXT, SKIP_THIS or SILENT.
    entry_node: bytes  # The node that its client is connected to; empty if that is this node.
    last_command: bytes  # The name of the command that it sent last.
    on_wait_end: WaitReply | None  # Writes the reply when `wait` ends.
    # The answers of other nodes that the running command has asked for, by the name of the stage or consumer.
    answers: dict[bytes, QuestionWait] | None
    unsent: list[Job]  # Jobs that were delivered in replies that are not sent yet.
    unsent_deliveries: list[int]  # The delivery number of each job in `unsent`.
    owed: i64  # The bytes of a long reply that are still to follow.
    sending: i64  # The bytes of replies that were taken to be sent and are not sent yet.
    _sending_count: i64  # The number of entries of `unsent` that are in those bytes.

    def __init__(self, connection: Connection) -> None:
        self.reply = Reply()
        self.connection = connection
        self.is_authenticated = True
        self.groups = EVERYTHING
        self.tubes = EVERY_TUBE
        self.any_tube = True
        self.truncates = set()
        self.wait = None
        self.busy = False
        self.remote_count = 0
        self.closing = False
        self.reply_mode = ANSWERED
        self.entry_node = b""
        self.last_command = b""
        self.on_wait_end = None
        self.answers = None
        self.unsent = []
        self.unsent_deliveries = []
        self.owed = 0
        self.sending = 0
        self._sending_count = 0

    def wait_for(self, wait: Waiting, answer: WaitReply) -> None:
        """Make the caller wait until `wait` has ended. `answer` writes the reply then, at the end of a turn."""
        self.wait = wait
        self.on_wait_end = answer

    def is_blocked(self) -> bool:
        """Return whether the caller waits for a result, or runs a command in slices.

        This is a method, because mypyc would assume that an attribute which was just set to None is still None.
        """
        return self.wait is not None or self.busy

    def take_replies(self) -> bytes:
        """Return the replies to be sent. Call `confirm_sent` when they have been sent."""
        self.sending = self.reply.length
        self._sending_count = len(self.unsent)
        return self.reply.take()

    def confirm_sent(self) -> bool:
        """Record that the bytes of the last `take_replies` are sent. Return whether the connection has to be closed."""
        self.sending = 0
        if self._sending_count > 0:
            if self._sending_count == len(self.unsent):
                self.unsent.clear()
                self.unsent_deliveries.clear()
            else:
                del self.unsent[: self._sending_count]
                del self.unsent_deliveries[: self._sending_count]
            self._sending_count = 0
        return self.closing and self.reply.length == 0

    def introduce(self) -> None:
        """Do nothing. Subclasses with a name and a user override this method to copy both to the session."""

    def restrict(self, tubes: TubePatterns) -> None:
        """Replace the patterns of the tubes that the caller may use."""
        self.tubes = tubes
        self.any_tube = tubes.any_tube

    def may_use(self, tube: bytes) -> bool:
        """Return whether the caller may use a tube."""
        return self.tubes.match(tube)


# A function, because a method could be overridden and would be looked up at every call.
def check_tube(caller: Caller, tube: bytes) -> None:
    """Raise an error if the caller may not use a tube."""
    if not caller.any_tube and not caller.may_use(tube):
        raise Refused(b"NOPERM this user has no permission to use this queue")


def check_own(caller: Caller, name: bytes, what: bytes) -> None:
    """Raise an error if the name of a stage or a consumer does not match the caller's tube patterns.

    The name is checked, and not the tubes of the jobs, because a stage of another user may have no jobs now.
    """
    if not caller.any_tube and not caller.may_use(name):
        raise Refused(b"NOPERM this user has no permission to use this " + what)


def check_join(caller: Caller, session: Session | None) -> None:
    """Raise an error if the caller has no write permission and wants to join a session that holds jobs.

    A client that joins a session can end the grace time of the session, and so return its jobs to their tubes. The
    tokens of sessions are in the journal, which a caller with read permission can read.
    """
    if session is not None and session.held and not caller.groups & WRITE and session is not caller.connection.session:
        raise Refused(b"NOPERM this user has no permission to join a session that holds jobs")


def whole_server_refusal(caller: Caller) -> bytes:
    """Return the error line for a caller that may not use commands about the whole server, or b"" if it may.

    A user with tube patterns administers only its own tubes. A forwarded client is refused as well, because nodes
    forward only commands about single tubes. Any other command from a node was not sent by one of its clients.
    """
    if caller.entry_node:
        return b"NOPERM a command about the whole server is not run for a client of another node"
    return b"" if caller.any_tube else b"NOPERM this user has no permission to use every queue"


def check_whole_server(caller: Caller) -> None:
    """Raise an error if the caller may not use commands about the whole server."""
    refusal = whole_server_refusal(caller)
    if refusal:
        raise Refused(refusal)


# The number of jobs or queues that one slice of a long command handles, and the maximum in one reply: about a
# millisecond of work.
SLICE: Final = 1_000


class WaitReply:
    """Writes the reply of a command that waited."""

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Write the reply to a wait that was served, timed out or was cancelled."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SlicedCommand:
    """A command that runs in slices. Other clients are served between two slices."""

    def step(self, caller: Caller, now: i64) -> bool:
        """Run one slice. Return whether the command is finished. The last slice writes the reply."""
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingCall:
    """A call that waits in the engine, and whose reply follows later. The `tag` of the wait is this object.

    It is used for callers that can have several pending calls.
    """

    caller: Caller

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
