"""Nodes whose turns are connected by links in memory. A message is delivered when the test runs the nodes."""

from __future__ import annotations

from penstock.cluster.members import Members
from penstock.cluster.messages import Message
from penstock.cluster.node import Cluster
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.peers import Peer
from penstock.node.forwarded_clients import Admission, ForwardedClients
from penstock.node.forwarding import Forwarding
from penstock.node.inbox import Inbox
from penstock.node.links import Messages, PeerLinks
from penstock.node.tunnels import TunnelLinks
from penstock.node.turn import SOON
from penstock.testing.clock import FakeClock

from .fake_node import BULK_BYTES_MAX, FakeNode


class MemoryLinks(PeerLinks):
    """The links of a node: messages wait in a list until they are delivered."""

    def __init__(self, nodes: LinkedNodes, node: LinkedNode) -> None:
        self.nodes, self.node = nodes, node
        self.waiting: list[tuple[bytes, Message]] = []
        self.sent: list[tuple[bytes, Message]] = []  # All messages ever sent.
        self.crowded = False

    def update(self) -> None: ...

    def send(self, messages: Messages) -> None:
        for receiver, some in messages.items():
            if (self.node.id, receiver) not in self.nodes.cut:
                self.waiting += [(receiver, message) for message in some]
                self.sent += [(receiver, message) for message in some]

    def is_two_way(self, node: bytes) -> bool:
        return not {(self.node.id, node), (node, self.node.id)} & self.nodes.cut

    def is_crowded(self, node: bytes) -> bool:
        return self.crowded


class OpenAdmission(Admission):
    """Accepts forwarded clients while `has_room` is set."""

    def __init__(self, node: LinkedNode) -> None:
        self.node = node
        self.has_room = True
        self.tokens = 0

    def make_room(self) -> bool:
        return self.has_room

    def inbox(self, protocol: int) -> Inbox:
        return self.node.inbox(protocol)

    def bulk_max(self) -> int:
        return BULK_BYTES_MAX

    def token(self, length: int) -> bytes:
        self.tokens += 1
        return b"random" + b"%0*d" % (length - 6, self.tokens)


class LinkedNode(FakeNode):
    """One of the nodes."""

    def __init__(self, nodes: LinkedNodes, number: int) -> None:
        super().__init__(clock=nodes.clock, id=5 * (b"%08x" % ((number + 1) * 0x1111_1111)))
        self.number = number
        mail = PeerOutbox()
        self.members = Members(self.id, b"%016d" % number, number + 1, mail)
        self.members.announced = f"10.0.0.{number + 1}"
        self.members.port, self.members.bus_port = 7711, 17711
        body_of = self.engine.outbox.body_of
        self.cluster = Cluster(self.engine, self.ids, self.members, mail, number + 7, body_of, self.make_room)
        self.links = MemoryLinks(nodes, self)
        self.admission = OpenAdmission(self)
        self.context.cluster = self.turn.cluster = self.cluster
        self.turn.links = self.links
        self.guests = ForwardedClients(self.turn, self.cluster, TunnelLinks(self.turn, self.cluster), self.admission)
        self.forwarding = Forwarding(self.turn, self.context, self.cluster, self.guests)
        self.turn.remote = self.dispatcher.remote = self.context.remote = self.forwarding


class LinkedNodes:
    """All nodes, and the links between them."""

    def __init__(self, count: int = 2) -> None:
        self.clock = FakeClock()
        self.cut: set[tuple[bytes, bytes]] = set()  # Pairs of sender and receiver without a link.
        self.nodes = [LinkedNode(self, number) for number in range(count)]
        now = self.clock.ms
        for node in self.nodes:
            others = [other for other in self.nodes if other is not node]
            node.members.restore([Peer(o.id, f"10.0.0.{o.number + 1}", 7711, 17711) for o in others], now)
            for other in others:
                node.cluster.link_up(other.id, other.id, other.members.incarnation, now)
        self.settle()
        for node in self.nodes:
            node.links.sent.clear()

    def __getitem__(self, number: int) -> LinkedNode:
        return self.nodes[number]

    def deliver(self) -> bool:
        """Deliver the messages that wait. Return whether there were any."""
        some = False
        for node in self.nodes:
            waiting, node.links.waiting = node.links.waiting, []
            for receiver, message in waiting:
                some = True
                other = next(other for other in self.nodes if other.id == receiver)
                other.turn.receive(node.id, f"10.0.0.{node.number + 1}", [message])
        return some

    def settle(self) -> None:
        """Deliver messages and run turns until no work is left."""
        busy = True
        while busy:
            busy = self.deliver()
            for node in self.nodes:
                busy = busy or SOON in node.driver.wakes
                node.settle()
                node.driver.wakes.clear()

    def lose_links(self, first: int, second: int) -> None:
        """Cut the links between two nodes and drop the messages on them. Both nodes notice."""
        pair = (self.nodes[first], self.nodes[second])
        for node, other in (pair, pair[::-1]):
            self.cut.add((node.id, other.id))
            node.links.waiting = [each for each in node.links.waiting if each[0] != other.id]
        for node, other in (pair, pair[::-1]):
            node.turn.begin()
            node.cluster.link_down(other.id, self.clock.ms)
            node.forwarding.link_lost(other.id)

    def restore_links(self) -> None:
        """Open all links again."""
        self.cut.clear()
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.turn.begin()
                    node.cluster.link_up(other.id, other.id, other.members.incarnation, self.clock.ms)
        self.settle()

    def pass_ms(self, ms: int) -> None:
        """Advance the time."""
        self.clock.advance(ms)
        for node in self.nodes:
            node.turn.plan()
        self.settle()
