"""A node: one engine, and everybody who is connected to it. Its life is turns of the event loop.

    parse all → run all → append → sync → write

What all connections sent until the loop comes round is one turn. It runs under the lock of the host, and ends with a
commit to the log. Its answers leave when the log is as durable as was promised, those of reads and refusals too: nobody
is ever told of something that a crash can undo. While a slow disk syncs in a thread, turns go on, and their answers
wait for the next sync.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core import waits as w
from penstock.core.errors import JournalFailed
from penstock.core.limits import NEVER
from penstock.dialects.command import Desk, Long
from penstock.dialects.disque import Disque
from penstock.host import Host

if TYPE_CHECKING:
    from penstock.server.connection import Connection

_log = logging.getLogger("penstock")

# How many commands of one connection run before the others get their turn: about half a millisecond's work.
COMMANDS_PER_TURN: Final = 256

# A sync is done in the loop while it takes no longer than this on average, seconds: changing threads costs as much.
SYNC_INLINE_MAX_S: Final = 0.0005
_SYNC_WEIGHT: Final = 0.2


class Node:
    """The engine behind a server, and the turns in which it works."""

    desk: Desk
    disque: Disque

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.engine = host.engine
        self.loop = loop
        self.now = host.now()  # Of the turn.
        self.connections: dict[int, Connection] = {}
        self.failed: asyncio.Future[None] = loop.create_future()  # Why the node cannot go on.
        self.sync_average_s = 0.0
        self._in_turn = False
        self._dirty: list[Connection] = []  # Those who have answers to be sent.
        self._to_run: deque[Connection] = deque()  # Those who have more commands than fit in a turn.
        self._long: deque[tuple[Connection, Long]] = deque()
        self._syncing = False
        self._pause: asyncio.TimerHandle | None = None  # While no command is to be run.
        self._paused: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER

    # Turns

    def begin_turn(self) -> None:
        """Begin a turn, unless one is under way."""
        if not self._in_turn:
            self._in_turn = True
            self.host.lock.acquire()
            self.now = self.host.now()
            self.loop.call_soon(self._end_turn)

    def run(self, connection: Connection) -> None:
        """Run what a connection has sent, as much as one turn may, and note that it has answers."""
        self.begin_turn()
        if self._pause is not None:
            self._paused[connection] = None
        elif connection.run(COMMANDS_PER_TURN):
            self._to_run.append(connection)
        if not connection.is_dirty and (connection.reply.length or connection.closing):
            connection.is_dirty = True
            self._dirty.append(connection)

    def answered(self, connection: Connection) -> None:
        """A connection has something to be sent that no command of its own caused just now."""
        self.begin_turn()
        if not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)

    def start_long(self, connection: Connection, long: Long) -> None:
        """Run a long command, a slice a turn."""
        connection.busy = True
        self._long.append((connection, long))

    def _end_turn(self) -> None:
        """End the turn: serve who waited, commit, and let the answers go."""
        try:
            self._go_on()
            self._serve_waiters()
            self.host.commit(self.now)
        except JournalFailed as error:
            self._fail(error)
            return
        finally:
            self._in_turn = False
            self.host.lock.release()
        self._send()
        self._set_timer()
        if self._to_run or self._long:
            self.loop.call_soon(self.begin_turn)

    def _go_on(self) -> None:
        """Go on with those who did not come to their end in the turn before."""
        for _ in range(len(self._to_run)):
            connection = self._to_run.popleft()
            if not connection.lost:
                self.run(connection)
        if self._long:
            connection, long = self._long.popleft()
            if connection.lost:
                return
            if not self.desk.step(connection, long, self.now):
                self._long.append((connection, long))
                return
            connection.busy = False
            self.run(connection)

    def _serve_waiters(self) -> None:
        """Answer those whose wait has ended, and run what they have sent meanwhile."""
        self.engine.advance(self.now)
        ended = self.host.outbox.ended_waits
        while ended:
            waits = ended[:]
            ended.clear()
            for wait in waits:
                connection: Connection = wait.tag  # type: ignore[assignment]
                connection.wait = None
                self.disque.answer(connection, wait)
                self.run(connection)

    def _set_timer(self) -> None:
        """Come again when the next deadline is due."""
        due = self.engine.deadlines.next_due
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self.loop.call_later(max(0, due - self.host.now()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_due = None, NEVER
        self.begin_turn()

    # Sending

    def _send(self) -> None:
        """Send the answers that may be sent; the rest when the log is durable."""
        if not self._dirty or self._syncing:
            return
        if self.host.is_durable():
            self._send_to(self._gather())
        elif self.sync_average_s <= SYNC_INLINE_MAX_S:
            group = self._gather()
            try:
                self._sync()
            except JournalFailed as error:
                self._fail(error)
                return
            self._send_to(group)
        else:
            self._syncing = True
            group = self._gather()
            self.loop.run_in_executor(None, self._sync).add_done_callback(lambda done: self._synced(done, group))

    def _gather(self) -> list[Connection]:
        group, self._dirty = self._dirty, []
        for connection in group:
            connection.gather()
        return group

    def _sync(self) -> None:
        began = time.perf_counter()
        self.host.make_durable()
        self.sync_average_s += _SYNC_WEIGHT * (time.perf_counter() - began - self.sync_average_s)

    def _synced(self, done: asyncio.Future[None], group: list[Connection]) -> None:
        self._syncing = False
        error = done.exception()
        if error is not None:
            self._fail(error)
            return
        self._send_to(group)
        self._send()

    def _send_to(self, group: list[Connection]) -> None:
        for connection in group:
            connection.send()

    def _fail(self, error: BaseException) -> None:
        """Nothing more can be promised: nobody gets another answer."""
        if not self.failed.done():
            self.failed.set_exception(error)
        for connection in list(self.connections.values()):
            connection.abort()

    # Coming and going

    def join(self, connection: Connection) -> None:
        """A client came."""
        self.connections[connection.number] = connection

    def leave(self, connection: Connection) -> None:
        """A client is gone: what it was handed and never sent goes back, and its session ends."""
        if self.connections.pop(connection.number, None) is None or self.failed.done():
            return
        self.begin_turn()
        for job, delivery in zip(connection.unsent, connection.unsent_deliveries):
            self.engine.undelivered(job, self.now, delivery)
        connection.wait = None
        self.engine.disconnect(connection.connection, self.now)

    def end_wait(self, connection: Connection, refusal: bytes = b"") -> None:
        """Let a connection wait no longer: it is refused, or answered as if its time were over."""
        wait = connection.wait
        if wait is not None and wait.outcome == w.WAITING:
            self.begin_turn()
            self.engine.cancel(wait)
            connection.wait = None
            if refusal:
                connection.reply.error(refusal)
            else:
                connection.reply.null_array()
            self.run(connection)

    def pause_clients(self, seconds: float) -> None:
        """Run no command of anybody for so long; from now on, if a pause is under way."""
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self.loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._to_run.extend(connection for connection in self._paused if not connection.lost)
        self._paused.clear()
        self.begin_turn()


class ServerDesk(Desk):
    """The desk of a server: it knows whom to tell what commands cost, and what went wrong."""

    def __init__(self) -> None:
        super().__init__([], time.perf_counter_ns)
        self.on_show: Callable[[Connection, list[bytes]], None] = lambda *_: None
        self.on_slow: Callable[[Connection, list[bytes], int], None] = lambda *_: None

    def show(self, caller: Connection, args: list[bytes]) -> None:  # type: ignore[override]
        self.on_show(caller, args)

    def was_slow(self, caller: Connection, args: list[bytes], ns: int) -> None:  # type: ignore[override]
        self.on_slow(caller, args, ns)

    def report(self, error: Exception) -> None:
        _log.error("internal error; please report it", exc_info=error)
