"""Tunnels between two nodes: bytes in both directions, with a window that limits the bytes in flight.

A client that uses a tube of another node has a tunnel to it (`forwarding.py`). At the other end is a forwarded client
(`forwarded_clients.py`), a connection like any other. Both ends are closed when a link between the nodes is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.cluster import messages as m
from penstock.cluster.messages import Credentials, TunnelMessage
from penstock.cluster.node import Cluster
from penstock.node.turn import Turn
from penstock.wire.bus import TUNNEL_BYTES_MAX

# The window: at most this many bytes are in flight in each direction. Every quarter of it is confirmed when it is read.
WINDOW_BYTES: Final = 1024 * 1024
_CONFIRM_BYTES: Final = WINDOW_BYTES // 4


class TunnelLinks:
    """Sends the messages of tunnels to other nodes, and to this node itself, because a part of a command may run here.

    A message is sent immediately, because it depends only on changes that are already durable, or on none.
    """

    def __init__(self, turn: Turn, cluster: Cluster) -> None:
        self._turn = turn
        self._cluster = cluster

    def send(self, node: bytes, message: Credentials | TunnelMessage) -> None:
        """Send a message to a node."""
        if node == self._cluster.members.myself:
            self._turn.defer(lambda: self._turn.remote.receive(node, message))
        elif self._turn.links is not None:
            self._cluster.outbox.sent[int(message.kind)] += 1
            self._turn.links.send({node: [message]})

    def is_two_way(self, node: bytes) -> bool:
        """Return whether messages can be sent to a node and received from it."""
        links = self._turn.links
        return node == self._cluster.members.myself or (links is not None and links.is_two_way(node))

    def is_crowded(self, node: bytes) -> bool:
        """Return whether the link to a node is too full, so that clients' bytes have to wait."""
        links = self._turn.links
        return links is not None and links.is_crowded(node)


class TunnelWriter:
    """Sends the messages of one tunnel end.

    It has no reference to its tunnel end. So the end is part of no reference cycle and is freed as soon as it is
    closed. This matters, because a server with many jobs rarely collects garbage among old objects.
    """

    def __init__(self, links: TunnelLinks, node: bytes, number: int, is_back: bool) -> None:
        self.node = node
        self._links = links
        self._number = number
        self._is_back = is_back

    def write(self, kind: int, aux: int, data: bytes) -> None:
        """Send a message of the given kind. The meaning of the number `aux` depends on the kind."""
        self._links.send(self.node, TunnelMessage(kind, self._number, self._is_back, aux, data))

    def write_command(self, data: bytes, ends: bool) -> None:
        """Send a part of a command. `ends` marks the last part."""
        self.write(m.FORWARD, m.COMMAND_ENDS if ends else 0, data)

    def write_reply(self, data: bytes, ends: bool) -> None:
        """Send a part of a reply. `ends` marks the last part."""
        self.write(m.FORWARDED, 1 if ends else 0, data)

    def write_read(self, count: int) -> None:
        """Confirm to the other end that `count` bytes were read."""
        self.write(m.TUNNELREAD, count, b"")

    def has_to_wait(self) -> bool:
        """Return whether the link to the other node is too full, so that clients' bytes have to wait."""
        return self._links.is_crowded(self.node)


class Outflow:
    """The outgoing bytes of one tunnel end. A window limits the bytes that the other end has not confirmed."""

    def __init__(self, send: Callable[[bytes, bool], None], waits: Callable[[], bool]) -> None:
        """Create an empty flow. `send` sends bytes; its second argument marks the end of a command or reply.

        `waits` returns whether sending has to wait, because the link is full.
        """
        self._send = send
        self._waits = waits
        self._queue = bytearray()
        self._ends = False  # The last byte of the queue ends a command or a reply.
        self._under_way = 0

    def write(self, data: bytes, ends: bool) -> None:
        """Queue bytes. They are sent as far as the window allows."""
        self._queue += data
        self._ends = ends
        if ends and not self._queue:
            self._send(b"", True)
        self.flow()

    def confirmed(self, count: int) -> None:
        """Reduce the bytes in flight, because the other end has read `count` of them."""
        self._under_way -= count
        self.flow()

    def flow(self) -> None:
        """Send as many of the queued bytes as the window and the link allow."""
        queue = self._queue
        while queue and self._under_way < WINDOW_BYTES and not self._waits():
            some = bytes(queue[: min(TUNNEL_BYTES_MAX, WINDOW_BYTES - self._under_way)])
            del queue[: len(some)]
            self._under_way += len(some)
            self._send(some, self._ends and not queue)

    def waiting(self) -> int:
        """Return how many queued bytes are not sent yet."""
        return len(self._queue)

    def unread(self) -> int:
        """Return how many bytes the other end has not confirmed, including those not sent."""
        return len(self._queue) + self._under_way


class Inflow:
    """The incoming bytes of one tunnel end. It confirms bytes to the other end after they were read."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._confirm = tell
        self._unconfirmed = 0
        self._held = False

    def read(self, count: int) -> None:
        """Count `count` bytes as read. Confirm all counted bytes when they reach a quarter of the window."""
        self._unconfirmed += count
        if self._unconfirmed >= _CONFIRM_BYTES and not self._held:
            self._confirm(self._unconfirmed)
            self._unconfirmed = 0

    def hold(self) -> None:
        """Stop confirming, because the client cannot process more bytes now."""
        self._held = True

    def go_on(self) -> None:
        """Resume confirming after `hold`. Bytes that were read in the meantime are confirmed too."""
        self._held = False
        self.read(0)
