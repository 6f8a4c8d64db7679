"""The cluster bus of a node: its port for other nodes, a link to each of them, and the messages of every turn.

The messages of a turn are sent when the log is durable, as replies are. All messages to one peer are one write. No
message is kept for a peer whose link is down or that does not read, because every important message is repeated by the
node that waits for its answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.cluster.members import NODES_MAX
from penstock.cluster.messages import Message
from penstock.cluster.node import Cluster
from penstock.cluster.peers import Peer
from penstock.cluster.roster import flags_text
from penstock.core.engine import quoted_name
from penstock.node.forwarding import Forwarding
from penstock.node.links import Messages, PeerLinks
from penstock.node.turn import Turn
from penstock.server.net.tls import Handshakes
from penstock.server.peers.links import HANDSHAKE_S, TOO_MANY, Inbound, Link, Outbound
from penstock.wire.bus import MessageEncoder

_log = logging.getLogger("penstock")

# As returned by getaddrinfo.
Addresses = Iterable[tuple[int, int, int, str, Any]]

# The maximum number of incoming links in a handshake, of TLS or of the bus. A new one takes the place of the oldest, so
# silent connections keep no node out.
OPENING_MAX: Final = 32

# The maximum number of incoming links from nodes that have the secret and are not in the table: nodes that are being
# met, and nodes that were removed with CLUSTER FORGET. A new one takes the place of the oldest.
STRANGERS_MAX: Final = 16

# The link to a peer is closed if the peer has not read this many bytes, plus this many of the largest bodies. Lost
# messages are repeated. A body is sent as a whole, and may be sent again before a slow peer has read all of it.
_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
_UNSENT_BODIES_MAX: Final = 2

# The second attempt to connect follows immediately. The third waits this long, later ones longer, up to the maximum.
_RETRY_S: Final = 0.1
_RETRY_S_MAX: Final = 1.0

# A link that was open this long resets the delay.
_LASTING_S: Final = 5.0

# Why a server whose clients need passwords has no links to other nodes.
NEEDS_SECRET: Final = (
    "this server has a password or users, so nodes must authenticate, too: set cluster-secret on every node "
    "(`penstock cluster secret` prints a new one), or tls-cluster"
)

# Refused links are logged at most this often, seconds.
_LOG_INTERVAL_S: Final = 1.0

# If a node moves back to its last address within this time, two nodes have its id. This is logged at most this often.
_MOVED_BACK_S: Final = 10.0


class _NodeAddresses:
    """The present address of a node, and the one before it."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.before = ""
        self.moved = 0.0
        self.logged_at = -_MOVED_BACK_S  # When it was logged that two nodes have this id.


class Bus(PeerLinks):
    """The cluster bus: all links of a node. Links use the part of it that `LinkOwner` describes."""

    def __init__(self, turn: Turn, loop: asyncio.AbstractEventLoop, cluster: Cluster, keep: Callable[[], None]) -> None:
        """Create the bus of a cluster. `keep` saves the node table after a change."""
        self.members = cluster.members
        self.node = cluster.members.myself
        self.secret = b""
        self.bytes_in = 0
        self.bytes_out = 0
        self.traffic: dict[bytes, tuple[int, int]] = {}  # Bytes sent to and received from each node of the table.
        self.packets_out = 0
        self.received = 0  # Messages.
        self.sent = 0
        self.dropped = 0  # Messages for which there was no link.
        self.refusals = 0
        self.on_superseded: Callable[[int], None] = _nothing  # Called with the epoch in which this node was replaced.
        self.tls: ssl.SSLContext | None = None  # For outgoing links, if nodes use TLS.
        self.tls_name = ""  # The name in the nodes' certificates; empty for their addresses.
        self._needs_secret = False  # The server has a password or users: see `why_not`.
        self.forwarding: Forwarding | None = None  # The tunnels of clients that use tubes of other nodes.
        self._turn = turn
        self._loop = loop
        self._cluster = cluster
        self._save = keep
        self._inbound: dict[bytes, Inbound] = {}
        self._unknown: dict[Inbound, None] = {}  # Incoming links before their handshake is finished, oldest first.
        self._outbound: dict[bytes, Outbound] = {}  # By the node that is expected; also links that are being opened.
        self._delays: dict[bytes, float] = {}  # The delay of the next attempt, after failed ones.
        self._retries: dict[bytes, asyncio.TimerHandle] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._moves = -1  # The version of the node table for which links were opened.
        self._changes = 0  # The version of the node table that was saved.
        self._disputes = 0  # The version of the tube homes whose disputes were logged.
        self._logged_states: dict[bytes, str] = {}  # The last logged state of each node.
        self._places: dict[bytes, _NodeAddresses] = {}  # The addresses of each node.
        self._refusal_logged_at = 0.0
        self._closed = False
        self.opening_max = OPENING_MAX
        self.strangers_max = STRANGERS_MAX
        self.handshakes = Handshakes(self._make_room)  # TLS handshakes of incoming links.
        turn.cluster, turn.links = cluster, self

    def accept(self) -> Inbound:
        return Inbound(self)

    def close(self) -> None:
        """Close all links, and open no new ones."""
        self._closed = True
        self._turn.cluster = self._turn.links = None
        for again in self._retries.values():
            again.cancel()
        for task in self._dials:
            task.cancel()
        self.handshakes.close()
        for link in [*self._inbound.values(), *self._unknown, *self._outbound.values()]:
            link.close()

    def begin_anew(self, node: bytes) -> None:
        """Use `node` as the id of this node, and close all incoming links.

        These links belong to the previous id, or to nodes that are no longer peers.
        """
        self.node = node
        for link in [*self._inbound.values(), *self._unknown]:
            link.close()

    # Called by the turn

    def update(self) -> None:
        """Save the node table if it changed, and open and close links."""
        members = self.members
        if members.superseded:
            # Peers must not rely on messages of a replaced node.
            self.close()
            self.on_superseded(int(members.superseded))
            return
        for stale in members.take_stale():
            self._hang_up(stale)
        if members.moves != self._moves:
            self._moves = members.moves
            self._match_links()
            for peer in members.take_unmet():
                _log.warning(
                    "node not met: address=%s bus_port=%d; check that both nodes can reach each other's bus port, "
                    "then meet it again",
                    _place(peer),
                    peer.bus_port,
                )
        if members.changes != self._changes:
            self._changes = members.changes
            self._log_changes()
            self._save()
        if self._cluster.homes.changes != self._disputes:
            self._disputes = self._cluster.homes.changes
            self._log_disputes()

    def send(self, messages: Messages) -> None:
        """Send messages. Those to a peer without a link are dropped."""
        encoder = MessageEncoder()
        unsent_max = _UNSENT_BYTES_MAX + _UNSENT_BODIES_MAX * self._turn.engine.body_bytes_max
        for node, said in messages.items():
            link = self._outbound.get(node)
            if link is None or link.seal is None or link.transport is None:
                self.dropped += len(said)
                continue
            self.sent += len(said)
            self.packets_out += 1
            link.send(said, encoder)
            if link.unsent() > unsent_max:
                link.fail("unread messages exceed the limit")

    def is_two_way(self, node: bytes) -> bool:
        """Return whether messages can be sent to a node and received from it. Each direction has its own link."""
        return node in self._inbound and self.members.is_linked(node)

    def is_crowded(self, node: bytes) -> bool:
        """Return whether the link to a node is too full, so that the bytes of tunnels have to wait."""
        link = self._outbound.get(node)
        return link is not None and link.is_crowded

    def unsent_bytes(self, node: bytes) -> int:
        """Return how many bytes for a node are not sent yet."""
        link = self._outbound.get(node)
        return 0 if link is None else link.unsent()

    # Called by links

    def count_bytes(self, node: bytes, sent: int, received: int) -> None:
        """Count bytes of a link. `node` is empty until the other side has proven its identity."""
        self.bytes_out += sent
        self.bytes_in += received
        if node in self.members.peers:
            before = self.traffic.get(node, (0, 0))
            self.traffic[node] = before[0] + sent, before[1] + received
        elif node in self.traffic:
            del self.traffic[node]

    def handshake_s(self) -> float:
        return min(HANDSHAKE_S, self.members.timeout_ms / 2_000)

    def why_not(self, host: str) -> str:
        """Return the reason why links to or from an address are not allowed, or "" if they are.

        A peer acts for its clients with the rights that it claims for them, so an unauthenticated peer could do
        everything. Only a server without a password trusts every process of its machine.
        """
        if self.is_locked:
            return NEEDS_SECRET
        if self.secret or self.tls is not None:
            return ""
        if is_loopback(host):
            return ""
        return "without cluster-secret or tls-cluster, only nodes on the same machine can connect; set one of them"

    @property
    def is_locked(self) -> bool:
        """Return whether all links are refused, because clients need passwords and no secret authenticates peers."""
        return self._needs_secret and not self.secret

    def set_needs_secret(self, needs_secret: bool) -> None:
        """Set whether links need a secret, as they do if clients need passwords. Close links that are not allowed."""
        was_locked = self.is_locked
        self._needs_secret = needs_secret
        if was_locked and not self.is_locked:
            self._match_links()
        elif self.is_locked and not was_locked:
            if self._inbound or self._outbound:
                _log.warning("cluster bus closed: %s", NEEDS_SECRET)
            for link in [*self._inbound.values(), *self._unknown]:
                link.close()
            for node in list(self._outbound):
                self._hang_up(node)

    def opened(self, link: Inbound) -> bool:
        """Register a new incoming link, whose handshake is not finished. Return False if there are too many links."""
        if not self._make_room():
            return False
        self._unknown[link] = None
        return True

    def _make_room(self) -> bool:
        """Make room for one more unfinished handshake. Return whether there is room."""
        if len(self._inbound) >= 2 * NODES_MAX:
            return False
        if len(self._unknown) + len(self.handshakes) >= self.opening_max and not self.handshakes.close_oldest():
            first = next(iter(self._unknown))
            del self._unknown[first]
            first.refuse(TOO_MANY)
        return True

    def epoch_of(self, node: bytes) -> int:
        return int(self.members.epoch_of(node))

    def why_superseded(self, node: bytes, epoch: int, known: int) -> str:
        """Return the reason why another node is refused, or "" if it is accepted. It has proven its id and epoch.

        `known` is the greatest epoch of this node that the other node has received.
        """
        self._turn.begin()
        if self.members.accept_epoch(node, epoch, known):
            return ""
        if node == self.node and epoch > self.epoch_of(node):
            return f"this node was replaced: another process is node {node.decode()} now, in epoch {epoch}"
        return (
            f"node {node.decode()} was replaced: it is in epoch {self.epoch_of(node)} now, and this process in {epoch}"
        )

    def authenticated(self, link: Inbound) -> None:
        """Start to receive messages on an incoming link, whose node has proven its identity."""
        self._unknown.pop(link, None)
        before = self._inbound.get(link.node)
        self._inbound[link.node] = link
        if before is not None:
            before.close()
            self._lose_tunnels(link.node)
        strangers = [node for node in self._inbound if node not in self.members.peers]
        if len(strangers) > self.strangers_max:
            self._inbound[strangers[0]].fail("too many links of nodes that are not in the table")
        # A node that can reach us can probably be reached.
        again = self._retries.pop(link.node, None)
        if again is not None:
            again.cancel()
            self._delays.pop(link.node, None)
            self._dial(link.node)

    def receive(self, link: Inbound, said: list[Message]) -> None:
        """Handle messages that arrived on an incoming link."""
        if link.epoch < self.epoch_of(link.node):
            link.fail(self.why_superseded(link.node, link.epoch, 0))
            return
        self._turn.begin()
        self.received += len(said)
        if not self.members.host:
            self.members.host = link.own_host
        self._turn.receive(link.node, link.host, said)

    def incarnation(self) -> bytes:
        """Return the incarnation of this node, which changes when it loses its jobs."""
        return self.members.incarnation

    def link_opened(self, link: Outbound, found: bytes, incarnation: bytes) -> None:
        """Start to send messages on an outgoing link. The node `found` has proven its identity and incarnation."""
        self._turn.begin()
        now = self._turn.now
        if self._outbound.get(link.expected) is not link:
            link.close()
            return
        if not self._cluster.link_up(link.expected, found, incarnation, now):
            del self._outbound[link.expected]
            link.close()
            return
        if link.expected != found:
            del self._outbound[link.expected]
            self._outbound[found] = link
            link.expected = found
        link.opened_at = self._loop.time()

    def send_waiting(self, link: Outbound) -> None:
        """Send the forwarded commands and replies that were held back while the outgoing link was full."""
        if self.forwarding is not None and not self._closed:
            self.forwarding.send_waiting(link.expected)

    def lost(self, link: Link) -> None:
        if isinstance(link, Inbound):
            self._unknown.pop(link, None)
            if self._inbound.get(link.node) is link:
                del self._inbound[link.node]
                self._lose_tunnels(link.node)
        elif isinstance(link, Outbound):
            self._lost_ours(link)

    def refused(self, link: Link, why: str) -> None:
        """Count and log a link that was closed for an error in the handshake or in a message. `why` is the reason."""
        self.refusals += 1
        now = self._loop.time()
        if now - self._refusal_logged_at >= _LOG_INTERVAL_S:
            self._refusal_logged_at = now
            _log.warning("bus link closed: address=%s reason=%s", link.host or "unknown", why)

    # Outgoing links

    def _match_links(self) -> None:
        """Open links to all nodes in the node table, and close links to all other nodes."""
        wanted = {peer.id: peer for peer in self.members.to_connect()}
        for node, link in list(self._outbound.items()):
            peer = wanted.get(node)
            if peer is None or (link.host, link.port) != (peer.host, peer.bus_port):
                self._hang_up(node)
        for node, again in list(self._retries.items()):
            if node not in wanted:
                again.cancel()
                del self._retries[node]
        for node in [node for node in self._delays if node not in wanted]:
            del self._delays[node]
        for node in wanted:
            if node not in self._outbound and node not in self._retries:
                self._dial(node)

    def _hang_up(self, node: bytes) -> None:
        """Close the outgoing link to a node. If the node is still in the node table, a new link is opened."""
        link = self._outbound.get(node)
        if link is not None:
            link.close()
            self._lost_ours(link)

    def _lost_ours(self, link: Outbound) -> None:
        if self._outbound.get(link.expected) is not link or self._closed:
            return
        del self._outbound[link.expected]
        if link.seal is not None:
            self._turn.begin()
            self._cluster.link_down(link.expected, self._turn.now)
            self._lose_tunnels(link.expected)
            if self._loop.time() - link.opened_at >= _LASTING_S:
                self._delays.pop(link.expected, None)
        if link.expected in self.members.peers:
            self._dial_later(link.expected)

    def _lose_tunnels(self, node: bytes) -> None:
        """Close all tunnels to a node, because a link was closed and messages in either direction may be lost."""
        if self.forwarding is not None and not self._closed:
            self.forwarding.link_lost(node)

    def _dial_later(self, node: bytes) -> None:
        delay = self._delays.get(node, 0.0)
        self._delays[node] = min(max(_RETRY_S, 2 * delay), _RETRY_S_MAX, self.members.timeout_ms / 4_000)
        self._retries[node] = self._loop.call_later(delay, self._dial, node)

    def _dial(self, node: bytes) -> None:
        """Start to open a link to a node in the node table."""
        self._retries.pop(node, None)
        peer = self.members.peers.get(node)
        if peer is None or node in self._outbound or self._closed or self.why_not(peer.host):
            return
        link = Outbound(self, node, peer.host, int(peer.bus_port))
        self._outbound[node] = link
        task = self._loop.create_task(self._open(link))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _open(self, link: Outbound) -> None:
        security: dict[str, Any] = {}
        if self.tls is not None:
            name = self.tls_name or link.host
            security = {"ssl": self.tls, "server_hostname": name, "ssl_handshake_timeout": self.handshake_s()}
        try:
            # wait_for is not used, because its exceptions are in a reference cycle with their task.
            async with asyncio.timeout(self.handshake_s()):
                await _dial(self._loop, link, security)
        except (TimeoutError, OSError) as error:
            if isinstance(error, ssl.SSLError):
                self.refused(link, f"TLS: {error}")
            link.close()
            self._lost_ours(link)

    # Log lines for the operator

    def _log_changes(self) -> None:
        shown = {peer.id: flags_text(peer.flags) for peer in self.members.peers.values() if peer.is_member()}
        for node, flags in shown.items():
            before = self._logged_states.get(node)
            if before is None:
                _log.info("node joined: node=%s address=%s", node.decode(), _place(self.members.peers[node]))
            elif before != flags:
                _log.info(
                    "node changed: node=%s address=%s state=%s",
                    node.decode(),
                    _place(self.members.peers[node]),
                    flags or "reachable",
                )
            self._log_move(self.members.peers[node])
        for node in self._logged_states:
            if node not in shown:
                _log.info("node left: node=%s", node.decode())
                self._places.pop(node, None)
        self._logged_states = shown

    def _log_move(self, peer: Peer) -> None:
        """Log the new address of a node. If it moves back and forth, log that two nodes have its id."""
        place, now = _place(peer), self._loop.time()
        known = self._places.setdefault(peer.id, _NodeAddresses(place))
        if place == known.place:
            return
        is_back = place == known.before and now - known.moved < _MOVED_BACK_S
        known.place, known.before, known.moved = place, known.place, now
        if now - known.logged_at < _MOVED_BACK_S:
            return
        if is_back:
            known.logged_at = now
            _log.warning(
                "node id used twice: node=%s address=%s other_address=%s; one directory is probably a copy of the "
                "other; stop one of the nodes for good",
                peer.id.decode(),
                known.before,
                place,
            )
        else:
            _log.info("node moved: node=%s address=%s", peer.id.decode(), place)

    def _log_disputes(self) -> None:
        for tube, other in self._cluster.homes.disputes.items():
            _log.warning(
                "tube has two homes, because it was created before the nodes met: tube=%s other_home=%s "
                "used_by_other_nodes=%s; empty one of the two and drop it",
                quoted_name(tube),
                self._cluster.state.describe(other),
                "other_home" if other < self.node else "this node",
            )


async def _dial(loop: asyncio.AbstractEventLoop, link: Outbound, security: dict[str, Any]) -> None:
    addresses = await loop.getaddrinfo(link.host, link.port, type=socket.SOCK_STREAM)
    await loop.create_connection(lambda: link, sock=await connected(loop, addresses), **security)


async def connected(loop: asyncio.AbstractEventLoop, addresses: Addresses) -> socket.socket:
    """Return a socket that is connected to the first reachable address. If none is, raise the last error.

    The local port of the socket may be the port of a node that is down. That node can still listen on it when it comes
    back, because both sides set SO_REUSEADDR.
    """
    failure = OSError("there is no such address")
    try:
        for family, kind, protocol, _, address in addresses:
            try:
                return await _connected(loop, socket.socket(family, kind, protocol), address)
            except OSError as error:
                failure = error
        raise failure
    finally:
        # The error's traceback refers to this frame, and this frame to the error. This breaks the cycle.
        del failure


async def _connected(loop: asyncio.AbstractEventLoop, made: socket.socket, address: Any) -> socket.socket:
    """Connect a socket to an address and return it. If that fails, close it and raise the error."""
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)
        await loop.sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _nothing(epoch: int) -> None: ...


def _place(peer: Peer) -> str:
    return f"{peer.host}:{peer.port}"
