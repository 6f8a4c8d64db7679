"""Federation: jobs move to the nodes whose consumers wait for them.

A node whose clients find a queue empty sends NEEDJOBS: often to nodes that recently had jobs of the queue, and at
growing intervals to all nodes. A request stays valid until the next one is due. A node that has no jobs now therefore
sends a job as soon as it has one, and requests can be rare without making consumers wait.

The node that has jobs (the giver) takes them out of its queue as a client would and sends YOURJOBS. It keeps copies of
at-least-once jobs. Their timers queue them again if the jobs never arrive. At-most-once jobs are handed over: see
handover.py.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Acks
from penstock.cluster.copy_states import UNWARNED
from penstock.cluster.handover import Handovers
from penstock.cluster.images import image_of, merge_holders, take_in
from penstock.cluster.messages import ENQUEUE, NEEDJOBS, YOURJOBS, JobImage, JobMessage, JobsMessage, QueueMessage
from penstock.cluster.requeue import Requeue
from penstock.cluster.state import ClusterState, backoff_ms, retry_ms
from penstock.core import states as s
from penstock.core.copy_commands import first_ready, is_shared, set_aside
from penstock.core.deadlines import Timed
from penstock.core.errors import CommandError
from penstock.core.job import Copy, Job
from penstock.core.limits import NEVER
from penstock.core.tube import Tube

# All nodes are asked immediately, then after this interval, which doubles up to the maximum.
_ALL_MS: Final = 1_000
_ALL_MS_MAX: Final = 30_000

# Nodes that had jobs are asked at this interval, which doubles up to the maximum. They count as sources for 5 s.
_SOURCE_MS: Final = 25
_SOURCE_MS_MAX: Final = 2_000
_SOURCE_REMEMBERED_MS: Final = 5_000

# A request is valid for a little longer than until the next one, but only while a client waits or polls at least this
# often. Otherwise a job would move to a node where no client takes it.
_OVERLAP_MS: Final = 500
_POLLED_MS: Final = 1_000

# All nodes are asked for one job, for a client that waits. Sources are asked for a number that follows from their rate.
_ASKED_ALL: Final = 1
_ASKED_MIN: Final = 5
_ASKED_MAX: Final = 100

# Limits the bodies in one message. It contains at least one job.
_GIVEN_BYTES_MAX: Final = 1024 * 1024

# The rate of incoming jobs is measured over this time.
_WINDOW_MS: Final = 1_000

# Limit the memory for the demands of clients for queues that do not exist here, and for the demands of other nodes.
# Each takes about _NAMED_BYTES beside its name.
WANTS_BYTES_MAX: Final = 16 * 1024 * 1024
WISHES_BYTES_MAX: Final = 64 * 1024 * 1024
_NAMED_BYTES: Final = 500
# When the limit for demands is reached, this fraction of them is dropped, the oldest first.
_OLDEST: Final = 64

# The demand for a queue is dropped when no client has asked for this long.
_IDLE_MS: Final = 60_000


class LocalDemand(Timed):
    """The demand of local clients for jobs of a queue.

    Its deadline is the time at which other nodes are asked again.
    """

    queue: bytes
    sources: dict[bytes, i64]  # Nodes that sent jobs, and when they last did.
    used: i64  # When a client last asked.
    sources_at: i64  # When the sources were last asked.
    sources_tries: i64  # How often the sources were asked without result.
    all_at: i64  # When all nodes were last asked.
    all_tries: i64
    all_until: i64  # Until when the request to all nodes is valid.
    # When the present measuring window began. The next two fields count the jobs in it and in the one before.
    _window: i64
    _came: i64
    _came_before: i64

    def __init__(self, queue: bytes, now: i64) -> None:
        super().__init__()
        self.queue = queue
        self.sources = {}
        self.used = now
        self.sources_at = 0
        self.sources_tries = 0
        self.all_at = 0
        self.all_tries = 0
        self.all_until = 0
        self._window = now
        self._came = 0
        self._came_before = 0

    def sources_ms(self) -> i64:
        """Return the interval between requests to the nodes that recently sent jobs. It grows with each request."""
        return backoff_ms(_SOURCE_MS, self.sources_tries, _SOURCE_MS_MAX)

    def all_ms(self) -> i64:
        """Return the interval between requests to all nodes. It grows with each request."""
        return 0 if self.all_tries == 0 else backoff_ms(_ALL_MS, self.all_tries - 1, _ALL_MS_MAX)

    def came(self, source: bytes, count: i64, now: i64) -> None:
        if source not in self.sources and self.all_tries > 1:
            self.all_tries = 1
        self.sources[source] = now
        self.sources_tries = 0
        self._turn(now)
        self._came += count

    def rate(self, now: i64) -> i64:
        """Return how many jobs of this queue arrive from other nodes per second."""
        self._turn(now)
        counted = self._came + self._came_before
        if counted == 0:
            return 0
        elapsed = max(50, now - self._window + (_WINDOW_MS if self._came_before else 0))
        return (counted * 1_000 + elapsed - 1) // elapsed

    def live_sources(self, now: i64) -> list[bytes]:
        for node in [node for node, when in self.sources.items() if now - when > _SOURCE_REMEMBERED_MS]:
            del self.sources[node]
        return list(self.sources)

    def _turn(self, now: i64) -> None:
        passed = now - self._window
        if passed > _SOURCE_REMEMBERED_MS:
            self._came = self._came_before = 0
            self._window = now
        elif passed > _WINDOW_MS:
            if self._came > 0 or passed > 2 * _WINDOW_MS:
                self._came_before = self._came
                self._came = 0
                self._window = now


class PeerDemand:
    """The demand of another node for jobs of a queue."""

    def __init__(self, count: i64, until: i64) -> None:
        self.count = count
        self.until = until


class PeerDemands(Timed):
    """The demands of other nodes for one queue. Its deadline is the time at which the last of them ends."""

    def __init__(self, queue: bytes) -> None:
        super().__init__()
        self.queue = queue
        self.by_node: dict[bytes, PeerDemand] = {}


class Federation:
    """Moves jobs between this node and others."""

    def __init__(self, place: ClusterState, acks: Acks, requeue: Requeue, handovers: Handovers) -> None:
        self.local_demands: dict[bytes, LocalDemand] = {}
        self.peer_demands: dict[bytes, PeerDemands] = {}
        self.wants_bytes: i64 = 0  # Bytes of the demands for queues that did not exist here.
        self.wishes_bytes: i64 = 0
        self.offered: dict[bytes, None] = {}  # Queues that other nodes ask for and that have ready jobs now.
        self.imported: i64 = 0
        self.exported: i64 = 0
        self._bare: dict[bytes, None] = {}  # Demands for queues that did not exist here, the oldest first.
        self._place = place
        self._acks = acks
        self._requeue = requeue
        self._handovers = handovers

    # Asking

    def want(self, queue: bytes, patience_ms: i64, now: i64) -> None:
        """Ask other nodes for jobs, because a client found the queue empty on this node.

        The client waits for `patience_ms`, which is 0 if it does not wait.
        """
        place = self._place
        tube = place.engine.tubes.get(queue)
        if place.members.leaving or not place.members.peers:
            return
        if tube is not None and (tube.paused_in or not is_shared(tube)):
            return
        want = self.local_demands.get(queue)
        if want is None:
            want = LocalDemand(queue, now)
            self.local_demands[queue] = want
            if tube is None:
                self._add_bare(queue)
        is_polled = want.all_tries > 0 and now - want.used <= _POLLED_MS
        if is_polled or (tube is not None and tube.take_line.length > 0):
            patience_ms = NEVER
        want.used = now
        self._ask(want, patience_ms, now)

    def _add_bare(self, queue: bytes) -> None:
        """Record that the queue of a new demand does not exist on this node, and count the memory of the demand.

        If such demands use too much memory, drop the oldest ones.
        """
        self._bare[queue] = None
        self.wants_bytes += len(queue) + _NAMED_BYTES
        while self.wants_bytes > WANTS_BYTES_MAX:
            # Several at a time, because a dict finds its first item by skipping all that were deleted before it.
            for oldest in list(islice(self._bare, 1 + len(self._bare) // _OLDEST)):
                if oldest in self._place.engine.tubes:
                    # The queue was created since, and a client may wait for it.
                    self._remove_bare(oldest)
                else:
                    self._forget(self.local_demands[oldest])

    def _remove_bare(self, queue: bytes) -> None:
        del self._bare[queue]
        self.wants_bytes -= len(queue) + _NAMED_BYTES

    def _forget(self, want: LocalDemand) -> None:
        self._place.deadlines.clear(want)
        del self.local_demands[want.queue]
        if want.queue in self._bare:
            self._remove_bare(want.queue)

    def emptied(self, queue: bytes, now: i64) -> None:
        """Send NEEDJOBS immediately, because the last job of a queue was taken.

        Do this only if other nodes sent jobs of the queue recently.
        """
        want = self.local_demands.get(queue)
        if want is not None and want.rate(now) > 0 and not self._place.members.leaving:
            self._ask_sources(want, now)

    def fire_want(self, want: LocalDemand, now: i64) -> None:
        """Send NEEDJOBS again if a client waits. Drop the demand if no client has asked for jobs for a minute."""
        tube = self._place.engine.tubes.get(want.queue)
        if tube is not None and tube.take_line.length > 0 and not tube.paused_in and not self._place.members.leaving:
            want.used = now
            self._ask(want, NEVER, now)
        elif now - want.used >= _IDLE_MS:
            self._forget(want)
        else:
            self._place.deadlines.set(want, want.used + _IDLE_MS)

    def _ask(self, want: LocalDemand, patience_ms: i64, now: i64) -> None:
        """Send NEEDJOBS to the nodes that recently sent jobs, and to all nodes, each at its own interval.

        If a client waits, also send a new request to all nodes as soon as the last one is no longer valid.
        """
        if want.live_sources(now) and now - want.sources_at >= want.sources_ms():
            self._ask_sources(want, now)
        if now - want.all_at >= want.all_ms() or (patience_ms >= _OVERLAP_MS and want.all_until <= now):
            want.all_at = now
            want.all_tries += 1
            wanted_ms = min(want.all_ms() + _OVERLAP_MS, patience_ms)
            want.all_until = now + wanted_ms
            self._place.broadcast(QueueMessage(NEEDJOBS, want.queue, _ASKED_ALL, wanted_ms))
        due = want.all_at + want.all_ms()
        if want.sources:
            due = min(due, want.sources_at + want.sources_ms())
        self._place.deadlines.set(want, max(due, now + 1))

    def _ask_sources(self, want: LocalDemand, now: i64) -> None:
        sources = want.live_sources(now)
        if sources:
            count = max(_ASKED_MIN, min(want.rate(now) // len(sources), _ASKED_MAX))
            want.sources_at = now
            want.sources_tries += 1
            self._place.send_all(sources, QueueMessage(NEEDJOBS, want.queue, count, want.sources_ms() + _OVERLAP_MS))

    def rate(self, queue: bytes, now: i64) -> i64:
        want = self.local_demands.get(queue)
        return 0 if want is None else want.rate(now)

    def sources(self, queue: bytes, now: i64) -> list[bytes]:
        want = self.local_demands.get(queue)
        return [] if want is None else want.live_sources(now)

    def receive_yourjobs(self, sender: bytes, message: JobsMessage, now: i64) -> None:
        """Process YOURJOBS: add the jobs that another node sent to their queues."""
        came: dict[bytes, i64] = {}
        handed_over = message.number > 0 and self._handovers.receive(sender, message, now)
        for image in message.jobs:
            if handed_over or (message.number == 0 and self._import(sender, image, now)):
                came[image.queue] = came.get(image.queue, 0) + 1
        for queue, count in came.items():
            self.imported += count
            want = self.local_demands.get(queue)
            # A node that leaves sends its jobs to nodes that have not asked for them. They do not show that jobs are
            # taken here, so they may be passed on to a node that asks.
            if want is not None and not self._place.members.is_leaving(sender):
                want.came(sender, count, now)
        self._place.engine.settle(now)

    def _import(self, sender: bytes, image: JobImage, now: i64) -> bool:
        place = self._place
        # An at-most-once job comes with a handover number.
        if image.retry_ms == 0 or self._acks.reject_if_acked(sender, image.id, now, image.queue):
            return False
        job = place.find(image.id, now)
        if job is not None:
            self._handovers.import_known(job, image, now)
            return True
        if place.reject_if_moved(sender, image.id, now):
            return False
        if not place.members.leaving:
            tube = place.shared_tube(image.queue, now)
            if tube is not None and not tube.paused_in:
                job = take_in(place, image, tube, NEVER, UNWARNED, now)
                if job is not None:
                    self._requeue.record_given(job, now)
                    return True
        # The sender has a copy that it can queue.
        place.outbox.send(sender, JobMessage(ENQUEUE, image.id))
        return False

    # Giving

    def tube_made(self, tube: Tube) -> None:
        """Record in a new tube whether other nodes ask for its jobs."""
        tube.wanted_by_peers = tube.name in self.peer_demands

    def job_ready(self, tube: Tube) -> None:
        """Record that a queue which other nodes ask for has a ready job. `serve` sends it at the end of the turn."""
        self.offered[tube.name] = None

    def offer_to(self, node: bytes) -> None:
        """Let `serve` answer the earlier NEEDJOBS of a node, because jobs can be sent to the node now."""
        for queue, wishes in self.peer_demands.items():
            if node in wishes.by_node:
                self.offered[queue] = None

    def receive_needjobs(self, sender: bytes, message: QueueMessage, now: i64) -> None:
        """Process NEEDJOBS: send jobs that are ready now, and record a demand for those that become ready later."""
        tube = self._place.engine.tubes.get(message.queue)
        left = message.argument
        if tube is not None:
            left -= self._give(tube, sender, message.argument, message.ms > 0 and message.argument == _ASKED_ALL, now)
        wishes = self.peer_demands.get(message.queue)
        if left <= 0 or message.ms <= 0:
            if wishes is not None:
                wishes.by_node.pop(sender, None)
            return
        if wishes is None:
            if self.wishes_bytes > WISHES_BYTES_MAX:
                return
            wishes = PeerDemands(message.queue)
            self.peer_demands[message.queue] = wishes
            self.wishes_bytes += len(message.queue) + _NAMED_BYTES
        # A node that asks again moves behind the other nodes.
        wishes.by_node.pop(sender, None)
        wishes.by_node[sender] = PeerDemand(left, now + min(message.ms, 2 * _ALL_MS_MAX))
        if wishes.due < now + message.ms or len(wishes.by_node) == 1:
            self._place.deadlines.set(wishes, now + min(message.ms, 2 * _ALL_MS_MAX))
        if tube is not None:
            tube.wanted_by_peers = True

    def fire_wishes(self, wishes: PeerDemands, now: i64) -> None:
        """Drop the ended demands of other nodes for one queue."""
        for node in [node for node, wish in wishes.by_node.items() if wish.until <= now]:
            del wishes.by_node[node]
        if wishes.by_node:
            self._place.deadlines.set(wishes, max([wish.until for wish in wishes.by_node.values()]))
            return
        self._place.deadlines.clear(wishes)
        del self.peer_demands[wishes.queue]
        self.wishes_bytes -= len(wishes.queue) + _NAMED_BYTES
        tube = self._place.engine.tubes.get(wishes.queue)
        if tube is not None:
            tube.wanted_by_peers = False

    def serve(self, now: i64) -> None:
        """Send jobs that became ready to the nodes that asked for them, if no client of this node waits for them."""
        offered, self.offered = self.offered, {}
        for queue in offered:
            tube = self._place.engine.tubes.get(queue)
            wishes = self.peer_demands.get(queue)
            if tube is None or wishes is None:
                continue
            for node, wish in list(wishes.by_node.items()):
                if wish.until > now:
                    wish.count -= self._give(tube, node, wish.count, wish.count == _ASKED_ALL, now)
                if wish.count <= 0 or wish.until <= now:
                    del wishes.by_node[node]

    def _give(self, tube: Tube, node: bytes, wanted: i64, waits: bool, now: i64) -> i64:
        """Send jobs of a queue to a node: about half of the ready jobs, at most `wanted`. Return how many were sent."""
        length: i64 = tube.count_in(s.READY)
        if length == 0 or tube.paused_out or tube.take_line.length > 0 or not is_shared(tube):
            return 0
        if not self._place.can_take(node):
            return 0
        if not waits and self.rate(tube.name, now) > 0 and not self._place.members.leaving:
            # Jobs of this queue came from other nodes recently. Sending some on would move them back and forth.
            return 0
        count = min(wanted, _ASKED_MAX)
        if length < 2 * count:
            count = max(1, length // 2)
        images: list[JobImage] = []
        body_bytes: i64 = 0
        given: i64 = 0
        while given < count and body_bytes <= _GIVEN_BYTES_MAX:
            job = first_ready(self._place.engine, tube, now)
            if job is None:
                break
            body_bytes += job.body_length()
            if job.once:
                if self._handovers.hand_over([job], node, now) == 0:
                    break
            elif not self._give_copy(job, node, images, now):
                break
            given += 1
        if images:
            self._place.outbox.send(node, JobsMessage(YOURJOBS, images))
        self.exported += given
        return given

    def _give_copy(self, job: Job, node: bytes, images: list[JobImage], now: i64) -> bool:
        """Append a job to `images`, which is sent to `node`. Return False if its body cannot be read.

        This node keeps a copy, and queues it again if the job does not arrive on the other node.
        """
        assert not job.once, "an at-most-once job is handed over, never copied"
        place = self._place
        try:
            image = image_of(place, job, now)
        except CommandError:
            return False
        copy = job.copy()
        if copy is None:
            copy = Copy(b"", 1, [place.myself], UNWARNED)
            job.ensure_extra().copy = copy
        merge_holders(place, copy, [node])
        image.holders = place.known_holders(copy.holders)
        images.append(image)
        set_aside(place.engine, job, self._requeue.standby_wake(retry_ms(job), retry_ms(job), now), now)
        return True
