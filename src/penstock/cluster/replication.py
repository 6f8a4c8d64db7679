"""Replication: a put is answered when enough nodes hold a copy of the job.

Protocol:
1. The node sends REPLJOB to one random node for each copy that is needed. A node that stores the copy answers GOTJOB.
   A node that refuses the copy answers NOTHELD with the reason.
2. While too few have answered, one more node is asked every 50 ms, less often if the job is large. Nodes that do not
   answer are asked again at growing intervals.
3. When enough nodes have a copy, the job is queued here and the producer is answered.
4. When the producer's timeout is over, DELJOB is sent to all nodes that were asked.

If the producer gives no number of copies, the number is three. If fewer than three nodes accept copies, it is the
number of these nodes. This number is computed again while the producer waits, so a node that dies or runs out of memory
does not stop producers.

A node that is leaving or short of memory keeps no copy. When enough other nodes have one, it asks one of them to queue
the job (ENQUEUE). An at-most-once job has one holder at any time and is handed over instead: see handover.py.

States of a put, and of its job on this node:

    state       by_id  job             the producer  copies
    waiting     yes    STAGED          waits         REPLJOB was sent to `asked`; `confirmed` have answered GOTJOB
    unattended  yes    STAGED          has the id    as above; a put with ASYNC on a node that keeps no copy
    enough      no     READY, DELAYED  has the id    this node and `needed` others; fewer if it was unattended before
    elsewhere   no     GONE            has the id    at least `needed` other nodes, one of which got ENQUEUE
    given up    no     GONE            NOREPL        nodes that miss DELJOB still have one, and may deliver it
    ended       no     GONE            has the id    another node delivered its copy, and the job was acked or deleted

    waiting --GOTJOB, or fewer nodes accept copies--> enough, or elsewhere if this node keeps no copy
    waiting --timeout, disconnect, ttl, reset--> given up
    unattended --GOTJOB--> elsewhere; --the node stays after all--> enough; --ttl, reset--> given up
    waiting, unattended --acked or deleted by a client or a peer--> ended

Why no other states are possible:
- A job is STAGED exactly as long as its replication is in `by_id`. The engine does not deliver or expire a staged job,
  or move it to another tube. So only this module, an ack and a deletion can end it. This module also checks its ttl.
  Nodes that were asked may deliver their copies after the retry time, so an ack can arrive before the put is answered.
- `confirmed` is a subset of `asked`, and every node of `asked` is a holder in the copy record before REPLJOB is sent.
  An ack therefore reaches every node that may have a copy, even if the node's GOTJOB was lost.
- `needed` is at least 1 if this node keeps no copy. So the job is on another node before it is withdrawn here.
- A replication ends once. Before this module ends the wait of the producer or changes the state of the job, `_remove`
  takes the replication out of `by_id`. The engine then calls `wait_ended` and `left`, which find no replication and do
  nothing. So they have an effect only if the cause is outside of this module.
- The producer is answered once, because `_remove` also takes the wait out of the replication.
- After a crash, `by_id` is empty and staged jobs are queued: see core/copy_commands.py. The producer got no reply, so
  the job may exist or not.

The state of each copy, from its first queueing on, is in copy_states.py.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from penstock.cluster.acks import Acks
from penstock.cluster.condition import Condition
from penstock.cluster.copy_states import FRESH, UNWARNED
from penstock.cluster.images import image_of, merge_holders, take_in
from penstock.cluster.messages import (
    DELJOB,
    ENQUEUE,
    GOTJOB,
    IS_PAUSED,
    LEAVES,
    NO_DISK,
    NO_MEMORY,
    NOT_VALID,
    NOTHELD,
    REPLJOB,
    JobImage,
    JobMessage,
    JobsMessage,
)
from penstock.cluster.requeue import Requeue
from penstock.cluster.state import ClusterState
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.copy_commands import end_wait, hold, let_in, put, withdraw
from penstock.core.deadlines import Timed
from penstock.core.errors import CommandError, NoMemory, NoSpace
from penstock.core.job import Copy, Draft, Job
from penstock.core.limits import NEVER
from penstock.core.policy import DISQUE
from penstock.core.statistics.histogram import Histogram
from penstock.core.tube import Tube
from penstock.core.waits import CopyWait

# The number of copies if the producer does not name one and there are enough nodes.
REPLICATE: Final = 3

# While copies are missing, one more node is asked at this interval. Each MiB of the body adds the same time.
RETRY_MS: Final = 50
_BYTES_A_TIME: Final = 1024 * 1024
# Nodes that do not answer are asked again after 1, 2, 4 … intervals, up to this many.
_SILENT_MAX: Final = 32
# If no producer waits, the interval is doubled at most this often.
_DOUBLED_MAX: Final = 8

# A copy is held. The reasons of NOTHELD are not negative.
_HELD: Final = -1

_EXPIRED: Final = b"NOREPL job removed (expired?) before the requested replication level was achieved"


class Replication(Timed):
    """A job that waits for its copies. Its deadline is the time at which the next node is asked."""

    job: Job
    id: bytes
    asked: list[bytes]  # Nodes that were asked to hold a copy.
    confirmed: list[bytes]  # Nodes that have confirmed a copy.
    needed: i64  # How many other nodes have to confirm a copy.
    external: bool  # This node keeps no copy.
    queue: bytes
    is_default: bool  # The producer named no number of copies, so `needed` follows the nodes that accept copies.
    period_ms: i64  # The interval at which one more node is asked.
    tries: i64
    again_at: i64  # The try at which nodes that did not answer are asked again.
    wait: CopyWait | None  # The producer that waits, if any.

    def __init__(self, job: Job, id: bytes, queue: bytes, asked: list[bytes], needed: i64, external: bool) -> None:
        super().__init__()
        self.queue = queue
        self.is_default = False
        self.job = job
        self.id = id
        self.asked = asked
        self.confirmed = []
        self.needed = needed
        self.external = external
        self.period_ms = RETRY_MS * (1 + job.body_length() // _BYTES_A_TIME)
        self.tries = 0
        self.again_at = 1
        self.wait = None

    def has_enough(self) -> bool:
        return len(self.confirmed) >= self.needed


class Replications:
    """Jobs of this node that wait for copies, and copies that it holds for other nodes."""

    def __init__(self, place: ClusterState, acks: Acks, requeue: Requeue, condition: Condition) -> None:
        self.by_id: dict[bytes, Replication] = {}
        self.given_up: i64 = 0
        # The totals of all jobs whose replication ended: how many copies were wanted and made, with that of this node.
        self.copies_wanted: i64 = 0
        self.copies_made: i64 = 0
        self.durations = Histogram()  # Time from the put to the last copy that it waited for, in ms.
        self.below_default: i64 = 0  # Jobs with fewer than three copies, because some members do not accept copies.
        self._place = place
        self._acks = acks
        self._requeue = requeue
        self._condition = condition

    # Requests of producers

    def start(self, tube: Tube, draft: Draft, repl: i64, external: bool, now: i64) -> Replication:
        """Add a job that is queued when `repl` nodes have a copy. This node is one of them, unless `external`."""
        assert not draft.once, "an at-most-once job has no copies"
        place = self._place
        needed = repl if external else repl - 1
        asked = place.copy_targets([place.myself], needed, tube.name, now)
        copy = self._copy(asked, repl, external, draft, now)
        job = hold(place.engine, tube, draft, copy, now)
        started = Replication(job, place.id_of(job), tube.name, asked, needed, external)
        self.by_id[started.id] = started
        self._ask(started, asked, False, now)
        place.deadlines.set(started, now + started.period_ms)
        return started

    def start_async(self, tube: Tube, draft: Draft, repl: i64, now: i64) -> Job:
        """Queue a job immediately, and send copies to other nodes without waiting for their answers."""
        place = self._place
        asked = place.copy_targets([place.myself], repl - 1, tube.name, now)
        job = put(place.engine, tube, draft, self._copy(asked, repl, False, draft, now), now)
        if job.state != s.GONE:
            place.send_all(asked, JobsMessage(REPLJOB, [image_of(place, job, now)], quiet=True))
        return job

    def start_elsewhere(self, tube: Tube, draft: Draft, repl: i64, now: i64) -> bytes:
        """Replicate a job to other nodes, which queue it. Return its id immediately.

        This node keeps the job until another node has it.
        """
        started = self.start(tube, draft, repl, True, now)
        started.needed = 1
        return started.id

    def _copy(self, asked: list[bytes], repl: i64, external: bool, draft: Draft, now: i64) -> Copy:
        holders = list(asked) if external else [self._place.myself, *asked]
        copy = Copy(b"", i32(repl), holders, UNWARNED if draft.delay_ms == 0 else FRESH)
        # The retry time of the nodes that are asked begins now, or when the delay is over.
        copy.timers_restarted = now + draft.delay_ms
        return copy

    def wait_ended(self, wait: CopyWait, now: i64) -> None:
        """Delete a job that has too few copies, because its producer no longer waits: it timed out or disconnected.

        If this class ended the wait, the replication is over already, and nothing is done.
        """
        started = self.by_id.get(self._place.id_of(wait.job))
        if started is not None and started.wait is wait:
            assert wait.outcome != w.SERVED, "only the end of its replication serves a put"
            started.wait = None
            self._give_up(started, now)

    def left(self, job: Job) -> None:
        """End the replication of a job that a client or another node acked or deleted while it waited for its copies.

        If this class queues or withdraws the job, the replication is over already, and nothing is done.
        """
        started = self.by_id.get(self._place.id_of(job))
        if started is not None:
            self._answer(self._remove(started), w.SERVED)

    def reset(self, now: i64) -> None:
        """Give up all replications, because this node loses its peers and perhaps its id, which is part of job ids."""
        for started in list(self.by_id.values()):
            self._give_up(started, now)

    def _remove(self, started: Replication) -> CopyWait | None:
        """End a replication. If its producer still waits, return the wait, which the caller has to end.

        Only this function removes a replication. A method that queues or withdraws the job calls it first. If the
        engine then reports the end of the job to this class, the replication is not found and does not end twice.
        """
        assert self.by_id.get(started.id) is started, "a replication ends once"
        del self.by_id[started.id]
        self._place.deadlines.clear(started)
        wait = started.wait
        started.wait = None
        return wait

    def _answer(self, wait: CopyWait | None, outcome: i64) -> None:
        if wait is not None:
            assert wait.outcome == w.WAITING, "a put is answered once"
            end_wait(self._place.engine, wait, outcome)

    def default_level(self, queue: bytes, external: bool, now: i64) -> int:
        """Return how many copies a job gets if its producer does not give a number of copies."""
        have = 0 if external else 1
        return max(1, min(REPLICATE, len(self._place.accepting(queue, now)) + have))

    def count_below_default(self, copies: i64) -> None:
        """Increase `below_default` if a job has fewer copies than it would have if all members accepted copies."""
        if copies < min(REPLICATE, self._place.members.size()):
            self.below_default += 1

    def _count_copies(self, started: Replication) -> None:
        """Count the copies of a job whose replication ends."""
        own = 0 if started.external else 1
        wanted = started.needed + own
        if started.is_default:
            wanted = max(wanted, min(REPLICATE, self._place.members.size()))
        self.copies_wanted += wanted
        self.copies_made += len(started.confirmed) + own

    def oldest_wait_ms(self, now: i64) -> i64:
        """Return for how long the oldest put waits for its copies, or 0 if none waits."""
        for started in self.by_id.values():
            return now - started.job.created
        return 0

    # Replication

    def receive_notheld(self, sender: bytes, id: bytes, reason: i64, now: i64) -> None:
        """Process NOTHELD: record that a node refused a copy, and compute the default number of copies again."""
        started = self.by_id.get(id)
        if started is not None:
            self._place.refusals.add(sender, started.queue, reason, now)
            if self._follow_default(started, now):
                self._succeed(started, now)

    def _follow_default(self, started: Replication, now: i64) -> bool:
        """If the producer gave no number of copies, compute the number again from the nodes that accept copies now.

        Return whether the job has enough copies then.
        """
        if not started.is_default:
            return False
        external = started.external
        accepting = self._place.accepting(started.queue, now)
        count = len(started.confirmed) + len([node for node in accepting if node not in started.confirmed])
        have = 0 if external else 1
        started.needed = max(1, min(REPLICATE, count + have)) - have
        return started.has_enough()

    def receive_gotjob(self, sender: bytes, id: bytes, now: i64) -> None:
        """Process GOTJOB: record that a node has a copy. Queue the job if it has enough copies now."""
        started = self.by_id.get(id)
        if started is None:
            return
        self._place.refusals.remove(sender, started.queue)
        if sender not in started.confirmed and sender in started.asked:
            started.confirmed.append(self._place.node(sender))
            if started.has_enough():
                self._succeed(started, now)

    def given_away(self, sender: bytes, id: bytes) -> None:
        """Remove `sender` from the nodes that have confirmed a copy, because it handed its copy to another node."""
        started = self.by_id.get(id)
        if started is not None and sender in started.confirmed:
            started.confirmed.remove(sender)

    def fire(self, started: Replication, now: i64) -> None:
        """Send the job to one more node, and again to nodes that did not answer."""
        place = self._place
        job = started.job
        assert job.state == s.STAGED, "a job cannot be delivered while it waits for its copies"
        if job.expiry <= now:
            if started.wait is not None:
                started.wait.refusal = _EXPIRED
            self._give_up(started, now)
            return
        started.tries += 1
        copy = job.copy()
        assert copy is not None
        if started.external and started.wait is None and not place.keeps_nothing():
            # This node does not leave after all. It keeps the job, because the producer has its id already.
            self._remove(started)
            merge_holders(place, copy, [place.myself])
            let_in(place.engine, job, now)
            return
        if self._follow_default(started, now):
            self._succeed(started, now)
            return
        more = place.copy_targets([place.myself, *started.asked], 1, started.queue, now)
        if started.tries >= started.again_at or started.wait is None:
            started.again_at = started.tries + min(started.again_at, _SILENT_MAX)
            silent = [node for node in started.asked if node not in started.confirmed]
            self._ask(started, silent, False, now)
        if more:
            started.asked.extend(more)
            merge_holders(place, copy, more)
            self._ask(started, more, False, now)
            # Nodes with a copy have to learn about the new holders.
            self._ask(started, started.confirmed, True, now)
        # No timeout is running if no producer waits.
        doubled = 0 if started.wait is not None else min(started.tries, _DOUBLED_MAX)
        place.deadlines.set(started, now + (started.period_ms << doubled))

    def _ask(self, started: Replication, nodes: list[bytes], quiet: bool, now: i64) -> None:
        if not nodes:
            return
        try:
            image = image_of(self._place, started.job, now)
        except CommandError:
            # The body cannot be read any more. The producer's wait ends with too few copies.
            return
        self._place.send_all(nodes, JobsMessage(REPLJOB, [image], quiet))

    def _succeed(self, started: Replication, now: i64) -> None:
        """Answer the producer, and queue the job here or on another node. The replication is over."""
        place = self._place
        job = started.job
        assert len(started.confirmed) <= len(started.asked), "only nodes that were asked confirm a copy"
        wait = self._remove(started)
        self._count_copies(started)
        self.durations.add(now - job.created)
        if started.is_default:
            self.count_below_default(len(started.confirmed) + (0 if started.external else 1))
        if not started.external:
            # The producer is answered before the consumers that the job wakes.
            self._answer(wait, w.SERVED)
            let_in(place.engine, job, now)
            return
        assert started.confirmed, "a node withdraws its job only if another node has it"
        chosen = started.confirmed[place.random.below(len(started.confirmed))]
        delay_ms = 0 if job.wake == NEVER else max(0, job.wake - now)
        if len(started.confirmed) < len(started.asked):
            # Other nodes were asked as well and may receive a copy soon. The holders have to know them when the job is
            # acked.
            self._ask(started, started.confirmed, True, now)
        withdraw(place.engine, job, now)
        self._answer(wait, w.SERVED)
        place.outbox.send(chosen, JobMessage(ENQUEUE, started.id, delay_ms))

    def _give_up(self, started: Replication, now: i64) -> None:
        """Delete a job that has too few copies, and send DELJOB to all nodes that were asked.

        A node that has a copy and does not receive DELJOB may still deliver the job.
        """
        self.given_up += 1
        self._count_copies(started)
        self._answer(self._remove(started), w.TIMED_OUT)
        self._place.send_all(started.asked, JobMessage(DELJOB, started.id))
        withdraw(self._place.engine, started.job, now)

    # Requests of other nodes

    def receive_repljob(self, sender: bytes, image: JobImage, quiet: bool, now: i64) -> None:
        """Process REPLJOB: store a copy of a job, and answer GOTJOB or NOTHELD, unless `quiet`."""
        place = self._place
        if self._acks.reject_if_acked(sender, image.id, now, image.queue) or image.retry_ms == 0:
            return
        job = place.find(image.id, now)
        if job is not None:
            copy = job.copy()
            if copy is not None:
                merge_holders(place, copy, image.holders)
        elif place.reject_if_moved(sender, image.id, now):
            return
        else:
            refusal = self._hold_copy(image, now)
            if refusal != _HELD:
                if refusal in (NO_DISK, NO_MEMORY):
                    self._condition.refused(len(image.body), now)
                if not quiet:
                    place.outbox.send(sender, JobMessage(NOTHELD, image.id, refusal))
                return
        if not quiet:
            place.outbox.send(sender, JobMessage(GOTJOB, image.id))

    def _hold_copy(self, image: JobImage, now: i64) -> i64:
        """Store a copy of a job. Return _HELD, or the reason why it was refused."""
        place = self._place
        if place.members.leaving:
            return LEAVES
        if place.is_short_of_memory():
            return NO_MEMORY
        tube = place.shared_tube(image.queue, now)
        if tube is not None and not tube.paused_in:
            wake = self._requeue.standby_wake(image.retry_ms, image.delay_ms + image.retry_ms, now)
            if take_in(place, image, tube, wake, UNWARNED, now) is not None:
                return _HELD
        return self._why_not_held(image, tube)

    def _why_not_held(self, image: JobImage, tube: Tube | None) -> i64:
        engine = self._place.engine
        try:
            if tube is None and image.queue not in engine.tubes and not self._place.home_of(image.queue):
                engine.check_new([image.queue], DISQUE)
            engine.check_room(1, len(image.body) + len(image.headers))
        except NoSpace:
            return NO_DISK
        except NoMemory:
            return NO_MEMORY
        except CommandError:
            return NOT_VALID
        return IS_PAUSED if tube is None or tube.paused_in else NOT_VALID
