"""What the engine tells the shell: calls on a typed object, not lists of effects.

The engine calls these while a command runs; the shell reads the result when the command has returned. A journal
overrides `moved` to append a row, a subscriber to be told; the base class keeps only what every shell needs, the waits
that ended. (Three effects a command cost 1,150 ns as frozen dataclasses, 222 as plain objects, 7 as calls.)
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
    """The shell's side of the engine."""

    ended_waits: list[Waiting]  # Those who were served, or whose time was over; the shell empties it.

    def __init__(self) -> None:
        self.ended_waits = []

    def full(self) -> bool:
        """Whether a turn has told enough: what can wait is left to the next one."""
        return False

    def more_moves(self, left: i64, taken: i64, label_bytes: i64) -> i64:
        """How many moves there is room for where so many are left, jobs are taken, and names and keys are so long."""
        return left

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """A job changed: the rule of states.py says from what to what, the job is what it is now."""

    def tube_made(self, tube: Tube, now: i64) -> None:
        """A tube came into being."""

    def tube_changed(self, tube: Tube, now: i64) -> None:
        """A tube was paused or resumed, or its policy changed."""

    def tube_dropped(self, tube: Tube, now: i64) -> None:
        """A tube is gone."""

    def integers_reserved(self, tube: Tube, ceiling: i64, now: i64) -> None:
        """The tube may give out integers below this one; after a crash it goes on from here."""

    def session_made(self, session: Session, now: i64) -> None:
        """A session began that may outlive its connections, or got another grace time."""

    def consumer_changed(self, consumer: Consumer, now: i64) -> None:
        """A consumer of claims got further, or was taken over."""

    def stages_changed(self, stages: list[Stage], now: i64) -> None:
        """Stages were made or got more time, or all of them are over in the same way."""

    def noted(self, key: bytes, value: bytes, now: i64) -> None:
        """Something is to be remembered under a key; an empty value ends that."""

    def body_changed(self) -> None:
        """The job that moves next has another body than before."""

    def acked_by(self, session: Session, tube: Tube) -> None:
        """The job that moves next does so by the word of this session."""

    def put_seen(self, job: Job, tube: Tube, dedup: bytes) -> None:
        """The job that enters next was put under this dedup id."""

    def body_of(self, job: Job) -> bytes:
        """The body of a job, wherever it lives."""
        body = job.body
        assert isinstance(body, bytes)
        return body
