"""Pacing: maintenance yields to foreground work and ends soon when the queue is closed.

Every service works in pieces of about a millisecond and calls `pause` between them.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Final

from penstock.host.maintenance.maintained_queue import MaintainedQueue

# Pauses, as a multiple of the work done before. The slices of a snapshot are short and many, and each costs foreground
# work more than its own time because of thread switches.
PAUSE_BUSY: Final = 9  # The factor while there is foreground work.
PAUSE_SNAPSHOT: Final = 29  # The factor between slices of a snapshot while there is foreground work.
PAUSE_IDLE: Final = 1
PAUSE_MIN_S: Final = 0.0005

# Assumed duration of a piece of work that is not measured.
WORK_S: Final = 0.001


class Stopped(Exception):
    """Raised in the maintenance thread when the queue is being closed."""


class Pacing:
    """Pauses between pieces of work, and access to the queue's lock, for the services of one queue."""

    def __init__(self, queue: weakref.ref[MaintainedQueue], stopping: threading.Event) -> None:
        self._queue = queue
        self._stopping = stopping
        self._written = 0  # Position of the log at the last pause.

    def pause(self, spent: float, busy: int = PAUSE_BUSY) -> None:
        """Sleep after `spent` seconds of work. Raise Stopped if the queue is being closed.

        Sleep for `spent` times PAUSE_IDLE, or for `spent` times `busy` if the journal grew since the last pause.
        """
        queue = self._queue()
        before, self._written = self._written, 0 if queue is None else queue.log.written
        share = PAUSE_IDLE if before == self._written else busy
        if self._stopping.wait(max(PAUSE_MIN_S, spent * share)):
            raise Stopped

    @contextlib.contextmanager
    def locked(self, queue: MaintainedQueue) -> Iterator[None]:
        """Hold the queue's lock in a `with` block. Raise Stopped if the queue is being closed."""
        while not queue.lock.acquire(timeout=0.05):
            if self._stopping.is_set():
                raise Stopped
        try:
            if self._stopping.is_set():
                raise Stopped
            yield
        finally:
            queue.lock.release()
