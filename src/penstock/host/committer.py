"""Waits for the disk on behalf of asyncio tasks.

Tasks that run in one pass of the event loop share one frame and one sync. `node/sync_policy.py` decides whether the
sync runs in the event loop or in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from penstock.core.errors import Closed
from penstock.journal.log import Log
from penstock.node.sync_policy import SyncPolicy


class Committer:
    """Waits until the log of one queue is on disk, for the asyncio tasks of the running loop.

    It keeps no reference to the loop, so that it does not keep the loop alive. `commit` is a function that writes the
    pending rows; it acquires the queue's lock.
    """

    def __init__(self, log: Log, commit: Callable[[], None]) -> None:
        self._log = log
        self._commit = commit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._busy = False
        self.policy = SyncPolicy()

    def durable(self, position: int) -> asyncio.Future[None]:
        """Return a future that completes when every position below `position` is on disk.

        The rows below that position need not be written yet.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append((position, future))
        if not self._busy:
            self._busy = True
            # Do not start now: tasks that are ready to run go first and share this frame and this sync.
            loop.call_soon(self._begin)
        return future

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._commit()
            if self._waiting and self._waiting[0][0] > self._log.written:
                # These rows will never be written, so waiting for them would never end.
                self._log.check()
                raise Closed()
            if not self.policy.is_inline(self._log.unsynced_bytes):
                syncing = loop.run_in_executor(None, self._sync)
                syncing.add_done_callback(lambda done: self._end(done.exception()))
                return
            self._sync()
        except Exception as error:
            self._end(error)
        except BaseException:
            # An interrupt does not concern the waiting tasks. The loop may continue, and then they must, too.
            loop.call_soon(self._begin)
            raise
        else:
            self._end(None)

    def _sync(self) -> None:
        began = time.perf_counter()
        self._log.make_durable(self._log.written)
        self.policy.record(time.perf_counter() - began)

    def _end(self, error: BaseException | None) -> None:
        """Complete the futures whose rows are on disk. If there is an `error`, all futures fail with it."""
        waiting = self._waiting
        while waiting and (error is not None or waiting[0][0] <= self._log.durable):
            future = waiting.popleft()[1]
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._busy = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_soon(self._begin)
