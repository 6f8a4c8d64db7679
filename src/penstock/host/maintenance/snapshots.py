"""Snapshots: takes one when the log is long, or when rows in it are too old to be kept.

A snapshot is taken in slices of a fraction of a millisecond under the queue's lock. The pauses between them are as long
as the slices, and much longer while there is foreground work.
"""

from __future__ import annotations

import time
from typing import Final

from penstock.core.limits import NEVER
from penstock.host.maintenance.history import HISTORY_CHECK_S
from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.maintenance.pacing import PAUSE_SNAPSHOT, Pacing
from penstock.host.maintenance.segments import SegmentService
from penstock.journal.layout import ROW_BYTES
from penstock.journal.log import SEGMENT_BYTES
from penstock.journal.maintenance.retention import Retention
from penstock.journal.maintenance.snapshot import Snapshot, use_snapshot
from penstock.journal.segment import SEGMENT_HEADER_BYTES

# A snapshot is due when the log since the last one is longer than this and than twice that snapshot. Snapshots
# therefore write at most half as much as the log, and recovery reads at most three times the size of the live data.
SNAPSHOT_BYTES: Final = 256 * 1024 * 1024

# If the log is this many times as long, a snapshot is taken before the queue opens.
_OVERDUE: Final = 2

# A snapshot that is taken only because history is too old needs at least this much log, and as much as the last
# snapshot, or as much time as passes between two checks of the history.
_WORTH_BYTES: Final = SEGMENT_BYTES


class SnapshotService:
    """Takes snapshots, so that recovery reads little and old segments become history."""

    def __init__(self, segments: SegmentService, retention: Retention, pacing: Pacing, snapshot_bytes: int) -> None:
        self._segments = segments
        self._retention = retention
        self._pacing = pacing
        self._snapshot_bytes = snapshot_bytes

    def is_due(self, queue: MaintainedQueue) -> bool:
        """Return whether the log is long enough for a snapshot, or contains rows that are too old to be kept."""
        return self._has_grown(queue) or self._is_too_old(queue)

    def is_overdue(self, queue: MaintainedQueue) -> bool:
        """Return whether the log is so long that a snapshot must have been due in earlier, short runs of the queue."""
        return self._has_grown(queue, _OVERDUE)

    def fits(self, queue: MaintainedQueue) -> bool:
        """Return whether a snapshot fits on the disk without using space that is reserved for jobs."""
        return snapshot_size(queue) + queue.log.owed_bytes() < queue.disk.free()

    def run_once(self, queue: MaintainedQueue, small: bool = False) -> None:
        """Take a snapshot. With `small`, it starts a small segment, because the disk is full."""
        with self._pacing.locked(queue):
            snapshot = Snapshot(queue.disk, queue.log, queue.engine, queue.now(), queue.wall(), small=small)
        try:
            more = True
            while more:
                began = time.thread_time()
                with self._pacing.locked(queue):
                    more = snapshot.slice(queue.now(), queue.wall())
                snapshot.write(queue.now(), queue.wall(), last=not more)
                self._segments.run_if_grown(queue)
                self._pacing.pause(time.thread_time() - began, PAUSE_SNAPSHOT)
            kept = queue.log.recovery_range
            snapshot.finish()
        except BaseException:
            snapshot.abandon()
            raise
        try:
            self._use(queue, snapshot.number)
        except BaseException:
            # Bodies are still read from older files, which must stay until a later snapshot succeeds.
            queue.log.recovery_range = kept
            raise

    def _use(self, queue: MaintainedQueue, number: int) -> None:
        """Make the engine read bodies that are not in memory from the new snapshot."""
        if queue.engine.spills:
            began = time.thread_time()
            for _ in use_snapshot(queue.disk, queue.engine, number, lambda: self._pacing.locked(queue)):
                self._segments.run_if_grown(queue)
                self._pacing.pause(time.thread_time() - began)
                began = time.thread_time()

    def _has_grown(self, queue: MaintainedQueue, times: int = 1) -> bool:
        """Return whether the log exceeds the snapshot threshold by a factor of `times`."""
        return queue.log.needed_bytes() > times * max(self._snapshot_bytes, 2 * queue.log.recovery_range.snapshot_bytes)

    def _is_too_old(self, queue: MaintainedQueue) -> bool:
        """Return whether the log contains rows that are older than the retention limit and should be deleted."""
        log = queue.log
        written = log.needed_bytes() - SEGMENT_HEADER_BYTES
        if self._retention.age_ms == NEVER or written == 0:
            return False
        age_ms = queue.wall() - log.recovery_range.since
        if age_ms < -HISTORY_CHECK_S * 1_000:
            # The clock was ahead when the log was started, or is behind now, so its age is unknown.
            return True
        worth = written > max(_WORTH_BYTES, log.recovery_range.snapshot_bytes) or age_ms > HISTORY_CHECK_S * 1_000
        return worth and age_ms > self._retention.age_ms


def snapshot_size(queue: MaintainedQueue) -> int:
    """Return the approximate size of a snapshot, including the keys and names of jobs."""
    bodies = sum(tube.body_bytes for tube in list(queue.engine.tubes.values()))
    labels = queue.engine.labels
    return queue.engine.jobs.count * 2 * ROW_BYTES + labels.total + labels.headers + bodies
