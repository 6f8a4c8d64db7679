"""A network of member tables (`Members`) without engines, with its own clock."""

from penstock.cluster.members import Members
from penstock.cluster.messages import Greeting
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.peers import Peer

TIMEOUT_MS = 2_000


class MemberNetwork:
    """The nodes with their addresses, and the links between them."""

    def __init__(self, count: int) -> None:
        self.now = 1_000_000
        self.nodes: list[Members] = []
        self.mails: list[PeerOutbox] = []
        self.down: set[int] = set()  # Nodes that are not running.
        self.cut: set[tuple[int, int]] = set()  # Pairs of nodes of which the first cannot reach the second.
        self.links: dict[tuple[int, bytes], tuple[str, int]] = {}  # The address that each link leads to.
        for _ in range(count):
            self.build()

    def build(self) -> Members:
        """Add a node without peers."""
        number = len(self.nodes)
        mail = PeerOutbox()
        node = Members(b"%040x" % (number + 1), bytes(16), number + 1, mail, TIMEOUT_MS)
        node.announced = node.host = f"10.0.0.{number + 1}"
        node.port, node.bus_port = 7711, 17711
        self.nodes.append(node)
        self.mails.append(mail)
        return node

    def meet(self, one: int, other: int) -> None:
        them = self.nodes[other]
        assert self.nodes[one].meet(them.host, them.port, them.bus_port, self.now)

    def run(self, ms: int) -> None:
        """Advance the time."""
        until = self.now + ms
        while self.now < until:
            self.now += 50
            self.turn()

    def turn(self) -> None:
        for number, node in enumerate(self.nodes):
            if number not in self.down:
                node.advance(self.now)
                self._link(number, node)
        for number, mail in enumerate(self.mails):
            if number not in self.down:
                for to, letters in mail.take().items():
                    self._deliver(number, to, letters)

    def _link(self, number: int, node: Members) -> None:
        for stale in node.take_stale():
            self.links.pop((number, stale), None)
            node.link_down(stale, self.now)
        for peer in node.to_connect():
            there = self.at(number, peer.host, peer.bus_port)
            if peer.linked and (there is None or self.nodes[there].myself != peer.id):
                node.link_down(peer.id, self.now)
            elif not peer.linked and there is not None and self._shake_hands(node, self.nodes[there]):
                node.link_up(peer.id, self.nodes[there].myself, self.nodes[there].incarnation, self.now)

    def _shake_hands(self, one: Members, other: Members) -> bool:
        """Exchange epochs, as in a handshake. Return whether both nodes accept the other."""
        wanted = other.accept_epoch(one.myself, one.epoch, one.epoch_of(other.myself))
        return one.accept_epoch(other.myself, other.epoch, other.epoch_of(one.myself)) and wanted

    def at(self, number: int, host: str, bus_port: int) -> int | None:
        """Return the node that answers at an address, or None."""
        for other, node in enumerate(self.nodes):
            if (node.host, node.bus_port) == (host, bus_port):
                reached = other not in self.down and (number, other) not in self.cut
                return other if reached else None
        return None

    def _deliver(self, number: int, to: bytes, letters: list) -> None:
        peer = self.nodes[number].peers.get(to)
        there = None if peer is None else self.at(number, peer.host, peer.bus_port)
        if there is None or not peer.linked or self.nodes[there].myself != to:
            return
        for letter in letters:
            if isinstance(letter, Greeting):
                assert letter.host
            self.nodes[there].receive(self.nodes[number].myself, letter, self.now)

    def kill(self, number: int) -> None:
        self.down.add(number)

    def isolate(self, number: int) -> None:
        """Cut a node off from all others, without closing its links."""
        for other in range(len(self.nodes)):
            if other != number:
                self.cut |= {(number, other), (other, number)}

    def peer(self, one: int, other: int) -> Peer:
        return self.nodes[one].peers[self.nodes[other].myself]

    def everybody_knows_everybody(self) -> bool:
        alive = [node for number, node in enumerate(self.nodes) if number not in self.down]
        return all(node.size() == len(alive) and len(node.reachable()) == len(alive) - 1 for node in alive)


def town_of(count: int) -> MemberNetwork:
    """Return a network in which all nodes have met."""
    town = MemberNetwork(count)
    for other in range(1, count):
        town.meet(0, other)
    town.run(3_000)
    assert town.everybody_knows_everybody()
    return town
