"""Threads and asyncio tasks that sleep until their command is served or its timeout is over.

They do not poll. One of them, the timekeeper, wakes up for the engine's next deadline and runs the timers for all.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from penstock.core.errors import CommandError


class Sleeper(Protocol):
    """A thread or asyncio task that sleeps until its wait has ended."""

    @property
    def keeps_time(self) -> bool:
        """Return whether this sleeper can be the timekeeper."""

    def wake(self) -> None:
        """Wake this sleeper. Any thread can call this. Waking a sleeper twice has no effect."""


class Timed(Protocol):
    """A host, as its timekeeper uses it."""

    closed: bool

    def keep_time(self, keeper: Sleeper) -> int | None: ...


class ThreadSleeper:
    """A thread that sleeps. It sleeps on a bare lock, which is the cheapest primitive."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    @property
    def keeps_time(self) -> bool:
        return True

    def sleep(self, timeout_ms: int) -> None:
        """Sleep until `wake` is called, for at most `timeout_ms`; -1 means no limit."""
        self._lock.acquire(timeout=-1 if timeout_ms < 0 else min(timeout_ms / 1000, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        # The caller holds the host's lock, so no other thread releases this lock in between.
        if self._lock.locked():
            self._lock.release()


class Timekeeper(ThreadSleeper):
    """A thread whose only task is to be the timekeeper. It ends when its host is closed or garbage-collected."""

    __slots__ = ("_host",)

    def __init__(self, host: Timed) -> None:
        super().__init__()
        self._host = weakref.ref(host, lambda _: self.wake())

    def start(self) -> None:
        threading.Thread(target=self._run, name="penstock-keeper", daemon=True).start()

    def _run(self) -> None:
        while (timeout_ms := self._turn()) is not None:
            self.sleep(timeout_ms)

    def _turn(self) -> int | None:
        host = self._host()
        try:
            return None if host is None or host.closed else host.keep_time(self)
        except CommandError:
            return None  # The journal failed. All sleepers were woken and raise the error.
