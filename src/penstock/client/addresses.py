"""Where the nodes are: those that a URL names, and those that these tell of.

One is used until it fails or leaves. Then the next one is tried, first of those that were named, since they are the
ones that can surely be reached from here; one that leaves only if there is nobody else. Pure.
"""

from __future__ import annotations

from typing import Final

Address = tuple[str, int]

# From this priority on a node is leaving, or nobody reaches it.
_UNWANTED: Final = 100


class Addresses:
    """Addresses to try, one after the other."""

    def __init__(self, named: tuple[Address, ...], learns: bool) -> None:
        """Take those that were named, and whether to learn of others: over TLS those told of are no use."""
        self._named = named
        self._learns = learns
        self._learned: list[Address] = []
        self._left: set[Address] = set()
        self._by_node: dict[str, Address] = {}  # By the first eight characters of their ids, as jobs name them.
        self._here = ""  # Which of them the current one is.
        self.current = named[0]

    def all(self) -> list[Address]:
        """Everybody, from the current one on; those that leave come last."""
        known = [*self._named, *self._learned]
        at = known.index(self.current) if self.current in known else 0
        turned = known[at:] + known[:at]
        return sorted(turned, key=lambda each: each in self._left)

    def learn(self, told: object) -> None:
        """Hear what a node answers to HELLO: its version, its id, and every node with address and priority."""
        if not self._learns or not isinstance(told, list):
            return
        nodes: list[tuple[int, Address]] = []
        self._by_node = {}
        self._here = _prefix(told[1]) if len(told) > 1 else ""
        for each in told[2:]:
            if isinstance(each, list) and len(each) == 4 and each[1]:
                try:
                    nodes.append((int(each[3]), (each[1].decode("ascii"), int(each[2]))))
                except (ValueError, AttributeError):
                    continue
                if nodes[-1][0] < _UNWANTED:
                    self._by_node[_prefix(each[0])] = nodes[-1][1]
        self._left = {address for priority, address in nodes if priority >= _UNWANTED}
        ranked = sorted((node for node in nodes if node[0] < _UNWANTED), key=lambda node: node[0])
        self._learned = [address for _, address in ranked if address not in self._named]

    def of_node(self, prefix: str) -> Address | None:
        """Where a node is that is not the current one, by how its id begins; None if nobody wants to go there."""
        return None if prefix == self._here else self._by_node.get(prefix)

    def fail(self) -> None:
        """The current one does not answer: the next one is."""
        known = self.all()
        self.current = known[1] if len(known) > 1 else known[0]

    def others(self) -> list[Address]:
        """Whom to go to if the current one leaves."""
        return [each for each in self.all() if each != self.current and each not in self._left]

    def leave(self, left: Address) -> None:
        """One is leaving: if it is the current one, another one is."""
        self._left.add(left)
        if self.current == left and (others := self.others()):
            self.current = others[0]


def _prefix(id: object) -> str:
    """How the id of a node begins, as the ids of its jobs show it."""
    return id[:8].decode("ascii", "replace") if isinstance(id, bytes) else ""
