"""Who is in the cluster, where, and who of them can be reached: gossip, as Disque has it.

A node is met by its address, or heard of from another; it is a member once our link to it is up and it has spoken to us
over a link of its own, so that both ways are known to work. Nodes greet each other (PING, answered by PONG) and tell
each time what they have heard of others. Who owes an answer for longer than the node timeout is suspected; who is
suspected by most is failed; any answer clears both. Answers travel on the answering node's own link, as all messages
do: a node that hears us and cannot speak to us does not count as reachable, since it could not confirm a copy either.

What differs from Disque: an address that the operator names is tried for a minute at least; a node whose address
answers with another id is no target, and is forgotten when it has not shown up elsewhere for two timeouts; and a node
that stood still itself asks again before it suspects anybody. A node has an epoch, which is raised when a standby
becomes it: of two that are the same node, the one in the lesser epoch is not talked to, and hears that it was
replaced.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.chance import Chance
from penstock.cluster.mail import Mail
from penstock.cluster.messages import (
    FAIL,
    MEET,
    NODE_CONDITION,
    NODE_FAILED,
    NODE_LEAVING,
    NODE_SUSPECTED,
    PING,
    PONG,
    Greeting,
    Message,
    OfNode,
    Rumour,
)
from penstock.cluster.peers import HANDSHAKE, NOADDR, Peer
from penstock.core.limits import NEVER

TIMEOUT_MS: Final = 15_000

# A node that was forgotten is not learned of again for so long, so that it can be forgotten on all nodes one by one.
FORGOTTEN_MS: Final = 60_000

# For how long an address that the operator named is tried, where the timeout is not longer: whoever is there may stand
# still, or be starting, and read a long journal before it opens its doors.
MEET_MS: Final = 60_000

# A link that was lost is opened again at once. If it is not back after this time, nobody waits for its node.
UNLINKED_MS: Final = 200

# How many nodes a table may have. Each links to each: with so many a greeting a second each is still no burden.
NODES_MAX: Final = 1_024

# How many unknown addresses are tried at a time: gossip from a node gone mad must not make us knock on every door.
HANDSHAKES_MAX: Final = 64

# How many others a greeting tells of: all of them in a small cluster, so that news travel in one step, else a tenth.
RUMOURS_MIN: Final = 10

# One of so many chosen at random is greeted every second: the one that was quiet for longest.
_CANDIDATES: Final = 5
_GREET_MS: Final = 1_000

# How often the table is looked over: a tenth of the timeout, within these.
_TICK_MS_MIN: Final = 100
_TICK_MS_MAX: Final = 1_000

# Of how many nodes that are not known any more something is remembered: that they were, in which epoch, and that the
# operator has given them up.
_PAST_MAX: Final = NODES_MAX

# What is learned from a node, whose word alone moves nobody else.
_FAILING: Final = NODE_SUSPECTED | NODE_FAILED


class Members:
    """The table of nodes, and how it comes to agree with that of the others."""

    myself: bytes
    epoch: i64  # Greater each time that a standby becomes this node.
    superseded: i64  # In which greater epoch another is this node now; 0: none is.
    memory: bytes  # Changes whenever this node forgot its jobs.
    host: str  # Where this node is, as far as it knows.
    announced: str  # Where it says it is; empty: wherever it is seen to come from.
    port: i64
    bus_port: i64
    leaving: bool
    condition: i64  # Why this node does not accept copies now: bits of NODE_CONDITION.
    timeout_ms: i64
    peers: dict[bytes, Peer]
    changes: i64  # Raised when something changed that has to survive a restart.
    moves: i64  # Raised when there is another address to link to, or one fewer, or a link to be opened anew.
    past: dict[bytes, i64]  # Members of before, with their epochs: none comes back in a lesser one.
    given_up: list[bytes]  # Whom the operator has told this node to forget, as long as they have not come back.
    strangers: i64  # How many messages came from nodes that are not known here.
    next_due: i64
    _mail: Mail
    _chance: Chance
    _forgotten: dict[bytes, i64]  # Until when.
    _stale: list[bytes]
    _unmet: list[Peer]
    _looked: i64  # When the table was looked over last.
    _greeted: i64  # When somebody was greeted at random.

    def __init__(self, myself: bytes, memory: bytes, entropy: int, mail: Mail, timeout_ms: int = TIMEOUT_MS) -> None:
        self.myself = myself
        self.epoch = 0
        self.superseded = 0
        self.memory = memory
        self.host = ""
        self.announced = ""
        self.port = 0
        self.bus_port = 0
        self.leaving = False
        self.condition = 0
        self.timeout_ms = timeout_ms
        self.peers = {}
        self.changes = 0
        self.moves = 0
        self.past = {}
        self.given_up = []
        self.strangers = 0
        self.next_due = NEVER
        self._mail = mail
        self._chance = Chance(entropy)
        self._forgotten = {}
        self._stale = []
        self._unmet = []
        self._looked = 0
        self._greeted = 0

    # What others ask

    def reachable(self) -> list[bytes]:
        """The nodes that can be given jobs, by their ids; not this one."""
        return [peer.id for peer in self.peers.values() if peer.is_reachable()]

    def answering(self, now: i64) -> list[bytes]:
        """Return the nodes that can be given jobs and can answer: links to them are up, or were lost just now.

        A node that was killed stays reachable until the node timeout is over. Its link is gone at once.
        """
        return [
            peer.id
            for peer in self.peers.values()
            if peer.is_reachable() and (peer.linked or now - peer.unlinked_at < UNLINKED_MS)
        ]

    def reachable_count(self) -> int:
        """How many they are. Every put asks, and most nodes are alone."""
        return len(self.reachable()) if self.peers else 0

    def linked(self) -> list[bytes]:
        """The members that we have a link to: who a broadcast goes to."""
        return [peer.id for peer in self.peers.values() if peer.linked and peer.is_member()]

    def everybody(self) -> list[bytes]:
        """All members, dead or alive; this node is one."""
        return [self.myself, *[peer.id for peer in self.peers.values() if peer.is_member()]]

    def is_linked(self, node: bytes) -> bool:
        """Whether something that is said to a node now has a chance to be heard."""
        peer = self.peers.get(node)
        return peer is not None and peer.linked

    def has_greeted(self, node: bytes) -> bool:
        """Return whether our link to a node is up and a greeting has confirmed the incarnation at its other end."""
        peer = self.peers.get(node)
        return peer is not None and peer.linked and peer.greeted

    def is_member(self, node: bytes) -> bool:
        """Whether a node is one of us, dead or alive: from others nothing about jobs is believed."""
        peer = self.peers.get(node)
        return peer is not None and peer.is_member()

    def is_leaving(self, node: bytes) -> bool:
        """Return whether another node is leaving the cluster."""
        peer = self.peers.get(node)
        return peer is not None and bool(peer.flags & NODE_LEAVING)

    def has_left(self, node: bytes) -> bool:
        """Whether a node was one of us, and is no more. Of others whom we do not know, others may."""
        return node in self.past and not self.is_member(node)

    def size(self) -> int:
        """How many members the cluster has, dead or alive; this node is one."""
        return 1 + sum([1 for peer in self.peers.values() if peer.is_member()])

    def memory_of(self, node: bytes) -> bytes:
        """Return the incarnation of a node, or nothing until a greeting has confirmed it.

        A node that lost its jobs has another one.
        """
        peer = self.peers.get(node)
        return b"" if peer is None or not peer.greeted else peer.memory

    def epoch_of(self, node: bytes) -> i64:
        """The greatest epoch that is known of a node, which may be this one."""
        if node == self.myself:
            return self.epoch
        peer = self.peers.get(node)
        return self.past.get(node, 0) if peer is None else peer.epoch

    def to_connect(self) -> list[Peer]:
        """Whom the shell should hold links to."""
        return [peer for peer in self.peers.values() if not peer.flags & NOADDR]

    def take_stale(self) -> list[bytes]:
        """The nodes whose links say nothing any more, or lead elsewhere: the shell should open others."""
        stale, self._stale = self._stale, []
        return stale

    def take_unmet(self) -> list[Peer]:
        """The addresses that the operator named, and where nobody was met in time: the shell should say so."""
        unmet, self._unmet = self._unmet, []
        return unmet

    def _drop_link(self, peer: Peer) -> None:
        """Let the shell open another link to a node."""
        self._stale.append(peer.id)
        self.moves += 1

    def failure_reports(self, node: bytes, now: i64) -> int:
        """How many other nodes have said lately that they cannot reach one."""
        peer = self.peers.get(node)
        return 0 if peer is None else self._reports(peer, 0, now)

    # What the operator says

    def meet(self, host: str, port: i64, bus_port: i64, now: i64) -> bool:
        """Get to know whoever is at an address. False if too many are being met just now."""
        for peer in self.peers.values():
            if peer.host == host and peer.bus_port == bus_port and not peer.flags & NOADDR:
                peer.invited = True
                if not peer.is_member():
                    # It was being met already, and gets as much time as if it were not.
                    peer.added = now
                if peer.linked:
                    self._greet(peer, MEET, now)
                return True
        peer = Peer(self._chance.name(), host, port, bus_port, HANDSHAKE, now)
        peer.invited = True
        return self._add(peer, now)

    def forget(self, node: bytes, now: i64) -> bool:
        """Let a node be none of us, and do not learn of it again for a while; tell whether it was one."""
        if node not in self.peers:
            return False
        self._remove(node)
        self._forgotten[node] = now + FORGOTTEN_MS
        self.changes += 1
        return True

    def give_up(self, node: bytes, now: i64) -> bool:
        """The operator says that a node will not come back: forget it, and remember that; tell whether it was one."""
        if not self.forget(node, now):
            return False
        self.given_up = [*[each for each in self.given_up if each != node], node][-_PAST_MAX:]
        return True

    def reset(self, myself: bytes) -> None:
        """Know nobody, and be somebody, the one before or another."""
        if myself != self.myself:
            self.epoch = 0
        self.myself = myself
        for node in list(self.peers):
            self._remove(node)
        self.past = {}
        self.given_up = []
        self._forgotten = {}
        self.changes += 1

    def raise_epoch(self, node: bytes, epoch: i64, now: i64) -> bool:
        """A standby is about to become a node, in an epoch; tell whether that is one that nobody has had yet."""
        if epoch <= self.epoch_of(node):
            return False
        peer = self.peers.get(node)
        if node == self.myself:
            self._hear_of_myself(epoch)
        elif peer is not None:
            self._renew(peer, epoch)
            self._spread(peer, now)
        else:
            self._remember(node, epoch)
        return True

    def set_leaving(self, leaving: bool, now: i64) -> None:
        """Leave, or stay; everybody is told at once."""
        self.leaving = leaving
        self.changes += 1
        self._greet_all(now)

    def set_condition(self, condition: i64, now: i64) -> None:
        """Announce why this node does not accept copies, at once if that has changed."""
        if condition != self.condition:
            self.condition = condition
            self._greet_all(now)

    def set_incarnation(self, incarnation: bytes, now: i64) -> None:
        """Announce the incarnation at once if it has changed. Peers then open other links to this node."""
        if incarnation != self.memory:
            self.memory = incarnation
            self._greet_all(now)

    def _greet_all(self, now: i64) -> None:
        for peer in self.peers.values():
            if peer.linked:
                self._greet(peer, PING, now)

    def restore(self, peers: list[Peer], now: i64, past: dict[bytes, i64] | None = None) -> None:
        """Know those whom the table knew before this start. Who was failing has to answer before it counts again."""
        if past is not None:
            self.past = past
        for peer in peers:
            peer.added = peer.unlinked_at = now
            if peer.flags & NOADDR:
                peer.lost_at = now
            self.peers[peer.id] = peer
        self._look_from(now)
        self.moves += 1

    # What the shell tells

    def introduced(self, node: bytes, epoch: i64, known: i64) -> bool:
        """A node has proven who it is, and in which epoch; it knows this one in another. Tell whether to talk to it."""
        self._hear_of_myself(known)
        if node == self.myself:
            self._hear_of_myself(epoch)
            return epoch == self.epoch
        if epoch < self.epoch_of(node):
            return False
        peer = self.peers.get(node)
        if peer is not None and epoch > peer.epoch:
            self._renew(peer, epoch)
        return True

    def _hear_of_myself(self, epoch: i64) -> None:
        """Somebody knows this node in an epoch."""
        if epoch > self.epoch:
            self.superseded = max(self.superseded, epoch)

    def _renew(self, peer: Peer, epoch: i64) -> None:
        """Another is a node from now on: what is known of the one before, and leads there, is past."""
        peer.epoch = epoch
        peer.flags &= ~NODE_CONDITION
        peer.heard = False
        peer.reports.clear()
        if peer.linked:
            self._drop_link(peer)
        self.changes += 1

    def link_up(self, named: bytes, found: bytes, incarnation: bytes, now: i64) -> bool:
        """Our link to the node `named` is up. Return whether the link is of use; it then is the link to `found`.

        `found` and `incarnation` are what the process at the other end has proven to be in the handshake.
        """
        peer = self.peers.get(named)
        if peer is None:
            return False
        if named != found:
            if not self._is_somebody_else(peer, found, now):
                return False
        peer.linked = True
        peer.linked_at = now
        # The node may have noted its incarnation in its log only now. Its greetings leave when the note is durable.
        peer.memory = incarnation
        peer.greeted = False
        self._greet(peer, MEET if peer.invited else PING, now)
        self._become_member(peer, now)
        return True

    def link_down(self, node: bytes, now: i64) -> None:
        """Our link to a node is gone; which alone says nothing about the node."""
        peer = self.peers.get(node)
        if peer is not None:
            peer.linked = False
            peer.unlinked_at = now

    def receive(self, sender: bytes, message: Message, now: i64) -> None:
        """Hear what a node says about nodes."""
        if isinstance(message, Greeting):
            self._receive_greeting(sender, message, now)
        elif isinstance(message, OfNode):
            self._receive_failure(sender, message.node, now)

    def advance(self, now: i64) -> None:
        """Let time pass: greet, suspect, give up."""
        if now < self.next_due:
            return
        slept = now - self._looked > self.timeout_ms // 2 + self._tick_ms()
        self._look_from(now)
        for peer in list(self.peers.values()):
            if slept:
                # We may have slept through its answer, or through the time in which we were to meet.
                peer.added = now
                if peer.ping_sent:
                    peer.ping_sent = now
            self._look_at(peer, now)
        for node, until in list(self._forgotten.items()):
            if until <= now:
                del self._forgotten[node]
        if now - self._greeted >= _GREET_MS:
            self._greeted = now
            self._greet_the_quietest(now)

    # Meeting

    def _add(self, peer: Peer, now: i64) -> bool:
        if len(self.peers) >= NODES_MAX or self._handshakes() >= HANDSHAKES_MAX:
            return False
        peer.epoch = max(peer.epoch, self.past.get(peer.id, 0))
        self.peers[peer.id] = peer
        self.moves += 1
        if self.next_due == NEVER:
            self._look_from(now)
        return True

    def _handshakes(self) -> int:
        return sum([1 for peer in self.peers.values() if not peer.is_member()])

    def _remove(self, node: bytes) -> None:
        peer = self.peers.pop(node)
        if peer.is_member() or peer.epoch:
            self._remember(node, peer.epoch)
        self.moves += 1

    def _remember(self, node: bytes, epoch: i64) -> None:
        """Keep the epoch of a node that is not in the table."""
        self.past.pop(node, None)
        self.past[node] = epoch
        if len(self.past) > _PAST_MAX:
            del self.past[next(iter(self.past))]
        self.changes += 1

    def _is_somebody_else(self, peer: Peer, found: bytes, now: i64) -> bool:
        """At a peer's address answers somebody whom we did not expect. Tell whether that is the peer from now on."""
        if peer.is_member():
            # It was reset, or moved and its address was given to another. In the latter case it will greet us.
            peer.flags |= NOADDR
            if not peer.lost_at:
                peer.lost_at = now
            self.changes += 1
            self.moves += 1
            if peer.invited:
                # The operator meant whoever is there now.
                peer.invited = False
                self.meet(peer.host, peer.port, peer.bus_port, now)
            return False
        self._remove(peer.id)
        if found == self.myself or not peer.invited:
            return False
        known = self.peers.get(found)
        if known is not None:
            # We know it already. It may not know us, or we not where it is now.
            known.invited = True
            if known.linked:
                self._greet(known, MEET, now)
            else:
                self._move(known, peer.host, peer.port, peer.bus_port)
            return False
        self._forgotten.pop(found, None)
        peer.id = found
        peer.epoch = self.past.get(found, 0)
        self.peers[found] = peer
        return True

    def _become_member(self, peer: Peer, now: i64) -> None:
        """Let a node be one of us once both ways work; others hear of it at once."""
        if peer.is_member() or not (peer.linked and peer.heard):
            return
        peer.flags &= ~HANDSHAKE
        peer.pong_received = now
        self.past.pop(peer.id, None)
        if peer.id in self.given_up:
            self.given_up.remove(peer.id)
        self.changes += 1
        self._spread(peer, now)

    def _spread(self, news: Peer, now: i64) -> None:
        """Let some others hear at once what has become of a node."""
        others = [peer for peer in self.peers.values() if peer.linked and peer is not news]
        for peer in self._some(others, RUMOURS_MIN):
            self._greet(peer, PING, now)

    def _move(self, peer: Peer, host: str, port: i64, bus_port: i64) -> None:
        """A node is somewhere else now."""
        if peer.is_at(host, port, bus_port) and not peer.flags & NOADDR:
            return
        peer.host = host
        peer.port = port
        peer.bus_port = bus_port
        peer.flags &= ~NOADDR
        if peer.linked:
            self._drop_link(peer)
        self.changes += 1
        self.moves += 1

    # Greetings

    def _greet(self, peer: Peer, kind: i64, now: i64) -> None:
        """Say that we are here, and what we have heard."""
        if kind != PONG:
            peer.asked = now
            if not peer.ping_sent:
                peer.ping_sent = now
        flags = self.condition | (NODE_LEAVING if self.leaving else 0)
        rumours = self._rumours(peer)
        greeting = Greeting(kind, self.announced, self.port, self.bus_port, flags, self.memory, rumours, self.epoch)
        self._mail.send(peer.id, greeting)

    def _rumours(self, listener: Peer) -> list[Rumour]:
        """What to tell of others: first of those who fail, since only many reports make it known."""
        told = []
        fine = []
        for peer in self.peers.values():
            if peer is listener or peer.flags & (HANDSHAKE | NOADDR):
                continue
            if peer.is_failing():
                told.append(peer)
            else:
                fine.append(peer)
        most = max(RUMOURS_MIN, len(self.peers) // 10)
        told = self._some(told, most)
        return [peer.rumour() for peer in told + self._some(fine, most - len(told))]

    def _some(self, peers: list[Peer], most: i64) -> list[Peer]:
        """So many of them, by chance; all, where there are no more."""
        size: i64 = len(peers)
        if size <= most:
            return peers
        for at in range(most):
            other = at + self._chance.below(size - at)
            peers[at], peers[other] = peers[other], peers[at]
        return peers[:most]

    def _receive_greeting(self, sender: bytes, said: Greeting, now: i64) -> None:
        peer = self.peers.get(sender)
        if not self.introduced(sender, said.epoch, 0):
            self.strangers += 1
            return
        if peer is None:
            if said.kind != MEET or sender == self.myself:
                self.strangers += 1
                return
            peer = Peer(sender, said.host, said.port, said.bus_port, HANDSHAKE, now, said.epoch)
            if not self._add(peer, now):
                return
            # Somebody wants it back.
            self._forgotten.pop(sender, None)
        peer.heard = True
        self._compare_incarnation(peer, said.memory)
        self._move(peer, said.host, said.port, said.bus_port)
        if (peer.flags ^ said.flags) & NODE_LEAVING:
            peer.flags ^= NODE_LEAVING
            self.changes += 1
        peer.flags = peer.flags & ~NODE_CONDITION | said.flags & NODE_CONDITION
        if said.kind == PONG:
            self._is_alive(peer, now)
        else:
            self._greet(peer, PONG, now)
        self._become_member(peer, now)
        for rumour in said.rumours:
            self._hear(peer, rumour, now)

    def _compare_incarnation(self, peer: Peer, incarnation: bytes) -> None:
        """Compare the incarnation in a greeting with that of the process at the other end of our link.

        Links of both directions are independent. So the greeting may be the last one of a process that was killed, and
        our link may lead to its successor; or our link leads to the process that was killed, and the greeting is from
        its successor; or the node lost its jobs while it was running. The greeting does not tell which. A new handshake
        does: the link is dropped, and jobs are handed over again when a greeting confirms what that handshake named. A
        process that was killed has a few greetings under way at most, so this ends.
        """
        if not peer.linked:
            return
        if incarnation == peer.memory:
            peer.greeted = True
        elif peer.memory:
            peer.memory = b""
            peer.greeted = False
            self._drop_link(peer)

    def _is_alive(self, peer: Peer, now: i64) -> None:
        """A node has answered us."""
        peer.ping_sent = 0
        peer.pong_received = now
        peer.lost_at = 0
        peer.invited = False
        if peer.is_failing():
            peer.flags &= ~_FAILING
            self.changes += 1

    def _hear(self, sender: Peer, rumour: Rumour, now: i64) -> None:
        """Hear what a node has to say about another one."""
        node, epoch = rumour.node, rumour.epoch
        if node == self.myself:
            self._hear_of_myself(epoch)
            return
        if epoch < self.epoch_of(node):
            # Old news: of one that was replaced since.
            return
        peer = self.peers.get(node)
        if peer is None:
            if node not in self._forgotten and not rumour.flags & _FAILING:
                self._add(Peer(node, rumour.host, rumour.port, rumour.bus_port, HANDSHAKE, now, epoch), now)
        elif epoch > peer.epoch:
            self._renew(peer, epoch)
            self._move(peer, rumour.host, rumour.port, rumour.bus_port)
        elif peer is not sender and peer.is_member() and sender.is_member():
            if rumour.flags & _FAILING:
                peer.reports[sender.id] = now
                self._judge(peer, now)
            else:
                peer.reports.pop(sender.id, None)
                if not peer.linked and (peer.is_failing() or peer.flags & NOADDR):
                    # Others reach it: perhaps where they do, we can.
                    self._move(peer, rumour.host, rumour.port, rumour.bus_port)

    def _greet_the_quietest(self, now: i64) -> None:
        """Greet one at random, rather one of whom we have not heard for long."""
        idle = [peer for peer in self.peers.values() if peer.linked and not peer.ping_sent]
        quietest: Peer | None = None
        for peer in self._some(idle, _CANDIDATES):
            if quietest is None or peer.pong_received < quietest.pong_received:
                quietest = peer
        if quietest is not None:
            self._greet(quietest, PING, now)

    # Failures

    def _tick_ms(self) -> i64:
        return max(_TICK_MS_MIN, min(self.timeout_ms // 10, _TICK_MS_MAX))

    def _look_from(self, now: i64) -> None:
        """The table was looked over: again in a while, if there is anybody in it."""
        self._looked = now
        self.next_due = now + self._tick_ms() if self.peers or self._forgotten else NEVER

    def _look_at(self, peer: Peer, now: i64) -> None:
        timeout = self.timeout_ms
        if not peer.is_member():
            if now - peer.added > max(timeout, MEET_MS if peer.invited else 1_000):
                self._remove(peer.id)
                if peer.invited:
                    self._unmet.append(peer)
            elif peer.linked:
                self._greet(peer, MEET if peer.invited else PING, now)
            return
        if peer.lost_at and now - peer.lost_at > 2 * timeout:
            self.forget(peer.id, now)
            return
        if not peer.ping_sent:
            if not peer.linked:
                # It could not be asked, which is as good as asked.
                peer.ping_sent = now
            elif now - peer.pong_received > timeout // 2:
                self._greet(peer, PING, now)
            return
        owing = now - peer.ping_sent
        if peer.linked:
            if owing > timeout // 2 and now - peer.linked_at > timeout:
                self._drop_link(peer)
                peer.linked_at = now
            elif now - peer.asked > timeout // 8:
                self._greet(peer, PING, now)
        if owing > timeout and not peer.is_failing():
            peer.flags |= NODE_SUSPECTED
            self.changes += 1
            self._spread(peer, now)
        self._judge(peer, now)

    def _judge(self, peer: Peer, now: i64) -> None:
        """Let a node that we suspect be failed if most of us do.

        What others said before it owed us an answer may be of troubles that are over: whoever is cut off from all has
        heard of some, and would call everybody failed.
        """
        if not peer.flags & NODE_SUSPECTED or 1 + self._reports(peer, peer.ping_sent, now) <= self.size() // 2:
            return
        self._set_failed(peer)
        for each in self.peers.values():
            if each.linked and each.is_member():
                self._mail.send(each.id, OfNode(FAIL, peer.id))

    def _set_failed(self, peer: Peer) -> None:
        peer.flags = peer.flags & ~NODE_SUSPECTED | NODE_FAILED
        self.changes += 1

    def _reports(self, peer: Peer, since: i64, now: i64) -> int:
        """How many others suspect it and have said so lately, and since a moment."""
        reports = peer.reports
        for node, when in list(reports.items()):
            if now - when > 2 * self.timeout_ms or node not in self.peers:
                del reports[node]
        return len([when for when in reports.values() if when >= since])

    def _receive_failure(self, sender: bytes, node: bytes, now: i64) -> None:
        peer = self.peers.get(node)
        if not self.is_member(sender):
            self.strangers += 1
        elif peer is not None and peer.is_member() and not peer.flags & NODE_FAILED:
            self._set_failed(peer)
            if peer.linked:
                # If it can hear us after all, its answer clears this.
                self._greet(peer, PING, now)
