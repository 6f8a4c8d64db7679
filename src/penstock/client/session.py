"""A session on a server, for threads: connections that come and go, and one owner of jobs behind them.

Each call has a connection to itself while it lasts, so a take that waits holds nobody up. A connection that is lost is
made again, and the session with all it holds is resumed if that is within its grace. A call whose answer was lost is
sent again if that is safe (`commands.py`). After a lost take, the session may hold jobs that nobody was given; before
the next call these go back (`_settle`).

The timeout of a call limits all that it does: `until` is its end on the monotonic clock, infinity without a timeout. A
take whose time is over while the server is away returns nothing, as it does if no job came. It raises NoServer if the
server has been away for longer than `retry_for`.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.client import commands
from penstock.client.addresses import Address, Addresses
from penstock.client.backoff import MARGIN_S, Backoff, Margin, end_of
from penstock.client.belongings import Belongings
from penstock.client.commands import AGAIN, NOT_AGAIN, Call, Happened
from penstock.client.connection import Connection
from penstock.client.facts import JobFacts
from penstock.client.greeting import no_answer, refusal
from penstock.client.sources import Sources
from penstock.client.url import Target, address
from penstock.core.errors import (
    BadAnswer,
    Closed,
    CommandError,
    ConnectionLost,
    Leaving,
    NoServer,
    NotAllowed,
    OnlyOnce,
    PenstockError,
    ProtocolError,
    UnknownJob,
    UnknownSession,
)
from penstock.core.limits import NEVER, check_body
from penstock.options import Seconds
from penstock.wire.answers import Refusal, encode

T = TypeVar("T")

# So many connections that nobody uses are kept.
_IDLE_MAX: Final = 8

# What means that a connection is of no more use.
LOST: Final = (OSError, EOFError, ProtocolError)

# How long takes that were ended have to come home, before their connections count as lost.
_HOME_S: Final = 2.0

# How often those look who wait for that.
_LOOK_S: Final = 0.005

# How many commands of a pipeline are sent before their answers are read, and how many bytes of them.
_TOGETHER_MAX: Final = 1_000
_TOGETHER_BYTES: Final = 64 * 1024

# How often a thread looks whether it may make a connection.
_OPEN_LOOK_S: Final = 0.001

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """One session, and its connections."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.grace_ms = target.grace_ms
        self._begin()
        _sessions.add(self)
        self._put_back(self._open(Backoff(target.first_s), math.inf, is_first=True))

    def _begin(self) -> None:
        """Be as new: at first, and in a child after a fork, which must not touch the connections of its parent."""
        self.token = ""
        self.max_body = 0
        self.closed = False
        self.outlives = False  # It was told how long it waits for whoever comes with its token, when it is closed.
        self.belongings = Belongings()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._lock = threading.Lock()
        self._opener: object = None  # Who makes a connection: one at a time.
        self._margin = Margin()
        self._addresses = Addresses(self.target.seeds, learns=self.target.tls is None)
        # Takes: those that are under way, and who settles what was lost; new ones wait for that. It is rare, so they
        # look from time to time: a signal that interrupts somebody in between would leave a Condition locked.
        self._gate = threading.Lock()
        self._takes: set[object] = set()
        self._settler: object = None
        self._in_doubt = False
        # Where one node was named, it is meant.
        self._sources = Sources() if len(self.target.seeds) > 1 else None

    # Calls

    def call(self, call: Call[T]) -> T:
        """Send a command, and return what its answer means."""
        until = end_of(call)
        try:
            if self._in_doubt:
                self._settle(until)
            if call.taken is not None:
                self._check_belongings(until)
                if self._sources is not None:
                    self._follow_jobs(self._sources)
            if call.largest > self.max_body:
                self._check_body(call.largest, until)
            return self._call(call, until)
        except (NoServer, ConnectionLost) as error:
            if isinstance(error, BadAnswer) or call.empty is None or time.monotonic() < until:
                raise
            if self.target.reach.is_gone(self.target.retry_s):
                raise
            return call.read(call.empty)

    def _check_body(self, length: int, until: float) -> None:
        """Refuse a body that the server would not even read: it hangs up on those who send one."""
        self.max_body = self._call(commands.max_body(), until)
        check_body(length, self.max_body)

    def _call(self, call: Call[T], until: float = math.inf, lost: bool = False) -> T:
        """Send a command where everything is settled. If it is `lost`, it was sent before, and its answer was lost."""
        search: Backoff | None = None
        while True:
            token = self.token
            try:
                if lost and call.happened is not None and call.hold():
                    self._check_hold(call.happened)
                return self._try_take(call, until) if call.taken is not None else self._try(call, until)
            except LOST as error:
                if self.closed:
                    raise Closed() from None
                if isinstance(error, (NoServer, BadAnswer)):
                    raise
                if call.repeat == NOT_AGAIN:
                    raise ConnectionLost() from error
                if time.monotonic() >= until:
                    raise ConnectionLost("the connection was lost, and the time of the call is over") from error
                lost = True
                if search is None:
                    search = Backoff(self.target.retry_s, until)
                elif (pause_s := search.pause()) is None:
                    raise ConnectionLost("the connection was lost again and again, until time was over") from error
                else:
                    time.sleep(pause_s)
            except Leaving:
                # Nothing was done. What is held here is finished here, and then the session goes elsewhere.
                search = search or Backoff(self.target.retry_s, until)
                pause_s = search.pause()
                if pause_s is None or not self._addresses.others():
                    raise
                if self.token != token:
                    continue  # It has.
                if self.belongings.is_empty():
                    self._move()
                else:
                    time.sleep(pause_s)
            except CommandError as refused:
                if not lost or call.happened is None:
                    raise
                self._judge(call.happened, refused)
                return call.read(commands.DONE)
            if call.taken is not None:
                self._settle(until)

    def _try(self, call: Call[T], until: float) -> T:
        connection = self._take_connection(until)
        try:
            if until != math.inf:
                # Rounded up: a server that answers a moment early would be asked again until the time is over.
                call.wait_at_most(math.ceil((until - time.monotonic()) * 1000))
            answer = connection.ask(encode(call.words), 1, self._patience(call.wait_ms, until))[0]
            # Before the connection is used again: an answer that makes no sense may be the answer to something else.
            found = refusal(answer) if isinstance(answer, Refusal) else call.read(answer)
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, TimeoutError):
                self.target.reach.lost(TimeoutError("the server does not answer"))
                self._margin.missed()
            raise
        self._put_back(connection)
        if until != math.inf:
            self._margin.met()
        if self.target.reach.lost_at is not None:
            self.target.reach.found(address(*self._addresses.current))
        if isinstance(found, CommandError):
            raise found
        return found

    def _try_take(self, call: Call[T], until: float) -> T:
        take = object()
        try:
            while not self._begins(take):
                _sleep(_LOOK_S, until)
            found = self._try(call, until)
            assert call.taken is not None
            held = call.taken(found)
            self.belongings.add(held)
            if self._sources is not None:
                self._sources.took(held)
            return found
        except CommandError:
            raise
        except BaseException:
            # Perhaps it was answered with jobs that nobody will see.
            self._in_doubt = True
            raise
        finally:
            self._takes.discard(take)

    def _begins(self, take: object) -> bool:
        """Let a take begin, unless what was lost is being settled."""
        with self._gate:
            if self._settler is None:
                self._takes.add(take)
            return self._settler is None

    def _check_hold(self, happened: Happened) -> None:
        """Refuse to send what the holder of a job has said once more, if the job is not in the same hands any more."""
        try:
            there = self._call(Call(happened.ask, commands.job, AGAIN))
        except NotAllowed:
            return  # Who may not look at the job cannot know.
        over = happened.over(there)
        if over is not None:
            raise over

    def _judge(self, happened: Happened, refused: CommandError) -> None:
        """A call was refused that had been sent before: perhaps because it has happened then. If not, refuse it."""
        there: JobFacts | None = None
        if not isinstance(refused, UnknownJob):
            try:
                there = self._call(Call(happened.ask, commands.job, AGAIN))
            except UnknownJob:
                pass
            except NotAllowed:
                # Who may not look at the job cannot know.
                raise ConnectionLost() from refused
        happened.judge(refused, there)

    def call_all(self, calls: list[Call[Any]]) -> list[Any]:
        """Send many commands at once, and give what each of their answers means, or the error that each ended with."""
        outcomes: list[Any] = []
        try:
            if max((call.largest for call in calls), default=0) > self.max_body:
                self.max_body = self._call(commands.max_body())
            while len(outcomes) < len(calls):
                outcomes += self._call_some(calls[len(outcomes) : len(outcomes) + _TOGETHER_MAX])
                if isinstance(outcomes[-1], NoServer):
                    raise outcomes[-1]
        except PenstockError as error:
            # Nobody is there for the rest either; what was done before stays done.
            outcomes += [error] * (len(calls) - len(outcomes))
        return outcomes

    def _call_some(self, calls: list[Call[Any]]) -> list[Any]:
        """Send the first of these together, as many as may be."""
        try:
            check_body(calls[0].largest, self.max_body)
        except CommandError as error:
            return [error]
        data, count = bytearray(), 0
        # While many are sent, their answers wait; no more than fit on the way, or both sides would wait.
        for call in calls:
            if call.largest > self.max_body or len(data) > _TOGETHER_BYTES:
                break
            data += encode(call.words)
            count += 1
        return self._call_together(bytes(data), calls[:count])

    def _call_together(self, data: bytes, calls: list[Call[Any]]) -> list[Any]:
        if self._in_doubt:
            self._settle()
        connection = self._take_connection()
        try:
            answers = connection.ask(data, len(calls), self._patience(0, math.inf))
        except BaseException as error:
            self._discard(connection)
            if not isinstance(error, LOST):
                raise
            return self._call_all_again(calls, error)
        outcomes: list[Any] = []
        for call, answer in zip(calls, answers, strict=True):
            if outcomes and isinstance(outcomes[-1], BadAnswer):
                # Nobody knows which answers belong to which commands from there on.
                outcomes.append(outcomes[-1])
                continue
            try:
                outcomes.append(refusal(answer) if isinstance(answer, Refusal) else call.read(answer))
            except PenstockError as error:
                outcomes.append(error)
        if isinstance(outcomes[-1], BadAnswer):
            self._discard(connection)
        else:
            self._put_back(connection)
        return outcomes

    def _call_all_again(self, calls: list[Call[Any]], lost: BaseException) -> list[Any]:
        """The answers to these were lost: each is sent again or not. If nobody is there, one search will do."""
        outcomes: list[Any] = []
        gone: NoServer | None = None
        for call in calls:
            outcome: Any = gone
            if call.repeat == NOT_AGAIN:
                outcome = ConnectionLost()
                outcome.__cause__ = lost
            elif gone is None:
                try:
                    outcome = self._call(call, lost=True)
                except PenstockError as error:
                    outcome = error
                    gone = error if isinstance(error, NoServer) else None
            outcomes.append(outcome)
        return outcomes

    def call_elsewhere(self, call: Call[Any]) -> Any:
        """One of many that a node refused because it leaves: as a call by itself it goes elsewhere, or ends with an
        error."""
        try:
            return self._call(call)
        except PenstockError as error:
            return error

    def _patience(self, wait_ms: int, until: float) -> float | None:
        """Return how long an answer may take, to a call that waits this long on the server; None: for ever."""
        answer_s = self.target.answer_s
        if until == math.inf:
            return None if answer_s is None or wait_ms == NEVER else answer_s + wait_ms / 1000
        left_s = max(0.0, until - time.monotonic()) + self._margin.seconds
        return left_s if answer_s is None else min(left_s, answer_s + wait_ms / 1000)

    def connect(self) -> None:
        """Do nothing: the session has been connected since it was created."""

    def start(self, run: Callable[[], None]) -> Callable[[], object]:
        """Run a function in a thread. Return a function that does nothing, because a thread cannot be cancelled."""
        threading.Thread(target=run, name="penstock-subscription", daemon=True).start()
        return lambda: None

    def check_open(self) -> None:
        """Refuse to be used after the end."""
        if self.closed:
            raise Closed()

    # Connections

    def _take_connection(self, until: float = math.inf) -> Connection:
        """A connection that nobody else uses."""
        with self._lock:
            while True:
                if self.closed:
                    raise Closed()
                if not self._idle:
                    break
                connection = self._idle.pop()
                if not connection.is_stale():
                    self._busy.add(connection)
                    return connection
                connection.close()
        return self._open(Backoff(self.target.retry_s, until), until)

    def _put_back(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self.closed and connection.token == self.token and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: Connection) -> None:
        """A connection on which a call was interrupted or went wrong: nobody knows what else would come on it."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def _open(self, search: Backoff, until: float, is_first: bool = False) -> Connection:
        """Make a connection to one of the addresses. Try them as long as the search lasts."""
        while True:
            opener = object()
            try:
                self._begin_to_open(opener, until)
                found = self._try_seeds(until)
            finally:
                # No call here: a signal is noticed at calls, and would leave all others waiting.
                if self._opener is opener:
                    self._opener = None
            if isinstance(found, Connection):
                with self._lock:
                    if not self.closed:
                        self._busy.add(found)
                        self.target.reach.found(address(*self._addresses.current))
                        return found
                found.close()
                raise Closed()
            pause_s = search.pause()
            if pause_s is not None or not is_first:
                self.target.reach.lost(found)
            if pause_s is None:
                raise found
            time.sleep(pause_s)

    def _begin_to_open(self, opener: object, until: float = math.inf) -> None:
        """Wait until no other thread makes a connection or changes the session: the first one begins the session, and
        the others join it. Not by a lock, because a signal could interrupt a thread that has just acquired it."""
        while True:
            with self._lock:
                if self._opener is None:
                    self._opener = opener
                    return
            _sleep(_OPEN_LOOK_S, until)

    def _try_seeds(self, until: float) -> Connection | NoServer:
        """Return a connection to the first address that answers, or why the last one does not."""
        wrong = NoServer("the time of the call is over")
        for seed in self._addresses.all():
            if self.closed:
                raise Closed()
            connect_s = min(self.target.connect_s, until + MARGIN_S - time.monotonic())
            if connect_s <= 0:
                return wrong
            try:
                connection = self._join(seed, connect_s)
                self._addresses.current = seed
                return connection
            except LOST as error:
                wrong = no_answer(self.target, seed, error)
        self._addresses.fail()
        return wrong

    def _join(self, seed: tuple[str, int], connect_s: float) -> Connection:
        """A connection of this session; of a new one, if it has ended."""
        try:
            connection = Connection(self.target, seed, self.token, self.grace_ms, connect_s)
        except UnknownSession:
            # Its grace has passed, and its jobs went back to their tubes.
            self._in_doubt = False
            self.belongings.forget()
            connection = Connection(self.target, seed, "", self.grace_ms, connect_s)
        self.token = connection.token
        self.max_body = connection.max_body
        self._addresses.learn(connection.nodes)
        return connection

    def _follow_jobs(self, sources: Sources) -> None:
        """Go to the node that most jobs come from, unless something here is held or waited for."""
        main = sources.main()
        to = self._addresses.of_node(main) if main else None
        now = time.monotonic()
        if to is None or not sources.may_move(now):
            return
        with self._gate:
            # No take begins meanwhile.
            if self._takes or self._settler is not None or self._in_doubt or not self.belongings.is_empty():
                return
            sources.moved(now)
            self._move(to)

    def _move(self, to: Address | None = None) -> None:
        """Begin a session on another node, because this one leaves its cluster if none is named."""
        opener = object()
        try:
            self._begin_to_open(opener)
            with self._lock:
                if to is None:
                    self._addresses.leave(self._addresses.current)
                else:
                    self._addresses.current = to
                idle, self._idle = self._idle, []
                self.token = ""
        finally:
            if self._opener is opener:
                self._opener = None
        for connection in idle:
            connection.finish()

    def identify(self, token: str | None, grace: Seconds | None) -> None:
        """Become the session of another token. The one before ends, unless somebody else is in it."""
        call = commands.identify(token, grace)
        # Whoever names a session wants this one, here.
        self._sources = None
        connection = self._take_connection()
        try:
            answer = connection.ask(encode(call.words), 1, self._patience(0, math.inf))[0]
            if isinstance(answer, Refusal):
                self._put_back(connection)
                raise refusal(answer)
            left = connection.token
            connection.token, self.grace_ms = call.read(answer)
            self.outlives = self.outlives or grace is not None
            if left != connection.token:
                self._change_to(connection, left)
        except CommandError:
            raise
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, LOST) and not isinstance(error, NoServer):
                raise ConnectionLost("the connection was lost; identify again") from error
            raise
        self._put_back(connection)

    def _change_to(self, connection: Connection, left: str) -> None:
        """Go on as the session that a connection has joined, and leave the one that it was of."""
        held = commands.held(end_waits=False)
        words = [*commands.leave_session(left, connection.token), held.words]
        answers = connection.ask(b"".join(map(encode, words)), len(words), self._patience(0, math.inf))
        # What it holds was handed to whoever had the session before. Who may not ask cannot know.
        ids = [] if isinstance(answers[-1], Refusal) else held.read(answers[-1])
        # No connection is made meanwhile: it would be of the session before.
        opener = object()
        try:
            self._begin_to_open(opener)
            with self._lock:
                idle, self._idle = self._idle, []
                self.token = connection.token
                self.belongings.forget()
                self.belongings.add(dict.fromkeys(ids, 0))
        finally:
            if self._opener is opener:
                self._opener = None
        for each in idle:
            each.finish()

    # Takes whose answers were lost

    def disown(self, ids: list[str]) -> None:
        """Whoever took these was interrupted before it was given them: before the next call they go back."""
        self.belongings.remove_all(ids)
        self._in_doubt = True

    def _settle(self, until: float = math.inf) -> None:
        """Give back what the session holds and nobody was given. No take may be under way meanwhile: of its answer,
        nobody could say which it is. So those that wait are ended by the server, and begin again afterwards."""
        settler = object()
        try:
            while not self._settles(settler):
                if not self._in_doubt:
                    return
                _sleep(_LOOK_S, until)
            held = self._call(commands.held(end_waits=True), until)
            if not self._are_home(until):
                self._interrupt_all()
                self._are_home(until)
            for id in self.belongings.unknown(held):
                self._give_back(id, until)
        except BaseException:
            self._in_doubt = True
            raise
        finally:
            if self._settler is settler:
                self._settler = None

    def _settles(self, settler: object) -> bool:
        """Let one settle what was lost, if there is something and nobody else does."""
        with self._gate:
            if self._in_doubt and self._settler is None:
                self._settler = settler
                self._in_doubt = False
            return self._settler is settler

    def _are_home(self, until: float) -> bool:
        """Wait until no take is under way. Return whether none is."""
        home_by = time.monotonic() + _HOME_S
        while self._takes and time.monotonic() < home_by:
            _sleep(_LOOK_S, until)
        return not self._takes

    def _give_back(self, id: str, until: float) -> None:
        try:
            self._call(commands.release(id), until)
        except OnlyOnce:
            # It may have been seen, so nobody may see it again; buried, it can still be looked at.
            self._call(commands.bury(id, "its delivery was lost with a connection"), until)
        except CommandError:
            pass  # It is not ours any more.

    def _check_belongings(self, until: float) -> None:
        """Forget jobs that were taken and left to themselves, when there are many."""
        asked = self.belongings.to_check()
        if asked is not None:
            held = self._call(commands.held(end_waits=False), until)
            self.belongings.keep(asked, held)

    def _interrupt_all(self) -> None:
        with self._lock:
            for connection in self._busy:
                connection.interrupt()

    # The end

    def __del__(self) -> None:
        """Nobody can use it any more: hang up. Its jobs go back after its grace."""
        for connection in getattr(self, "_idle", []):
            connection.close()

    def close(self) -> None:
        """End the session: its jobs go back, unless it outlives this, and whoever waits in it is told."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if not self.token:
                return
            idle, self._idle = self._idle, []
        self._interrupt_all()
        if not self.outlives:
            self._take_leave(idle)
        for connection in idle:
            connection.finish()

    def _take_leave(self, idle: list[Connection]) -> None:
        """Let the server know that nobody will come back."""
        try:
            last = idle.pop() if idle else self._last_connection()
            idle.append(last)
            last.ask(encode(commands.end_session()), 1, self.target.connect_s)
        except (*LOST, PenstockError):
            pass  # Then it ends with its grace.

    def _last_connection(self) -> Connection:
        return Connection(self.target, self._addresses.current, self.token, 0, self.target.connect_s)

    def _forget_parent(self) -> None:
        """This is a child of the process that made the connections: only its own copies of them are closed."""
        connections = [*self._idle, *self._busy]
        closed = self.closed
        self._begin()
        self.closed = closed
        for connection in connections:
            connection.close()


def _sleep(seconds: float, until: float) -> None:
    """Sleep. Raise NoServer if the time of the call is over, and the margin that it has."""
    if time.monotonic() >= until + MARGIN_S:
        raise NoServer("the time of the call is over")
    time.sleep(seconds)


def _forget_parents() -> None:
    for session in list(_sessions):
        session._forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
