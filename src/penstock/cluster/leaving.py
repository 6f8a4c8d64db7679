"""A node that leaves gives all it has to others: whether anybody asks for it or not, until it has nothing.

What is taken is waited for: it is acknowledged, or comes back and goes then. What is buried goes, and stays so. What
was delivered once, and may not be again, is of no use to anybody and goes; so is what was switched to done, and whoever
has a copy hears so. Acknowledgements go when somebody else has them.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Ack, Acks
from penstock.cluster.handover import Handovers
from penstock.cluster.place import Place
from penstock.core import states as s
from penstock.core.copying import finish, is_shared
from penstock.core.deadlines import Timed
from penstock.core.job import Job

# How many jobs are looked at in a turn, and how many may be on their way.
_SLICE_JOBS: Final = 256
_UNDER_WAY_MAX: Final = 2_000
_SLICE_BYTES: Final = 1024 * 1024

# How long to wait where there is nothing to do but wait, and before all is looked at again. Where nobody takes what is
# given, for want of room or because its queue is paused, twice as long each time, up to so long.
_PAUSE_MS: Final = 50
_PAUSE_MS_MAX: Final = 2_000
_AGAIN_MS: Final = 500

# What was delivered once goes after so long: until then the answer may not have been written, and it would come back.
_DELIVERED_MS: Final = 10_000


class Leaving(Timed):
    """The emptying of a node. Its deadline is when to go on."""

    _place: Place
    _acks: Acks
    _handovers: Handovers
    _next: i64  # The number of the job to go on with.
    _delivered: dict[int, i64]  # Jobs that were delivered once, by number: since when that is known.
    _pause_ms: i64  # How long to wait before more is given away.
    _accepted: i64  # What others have taken, and have not, when it was last looked at.
    _refused: i64

    def __init__(self, place: Place, acks: Acks, handovers: Handovers) -> None:
        super().__init__()
        self._place = place
        self._acks = acks
        self._handovers = handovers
        self._next = 0
        self._delivered = {}
        self._pause_ms = _PAUSE_MS
        self._accepted = 0
        self._refused = 0

    def start(self, now: i64) -> None:
        """Begin, or go on."""
        self._next = 0
        self._delivered = {}
        self._pause_ms = _PAUSE_MS
        # Whoever takes here, and has not heard of it yet, gets what there is.
        self._place.deadlines.set(self, now + _AGAIN_MS)

    def stop(self) -> None:
        """Stay after all. What is under way goes all the same."""
        self._place.deadlines.clear(self)

    def fire(self, now: i64) -> None:
        """Give away what comes next."""
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
            self._handovers.give(bundle, heir, now)
        if not jobs:
            self._next = 0
            there = place.engine.jobs
            self._delivered = {job: since for job, since in self._delivered.items() if there.find(job) is not None}
        self._look_who_takes()
        place.deadlines.set(self, now + (self._pause_ms if jobs else _AGAIN_MS))

    def _look_who_takes(self) -> None:
        """Go on slowly while all that was given away comes back."""
        handovers = self._handovers
        if handovers.accepted != self._accepted:
            self._pause_ms = _PAUSE_MS
        elif handovers.refused != self._refused:
            self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)
        self._accepted = handovers.accepted
        self._refused = handovers.refused

    def _let_go(self, job: Job, now: i64) -> None:
        """Let a job be gone that is done, everywhere."""
        id = self._place.id_of(job)
        copy = job.copy()
        finish(self._place.engine, job, s.DELETED, now)
        if copy is not None and not job.once:
            self._acks.begin(id, copy.holders, job.expiry, now)

    def _let_acks_go(self, now: i64) -> None:
        """Let acknowledgements go that others have, too, or that nobody could be asked about."""
        known: list[Ack] = []
        for ack in islice(self._acks.by_id.values(), _SLICE_JOBS):
            if ack.is_dummy() or True in ack.confirmed.values():
                known.append(ack)
        for ack in known:
            self._acks.forget(ack.id, now)
