"""Who holds what.

A session owns the jobs it has taken. Connections (`waits.py`) come and go; several may share a session. When the last
one leaves, its session gets its grace time, in which a connection that names the session's token takes it over with all
it holds. After that the jobs go back to their tubes.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from penstock.core.deadlines import NOWHERE, Timed
from penstock.core.job import Job
from penstock.core.limits import UNSET


class Session(Timed):
    """One owner of taken jobs. Its deadline is the end of its grace time."""

    number: i64  # Unique for ever on this node: the log names sessions by it.
    slot: i32  # How its jobs refer to it.
    token: bytes  # Whoever knows it may join: 16 unguessable bytes.
    grace_ms: i64  # How long it outlives its last connection; UNSET: as long as the engine says.
    connections: dict[int, object]  # Those of waits.py that act for it, by their numbers.
    held: list[Job]  # In no order that matters; job.held_pos is the index.

    def __init__(self, number: i64, slot: i32, token: bytes, grace_ms: i64 = UNSET) -> None:
        super().__init__()
        self.number = number
        self.slot = slot
        self.token = token
        self.grace_ms = grace_ms
        self.connections = {}
        self.held = []

    def hold(self, job: Job) -> None:
        """Become the owner of a job."""
        job.holder = self.slot
        job.held_pos = len(self.held)
        self.held.append(job)

    def let_go(self, job: Job) -> None:
        """Own a job no longer."""
        held = self.held
        pos = job.held_pos
        last = held.pop()
        if last is not job:
            held[pos] = last
            last.held_pos = pos
        job.held_pos = NOWHERE
