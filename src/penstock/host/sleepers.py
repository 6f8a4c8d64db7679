"""Those who sleep until the engine has something for them. They do not poll: one of them keeps the time for all."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from penstock.core.errors import CommandError


class Sleeper(Protocol):
    """Somebody who sleeps until something it waits for has happened."""

    @property
    def keeps_time(self) -> bool:
        """Whether it may keep the time for others."""

    def wake(self) -> None:
        """Wake it, from any thread; waking somebody who is awake does no harm."""


class Timed(Protocol):
    """A host, as far as whoever keeps its time needs it."""

    closed: bool

    def keep_time(self, keeper: Sleeper) -> int | None:
        """How long the keeper may sleep before it looks at the time again; None if it need not."""


class ThreadSleeper:
    """A thread that sleeps. A bare lock is the cheapest thing to sleep on."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    @property
    def keeps_time(self) -> bool:
        return True

    def sleep(self, timeout_ms: int) -> None:
        """Sleep until woken, or so long; -1 for no limit."""
        self._lock.acquire(timeout=-1 if timeout_ms < 0 else min(timeout_ms / 1000, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        # Under the host's lock, so nobody else releases it in between.
        if self._lock.locked():
            self._lock.release()


class Keeper(ThreadSleeper):
    """A thread that does nothing but keep the time. It ends with its host, closed or forgotten."""

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
            return None  # Nothing more can be promised; those who sleep were woken, and are told.
