"""The nodes, clients, network and history of a simulation. simulation.py decides what happens to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.testing.sim.clients import Client, Operator
from penstock.testing.sim.history import History
from penstock.testing.sim.network import Network
from penstock.testing.sim.node import SimNode
from penstock.testing.sim.options import Options
from penstock.testing.sim.schedule import Schedule, Streams


class World:
    """All objects of one simulation. `Environment` in node.py describes the methods that nodes call."""

    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.schedule = Schedule()
        self.streams = Streams(seed)
        self.history = History()
        self.counted: Counter[str] = Counter()  # Events that must occur in some seeds, and how often they did.
        self.healed_at = 0  # When all faults were over.
        self.network = Network(self.schedule, self.streams.stream("network"), options)
        self.nodes = [SimNode(self, number) for number in range(options.nodes)]
        self.clients: list[Client] = []
        self.on_new_tube: Callable[[SimNode], None] | None = None  # Called when a node has created a tube.
        # The node that removed another one, its life, and the id of the removed node.
        self.forgotten: list[tuple[SimNode, int, bytes]] = []
        self._by_host = {node.host: node for node in self.nodes}
        for node in self.nodes:
            self.network.join(node.number, node.receive)

    def node_at(self, host: str) -> SimNode | None:
        return self._by_host.get(host)

    def id_of(self, number: int) -> bytes:
        return self.nodes[number].id

    def others(self, node: SimNode) -> list[SimNode]:
        return [other for other in self.nodes if other is not node]

    def others_up(self, node: SimNode) -> list[SimNode]:
        """Return the other nodes that are running."""
        return [other for other in self.others(node) if other.up and not other.paused]

    def rehomed(self, lost: SimNode, standby: SimNode) -> None:
        """Record that a standby replaces a node."""

    def serving(self) -> list[SimNode]:
        return self.nodes

    def introduce(self, node: SimNode) -> None:
        """Make a node meet one other node. Through gossip it then meets all others."""
        others = [other for other in self.others(node) if other.up]
        if others and node.up:
            node.meet(others[0])

    def forget(self, node: SimNode) -> None:
        """Remove a node: run CLUSTER FORGET on every reachable node. Other nodes must not bring it back."""
        for other in self.others(node):
            if other.up and not other.paused and other.cluster.members.forget(node.id, other.now()):
                self.forgotten.append((other, other.life, node.id))

    def wants_back(self, node: SimNode, id: bytes) -> None:
        self.forgotten = [each for each in self.forgotten if each[0] is not node or each[2] != id]

    def tell(self, node: SimNode, args: list[bytes]) -> None:
        """Send a command to a node, as an operator does."""
        Operator(self, -1, self.streams.stream(f"operator {self.schedule.now}")).ask_at(node, args)

    def reopen(self, queue: bytes) -> None:
        """Resume a queue on every node."""
        for node in self.nodes:
            self.tell(node, [b"PAUSE", queue, b"none"])

    def sometimes(self, what: str) -> None:
        self.counted[what] += 1

    def added(self, id: bytes, words: list[bytes]) -> None:
        """Check the copies of a job when a node replies with its id. `words` is the ADDJOB command."""

    def handed_out(self, id: bytes) -> None:
        self.history.written[id] += 1

    def gone_astray(self, id: bytes) -> None:
        self.history.astray[id] += 1

    def forwarded_delivery(self, token: bytes, body: bytes, delivery: int) -> None:
        """Record that a home delivers a job to the session `token`, whose client is connected to another node."""

    def tubes_changed(self, node: SimNode) -> None:
        """Record that a node has started, or has created or dropped tubes."""

    def stopped_by_disk(self, node: SimNode) -> None:
        self.sometimes("a disk failed under a node")
        self.history.note(self.schedule.now, "stopped by its disk", node.number)
