"""The interface through which the engine reports changes to its shell: calls on a typed object, not lists of effects.

The shell is the code around the pure engine: the embedded host, the server or the simulator. The engine makes these
calls while a command runs. The shell reads the results when the command has returned. A journal overrides `moved` to
append a row. The base class stores only the waits that ended, which every shell needs. (Three effects per command cost
1,150 ns as frozen dataclasses, 222 ns as plain objects and 7 ns as calls.)
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from penstock.core.claims import Consumer
from penstock.core.job import Job
from penstock.core.sessions import Session
from penstock.core.stages import Stage
from penstock.core.tube import Tube
from penstock.core.waits import Waiting


@mypyc_attr(allow_interpreted_subclasses=True)
class Outbox:
    """Receives the changes of the engine."""

    ended_waits: list[Waiting]  # Waits that were served or timed out. The shell empties the list.

    def __init__(self) -> None:
        self.ended_waits = []

    def full(self) -> bool:
        """Return whether this turn has produced enough output. The rest of the work is left to the next turn."""
        return False

    def more_moves(self, left: i64, taken: i64, label_bytes: i64) -> i64:
        """Return for how many transitions the log has room, beside the room that the `taken` jobs need to end.

        `left` is what remains of the last answer, and `label_bytes` the mean length of the labels of a job.
        """
        return left

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """Handle a transition. `rule` is the index in states.TRANSITIONS, and the job has its new state already."""

    def tube_made(self, tube: Tube, now: i64) -> None:
        """Handle the creation of a tube."""

    def tube_changed(self, tube: Tube, now: i64) -> None:
        """Handle that a tube was paused, resumed or altered."""

    def tube_dropped(self, tube: Tube, now: i64) -> None:
        """Handle the removal of a tube."""

    def integers_reserved(self, tube: Tube, ceiling: i64, now: i64) -> None:
        """Handle that the tube may assign integers below `ceiling`. After a crash it continues from there."""

    def session_made(self, session: Session, now: i64) -> None:
        """Handle a new session that can outlive its connections, or its new grace time."""

    def consumer_changed(self, consumer: Consumer, now: i64) -> None:
        """Handle progress of a consumer of claims, or its takeover by another client."""

    def stages_changed(self, stages: list[Stage], now: i64) -> None:
        """Handle that stages were created or extended, or that all of them were closed in the same way."""

    def noted(self, key: bytes, value: bytes, now: i64) -> None:
        """Handle a new value of a note. An empty value deletes the note."""

    def body_changed(self) -> None:
        """Handle that the job of the next transition has a new body."""

    def acked_by(self, session: Session, tube: Tube) -> None:
        """Handle that this session causes the next transition."""

    def put_seen(self, job: Job, tube: Tube, dedup: bytes) -> None:
        """Handle that the next job was put with this dedup id."""

    def body_of(self, job: Job) -> bytes:
        """Return the body of a job, from memory or disk."""
        body = job.body
        assert isinstance(body, bytes)
        return body
