"""A node: one engine, the clients connected to it, and the turns in which it works.

    read all → parse and run all → append → sync → write

A turn runs everything that all connections sent until the event loop comes round. It holds the host's lock and ends
with a commit to the log. Its replies are sent when the log is as durable as promised. This includes the replies to
reads and the refusals, so no client ever sees a change that a crash can undo. While a slow disk syncs in a thread,
turns continue, and their replies wait for the next sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster.home_election import ElectionWait
from penstock.core import waits as w
from penstock.core.errors import JournalFailed
from penstock.core.limits import NEVER
from penstock.core.waits import Connection, TakeWait, Waiting
from penstock.dialects.tarantool.calls import Pending
from penstock.host.host import Host
from penstock.node.caller import Caller, SlicedCommand
from penstock.node.dispatch import Dispatcher
from penstock.server.linger import Linger
from penstock.server.peers.post import Letters, Post
from penstock.wire.iproto import IprotoReply

_log = logging.getLogger("penstock")

# The maximum number of commands of one connection in a turn: about half a millisecond of work.
COMMANDS_PER_TURN: Final = 256

# A sync runs in the event loop if it takes no longer than this on average, because a change of threads costs as much.
SYNC_INLINE_MAX_S: Final = 0.0005
# A sync of more bytes than this runs in a thread, because it takes longer than the average tells.
SYNC_INLINE_BYTES_MAX: Final = 256 * 1024

_SYNC_WEIGHT: Final = 0.2

# After a slice of a long command, other clients get this many times the slice's duration, if they need it.
_REST: Final = 19


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(Caller):
    """A client of a node. Each protocol has its own subclass."""

    def __init__(self, number: int, connection: Connection) -> None:
        super().__init__(connection)
        self.number = number
        self.lost = False  # The connection is gone.
        self.has_arrived = False  # It has sent bytes that are run at the end of the turn.
        self.is_dirty = False  # It has replies to be sent.
        self.is_unread = False  # It does not read its replies.

    def run(self, budget: int) -> bool:
        """Run up to `budget` commands that the client has sent. Return whether there are more."""
        raise NotImplementedError

    @property
    def is_waiting(self) -> bool:
        """Return whether the client waits for the reply of a command."""
        return bool(self.connection.waits) or self.remote_count > 0

    def end_wait(self, wait: Waiting, now: int, refusal: bytes = b"") -> None:
        """Write the reply of a command whose wait has ended, or the RESP error `refusal` if it is not empty."""
        raise NotImplementedError

    def hold(self) -> None:
        """Pause reading from the client while it has sent more than can be run now."""
        raise NotImplementedError

    def send(self, answers: bytes) -> None:
        """Send replies. Close the connection if they were the last ones."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close the connection immediately and drop its replies."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SuspendedCommand(SlicedCommand):
    """A long command that waits for an event outside of the engine. `Node.resume` continues it."""

    def stop_waiting(self) -> None:
        """Stop waiting as soon as possible and reply, because the client sends no more."""

    def cancel(self) -> None:
        """Drop the command, because its client has disconnected."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteCommands:
    """The commands that clients of this node run on other nodes.

    This base class is for a node without peers and does nothing.
    """

    def stop_waiting(self, client: Client) -> None:
        """End the client's waits on other nodes as soon as possible."""

    def leaves(self, client: Client) -> None:
        """Drop the client's commands on other nodes, because it has disconnected."""

    def reads_again(self, client: Client) -> None:
        """Continue to receive replies from other nodes, because the client reads its replies again."""


class _Outgoing:
    """Replies to clients and messages to peers that wait until the log is durable."""

    def __init__(self, answers: list[tuple[Client, bytes]], letters: Letters | None) -> None:
        self.answers = answers
        self.letters = letters


@mypyc_attr(allow_interpreted_subclasses=True)
class Node:
    """The engine behind a server, and the turns in which it works."""

    desk: Dispatcher
    remote_commands: RemoteCommands
    bytes_in: i64  # Bytes received from clients.
    bytes_out: i64  # Bytes sent to clients.

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.engine = host.engine
        self.loop = loop
        self.ledger = host.ledger
        self.now: i64 = self.ledger.clock.now()  # The time of the turn.
        self.clients: dict[int, Client] = {}
        self.failed: asyncio.Future[None] = loop.create_future()  # Fails with the reason why the node cannot go on.
        self.post = Post()
        self.linger = Linger(loop, self._end_turn)
        self.remote_commands = RemoteCommands()
        self.bytes_in = 0
        self.bytes_out = 0
        self.sync_average_s = 0.0
        self.on_sync: Callable[[float], None] = lambda _: None  # Called with the seconds that each sync took.
        self._in_turn = False
        self._stopped = False
        self._arrived: list[Client] = []  # Clients whose bytes of this turn are not run yet.
        self._dirty: list[Client] = []  # Clients that have replies to be sent.
        self._to_run: dict[Client, None] = {}  # Clients that have more commands than fit in a turn, oldest first.
        self._long: deque[tuple[Client, SlicedCommand]] = deque()
        self._rested_at = 0.0  # The next slice of a long command may run from this time on, even if others are busy.
        self._rest: asyncio.TimerHandle | None = None  # Fires at `_rested_at`.
        self._others_ran = False  # Other clients ran commands since the last slice.
        self._parked: dict[Client, SuspendedCommand] = {}  # Long commands that wait for an event outside of the engine.
        self._unread: dict[Client, SlicedCommand] = {}  # Long commands that wait until their clients read.
        self._syncing = False
        self._pause: asyncio.TimerHandle | None = None  # Set while no command may run.
        self._paused: dict[Client, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._lock = host.lock
        host.on_failure = self._on_failure
        host.on_ended_waits = self._on_ended_waits

    # Turns

    def begin_turn(self) -> None:
        """Begin a turn, unless one is already running."""
        if not self._in_turn:
            self.linger.turn_begins()
            self._begin()

    def _begin(self) -> None:
        self._in_turn = True
        self._lock.acquire()
        self.now = self.ledger.clock.now()
        if self._to_run:
            self._run_rest()
        if self._long and self._may_step_long():
            self._step_long()

    def arrived(self, client: Client) -> None:
        """Record that a client has sent bytes. Its commands run after the loop has read from all ready sockets.

        Reading all sockets first keeps each phase's code in the instruction cache. The lock is not held while reading.
        """
        if not client.has_arrived:
            client.has_arrived = True
            self._arrived.append(client)
            self.linger.turn_begins()

    def run(self, client: Client) -> None:
        """Run the commands that a client has sent, up to the limit per turn. Send its replies after the turn."""
        if not self._in_turn:
            self.begin_turn()
        client.has_arrived = False
        self._others_ran = True
        if self._pause is not None:
            self._paused[client] = None
            client.hold()
        elif client.run(COMMANDS_PER_TURN):
            self._to_run[client] = None
        self.keep_frames_small()
        if not client.is_dirty:
            client.is_dirty = True
            self._dirty.append(client)

    def keep_frames_small(self) -> None:
        """Commit early if the changes of this turn fill a frame. The replies are still sent at the end of the turn."""
        if self.engine.outbox.full():
            self.host.commit()

    def run_later(self, client: Client) -> None:
        """Run the commands of a client in the next turn."""
        self.begin_turn()
        self._to_run[client] = None

    def answered(self, client: Client) -> None:
        """Record that a client has a reply to send that was not caused by its own commands in this turn."""
        self.begin_turn()
        if not client.is_dirty:
            client.is_dirty = True
            self._dirty.append(client)

    def start_long(self, client: Client, long: SlicedCommand) -> None:
        """Run a long command, one slice per turn."""
        client.busy = True
        self._long.append((client, long))

    def park(self, client: Client, parked: SuspendedCommand) -> None:
        """Suspend a long command until `resume`. A command that is already running calls this from its `step`."""
        client.busy = True
        self._parked[client] = parked

    def resume(self, client: Client, parked: SuspendedCommand) -> None:
        """Continue a suspended command, if its client is still connected."""
        if self._parked.get(client) is parked:
            del self._parked[client]
            self.begin_turn()
            self._long.append((client, parked))

    def reads_again(self, client: Client) -> None:
        """Continue the commands of a client, because it reads its replies again."""
        long = self._unread.pop(client, None)
        if long is not None:
            self._long.append((client, long))
        self.remote_commands.reads_again(client)
        self.run(client)

    def _end_turn(self) -> None:
        """End the turn: run the received commands, serve ended waits, commit, and send the replies."""
        if not self._in_turn:
            if not self._arrived:
                return
            self._begin()
        try:
            if self.ledger.failed:
                self.host.check()
            self._run_arrived()
            self._serve_waiters()
            self.ledger.commit()
        except Exception as error:
            # The disk or an assertion failed. After a failed assertion, the rest of the state cannot be trusted.
            if isinstance(error, JournalFailed):
                self.host.fail(error)
            self._fail(error)
            return
        finally:
            self._in_turn = False
            self._lock.release()
        self._send()
        self._set_timer()
        if self._stopped:
            return
        # The commit itself may have ended waits.
        if self._to_run or self.engine.outbox.ended_waits or (self._long and self._may_step_long()):
            self.begin_turn()
        elif self._long and self._rest is None:
            self._rest = self.loop.call_later(self._rested_at - time.perf_counter(), self._have_rested)

    def _run_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for client in arrived:
            # A client that disconnected in the meantime was already run.
            if client.has_arrived:
                try:
                    self.run(client)
                except JournalFailed:
                    raise
                except Exception as defect:
                    # An internal error closes this client. If it interrupted a change, `report` ends the node.
                    self.desk.internal_errors += 1
                    self.report(defect)
                    client.abort()

    def _run_rest(self) -> None:
        """Run the clients that had more commands than the limit of the previous turn."""
        waiting, self._to_run = self._to_run, {}
        for client in waiting:
            if not client.lost:
                self.run(client)

    def _may_step_long(self) -> bool:
        """Return whether a long command may continue: no other client ran, or others had their share of the time."""
        return not self._others_ran or time.perf_counter() >= self._rested_at

    def _have_rested(self) -> None:
        self._rest = None
        self.begin_turn()

    def _step_long(self) -> None:
        """Run a slice of the next long command."""
        client, long = self._long.popleft()
        if client.lost:
            return
        if client.is_unread:
            self._unread[client] = long
            return
        began = time.perf_counter()
        if self.desk.step(client, long, self.now):
            client.busy = False
        elif client not in self._parked:
            self._long.append((client, long))
        ended = time.perf_counter()
        self._rested_at = ended + _REST * (ended - began)
        # Run the client even if the command is not finished, because a client that left must not wait for it.
        self.run(client)
        self._others_ran = False

    def _serve_waiters(self) -> None:
        """Reply to the waits that ended, and run the commands that their clients sent in the meantime."""
        self.engine.advance(self.now)
        self.post.advance(self.now)
        ended = self.engine.outbox.ended_waits
        while ended:
            waits = ended[:]
            ended.clear()
            for wait in waits:
                client = _client_of(wait)
                client.end_wait(wait, self.now)
                if client.lost:
                    self._take_back(client)
                else:
                    self.run(client)
            self.post.advance(self.now)

    def _set_timer(self) -> None:
        """Set a timer that starts a turn at the next deadline of the engine or the cluster."""
        due = min(self.engine.deadlines.next_due, self.post.next_due)
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self.loop.call_later(max(0, due - self.ledger.clock.now()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_due = None, NEVER
        self.begin_turn()

    # Sending

    def _send(self) -> None:
        """Send the replies now if the log is durable, otherwise after a sync."""
        if self._syncing or not (self._dirty or self.post.has_mail()):
            return
        assert not self._in_turn, "replies are sent after the commit"
        if self.ledger.is_durable():
            self._send_all()
        elif self.sync_average_s <= SYNC_INLINE_MAX_S and self.ledger.unsynced_bytes() <= SYNC_INLINE_BYTES_MAX:
            try:
                self._note_sync(self._log_to_sync()())
            except JournalFailed as error:
                self._fail(error)
                return
            self._send_all()
        else:
            self._syncing = True
            outgoing = self._gather()
            sync = self._log_to_sync()
            self.loop.run_in_executor(None, sync).add_done_callback(lambda done: self._synced(done, outgoing))

    def _send_all(self) -> None:
        """Send all messages and replies. The caller has made sure that the log is durable."""
        # Peers come first, because they can work while the clients' sockets are written.
        letters = self.post.take()
        if letters is not None:
            self.post.send(letters)
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.is_dirty = False
            client.send(client.take_replies())

    def _gather(self) -> _Outgoing:
        """Collect the pending messages and replies. They are sent when the log is durable up to this point."""
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.is_dirty = False
        return _Outgoing([(client, client.take_replies()) for client in dirty], self.post.take())

    def _log_to_sync(self) -> Callable[[], float]:
        """Return a function that makes the log durable up to its present end. It returns the seconds that this took.

        Any thread may call the function. If the journal is switched off in the meantime, it was closed, and all of it
        is durable.
        """
        log = self.ledger.log
        assert log is not None
        position = log.written

        def sync() -> float:
            began = time.perf_counter()
            log.make_durable(position)
            return time.perf_counter() - began

        return sync

    def _note_sync(self, seconds: float) -> None:
        self.sync_average_s += _SYNC_WEIGHT * (seconds - self.sync_average_s)
        self.on_sync(seconds)

    def _synced(self, done: asyncio.Future[float], outgoing: _Outgoing) -> None:
        self._syncing = False
        error = done.exception()
        if error is not None:
            self._fail(error)
            return
        self._note_sync(done.result())
        if outgoing.letters is not None:
            self.post.send(outgoing.letters)
        for client, answers in outgoing.answers:
            client.send(answers)
        if not self._in_turn:
            # Within a turn, there are replies whose changes are not in the log yet. The end of the turn sends them.
            self._send()

    def _fail(self, error: BaseException) -> None:
        """Fail the node with `error` and abort all clients, because no further reply can be trusted."""
        if not self.failed.done():
            self.failed.set_exception(error)
        for client in list(self.clients.values()):
            client.abort()

    def report(self, defect: Exception) -> None:
        """Log an internal error. If the error left a change half done, stop the node."""
        _log.error("internal error; please report it", exc_info=defect)
        self.host.gives_up(defect)

    def _on_failure(self, error: BaseException) -> None:
        """Fail the node from any thread."""
        # The loop may already be closed.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._fail, error)

    def _on_ended_waits(self) -> None:
        """Start a turn that writes the replies of waits which another thread ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.begin_turn)

    # Clients come and go

    def join(self, client: Client) -> None:
        """Add a client."""
        self.clients[client.number] = client

    def stop(self) -> None:
        """End the last turn. All clients are disconnected before, and no other turn follows."""
        self._stopped = True
        self._end_turn()
        for timer in (self._timer, self._rest):
            if timer is not None:
                timer.cancel()

    def leave(self, client: Client) -> None:
        """Remove a client that has disconnected: run its last commands, undo unsent deliveries, and end its session."""
        if self.clients.pop(client.number, None) is None or self.failed.done() or self._stopped:
            return
        self.begin_turn()
        if client.has_arrived:
            self.run(client)
        # Cancel its waits first, so that jobs it gives back go to others.
        for wait in list(client.connection.waits.values()):
            self.engine.cancel(wait)
        self._take_back(client)
        self._unread.pop(client, None)
        parked = self._parked.pop(client, None)
        if parked is not None:
            parked.cancel()
        self.remote_commands.leaves(client)
        client.wait = None
        self.engine.disconnect(client.connection, self.now)

    def _take_back(self, client: Client) -> None:
        """Undo the deliveries to a disconnected client whose replies were not sent."""
        for job, delivery in zip(client.unsent, client.unsent_deliveries):
            self.engine.undelivered(job, self.now, delivery)
        client.unsent.clear()
        client.unsent_deliveries.clear()
        for wait in self._unanswered(client):
            # The end of the turn replies to it, with no jobs.
            jobs, deliveries = wait.jobs, wait.deliveries
            wait.jobs, wait.deliveries = [], []
            for job, delivery in zip(jobs, deliveries):
                self.engine.undelivered(job, self.now, delivery)

    def _unanswered(self, client: Client) -> list[TakeWait]:
        """Return the waiting takes of a client that got jobs in this turn and have no reply yet."""
        waits: list[Waiting] = []
        if client.wait is not None:
            waits.append(client.wait)
        elif isinstance(client.reply, IprotoReply):
            # An IPROTO client can have many waits, and keeps no list of them.
            waits = [wait for wait in self.engine.outbox.ended_waits if wait.connection is client.connection]
        return [wait for wait in waits if isinstance(wait, TakeWait)]

    def end_waits(self, client: Client, refusal: bytes = b"") -> None:
        """End all waits of a client, and run the commands that it sent in the meantime."""
        if self.cancel_waits(client, refusal):
            self.run(client)

    def cancel_waits(self, client: Client, refusal: bytes = b"") -> bool:
        """End all waits of a client, with the error `refusal` or as if they had timed out. Return whether any ended."""
        parked = self._parked.get(client)
        if parked is not None:
            parked.stop_waiting()
        if client.remote_count:
            self.remote_commands.stop_waiting(client)
        waits = list(client.connection.waits.values())
        if not refusal:
            # Whether a tube may be created is decided soon, so these commands still run.
            waits = [wait for wait in waits if not isinstance(wait, ElectionWait)]
        for wait in waits:
            self._cancel(wait, refusal)
        return bool(waits)

    def end_wait(self, wait: Waiting) -> None:
        """End one wait of a client as if it had timed out, and run the commands that it sent in the meantime."""
        self._cancel(wait, b"")
        self.run(_client_of(wait))

    def _cancel(self, wait: Waiting, refusal: bytes) -> None:
        if wait.outcome == w.WAITING:
            self.begin_turn()
            self.engine.cancel(wait)
            _client_of(wait).end_wait(wait, self.now, refusal)

    def pause_clients(self, seconds: float) -> None:
        """Run no client's commands for this many seconds. A pause that is already running is replaced."""
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self.loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._to_run |= self._paused
        self._paused = {}
        self.begin_turn()


def _client_of(wait: Waiting) -> Client:
    """Return the client of a wait. The tag of the wait is the client, or an IPROTO call of the client."""
    tag = wait.tag
    client = tag.caller if isinstance(tag, Pending) else tag
    assert isinstance(client, Client)
    return client
