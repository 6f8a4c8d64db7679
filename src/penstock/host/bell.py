"""A bell that one thread waits for and any may ring.

threading.Event is Python code around a lock: an interrupt in the midst of `set` leaves that lock locked, and whoever
rings or waits next hangs for ever. This is one lock of the system's own, locked as long as nobody has rung.
"""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """Rung or not. Whoever waits for it finds it silent again afterwards."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the one who waits, or the next who does. Ringing twice is ringing once."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def was_rung(self) -> bool:
        """Whether it was rung since somebody waited for it."""
        return not self._lock.locked()

    def silence(self) -> None:
        """Forget that it was rung."""
        self._lock.acquire(blocking=False)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it is rung, or so long; tell whether it was."""
        return self._lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
