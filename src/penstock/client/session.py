"""A blocking session on a server: the implementation of `base_session.py` with blocking sockets.

Each call uses a connection of its own until it ends, so a take that waits delays no other call. Unused connections are
kept for the next calls.

A signal may interrupt a thread between any two calls. A lock or a Condition that such a thread has just acquired would
stay locked. So a long exclusive section does not hold a lock: a field is set to an object while the section is in use,
and other threads poll until the field is None.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.client import commands
from penstock.client.addresses import Address
from penstock.client.backoff import MARGIN_S, Backoff, Deadline, end_of
from penstock.client.base_session import IDLE_MAX, NO_DEADLINE, TAKES_END_S, BaseSession, run_steps
from penstock.client.commands import NO_REPEAT, Call
from penstock.client.connection import Connection
from penstock.client.handshake import LOST, refusal
from penstock.client.job_origins import JobOrigins
from penstock.client.url import Target, address
from penstock.core.errors import BadAnswer, Closed, CommandError, ConnectionLost, NoServer, PenstockError
from penstock.core.limits import NEVER, check_body
from penstock.options import Seconds
from penstock.wire.resp_client import ErrorReply, encode

T = TypeVar("T")

# How often a thread checks whether it may begin a take, or give back jobs of lost takes.
_POLL_S: Final = 0.005

# How many commands of a pipeline are sent before their replies are read, and how many bytes of them.
_TOGETHER_MAX: Final = 1_000
_TOGETHER_BYTES: Final = 64 * 1024

# How often a thread checks whether it may make a connection.
_OPEN_POLL_S: Final = 0.001

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session(BaseSession[Connection]):
    """A session with its connections. It connects when it is created."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        _sessions.add(self)
        self._put_back(self._open(Backoff(target.first_s), math.inf, is_first=True))

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._lock = threading.Lock()
        self._opener: object = None  # The thread that makes a connection or changes the session.
        self._gate = threading.Lock()  # Protects `_takes` and `_settler`.
        self._takes: set[object] = set()  # The takes in progress.
        self._settler: object = None  # The thread that gives back the jobs of lost takes.

    # Calls

    def call(self, call: Call[T]) -> T:
        """Send a call and return its result."""
        until = end_of(call)
        deadline = NO_DEADLINE if until == math.inf else Deadline(until)
        try:
            # As `answer_of` does, without its calls.
            self._call_settled(call, deadline).send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        except (NoServer, ConnectionLost) as error:
            return self._without_server(call, error, deadline)
        raise AssertionError("a coroutine of a blocking session was suspended")

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _try(self, call: Call[T], deadline: Deadline) -> T:
        until = deadline.until
        connection = self._take_connection(until)
        try:
            if until != math.inf:
                # Rounded up, because a server that replies too early would be asked again.
                call.wait_at_most(math.ceil((until - time.monotonic()) * 1000))
            answer = connection.ask(encode(call.words), 1, self._patience(call.wait_ms, until))[0]
            # Read the reply before the connection is used again: a malformed one may belong to another command.
            found = refusal(answer) if isinstance(answer, ErrorReply) else call.read(answer)
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

    async def _try_take(self, call: Call[T], deadline: Deadline) -> T:
        take = object()
        try:
            while not self._begin_take(take):
                _sleep(_POLL_S, deadline.until)
            return self._record_jobs(call, await self._try(call, deadline))
        except CommandError:
            raise
        except BaseException:
            # The lost reply may have contained jobs.
            self._in_doubt = True
            raise
        finally:
            self._takes.discard(take)

    def _begin_take(self, take: object) -> bool:
        """Begin a take, unless a thread is in `_settle`. Return whether the take has begun."""
        with self._gate:
            if self._settler is None:
                self._takes.add(take)
            return self._settler is None

    def call_all(self, calls: list[Call[Any]]) -> list[Any]:
        """Send many calls in one round trip. Return the result or the error of each."""
        outcomes: list[Any] = []
        try:
            if max((call.largest for call in calls), default=0) > self.max_body:
                self.max_body = run_steps(lambda: self._call(commands.max_body()))
            while len(outcomes) < len(calls):
                outcomes += self._call_some(calls[len(outcomes) : len(outcomes) + _TOGETHER_MAX])
                if isinstance(outcomes[-1], NoServer):
                    raise outcomes[-1]
        except PenstockError as error:
            # The rest cannot be sent either. The calls before have been executed.
            outcomes += [error] * (len(calls) - len(outcomes))
        return outcomes

    def _call_some(self, calls: list[Call[Any]]) -> list[Any]:
        """Send calls in one write, up to its maximum size. Return the results of the calls that were sent."""
        try:
            check_body(calls[0].largest, self.max_body)
        except CommandError as error:
            return [error]
        data, count = bytearray(), 0
        # The replies are read after all commands are sent. If there were too many, both sides would block on writing.
        for call in calls:
            if call.largest > self.max_body or len(data) > _TOGETHER_BYTES:
                break
            data += encode(call.words)
            count += 1
        return self._call_together(bytes(data), calls[:count])

    def _call_together(self, data: bytes, calls: list[Call[Any]]) -> list[Any]:
        if self._in_doubt:
            run_steps(lambda: self._settle(NO_DEADLINE))
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
                # From here on it is unknown which reply belongs to which command.
                outcomes.append(outcomes[-1])
                continue
            try:
                outcomes.append(refusal(answer) if isinstance(answer, ErrorReply) else call.read(answer))
            except PenstockError as error:
                outcomes.append(error)
        if isinstance(outcomes[-1], BadAnswer):
            self._discard(connection)
        else:
            self._put_back(connection)
        return outcomes

    def _call_all_again(self, calls: list[Call[Any]], lost: BaseException) -> list[Any]:
        """Repeat the calls whose replies were lost, if that is safe. If no server answers, try to connect only once."""
        outcomes: list[Any] = []
        gone: NoServer | None = None
        for call in calls:
            outcome: Any = gone
            if call.repeat == NO_REPEAT:
                outcome = ConnectionLost()
                outcome.__cause__ = lost
            elif gone is None:
                outcome = self.outcome_of(call, lost=True)
                gone = outcome if isinstance(outcome, NoServer) else None
            outcomes.append(outcome)
        return outcomes

    def outcome_of(self, call: Call[Any], lost: bool = False) -> Any:
        """Send a call, to another node if this one is leaving. Return its result or its error."""
        try:
            return run_steps(lambda: self._call(call, lost=lost))
        except PenstockError as error:
            return error

    def _patience(self, wait_ms: int, until: float) -> float | None:
        """Return the seconds to wait for a reply, which the server can delay by `wait_ms`, or None for no limit."""
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

    # Connections

    def _take_connection(self, until: float = math.inf) -> Connection:
        with self._lock:
            while True:
                self.check_open()
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
            if not self.closed and connection.token == self.token and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: Connection) -> None:
        """Close a connection on which a call failed or was interrupted, because its reply may still arrive."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def _open(self, search: Backoff, until: float, is_first: bool = False) -> Connection:
        """Connect to one of the addresses. Retry after each pause of `search`, until it has none left."""
        while True:
            opener = object()
            try:
                self._begin_to_open(opener, until)
                found = run_steps(lambda: self._try_seeds(NO_DEADLINE if until == math.inf else Deadline(until)))
            finally:
                # No call here: a signal that arrives at a call would leave all other threads waiting.
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
        """Wait until no other thread makes a connection or changes the session.

        The first connection begins the session, and the others join it.
        """
        while True:
            with self._lock:
                if self._opener is None:
                    self._opener = opener
                    return
            _sleep(_OPEN_POLL_S, until)

    async def _connect(self, seed: Address, token: str, connect_s: float) -> Connection:
        return Connection(self.target, seed, token, self.grace_ms, connect_s)

    def _drop(self, connection: Connection) -> None:
        connection.close()

    async def _follow_jobs(self, sources: JobOrigins) -> None:
        to = self._target_of_move(sources)
        if to is None:
            return
        with self._gate:
            # No take begins meanwhile.
            if self._takes or self._settler is not None or self._in_doubt or not self.held_jobs.is_empty():
                return
            sources.moved(time.monotonic())
            await self._move(to)

    async def _move(self, to: Address | None = None) -> None:
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
        """Join the session of another token. The previous session ends, unless it has another connection."""
        call = commands.identify(token, grace)
        # A user who names a session wants it on this node.
        self._sources = None
        connection = self._take_connection()
        try:
            answer = connection.ask(encode(call.words), 1, self._patience(0, math.inf))[0]
            if isinstance(answer, ErrorReply):
                self._put_back(connection)
                raise refusal(answer)
            left = connection.token
            connection.token, self.grace_ms = call.read(answer)
            self.has_grace = self.has_grace or grace is not None
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
        """Continue as the session that a connection has joined, and leave the previous session."""
        held = commands.held(end_waits=False)
        words = [*commands.leave_session(left, connection.token), held.words]
        answers = connection.ask(b"".join(map(encode, words)), len(words), self._patience(0, math.inf))
        # A caller of the session received these jobs before. A user who may not ask for them gets a refusal.
        ids = [] if isinstance(answers[-1], ErrorReply) else held.read(answers[-1])
        # No connection may be made meanwhile, because it would join the previous session.
        opener = object()
        try:
            self._begin_to_open(opener)
            with self._lock:
                idle, self._idle = self._idle, []
                self.token = connection.token
                self.held_jobs.clear()
                self.held_jobs.add(dict.fromkeys(ids, 0))
        finally:
            if self._opener is opener:
                self._opener = None
        for each in idle:
            each.finish()

    # Jobs of lost takes

    def give_back_later(self, ids: list[str]) -> None:
        """Record that the caller did not receive these jobs. They return to their tubes before the next call."""
        self.held_jobs.remove_all(ids)
        self._in_doubt = True

    async def _settle(self, deadline: Deadline) -> None:
        settler = object()
        try:
            while not self._become_settler(settler):
                if not self._in_doubt:
                    return
                _sleep(_POLL_S, deadline.until)
            await self._return_lost(deadline)
        except BaseException:
            self._in_doubt = True
            raise
        finally:
            if self._settler is settler:
                self._settler = None

    def _become_settler(self, settler: object) -> bool:
        """Return whether this thread has to run `_return_lost`: jobs may be lost, and no other thread runs it."""
        with self._gate:
            if self._in_doubt and self._settler is None:
                self._settler = settler
                self._in_doubt = False
            return self._settler is settler

    async def _takes_ended(self, deadline: Deadline) -> bool:
        home_by = time.monotonic() + TAKES_END_S
        while self._takes and time.monotonic() < home_by:
            _sleep(_POLL_S, deadline.until)
        return not self._takes

    def _interrupt_takes(self) -> None:
        with self._lock:
            for connection in self._busy:
                connection.interrupt()

    # The end

    def __del__(self) -> None:
        """Close the connections. The jobs of the session go back to their tubes after its grace time."""
        for connection in getattr(self, "_idle", []):
            connection.close()

    def close(self) -> None:
        """End the session. Its jobs go back to their tubes, unless it has a grace time. Waiting calls raise Closed."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if not self.token:
                return
            idle, self._idle = self._idle, []
        self._interrupt_takes()
        if not self.has_grace:
            self._end_on_server(idle)
        for connection in idle:
            connection.finish()

    def _end_on_server(self, idle: list[Connection]) -> None:
        try:
            if not idle:
                idle.append(Connection(self.target, self._addresses.current, self.token, 0, self.target.connect_s))
            idle[-1].ask(encode(commands.end_session()), 1, self.target.connect_s)
        except (*LOST, PenstockError):
            pass  # The session ends when its grace time has passed.

    def _reset_after_fork(self) -> None:
        """Reset the session in a child process. Close only the child's copies of the connections."""
        connections = [*self._idle, *self._busy]
        self._begin_anew()
        for connection in connections:
            connection.close()


def _sleep(seconds: float, until: float) -> None:
    """Sleep for some seconds. Raise NoServer instead if the deadline `until` passed more than MARGIN_S ago."""
    if time.monotonic() >= until + MARGIN_S:
        raise NoServer("the time of the call is over")
    time.sleep(seconds)


def _reset_all_after_fork() -> None:
    for session in list(_sessions):
        session._reset_after_fork()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_reset_all_after_fork)
