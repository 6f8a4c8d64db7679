"""Where the nodes are: those that a URL names, and those that these tell of.

One is used until it fails or leaves. Then the next one is tried, first of those that were named, since they are the
ones that can surely be reached from here; one that leaves only if there is nobody else. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

Address = tuple[str, int]

# More nodes than this are not learned.
_NODES_MAX: Final = 1_000

_HOST: Final = re.compile(r"[0-9A-Za-z._:%-]{1,255}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_BROADCAST: Final = "255.255.255.255"

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
        for each in told[2 : 2 + _NODES_MAX]:
            node = self._node(each)
            if node is not None:
                nodes.append(node)
                if node[0] < _UNWANTED:
                    self._by_node[_prefix(each[0])] = node[1]
        self._left = {address for priority, address in nodes if priority >= _UNWANTED}
        ranked = sorted((node for node in nodes if node[0] < _UNWANTED), key=lambda node: node[0])
        self._learned = [address for _, address in ranked if address not in self._named]

    def _node(self, told: object) -> tuple[int, Address] | None:
        """The priority and the address of a node that another one tells of; None if it is nowhere to go."""
        if not isinstance(told, list) or len(told) != 4 or not all(isinstance(each, bytes) for each in told):
            return None
        _, host, port, priority = (each.decode("latin-1") for each in told)
        if not (_HOST.fullmatch(host) and _NUMBER.fullmatch(port) and _NUMBER.fullmatch(priority)):
            return None
        if not 1 <= int(port) <= 65_535 or not self._may_go_to(host):
            return None
        return int(priority), (host, int(port))

    def _may_go_to(self, host: str) -> bool:
        """Whether a node may be at this address. A server must not send its clients to services of their own machine
        or network that no other machine can use, such as the metadata service of a cloud.
        """
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return True  # A name.
        if address.is_loopback:
            return any(_is_local(named) for named, _ in self._named)
        return not (address.is_link_local or address.is_multicast or address.is_unspecified or host == _BROADCAST)

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


def _is_local(host: str) -> bool:
    """Whether a host that a URL names is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _prefix(id: object) -> str:
    """How the id of a node begins, as the ids of its jobs show it."""
    return id[:8].decode("ascii", "replace") if isinstance(id, bytes) else ""
