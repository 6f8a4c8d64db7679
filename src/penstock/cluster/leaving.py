"""Leaving: a node that leaves hands over all its jobs until it has none.

- Taken jobs stay until they are acked or return to their queue. Jobs that return are handed over.
- Buried jobs are handed over and stay buried.
- At-most-once jobs that were delivered are deleted, because they cannot be delivered again.
- Jobs that are done are deleted, here and on their other holders.
- An ack is dropped when another node has recorded it.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Ack, Acks
from penstock.cluster.handover import Handovers
from penstock.cluster.state import ClusterState
from penstock.core import states as s
from penstock.core.copy_commands import finish, is_shared
from penstock.core.deadlines import Timed
from penstock.core.job import Job

# Limit the jobs that are examined in a turn, the jobs in handovers, and the bytes of bodies in a turn.
_SLICE_JOBS: Final = 256
_UNDER_WAY_MAX: Final = 2_000
_SLICE_BYTES: Final = 1024 * 1024

# The pauses between turns, and before the next scan of all jobs. If receivers refuse jobs, because they have no room or
# the queue is paused, the pause doubles up to the maximum.
_PAUSE_MS: Final = 50
_PAUSE_MS_MAX: Final = 2_000
_AGAIN_MS: Final = 500

# At-most-once jobs that were delivered are deleted after this time. Until then the reply may not have been sent, and
# the job would return.
_DELIVERED_MS: Final = 10_000


class Leaving(Timed):
    """Empties a node that leaves. Its deadline is the time at which the next jobs are handed over."""

    def __init__(self, place: ClusterState, acks: Acks, handovers: Handovers) -> None:
        super().__init__()
        self._place = place
        self._acks = acks
        self._handovers = handovers
        self._next: i64 = 0  # The number of the next job to examine.
        self._delivered: dict[int, i64] = {}  # Delivered at-most-once jobs by number, and when each was found.
        self._pause_ms: i64 = _PAUSE_MS  # The pause before more jobs are handed over.
        self._accepted: i64 = 0  # The counters of taken and refused handovers at the last turn.
        self._refused: i64 = 0

    def start(self, now: i64) -> None:
        self._next = 0
        self._delivered = {}
        self._pause_ms = _PAUSE_MS
        # Clients that take jobs here and do not know yet that the node leaves are served first.
        self._place.deadlines.set(self, now + _AGAIN_MS)

    def stop(self) -> None:
        """Stop leaving. Handovers that have begun continue."""
        self._place.deadlines.clear(self)

    def fire(self, now: i64) -> None:
        place = self._place
        self._let_acks_go(now)
        if len(self._handovers.by_job) >= _UNDER_WAY_MAX or not place.targets([place.myself], 1):
            place.deadlines.set(self, now + _PAUSE_MS)
            return
        jobs = place.engine.jobs.scan(self._next, _SLICE_JOBS)
        bundles: dict[bytes, list[Job]] = {}
        body_bytes: i64 = 0
        for job in jobs:
            self._next = job.id + 1
            if job.id in self._handovers.by_job or not is_shared(place.engine.tube_of(job)):
                continue
            if job.state == s.READY or job.state == s.DELAYED or job.state == s.BURIED:
                copy = job.copy()
                heirs = place.targets(copy.holders, 1) if copy is not None else []
                heir = (heirs or place.targets([place.myself], 1))[0]
                bundles.setdefault(heir, []).append(job)
                body_bytes += job.body_length()
            elif job.state == s.TAKEN and job.once:
                if now - self._delivered.setdefault(job.id, now) >= _DELIVERED_MS:
                    del self._delivered[job.id]
                    finish(place.engine, job, s.DELETED, now)
            elif job.state == s.DONE or job.state == s.ZOMBIE:
                self._let_go(job, now)
            if body_bytes > _SLICE_BYTES:
                break
        for heir, bundle in bundles.items():
            self._handovers.hand_over(bundle, heir, now)
        if not jobs:
            self._next = 0
            there = place.engine.jobs
            self._delivered = {job: since for job, since in self._delivered.items() if there.find(job) is not None}
        self._adjust_pause()
        place.deadlines.set(self, now + (self._pause_ms if jobs else _AGAIN_MS))

    def _adjust_pause(self) -> None:
        """Set the pause between handovers. Double it while all handovers are refused."""
        handovers = self._handovers
        if handovers.accepted != self._accepted:
            self._pause_ms = _PAUSE_MS
        elif handovers.refused != self._refused:
            self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)
        self._accepted = handovers.accepted
        self._refused = handovers.refused

    def _let_go(self, job: Job, now: i64) -> None:
        """Delete a job that is done, here and on its other holders."""
        id = self._place.id_of(job)
        copy = job.copy()
        finish(self._place.engine, job, s.DELETED, now)
        if copy is not None and not job.once:
            self._acks.begin(id, copy.holders, job.expiry, now)

    def _let_acks_go(self, now: i64) -> None:
        """Drop the acks that another node has recorded, and the acks of jobs that this node never had."""
        known: list[Ack] = []
        for ack in islice(self._acks.by_id.values(), _SLICE_JOBS):
            if ack.is_dummy() or True in ack.confirmed.values():
                known.append(ack)
        for ack in known:
            self._acks.forget(ack.id, now)
