"""The table of nodes: which nodes are members, where they are, and which can be reached. It follows Disque's gossip.

Joining: a node is met by its address, or is named in a greeting. It becomes a member when our link to it is up and it
has greeted us over its own link, so that both directions are known to work.

Failures: nodes send PING, and the receiver answers PONG. Every greeting reports some other nodes. A node that owes an
answer for longer than the node timeout is *suspected*. A node that the majority suspects is *failed* (FAIL). Any answer
clears both. Each node sends all its messages, also its answers, on the link that it opened. A node that receives our
messages but cannot send to us therefore counts as unreachable, because it could not confirm a copy.

Differences from Disque:
- An address that the operator names gets MEET for at least a minute, and again after a restart. The node at the
  address may have this node as a member already. It then sends only PING. A PING does not add its sender to the
  table of the receiver, so this node has to send MEET.
- If another id answers at the address of a node, no jobs are sent to the node. If the node has not appeared at another
  address after two timeouts, it is removed. Gossip about it is then ignored for a minute, unless the gossip is about a
  standby that has replaced it: its epoch is greater, or this node knows the epoch but has not met the standby yet.
- A node whose own process was suspended sends PING again before it suspects others.
- A node has an epoch, which is raised when a standby takes it over. Of two processes with the same id, the one with the
  lower epoch is refused and is informed that it was replaced.
- A node has an incarnation, which changes when it loses its jobs. See `_compare_incarnation`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import (
    FAIL,
    MEET,
    NODE_CONDITION,
    NODE_FAILED,
    NODE_LEAVING,
    NODE_SUSPECTED,
    PING,
    PONG,
    FailMessage,
    Greeting,
    Message,
    Rumour,
)
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.peers import HANDSHAKE, NOADDR, Peer
from penstock.core.limits import NEVER
from penstock.core.random import Xorshift32

TIMEOUT_MS: Final = 15_000

# A node that was removed is not added again from greetings for this long, so that it can be removed on all nodes one by
# one.
FORGOTTEN_MS: Final = 60_000

# An address that the operator named is tried for at least this long. Its process may be suspended, or be reading a long
# journal before it opens its ports.
MEET_MS: Final = 60_000

# A lost link is opened again immediately. If it is not up after this time, other nodes are used instead.
UNLINKED_MS: Final = 200

# Every node has a link to every other one. With this many nodes, one greeting per second and node is still cheap.
NODES_MAX: Final = 1_024

# Limits the unknown addresses that are tried at a time, because a faulty node may report any number of them.
HANDSHAKES_MAX: Final = 64

# A greeting reports at least this many other nodes, and a tenth of a larger table. In a small cluster all nodes are
# reported, so news needs one step.
RUMOURS_MIN: Final = 10

# Every second, a few random nodes are compared, and the one whose last answer is oldest is greeted.
_CANDIDATES: Final = 5
_GREET_MS: Final = 1_000

# The table is checked every tenth of the timeout, within these limits.
_TICK_MS_MIN: Final = 100
_TICK_MS_MAX: Final = 1_000

# For this many former members, the epoch is kept, and whether the operator has given them up.
_PAST_MAX: Final = NODES_MAX

# Flags of a failing node. The report of one node has no effect here; reports of a majority have.
_FAILING: Final = NODE_SUSPECTED | NODE_FAILED


class Members:
    """The table of nodes, and the messages that keep it consistent with those of other nodes."""

    myself: bytes
    epoch: i64  # Raised each time a standby takes over this node.
    superseded: i64  # The higher epoch in which another process has taken over this node; 0: none has.
    incarnation: bytes  # The incarnation of this node. It changes when the node loses its jobs.
    host: str  # The address of this node, as far as it is known here.
    announced: str  # The address in greetings. Empty: receivers use the address that our links come from.
    port: i64
    bus_port: i64
    leaving: bool
    condition: i64  # Why this node does not accept copies now: bits of NODE_CONDITION.
    timeout_ms: i64
    peers: dict[bytes, Peer]
    changes: i64  # Raised by every change that has to survive a restart.
    moves: i64  # Raised when the set of links has to change: another address, a removed node, or a link to reopen.
    past: dict[bytes, i64]  # Epochs of former members. A former member is refused in a lower epoch.
    given_up: list[bytes]  # Former members that the operator has removed and that have not come back.
    unknown_senders: i64  # Counts messages from nodes that are not in the table.
    next_due: i64
    _outbox: PeerOutbox
    _random: Xorshift32
    _forgotten: dict[bytes, i64]  # Removed nodes, and until when greetings do not add them again.
    # Nodes that were removed because another node answers at their address, and until when greetings do not add them
    # again, unless a standby has replaced them.
    _displaced: dict[bytes, i64]
    _stale: list[bytes]
    _unmet: list[Peer]
    _checked_at: i64  # When the table was last checked.
    _greeted: i64  # When a random node was last greeted.

    def __init__(
        self, myself: bytes, memory: bytes, entropy: int, mail: PeerOutbox, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.myself = myself
        self.epoch = 0
        self.superseded = 0
        self.incarnation = memory
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
        self.unknown_senders = 0
        self.next_due = NEVER
        self._outbox = mail
        self._random = Xorshift32(entropy)
        self._forgotten = {}
        self._displaced = {}
        self._stale = []
        self._unmet = []
        self._checked_at = 0
        self._greeted = 0

    # Queries

    def reachable(self) -> list[bytes]:
        """Return the ids of the other nodes that jobs can be sent to."""
        return [peer.id for peer in self.peers.values() if peer.is_reachable()]

    def answering(self, now: i64) -> list[bytes]:
        """Return the nodes that jobs can be sent to, and whose link is up or was lost just now.

        A node that was killed counts as reachable until the node timeout is over, but its link is lost immediately.
        """
        return [
            peer.id
            for peer in self.peers.values()
            if peer.is_reachable() and (peer.linked or now - peer.unlinked_at < UNLINKED_MS)
        ]

    def reachable_count(self) -> int:
        """Return how many other nodes jobs can be sent to.

        Every put calls this, so it is fast for a node without peers.
        """
        return len(self.reachable()) if self.peers else 0

    def linked(self) -> list[bytes]:
        """Return the members to which this node's link is up. Broadcasts are sent to these."""
        return [peer.id for peer in self.peers.values() if peer.linked and peer.is_member()]

    def member_ids(self) -> list[bytes]:
        """Return the ids of all members, reachable or not, including this node."""
        return [self.myself, *[peer.id for peer in self.peers.values() if peer.is_member()]]

    def is_linked(self, node: bytes) -> bool:
        peer = self.peers.get(node)
        return peer is not None and peer.linked

    def has_greeted(self, node: bytes) -> bool:
        """Return whether our link to a node is up and a greeting has confirmed the incarnation of the node."""
        peer = self.peers.get(node)
        return peer is not None and peer.linked and peer.greeted

    def is_member(self, node: bytes) -> bool:
        """Return whether a node is a member, reachable or not. Messages about jobs are accepted from members only."""
        peer = self.peers.get(node)
        return peer is not None and peer.is_member()

    def is_leaving(self, node: bytes) -> bool:
        peer = self.peers.get(node)
        return peer is not None and bool(peer.flags & NODE_LEAVING)

    def has_left(self, node: bytes) -> bool:
        """Return whether a node was a member and has left. False for a node that this node never met."""
        return node in self.past and not self.is_member(node)

    def size(self) -> int:
        """Return the number of members, reachable or not, including this node."""
        return 1 + sum([1 for peer in self.peers.values() if peer.is_member()])

    def incarnation_of(self, node: bytes) -> bytes:
        """Return the incarnation of a node, or b"" until a greeting has confirmed it.

        The incarnation of a node changes when the node has lost its jobs.
        """
        peer = self.peers.get(node)
        return b"" if peer is None or not peer.greeted else peer.incarnation

    def epoch_of(self, node: bytes) -> i64:
        """Return the greatest known epoch of a node. `node` may be this node."""
        if node == self.myself:
            return self.epoch
        peer = self.peers.get(node)
        return self.past.get(node, 0) if peer is None else peer.epoch

    def to_connect(self) -> list[Peer]:
        """Return the peers that the server should have links to."""
        return [peer for peer in self.peers.values() if not peer.flags & NOADDR]

    def take_stale(self) -> list[bytes]:
        """Return the nodes whose links are dead or lead to the wrong process, and clear the list.

        The server opens these links again.
        """
        stale, self._stale = self._stale, []
        return stale

    def take_unmet(self) -> list[Peer]:
        """Return the addresses that the operator named and that did not answer in time, and clear the list.

        The server logs them.
        """
        unmet, self._unmet = self._unmet, []
        return unmet

    def _drop_link(self, peer: Peer) -> None:
        """Make the server close its link to a node and open a new one."""
        self._stale.append(peer.id)
        self.moves += 1

    def failure_reports(self, node: bytes, now: i64) -> int:
        """Return how many other nodes have recently reported that they cannot reach `node`."""
        peer = self.peers.get(node)
        return 0 if peer is None else self._reports(peer, 0, now)

    # Requests of the operator

    def meet(self, host: str, port: i64, bus_port: i64, now: i64) -> bool:
        """Start to meet the node at an address. Return False if too many nodes are being met already."""
        for peer in self.peers.values():
            if peer.host == host and peer.bus_port == bus_port and not peer.flags & NOADDR:
                self._invite(peer)
                if not peer.is_member():
                    # The node is being met already. The time starts again.
                    peer.added = now
                if peer.linked:
                    self._greet(peer, MEET, now)
                return True
        peer = Peer(self._random.node_id(), host, port, bus_port, HANDSHAKE, now)
        if not self._add(peer, now):
            return False
        self._invite(peer)
        return True

    def _invite(self, peer: Peer) -> None:
        """Send MEET to a peer until the peer answers, also after a restart of this node."""
        if not peer.invited:
            peer.invited = True
            self.changes += 1

    def forget(self, node: bytes, now: i64) -> bool:
        """Remove a node, and ignore reports about it for a minute. Return whether it was in the table."""
        if node not in self.peers:
            return False
        self._remove(node)
        self._forgotten[node] = now + FORGOTTEN_MS
        self.changes += 1
        return True

    def give_up(self, node: bytes, now: i64) -> bool:
        """Remove a node that will not come back, and record this permanently. Return whether it was in the table."""
        if not self.forget(node, now):
            return False
        self.given_up = [*[each for each in self.given_up if each != node], node][-_PAST_MAX:]
        return True

    def reset(self, myself: bytes) -> None:
        """Remove all peers. If `myself` differs from the id of this node, change the id to `myself`."""
        if myself != self.myself:
            self.epoch = 0
        self.myself = myself
        for node in list(self.peers):
            self._remove(node)
        self.past = {}
        self.given_up = []
        self._forgotten = {}
        self._displaced = {}
        self.changes += 1

    def raise_epoch(self, node: bytes, epoch: i64, now: i64) -> bool:
        """Record the epoch in which a standby takes over `node`.

        Return False if the epoch is not greater than the known one.
        """
        if epoch <= self.epoch_of(node):
            return False
        peer = self.peers.get(node)
        if node == self.myself:
            self._note_own_epoch(epoch)
        elif peer is not None:
            self._renew(peer, epoch)
            self._spread(peer, now)
        else:
            self._remember(node, epoch)
        return True

    def set_leaving(self, leaving: bool, now: i64) -> None:
        """Start or stop leaving, and announce it to all peers."""
        self.leaving = leaving
        self.changes += 1
        self._greet_all(now)

    def set_condition(self, condition: i64, now: i64) -> None:
        """Set why this node does not accept copies, and announce it if it has changed."""
        if condition != self.condition:
            self.condition = condition
            self._greet_all(now)

    def set_incarnation(self, incarnation: bytes, now: i64) -> None:
        """Set the incarnation, and announce it if it has changed. Peers then open their links to this node again."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self._greet_all(now)

    def _greet_all(self, now: i64) -> None:
        for peer in self.peers.values():
            if peer.linked:
                self._greet(peer, PING, now)

    def restore(self, peers: list[Peer], now: i64, past: dict[bytes, i64] | None = None) -> None:
        """Fill the table from the file of the last run. `past` are the epochs of former members.

        Nodes that were failing have to answer before they count as reachable.
        """
        if past is not None:
            self.past = past
        for peer in peers:
            peer.added = peer.unlinked_at = now
            if peer.flags & NOADDR:
                peer.lost_at = now
            self.peers[peer.id] = peer
        self._schedule_check(now)
        self.moves += 1

    # Events of links and time

    def accept_epoch(self, node: bytes, epoch: i64, known: i64) -> bool:
        """Return whether to accept a connection from a node that has proven its identity.

        `epoch` is the epoch of that node. `known` is the greatest epoch of this node that the other node has seen.
        """
        self._note_own_epoch(known)
        if node == self.myself:
            self._note_own_epoch(epoch)
            return epoch == self.epoch
        if epoch < self.epoch_of(node):
            return False
        peer = self.peers.get(node)
        if peer is not None and epoch > peer.epoch:
            self._renew(peer, epoch)
        return True

    def _note_own_epoch(self, epoch: i64) -> None:
        """Record an epoch of this node that another node has seen.

        A greater epoch means that a standby replaced this node.
        """
        if epoch > self.epoch:
            self.superseded = max(self.superseded, epoch)

    def _renew(self, peer: Peer, epoch: i64) -> None:
        """Record that a standby has replaced a node, with the greater `epoch`.

        Drop the link to the earlier process, and the failure reports about it.
        """
        assert epoch > peer.epoch, "the epoch of a node only rises"
        peer.epoch = epoch
        peer.flags &= ~NODE_CONDITION
        peer.has_spoken = False
        peer.reports.clear()
        if peer.linked:
            self._drop_link(peer)
        self.changes += 1

    def link_up(self, named: bytes, found: bytes, incarnation: bytes, now: i64) -> bool:
        """Record that our link to the node `named` is up. Return whether the link can be used.

        `found` and `incarnation` are the id and the incarnation that the process at the other end has proven in the
        handshake. If `found` is another node and the link can be used, it becomes the link to `found`.
        """
        peer = self.peers.get(named)
        if peer is None:
            return False
        if named != found:
            if not self._adopt_answering_node(peer, found, now):
                return False
        peer.linked = True
        peer.linked_at = now
        # The node may have noted its incarnation in its log only now. Its greetings leave when the note is durable.
        peer.incarnation = incarnation
        peer.greeted = False
        self._greet(peer, MEET if peer.invited else PING, now)
        self._become_member(peer, now)
        return True

    def link_down(self, node: bytes, now: i64) -> None:
        """Record that our link to a node is down. This does not mean that the node has failed."""
        peer = self.peers.get(node)
        if peer is not None:
            peer.linked = False
            peer.unlinked_at = now

    def receive(self, sender: bytes, message: Message, now: i64) -> None:
        """Process a greeting (PING, PONG or MEET) or a FAIL of another node."""
        if isinstance(message, Greeting):
            self._receive_greeting(sender, message, now)
        elif isinstance(message, FailMessage):
            self._receive_failure(sender, message.node, now)

    def advance(self, now: i64) -> None:
        """Do all work that is due: send greetings, suspect nodes, and remove nodes that were not met in time."""
        if now < self.next_due:
            return
        slept = now - self._checked_at > self.timeout_ms // 2 + self._tick_ms()
        self._schedule_check(now)
        for peer in list(self.peers.values()):
            if slept:
                # This process was suspended. It may have missed the answer, or the time in which to meet the node.
                peer.added = now
                if peer.ping_sent:
                    peer.ping_sent = now
            self._check_peer(peer, now)
        for removed in (self._forgotten, self._displaced):
            for node, until in list(removed.items()):
                if until <= now:
                    del removed[node]
        if now - self._greeted >= _GREET_MS:
            self._greeted = now
            self._greet_the_quietest(now)

    # Joining

    def _add(self, peer: Peer, now: i64) -> bool:
        if len(self.peers) >= NODES_MAX or self._handshakes() >= HANDSHAKES_MAX:
            return False
        peer.epoch = max(peer.epoch, self.past.get(peer.id, 0))
        self.peers[peer.id] = peer
        self.moves += 1
        if self.next_due == NEVER:
            self._schedule_check(now)
        return True

    def _accept_again(self, node: bytes) -> None:
        """Accept a removed node, because an operator has added it again."""
        self._forgotten.pop(node, None)
        self._displaced.pop(node, None)

    def _handshakes(self) -> int:
        return sum([1 for peer in self.peers.values() if not peer.is_member()])

    def _remove(self, node: bytes) -> None:
        peer = self.peers.pop(node)
        if peer.is_member() or peer.epoch:
            self._remember(node, peer.epoch)
        if peer.invited:
            self.changes += 1
        self.moves += 1

    def _remember(self, node: bytes, epoch: i64) -> None:
        """Record the epoch of a node that is not in the table of nodes, for example of a former member."""
        self.past.pop(node, None)
        self.past[node] = epoch
        if len(self.past) > _PAST_MAX:
            del self.past[next(iter(self.past))]
        self.changes += 1

    def _adopt_answering_node(self, peer: Peer, found: bytes, now: i64) -> bool:
        """Update the table, because another node, with the id `found`, answered at the address of `peer`.

        Return whether `peer` now has the id `found`.
        """
        if peer.is_member():
            # The node was reset, or it moved and another node has its address. If it moved, it will greet us.
            peer.flags |= NOADDR
            if not peer.lost_at:
                peer.lost_at = now
            self.changes += 1
            self.moves += 1
            if peer.invited:
                # The operator meant the node that is at the address now.
                peer.invited = False
                self.meet(peer.host, peer.port, peer.bus_port, now)
            return False
        self._remove(peer.id)
        if found == self.myself or not peer.invited:
            return False
        known = self.peers.get(found)
        if known is not None:
            # The node is in the table already. It may not have this node in its table, or its address here may be old.
            self._invite(known)
            if known.linked:
                self._greet(known, MEET, now)
            else:
                self._move(known, peer.host, peer.port, peer.bus_port)
            return False
        self._accept_again(found)
        peer.id = found
        peer.epoch = self.past.get(found, 0)
        self.peers[found] = peer
        return True

    def _become_member(self, peer: Peer, now: i64) -> None:
        """If links in both directions work, make a node a member and announce it."""
        if peer.is_member() or not (peer.linked and peer.has_spoken):
            return
        peer.flags &= ~HANDSHAKE
        peer.pong_received = now
        self.past.pop(peer.id, None)
        if peer.id in self.given_up:
            self.given_up.remove(peer.id)
        self.changes += 1
        self._spread(peer, now)

    def _spread(self, news: Peer, now: i64) -> None:
        """Greet some other nodes now, to report that the state of the peer `news` has changed."""
        others = [peer for peer in self.peers.values() if peer.linked and peer is not news]
        for peer in self._sample(others, RUMOURS_MIN):
            self._greet(peer, PING, now)

    def _move(self, peer: Peer, host: str, port: i64, bus_port: i64) -> None:
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
        """Send a greeting with our flags and reports about other nodes."""
        if kind != PONG:
            peer.asked = now
            if not peer.ping_sent:
                peer.ping_sent = now
        flags = self.condition | (NODE_LEAVING if self.leaving else 0)
        rumours = self._rumours(peer)
        greeting = Greeting(
            kind, self.announced, self.port, self.bus_port, flags, self.incarnation, rumours, self.epoch
        )
        self._outbox.send(peer.id, greeting)

    def _rumours(self, listener: Peer) -> list[Rumour]:
        """Return the reports about other nodes for a greeting to `listener`.

        Failing nodes come first, because a node is declared failed only after a majority has reported it.
        """
        reported = []
        fine = []
        for peer in self.peers.values():
            if peer is listener or peer.flags & (HANDSHAKE | NOADDR):
                continue
            if peer.is_failing():
                reported.append(peer)
            else:
                fine.append(peer)
        most = max(RUMOURS_MIN, len(self.peers) // 10)
        reported = self._sample(reported, most)
        return [peer.rumour() for peer in reported + self._sample(fine, most - len(reported))]

    def _sample(self, peers: list[Peer], most: i64) -> list[Peer]:
        size: i64 = len(peers)
        if size <= most:
            return peers
        for at in range(most):
            other = at + self._random.below(size - at)
            peers[at], peers[other] = peers[other], peers[at]
        return peers[:most]

    def _receive_greeting(self, sender: bytes, said: Greeting, now: i64) -> None:
        peer = self.peers.get(sender)
        if not self.accept_epoch(sender, said.epoch, 0):
            self.unknown_senders += 1
            return
        if peer is None:
            if said.kind != MEET or sender == self.myself:
                self.unknown_senders += 1
                return
            peer = Peer(sender, said.host, said.port, said.bus_port, HANDSHAKE, now, said.epoch)
            if not self._add(peer, now):
                return
            self._accept_again(sender)
        peer.has_spoken = True
        self._compare_incarnation(peer, said.incarnation)
        self._move(peer, said.host, said.port, said.bus_port)
        if (peer.flags ^ said.flags) & NODE_LEAVING:
            peer.flags ^= NODE_LEAVING
            self.changes += 1
        peer.flags = peer.flags & ~NODE_CONDITION | said.flags & NODE_CONDITION
        if said.kind == PONG:
            self._record_answer(peer, now)
        else:
            self._greet(peer, PONG, now)
        self._become_member(peer, now)
        for rumour in said.rumours:
            self._receive_rumour(peer, rumour, now)

    def _compare_incarnation(self, peer: Peer, incarnation: bytes) -> None:
        """Drop our link to a node if the incarnation in its greeting is not the one in the handshake of the link.

        The links of both directions are independent. If the incarnations differ, there are three cases:
        - Our link leads to a new process, and the greeting is a late one of the process before it, which was killed.
        - Our link leads to a process that was killed, and the greeting is from the new one.
        - The node lost its jobs while it was running.

        The greeting does not show which case it is, but a new handshake does. The link is therefore dropped. No jobs
        are handed over to the node until a greeting confirms the incarnation of the new handshake. Before that, a late
        greeting of a killed process can make this node drop the link again, but few such greetings are in transit.
        """
        if not peer.linked:
            return
        if incarnation == peer.incarnation:
            peer.greeted = True
        elif peer.incarnation:
            peer.incarnation = b""
            peer.greeted = False
            self._drop_link(peer)

    def _record_answer(self, peer: Peer, now: i64) -> None:
        """Record an answer of a node, which clears suspicions."""
        peer.ping_sent = 0
        peer.pong_received = now
        peer.lost_at = 0
        if peer.invited and peer.linked:
            # Without a link the peer does not become a member now, and would not survive a restart.
            peer.invited = False
            self.changes += 1
        if peer.is_failing():
            peer.flags &= ~_FAILING
            self.changes += 1

    def _receive_rumour(self, sender: Peer, rumour: Rumour, now: i64) -> None:
        node, epoch = rumour.node, rumour.epoch
        if node == self.myself:
            self._note_own_epoch(epoch)
            return
        if epoch < self.epoch_of(node):
            # The report is about a process that was replaced since.
            return
        peer = self.peers.get(node)
        if peer is None:
            if not self._is_removed(node, epoch) and not rumour.flags & _FAILING:
                self._add(Peer(node, rumour.host, rumour.port, rumour.bus_port, HANDSHAKE, now, epoch), now)
        elif epoch > peer.epoch:
            self._renew(peer, epoch)
            self._move(peer, rumour.host, rumour.port, rumour.bus_port)
        elif peer is not sender and peer.is_member() and sender.is_member():
            if rumour.flags & _FAILING:
                peer.reports[sender.id] = now
                self._fail_if_majority(peer, now)
            else:
                peer.reports.pop(sender.id, None)
                if not peer.linked and (peer.is_failing() or peer.flags & NOADDR):
                    # Other nodes reach it, so use the address that they have.
                    self._move(peer, rumour.host, rumour.port, rumour.bus_port)

    def _is_removed(self, node: bytes, epoch: i64) -> bool:
        """Return whether a node was removed so recently that a greeting which reports it with `epoch` is ignored."""
        return node in self._forgotten or (node in self._displaced and epoch <= self.epoch_of(node))

    def _greet_the_quietest(self, now: i64) -> None:
        """Greet one of a few random nodes: the one whose last answer is the oldest."""
        idle = [peer for peer in self.peers.values() if peer.linked and not peer.ping_sent]
        quietest: Peer | None = None
        for peer in self._sample(idle, _CANDIDATES):
            if quietest is None or peer.pong_received < quietest.pong_received:
                quietest = peer
        if quietest is not None:
            self._greet(quietest, PING, now)

    # Failures

    def _tick_ms(self) -> i64:
        return max(_TICK_MS_MIN, min(self.timeout_ms // 10, _TICK_MS_MAX))

    def _schedule_check(self, now: i64) -> None:
        self._checked_at = now
        self.next_due = now + self._tick_ms() if self.peers or self._forgotten or self._displaced else NEVER

    def _check_peer(self, peer: Peer, now: i64) -> None:
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
            self._remove(peer.id)
            if peer.has_spoken or not peer.epoch:
                self._displaced[peer.id] = now + FORGOTTEN_MS
            # Otherwise a standby has replaced the node and has not greeted this node yet: reports of it are welcome.
            return
        if not peer.ping_sent:
            if not peer.linked:
                # A node without a link cannot be asked. This counts as an unanswered PING.
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
        self._fail_if_majority(peer, now)

    def _fail_if_majority(self, peer: Peer, now: i64) -> None:
        """Declare a suspected node failed if the majority suspects it.

        Reports that are older than our unanswered PING do not count, because the reported problems may be over.
        Otherwise, a node that is cut off from all others could declare every node failed because of old reports.
        """
        if not peer.flags & NODE_SUSPECTED or 1 + self._reports(peer, peer.ping_sent, now) <= self.size() // 2:
            return
        self._set_failed(peer)
        for each in self.peers.values():
            if each.linked and each.is_member():
                self._outbox.send(each.id, FailMessage(FAIL, peer.id))

    def _set_failed(self, peer: Peer) -> None:
        peer.flags = peer.flags & ~NODE_SUSPECTED | NODE_FAILED
        self.changes += 1

    def _reports(self, peer: Peer, since: i64, now: i64) -> int:
        """Return how many other nodes suspect a peer. Old reports, and reports before `since`, do not count."""
        reports = peer.reports
        for node, when in list(reports.items()):
            if now - when > 2 * self.timeout_ms or node not in self.peers:
                del reports[node]
        return len([when for when in reports.values() if when >= since])

    def _receive_failure(self, sender: bytes, node: bytes, now: i64) -> None:
        peer = self.peers.get(node)
        if not self.is_member(sender):
            self.unknown_senders += 1
        elif peer is not None and peer.is_member() and not peer.flags & NODE_FAILED:
            self._set_failed(peer)
            if peer.linked:
                # If the node receives this, its answer clears the flag.
                self._greet(peer, PING, now)
