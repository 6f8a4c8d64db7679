"""The turn: the cycle in which a node works. Pure.

    read all → run all → fire timers → serve waits → append → sync → send

**The promise.** No client and no peer receives a byte that depends on a change which a crash can undo. All commands of
a turn share one commit. Everything that the turn produced leaves the node only when the log is as durable as the fsync
policy says: replies, also those of reads and refusals, and messages to peers. A turn is therefore the unit of
atomicity. Its clients share the cost of one sync: the more clients a turn serves, the less each of them pays.

**The driver.** A turn has no clock, socket, disk or lock of its own. The event loop of a server (`server/loop.py`) and
the simulated machine (`testing/sim/node.py`) drive the same code:

    arrived, receive, leave, …   the driver passes input in. The first input that changes state opens the turn.
    end                          the driver calls this after it has read all ready sockets: run all commands, commit
    send                         the driver calls this after `end`, without the lock: send the output or start a sync
    synced                       the driver calls this when the sync that `Driver.start_sync` started has ended

**The states of a turn.**

    closed ── begin ──▶ open ── end ──▶ closed ── send ──▶ closed, output sent
                                          │
                                          └─ the log is not durable ──▶ syncing ── synced ──▶ output sent

While a sync runs in a thread, further turns are opened, ended and committed. Their output waits in the clients' reply
buffers and in the cluster's outbox. `synced` sends the output that was collected when the sync was started, and only
that, because later output depends on later frames. Then `synced` starts the next sync, unless a turn is open. The
changes of an open turn are not committed yet, so its output has to wait for the end of the turn.

**Deliveries.** A job counts as delivered when the reply with it was handed to the client's connection. If the client
disconnects before that, `leave` undoes the delivery. The job was never seen, so its return does not count as a failure.
`leave` finds such jobs in two places: in `unsent` of the caller, if the reply is in the reply buffer or waits for a
sync, and in `jobs` of a wait that ended in this turn and has no reply yet.

**Order.** Each client's commands run in the order in which it sent them. Between clients, the order is the one in
which their bytes arrived. A client that sends many commands is interrupted after COMMANDS_PER_TURN of them and goes on
in the next turn. A long command runs in slices, one per turn. Most of the time is left for the other clients.

**Failures.** An error of a command is a reply. An internal error of a command closes its client. If the log fails, or
if an error interrupts a change of the engine half-way, no reply of the turn is sent: `end` raises the error, and the
driver stops the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster.home_election import ElectionWait
from penstock.cluster.messages import TUNNEL, TUNNELEND, Greeting, Message
from penstock.cluster.node import Cluster
from penstock.cluster.questions import QuestionWait
from penstock.core import waits as w
from penstock.core.engine import Engine
from penstock.core.errors import JournalFailed
from penstock.core.limits import NEVER
from penstock.core.waits import TakeWait, Waiting
from penstock.journal.log import Log
from penstock.node.caller import PendingCall, SlicedCommand
from penstock.node.client import UNREAD_BYTES_MAX, Client
from penstock.node.clock import Clock
from penstock.node.dispatch import Dispatcher
from penstock.node.inbox import MORE_LEFT
from penstock.node.links import Messages, PeerLinks
from penstock.node.remote import NO_REMOTE_COMMANDS, RemoteCommands
from penstock.wire.iproto import IprotoReply

# The maximum number of commands of one connection in a turn: about half a millisecond of work.
COMMANDS_PER_TURN: Final = 256

# `Driver.wake_at` with this time: end the turn as soon as all ready input was passed in.
SOON: Final = 0

# After a slice of a long command, other clients get this many times the slice's duration, if they need it.
_REST: Final = 19

_NS_PER_MS: Final = 1_000_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Driver:
    """The event loop or simulated machine that calls a turn, and that the turn calls back."""

    def begin(self) -> None:
        """Take the lock of the engine. The driver releases it when `Turn.end` has returned."""
        raise NotImplementedError

    def wake_at(self, due: i64) -> None:
        """Wake the turn at the engine time `due`, or earlier.

        If `due` is SOON, read all input that is ready now, and then call `Turn.end`. Otherwise call `Turn.plan` at the
        time `due`. `Turn.plan` then calls this method with SOON.
        """
        raise NotImplementedError

    def start_sync(self, log: Log) -> None:
        """Make the log durable up to its present end, then call `Turn.synced`, within this call or later."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SuspendedCommand(SlicedCommand):
    """A long command that waits for an event outside of the engine. `Turn.resume` continues it."""

    def stop_waiting(self) -> None:
        """End the wait as soon as possible, so that the command replies, because the client sends no more."""

    def cancel(self) -> None:
        """Drop the command, because its client has disconnected."""


class _Output:
    """Replies to clients and messages to peers that wait for a sync."""

    def __init__(self, replies: list[tuple[Client, bytes]], messages: Messages | None) -> None:
        self.replies = replies
        self.messages = messages


class Turn:
    """The cycle in which a node works: see the docstring of this module."""

    engine: Engine
    clock: Clock
    log: Log | None  # None for a node in memory.
    dispatcher: Dispatcher
    cluster: Cluster | None  # None until the cluster is started, and after its links are closed.
    links: PeerLinks | None
    remote: RemoteCommands
    clients: dict[int, Client]
    now: i64  # The time of the turn.
    is_open: bool
    _is_planned: bool  # The driver was asked to call `end` soon.
    is_syncing: bool
    stopped: bool  # No turn follows.
    bytes_in: i64  # Bytes received from clients.
    bytes_out: i64  # Bytes sent to clients.
    _driver: Driver
    _arrived: list[Client]  # Clients whose bytes of this turn are not run yet.
    _dirty: list[Client]  # Clients that have replies to be sent.
    _to_run: dict[Client, None]  # Clients that have more commands than fit in a turn, oldest first.
    _long: deque[tuple[Client, SlicedCommand]]
    _rested_ns: i64  # At this time, the next slice of a long command can run even if other clients are busy.
    _clients_ran: bool  # Clients ran commands in this turn.
    _others_ran: bool  # Other clients ran commands since the turn of the last slice, including that turn.
    _parked: dict[Client, SuspendedCommand]  # Long commands that wait for an event outside of the engine.
    _unread: dict[Client, SlicedCommand]  # Long commands that wait until their clients read.
    _paused_until: i64  # No command of a client runs before this time.
    _paused: dict[Client, None]  # Clients that sent commands during such a pause.
    _output: _Output | None  # The output that waits for the sync.
    _deferred: list[Callable[[], None]]  # Work that `end` does first.
    _numbers: i64  # The number of the last client.
    _news: i64  # The last value of `Cluster.news` that was handled.

    def __init__(self, engine: Engine, clock: Clock, driver: Driver, dispatcher: Dispatcher) -> None:
        self.engine = engine
        self.clock = clock
        self.log = None
        self.dispatcher = dispatcher
        self.cluster = None
        self.links = None
        self.remote = NO_REMOTE_COMMANDS
        self.clients = {}
        self.now = clock.now()
        self.is_open = False
        self._is_planned = False
        self.is_syncing = False
        self.stopped = False
        self.bytes_in = 0
        self.bytes_out = 0
        self._driver = driver
        self._arrived = []
        self._dirty = []
        self._to_run = {}
        self._long = deque()
        self._rested_ns = 0
        self._clients_ran = False
        self._others_ran = False
        self._parked = {}
        self._unread = {}
        self._paused_until = 0
        self._paused = {}
        self._output = None
        self._deferred = []
        self._numbers = 0
        self._news = -1

    # Begin and end

    def plan(self) -> None:
        """Let the driver call `end` soon."""
        if not self._is_planned:
            self._is_planned = True
            self._driver.wake_at(SOON)

    def begin(self) -> None:
        """Open the turn, unless it is open."""
        if not self.is_open:
            self.plan()
            self._open()

    def _open(self) -> None:
        self._driver.begin()
        self.is_open = True
        self._clients_ran = False
        self.now = self.clock.now()

    def open_if_planned(self) -> bool:
        """Open the turn if there is work for it. Return whether it is open."""
        if self._is_planned and not self.is_open:
            self._open()
        self._is_planned = False
        return self.is_open

    def end(self) -> None:
        """End the turn: run the received commands, serve ended waits, and commit. Raise an error if the log failed."""
        assert self.is_open
        try:
            if self._deferred:
                deferred, self._deferred = self._deferred, []
                for work in deferred:
                    work()
            self._run_rest()
            self._run_arrived()
            self._serve_waits()
            log = self.log
            if log is not None:
                log.commit_turn(self.now, self.clock.wall())
        finally:
            self.is_open = False

    def send(self) -> None:
        """Send the output of the turn if the log is durable, otherwise start a sync. Plan the next turn.

        The lock is not held.
        """
        self._send()
        if not self.stopped:
            self._plan_next()

    def _plan_next(self) -> None:
        due: i64 = self.engine.deadlines.next_due
        cluster = self.cluster
        if cluster is not None:
            due = min(due, cluster.next_due)
        if self._paused:
            due = min(due, self._paused_until)
        if self._long:
            if self._may_step_long():
                due = SOON
            else:
                rest_ns: i64 = self._rested_ns - self.dispatcher.clock_ns()
                due = min(due, self.now + max(rest_ns, 0) // _NS_PER_MS + 1)
        # The commit itself may have ended waits.
        if self._to_run or self._deferred or self.engine.outbox.ended_waits or due == SOON:
            self.plan()
        elif due != NEVER:
            self._driver.wake_at(due)

    def stop(self) -> None:
        """Plan no more turns. The driver still ends the present turn."""
        self.stopped = True

    # Input

    def defer(self, work: Callable[[], None]) -> None:
        """Run `work` when the present turn ends, or when the next one ends if the present one is ending already."""
        self._deferred.append(work)
        self.plan()

    def next_number(self) -> int:
        """Return the number of a new client."""
        self._numbers += 1
        return int(self._numbers)

    def join(self, client: Client) -> None:
        """Add a client that has connected."""
        self.clients[client.number] = client

    def received(self, client: Client, data: bytes) -> None:
        """Add received bytes to the inbox of a client."""
        self.bytes_in += len(data)
        client.inbox.buffer.feed(data)
        if len(data) > UNREAD_BYTES_MAX and not client.is_held:
            # asyncio keeps reading from a client that sends this fast, and the other clients would have to wait.
            client.set_held(True)
            self.run_later(client)
        else:
            self.arrived(client)

    def end_input(self, client: Client) -> None:
        """Run all commands of a client that has closed its sending side, and end its waits immediately."""
        client.has_eof = True
        self.stopped_sending(client)
        self.run(client)

    def stopped_sending(self, client: Client) -> None:
        """End the waits of a client that sends no more, so that the rest of its commands can run."""
        client.sends_no_more = True
        self.end_waits(client)

    def arrived(self, client: Client) -> None:
        """Record that a client has sent bytes. Its commands run after the driver has read from all ready sockets.

        Reading all sockets first keeps each phase's code in the instruction cache. The lock is not held while reading.
        """
        if not client.has_arrived:
            client.has_arrived = True
            self._arrived.append(client)
            self.plan()

    def receive(self, sender: bytes, host: str, messages: list[Message]) -> None:
        """Handle messages from the node `sender`, which connected from the address `host`."""
        self.begin()
        for message in messages:
            # A message can end all links.
            cluster = self.cluster
            if cluster is None:
                return
            if TUNNEL <= message.kind <= TUNNELEND:
                if cluster.members.is_member(sender):
                    self.remote.receive(sender, message)
                continue
            if isinstance(message, Greeting) and not message.host:
                message.host = host
            cluster.receive(sender, message, self.now)
        self._keep_frame_small()

    def run_later(self, client: Client) -> None:
        """At the end of the turn, run the commands that a client has sent."""
        self.begin()
        self._to_run[client] = None

    def reads_again(self, client: Client) -> None:
        """Continue the commands of a client, because it reads its replies again."""
        self.begin()
        long = self._unread.pop(client, None)
        if long is not None:
            self._long.append((client, long))
        self.remote.reads_again(client)
        self.run(client)

    def leave(self, client: Client) -> None:
        """Remove a client that has disconnected: run its last commands, undo unsent deliveries, and end its session."""
        if self.clients.pop(client.number, None) is None or self.stopped:
            return
        self.begin()
        if client.has_arrived:
            self.run(client)
        self._drop_work(client)
        self.engine.disconnect(client.connection, self.now)

    def _drop_work(self, client: Client) -> None:
        """Cancel the waits of a disconnected client, its long command and its commands on other nodes."""
        # Cancel its waits first, so that jobs it gives back go to others.
        for wait in list(client.connection.waits.values()):
            self.engine.cancel(wait)
        self._take_back(client)
        self._unread.pop(client, None)
        parked = self._parked.pop(client, None)
        if parked is not None:
            parked.cancel()
        self.remote.leaves(client)
        client.wait = None

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

    # Commands

    def run(self, client: Client) -> None:
        """Run the commands that a client has sent, up to the limit per turn. Its replies are sent after the turn."""
        self.begin()
        client.has_arrived = False
        self._clients_ran = self._others_ran = True
        if self._paused_until > self.now:
            self._paused[client] = None
            client.hold()
        elif client.is_unread:
            client.hold()
        else:
            outbox = self.engine.outbox
            outbox.actor = client.connection.session
            left = client.run(COMMANDS_PER_TURN, self.now)
            outbox.actor = None
            if client.sends_no_more and self.cancel_waits(client):
                left = MORE_LEFT
            client.ran(left, self.now)
            if left == MORE_LEFT:
                self._to_run[client] = None
        self._keep_frame_small()
        self.answered(client)

    def answered(self, client: Client) -> None:
        """Call `Client.send` for a client after the turn, even if its reply buffer is empty."""
        self.begin()
        if not client.is_dirty:
            client.is_dirty = True
            self._dirty.append(client)

    def _run_safely(self, client: Client) -> None:
        try:
            self.run(client)
        except JournalFailed:
            raise
        except Exception as defect:
            # An internal error closes this client. If it interrupted a change, `report` stops the node.
            self.dispatcher.report(defect)
            client.abort()

    def _run_rest(self) -> None:
        """Run the commands that earlier turns left because of a pause or a limit, then a slice of a long command."""
        if self._paused and self._paused_until <= self.now:
            self._to_run.update(self._paused)
            self._paused = {}
        if self._to_run:
            clients, self._to_run = self._to_run, {}
            for client in clients:
                if not client.lost:
                    self._run_safely(client)
        if self._long and self._may_step_long():
            self._step_long()

    def _run_arrived(self) -> None:
        clients, self._arrived = self._arrived, []
        for client in clients:
            # A client that disconnected in the meantime was already run.
            if client.has_arrived:
                self._run_safely(client)

    def _serve_waits(self) -> None:
        """Fire the timers, reply to the waits that ended, and run the commands that their clients sent meanwhile."""
        self.engine.advance(self.now)
        self._advance_cluster()
        ended = self.engine.outbox.ended_waits
        while ended:
            waits = ended[:]
            ended.clear()
            finishing: dict[Client, None] = {}
            for wait in waits:
                client = _client_of(wait)
                self.engine.outbox.actor = client.connection.session
                client.end_wait(wait, self.now)
                self.engine.outbox.actor = None
                if client.lost:
                    # A command that waited for other nodes has run again, and may wait again.
                    self._drop_work(client)
                elif client.has_eof:
                    finishing[client] = None
                else:
                    self.run(client)
            for client in finishing:
                # `run` closes the connection of such a client if no wait is left, so all ended waits come first.
                self.run(client)
            self._advance_cluster()

    def _advance_cluster(self) -> None:
        cluster = self.cluster
        if cluster is not None:
            cluster.advance(self.now)
            news = cluster.news()
            if news != self._news and self.links is not None:
                self._news = news
                self.links.update()

    def _keep_frame_small(self) -> None:
        """Commit early if the changes of this turn fill a frame. The replies are still sent at the end of the turn."""
        log = self.log
        if log is not None and self.engine.outbox.full():
            try:
                log.commit_turn(self.now, self.clock.wall())
            except JournalFailed:
                # The commit at the end of the turn fails again, and the driver stops the node.
                pass

    # Commands that run in slices

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
            self.begin()
            self._long.append((client, parked))

    def _may_step_long(self) -> bool:
        """Return whether the next slice can run: no other client ran commands, or others had their share of time."""
        return not self._others_ran or self.dispatcher.clock_ns() >= self._rested_ns

    def _step_long(self) -> None:
        client, long = self._long.popleft()
        if client.lost:
            return
        if client.is_unread:
            self._unread[client] = long
            return
        others_ran = self._clients_ran
        began: i64 = self.dispatcher.clock_ns()
        self.engine.outbox.actor = client.connection.session
        if self.dispatcher.step(client, long, self.now):
            client.busy = False
        elif client not in self._parked:
            self._long.append((client, long))
        self.engine.outbox.actor = None
        ended: i64 = self.dispatcher.clock_ns()
        self._rested_ns = ended + _REST * (ended - began)
        # Run the client even if the command is not finished, because a client that left must not wait for it.
        self._run_safely(client)
        self._others_ran = others_ran

    # Waits

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
            self.remote.stop_waiting(client)
        waits = list(client.connection.waits.values())
        if not refusal:
            # Elections and questions end soon, so these commands still run.
            waits = [wait for wait in waits if not isinstance(wait, (ElectionWait, QuestionWait))]
        for wait in waits:
            self._cancel(wait, refusal)
        return bool(waits)

    def end_wait(self, wait: Waiting) -> None:
        """End one wait of a client as if it had timed out, and run the commands that it sent in the meantime."""
        self._cancel(wait, b"")
        self.run(_client_of(wait))

    def _cancel(self, wait: Waiting, refusal: bytes) -> None:
        if wait.outcome == w.WAITING:
            self.begin()
            self.engine.cancel(wait)
            _client_of(wait).end_wait(wait, self.now, refusal)

    def pause_clients(self, until: i64) -> None:
        """Run no client's commands before the engine time `until`. This replaces an earlier pause."""
        self.begin()
        self._paused_until = until

    # Output

    def _send(self) -> None:
        cluster = self.cluster
        if self.is_syncing or not (self._dirty or (cluster is not None and cluster.outbox.by_peer)):
            return
        assert not self.is_open, "output is sent after the commit"
        log = self.log
        if log is None or log.is_durable():
            self._send_all()
            return
        self._output = self._take_output()
        self.is_syncing = True
        self._driver.start_sync(log)

    def synced(self) -> None:
        """Send the output that waited for the sync. The log is durable as far as it was written when the sync began."""
        self.is_syncing = False
        output, self._output = self._output, None
        assert output is not None
        if output.messages is not None and self.links is not None:
            self.links.send(output.messages)
        for client, replies in output.replies:
            self.bytes_out += len(replies)
            client.send(replies)
        if not self.is_open:
            # Within a turn, there are replies whose changes are not in the log yet. The end of the turn sends them.
            self._send()

    def _send_all(self) -> None:
        """Send all messages and replies. The log is durable."""
        # Peers come first, because they can work while the clients' sockets are written.
        cluster = self.cluster
        if cluster is not None and cluster.outbox.by_peer and self.links is not None:
            self.links.send(cluster.outbox.take())
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.is_dirty = False
            replies = client.take_replies()
            self.bytes_out += len(replies)
            client.send(replies)

    def _take_output(self) -> _Output:
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.is_dirty = False
        cluster = self.cluster
        messages = cluster.outbox.take() if cluster is not None and cluster.outbox.by_peer else None
        return _Output([(client, client.take_replies()) for client in dirty], messages)


def _client_of(wait: Waiting) -> Client:
    """Return the client of a wait. The tag of the wait is the client, or a call of the client."""
    tag = wait.tag
    client = tag.caller if isinstance(tag, PendingCall) else tag
    assert isinstance(client, Client)
    return client
