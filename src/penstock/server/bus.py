"""The bus of a node: its door for other nodes, a link to each of them, and the post that goes out with every turn.

What a turn has to say leaves when the log is durable, as answers do, and all of it to one peer in one write. Nothing is
kept for a peer whose link is down or that does not read: everything that matters is said again by whoever waits for it.
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
from penstock.core.engine import shown
from penstock.server.links import HANDSHAKE_S, TOO_MANY, Inbound, Link, Outbound
from penstock.server.node import Node
from penstock.server.post import Letters
from penstock.server.tls import Handshakes
from penstock.server.tunnels import Tunnels
from penstock.wire.bus import Scribe

_log = logging.getLogger("penstock")

# As getaddrinfo tells them.
Addresses = Iterable[tuple[int, int, int, str, Any]]

# How many incoming links may be in a handshake, of TLS or of the bus. A new one takes the place of the oldest, so
# silent connections keep no node out.
OPENING_MAX: Final = 32

# How many incoming links there may be from nodes that know the secret and are not in the table: those about to be met,
# and forgotten ones. A new one takes the place of the oldest.
STRANGERS_MAX: Final = 16

# A peer that has not read so much of what it was told, and beside that so many of the largest bodies, is hung up on;
# what it missed is said again. A body goes out as a whole, and once more before one who is slow has read all of it.
_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
_UNSENT_BODIES_MAX: Final = 2

# How long to wait before an address is tried a third time, seconds, and at most: the second time comes at once.
_AGAIN_S: Final = 0.1
_AGAIN_S_MAX: Final = 1.0

# A link that lived for so long was not opened in vain, seconds.
_LASTING_S: Final = 5.0

# Why a server that asks its clients for passwords has no links to other nodes.
NEEDS_SECRET: Final = (
    "this server has a password or users, so nodes must authenticate, too: set cluster-secret on every node "
    "(`penstock cluster secret` prints a new one), or tls-cluster"
)

# How often the log says that somebody was refused, seconds.
_TELL_S: Final = 1.0

# A node that comes back to where it was so soon is two, seconds; and so often the log says that.
_TO_AND_FRO_S: Final = 10.0


class _Whereabouts:
    """Where a node was last."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.before = ""
        self.moved = 0.0
        self.told = -_TO_AND_FRO_S  # When the log said that there are two of it.


class Bus:
    """All links of a node. `Exchange` is what they see of it."""

    def __init__(self, node: Node, cluster: Cluster, keep: Callable[[], None]) -> None:
        """Take the cluster as this node sees it, and what keeps the table of nodes when that has changed."""
        self.members = cluster.members
        self.node = cluster.members.myself
        self.secret = b""
        self.bytes_in = 0
        self.bytes_out = 0
        self.packets_out = 0
        self.received = 0  # Messages,
        self.sent = 0
        self.dropped = 0  # and those that nobody could be told.
        self.refusals = 0
        self.on_superseded: Callable[[int], None] = _nothing  # Told once that another is this node, and in which epoch.
        self.tls: ssl.SSLContext | None = None  # For links of ours, where nodes use TLS.
        self.tls_name = ""  # What their certificates are for; empty for their addresses.
        self._needs_secret = False  # The server has a password or users: see `why_not`.
        self.tunnels: Tunnels | None = None  # Of clients that use tubes of other nodes.
        self._node = node
        self._cluster = cluster
        self._mail = cluster.mail
        self._keep = keep
        self._inbound: dict[bytes, Inbound] = {}
        self._unknown: dict[Inbound, None] = {}  # Who has not proven anything yet, in the order in which they came.
        self._outbound: dict[bytes, Outbound] = {}  # By who should be there; also those that are still being opened.
        self._delays: dict[bytes, float] = {}  # How long the next try has to wait, of those that were in vain lately.
        self._again: dict[bytes, asyncio.TimerHandle] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._moves = -1  # Of the table, as far as links were opened for it.
        self._changes = 0  # Of the table, as far as it was kept.
        self._disputes = 0  # As far as the log has told of them.
        self._shown: dict[bytes, str] = {}  # What the log has said of whom,
        self._places: dict[bytes, _Whereabouts] = {}  # and where they were.
        self._told = 0.0
        self._closed = False
        self.opening_max = OPENING_MAX
        self.strangers_max = STRANGERS_MAX
        self.handshakes = Handshakes(self._make_room)  # Of incoming links, where nodes use TLS.
        node.post.open(cluster, self)

    def accept(self) -> Inbound:
        """Somebody opens a link."""
        return Inbound(self)

    def close(self) -> None:
        """Hang up on everybody."""
        self._closed = True
        self._node.post.close()
        for again in self._again.values():
            again.cancel()
        for task in self._dials:
            task.cancel()
        self.handshakes.close()
        for link in [*self._inbound.values(), *self._unknown, *self._outbound.values()]:
            link.close()

    def begin_anew(self, node: bytes) -> None:
        """Be another node from now on, or one who knows nobody any more: all links were those of the one before."""
        self.node = node
        for link in [*self._inbound.values(), *self._unknown]:
            link.close()

    # What the post asks for: see post.Links

    def tend(self) -> None:
        """Nodes came or went, or a link leads nowhere: keep what has changed, and open and close links."""
        members = self.members
        if members.superseded:
            # Nobody may count on what this one says any more.
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
                    "nobody was met at %s: see whether the two nodes reach each other's ports for nodes (%d there), "
                    "then meet it again",
                    _place(peer),
                    peer.bus_port,
                )
        if members.changes != self._changes:
            self._changes = members.changes
            self._tell_changes()
            self._keep()
        if self._cluster.homes.changes != self._disputes:
            self._disputes = self._cluster.homes.changes
            self._tell_disputes()

    def send(self, letters: Letters) -> None:
        """Say what is in the letters."""
        scribe = Scribe()
        unsent_max = _UNSENT_BYTES_MAX + _UNSENT_BODIES_MAX * self._node.engine.body_bytes_max
        for node, said in letters.items():
            link = self._outbound.get(node)
            if link is None or link.seal is None or link.transport is None:
                self.dropped += len(said)
                continue
            self.sent += len(said)
            self.packets_out += 1
            link.post(said, scribe)
            if link.unsent() > unsent_max:
                link.fail("it does not read what it is told")

    def tunnelled(self, sender: bytes, message: Message) -> None:
        """A node has said something that is about a client of its own, or of ours."""
        if self.tunnels is not None and self.members.is_member(sender):
            self.tunnels.hear(sender, message)

    def say(self, node: bytes, message: Message) -> None:
        """Say something at once: it rests on nothing that is not in the log yet."""
        kind = int(message.kind)
        self._mail.sent[kind] += 1
        self.send({node: [message]})

    def is_two_way(self, node: bytes) -> bool:
        """Whether a node can be told something, and can answer: it does so on a link of its own."""
        return node in self._inbound and self.members.is_linked(node)

    def is_crowded(self, node: bytes) -> bool:
        """Whether a node has so much to read that what can wait is better not said now."""
        link = self._outbound.get(node)
        return link is not None and link.is_crowded

    # What links tell: see links.Exchange

    def patience_s(self) -> float:
        """How long a handshake may take."""
        return min(HANDSHAKE_S, self.members.timeout_ms / 2_000)

    def why_not(self, host: str) -> str:
        """Return why there are no links to or from an address; empty if there may be.

        A peer acts for its clients with the rights that it claims for them, so an unauthenticated peer is an admin. A
        server without a password trusts every process of its machine anyway. One with a password does not.
        """
        if self.is_locked:
            return NEEDS_SECRET
        if self.secret or self.tls is not None:
            return ""
        if is_loopback(host):
            return ""
        return "without a cluster-secret or tls-cluster nodes are talked to on the same machine only"

    @property
    def is_locked(self) -> bool:
        """Whether there are no links at all, because peers cannot be authenticated."""
        return self._needs_secret and not self.secret

    def set_needs_secret(self, needs_secret: bool) -> None:
        """Set whether links need a secret, because clients need passwords; close links that may no longer be."""
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

    def came(self, link: Inbound) -> bool:
        """Somebody has opened a link; tell whether there is room for it."""
        if not self._make_room():
            return False
        self._unknown[link] = None
        return True

    def _make_room(self) -> bool:
        """Make room for one more link in a handshake, and return whether there is any."""
        if len(self._inbound) >= 2 * NODES_MAX:
            return False
        if len(self._unknown) + len(self.handshakes) >= self.opening_max and not self.handshakes.close_oldest():
            first = next(iter(self._unknown))
            del self._unknown[first]
            first.turn_away(TOO_MANY)
        return True

    def epoch_of(self, node: bytes) -> int:
        """The greatest epoch that is known of a node, which may be this one."""
        return int(self.members.epoch_of(node))

    def why_past(self, node: bytes, epoch: int, known: int) -> str:
        """Why a node is not talked to that has proven who it is, and in which epoch; empty if it is.

        `known` is the greatest epoch in which that node knows this one.
        """
        self._node.begin_turn()
        if self.members.introduced(node, epoch, known):
            return ""
        if node == self.node and epoch > self.epoch_of(node):
            return f"this node was replaced: another is node {node.decode()} now, in epoch {epoch}"
        return (
            f"node {node.decode()} was replaced: it is in epoch {self.epoch_of(node)} by now, and this one in {epoch}"
        )

    def is_known(self, link: Inbound) -> None:
        """Who opened a link has proven who it is."""
        self._unknown.pop(link, None)
        before = self._inbound.get(link.node)
        self._inbound[link.node] = link
        if before is not None:
            before.close()
            self._lose_tunnels(link.node)
        strangers = [node for node in self._inbound if node not in self.members.peers]
        if len(strangers) > self.strangers_max:
            self._inbound[strangers[0]].fail("too many nodes that are not in the table have links")
        # Somebody who can reach us can probably be reached.
        again = self._again.pop(link.node, None)
        if again is not None:
            again.cancel()
            self._delays.pop(link.node, None)
            self._dial(link.node)

    def heard(self, link: Inbound, said: list[Message]) -> None:
        """A peer has said something."""
        if link.epoch < self.epoch_of(link.node):
            link.fail(self.why_past(link.node, link.epoch, 0))
            return
        node = self._node
        node.begin_turn()
        self.received += len(said)
        if not self.members.host:
            self.members.host = link.own_host
        node.post.hear(link.node, link.host, said, node.now)
        node.keep_frames_small()

    def incarnation(self) -> bytes:
        """Return the incarnation of this node, which changes when it loses its jobs."""
        return self.members.memory

    def is_open(self, link: Outbound, found: bytes, incarnation: bytes) -> None:
        """Use a link of ours that leads to the node `found`, which has proven its identity and its incarnation."""
        self._node.begin_turn()
        now = self._node.now
        if self._outbound.get(link.named) is not link:
            link.close()
            return
        if not self._cluster.link_up(link.named, found, incarnation, now):
            del self._outbound[link.named]
            link.close()
            return
        if link.named != found:
            del self._outbound[link.named]
            self._outbound[found] = link
            link.named = found
        link.opened_at = self._node.loop.time()

    def has_room(self, link: Outbound) -> None:
        """A link of ours on which much waited has room again."""
        if self.tunnels is not None and not self._closed:
            self._node.begin_turn()
            self.tunnels.has_room(link.named)

    def lost(self, link: Link) -> None:
        """A link is gone."""
        if isinstance(link, Inbound):
            self._unknown.pop(link, None)
            if self._inbound.get(link.node) is link:
                del self._inbound[link.node]
                self._lose_tunnels(link.node)
        elif isinstance(link, Outbound):
            self._lost_ours(link)

    def refused(self, link: Link, why: str) -> None:
        """Somebody has said what makes no sense, or is not one of us."""
        self.refusals += 1
        now = self._node.loop.time()
        if now - self._told >= _TELL_S:
            self._told = now
            _log.warning("bus: hung up on %s: %s", link.host or "somebody", why)

    # Links of ours

    def _match_links(self) -> None:
        """Have a link to everybody who is in the table, and to nobody else."""
        wanted = {peer.id: peer for peer in self.members.to_connect()}
        for node, link in list(self._outbound.items()):
            peer = wanted.get(node)
            if peer is None or (link.host, link.port) != (peer.host, peer.bus_port):
                self._hang_up(node)
        for node, again in list(self._again.items()):
            if node not in wanted:
                again.cancel()
                del self._again[node]
        for node in [node for node in self._delays if node not in wanted]:
            del self._delays[node]
        for node in wanted:
            if node not in self._outbound and node not in self._again:
                self._dial(node)

    def _hang_up(self, node: bytes) -> None:
        """Close a link of ours; if it is wanted, there will be another."""
        link = self._outbound.get(node)
        if link is not None:
            link.close()
            self._lost_ours(link)

    def _lost_ours(self, link: Outbound) -> None:
        if self._outbound.get(link.named) is not link or self._closed:
            return
        del self._outbound[link.named]
        if link.seal is not None:
            self._node.begin_turn()
            self._cluster.link_down(link.named, self._node.now)
            self._lose_tunnels(link.named)
            if self._node.loop.time() - link.opened_at >= _LASTING_S:
                self._delays.pop(link.named, None)
        if link.named in self.members.peers:
            self._dial_later(link.named)

    def _lose_tunnels(self, node: bytes) -> None:
        """What a node has said, or was told, may be lost."""
        if self.tunnels is not None and not self._closed:
            self._node.begin_turn()
            self.tunnels.link_lost(node)

    def _dial_later(self, node: bytes) -> None:
        delay = self._delays.get(node, 0.0)
        self._delays[node] = min(max(_AGAIN_S, 2 * delay), _AGAIN_S_MAX, self.members.timeout_ms / 4_000)
        self._again[node] = self._node.loop.call_later(delay, self._dial, node)

    def _dial(self, node: bytes) -> None:
        """Open a link to somebody who is in the table."""
        self._again.pop(node, None)
        peer = self.members.peers.get(node)
        if peer is None or node in self._outbound or self._closed or self.why_not(peer.host):
            return
        link = Outbound(self, node, peer.host, int(peer.bus_port))
        self._outbound[node] = link
        task = self._node.loop.create_task(self._open(link))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _open(self, link: Outbound) -> None:
        security: dict[str, Any] = {}
        if self.tls is not None:
            name = self.tls_name or link.host
            security = {"ssl": self.tls, "server_hostname": name, "ssl_handshake_timeout": self.patience_s()}
        try:
            # Not wait_for: what fails there is in a cycle with its task.
            async with asyncio.timeout(self.patience_s()):
                await _dial(self._node.loop, link, security)
        except (TimeoutError, OSError) as error:
            if isinstance(error, ssl.SSLError):
                self.refused(link, f"TLS: {error}")
            link.close()
            self._lost_ours(link)

    # What the operator sees

    def _tell_changes(self) -> None:
        """Let the log say who came, went or cannot be reached."""
        shown = {peer.id: flags_text(peer.flags) for peer in self.members.peers.values() if peer.is_member()}
        for node, flags in shown.items():
            before = self._shown.get(node)
            if before is None:
                _log.info("node %s at %s is in the cluster", node.decode(), _place(self.members.peers[node]))
            elif before != flags:
                _log.info("node %s at %s: %s", node.decode(), _place(self.members.peers[node]), flags or "reachable")
            self._tell_place(self.members.peers[node])
        for node in self._shown:
            if node not in shown:
                _log.info("node %s is in the cluster no more", node.decode())
                self._places.pop(node, None)
        self._shown = shown

    def _tell_place(self, peer: Peer) -> None:
        """Let the log say where a node is now; if it goes to and fro, that there are two of it."""
        place, now = _place(peer), self._node.loop.time()
        known = self._places.setdefault(peer.id, _Whereabouts(place))
        if place == known.place:
            return
        is_back = place == known.before and now - known.moved < _TO_AND_FRO_S
        known.place, known.before, known.moved = place, known.place, now
        if now - known.told < _TO_AND_FRO_S:
            return
        if is_back:
            known.told = now
            _log.warning(
                "node %s is at %s and at %s: two nodes have one id, as if the directory of one were a copy of the "
                "other's; stop one of them for good",
                peer.id.decode(),
                known.before,
                place,
            )
        else:
            _log.info("node %s is at %s now", peer.id.decode(), place)

    def _tell_disputes(self) -> None:
        """Let the log say which tubes live on two nodes."""
        for tube, other in self._cluster.homes.disputes.items():
            _log.warning(
                "tube %s lives here and on %s, where it was made before the two nodes met; other nodes go to %s: "
                "empty one of them, and drop it",
                shown(tube),
                self._cluster.place.shown(other),
                "that one" if other < self.node else "this one",
            )


async def _dial(loop: asyncio.AbstractEventLoop, link: Outbound, security: dict[str, Any]) -> None:
    addresses = await loop.getaddrinfo(link.host, link.port, type=socket.SOCK_STREAM)
    await loop.create_connection(lambda: link, sock=await connected(loop, addresses), **security)


async def connected(loop: asyncio.AbstractEventLoop, addresses: Addresses) -> socket.socket:
    """A socket to the first of these addresses that can be reached. Raises what the last of them failed with.

    Its own port is any that is free, perhaps that of a node which is down: that one may listen on it when it is back,
    though we use it, since both sides allow that.
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
        # It has this call in its traceback, and this call has it: together they would stay for ever.
        del failure


async def _connected(loop: asyncio.AbstractEventLoop, made: socket.socket, address: Any) -> socket.socket:
    """The socket, once it is connected; it is closed where that fails."""
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)
        await loop.sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


def is_loopback(host: str) -> bool:
    """Whether an address is on this machine, seen from itself."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _nothing(epoch: int) -> None: ...


def _place(peer: Peer) -> str:
    return f"{peer.host}:{peer.port}"
