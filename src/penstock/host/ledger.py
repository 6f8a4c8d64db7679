"""What every turn of a queue asks for: what time it is, and that the log hears of what the engine did. Compiled.

A host has one ledger, and tells it of its log. Those who take many turns a second ask the ledger itself: a call of
compiled code by compiled code costs a hundredth of one through the host.
"""

from __future__ import annotations

import time

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.journal.log import ALWAYS, Log


class Clock:
    """A clock that shows a moment now: deadlines do not move when somebody sets the clock on the wall."""

    _offset_ns: i64

    def __init__(self, start_ms: i64) -> None:
        self._offset_ns = start_ms * 1_000_000 - time.monotonic_ns()

    def now(self) -> i64:
        """Engine time, in ms."""
        monotonic_ns: i64 = time.monotonic_ns()
        return (monotonic_ns + self._offset_ns) // 1_000_000


def wall_ms() -> i64:
    """What the clock on the wall shows."""
    wall_ns: i64 = time.time_ns()
    return wall_ns // 1_000_000


class Ledger:
    """An engine, its clock, and the log that hears of what happens in it, if there is one."""

    clock: Clock
    log: Log | None  # Also None once the queue is closed.
    failed: bool  # Nothing more can be promised; the host knows why.
    _engine: Engine

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.clock = clock
        self.log = None
        self.failed = False
        self._engine = engine

    def commit(self) -> None:
        """Let the log have what was done, under the lock. Raises JournalFailed, which the host has to hear of."""
        log = self.log
        if log is not None:
            while log.writer.full():
                # What was left to the next turn has nobody else to begin it.
                log.commit(self.clock.now(), wall_ms())
                self._engine.advance(self.clock.now())
            log.commit(self.clock.now(), wall_ms())
            if log.tell_room():
                self._engine.advance(self.clock.now())
                log.commit(self.clock.now(), wall_ms())

    def is_durable(self) -> bool:
        """Whether everything that was committed is as durable as the queue promises."""
        log = self.log
        return log is None or log.fsync != ALWAYS or log.durable >= log.written

    def unsynced_bytes(self) -> i64:
        """How much a sync would have to write."""
        log = self.log
        return 0 if log is None else log.unsynced_bytes
