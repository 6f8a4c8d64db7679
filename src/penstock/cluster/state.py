"""The state that all parts of the cluster protocol share.

It contains this node's id, its engine, the table of peers, outgoing messages and timers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.cluster.members import Members
from penstock.cluster.messages import DELJOB, MOVED_AWAY, NODE_LEAVING, JobMessage, Message
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.recent import RecentJobs
from penstock.cluster.refusals import Refusals
from penstock.core.copy_commands import is_shared
from penstock.core.deadlines import Deadlines
from penstock.core.engine import Engine
from penstock.core.errors import CommandError
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.job import Copy, Job
from penstock.core.limits import DURATION_MS_MAX, NEVER
from penstock.core.policy import DISQUE
from penstock.core.random import Xorshift32
from penstock.core.tube import Tube

# A node that uses more than this percentage of its memory accepts no more copies. If bodies spill to disk, there is no
# limit.
SHORT_PERCENT: Final = 75

# Timers that one message sets on several nodes must not all fire at the same time.
_JITTER_MS: Final = 250


class ClusterState:
    """The shared state. Each part of the protocol (acks, requeue, replication …) is a class that works on it."""

    engine: Engine
    ids: IdForms
    myself: bytes
    outbox: PeerOutbox
    members: Members
    random: Xorshift32
    deadlines: Deadlines  # Timers of the cluster, beside those of jobs.
    foreign: dict[bytes, int]  # Jobs that were made on other nodes: their 40-character ids and their numbers here.
    recent: RecentJobs  # Jobs that recently ended on all nodes.
    moved: RecentJobs  # Jobs that were recently handed over, with their new holders.
    homes: dict[bytes, bytes]  # The home of each tube that lives on another node: see homes.py.
    refusals: Refusals  # Nodes that recently refused copies.
    is_remote_change: bool  # Changes to jobs are applied on behalf of another node now, so they are not announced.
    _prefix: bytes  # The prefix of the ids of jobs that were made on this node.
    _nodes: dict[bytes, bytes]  # Node ids, interned: one object for each id.
    _body_of: Callable[[Job], bytes]

    def __init__(
        self,
        engine: Engine,
        ids: IdForms,
        myself: bytes,
        members: Members,
        mail: PeerOutbox,
        entropy: int,
        body_of: Callable[[Job], bytes],
    ) -> None:
        self.engine = engine
        self.ids = ids
        self.myself = myself
        self.members = members
        self.outbox = mail
        self.random = Xorshift32(entropy)
        self.deadlines = Deadlines()
        self.foreign = {}
        self.recent = RecentJobs()
        self.moved = RecentJobs()
        self.homes = {}
        self.refusals = Refusals()
        self.is_remote_change = False
        self._prefix = b"D-" + myself[:8] + b"-"
        self._nodes = {myself: myself}
        self._body_of = body_of

    def rename(self, myself: bytes) -> None:
        """Change the id of this node. The caller has already changed the node id in `ids`, which formats job ids."""
        self.myself = myself
        self._prefix = b"D-" + myself[:8] + b"-"
        self._nodes = {myself: myself}

    def begin_remote_change(self) -> None:
        """Start to change jobs on behalf of another node. These changes are not announced to the other holders."""
        assert not self.is_remote_change, "a change for another node causes no other change of this kind"
        self.is_remote_change = True

    def end_remote_change(self) -> None:
        self.is_remote_change = False

    def id_of(self, job: Job) -> bytes:
        """Return the 40-character id of a job, which is the same on every node."""
        copy = job.copy()
        if copy is not None and copy.origin_id:
            return copy.origin_id
        return self.ids.long(job.id, job.ttl_minutes)

    def number_of(self, id: bytes) -> int:
        """Return the number of a job on this node, or NOT_AN_ID if `id` is not a job id."""
        number = self.foreign.get(id)
        if number is not None:
            return number
        return self.ids.parse_long(id) if id[:11] == self._prefix else NOT_AN_ID

    def find(self, id: bytes, now: i64) -> Job | None:
        """Return the job with this id if this node has it in a shared tube, or None.

        Jobs of tubes that live on one node only are not part of the protocol.
        """
        job = self._find(id, now)
        return job if job is not None and is_shared(self.engine.tube_of(job)) else None

    def lives_here_alone(self, id: bytes, now: i64) -> bool:
        """Return whether this node has the job in a tube that lives on this node only.

        There must be no copies of such a job.
        """
        job = self._find(id, now)
        return job is not None and not is_shared(self.engine.tube_of(job))

    def reject_if_moved(self, sender: bytes, id: bytes, now: i64) -> bool:
        """If the job is in a tube that lives on this node only, send DELJOB, so that `sender` deletes its copy.

        `sender` sent a message about the job, so it does not know that the job was moved to this tube. Return whether
        DELJOB was sent.
        """
        if not self.lives_here_alone(id, now):
            return False
        self.outbox.send(sender, JobMessage(DELJOB, id, MOVED_AWAY))
        return True

    def _find(self, id: bytes, now: i64) -> Job | None:
        number = self.number_of(id)
        return None if number == NOT_AN_ID else self.engine.find(number, now)

    def body_of(self, job: Job) -> bytes:
        """Return the body of a job, from memory or from disk."""
        body = job.body
        return body if isinstance(body, bytes) else self._body_of(job)

    def node(self, id: bytes) -> bytes:
        """Return a node id as one shared object, to save memory.

        The id of a node that is not a member is returned unchanged.
        """
        known = self._nodes.get(id)
        if known is not None:
            return known
        if self.members.is_member(id):
            self._nodes[id] = id
        return id

    def known_holders(self, holders: list[bytes]) -> list[bytes]:
        """Return the holders that messages to other nodes contain: those that have not left the cluster.

        A receiver that never met a former member does not know that it left, and would wait for its confirmation.
        """
        members = self.members
        if not members.past:
            return list(holders)
        return [node for node in holders if not members.has_left(node)]

    def describe(self, node: bytes) -> str:
        """Return a node's id and address, for messages to users."""
        peer = self.members.peers.get(node)
        where = "" if peer is None else f" at {peer.host}:{int(peer.port)}"
        return f"node {node.decode()}{where}"

    def send_all(self, nodes: list[bytes], message: Message) -> None:
        """Send a message to these nodes, except to this node itself."""
        for node in nodes:
            if node != self.myself:
                self.outbox.send(node, message)

    def broadcast(self, message: Message) -> None:
        """Send a message to every member to which a link is up."""
        for node in self.members.linked():
            self.outbox.send(node, message)

    def targets(self, taken: list[bytes], count: i64) -> list[bytes]:
        """Return up to `count` random nodes that jobs can be sent to and that are not in `taken`."""
        return [self.node(node) for node in self._some(self._untaken(taken), count)]

    def copy_targets(self, taken: list[bytes], count: i64, queue: bytes, now: i64) -> list[bytes]:
        """Return up to `count` random nodes for copies of jobs of `queue`. Nodes that refused such copies come last."""
        found = self._untaken(taken)
        refusing = [node for node in found if self.refusals.refuses(node, queue, now)]
        chosen = self._some([node for node in found if node not in refusing], count)
        chosen += self._some(refusing, count - len(chosen))
        return [self.node(node) for node in chosen]

    def _untaken(self, taken: list[bytes]) -> list[bytes]:
        members = self.members
        return [node for node in members.reachable() if node not in taken and members.has_greeted(node)]

    def _some(self, nodes: list[bytes], count: i64) -> list[bytes]:
        most: i64 = len(nodes)
        if count < most:
            for at in range(count):
                other = at + self.random.below(most - at)
                nodes[at], nodes[other] = nodes[other], nodes[at]
            del nodes[count:]
        return nodes

    def accepting(self, queue: bytes, now: i64) -> list[bytes]:
        """Return the other nodes that are expected to accept a copy of a job of `queue`."""
        answering = self.members.answering(now)
        return [node for node in answering if not self.refusals.refuses(node, queue, now)]

    def can_take(self, node: bytes) -> bool:
        """Return whether jobs can be sent to a node that asks for jobs.

        The link to the node must be up and confirmed by a greeting, and the node must not be leaving.
        """
        peer = self.members.peers.get(node)
        return peer is not None and self.members.has_greeted(node) and not peer.flags & NODE_LEAVING

    def is_short_of_memory(self) -> bool:
        """Return whether this node has too little memory for copies."""
        engine = self.engine
        if engine.memory_max == NEVER or engine.spills:
            return False
        return engine.memory_used() > engine.memory_max // 100 * SHORT_PERCENT

    def keeps_nothing(self) -> bool:
        """Return whether this node keeps no copies of new jobs, because it is leaving or short of memory.

        A node that is the only member keeps them even if it is short of memory.
        """
        members = self.members
        return members.leaving or (len(members.peers) > 0 and self.is_short_of_memory() and members.size() > 1)

    def home_of(self, name: bytes) -> bytes:
        """Return the other node that a tube lives on, or that is allowed to create it. Return b"" if none is known."""
        node = self.homes.get(name)
        return node if node is not None and node in self.members.peers else b""

    def shared_tube(self, name: bytes, now: i64) -> Tube | None:
        """Return the shared queue `name`. Create it if it does not exist.

        Return None if the queue cannot be created. Also return None if it lives on one node only, because it cannot
        contain jobs of other nodes then.
        """
        tube = self.engine.tubes.get(name)
        if tube is None:
            if self.home_of(name):
                return None
            try:
                tube = self.engine.create_tube(name, DISQUE, now)
            except CommandError:
                return None
        return tube if is_shared(tube) else None

    def jitter(self) -> i64:
        """Return a random time from -250 to 250 ms.

        It is added to timers, so that they do not all fire at the same time.
        """
        return self.random.below(2 * _JITTER_MS) - _JITTER_MS


def backoff_ms(first_ms: i64, doublings: i64, most_ms: i64) -> i64:
    """Return `first_ms` doubled `doublings` times, at most ten times, and limited to `most_ms`."""
    return min(first_ms << min(doublings, 10), most_ms)


def fingerprint(holders: list[bytes]) -> i64:
    """Return a number that identifies a set of holders, independent of their order. 0 means no holders."""
    mixed = 0
    for node in holders:
        mixed ^= zlib.crc32(node)
    return len(holders) << 32 | mixed


def retry_ms(job: Job) -> i64:
    """Return how long after its delivery a job is queued again."""
    return job.ttr if job.ttr < DURATION_MS_MAX else DURATION_MS_MAX


def has_others(copy: Copy) -> bool:
    return len(copy.holders) > 1
