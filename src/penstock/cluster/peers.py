"""A peer: another node, with its address, its flags and the state of the link to it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import NODE_FAILED, NODE_LEAVING, NODE_SUSPECTED, Rumour

# Flags of a peer: those of messages.py, which nodes send to each other, and two that are local to this node.
HANDSHAKE: Final = 8  # The peer is no member yet: our link to it, or its link to us, has not been seen working.
NOADDR: Final = 16  # Another node answers at the address of this peer.

_NO_TARGET: Final = HANDSHAKE | NOADDR | NODE_LEAVING | NODE_SUSPECTED | NODE_FAILED


class Peer:
    """Another node, as this node sees it."""

    id: bytes  # Forty hex digits. A random id is used until the node at the address has answered.
    host: str
    port: i64  # For clients.
    bus_port: i64  # For nodes.
    flags: i64
    epoch: i64  # Raised each time a standby takes over this node. A process with a lower epoch is refused.
    # The incarnation that the handshake of our link named. It changes when the node loses its jobs. Empty before the
    # first link, and while a link is dropped because a greeting named another incarnation.
    incarnation: bytes
    greeted: bool  # A greeting has confirmed this incarnation since the link is up. Jobs are handed over only then.
    added: i64  # When it was added to the table, or when meeting it was started again.
    # When the oldest unanswered PING was sent, or when the link was found missing. 0: nothing is unanswered.
    ping_sent: i64
    asked: i64  # When the last PING or MEET was sent.
    pong_received: i64  # When the last PONG was received; 0: never.
    linked: bool  # Our link to it is up.
    linked_at: i64  # When our link to it was opened.
    unlinked_at: i64  # When our link was lost, or when the peer was added. Used only while `linked` is false.
    has_spoken: bool  # A greeting was received over its own link.
    # The operator named its address. It is sent MEET instead of PING, so that it adds this node to its table.
    invited: bool
    lost_at: i64  # Since when another node answers at its address; 0: none does.
    reports: dict[bytes, i64]  # The members that suspect this peer, with the time of their last report.

    def __init__(
        self, id: bytes, host: str, port: i64, bus_port: i64, flags: i64 = 0, added: i64 = 0, epoch: i64 = 0
    ) -> None:
        self.id = id
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.flags = flags
        self.epoch = epoch
        self.incarnation = b""
        self.greeted = False
        self.added = added
        self.ping_sent = 0
        self.asked = 0
        self.pong_received = 0
        self.linked = False
        self.linked_at = 0
        self.unlinked_at = added
        self.has_spoken = False
        self.invited = False
        self.lost_at = 0
        self.reports = {}

    def is_member(self) -> bool:
        """Return whether the peer is a member, and not a node that is still being met."""
        return not self.flags & HANDSHAKE

    def is_failing(self) -> bool:
        """Return whether this node suspects the peer, or the majority has declared it failed."""
        return bool(self.flags & (NODE_SUSPECTED | NODE_FAILED))

    def is_reachable(self) -> bool:
        """Return whether jobs can be sent to the peer."""
        return not self.flags & _NO_TARGET

    def is_at(self, host: str, port: i64, bus_port: i64) -> bool:
        return self.host == host and self.port == port and self.bus_port == bus_port

    def rumour(self) -> Rumour:
        """Return the entry for this peer in a greeting."""
        shown = self.flags & (NODE_SUSPECTED | NODE_FAILED | NODE_LEAVING)
        return Rumour(self.id, self.host, self.port, self.bus_port, shown, self.epoch)
