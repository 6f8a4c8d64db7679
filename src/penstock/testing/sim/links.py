"""The links of a simulated node. Like a server, the node opens a link to every peer in its table.

A link is opened if both directions of the network work at that moment. When the process at its other end has ended, a
reset breaks the link. Where the network is cut, no reset arrives, and the link breaks only when the cluster protocol
drops it. Messages to a process that has ended are not delivered to the next process at its address; the sender receives
a reset instead. The *life* of a node is a number that rises with each start of its process.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.cluster.members import Members
from penstock.testing.sim.network import Network
from penstock.testing.sim.schedule import MS, SECOND, Schedule, spread

# The time until a failed connection is tried again.
_AGAIN = 300 * MS


class End(Protocol):
    """The node at one end of a link."""

    number: int
    id: bytes
    life: int
    up: bool
    paused: bool

    @property
    def incarnation(self) -> bytes:
        """Return the incarnation of the current process, which the process sends in the handshake of a link."""


class Links:
    """The links of a node to its peers, by the ids that the peers have in its table of nodes."""

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        random: Random,
        mine: End,
        at_address: Callable[[str], End | None],
        on_up: Callable[[bytes, End], None],
    ) -> None:
        self._schedule = schedule
        self._network = network
        self._random = random
        self._mine = mine
        self._life = mine.life
        self._at_address = at_address
        self._on_up = on_up
        self._ends: dict[bytes, End] = {}
        self._lives: dict[bytes, int] = {}  # The life of the other end that the link leads to.
        self._trying: dict[bytes, str] = {}
        self._moves = -1

    @property
    def is_stale(self) -> bool:
        """Return whether `keep` must be called, because a link was dropped or `keep` was not called yet."""
        return self._moves == -1

    def to(self, node: bytes) -> End | None:
        """Return the node at the other end of the link to `node`, or None if there is no link."""
        return self._ends.get(node)

    def life_of(self, node: bytes) -> int:
        """Return the number of the process start (life) that the link to a node leads to, or 0 if there is no link.

        That process can have ended.
        """
        return self._lives.get(node, 0)

    def keep(self, members: Members) -> list[bytes]:
        """Open and close links to match the table of nodes.

        Return the nodes whose links the cluster protocol dropped.
        """
        dropped = members.take_stale()
        for node in dropped:
            self.drop(node)
        if members.moves != self._moves or dropped:
            self._moves = members.moves
            wanted = {peer.id: peer.host for peer in members.to_connect()}
            for node in list(self._ends):
                if node not in wanted:
                    self.drop(node)
            self._trying = {node: host for node, host in self._trying.items() if wanted.get(node) == host}
            for node, host in wanted.items():
                if node not in self._ends and node not in self._trying:
                    self._try(node, host, 0)
        return dropped

    def drop(self, node: bytes) -> None:
        """Remove the link to a node."""
        self._ends.pop(node, None)
        self._lives.pop(node, None)
        self._moves = -1

    def leading_to(self, other: End, life: int) -> list[bytes]:
        """Return the links to `other` that lead to the process with the number `life`, or to an earlier process."""
        return [node for node, end in self._ends.items() if end is other and self._lives[node] <= life]

    def record_up(self, named: bytes, found: bytes, other: End) -> None:
        """Store a link that is up. It was opened to the node `named`, and the node `found` answered at that address."""
        self._trying.pop(named, None)
        self._ends[found] = other
        self._lives[found] = other.life

    def discard(self, named: bytes) -> None:
        """Discard a new link: it was opened to the node `named`, but another node answered at that address."""
        self._trying.pop(named, None)
        self._moves = -1

    def _try(self, node: bytes, host: str, delay: int) -> None:
        self._trying[node] = host
        there_and_back = spread(self._random, 2 * self._network.delay, SECOND)
        self._schedule.after(delay + there_and_back, lambda: self._tried(node, host))

    def _tried(self, node: bytes, host: str) -> None:
        mine = self._mine
        if mine.life != self._life or self._trying.get(node) != host:
            return
        other = self._at_address(host)
        cut = (
            other is None
            or self._network.is_cut(mine.number, other.number)
            or self._network.is_cut(other.number, mine.number)
        )
        if other is None or cut or not other.up or other.paused:
            self._try(node, host, _AGAIN)
        else:
            self._on_up(node, other)
