"""Segments: creates the next segment of the log, and the reserve file, before they are needed."""

from __future__ import annotations

from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.wake_flag import WakeFlag
from penstock.journal import reserve_file


class SegmentService:
    """Creates the next segment of the log in advance. `grown` is set when the log has grown."""

    def __init__(self, grown: WakeFlag) -> None:
        self._grown = grown

    def run_once(self, queue: MaintainedQueue) -> None:
        """Create the next segment, fill it with zeros, and create the file that reserves space for a full disk.

        Skip each step that the disk has no space for.
        """
        reserve_file.create(queue.disk, queue.log.room.segment_bytes)
        queue.log.prepare()
        queue.log.fill()
        # Update this last, because the created files use space.
        queue.log.room.refresh()

    def run_now(self, queue: MaintainedQueue) -> None:
        """Try to create the reserve file and the next segment, even if the last attempt failed a moment ago."""
        reserve_file.create(queue.disk, queue.log.room.segment_bytes)
        queue.log.prepare_again()
        queue.log.room.refresh()

    def run_if_grown(self, queue: MaintainedQueue) -> None:
        """Create the next segment between two slices of other work, if the log has grown meanwhile."""
        if self._grown.is_set():
            queue.log.prepare()
