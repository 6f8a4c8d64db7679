"""Where tubes live that are on one node: a directory of homes.

A tube that promises something about all of its jobs together is *strict*, and lives on the node that made it. Each node
tells its own to every peer, all of them when a link comes up, then what changes; and remembers what it was told, in its
log, so that it knows after a restart where the tubes of a node live that is down. How a tube gets its only home is
said in `founding.py`.

Nodes that never met may both have made one. Then both keep it, others go to the lesser id, and `disputes` tells.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import HOMES, LIST_BEGINS, LIST_ENDS, LIST_WANTED, OfTubes
from penstock.cluster.place import Place
from penstock.core.copying import is_shared
from penstock.core.deadlines import Timed
from penstock.core.limits import NEVER
from penstock.core.tube import Tube

# How many tubes are looked at, or told of, in a turn; and about how many bytes of names a message has.
_LIST_SLICE: Final = 1_000
_LIST_BYTES: Final = 256 * 1024

# The notes of the log: a tube, and the node it lives on; behind that a mark where the node only may be making it.
_KEY: Final = b"home "
_PROMISED: Final = b"?"


class Telling(Timed):
    """A list of this node's tubes that is being told to a peer. Its deadline is when to go on."""

    node: bytes
    cursor: int
    part: i64

    def __init__(self, node: bytes) -> None:
        super().__init__()
        self.node = node
        self.cursor = 0
        self.part = LIST_BEGINS


class Homes:
    """The directory of a node."""

    of: dict[bytes, bytes]  # Tubes that live elsewhere, and where.
    disputes: dict[bytes, bytes]  # Tubes of this node that live on another one, too.
    changes: i64  # Raised with every dispute, so that the shell can tell of it.
    _promised: dict[bytes, i64]  # Tubes that a node may be making, and the number of its claim.
    _names: dict[bytes, dict[bytes, None]]  # Tubes by node.
    _listed: dict[bytes, dict[bytes, None]]  # What a list that is being told has named so far, by node.
    _telling: dict[bytes, Telling]
    _place: Place

    def __init__(self, place: Place) -> None:
        self.of = place.homes
        self.disputes = {}
        self.changes = 0
        self._promised = {}
        self._names = {}
        self._listed = {}
        self._telling = {}
        self._place = place

    def restore(self) -> None:
        """Know what the log knows."""
        for key, value in self._place.engine.notes.items():
            if key.startswith(_KEY):
                name = key[len(_KEY) :]
                node = value[: len(value) - 1] if value.endswith(_PROMISED) else value
                self.of[name] = node
                self._names_of(node)[name] = None
                if len(value) != len(node):
                    self._promised[name] = 0

    # What others ask

    def home_of(self, name: bytes) -> bytes:
        """The node that a tube which is not here lives on, or may be made on; empty if nobody is known to have it."""
        return self._place.home_of(name)

    def known(self) -> list[bytes]:
        """The tubes that are known to live elsewhere."""
        return [name for name in self.of if name not in self._promised and self.home_of(name)]

    def is_promised(self, name: bytes) -> bool:
        """Whether a tube is not known to live where it may."""
        return name in self._promised

    # What the engine tells

    def tube_made(self, tube: Tube) -> None:
        """A tube came into being here."""
        if not is_shared(tube):
            self._tell(OfTubes(HOMES, 0, [tube.name], []))

    def tube_dropped(self, tube: Tube) -> None:
        """A tube is gone."""
        if not is_shared(tube):
            self.disputes.pop(tube.name, None)
            self._tell(OfTubes(HOMES, 0, [], [tube.name]))

    # What the shell tells

    def tidy(self, now: i64) -> None:
        """Forget the tubes of nodes that are none of us any more."""
        for node in [node for node in self._names if node not in self._place.members.peers]:
            for name in list(self._names[node]):
                self._leaves(name, node, now)
            del self._names[node]
            self._listed.pop(node, None)

    # Telling what lives here

    def ask_for_all(self, node: bytes) -> None:
        """Ask a node for every tube that lives there. It may have told them before it was known here."""
        self._place.mail.send(node, OfTubes(HOMES, LIST_WANTED, [], []))

    def tell_all(self, node: bytes, now: i64) -> None:
        """Tell a node of every tube that lives here, from the first one on."""
        self.stop_telling(node)
        self.go_on_telling(Telling(node), now)

    def stop_telling(self, node: bytes) -> None:
        """Do not go on with a list: it is told, or nobody hears it any more."""
        telling = self._telling.pop(node, None)
        if telling is not None:
            self._place.deadlines.clear(telling)

    def go_on_telling(self, telling: Telling, now: i64) -> None:
        """Tell of some more tubes."""
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
        self._place.mail.send(telling.node, OfTubes(HOMES, part, names, []))
        telling.part = 0
        if is_last:
            self.stop_telling(telling.node)
        else:
            self._telling[telling.node] = telling
            self._place.deadlines.set(telling, now + 1)

    def _tell(self, message: OfTubes) -> None:
        for peer in self._place.members.peers.values():
            if peer.linked:
                self._place.mail.send(peer.id, message)

    # What others tell

    def receive_homes(self, sender: bytes, message: OfTubes, now: i64) -> None:
        """A node tells which tubes live there."""
        if message.part & LIST_BEGINS:
            self._listed[sender] = {}
        listed = self._listed.get(sender)
        for name in message.made:
            if listed is not None:
                listed[name] = None
            self.lives(name, sender, now)
        for name in message.gone:
            if listed is not None:
                listed.pop(name, None)
            self._leaves(name, sender, now)
        if message.part & LIST_ENDS and listed is not None:
            del self._listed[sender]
            for name in [name for name in self._names_of(sender) if name not in listed]:
                self._leaves(name, sender, now)

    def lives(self, name: bytes, node: bytes, now: i64) -> None:
        """A tube lives on a node."""
        node = self._place.node(node)
        self._names_of(node)[name] = None
        home = self.of.get(name)
        if home is None or home == node or node < home or name in self._promised:
            self._promised.pop(name, None)
            self._enter(name, node, now)
        tube = self._place.engine.tubes.get(name)
        if tube is not None and not is_shared(tube) and self.disputes.get(name) != node:
            self.disputes[name] = node
            self.changes += 1

    def _leaves(self, name: bytes, node: bytes, now: i64) -> None:
        """A tube lives on a node no more."""
        self._names_of(node).pop(name, None)
        if self.disputes.get(name) == node:
            del self.disputes[name]
            self.changes += 1
        if self.of.get(name) != node:
            return
        self._promised.pop(name, None)
        others = [other for other, names in self._names.items() if name in names]
        if others:
            self._enter(name, min(others), now)
        else:
            del self.of[name]
            self._place.engine.note(_KEY + name, b"", now)

    def _enter(self, name: bytes, node: bytes, now: i64) -> None:
        note = node + _PROMISED if name in self._promised else node
        self.of[name] = node
        if self._place.engine.notes.get(_KEY + name) != note:
            self._place.engine.note(_KEY + name, note, now)

    def _names_of(self, node: bytes) -> dict[bytes, None]:
        names = self._names.get(node)
        if names is None:
            names = self._names[node] = {}
        return names

    # Tubes that may come to live elsewhere

    def promise(self, name: bytes, node: bytes, number: i64, now: i64) -> None:
        """A tube may live on a node from now on, until that says that it does not."""
        node = self._place.node(node)
        self._promised[name] = number
        self._names_of(node)[name] = None
        self._enter(name, node, now)
        listed = self._listed.get(node)
        if listed is not None:
            listed[name] = None

    def take_back(self, name: bytes, node: bytes, number: i64, now: i64) -> None:
        """A tube that might live on a node does not; nor did it by any claim before that of this number."""
        if self.of.get(name) == node and self._promised.get(name, NEVER) <= number:
            self._leaves(name, node, now)
