"""A peer: another node, as this one knows it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import NODE_FAILED, NODE_LEAVING, NODE_SUSPECTED, Rumour

# What is known of a peer: the bits that nodes tell each other (messages.py), and two that stay here.
HANDSHAKE: Final = 8  # We have not heard from it yet over a link of ours and one of its own.
NOADDR: Final = 16  # Somebody else answers at its address.

_NO_TARGET: Final = HANDSHAKE | NOADDR | NODE_LEAVING | NODE_SUSPECTED | NODE_FAILED


class Peer:
    """Another node."""

    id: bytes  # Forty hex digits; of our own making while nobody knows who is at its address.
    host: str
    port: i64  # Where its clients connect,
    bus_port: i64  # and where nodes do.
    flags: i64
    epoch: i64  # Greater each time that a standby becomes this node: an older one of the same id is not it.
    # The incarnation that the handshake of our link named; it changes when the node loses its jobs. It is empty before
    # the first link, and while a link is dropped because a greeting named another incarnation.
    memory: bytes
    greeted: bool  # A greeting named this incarnation since the link is up. Jobs are handed over only then.
    added: i64  # When we came to know of it, or began to try once more to meet it.
    ping_sent: i64  # Since when it owes us an answer, or cannot even be asked; 0: it does not.
    asked: i64  # When it was greeted last.
    pong_received: i64  # When it answered last; 0: never.
    linked: bool  # Our link to it is up.
    linked_at: i64  # Since when it is.
    unlinked_at: i64  # When our link to it was lost, or when we came to know of it; counts while it is not linked.
    heard: bool  # It has spoken to us, over a link of its own.
    invited: bool  # It is to be told MEET: to know us whether it has heard of us or not.
    lost_at: i64  # Since when its address is somebody else's; 0: it is not.
    reports: dict[bytes, i64]  # Who suspects it, too, and when they last said so.

    def __init__(
        self, id: bytes, host: str, port: i64, bus_port: i64, flags: i64 = 0, added: i64 = 0, epoch: i64 = 0
    ) -> None:
        self.id = id
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.flags = flags
        self.epoch = epoch
        self.memory = b""
        self.greeted = False
        self.added = added
        self.ping_sent = 0
        self.asked = 0
        self.pong_received = 0
        self.linked = False
        self.linked_at = 0
        self.unlinked_at = added
        self.heard = False
        self.invited = False
        self.lost_at = 0
        self.reports = {}

    def is_member(self) -> bool:
        """Whether it is a node of the cluster, and not one that we only hope to meet."""
        return not self.flags & HANDSHAKE

    def is_failing(self) -> bool:
        """Whether we, or most of us, cannot reach it."""
        return bool(self.flags & (NODE_SUSPECTED | NODE_FAILED))

    def is_reachable(self) -> bool:
        """Whether it can be given jobs."""
        return not self.flags & _NO_TARGET

    def is_at(self, host: str, port: i64, bus_port: i64) -> bool:
        """Whether this is its address."""
        return self.host == host and self.port == port and self.bus_port == bus_port

    def rumour(self) -> Rumour:
        """What others are told of it."""
        shown = self.flags & (NODE_SUSPECTED | NODE_FAILED | NODE_LEAVING)
        return Rumour(self.id, self.host, self.port, self.bus_port, shown, self.epoch)
