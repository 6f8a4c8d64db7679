"""The node as the mechanisms of the cluster see it: who it is, its engine, the other nodes, and what it tells them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.cluster.chance import Chance
from penstock.cluster.lately import Lately
from penstock.cluster.mail import Mail
from penstock.cluster.members import Members
from penstock.cluster.messages import NODE_LEAVING, Message
from penstock.cluster.refusals import Refusals
from penstock.core.copying import is_shared
from penstock.core.deadlines import Deadlines
from penstock.core.engine import Engine
from penstock.core.errors import CommandError
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.job import Copy, Job
from penstock.core.limits import DURATION_MS_MAX, NEVER
from penstock.core.policy import DISQUE
from penstock.core.tube import Tube

# Of which part of its memory on a node takes no more copies, percent. Where bodies can be left on disk, none.
SHORT_PERCENT: Final = 75

# Timers on several nodes that were set by one message must not all fire at once.
_JITTER_MS: Final = 250


class Place:
    """What all mechanisms work on."""

    engine: Engine
    ids: IdForms
    myself: bytes
    mail: Mail
    members: Members
    chance: Chance
    deadlines: Deadlines  # Of everything that the cluster waits for, beside those of jobs.
    foreign: dict[bytes, int]  # Jobs that were made elsewhere, by their 40-character ids: their numbers here.
    lately: Lately  # Jobs that were acknowledged or deleted everywhere.
    heirs: Lately  # Jobs that were handed over.
    homes: dict[bytes, bytes]  # Tubes that live on one node, which is another one, and on which: homes.py.
    refusals: Refusals  # Nodes that do not hold copies at present.
    quiet: bool  # What happens to jobs just now was said by another node: nobody is told.
    _prefix: bytes  # Of the ids of jobs that were made here.
    _nodes: dict[bytes, bytes]  # The ids of nodes, one object each.
    _body_of: Callable[[Job], bytes]

    def __init__(
        self,
        engine: Engine,
        ids: IdForms,
        myself: bytes,
        members: Members,
        mail: Mail,
        entropy: int,
        body_of: Callable[[Job], bytes],
    ) -> None:
        self.engine = engine
        self.ids = ids
        self.myself = myself
        self.members = members
        self.mail = mail
        self.chance = Chance(entropy)
        self.deadlines = Deadlines()
        self.foreign = {}
        self.lately = Lately()
        self.heirs = Lately()
        self.homes = {}
        self.refusals = Refusals()
        self.quiet = False
        self._prefix = b"D-" + myself[:8] + b"-"
        self._nodes = {myself: myself}
        self._body_of = body_of

    def rename(self, myself: bytes) -> None:
        """Be another node from now on; `ids` are its ids already."""
        self.myself = myself
        self._prefix = b"D-" + myself[:8] + b"-"
        self._nodes = {myself: myself}

    def id_of(self, job: Job) -> bytes:
        """The id of a job in 40 characters, the same on every node."""
        copy = job.copy()
        if copy is not None and copy.foreign:
            return copy.foreign
        return self.ids.long(job.id, job.ttl_minutes)

    def number_of(self, id: bytes) -> int:
        """The number of a job here, or NOT_AN_ID."""
        number = self.foreign.get(id)
        if number is not None:
            return number
        return self.ids.parse_long(id) if id[:11] == self._prefix else NOT_AN_ID

    def find(self, id: bytes, now: i64) -> Job | None:
        """The job of an id, if this node has it, as it is now. Jobs of tubes that live here are nobody else's."""
        job = self._find(id, now)
        return job if job is not None and is_shared(self.engine.tube_of(job)) else None

    def lives_here_alone(self, id: bytes, now: i64) -> bool:
        """Whether the job of an id is here, and in a tube that lives here: there are to be no copies of it."""
        job = self._find(id, now)
        return job is not None and not is_shared(self.engine.tube_of(job))

    def _find(self, id: bytes, now: i64) -> Job | None:
        number = self.number_of(id)
        return None if number == NOT_AN_ID else self.engine.find(number, now)

    def body_of(self, job: Job) -> bytes:
        """The body of a job, wherever it lives."""
        body = job.body
        return body if isinstance(body, bytes) else self._body_of(job)

    def node(self, id: bytes) -> bytes:
        """The id of a node, as the one object that stands for it; of those who are no members, just as it is."""
        known = self._nodes.get(id)
        if known is not None:
            return known
        if self.members.is_member(id):
            self._nodes[id] = id
        return id

    def to_name(self, holders: list[bytes]) -> list[bytes]:
        """The holders of a job that others are told of: who has never met those that have left would wait for them."""
        members = self.members
        if not members.past:
            return list(holders)
        return [node for node in holders if not members.has_left(node)]

    def shown(self, node: bytes) -> str:
        """A node for people: who it is, and where."""
        peer = self.members.peers.get(node)
        where = "" if peer is None else f" at {peer.host}:{int(peer.port)}"
        return f"node {node.decode()}{where}"

    def send_all(self, nodes: list[bytes], message: Message) -> None:
        """Say something to these nodes, but for ourselves."""
        for node in nodes:
            if node != self.myself:
                self.mail.send(node, message)

    def broadcast(self, message: Message) -> None:
        """Say something to every node that can hear us."""
        for node in self.members.linked():
            self.mail.send(node, message)

    def targets(self, taken: list[bytes], count: i64) -> list[bytes]:
        """Return up to `count` nodes that could be given jobs, and are not `taken`; by chance."""
        return [self.node(node) for node in self._some(self._untaken(taken), count)]

    def copy_targets(self, taken: list[bytes], count: i64, queue: bytes, now: i64) -> list[bytes]:
        """Return the same for copies of jobs of `queue`. Nodes that have refused such copies come last."""
        found = self._untaken(taken)
        refusing = [node for node in found if self.refusals.refuses(node, queue, now)]
        chosen = self._some([node for node in found if node not in refusing], count)
        chosen += self._some(refusing, count - len(chosen))
        return [self.node(node) for node in chosen]

    def _untaken(self, taken: list[bytes]) -> list[bytes]:
        members = self.members
        return [node for node in members.reachable() if node not in taken and members.has_greeted(node)]

    def _some(self, nodes: list[bytes], count: i64) -> list[bytes]:
        """Return `count` of these nodes by chance, or all if there are fewer."""
        most: i64 = len(nodes)
        if count < most:
            for at in range(count):
                other = at + self.chance.below(most - at)
                nodes[at], nodes[other] = nodes[other], nodes[at]
            del nodes[count:]
        return nodes

    def accepting(self, queue: bytes, now: i64) -> list[bytes]:
        """Return the other nodes that can be expected to hold a copy of a job of `queue`."""
        answering = self.members.answering(now)
        return [node for node in answering if not self.refusals.refuses(node, queue, now)]

    def can_take(self, node: bytes) -> bool:
        """Whether a node that asks for jobs could have them: it hears us, and does not leave."""
        peer = self.members.peers.get(node)
        return peer is not None and self.members.has_greeted(node) and not peer.flags & NODE_LEAVING

    def is_short(self) -> bool:
        """Whether there is too little memory for copies."""
        engine = self.engine
        if engine.memory_max == NEVER or engine.spills:
            return False
        return engine.memory_used() > engine.memory_max // 100 * SHORT_PERCENT

    def keeps_nothing(self) -> bool:
        """Whether this node keeps no copies of new jobs. One that is alone has nobody else to keep them."""
        members = self.members
        return members.leaving or (len(members.peers) > 0 and self.is_short() and members.size() > 1)

    def home_of(self, name: bytes) -> bytes:
        """The node that a tube which is not here lives on, or may be made on; empty if nobody is known to have it."""
        node = self.homes.get(name)
        return node if node is not None and node in self.members.peers else b""

    def shared_tube(self, name: bytes, now: i64) -> Tube | None:
        """The queue of a name, made if need be; None if jobs from elsewhere cannot be in it."""
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
        """A little more or less, so that timers do not fire together."""
        return self.chance.below(2 * _JITTER_MS) - _JITTER_MS


def fingerprint(holders: list[bytes]) -> i64:
    """A number that stands for a list of holders, in whatever order; 0 for none."""
    mixed = 0
    for node in holders:
        mixed ^= zlib.crc32(node)
    return len(holders) << 32 | mixed


def retry_ms(job: Job) -> i64:
    """How long after its delivery a job is queued again, where it is at all."""
    return job.ttr if job.ttr < DURATION_MS_MAX else DURATION_MS_MAX


def has_others(copy: Copy) -> bool:
    """Whether anybody else has a copy."""
    return len(copy.holders) > 1
