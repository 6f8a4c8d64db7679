"""Sessions: the owners of taken jobs.

Several connections (`waits.py`) can share a session. When the last one closes, the grace time of the session starts.
During that time, a connection that presents the session's token takes over the session and its jobs. When the grace
time ends, the jobs are given back to their tubes.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from penstock.core.deadlines import NOWHERE, Timed
from penstock.core.job import Job
from penstock.core.limits import UNSET
from penstock.core.tasks.signals import Signals


class Session(Timed):
    """An owner of taken jobs. Its deadline is the end of its grace time."""

    number: i64  # Never reused on this node. The log identifies sessions by it.
    slot: i32  # Index by which jobs refer to their session.
    token: bytes  # Secret of 16 random bytes that allows a connection to join.
    grace_ms: i64  # Time that the session stays alive after its last connection closed; UNSET: the engine's default.
    connections: dict[int, object]  # Connections (waits.py) of the session by number.
    held: list[Job]  # Taken jobs in no particular order. job.held_pos is the index.
    name: bytes  # Name of the client, for the history; empty if it has none.
    user: bytes  # User of the client, for the history; empty if it has not logged in.
    signals: Signals | None  # Signals about its jobs; None if it never had or asked for any.
    named_in_segment: i64  # Newest log segment that contains the present name and user.

    def __init__(self, number: i64, slot: i32, token: bytes, grace_ms: i64 = UNSET) -> None:
        super().__init__()
        self.number = number
        self.slot = slot
        self.token = token
        self.grace_ms = grace_ms
        self.connections = {}
        self.held = []
        self.name = b""
        self.user = b""
        self.signals = None
        self.named_in_segment = -1

    def open_signals(self) -> Signals:
        """Return the signals of the session. Create them if necessary."""
        signals = self.signals
        if signals is None:
            signals = Signals()
            self.signals = signals
        return signals

    def set_client(self, name: bytes, user: bytes) -> None:
        """Set the name and the user of the client, unless they are empty.

        The log writes them with the next event that the session causes.
        """
        name = name or self.name
        user = user or self.user
        if name != self.name or user != self.user:
            self.name = name
            self.user = user
            self.named_in_segment = -1

    def hold(self, job: Job) -> None:
        job.holder = self.slot
        job.held_pos = len(self.held)
        self.held.append(job)

    def let_go(self, job: Job) -> None:
        held = self.held
        pos = job.held_pos
        last = held.pop()
        if last is not job:
            held[pos] = last
            last.held_pos = pos
        job.held_pos = NOWHERE
