"""The maintenance thread of a queue directory.

The thread sleeps until the log has grown by a part of a segment, or until history may be too old. Then it runs all due
services: segments, disk space, snapshots, history, indexes. There is one exception. If the queue was never open long
enough for a snapshot, the snapshot is taken before the queue opens, without pauses.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from typing import Final

from penstock.core.errors import Closed, JournalFailed, NoSpace
from penstock.host.maintenance.disk_space import DiskSpaceService
from penstock.host.maintenance.history import HISTORY_CHECK_S, HistoryService
from penstock.host.maintenance.indexes import IndexService
from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.maintenance.pacing import Pacing, Stopped
from penstock.host.maintenance.segments import SegmentService
from penstock.host.maintenance.snapshots import SNAPSHOT_BYTES, SnapshotService
from penstock.host.wake_flag import WakeFlag
from penstock.journal.maintenance.retention import Retention
from penstock.journal.maintenance.snapshot import take_snapshot

_log = logging.getLogger("penstock")

# Seconds until the next attempt after a failure, for example on a full disk.
_TRY_AGAIN_S: Final = 60.0

# Seconds between two checks for space on a full disk.
_FULL_S: Final = 1.0


class Maintenance:
    """Maintains one directory while its queue is open."""

    def __init__(self, queue: MaintainedQueue, retention: Retention, snapshot_bytes: int = SNAPSHOT_BYTES) -> None:
        """Start the thread. No other thread uses the queue yet."""
        self._stopping = threading.Event()
        self._due = WakeFlag()
        self._due.set()
        self._queue = weakref.ref(queue, lambda _: self._due.set())
        self._pacing = Pacing(self._queue, self._stopping)
        self._segments = SegmentService(self._due)
        self._snapshots = SnapshotService(self._segments, retention, self._pacing, snapshot_bytes)
        self._disk_space = DiskSpaceService(self._segments, self._snapshots, self._pacing)
        self._history = HistoryService(retention, self._pacing)
        self._indexes = IndexService(self._pacing)
        self._seen = 0  # The newest segment when all tasks were last complete.
        self._quiet_until = 0.0  # Failures before this time are not logged.
        self._turned = threading.Condition()
        self._asked = 0  # Number of requested snapshots.
        self._answered = 0  # Number of answered requests.
        self._ended = False
        self._failure: Exception | None = None
        if self._snapshots.is_overdue(queue):
            self._snapshot_at_once(queue)
        self._thread = threading.Thread(target=self._run, name="penstock-maintenance", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread to run due services, because the log has grown."""
        self._due.set()

    def stop(self) -> None:
        """Stop the thread and wait for its end. The caller can hold the lock."""
        self._stopping.set()
        self._due.set()
        self._thread.join()

    def take_snapshot(self) -> None:
        """Take a snapshot and delete old history, and return when that is done. The caller does not hold the lock."""
        with self._turned:
            self._asked += 1
            ticket = self._asked
            self._due.set()
            self._turned.wait_for(lambda: self._answered >= ticket or self._ended)
            if self._answered < ticket:
                raise Closed()
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and (queue := self._queue()) is not None and not queue.log.failed:
                self._due.clear()
                wait = self._turn(queue)
                # Keep no reference while waiting, so that an unused queue can be garbage-collected.
                del queue
                if not self._due.wait(wait):
                    self._seen = 0
        finally:
            with self._turned:
                self._ended = True
                self._turned.notify_all()

    def _turn(self, queue: MaintainedQueue) -> float:
        """Run all due services. Return the seconds until the next one is due."""
        # A request from now on needs a snapshot that is newer than this one.
        asked = self._asked
        failure: Exception | None = None
        try:
            self._run_services(queue, wanted=asked > self._answered)
        except Stopped:
            return 0.0
        except JournalFailed as error:
            failure = error
            with contextlib.suppress(Stopped), self._pacing.locked(queue):
                queue.fail(error)
        except Exception as error:
            # No error may end the thread. Callers that wait for a snapshot receive it.
            failure = error.with_traceback(None)
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + _TRY_AGAIN_S
                _log_failure(error)
        with self._turned:
            self._failure = failure
            self._answered = asked
            self._turned.notify_all()
        if queue.log.is_full() or queue.engine.moves_left <= 0:
            # Callers may wait for space, even if a task failed or the disk became full during a snapshot.
            return _FULL_S
        if failure is not None:
            return _TRY_AGAIN_S
        return HISTORY_CHECK_S

    def _run_services(self, queue: MaintainedQueue, wanted: bool) -> None:
        """Run all due services. If `wanted`, take a snapshot in any case."""
        due = wanted or self._snapshots.is_due(queue)
        if due:
            # Delete history first: on a full disk, a segment and a snapshot may need its space.
            self._history.delete_old(queue)
        self._segments.run_once(queue)
        is_full = self._disk_space.run_once(queue)
        if due:
            if is_full or not self._snapshots.fits(queue):
                raise NoSpace("there is no room on the disk for a snapshot")
            self._snapshots.run_once(queue)
        if not is_full and (queue.log.segment != self._seen or wanted):
            self._tidy(queue)

    def _tidy(self, queue: MaintainedQueue) -> None:
        """Delete history that need not be kept, and create the indexes of the history that stays."""
        segment = queue.log.segment
        # An index must not refer to rows that can be lost.
        queue.log.make_durable(queue.log.written)
        self._history.run_once(queue)
        self._indexes.run_once(queue, segment)
        self._seen = segment

    def _snapshot_at_once(self, queue: MaintainedQueue) -> None:
        try:
            self._history.delete_old(queue)
            take_snapshot(queue.disk, queue.log, queue.engine, queue.now(), queue.wall())
        except Exception as error:  # A queue can be used even if its log cannot be shortened.
            _log_failure(error)


def _log_failure(error: Exception) -> None:
    _log.warning("maintenance failed, the log grows until it succeeds: error=%s", error)
