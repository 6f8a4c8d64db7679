"""Handover: a job is moved to another node and deleted here after that node has confirmed it.

An at-most-once job has one holder at any time. Protocol:
1. The giver takes the job out of its queue and logs the handover under a number. Then it repeats YOURJOBS until the
   receiver answers.
2. The receiver takes the jobs of each number once. It logs the number together with the jobs and answers TAKENOVER. If
   it cannot take them, it answers NOTTAKEN and logs that as well, and the giver puts the jobs back into their queues.
3. A number is unique within an *incarnation* of the giver, which changes when the giver loses its jobs. YOURJOBS names
   this incarnation, and that of the receiver when the handover began. A receiver that has lost its jobs since then
   ignores YOURJOBS. It may have delivered the jobs before the loss, so the giver deletes at-most-once jobs.

Nodes that leave hand over all their jobs in this way. The giver keeps copies of at-least-once jobs until the receiver
has answered. If no answer comes, the timer of such a copy queues the job again, and the job leaves the handover.
"""

from __future__ import annotations

import binascii
from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Acks
from penstock.cluster.copy_states import FRESH, HANDED_OVER, UNWARNED, move
from penstock.cluster.images import count, image_of, merge_holders, take_in
from penstock.cluster.messages import (
    HOLDERS,
    NOTTAKEN,
    TAKENOVER,
    YOURJOBS,
    HoldersMessage,
    JobImage,
    JobsMessage,
    Receipt,
)
from penstock.cluster.requeue import Requeue
from penstock.cluster.state import ClusterState, backoff_ms, retry_ms
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.copy_commands import bury, delay, end_wait, finish, postpone, put_for, set_aside, take_back, take_out
from penstock.core.deadlines import Timed
from penstock.core.errors import CommandError
from penstock.core.job import WAS_ASIDE, Copy, Draft, Job
from penstock.core.limits import NEVER, check_body
from penstock.core.tube import Tube
from penstock.core.waits import CopyWait

# An unanswered YOURJOBS is sent again after this long, then after twice as long, up to the maximum.
_AGAIN_MS: Final = 500
_AGAIN_MS_MAX: Final = 8_000

# Numbers are reserved in the log in blocks. After a crash, numbering continues behind the reserved block.
_NUMBERS: Final = 1_024

# Messages of an earlier incarnation of a giver may still arrive for this long.
_SERIES_MS: Final = 3_600_000

# After that time, the numbers of this many former members are still kept, because a former member may join again and
# repeat its messages.
_GONE_MAX: Final = 100

# The `due_at` of a buried job, which is not to be queued.
_BURIED: Final = -1

_KEY: Final = b"give "
_KEY_NUMBERS: Final = b"numbers"
_KEY_TOOK: Final = b"took "


class Handover(Timed):
    """One handover. Its deadline is the time at which YOURJOBS is sent again."""

    def __init__(
        self, number: i64, series: bytes, heir: bytes, memory: bytes, jobs: list[Job], due_at: dict[int, int]
    ) -> None:
        super().__init__()
        self.number = number
        self.sender_incarnation = series  # Our incarnation when the number was given.
        self.receiver = heir
        self.receiver_incarnation = memory  # The incarnation of the receiver when the handover began.
        self.jobs = jobs
        # At-least-once jobs that were queued here again. They are no longer handed over. See `_gives_away`.
        self.returned: list[Job] = []
        # When jobs that were not ready are to be queued, by job number. Negative: the job was never ready, because its
        # producer asked for a delay.
        self.due_at = due_at
        self.tries: i64 = 0

    def encode(self) -> bytes:
        jobs = [b"%d:%d" % (job.id, self.due_at.get(job.id, 0)) for job in self.jobs]
        return b" ".join(
            [
                binascii.hexlify(self.sender_incarnation),
                self.receiver,
                binascii.hexlify(self.receiver_incarnation),
                *jobs,
            ]
        )


class AcceptedNumbers:
    """The numbers of the handovers that this node received from one incarnation of a giver."""

    floor: i64  # Handovers with lower numbers are over.
    numbers: dict[int, bool]  # From `floor` on: True if the jobs were accepted, False if they were refused for good.
    used: i64

    def __init__(self, now: i64) -> None:
        self.floor = 0
        self.numbers = {}
        self.used = now

    def raise_floor(self, floor: i64) -> None:
        if floor > self.floor:
            self.floor = floor
            self.numbers = {number: taken for number, taken in self.numbers.items() if number >= floor}

    def encode(self) -> bytes:
        """Return the note for the log. Numbers of refused handovers are negative."""
        numbers = [b"%d" % (number if taken else -number) for number, taken in self.numbers.items()]
        return b" ".join([b"%d" % self.floor, *numbers])


class Handovers:
    """The handovers from this node, and the numbers of the handovers that it received."""

    under_way: dict[int, Handover]  # By number, in ascending order.
    by_job: dict[int, Handover]
    by_receiver: dict[bytes, dict[int, Handover]]  # By receiver and number.
    lost: i64  # Jobs that were deleted because their receiver lost its jobs and may have delivered them.
    accepted: i64  # Handovers that were taken.
    refused: i64  # Handovers that were refused.
    _taken: dict[bytes, AcceptedNumbers]  # By giver and incarnation.
    _waits: dict[int, CopyWait]  # Producers that wait until their job is taken over, by the number of the job.
    _next: i64
    _reserved: i64
    _place: ClusterState
    _acks: Acks
    _requeue: Requeue

    def __init__(self, place: ClusterState, acks: Acks, requeue: Requeue) -> None:
        self.under_way = {}
        self.by_job = {}
        self.by_receiver = {}
        self.lost = 0
        self.accepted = 0
        self.refused = 0
        self._taken = {}
        self._waits = {}
        self._next = 1
        self._reserved = 1
        self._place = place
        self._acks = acks
        self._requeue = requeue

    def restore(self, now: i64) -> None:
        """Load the unfinished handovers from the log after a restart, and send them again."""
        place = self._place
        found: list[Handover] = []
        for key, value in place.engine.notes.items():
            if key == _KEY_NUMBERS:
                self._next = self._reserved = int(value)
            elif key.startswith(_KEY_TOOK):
                taken = AcceptedNumbers(now)
                taken.floor, *numbers = [int(word) for word in value.split(b" ")]
                taken.numbers = {abs(number): number > 0 for number in numbers}
                self._taken[key[len(_KEY_TOOK) :]] = taken
            elif key.startswith(_KEY):
                found.append(self._read(int(key[len(_KEY) :]), value.split(b" ")))
        for handing in sorted(found, key=_number):
            self._track(handing)
            if not handing.jobs:
                self._over(handing, now)
            elif handing.sender_incarnation == place.members.incarnation:
                place.deadlines.set(handing, now + _AGAIN_MS)
            else:
                # The log lost rows, which may have contained the end of this handover.
                self._give_up(handing, now)

    def _read(self, number: i64, words: list[bytes]) -> Handover:
        jobs: list[Job] = []
        due_at: dict[int, int] = {}
        returned: list[Job] = []
        for word in words[3:]:
            id, _, due = word.partition(b":")
            job = self._place.engine.jobs.find(int(id))
            if job is not None and not job.once and (job.state == s.READY or job.state == s.TAKEN):
                returned.append(job)
            elif job is not None:
                jobs.append(job)
                if due != b"0":
                    due_at[job.id] = int(due)
        series, heir, memory = binascii.unhexlify(words[0]), self._place.node(words[1]), binascii.unhexlify(words[2])
        handing = Handover(number, series, heir, memory, jobs, due_at)
        handing.returned = returned
        return handing

    # Giving

    def hand_over(self, jobs: list[Job], heir: bytes, now: i64) -> int:
        """Hand over jobs, none of which is taken, to the node `heir`. Return how many were handed over."""
        place = self._place
        memory = place.members.incarnation_of(heir)
        if not memory:
            # No greeting has confirmed the incarnation of the receiver.
            return 0
        given: list[Job] = []
        due_at: dict[int, int] = {}
        for job in jobs:
            assert job.id not in self.by_job, "a job is in one handover at a time"
            copy = job.copy()
            if copy is None:
                copy = Copy(b"", 1, [place.myself], FRESH if job.state == s.DELAYED else UNWARNED)
                job.ensure_extra().copy = copy
            try:
                place.body_of(job)
            except CommandError:
                # The body cannot be read. The job stays until the operator repairs the disk.
                continue
            given.append(job)
            buried = job.state == s.BURIED
            if buried:
                due_at[job.id] = _BURIED
            elif job.state == s.DELAYED:
                due_at[job.id] = -job.wake if copy.state == FRESH and not job.once else job.wake
            if job.once:
                take_out(place.engine, job, now)
                continue
            merge_holders(place, copy, [heir])
            if not buried:
                move(copy, HANDED_OVER)
                set_aside(place.engine, job, self._back_at(job, abs(due_at.get(job.id, 0)), now), now)
        if given:
            handing = Handover(self._number(now), place.members.incarnation, place.node(heir), memory, given, due_at)
            self._track(handing)
            place.engine.note(_KEY + b"%d" % handing.number, handing.encode(), now)
            self._send(handing, now)
            # A job that was taken out of a delay was ready for a moment, and waiting consumers were woken.
            place.engine.settle(now)
        return len(given)

    def _back_at(self, job: Job, due: i64, now: i64) -> i64:
        """Return the time at which a job is queued here again if the receiver never gets it."""
        return self._requeue.standby_wake(retry_ms(job), max(0, due - now) + retry_ms(job), now)

    def put(self, tube: Tube, draft: Draft, now: i64) -> Job:
        """Add an at-most-once job on a node that keeps no jobs, and hand it over to another node."""
        place = self._place
        heirs = place.targets([place.myself], 1)
        copy = Copy(b"", 1, [place.myself], UNWARNED if draft.delay_ms == 0 else FRESH)
        job = put_for(place.engine, tube, draft, copy, now)
        if heirs:
            self.hand_over([job], heirs[0], now)
        return job

    def wait_for(self, job: Job, wait: CopyWait) -> None:
        """Let `wait`, the waiting put of a producer, end when another node has taken over the job."""
        self._waits[job.id] = wait

    def wait_ended(self, wait: CopyWait, now: i64) -> None:
        """Delete the job of a producer that no longer waits, unless the job was taken over."""
        if self._waits.pop(wait.job.id, None) is not None and wait.job.state != s.GONE:
            self._finish([wait.job], now)

    def gone(self, job: Job, now: i64) -> None:
        """Remove `job` from its handover, and end the wait of its producer.

        The job was taken over or acked, or has expired.
        """
        self._leave_out(job, now)
        wait = self._waits.pop(job.id, None)
        if wait is not None:
            end_wait(self._place.engine, wait, w.SERVED)

    def _leave_out(self, job: Job, now: i64) -> None:
        """Remove a job from its handover. End the handover if it has no more jobs."""
        handing = self.by_job.pop(job.id, None)
        if handing is not None:
            handing.jobs = [other for other in handing.jobs if other is not job]
            if not handing.jobs:
                self._over(handing, now)

    def queued(self, job: Job, now: i64) -> None:
        """Remove `job` from its handover, because it is queued here again. An at-most-once job stays in the handover.

        The job can be delivered here now. A late TAKENOVER must not delete it, because its retry time would be lost.
        """
        handing = self.by_job.get(job.id)
        if handing is not None and not job.once and job in handing.jobs:
            handing.jobs = [other for other in handing.jobs if other is not job]
            handing.returned.append(job)
            if not handing.jobs:
                self._over(handing, now)

    def receive_takenover(self, sender: bytes, number: i64, now: i64) -> None:
        """Process TAKENOVER: the receiver has the jobs of handover `number`. Delete them here."""
        handing = self.under_way.get(number)
        if handing is not None and handing.receiver == sender:
            self.accepted += 1
            self._over(handing, now)
            for job in handing.jobs:
                if not job.once:
                    self._place.moved.add(self._place.id_of(job), now, handing.receiver)
            self._finish(handing.jobs, now)

    def receive_nottaken(self, sender: bytes, number: i64, now: i64) -> None:
        """Process NOTTAKEN: the receiver will never accept the jobs of handover `number`.

        Hand the jobs over to another node, or return them to their queues.
        """
        handing = self.under_way.get(number)
        if handing is None or handing.receiver != sender:
            return
        self.refused += 1
        self._over(handing, now)
        place = self._place
        for job in handing.jobs:
            self._take_back(job, handing.due_at.get(job.id, 0), now)
            if job.id in self._waits:
                heirs = place.targets([place.myself, sender], 1)
                if heirs:
                    self.hand_over([job], heirs[0], now)
        place.engine.settle(now)

    def _take_back(self, job: Job, due: i64, now: i64) -> None:
        """Restore the state that a job had before the handover."""
        engine = self._place.engine
        if job.once:
            if job.state == s.TAKEN:
                take_back(engine, job, due, due == _BURIED, now)
        elif job.state == s.DELAYED:
            if due == 0:
                self._requeue.queue_quietly(job, now)
            elif due < _BURIED:
                self._requeue.delay(job, -due, now)
            elif _was_aside(job):
                postpone(engine, job, due)
            else:
                delay(engine, job, due, now)

    def resend_to(self, heir: bytes, now: i64) -> None:
        """Repeat YOURJOBS for all handovers to `heir`, because its link was down and messages may have been lost."""
        there = self.by_receiver.get(heir)
        if there is not None:
            for handing in there.values():
                self._place.deadlines.set(handing, now)

    def fire(self, handing: Handover, now: i64) -> None:
        """Send a handover again. Give it up if the receiver lost its jobs or is no longer a member."""
        members = self._place.members
        incarnations = (handing.receiver_incarnation, b"")
        if members.is_member(handing.receiver) and members.incarnation_of(handing.receiver) in incarnations:
            self._send(handing, now)
        else:
            self._give_up(handing, now)

    def _give_up(self, handing: Handover, now: i64) -> None:
        """End a handover whose result is unknown.

        Delete at-most-once jobs, because the receiver may have delivered them.
        """
        self._over(handing, now)
        once = [job for job in handing.jobs if job.once]
        self.lost += len(once)
        self._finish(once, now)

    def _track(self, handing: Handover) -> None:
        assert handing.number not in self.under_way, "a handover number is used once"
        self.under_way[handing.number] = handing
        self.by_receiver.setdefault(handing.receiver, {})[handing.number] = handing
        for job in handing.jobs + handing.returned:
            self.by_job[job.id] = handing

    def _over(self, handing: Handover, now: i64) -> None:
        if self.under_way.pop(handing.number, None) is None:
            return
        there = self.by_receiver[handing.receiver]
        del there[handing.number]
        if not there:
            del self.by_receiver[handing.receiver]
        for job in handing.jobs + handing.returned:
            self.by_job.pop(job.id, None)
        self._place.deadlines.clear(handing)
        self._place.engine.note(_KEY + b"%d" % handing.number, b"", now)

    def _finish(self, jobs: list[Job], now: i64) -> None:
        self._place.begin_remote_change()
        for job in jobs:
            if job.state != s.GONE:
                finish(self._place.engine, job, s.DELETED, now)
        self._place.end_remote_change()

    def _send(self, handing: Handover, now: i64) -> None:
        place = self._place
        images: list[JobImage] = []
        unreadable: list[Job] = []
        for job in handing.jobs:
            try:
                image = image_of(place, job, now)
            except CommandError:
                unreadable.append(job)
                continue
            image.holders = [node for node in image.holders if node != place.myself]
            due = handing.due_at.get(job.id, 0)
            image.delay_ms = max(0, abs(due) - now)
            image.state = s.BURIED if due == _BURIED else s.DELAYED if due < _BURIED else s.READY
            if job.once:
                # Taking the job out of its queue counted as a delivery.
                image.deliveries -= 1
            images.append(image)
        for job in unreadable:
            self._leave_unreadable(job, now)
        if not images:
            # The handover ended with its last job.
            return
        message = JobsMessage(YOURJOBS, images)
        message.number = handing.number
        # Only handovers to this receiver count. Otherwise it would have to keep its numbers until other nodes answer.
        message.floor = next(iter(self.by_receiver[handing.receiver]))
        message.sender_incarnation = handing.sender_incarnation
        message.receiver_incarnation = handing.receiver_incarnation
        place.outbox.send(handing.receiver, message)
        handing.tries += 1
        again_ms = backoff_ms(_AGAIN_MS, handing.tries - 1, _AGAIN_MS_MAX)
        place.deadlines.set(handing, now + again_ms + place.jitter())

    def _leave_unreadable(self, job: Job, now: i64) -> None:
        """Remove a job from its handover, because its body cannot be read from disk.

        Delete an at-most-once job, because the receiver may have it already.
        """
        if job.once:
            self.lost += 1
            self._finish([job], now)
        else:
            # The job stays until the operator repairs the disk.
            self._leave_out(job, now)

    def _number(self, now: i64) -> i64:
        if self._next == self._reserved:
            self._reserved += _NUMBERS
            self._place.engine.note(_KEY_NUMBERS, b"%d" % self._reserved, now)
        assert self._next < self._reserved, "the log reserves a handover number before it is used"
        number = self._next
        self._next += 1
        return number

    # Taking

    def receive(self, sender: bytes, message: JobsMessage, now: i64) -> bool:
        """Process YOURJOBS: accept the jobs of each handover once, and answer. Return whether jobs were accepted."""
        place = self._place
        if message.receiver_incarnation != place.members.incarnation:
            return False
        key = sender + b" " + binascii.hexlify(message.sender_incarnation)
        taken = self._taken.get(key)
        if taken is None:
            taken = AcceptedNumbers(now)
            self._forget_series(sender, now)
            self._taken[key] = taken
        taken.used = now
        taken.raise_floor(message.floor)
        if message.number < taken.floor:
            return False
        new = message.number not in taken.numbers
        if new:
            taken.numbers[message.number] = self._take_all(sender, message.jobs, now)
            place.engine.note(_KEY_TOOK + key, taken.encode(), now)
        accepted = taken.numbers[message.number]
        place.outbox.send(sender, Receipt(TAKENOVER if accepted else NOTTAKEN, message.number))
        return new and accepted

    def _forget_series(self, giver: bytes, now: i64) -> None:
        """Drop the handover numbers of earlier incarnations of `giver`.

        Also drop the numbers of nodes that have left the cluster, if there are too many of them.
        """
        is_member = self._place.members.is_member
        old = [key for key, taken in self._taken.items() if now - taken.used > _SERIES_MS]
        gone = sorted([key for key in old if not is_member(_giver_of(key))], key=self._used)
        for key in gone[: max(0, len(gone) - _GONE_MAX)] + [key for key in old if _giver_of(key) == giver]:
            self._forget_taken(key, now)

    def _used(self, key: bytes) -> int:
        return self._taken[key].used

    def _forget_taken(self, key: bytes, now: i64) -> None:
        del self._taken[key]
        self._place.engine.note(_KEY_TOOK + key, b"", now)

    def reset(self, now: i64) -> None:
        """Drop the numbers of all received handovers.

        This node has a new incarnation, and therefore refuses handovers that name its earlier incarnation.
        """
        for key in list(self._taken):
            self._forget_taken(key, now)

    def _take_all(self, sender: bytes, images: list[JobImage], now: i64) -> bool:
        """Add all jobs of a handover to their queues, or none. Return whether they were added."""
        place = self._place
        if place.members.leaving or place.is_short_of_memory():
            return False
        tubes: list[Tube] = []
        body_bytes = 0
        for image in images:
            tube = place.shared_tube(image.queue, now)
            if tube is None or tube.paused_in or self._gives_away(image, now):
                return False
            tubes.append(tube)
            body_bytes += len(image.body) + len(image.headers)
        try:
            for image in images:
                check_body(len(image.body), place.engine.body_bytes_max)
            place.engine.check_room(len(images), body_bytes)
        except CommandError:
            return False
        for at in range(len(images)):
            self._take(sender, images[at], tubes[at], now)
        place.engine.settle(now)
        return True

    def _gives_away(self, image: JobImage, now: i64) -> bool:
        """Return whether the job is in a handover of this node that has not ended.

        If two nodes handed a job over to each other, both would delete it. Jobs that were queued here again count as
        well: the log still lists them in the handover, so they can be handed over after a restart.
        """
        job = self._place.find(image.id, now)
        return job is not None and image.retry_ms != 0 and job.id in self.by_job

    def _take(self, sender: bytes, image: JobImage, tube: Tube, now: i64) -> None:
        place = self._place
        if place.lives_here_alone(image.id, now):
            # The job was moved to a tube of this node. The giver deletes its copy when it gets TAKENOVER.
            return
        job = place.find(image.id, now)
        wake = NEVER if image.delay_ms == 0 else now + image.delay_ms
        buried = image.state == s.BURIED
        if image.retry_ms == 0:
            if job is not None:
                if job.id not in self.by_job:
                    # Another instance of this at-most-once job is here already. Only one may be delivered.
                    return
                # The job was handed to the node that now gives it back, and the receipt was lost.
                self._finish([job], now)
            take_in(place, image, tube, wake, UNWARNED, now, buried)
        elif not self._acks.reject_if_acked(sender, image.id, now, image.queue):
            if job is None:
                take_in(place, image, tube, wake, FRESH if image.state == s.DELAYED else UNWARNED, now, buried)
            else:
                self.import_known(job, image, now)
            # The giver deletes its copy, and no other holder knows of this one yet.
            place.send_all(image.holders, HoldersMessage(HOLDERS, image.id, 0, []))

    def import_known(self, job: Job, image: JobImage, now: i64) -> None:
        """Update this node's copy of a job that another node handed over.

        A delayed copy gets the state that the job had on the other node: ready, delayed or buried.
        """
        copy = job.copy()
        if copy is not None:
            merge_holders(self._place, copy, image.holders)
        count(job, image.nacks, image.returns)
        if job.state != s.DELAYED:
            return
        if image.state == s.BURIED:
            bury(self._place.engine, job, image.reason, now)
        elif image.delay_ms == 0:
            self._requeue.queue_quietly(job, now)
        elif image.state == s.DELAYED:
            self._requeue.delay(job, now + image.delay_ms, now)


def _was_aside(job: Job) -> bool:
    """Return whether a job in a handover already waited here for another node before the handover."""
    copy = job.copy()
    return copy is not None and copy.aside & WAS_ASIDE != 0


def _giver_of(key: bytes) -> bytes:
    """Return the node id of the giver, which is the first word of a key of the dict `_taken`."""
    return key.partition(b" ")[0]


def _number(handing: Handover) -> int:
    return handing.number
