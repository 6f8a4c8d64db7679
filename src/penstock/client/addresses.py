"""The addresses of the nodes: those in the URL, and those that the nodes report.

A client uses one address until the node there fails or leaves the cluster. Then the client tries the next address.
Addresses of the URL come first, because the client may be unable to reach the reported ones. Nodes that leave the
cluster come last. This module does no I/O.
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

# A node with this priority or a greater one is leaving or not reachable.
_UNWANTED: Final = 100


class Addresses:
    """The addresses that a client tries, in their order."""

    def __init__(self, named: tuple[Address, ...], learns: bool) -> None:
        """Start with the addresses of the URL, which are in `named`.

        If `learns` is set, also use the addresses that nodes report. With TLS it is not set, because certificates need
        not contain these addresses.
        """
        self._named = named
        self._learns = learns
        self._learned: list[Address] = []
        self._left: set[Address] = set()
        self._by_node: dict[str, Address] = {}  # By the first eight characters of node ids, which job ids contain.
        self._here = ""  # The first eight characters of the id of the current node.
        self.current = named[0]

    def all(self) -> list[Address]:
        """Return all addresses, starting with the current one. Addresses of leaving nodes come last."""
        known = [*self._named, *self._learned]
        at = known.index(self.current) if self.current in known else 0
        turned = known[at:] + known[:at]
        return sorted(turned, key=lambda each: each in self._left)

    def learn(self, reply: object) -> None:
        """Store the addresses in a reply to HELLO: a version, a node id, and all nodes with address and priority."""
        if not self._learns or not isinstance(reply, list):
            return
        nodes: list[tuple[int, Address]] = []
        self._by_node = {}
        self._here = _prefix(reply[1]) if len(reply) > 1 else ""
        for each in reply[2 : 2 + _NODES_MAX]:
            node = self._node(each)
            if node is not None:
                nodes.append(node)
                if node[0] < _UNWANTED:
                    self._by_node[_prefix(each[0])] = node[1]
        self._left = {address for priority, address in nodes if priority >= _UNWANTED}
        ranked = sorted((node for node in nodes if node[0] < _UNWANTED), key=lambda node: node[0])
        self._learned = [address for _, address in ranked if address not in self._named]

    def _node(self, entry: object) -> tuple[int, Address] | None:
        """Return the priority and the address of a reported node; None if they are malformed or not allowed."""
        if not isinstance(entry, list) or len(entry) != 4 or not all(isinstance(each, bytes) for each in entry):
            return None
        _, host, port, priority = (each.decode("latin-1") for each in entry)
        if not (_HOST.fullmatch(host) and _NUMBER.fullmatch(port) and _NUMBER.fullmatch(priority)):
            return None
        if not 1 <= int(port) <= 65_535 or not self._may_go_to(host):
            return None
        return int(priority), (host, int(port))

    def _may_go_to(self, host: str) -> bool:
        """Return whether this client is allowed to connect to a reported address.

        A server must not make a client connect to a service that is only meant for the client's own machine or
        network, such as the metadata service of a cloud.
        """
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return True  # The host is a name, not an IP address.
        if address.is_loopback:
            return any(_is_local(named) for named, _ in self._named)
        return not (address.is_link_local or address.is_multicast or address.is_unspecified or host == _BROADCAST)

    def of_node(self, prefix: str) -> Address | None:
        """Return the address of another node by the beginning of its id; None if the node is unknown or is leaving."""
        return None if prefix == self._here else self._by_node.get(prefix)

    def fail(self) -> None:
        """Make the next address the current one, because the current one does not answer."""
        known = self.all()
        self.current = known[1] if len(known) > 1 else known[0]

    def alternatives(self) -> list[Address]:
        """Return the addresses that can be used if the current node leaves."""
        return [each for each in self.all() if each != self.current and each not in self._left]

    def leave(self, left: Address) -> None:
        """Record that a node is leaving. If it is the current one, make another one current."""
        self._left.add(left)
        if self.current == left and (others := self.alternatives()):
            self.current = others[0]


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _prefix(id: object) -> str:
    """Return the part of a node's id that the ids of its jobs contain."""
    return id[:8].decode("ascii", "replace") if isinstance(id, bytes) else ""
