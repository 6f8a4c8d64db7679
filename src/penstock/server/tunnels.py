"""What goes through a tunnel between two nodes: bytes either way, and no more under way than the other side reads.

A client that asks for a tube of another node gets a tunnel there (`forwarding.py`), and at its other end is a guest
(`guests.py`), a connection like any other. Both ends are lost with the link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from penstock.cluster import messages as m
from penstock.cluster.messages import Message, OfTunnel, Papers
from penstock.wire.bus import TUNNEL_BYTES_MAX

# How many bytes may be under way each way, and how many are read before the other side hears of it.
WINDOW_BYTES: Final = 1024 * 1024
_TOLD_BYTES: Final = WINDOW_BYTES // 4


class Ends(Protocol):
    """Either end of all tunnels, as the bus sees it."""

    def __len__(self) -> int:
        """How many there are."""

    def hear(self, sender: bytes, message: Papers | OfTunnel) -> None:
        """A node says something that is for this end."""

    def has_room(self, node: bytes) -> None:
        """What waited because a node had too much to read can be said."""

    def link_lost(self, node: bytes) -> None:
        """What was under way from or to a node may be lost."""


class Tunnels:
    """Both ends of all tunnels of a node."""

    def __init__(self, entries: Ends, homes: Ends) -> None:
        self._entries = entries
        self._homes = homes

    def hear(self, sender: bytes, message: Message) -> None:
        """A node says something about a tunnel."""
        if isinstance(message, Papers):
            self._homes.hear(sender, message)
        elif isinstance(message, OfTunnel):
            (self._entries if message.is_back else self._homes).hear(sender, message)

    def counts(self) -> dict[str, int]:
        """How many there are, for people."""
        return {"cluster_tunnels_out": len(self._entries), "cluster_tunnels_in": len(self._homes)}

    def has_room(self, node: bytes) -> None:
        """A node has read most of what it was told."""
        self._entries.has_room(node)
        self._homes.has_room(node)

    def link_lost(self, node: bytes) -> None:
        """A link from or to a node is gone, or was replaced."""
        self._entries.link_lost(node)
        self._homes.link_lost(node)


class Lines(Protocol):
    """What leads to other nodes."""

    def say(self, node: bytes, message: Papers | OfTunnel) -> None:
        """Tell a node something."""

    def is_two_way(self, node: bytes) -> bool:
        """Whether a node can be told something, and can answer."""

    def is_crowded(self, node: bytes) -> bool:
        """Whether a node has so much to read that bytes of clients have to wait."""


class Voice:
    """How one end of a tunnel talks to the other.

    It does not know its end, which has it and what goes through it: so an end is in no cycle, and goes when it is over.
    A server that holds many jobs never looks for cycles among what is old.
    """

    def __init__(self, lines: Lines, node: bytes, number: int, is_back: bool) -> None:
        self.node = node
        self._lines = lines
        self._number = number
        self._is_back = is_back

    def say(self, kind: int, aux: int, data: bytes) -> None:
        """Say something."""
        self._lines.say(self.node, OfTunnel(kind, self._number, self._is_back, aux, data))

    def say_command(self, data: bytes, ends: bool) -> None:
        """Say some of a command, or the rest of it."""
        self.say(m.FORWARD, m.COMMAND_ENDS if ends else 0, data)

    def say_answer(self, data: bytes, ends: bool) -> None:
        """Say some of an answer, or the rest of it."""
        self.say(m.FORWARDED, 1 if ends else 0, data)

    def say_read(self, count: int) -> None:
        """Say how much was read."""
        self.say(m.TUNNELREAD, count, b"")

    def has_to_wait(self) -> bool:
        """Whether the other node has so much to read that bytes of clients have to wait."""
        return self._lines.is_crowded(self.node)


class Outflow:
    """What is to be said one way."""

    def __init__(self, send: Callable[[bytes, bool], None], waits: Callable[[], bool]) -> None:
        """Take what sends some bytes, and whether something ends with them; and whether that has to wait."""
        self._send = send
        self._waits = waits
        self._queue = bytearray()
        self._ends = False  # Something ends with the last byte.
        self._under_way = 0

    def write(self, data: bytes, ends: bool) -> None:
        """Say this, when the other side has read enough of what was said before."""
        self._queue += data
        self._ends = ends
        if ends and not self._queue:
            self._send(b"", True)
        self.flow()

    def were_read(self, count: int) -> None:
        """The other side has read so many bytes."""
        self._under_way -= count
        self.flow()

    def flow(self) -> None:
        """Send what may be sent."""
        queue = self._queue
        while queue and self._under_way < WINDOW_BYTES and not self._waits():
            some = bytes(queue[: min(TUNNEL_BYTES_MAX, WINDOW_BYTES - self._under_way)])
            del queue[: len(some)]
            self._under_way += len(some)
            self._send(some, self._ends and not queue)

    def waiting(self) -> int:
        """How many bytes were not sent yet."""
        return len(self._queue)

    def unread(self) -> int:
        """How many bytes the other side has not read, as far as it has said."""
        return len(self._queue) + self._under_way


class Inflow:
    """What comes in one way: the other side hears from time to time how much of it was read."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._untold = 0
        self._held = False

    def read(self, count: int) -> None:
        """So many bytes were passed on."""
        self._untold += count
        if self._untold >= _TOLD_BYTES and not self._held:
            self._tell(self._untold)
            self._untold = 0

    def hold(self) -> None:
        """No more can be passed on now."""
        self._held = True

    def go_on(self) -> None:
        """More can."""
        self._held = False
        self.read(0)
