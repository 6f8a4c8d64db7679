"""Requeueing: which holder of a job queues it again after its retry time.

Protocol:
1. Half a second before its timer fires, a holder sends WILLQUEUE to the other holders.
2. A holder that has queued the job answers QUEUED. A holder that has delivered, buried or finished it answers WORKING.
   A holder that has recorded the ack of the job answers SETACK. After any of these answers, the sender does not queue
   the job.
3. Otherwise the sender queues the job and sends QUEUED. All holders restart their timers.
4. A holder may receive WILLQUEUE shortly before its own timer fires. It then sends no WILLQUEUE of its own until the
   sender has queued the job. If two WILLQUEUE cross, or two holders have queued the job, one of them wins: the one
   whose id, mixed with the id of the job, is greater. The other one keeps its copy without queueing it.

A delivery is announced with WORKING, so that the retry time counts from the delivery on every node.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Acks
from penstock.cluster.copy_states import (
    DELAY_GIVEN,
    DELIVERED,
    FRESH,
    QUEUED_HERE,
    TIMER_SET,
    UNWARNED,
    WARNING_SENT,
    YIELDED,
    may_queue,
    move,
)
from penstock.cluster.images import count, merge_holders
from penstock.cluster.messages import (
    ASKED_FOR,
    HOLDERS,
    QUEUED,
    STILL,
    TIME_OVER,
    WILLQUEUE,
    WORKING,
    CopyMessage,
    HoldersMessage,
    JobMessage,
)
from penstock.cluster.state import ClusterState, fingerprint, has_others, retry_ms
from penstock.core import states as s
from penstock.core.copy_commands import delay, postpone, queue, set_aside
from penstock.core.job import ASIDE, Copy, Job
from penstock.core.limits import DURATION_MS_MAX, NEVER

# A holder announces this long in advance that it will queue a job again.
WARNING_MS: Final = 500

# Holders that did not deliver a job wait longer for it to come back than the node that did: by MARGIN_MS, which covers
# the warning time and the jitter, and by an eighth of the retry time. A delivery within that eighth of the last
# announcement need not be announced, because the others wait long enough.
MARGIN_MS: Final = 750
_SLACK: Final = 8

# States in which a holder does not want the job to be queued by another one.
_OUT: Final = bytes([s.TAKEN, s.BURIED, s.DONE, s.ZOMBIE])

# Events that make a job ready because a client asked for it. Other holders have to be informed.
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
    """Runs the protocol above for the jobs of this node: it sends and answers WILLQUEUE, QUEUED and WORKING."""

    def __init__(self, place: ClusterState, acks: Acks) -> None:
        self._place = place
        self._acks = acks

    # Local events

    def delivered(self, job: Job, copy: Copy, now: i64) -> None:
        """Restart the retry time of a job on all holders, because it was delivered or its consumer asked for more time.

        Also set the timer of this node's copy to the time at which WILLQUEUE has to be sent to the other holders.
        """
        move(copy, DELIVERED)
        if has_others(copy) and not job.once:
            if now - copy.timers_restarted > retry_ms(job) // _SLACK:
                self._send_working(job, copy, copy.holders, now)
                copy.timers_restarted = now
            if job.wake != NEVER:
                postpone(self._place.engine, job, job.wake - warning_ms(job))
                move(copy, TIMER_SET)

    def record_given(self, job: Job, now: i64) -> None:
        """Record that another node sent a job to this one and that the retry time on the sender starts now."""
        copy = job.copy()
        if copy is not None and len(copy.holders) == 2:
            copy.timers_restarted = now

    def queued(self, job: Job, copy: Copy, event: i64, now: i64) -> None:
        """Send QUEUED to the other holders, because this node's copy became ready.

        Nothing is sent if the job became ready for the first time.
        """
        announces = copy.state != FRESH
        warned = may_queue(copy) or job.expiry <= now
        move(copy, QUEUED_HERE)
        if self._place.is_remote_change or not has_others(copy) or job.once:
            return
        time_over = event == s.TTR_PASSED or event == s.DELAY_PASSED
        if announces and time_over:
            assert warned, "the timer of a job queues it only after its other holders were warned"
            if event == s.DELAY_PASSED:
                # The job was delayed here as a standby copy, so the return was not counted yet.
                job.returns += 1
            self._send(QUEUED, job, copy.holders, TIME_OVER)
            copy.timers_restarted = now
        elif event in _ASKED:
            self._send(QUEUED, job, copy.holders, ASKED_FOR)
            copy.timers_restarted = now

    def end_warning(self, copy: Copy) -> None:
        """Cancel the effect of an earlier WILLQUEUE, because the job was delayed or buried instead of queued."""
        if may_queue(copy):
            move(copy, TIMER_SET)

    def postponed(self, job: Job, now: i64) -> None:
        """Send WORKING to the other holders of a job that another node has delivered.

        A client of this node has asked for more time for the job.
        """
        copy = job.copy()
        if copy is not None and has_others(copy):
            move(copy, TIMER_SET)
            self._send_working(job, copy, copy.holders, now)

    def leave_to_others(self, job: Job, now: i64) -> bool:
        """Delay a job that cannot be delivered on this node, so that the timer of another holder fires first.

        Return whether there is another holder.
        """
        copy = job.copy()
        if copy is None or not has_others(copy) or job.once:
            return False
        self._yield_to_holder(job, copy, 2 * retry_ms(job), now)
        return True

    def delays_requeue(self, job: Job, copy: Copy, now: i64) -> bool:
        """Send WILLQUEUE to the other holders and postpone the job. Return whether the job was postponed.

        Do nothing if WILLQUEUE was sent before, or if the job has no other holders.
        """
        if not must_warn(job, copy):
            return False
        move(copy, WARNING_SENT)
        self._warn(job, copy, copy.holders)
        postpone(self._place.engine, job, now + warning_ms(job))
        return True

    def _warn(self, job: Job, copy: Copy, nodes: list[bytes]) -> None:
        self._place.send_all(nodes, JobMessage(WILLQUEUE, self._place.id_of(job), fingerprint(copy.holders)))

    # Messages from other nodes

    def receive_willqueue(self, sender: bytes, message: JobMessage, now: i64) -> None:
        """Process WILLQUEUE: another holder is about to queue its copy. If it must not do so, send an objection."""
        place = self._place
        id = message.id
        if self._acks.reject_if_acked(sender, id, now):
            return
        job = place.find(id, now)
        if job is None:
            heir = place.moved.new_holder(id)
            if not place.reject_if_moved(sender, id, now) and heir is not None:
                place.outbox.send(sender, HoldersMessage(HOLDERS, id, 0, [heir]))
            return
        copy = self._copy_of(job, sender)
        if job.state == s.READY:
            self._send(QUEUED, job, [sender], STILL)
        elif blocks_requeue(job):
            self._send_working(job, copy, [sender], now)
        else:
            if message.argument != fingerprint(copy.holders):
                # A holder that the sender does not know of may have the job queued.
                place.outbox.send(sender, HoldersMessage(HOLDERS, id, 0, place.known_holders(copy.holders)))
            if job.state == s.DELAYED and self._yields_to(sender, job, copy, now):
                # Both nodes are about to queue the job. Both could deliver it before the QUEUED of either arrives.
                self._yield_to_holder(job, copy, warning_ms(job), now)

    def _yields_to(self, sender: bytes, job: Job, copy: Copy, now: i64) -> bool:
        """Return whether this node must yield to the sender of WILLQUEUE, because both are about to queue the job."""
        if may_queue(copy):
            return wins(sender, self._place.myself, self._place.id_of(job))
        # A sender that wins would ignore the warning of this node. It queues the job within the warning time, so this
        # node does not warn before that.
        return must_warn(job, copy) and job.wake < now + warning_ms(job)

    def receive_holders(self, sender: bytes, message: HoldersMessage, now: i64) -> None:
        """Process HOLDERS: add the nodes that the sender names to the holders of a job."""
        if self._acks.receive_holders(sender, message, now):
            return
        job = self._place.find(message.id, now)
        if job is None:
            return
        copy = self._copy_of(job, sender)
        more = [node for node in message.holders if node not in copy.holders]
        merge_holders(self._place, copy, more)
        if may_queue(copy) and (job.state == s.DELAYED or job.state == s.TAKEN):
            self._warn(job, copy, more)

    def receive_queued(self, sender: bytes, message: CopyMessage, now: i64) -> None:
        """Process QUEUED: a holder has queued its copy.

        If this node has delivered the job, answer WORKING. If this node keeps the job queued, answer QUEUED. Otherwise
        leave the job to the holder.
        """
        place = self._place
        if self._acks.reject_if_acked(sender, message.id, now):
            return
        job = place.find(message.id, now)
        if job is None or job.once or job.state == s.STAGED:
            return
        copy = self._copy_of(job, sender)
        count(job, message.nacks, message.returns)
        if blocks_requeue(job) and message.argument != ASKED_FOR:
            self._send_working(job, copy, [sender], now)
        elif job.state == s.READY and not wins(sender, place.myself, message.id):
            self._send(QUEUED, job, [sender], STILL)
        else:
            self._yield_to_holder(job, copy, retry_ms(job), now)

    def receive_working(self, sender: bytes, message: CopyMessage, now: i64) -> None:
        """Process WORKING: a holder has delivered its copy, or its consumer asked for more time."""
        if self._acks.reject_if_acked(sender, message.id, now):
            return
        job = self._place.find(message.id, now)
        if job is None or job.once or job.state == s.STAGED:
            return
        copy = self._copy_of(job, sender)
        count(job, message.nacks, message.returns)
        if job.state == s.TAKEN:
            wake = now + min(message.argument, retry_ms(job)) - warning_ms(job)
            if wake > job.wake:
                move(copy, TIMER_SET)
                postpone(self._place.engine, job, wake)
        elif not blocks_requeue(job):
            self._yield_to_holder(job, copy, message.argument, now)

    def receive_enqueue(self, id: bytes, delay_ms: i64, now: i64) -> None:
        """Process ENQUEUE: queue a new job, because the node that created it keeps no copy."""
        job = self._place.find(id, now)
        if job is None or job.state != s.DELAYED or self._place.engine.tube_of(job).paused_in:
            return
        copy = job.copy()
        if copy is None or copy.state == FRESH:
            return
        if 0 < delay_ms <= DURATION_MS_MAX:
            self.delay(job, now + delay_ms, now)
        else:
            self.queue_quietly(job, now)

    def delay(self, job: Job, until: i64, now: i64) -> None:
        """Delay a copy until the time `until`.

        After the delay, the job is queued for the first time and not announced.
        """
        copy = job.copy()
        if copy is not None:
            move(copy, DELAY_GIVEN)
            copy.logged = False
        delay(self._place.engine, job, until, now)

    def queue_quietly(self, job: Job, now: i64) -> None:
        """Queue a copy on behalf of another node, without announcing it."""
        self._place.begin_remote_change()
        queue(self._place.engine, job, now)
        self._place.end_remote_change()

    def standby_wake(self, retry_ms: i64, after_ms: i64, now: i64) -> i64:
        """Return the time at which a holder that has not queued its copy sends WILLQUEUE."""
        after_ms = max(0, min(after_ms, DURATION_MS_MAX)) + min(retry_ms, DURATION_MS_MAX) // _SLACK
        return now + after_ms + MARGIN_MS + self._place.jitter() - half_or_warning(retry_ms)

    def _yield_to_holder(self, job: Job, copy: Copy, after_ms: i64, now: i64) -> None:
        """Delay this node's copy for `after_ms` and a margin, so that another holder queues the job."""
        move(copy, YIELDED)
        wake = self.standby_wake(retry_ms(job), after_ms, now)
        if job.state == s.DELAYED and copy.aside & ASIDE:
            postpone(self._place.engine, job, wake)
        elif job.state == s.DELAYED or job.state == s.READY or blocks_requeue(job):
            # Also logged if the job is delayed already, for example by its producer: it now waits for another node.
            set_aside(self._place.engine, job, wake, now)

    def _copy_of(self, job: Job, sender: bytes) -> Copy:
        """Add the sender to the holders of a job, and return the job's copy record."""
        copy = job.copy()
        if copy is None:
            copy = Copy(b"", 1, [self._place.myself], UNWARNED)
            job.ensure_extra().copy = copy
        if sender not in copy.holders:
            merge_holders(self._place, copy, [sender])
        return copy

    def _send(self, kind: i64, job: Job, nodes: list[bytes], aux: i64) -> None:
        message = CopyMessage(kind, self._place.id_of(job), aux, i64(job.nacks), i64(job.returns))
        self._place.send_all(nodes, message)

    def _send_working(self, job: Job, copy: Copy, nodes: list[bytes], now: i64) -> None:
        left = retry_ms(job)
        if job.state == s.TAKEN and job.wake != NEVER:
            left = max(0, job.wake - now)
            if must_warn(job, copy):
                left += warning_ms(job)
        self._send(WORKING, job, nodes, left)


def blocks_requeue(job: Job) -> bool:
    """Return whether no other holder is allowed to queue the job, because it is delivered here, buried or done."""
    return job.state in _OUT


def must_warn(job: Job, copy: Copy) -> bool:
    """Return whether WILLQUEUE has to be sent to the other holders before a copy is queued."""
    return has_others(copy) and copy.state == UNWARNED and not job.once


def warning_ms(job: Job) -> i64:
    """Return the time between WILLQUEUE and the requeue of a job, in ms."""
    return half_or_warning(retry_ms(job))


def half_or_warning(retry: i64) -> i64:
    """Return half a second, or half of the retry time if that is less: the time between WILLQUEUE and the requeue."""
    return retry // 2 if retry < 2 * WARNING_MS else WARNING_MS


def wins(node: bytes, other: bytes, id: bytes) -> bool:
    """Return whether `node` keeps the job `id` queued if `other` has queued it as well.

    The job's id is mixed in, so that all nodes win equally often.
    """
    for at in range(min(len(node), len(other))):
        mixed = id[11 + at % 24]
        mine = node[at] ^ mixed
        theirs = other[at] ^ mixed
        if mine != theirs:
            return mine > theirs
    return False
