"""The directory of homes: which node each strict tube lives on.

A tube that guarantees something about all of its jobs together is *strict*. It lives on the node that created it. When
a link to a peer comes up, a node sends the list of its strict tubes to the peer. After that it sends each change of the
list. Both messages are called HOMES. Receivers keep the lists in their logs, so the home of a tube is known after a
restart even if its node is down. home_election.py ensures that a tube has one home only.

Two nodes that never met can create tubes of the same name. Then each keeps its tube, other nodes use that of the node
with the lesser id, and `disputes` contains the tube.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import HOMES, LIST_BEGINS, LIST_ENDS, LIST_WANTED, HomesMessage
from penstock.cluster.state import ClusterState
from penstock.core.copy_commands import is_shared
from penstock.core.deadlines import Timed
from penstock.core.limits import NEVER
from penstock.core.tube import Tube

# Limit the tubes that are examined or sent in a turn, and the bytes of names in a message.
_LIST_SLICE: Final = 1_000
_LIST_BYTES: Final = 256 * 1024

# Notes of the log: a tube and its home. A mark after the home means that the node may be about to create the tube.
_KEY: Final = b"home "
_PROMISED: Final = b"?"


class HomeListTransfer(Timed):
    """A transfer of the list of this node's tubes to a peer. Its deadline is the time of the next part."""

    def __init__(self, node: bytes) -> None:
        super().__init__()
        self.node = node
        self.cursor = 0
        self.part: i64 = LIST_BEGINS


class Homes:
    """The directory of homes on this node."""

    by_tube: dict[bytes, bytes]  # Homes of the tubes that live on other nodes.
    disputes: dict[bytes, bytes]  # Tubes of this node that live on another one as well.
    changes: i64  # Raised with every dispute, so that the server logs it.
    _promised: dict[bytes, i64]  # Tubes that a node may be about to create, with the number of its election.
    _names: dict[bytes, dict[bytes, None]]  # Tubes by node.
    _listed: dict[bytes, dict[bytes, None]]  # Names received so far of a list that is not complete, by node.
    _transfers: dict[bytes, HomeListTransfer]
    _place: ClusterState

    def __init__(self, place: ClusterState) -> None:
        self.by_tube = place.homes
        self.disputes = {}
        self.changes = 0
        self._promised = {}
        self._names = {}
        self._listed = {}
        self._transfers = {}
        self._place = place

    def restore(self) -> None:
        for key, value in self._place.engine.notes.items():
            if key.startswith(_KEY):
                name = key[len(_KEY) :]
                node = value[: len(value) - 1] if value.endswith(_PROMISED) else value
                self.by_tube[name] = node
                self._names_of(node)[name] = None
                if len(value) != len(node):
                    self._promised[name] = 0

    # Queries

    def home_of(self, name: bytes) -> bytes:
        """Return the other node that a tube lives on, or that is allowed to create it. Return b"" if none is known."""
        return self._place.home_of(name)

    def known(self) -> list[bytes]:
        return [name for name in self.by_tube if name not in self._promised and self.home_of(name)]

    def is_promised(self, name: bytes) -> bool:
        """Return whether another node was granted the creation of a tube and has not confirmed the creation yet."""
        return name in self._promised

    # Events of the engine

    def tube_made(self, tube: Tube) -> None:
        """Announce a tube that was created on this node to all peers."""
        if not is_shared(tube):
            self._broadcast(HomesMessage(HOMES, 0, [tube.name], []))

    def tube_dropped(self, tube: Tube) -> None:
        """Announce to all peers that a tube of this node was dropped."""
        if not is_shared(tube):
            self.disputes.pop(tube.name, None)
            self._broadcast(HomesMessage(HOMES, 0, [], [tube.name]))

    # Events of the server

    def tidy(self, now: i64) -> None:
        """Remove from the directory all tubes of nodes that are no longer in the table of nodes."""
        for node in [node for node in self._names if node not in self._place.members.peers]:
            for name in list(self._names[node]):
                self._remove(name, node, now)
            del self._names[node]
            self._listed.pop(node, None)

    # Sending the list of homes

    def ask_for_all(self, node: bytes) -> None:
        """Ask a node for its list of tubes, because a list that it sent before it was in the table was ignored."""
        self._place.outbox.send(node, HomesMessage(HOMES, LIST_WANTED, [], []))

    def send_list(self, node: bytes, now: i64) -> None:
        """Start to send the list of this node's tubes to a node."""
        self.cancel_list(node)
        self.send_next_part(HomeListTransfer(node), now)

    def cancel_list(self, node: bytes) -> None:
        """Stop sending the list to a node, because the list is complete or the link is down."""
        telling = self._transfers.pop(node, None)
        if telling is not None:
            self._place.deadlines.clear(telling)

    def send_next_part(self, telling: HomeListTransfer, now: i64) -> None:
        names: list[bytes] = []
        size = 0
        tubes, telling.cursor = self._place.engine.scan_tubes(telling.cursor, _LIST_SLICE)
        for tube in tubes:
            if size > _LIST_BYTES:
                telling.cursor = tube.number
                break
            if not is_shared(tube):
                names.append(tube.name)
                size += len(tube.name)
        is_last = telling.cursor == 0
        part = telling.part | (LIST_ENDS if is_last else 0)
        self._place.outbox.send(telling.node, HomesMessage(HOMES, part, names, []))
        telling.part = 0
        if is_last:
            self.cancel_list(telling.node)
        else:
            self._transfers[telling.node] = telling
            self._place.deadlines.set(telling, now + 1)

    def _broadcast(self, message: HomesMessage) -> None:
        for peer in self._place.members.peers.values():
            if peer.linked:
                self._place.outbox.send(peer.id, message)

    # Messages from other nodes

    def receive_homes(self, sender: bytes, message: HomesMessage, now: i64) -> None:
        """Process HOMES: the sender's list of its tubes, or a change of that list."""
        if message.part & LIST_BEGINS:
            self._listed[sender] = {}
        listed = self._listed.get(sender)
        for name in message.made:
            if listed is not None:
                listed[name] = None
            self.add(name, sender, now)
        for name in message.gone:
            if listed is not None:
                listed.pop(name, None)
            self._remove(name, sender, now)
        if message.part & LIST_ENDS and listed is not None:
            del self._listed[sender]
            for name in [name for name in self._names_of(sender) if name not in listed]:
                self._remove(name, sender, now)

    def add(self, name: bytes, node: bytes, now: i64) -> None:
        node = self._place.node(node)
        self._names_of(node)[name] = None
        home = self.by_tube.get(name)
        if home is None or home == node or node < home or name in self._promised:
            self._promised.pop(name, None)
            self._enter(name, node, now)
        tube = self._place.engine.tubes.get(name)
        if tube is not None and not is_shared(tube) and self.disputes.get(name) != node:
            self.disputes[name] = node
            self.changes += 1

    def _remove(self, name: bytes, node: bytes, now: i64) -> None:
        self._names_of(node).pop(name, None)
        if self.disputes.get(name) == node:
            del self.disputes[name]
            self.changes += 1
        if self.by_tube.get(name) != node:
            return
        self._promised.pop(name, None)
        others = [other for other, names in self._names.items() if name in names]
        if others:
            self._enter(name, min(others), now)
        else:
            del self.by_tube[name]
            self._place.engine.note(_KEY + name, b"", now)

    def _enter(self, name: bytes, node: bytes, now: i64) -> None:
        assert node != self._place.myself, "the directory contains only homes on other nodes"
        note = node + _PROMISED if name in self._promised else node
        self.by_tube[name] = node
        if self._place.engine.notes.get(_KEY + name) != note:
            self._place.engine.note(_KEY + name, note, now)

    def _names_of(self, node: bytes) -> dict[bytes, None]:
        names = self._names.get(node)
        if names is None:
            names = self._names[node] = {}
        return names

    # Tubes that are about to be created on other nodes

    def promise(self, name: bytes, node: bytes, number: i64, now: i64) -> None:
        """Record that `node` is allowed to create the tube, until `node` withdraws."""
        assert name not in self._place.engine.tubes, "a node grants only the names of tubes that it does not have"
        node = self._place.node(node)
        self._promised[name] = number
        self._names_of(node)[name] = None
        self._enter(name, node, now)
        listed = self._listed.get(node)
        if listed is not None:
            listed[name] = None

    def take_back(self, name: bytes, node: bytes, number: i64, now: i64) -> None:
        """Remove the promise to `node` if it was given in election `number` or an earlier one."""
        if self.by_tube.get(name) == node and self._promised.get(name, NEVER) <= number:
            self._remove(name, node, now)
