"""The clock of a host and the commit of its turns. Compiled.

A host has one ledger, which writes to the host's log. Code that runs many turns per second calls the ledger directly,
because a call between compiled modules costs a hundredth of a call through the host.
"""

from __future__ import annotations

import time

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.journal.log import ALWAYS, Log


class Clock:
    """A monotonic clock that starts at a given time. Deadlines do not move when the system clock is set."""

    _offset_ns: i64

    def __init__(self, start_ms: i64) -> None:
        self._offset_ns = start_ms * 1_000_000 - time.monotonic_ns()

    def now(self) -> i64:
        """Return the engine time in ms."""
        monotonic_ns: i64 = time.monotonic_ns()
        return (monotonic_ns + self._offset_ns) // 1_000_000


def wall_ms() -> i64:
    """Return the wall clock in ms since 1970."""
    wall_ns: i64 = time.time_ns()
    return wall_ns // 1_000_000


class Ledger:
    """An engine, its clock, and its log, if it has one."""

    clock: Clock
    log: Log | None  # None for a queue in memory, and after the queue was closed.
    failed: bool  # Whether the journal failed. The host has the reason.
    _engine: Engine

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.clock = clock
        self.log = None
        self.failed = False
        self._engine = engine

    def commit(self) -> None:
        """Write the pending rows to the log. The caller holds the lock.

        Raises JournalFailed; the caller must then fail the host.
        """
        log = self.log
        if log is not None:
            while log.writer.full():
                # A full turn left work to the next turn, and no other code starts that turn.
                log.commit(self.clock.now(), wall_ms())
                self._engine.advance(self.clock.now())
            log.commit(self.clock.now(), wall_ms())
            if log.update_room():
                self._engine.advance(self.clock.now())
                log.commit(self.clock.now(), wall_ms())

    def is_durable(self) -> bool:
        """Return whether all committed changes are as durable as the fsync policy requires."""
        log = self.log
        return log is None or log.fsync != ALWAYS or log.durable >= log.written

    def unsynced_bytes(self) -> i64:
        """Return how many bytes the next sync has to write."""
        log = self.log
        return 0 if log is None else log.unsynced_bytes
