"""Whoever keeps the copies of jobs on several nodes in step: what the engine tells it, and asks it.

The engine knows that a job may be one of several copies (`job.Copy`), and nothing else about other nodes. The cluster
is one of these; an engine without any pays one look at a field that is None.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.job import Job
from penstock.core.tube import Tube
from penstock.core.waits import ElsewhereWait

# The note under which a log says which memory of jobs it is: others count on what was promised under that name. An open
# that may lack rows forgets it.
MEMORY_NOTE: Final = b"memory"


class CopyKeeper:
    """The engine's side of a cluster. It is told in the middle of things: it notes and says, and moves no job."""

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """A job with copies changed, and the log is not told yet: when it is to wake may still be set."""

    def holds_back(self, job: Job, tube: Tube, now: i64) -> bool:
        """Whether a job with copies that would go back to its queue now has to wait a little more."""
        return False

    def tube_made(self, tube: Tube) -> None:
        """A tube came into being."""

    def tube_dropped(self, tube: Tube) -> None:
        """A tube is gone."""

    def tube_paused(self, tube: Tube) -> None:
        """A tube was paused, or goes on."""

    def can_be_had(self, tube: Tube) -> None:
        """A job of a tube that other nodes want is ready."""

    def wait_ended(self, wait: ElsewhereWait) -> None:
        """Somebody who waited for other nodes was served, waits no more, or is gone."""
