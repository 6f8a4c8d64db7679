"""A cluster, its clients and what is around them. What happens to them is for simulation.py to say."""

from __future__ import annotations

from collections import Counter

from penstock.testing.sim.clients import Client, Operator
from penstock.testing.sim.history import History
from penstock.testing.sim.network import Network
from penstock.testing.sim.node import SimNode
from penstock.testing.sim.options import Options
from penstock.testing.sim.schedule import Schedule, Streams


class World:
    """Everything there is."""

    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.schedule = Schedule()
        self.streams = Streams(seed)
        self.history = History()
        self.counted: Counter[str] = Counter()  # What should happen now and then, and how often it did.
        self.healed_at = 0  # When everything that was wrong was over.
        self.network = Network(self.schedule, self.streams.stream("network"), options)
        self.nodes = [SimNode(self, number) for number in range(options.nodes)]
        self.clients: list[Client] = []
        self.forgotten: list[tuple[SimNode, int, bytes]] = []  # Who was told, in which of its lives, to forget whom.
        self._by_host = {node.host: node for node in self.nodes}
        for node in self.nodes:
            self.network.join(node.number, node.receive)

    def node_at(self, host: str) -> SimNode | None:
        """Who is at an address."""
        return self._by_host.get(host)

    def id_of(self, number: int) -> bytes:
        """Who a node is."""
        return self.nodes[number].id

    def others(self, node: SimNode) -> list[SimNode]:
        """All nodes but one."""
        return [other for other in self.nodes if other is not node]

    def serving(self) -> list[SimNode]:
        """The nodes that clients know of."""
        return self.nodes

    def introduce(self, node: SimNode) -> None:
        """Let a node that knows nobody meet another one, and through it all."""
        others = [other for other in self.others(node) if other.up]
        if others and node.up:
            node.meet(others[0])

    def forget(self, node: SimNode) -> None:
        """CLUSTER FORGET, on every node that can be told: nobody may learn of it again from those who were not."""
        for other in self.others(node):
            if other.up and not other.paused and other.cluster.members.forget(node.id, other.now()):
                self.forgotten.append((other, other.life, node.id))

    def wants_back(self, node: SimNode, id: bytes) -> None:
        """A node hears from another one that it wants to be met. That may have been under way when it was forgotten."""
        self.forgotten = [each for each in self.forgotten if each[0] is not node or each[2] != id]

    def tell(self, node: SimNode, args: list[bytes]) -> None:
        """Give a command to a node, as an operator does."""
        Operator(self, -1, self.streams.stream(f"operator {self.schedule.now}")).ask_at(node, args)

    def reopen(self, queue: bytes) -> None:
        """Open a queue on every node."""
        for node in self.nodes:
            self.tell(node, [b"PAUSE", queue, b"none"])

    def sometimes(self, what: str) -> None:
        """Count something that should happen now and then."""
        self.counted[what] += 1

    def added(self, id: bytes, words: list[bytes]) -> None:
        """A node tells a client that its job was added."""

    def handed_out(self, id: bytes) -> None:
        """A node hands a client a job that may be delivered only once."""
        self.history.written[id] += 1

    def gone_astray(self, id: bytes) -> None:
        """A node hands a job to another one that is gone."""
        self.history.astray[id] += 1

    def stopped_by_disk(self, node: SimNode) -> None:
        """The disk of a node failed, and it stopped."""
        self.sometimes("a disk failed under a node")
        self.history.note(self.schedule.now, "stopped by its disk", node.number)
