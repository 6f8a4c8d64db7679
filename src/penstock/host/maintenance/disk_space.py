"""Disk space: frees space on a full disk, and resumes service when there is space again.

History is deleted first. If that is not enough and the live data is small, a snapshot is taken, which shortens the log.
The snapshot uses the space of the reserve file, which is kept for this purpose.
"""

from __future__ import annotations

import logging

from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.maintenance.pacing import Pacing
from penstock.host.maintenance.segments import SegmentService
from penstock.host.maintenance.snapshots import SnapshotService, snapshot_size
from penstock.journal import reserve_file
from penstock.journal.log import SMALL_SEGMENT_BYTES
from penstock.journal.maintenance.retention import NO_HISTORY, trim
from penstock.journal.segment import SEGMENT_HEADER_BYTES

_log = logging.getLogger("penstock")


class DiskSpaceService:
    """Frees space on a full disk, so that the log of one queue can grow."""

    def __init__(self, segments: SegmentService, snapshots: SnapshotService, pacing: Pacing) -> None:
        self._segments = segments
        self._snapshots = snapshots
        self._pacing = pacing
        self._is_full = False  # Whether a full disk was logged.

    def run_once(self, queue: MaintainedQueue) -> bool:
        """Free space if the disk is full. Serve calls that wait for space. Return whether the disk is still full."""
        is_full = self._lacks_room(queue) and not self._make_room(queue)
        self._log_change(is_full)
        if queue.engine.moves_left <= 0:
            with self._pacing.locked(queue):
                queue.retry_after_full_disk()
        return is_full

    def _log_change(self, is_full: bool) -> None:
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                _log.warning("puts refused: the log cannot grow, because the disk is full or no file can be opened")
            else:
                _log.info("puts accepted again: the log can grow")

    def _lacks_room(self, queue: MaintainedQueue) -> bool:
        """Return whether the disk is full, or the reserve file is missing.

        Without a reserve file, a full disk could not be freed.
        """
        return queue.log.is_full() or not reserve_file.exists(queue.disk)

    def _make_room(self, queue: MaintainedQueue) -> bool:
        """Free space on a full disk: delete history, then shorten the log if little of it is needed.

        Return whether the log can grow again.
        """
        disk, log = queue.disk, queue.log
        # A next segment that was just used or replaced is not a full disk. Try again before history is deleted.
        self._segments.run_now(queue)
        if not self._lacks_room(queue):
            return True
        if not log.is_short() and disk.free() > log.room.segment_bytes + reserve_file.RESERVE_FILE_BYTES:
            # There is space, but files cannot be created, perhaps because too many are open. Less history is no help.
            return not log.is_full()
        freed = trim(disk, log, NO_HISTORY, queue.wall())
        if freed:
            _log.warning("history deleted: reason=disk-full bytes=%d", freed)
        self._segments.run_now(queue)
        if self._lacks_room(queue) and self._is_little(queue):
            freed = self._shorten(queue)
            _log.warning("log shortened: reason=disk-full bytes=%d", freed)
        return not log.is_full()

    def _shorten(self, queue: MaintainedQueue) -> int:
        """Take a snapshot in the space of the reserve file. Return how many bytes that freed."""
        room = queue.log.room
        room.kept = _shortening_bytes(queue)
        room.refresh()
        try:
            reserve_file.release(queue.disk)
            self._snapshots.run_once(queue, small=True)
            return trim(queue.disk, queue.log, NO_HISTORY, queue.wall())
        finally:
            room.kept = 0
            self._segments.run_now(queue)

    def _is_little(self, queue: MaintainedQueue) -> bool:
        """Return whether a snapshot fits in the space of the reserve file, and is smaller than half of the log."""
        needed, log = _shortening_bytes(queue), queue.log
        return needed + log.owed_bytes() < reserve_file.available_bytes(queue.disk) and 2 * needed < log.needed_bytes()


def _shortening_bytes(queue: MaintainedQueue) -> int:
    """Return how many bytes a snapshot needs on a full disk.

    A snapshot starts a new segment of the log. If the next segment does not exist, the size of a small one is added.
    """
    return snapshot_size(queue) + (SMALL_SEGMENT_BYTES if queue.log.room.spare is None else SEGMENT_HEADER_BYTES)
