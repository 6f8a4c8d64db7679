"""A node: one engine, and everybody who is connected to it. Its life is turns of the event loop.

    read all → parse and run all → append → sync → write

What all connections sent until the loop comes round is one turn. It runs under the lock of the host, and ends with a
commit to the log. Its answers leave when the log is as durable as was promised, those of reads and refusals too: nobody
is ever told of something that a crash can undo. While a slow disk syncs in a thread, turns go on, and their answers
wait for the next sync.
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

from penstock.cluster.founding import ClaimWait
from penstock.core import waits as w
from penstock.core.errors import JournalFailed
from penstock.core.limits import NEVER
from penstock.core.waits import Connection, Wait, Waiting
from penstock.dialects.calls import Pending
from penstock.dialects.command import Caller, Desk, Long
from penstock.host.host import Host
from penstock.server.linger import Linger
from penstock.server.post import Letters, Post
from penstock.wire.iproto import Answers

_log = logging.getLogger("penstock")

# How many commands of one connection run before the others get their turn: about half a millisecond's work.
COMMANDS_PER_TURN: Final = 256

# A sync is done in the loop while it takes no longer than this on average, seconds: changing threads costs as much.
SYNC_INLINE_MAX_S: Final = 0.0005
# More than this takes longer, whatever the syncs before it took.
SYNC_INLINE_BYTES_MAX: Final = 256 * 1024

_SYNC_WEIGHT: Final = 0.2

# A slice of a long command is followed by so many times its own length for everybody else, if they have need of it.
_REST: Final = 19


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(Caller):
    """A client as the node sees it."""

    def __init__(self, number: int, connection: Connection) -> None:
        super().__init__(connection)
        self.number = number
        self.lost = False  # It is gone.
        self.has_arrived = False  # It has sent something that is to be run at the end of the turn.
        self.is_dirty = False  # It has answers to be sent.
        self.is_unread = False  # It does not read what it is sent.

    def run(self, budget: int) -> bool:
        """Run what it has sent, no more than so many commands; tell whether there is more."""
        raise NotImplementedError

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for something."""
        return bool(self.connection.waits) or self.abroad > 0

    def end_wait(self, wait: Waiting, now: int, refusal: bytes = b"") -> None:
        """What it waited for has ended: answer it, or refuse it in the words of RESP."""
        raise NotImplementedError

    def hold(self) -> None:
        """Do not read from it while it has sent much that cannot be run yet."""
        raise NotImplementedError

    def send(self, answers: bytes) -> None:
        """Send it answers, and close it if they were the last."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close it at once, whatever it was to be sent."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Parked(Long):
    """A long command that waits for something outside of the engine: it goes on when somebody says so."""

    def hurry(self) -> None:
        """Wait no longer than need be: its client sends no more."""

    def forget(self) -> None:
        """Its client is gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Abroad:
    """What clients have under way on other nodes. This is that of a node without others: nothing."""

    def hurry(self, client: Client) -> None:
        """A client waits no longer than need be."""

    def leaves(self, client: Client) -> None:
        """A client is gone."""

    def reads_again(self, client: Client) -> None:
        """A client reads again what it is sent."""


class _Outgoing:
    """What waits for the log to be durable: answers to clients, and letters to nodes."""

    def __init__(self, answers: list[tuple[Client, bytes]], letters: Letters | None) -> None:
        self.answers = answers
        self.letters = letters


@mypyc_attr(allow_interpreted_subclasses=True)
class Node:
    """The engine behind a server, and the turns in which it works."""

    desk: Desk
    abroad: Abroad
    bytes_in: i64  # What clients have sent,
    bytes_out: i64  # and were sent.

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.engine = host.engine
        self.loop = loop
        self.ledger = host.ledger
        self.now: i64 = self.ledger.clock.now()  # Of the turn.
        self.clients: dict[int, Client] = {}
        self.failed: asyncio.Future[None] = loop.create_future()  # Why the node cannot go on.
        self.post = Post()
        self.linger = Linger(loop, self._end_turn)
        self.abroad = Abroad()
        self.bytes_in = 0
        self.bytes_out = 0
        self.sync_average_s = 0.0
        self.on_sync: Callable[[float], None] = lambda _: None  # Told how long a sync took.
        self._in_turn = False
        self._stopped = False
        self._arrived: list[Client] = []  # Those who have sent something in this turn that was not run yet.
        self._dirty: list[Client] = []  # Those who have answers to be sent.
        self._to_run: dict[Client, None] = {}  # Those who have more commands than fit in a turn, first come first.
        self._long: deque[tuple[Client, Long]] = deque()
        self._rested_at = 0.0  # From when on the next slice of a long command may run, whoever else is there.
        self._rest: asyncio.TimerHandle | None = None  # Until then.
        self._others_ran = False  # Since the last slice.
        self._parked: dict[Client, Parked] = {}  # Those that wait for something outside of the engine.
        self._unread: dict[Client, Long] = {}  # Those whose clients have to read before they can go on.
        self._syncing = False
        self._pause: asyncio.TimerHandle | None = None  # While no command is to be run.
        self._paused: dict[Client, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._lock = host.lock
        host.on_failure = self._hear_of_failure
        host.on_ended_waits = self._hear_of_ended_waits

    # Turns

    def begin_turn(self) -> None:
        """Begin a turn, unless one is under way."""
        if not self._in_turn:
            self.linger.turn_begins()
            self._begin()

    def _begin(self) -> None:
        self._in_turn = True
        self._lock.acquire()
        self.now = self.ledger.clock.now()
        if self._to_run:
            self._go_on()
        if self._long and self._may_go_on():
            self._go_on_with_long()

    def arrived(self, client: Client) -> None:
        """A client has sent something: it is run when the loop has read from everybody who has.

        Whatever reads, runs or writes for all of them in a row finds its own code in the processor's cache; and nobody
        is kept out by the lock while sockets are read.
        """
        if not client.has_arrived:
            client.has_arrived = True
            self._arrived.append(client)
            self.linger.turn_begins()

    def run(self, client: Client) -> None:
        """Run what a client has sent, as much as one turn may, and note that it has answers."""
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
        """Commit what was done so far, if more would not fit in one frame; it is not answered sooner for that."""
        if self.engine.outbox.full():
            self.host.commit()

    def run_later(self, client: Client) -> None:
        """Run what a client has sent in the next turn."""
        self.begin_turn()
        self._to_run[client] = None

    def answered(self, client: Client) -> None:
        """A client has something to be sent that no command of its own caused just now."""
        self.begin_turn()
        if not client.is_dirty:
            client.is_dirty = True
            self._dirty.append(client)

    def start_long(self, client: Client, long: Long) -> None:
        """Run a long command, a slice a turn."""
        client.busy = True
        self._long.append((client, long))

    def park(self, client: Client, parked: Parked) -> None:
        """Let a long command rest until `resume`. One that is under way says so in a step."""
        client.busy = True
        self._parked[client] = parked

    def resume(self, client: Client, parked: Parked) -> None:
        """Go on with a long command that rests, if its client is still there."""
        if self._parked.get(client) is parked:
            del self._parked[client]
            self.begin_turn()
            self._long.append((client, parked))

    def reads_again(self, client: Client) -> None:
        """A client reads again what it is sent: go on with it."""
        long = self._unread.pop(client, None)
        if long is not None:
            self._long.append((client, long))
        self.abroad.reads_again(client)
        self.run(client)

    def _end_turn(self) -> None:
        """End the turn: run what came, serve who waited, commit, and let the answers go."""
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
            # The disk failed; or an assertion did, and then nobody knows what else is wrong.
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
        # What a commit itself set going may have ended waits.
        if self._to_run or self.engine.outbox.ended_waits or (self._long and self._may_go_on()):
            self.begin_turn()
        elif self._long and self._rest is None:
            self._rest = self.loop.call_later(self._rested_at - time.perf_counter(), self._have_rested)

    def _run_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for client in arrived:
            # Unless that was done meanwhile, because it sends no more or is gone.
            if client.has_arrived:
                try:
                    self.run(client)
                except JournalFailed:
                    raise
                except Exception as defect:
                    # A defect of ours, and the end of this client; of all, if it came in the middle of a change.
                    self.desk.internal_errors += 1
                    self.report(defect)
                    client.abort()

    def _go_on(self) -> None:
        """Go on with those who did not come to their end in the turn before."""
        waiting, self._to_run = self._to_run, {}
        for client in waiting:
            if not client.lost:
                self.run(client)

    def _may_go_on(self) -> bool:
        """Whether a long command may go on: nobody else has need of the time, or they had enough of it."""
        return not self._others_ran or time.perf_counter() >= self._rested_at

    def _have_rested(self) -> None:
        self._rest = None
        self.begin_turn()

    def _go_on_with_long(self) -> None:
        """Run a slice of the long command whose turn it is."""
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
        # Also if it is not through: one that has left meanwhile must not be let wait.
        self.run(client)
        self._others_ran = False

    def _serve_waiters(self) -> None:
        """Answer those whose wait has ended, and run what they have sent meanwhile."""
        self.engine.advance(self.now)
        self.post.advance(self.now)
        ended = self.engine.outbox.ended_waits
        while ended:
            waits = ended[:]
            ended.clear()
            for wait in waits:
                client = _who_waits(wait)
                client.end_wait(wait, self.now)
                if client.lost:
                    self._take_back(client)
                else:
                    self.run(client)
            self.post.advance(self.now)

    def _set_timer(self) -> None:
        """Come again when the next deadline is due."""
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
        """Send what may be sent; the rest when the log is durable."""
        if self._syncing or not (self._dirty or self.post.has_mail()):
            return
        assert not self._in_turn, "what was done is in the log"
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
        """Send everything that is to be said: the log is durable."""
        # Other nodes first: they can work on it while clients are written to.
        letters = self.post.take()
        if letters is not None:
            self.post.send(letters)
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.is_dirty = False
            client.send(client.take_answers())

    def _gather(self) -> _Outgoing:
        """Set aside what is to be said so far, to be sent together once the log is durable up to here."""
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            client.is_dirty = False
        return _Outgoing([(client, client.take_answers()) for client in dirty], self.post.take())

    def _log_to_sync(self) -> Callable[[], float]:
        """What makes durable what is in the log now, in whichever thread, and tells how long that took.

        The journal may be switched off meanwhile; then it was closed, and everything in it is durable.
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
            # Otherwise there are answers to what is not in the log yet; the end of the turn sends them.
            self._send()

    def _fail(self, error: BaseException) -> None:
        """Nothing more can be promised: nobody gets another answer."""
        if not self.failed.done():
            self.failed.set_exception(error)
        for client in list(self.clients.values()):
            client.abort()

    def report(self, defect: Exception) -> None:
        """A command failed in a way that nobody meant. If that left it half done, the node ends rather than limps."""
        _log.error("internal error; please report it", exc_info=defect)
        self.host.gives_up(defect)

    def _hear_of_failure(self, error: BaseException) -> None:
        """Something failed in whichever thread."""
        # If the loop has ended, so has everything else.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._fail, error)

    def _hear_of_ended_waits(self) -> None:
        """Somebody else has ended waits, in whichever thread: a turn answers them."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.begin_turn)

    # Coming and going

    def join(self, client: Client) -> None:
        """A client came."""
        self.clients[client.number] = client

    def stop(self) -> None:
        """End the turn that is under way. There are no clients any more, and there will be no turn after it."""
        self._stopped = True
        self._end_turn()
        for timer in (self._timer, self._rest):
            if timer is not None:
                timer.cancel()

    def leave(self, client: Client) -> None:
        """A client is gone: what it sent last is run, what it was handed and never sent goes back, its session ends."""
        if self.clients.pop(client.number, None) is None or self.failed.done() or self._stopped:
            return
        self.begin_turn()
        if client.has_arrived:
            self.run(client)
        # First it waits no longer: what it gives back is for others.
        for wait in list(client.connection.waits.values()):
            self.engine.cancel(wait)
        self._take_back(client)
        self._unread.pop(client, None)
        parked = self._parked.pop(client, None)
        if parked is not None:
            parked.forget()
        self.abroad.leaves(client)
        client.wait = None
        self.engine.disconnect(client.connection, self.now)

    def _take_back(self, client: Client) -> None:
        """A client is gone, and never saw what it was handed last: that was not delivered."""
        for job, delivery in zip(client.unsent, client.unsent_deliveries):
            self.engine.undelivered(job, self.now, delivery)
        client.unsent.clear()
        client.unsent_deliveries.clear()
        for wait in self._unanswered(client):
            # It is answered at the end of the turn, with nothing.
            jobs, deliveries = wait.jobs, wait.deliveries
            wait.jobs, wait.deliveries = [], []
            for job, delivery in zip(jobs, deliveries):
                self.engine.undelivered(job, self.now, delivery)

    def _unanswered(self, client: Client) -> list[Wait]:
        """The takes of a client that were served in this turn, and are to be answered at its end."""
        waits: list[Waiting] = []
        if client.wait is not None:
            waits.append(client.wait)
        elif isinstance(client.reply, Answers):
            # Over IPROTO it may have many, and has no list of them.
            waits = [wait for wait in self.engine.outbox.ended_waits if wait.connection is client.connection]
        return [wait for wait in waits if isinstance(wait, Wait)]

    def end_waits(self, client: Client, refusal: bytes = b"") -> None:
        """Let a client wait no longer, and run what it has sent meanwhile."""
        if self.cancel_waits(client, refusal):
            self.run(client)

    def cancel_waits(self, client: Client, refusal: bytes = b"") -> bool:
        """Let a client wait no longer: it is refused, or answered as if its time were over. Tell whether it waited."""
        parked = self._parked.get(client)
        if parked is not None:
            parked.hurry()
        if client.abroad:
            self.abroad.hurry(client)
        waits = list(client.connection.waits.values())
        if not refusal:
            # Whether a tube may be made is known soon, and what waits for that is to be done.
            waits = [wait for wait in waits if not isinstance(wait, ClaimWait)]
        for wait in waits:
            self._cancel(wait, refusal)
        return bool(waits)

    def end_wait(self, wait: Waiting) -> None:
        """Let one thing that a client waits for be over, and run what it has sent meanwhile."""
        self._cancel(wait, b"")
        self.run(_who_waits(wait))

    def _cancel(self, wait: Waiting, refusal: bytes) -> None:
        if wait.outcome == w.WAITING:
            self.begin_turn()
            self.engine.cancel(wait)
            _who_waits(wait).end_wait(wait, self.now, refusal)

    def pause_clients(self, seconds: float) -> None:
        """Run no command of anybody for so long; from now on, if a pause is under way."""
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self.loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._to_run |= self._paused
        self._paused = {}
        self.begin_turn()


def _who_waits(wait: Waiting) -> Client:
    """The client behind a wait: its tag, or the client of the call that is."""
    tag = wait.tag
    client = tag.caller if isinstance(tag, Pending) else tag
    assert isinstance(client, Client)
    return client
