"""The event loop as the driver of a node's turn: the lock, the timer, and the thread that syncs. Compiled.

The turn itself is in `node/turn.py`. `linger.py` decides when a turn ends and whether the loop sleeps afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from mypy_extensions import i64, mypyc_attr

from penstock.core.errors import JournalFailed
from penstock.core.limits import NEVER
from penstock.host.host import Host
from penstock.journal.log import Log
from penstock.node.dispatch import Dispatcher, DispatchHooks
from penstock.node.sync_policy import SyncPolicy
from penstock.node.turn import SOON, Driver, Turn
from penstock.server.linger import Linger

_log = logging.getLogger("penstock")


@mypyc_attr(allow_interpreted_subclasses=True)
class LoopHooks(DispatchHooks):
    """Callbacks from a loop and its dispatcher to the server."""

    def __init__(self, loop: TurnLoop) -> None:
        self._loop = loop

    def failed(self, error: Exception) -> None:
        """Log an internal error, and stop the node if the error left a change half done."""
        self._loop.report(error)

    def synced(self, seconds: float) -> None:
        """Record how long a sync of the log took."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnLoop(Driver):
    """Drives the turn of a node from an asyncio event loop."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, dispatcher: Dispatcher) -> None:
        self.host = host
        self.loop = loop
        self.turn = Turn(host.engine, host.clock, self, dispatcher)
        self.turn.log = host.log
        self.linger = Linger(loop, self.end_turn)
        self.failed: asyncio.Future[None] = loop.create_future()  # Fails with the reason why the node cannot go on.
        self.syncs = SyncPolicy()
        self.hooks = LoopHooks(self)
        self._lock = host.lock
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER

    # Called by the turn

    def begin(self) -> None:
        self._lock.acquire()

    def wake_at(self, due: i64) -> None:
        """Plan a turn for the engine time `due`.

        If `due` is SOON, a turn has begun already. Then plan its end, after all ready sockets are read.
        """
        if due == SOON:
            self.linger.turn_begins()
        elif due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self.loop.call_later(max(0, due - self.turn.clock.now()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_due = None, NEVER
        self.turn.plan()

    def start_sync(self, log: Log) -> None:
        """Make the log durable up to its present end: in the loop if that is fast, otherwise in a thread.

        If the journal is switched off during a sync, nothing is lost, because closing the journal syncs all of it.
        """
        position = log.written

        def sync() -> float:
            began = time.perf_counter()
            log.make_durable(position)
            return time.perf_counter() - began

        if not self.syncs.is_inline(log.unsynced_bytes):
            self.loop.run_in_executor(None, sync).add_done_callback(self._synced)
            return
        try:
            seconds = sync()
        except JournalFailed as error:
            self.fail(error)
            return
        self._record_sync(seconds)
        self.turn.synced()

    def _synced(self, done: asyncio.Future[float]) -> None:
        error = done.exception()
        if error is not None:
            self.fail(error)
            return
        self._record_sync(done.result())
        self.turn.synced()

    def _record_sync(self, seconds: float) -> None:
        self.syncs.record(seconds)
        self.hooks.synced(seconds)

    # Called by the loop

    def end_turn(self) -> None:
        """End the turn and send its output, after the loop has read all ready sockets."""
        turn = self.turn
        if not turn.open_if_planned():
            return
        try:
            self.host.check()
            turn.end()
        except Exception as error:
            # The disk or an assertion failed. After a failed assertion, the rest of the state cannot be trusted.
            if isinstance(error, JournalFailed):
                self.host.fail(error)
            self.fail(error)
            return
        finally:
            turn.is_open = False
            self._lock.release()
        turn.send()

    def stop(self) -> None:
        """End the last turn. All clients were disconnected before this call."""
        self.turn.stop()
        self.end_turn()
        if self._timer is not None:
            self._timer.cancel()

    # Failures

    def fail(self, error: BaseException) -> None:
        """Fail the node with `error` and abort all clients, because no further reply can be trusted."""
        self.turn.stop()
        if not self.failed.done():
            self.failed.set_exception(error)
        for client in list(self.turn.clients.values()):
            client.abort()

    def report(self, defect: Exception) -> None:
        """Log an internal error. If the error left a change half done, stop the node."""
        _log.error("internal error; please report it", exc_info=defect)
        self.host.gives_up(defect)

    def on_failure(self, error: BaseException) -> None:
        """Called in any thread when the host has failed: fail the node in the thread of the loop."""
        # The loop may already be closed.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.fail, error)

    def on_ended_waits(self) -> None:
        """Start a turn that writes the replies of waits which another thread ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.turn.plan)
