"""The links of a simulated node: as its shell would, it opens one to every peer that the cluster names.

A connection is made if both directions work at that moment, and breaks when the process at its other end is gone. One
that is cut breaks only when somebody gives it up: nobody is told of silence. What is said to a process that is gone
is not heard by the next one at its place, whose system says so if it can be heard.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.cluster.members import Members
from penstock.testing.sim.network import Network
from penstock.testing.sim.schedule import MS, SECOND, Schedule, spread

# How long until a connection that could not be made is tried again.
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
        """The incarnation of the process that runs now, which it names in the handshake of a link."""


class Links:
    """Whom a node has a connection to, by the ids that its table of nodes gives them."""

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
        self._lives: dict[bytes, int] = {}  # Which life of the other end a link leads to.
        self._trying: dict[bytes, str] = {}
        self._moves = -1

    def to(self, node: bytes) -> End | None:
        """The other end of the link to a node, if there is a link."""
        return self._ends.get(node)

    def life_of(self, node: bytes) -> int:
        """Which life of a node the link to it leads to; it may be over. 0 if there is no link."""
        return self._lives.get(node, 0)

    def keep(self, members: Members) -> list[bytes]:
        """Hold the links that the table asks for; tell which were given up."""
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
        """Have no link to a node any more."""
        self._ends.pop(node, None)
        self._lives.pop(node, None)
        self._moves = -1

    def leading_to(self, other: End, life: int) -> list[bytes]:
        """The links to a life of another node that is over."""
        return [node for node, end in self._ends.items() if end is other and self._lives[node] <= life]

    def is_up(self, named: bytes, found: bytes, other: End) -> None:
        """A link that was tried is there, and is of use."""
        self._trying.pop(named, None)
        self._ends[found] = other
        self._lives[found] = other.life

    def is_of_no_use(self, named: bytes) -> None:
        """A link that was tried leads elsewhere."""
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
