"""When a job is queued again, and by which of its holders: so that one does it, and the others know.

A holder that is about to queue a copy says so half a second ahead (WILLQUEUE). Who has it queued, handed out or buried,
or knows that it is done, objects; if nobody does, it is queued, and all holders hear so (QUEUED): their timers begin
anew. If two are about to queue it, or have done so, the one does or keeps it whose id, mixed with that of the job, is
the greater. A delivery is told, too (WORKING), so the time to retry counts from the delivery on every node.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Acks
from penstock.cluster.images import count, merge_holders
from penstock.cluster.messages import (
    ASKED_FOR,
    DELJOB,
    HOLDERS,
    MOVED_AWAY,
    QUEUED,
    STILL,
    TIME_OVER,
    WILLQUEUE,
    WORKING,
    OfCopy,
    OfHolders,
    OfJob,
)
from penstock.cluster.place import Place, fingerprint, has_others, retry_ms
from penstock.core import states as s
from penstock.core.copying import postpone, queue, set_aside
from penstock.core.job import Copy, Job
from penstock.core.limits import DURATION_MS_MAX, NEVER

# How long before it queues a job again a node says so.
WARNING_MS: Final = 500

# How much longer than whoever handed a job out the other holders wait for it to come back: so long, which with jitter
# is until its time is over, and a part of the time to retry. A delivery that comes within that part of when their time
# began need not be told: they wait long enough.
MARGIN_MS: Final = 750
_SLACK: Final = 8

# Who has a job in one of these states does not want it queued by anybody.
_OUT: Final = bytes([s.TAKEN, s.BURIED, s.DONE, s.ZOMBIE])

# What makes a job ready, and is news: somebody asked for it.
_ASKED: Final = bytes(
    [
        s.NACKED,
        s.RELEASED,
        s.REQUEUED,
        s.SNATCHED,
        s.KICKED,
        s.RESTARTED,
        s.SWITCHED_READY,
        s.CLAIM_ENDED,
        s.DISCONNECTED,
    ]
)


class Requeue:
    """How holders of a job agree on who queues it."""

    _place: Place
    _acks: Acks

    def __init__(self, place: Place, acks: Acks) -> None:
        self._place = place
        self._acks = acks

    # What happens here

    def delivered(self, job: Job, copy: Copy, now: i64) -> None:
        """A copy was handed out, or whoever has it asked for more time: the time of all holders begins anew.

        We warn the others before ours is over.
        """
        # Until it is armed, it is to wake when its time is over.
        copy.warned = True
        if has_others(copy) and not job.once:
            if now - copy.told > retry_ms(job) // _SLACK:
                self._say_working(job, copy, copy.holders, now)
                copy.told = now
            if job.wake != NEVER:
                postpone(self._place.engine, job, job.wake - warning_ms(job))
                copy.warned = False

    def was_given(self, job: Job, now: i64) -> None:
        """A job came to be queued here: the time of whoever gave it began just now."""
        copy = job.copy()
        if copy is not None and len(copy.holders) == 2:
            copy.told = now

    def queued(self, job: Job, copy: Copy, event: i64, now: i64) -> None:
        """A copy is ready to be had. The others hear so unless it never was before, anywhere."""
        copy.warned = False
        announces = copy.announces
        if not announces:
            copy.announces = True
            copy.logged = False
        if self._place.quiet or not has_others(copy) or job.once:
            return
        time_over = event == s.TTR_PASSED or event == s.DELAY_PASSED
        if announces and time_over:
            if event == s.DELAY_PASSED:
                # Here it only waited; so it was not counted yet.
                job.returns += 1
            self._say(QUEUED, job, copy.holders, TIME_OVER)
            copy.told = now
        elif event in _ASKED:
            self._say(QUEUED, job, copy.holders, ASKED_FOR)
            copy.told = now

    def postponed(self, job: Job, now: i64) -> None:
        """A client said that it works on a job, and it is not this node that handed it out."""
        copy = job.copy()
        if copy is not None and has_others(copy):
            copy.warned = False
            self._say_working(job, copy, copy.holders, now)

    def leave_to_others(self, job: Job, now: i64) -> bool:
        """Let another holder have a job that is of no use here, if there is one: its time is over before ours."""
        copy = job.copy()
        if copy is None or not has_others(copy) or job.once:
            return False
        self._stand_back(job, copy, 2 * retry_ms(job), now)
        return True

    def holds_back(self, job: Job, copy: Copy, now: i64) -> bool:
        """Warn the other holders, and wait whether one objects."""
        if not is_armed(job, copy):
            return False
        copy.warned = True
        self._warn(job, copy, copy.holders)
        postpone(self._place.engine, job, now + warning_ms(job))
        return True

    def _warn(self, job: Job, copy: Copy, nodes: list[bytes]) -> None:
        self._place.send_all(nodes, OfJob(WILLQUEUE, self._place.id_of(job), fingerprint(copy.holders)))

    # What others say

    def receive_willqueue(self, sender: bytes, message: OfJob, now: i64) -> None:
        """A holder is about to queue its copy."""
        place = self._place
        id = message.id
        if self._acks.object_to(sender, id, now):
            return
        job = place.find(id, now)
        if job is None:
            heir = place.heirs.heir_of(id)
            if place.lives_here_alone(id, now):
                # The sender has not heard that it was moved.
                place.mail.send(sender, OfJob(DELJOB, id, MOVED_AWAY))
            elif heir is not None:
                place.mail.send(sender, OfHolders(HOLDERS, id, 0, [heir]))
            return
        copy = self._copy_of(job, sender)
        if job.state == s.READY:
            self._say(QUEUED, job, [sender], STILL)
        elif keeps_it_out(job):
            self._say_working(job, copy, [sender], now)
        else:
            if message.aux != fingerprint(copy.holders):
                # One whom the sender does not know of may have it queued.
                place.mail.send(sender, OfHolders(HOLDERS, id, 0, place.to_name(copy.holders)))
            if job.state == s.DELAYED and copy.warned and wins(sender, place.myself, id):
                # We are about to, too; it could be handed out by both before either hears of the other.
                self._stand_back(job, copy, warning_ms(job), now)

    def receive_holders(self, sender: bytes, message: OfHolders, now: i64) -> None:
        """A holder tells of others."""
        if self._acks.receive_holders(sender, message, now):
            return
        job = self._place.find(message.id, now)
        if job is None:
            return
        copy = self._copy_of(job, sender)
        more = [node for node in message.holders if node not in copy.holders]
        merge_holders(self._place, copy, more)
        if copy.warned and (job.state == s.DELAYED or job.state == s.TAKEN):
            self._warn(job, copy, more)

    def receive_queued(self, sender: bytes, message: OfCopy, now: i64) -> None:
        """A holder has queued its copy."""
        place = self._place
        if self._acks.object_to(sender, message.id, now):
            return
        job = place.find(message.id, now)
        if job is None or job.once or job.state == s.STAGED:
            return
        copy = self._copy_of(job, sender)
        count(job, message.nacks, message.returns)
        if keeps_it_out(job) and message.aux != ASKED_FOR:
            self._say_working(job, copy, [sender], now)
        elif job.state == s.READY and not wins(sender, place.myself, message.id):
            self._say(QUEUED, job, [sender], STILL)
        else:
            self._stand_back(job, copy, retry_ms(job), now)

    def receive_working(self, sender: bytes, message: OfCopy, now: i64) -> None:
        """A holder has handed its copy out, or was asked for more time."""
        if self._acks.object_to(sender, message.id, now):
            return
        job = self._place.find(message.id, now)
        if job is None or job.once or job.state == s.STAGED:
            return
        copy = self._copy_of(job, sender)
        count(job, message.nacks, message.returns)
        if job.state == s.TAKEN:
            wake = now + min(message.aux, retry_ms(job)) - warning_ms(job)
            if wake > job.wake:
                copy.warned = False
                postpone(self._place.engine, job, wake)
        elif not keeps_it_out(job):
            self._stand_back(job, copy, message.aux, now)

    def receive_enqueue(self, id: bytes, delay_ms: i64, now: i64) -> None:
        """Whoever made a job and keeps no copy wants ours queued, for the first time."""
        job = self._place.find(id, now)
        if job is None or job.state != s.DELAYED or self._place.engine.tube_of(job).paused_in:
            return
        copy = job.copy()
        if copy is None or not copy.announces:
            return
        if 0 < delay_ms <= DURATION_MS_MAX:
            self.delay(job, now + delay_ms, now)
        else:
            self.queue_quietly(job, now)

    def delay(self, job: Job, until: i64, now: i64) -> None:
        """Let a copy be the one that is queued when the delay is over: for the first time, which is no news."""
        copy = job.copy()
        if copy is not None:
            copy.announces = False
            copy.logged = False
        set_aside(self._place.engine, job, until, now)

    def queue_quietly(self, job: Job, now: i64) -> None:
        """Queue a copy because another node said so: that is no news to anybody."""
        self._place.quiet = True
        queue(self._place.engine, job, now)
        self._place.quiet = False

    def stand_by(self, retry_ms: i64, after_ms: i64, now: i64) -> i64:
        """When a holder that has a copy and has not queued it is to warn that it will."""
        after_ms = max(0, min(after_ms, DURATION_MS_MAX)) + min(retry_ms, DURATION_MS_MAX) // _SLACK
        return now + after_ms + MARGIN_MS + self._place.jitter() - half_or_warning(retry_ms)

    def _stand_back(self, job: Job, copy: Copy, after_ms: i64, now: i64) -> None:
        """Let another holder have it, for so long."""
        copy.warned = False
        if not copy.announces:
            copy.announces = True
            copy.logged = False
        wake = self.stand_by(retry_ms(job), after_ms, now)
        if job.state == s.DELAYED:
            postpone(self._place.engine, job, wake)
        elif job.state == s.READY or keeps_it_out(job):
            set_aside(self._place.engine, job, wake, now)

    def _copy_of(self, job: Job, sender: bytes) -> Copy:
        """What is known of a job's copies, now that one more holder is."""
        copy = job.copy()
        if copy is None:
            copy = Copy(b"", 1, [self._place.myself], True)
            job.rare().copy = copy
        if sender not in copy.holders:
            merge_holders(self._place, copy, [sender])
        return copy

    def _say(self, kind: i64, job: Job, nodes: list[bytes], aux: i64) -> None:
        message = OfCopy(kind, self._place.id_of(job), aux, i64(job.nacks), i64(job.returns))
        self._place.send_all(nodes, message)

    def _say_working(self, job: Job, copy: Copy, nodes: list[bytes], now: i64) -> None:
        left = retry_ms(job)
        if job.state == s.TAKEN and job.wake != NEVER:
            left = max(0, job.wake - now)
            if is_armed(job, copy):
                left += warning_ms(job)
        self._say(WORKING, job, nodes, left)


def keeps_it_out(job: Job) -> bool:
    """Whether nobody else is to queue a job: it is handed out here, or buried, or switched to done."""
    return job.state in _OUT


def is_armed(job: Job, copy: Copy) -> bool:
    """Whether a copy that waits wakes to warn the other holders, and not to be queued."""
    return has_others(copy) and copy.announces and not copy.warned and not job.once


def warning_ms(job: Job) -> i64:
    """How long before it is queued again the other holders of a job are warned."""
    return half_or_warning(retry_ms(job))


def half_or_warning(retry: i64) -> i64:
    """Half a second, unless that is more than half of the time to retry."""
    return retry // 2 if retry < 2 * WARNING_MS else WARNING_MS


def wins(node: bytes, other: bytes, id: bytes) -> bool:
    """Whether a node keeps a job queued that another has queued, too: not always the same one for all jobs."""
    for at in range(min(len(node), len(other))):
        mixed = id[11 + at % 24]
        mine = node[at] ^ mixed
        theirs = other[at] ^ mixed
        if mine != theirs:
            return mine > theirs
    return False
