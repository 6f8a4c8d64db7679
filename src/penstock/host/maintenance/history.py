"""History: deletes segments that exceed the retention limits, and removes bodies from those that stay."""

from __future__ import annotations

from typing import Final

from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.maintenance.pacing import WORK_S, Pacing
from penstock.journal.maintenance.retention import Retention, trim, without_bodies

# Seconds between two checks for history that is too old.
HISTORY_CHECK_S: Final = 3_600.0


class HistoryService:
    """Applies the retention limits of one queue."""

    def __init__(self, retention: Retention, pacing: Pacing) -> None:
        self._retention = retention
        self._pacing = pacing

    def run_once(self, queue: MaintainedQueue) -> None:
        """Delete history that exceeds a limit. Remove the bodies from other history, unless the settings keep them."""
        self.delete_old(queue)
        while not self._retention.bodies and without_bodies(queue.disk, queue.log):
            self._pacing.pause(WORK_S)

    def delete_old(self, queue: MaintainedQueue) -> None:
        """Delete history that exceeds a limit, and all snapshots except the newest."""
        trim(queue.disk, queue.log, self._retention, queue.wall())
