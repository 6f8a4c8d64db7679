"""The threads that run plain functions.

All threads take attempts from one queue, so many short tasks need neither a new thread nor a turn of the event loop
each. A thread is started only if an attempt waits and no thread is idle.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue

from penstock.tasks.attempt import Attempt


class TaskThreads:
    """Up to `most` threads, each of which calls `run` for one attempt at a time, until it returns False."""

    def __init__(self, most: int, run: Callable[[Attempt], bool]) -> None:
        self._most = most
        self._run_one = run
        self._waiting: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0  # Only a hint: threads change it without a lock.

    def submit(self, attempt: Attempt) -> None:
        """Run an attempt as soon as a thread is idle."""
        self._waiting.put(attempt)
        if self._threads < self._most and self._idle < self._waiting.qsize():
            self.add_thread()

    def add_thread(self) -> None:
        """Start a thread."""
        self._threads += 1
        # A daemon, because a task that never returns must not keep the process alive.
        threading.Thread(target=self._run, name=f"penstock-task-{self._threads}", daemon=True).start()

    @property
    def has_waiting(self) -> bool:
        """Whether an attempt waits for a thread."""
        return not self._waiting.empty()

    def withdraw(self) -> list[Attempt]:
        """Remove and return the attempts that no thread has begun."""
        found: list[Attempt] = []
        while not self._waiting.empty():
            attempt = self._waiting.get()
            if attempt is not None:
                found.append(attempt)
        return found

    def stop(self) -> None:
        """End all idle threads, and the other ones when their attempts end."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _run(self) -> None:
        is_usable = True
        while is_usable:
            self._idle += 1
            attempt = self._waiting.get()
            self._idle -= 1
            if attempt is None:
                return
            # A context of its own, so that one task does not see the context variables of another.
            is_usable = contextvars.copy_context().run(self._run_one, attempt)
