"""A wake-up flag that one thread waits for and any thread can set.

threading.Event is Python code around a lock. An interrupt (KeyboardInterrupt) inside `set` can leave that lock locked,
and the next caller hangs for ever. This flag is a single lock of the operating system, which is locked while the flag
is not set.
"""

from __future__ import annotations

import contextlib
import threading


class WakeFlag:
    """A flag that wakes one waiting thread. A successful wait clears it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Set the flag: wake the waiting thread, or let the next wait return immediately."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def is_set(self) -> bool:
        return not self._lock.locked()

    def clear(self) -> None:
        """Clear the flag without waiting."""
        self._lock.acquire(blocking=False)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the flag is set, for at most `timeout_s` seconds. Return whether it was set."""
        return self._lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))
