"""The interface between the engine and the code that keeps the copies of jobs on several nodes consistent.

The engine knows that a job may be one of several copies (`job.Copy`), and nothing else about other nodes. The cluster
implements this interface. Without a cluster, the engine only checks a field for None.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.job import Job
from penstock.core.tube import Tube
from penstock.core.waits import PeerWait

# Key of the note with the incarnation of this node's log. Other nodes rely on promises made under an incarnation, so an
# open that may have lost rows deletes the note.
INCARNATION_NOTE: Final = b"memory"


class ReplicationHooks:
    """Callbacks of the engine for replication.

    They are called in the middle of a transition. They may record and send, but must not change a job's state.
    """

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """Called for each transition of a job with copies, before it is logged. `job.wake` may still be changed."""

    def delays_requeue(self, job: Job, tube: Tube, now: i64) -> bool:
        """Return whether a job with copies that is about to become ready has to wait longer."""
        return False

    def tube_made(self, tube: Tube) -> None:
        """Called when a tube was created."""

    def tube_dropped(self, tube: Tube) -> None:
        """Called when a tube was removed."""

    def tube_paused(self, tube: Tube) -> None:
        """Called when a tube was paused or resumed."""

    def job_ready(self, tube: Tube) -> None:
        """Called when a job is ready in a tube from which other nodes want jobs."""

    def wait_ended(self, wait: PeerWait) -> None:
        """Called when a wait for other nodes was served, timed out or cancelled."""
