"""The interfaces through which the engine reports changes to its shell: calls on a typed object, not lists of effects.

The shell is the code around the pure engine: the embedded host, the server or the simulator. The engine makes these
calls while a command runs. The shell reads the results when the command has returned. A journal overrides `moved` to
append a row. The base class stores only the waits that ended, which every shell needs. (Three effects per command cost
1,150 ns as frozen dataclasses, 222 ns as plain objects and 7 ns as calls.)

`ReplicationHooks` is a second receiver, which the cluster implements to keep the copies of jobs on several nodes
consistent. The engine knows that a job may be one of several copies (`job.Copy`), and nothing else about other nodes.
Without a cluster, the engine only checks a field for None.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core.batches import Consumer, Stage
from penstock.core.job import Job
from penstock.core.sessions import Session
from penstock.core.tube import Tube
from penstock.core.waits import PeerWait, Waiting

# Key of the note with the incarnation of this node's log. Other nodes rely on promises made under an incarnation, so an
# open that may have lost rows deletes the note.
INCARNATION_NOTE: Final = b"memory"


@mypyc_attr(allow_interpreted_subclasses=True)
class Outbox:
    """The receiver of the engine's changes."""

    ended_waits: list[Waiting]  # Waits that were served or timed out. The shell empties the list.
    # The session whose command causes the next transitions. None if a timer, another node or the node itself does.
    actor: Session | None

    def __init__(self) -> None:
        self.ended_waits = []
        self.actor = None

    def full(self) -> bool:
        """Return whether this turn has produced so much output that further work is left to the next turn."""
        return False

    def more_moves(self, left: i64, taken: i64, label_bytes: i64) -> i64:
        """Return how many more transitions the log has space for. The space to end `taken` taken jobs is reserved.

        `left` is how many of the transitions that the last call returned are still unused. `label_bytes` is the total
        length of the labels of the taken jobs: their keys, names and unique values.
        """
        return left

    def moved(self, job: Job, tube: Tube, rule: i64, since: i64, holder: i64, now: i64) -> None:
        """Called after each transition.

        `rule` is the index in states.TRANSITIONS, and the job has its new state already. `since` is the time at which
        the job entered its previous state. `holder` is the number of the session that held the job before, or 0.
        """

    def gave_up(self, job: Job) -> None:
        """Called after the transition MOVED_OUT if the retry policy of the job moves it after its last failure."""

    def tube_made(self, tube: Tube, now: i64) -> None:
        """Called when a tube was created."""

    def tube_changed(self, tube: Tube, now: i64) -> None:
        """Called when a tube was paused, resumed or altered."""

    def tube_dropped(self, tube: Tube, now: i64) -> None:
        """Called when a tube was removed."""

    def integers_reserved(self, tube: Tube, ceiling: i64, now: i64) -> None:
        """Called when a tube reserved the integer ids below `ceiling`. After a crash, the tube continues there."""

    def session_made(self, session: Session, now: i64) -> None:
        """Called when a session that can outlive its connections was created, or got another grace time."""

    def consumer_changed(self, consumer: Consumer, now: i64) -> None:
        """Called when a consumer of claims made progress, or was taken over by another client."""

    def stages_changed(self, stages: list[Stage], now: i64) -> None:
        """Called when these stages were created or extended, or were published or discarded together."""

    def noted(self, key: bytes, value: bytes, now: i64) -> None:
        """Called when a note got a new value. An empty value deletes the note."""

    def body_changed(self) -> None:
        """Called before a transition if the job has a new body."""

    def put_seen(self, job: Job, tube: Tube, dedup: bytes) -> None:
        """Called before the transition of a job that was put with this dedup id."""

    def body_of(self, job: Job) -> bytes:
        """Return the body of a job, from memory or disk."""
        body = job.body
        assert isinstance(body, bytes)
        return body


class ReplicationHooks:
    """Callbacks of the engine for replication.

    They are called in the middle of a transition. They may record facts and send messages, but must not change a job's
    state.
    """

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """Called for each transition of a job with copies, before it is logged. The hook can change `job.wake`."""

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
