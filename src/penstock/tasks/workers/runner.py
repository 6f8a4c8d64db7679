"""Runs attempts, up to a number at the same time: plain functions in threads, and async ones as asyncio tasks.

Attempts that end in one turn of the event loop are passed on together.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from penstock.tasks.attempt import Attempt, Ending
from penstock.tasks.context import LeaseLost
from penstock.tasks.execution import Execution, time_out
from penstock.tasks.workers.process_state import ProcessState
from penstock.tasks.workers.threads import TaskThreads

_log = logging.getLogger("penstock.tasks")


class Runner:
    """Runs attempts in the order of `submit`. `ended` is called in the event loop with those that have ended."""

    def __init__(
        self,
        execution: Execution,
        concurrency: int,
        state: ProcessState | None,
        ended: Callable[[list[Attempt]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._execution = execution
        self._concurrency = concurrency
        self._state = state
        self._on_ended = ended
        self._waiting: deque[Attempt] = deque()  # Neither started nor passed to the threads.
        self._threads = TaskThreads(concurrency, self._run_in_thread)
        self._in_threads = 0  # Attempts that were passed to the threads.
        self._in_tasks = 0
        self._running: set[Attempt] = set()
        self._ended: deque[Attempt] = deque()
        self._is_flush_due = False

    def submit(self, attempts: list[Attempt]) -> None:
        """Start attempts, or as many of them as may run."""
        self._waiting.extend(attempts)
        self._start_waiting()

    @property
    def has_waiting(self) -> bool:
        """Whether an attempt has not started, because too many others run."""
        return bool(self._waiting) or self._threads.has_waiting

    def withdraw(self) -> list[Attempt]:
        """Remove and return the attempts that have not started."""
        found = self._threads.withdraw()
        self._in_threads -= len(found)
        found += self._waiting
        self._waiting.clear()
        return found

    def end_all(self, ending: Ending, reason: str) -> None:
        """End every running attempt: cancel async functions, and abandon the threads of plain ones."""
        for attempt in list(self._running):
            self.end(attempt, ending, reason)

    def end(self, attempt: Attempt, ending: Ending, reason: str) -> None:
        """End an attempt before its function has returned."""
        if attempt.ending != Ending.NONE:
            return
        attempt.ending, attempt.reason = ending, reason
        if attempt.context is not None:
            attempt.context.cancel()
        if attempt.handle is not None:
            attempt.handle.cancel()
        elif attempt in self._running:
            self._abandon(attempt)

    def stop(self) -> None:
        """End the threads that are idle, and the other ones when their attempts end."""
        self._threads.stop()

    def _start_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            if waiting[0].task.is_async:
                if self._in_tasks + min(self._in_threads, self._concurrency) >= self._concurrency:
                    return
                self._start_task(waiting.popleft())
            else:
                # Without async tasks, the number of threads is the limit, and threads fetch attempts by themselves.
                if self._in_tasks and self._in_tasks + self._in_threads >= self._concurrency:
                    return
                self._in_threads += 1
                self._threads.submit(waiting.popleft())

    # Async functions

    def _start_task(self, attempt: Attempt) -> None:
        self._in_tasks += 1
        self._begin(attempt)
        attempt.handle = self._loop.create_task(self._run_task(attempt))

    async def _run_task(self, attempt: Attempt) -> None:
        try:
            await self._execution.run_async(attempt)
        finally:
            self._in_tasks -= 1
            self._finish(attempt)
            self._ended.append(attempt)
            if not self._is_flush_due:
                self._is_flush_due = True
                self._loop.call_soon(self._flush)

    # Plain functions

    def _run_in_thread(self, attempt: Attempt) -> bool:
        """Run an attempt in this thread. Return whether the thread may run another one."""
        attempt.thread = threading.get_ident()
        self._begin(attempt)
        if attempt.task.timeout_s is not None:
            self._call_soon(self._limit, attempt)
        try:
            self._execution.run(attempt)
        except LeaseLost:
            pass  # It arrived after the function had returned.
        self._finish(attempt)
        if attempt.abandoned:
            return False
        self._ended.append(attempt)
        # Two threads may both see False. Then the second flush finds nothing.
        if not self._is_flush_due:
            self._is_flush_due = True
            self._call_soon(self._flush)
        return True

    def _call_soon(self, function: Callable[..., None], *args: Attempt) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: the worker has given up waiting.
            self._loop.call_soon_threadsafe(function, *args)

    def _limit(self, attempt: Attempt) -> None:
        """End an attempt of a plain function when its timeout is over."""
        assert attempt.task.timeout_s is not None
        left_s = attempt.started_at + attempt.task.timeout_s - time.monotonic()
        self._loop.call_later(max(0.0, left_s), self._time_out, attempt)

    def _time_out(self, attempt: Attempt) -> None:
        if attempt.ending == Ending.NONE and attempt in self._running:
            time_out(attempt)
            if attempt.context is not None:
                attempt.context.cancel()
            self._abandon(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """Settle an attempt whose thread still runs its function, and start another thread instead.

        An exception is raised in the thread. A function that waits in C code gets it later, or never.
        """
        attempt.abandoned = True
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(attempt.thread), ctypes.py_object(LeaseLost))
        self._threads.add_thread()
        self._ended.append(attempt)
        self._loop.call_soon(self._flush)

    # Both

    def _begin(self, attempt: Attempt) -> None:
        attempt.started_at = time.monotonic()
        self._running.add(attempt)
        if self._state is not None:
            attempt.slot = self._state.started(attempt.job.id)

    def _finish(self, attempt: Attempt) -> None:
        self._running.discard(attempt)
        if self._state is not None:
            self._state.ended(attempt.slot)

    def _flush(self) -> None:
        """Pass on all attempts that have ended, and start others."""
        # Before the loop, because a thread that appends now may not schedule another flush otherwise.
        self._is_flush_due = False
        ended: list[Attempt] = []
        while self._ended:
            attempt = self._ended.popleft()
            if not attempt.task.is_async:
                self._in_threads -= 1
            ended.append(attempt)
        if ended:
            self._on_ended(ended)
            self._start_waiting()
