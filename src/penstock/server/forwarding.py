"""Commands that go to the node on which their tube lives, and their answers back.

    client ── RESP or IPROTO ── this node ── tunnel ── the home of the tube

A client has a tunnel to each home that it uses, for as long as both links to that node are up. A client of RESP has one
command under way and waits for it; one of IPROTO may have many, told apart by their syncs. What was sent is never sent
again: if the link is lost before the answer came, the client hears that nobody knows.
"""

from __future__ import annotations

from typing import Final

from penstock.cluster import messages as m
from penstock.cluster.messages import OfTunnel, Papers
from penstock.cluster.node import Cluster
from penstock.core.errors import NoHome, PenstockError
from penstock.core.tube_patterns import EVERY_TUBE
from penstock.dialects.calls import refuse
from penstock.dialects.command import ANSWERED, Desk, refusal_line
from penstock.server.bus import Bus
from penstock.server.connection import Connection
from penstock.server.guests import Guests
from penstock.server.iproto import Door, IprotoConnection
from penstock.server.node import Abroad, Client, Node
from penstock.server.server import Server
from penstock.server.tunnels import WINDOW_BYTES, Inflow, Lines, Outflow, Tunnels, Voice
from penstock.wire import answers, iproto
from penstock.wire.errors import Elsewhere, Refused, Spread
from penstock.wire.iproto import AnswerPackets, Request

# A number of a tunnel is one that none before a restart had: the time in ms, and room for a million a second.
_NUMBERS_PER_MS: Final = 1_000

_UNKNOWN: Final = "; this may have been done or not"


class Tunnel:
    """This end of a tunnel: what one client has to do with one other node."""

    def __init__(self, forwarding: Forwarding, client: Connection, node: bytes, number: int) -> None:
        self.client = client
        self.node = node
        self.number = number
        self.papers: Papers | None = None  # As the other end has them.
        self._voice = Voice(forwarding.lines, node, number, False)
        self.inflow = Inflow(self._voice.say_read)
        self._out = Outflow(self._voice.say_command, self._voice.has_to_wait)

    def send(self, command: bytes) -> None:
        """Send a command."""
        self._out.write(command, True)

    def is_full(self) -> bool:
        """Whether the other end has enough to read."""
        return self._out.waiting() > WINDOW_BYTES

    def hear(self, message: OfTunnel) -> None:
        """The other end says something."""
        if message.kind == m.TUNNELREAD:
            self._out.were_read(message.aux)
            self.was_read()
        elif message.kind == m.FORWARDED:
            self.answered(message.data, bool(message.aux))
            if self.client.is_unread:
                self.inflow.hold()
            self.inflow.read(len(message.data))

    def flow(self) -> None:
        """There is room for more of what waits."""
        self._out.flow()
        self.was_read()

    def was_read(self) -> None:
        """The other end has read something."""

    def answered(self, data: bytes, ends: bool) -> None:
        """Some of an answer came, or the rest of it."""
        raise NotImplementedError

    def fail(self, why: str, line: bytes) -> None:
        """It is over: refuse what is under way, in these words of RESP if there are any."""
        raise NotImplementedError

    def say_hurry(self) -> None:
        """Let what is under way wait no longer."""
        self._voice.say(m.FORWARD, m.HURRY, b"")

    def say_end(self) -> None:
        """Nobody is here any more."""
        self._voice.say(m.TUNNELEND, 0, b"")


class RespTunnel(Tunnel):
    """The tunnel of a client that speaks RESP: one command at a time, whose answer somebody waits for."""

    reader: Reader | None = None

    def ask(self, command: bytes, reader: Reader) -> None:
        """Send a command, and let somebody have the answer."""
        self.reader = reader
        self.send(command)

    def answered(self, data: bytes, ends: bool) -> None:
        """Some of the answer came, or the rest of it."""
        if self.reader is not None:
            self.reader.read(data)
            if ends:
                reader, self.reader = self.reader, None
                reader.end()

    def fail(self, why: str, line: bytes) -> None:
        """It is over."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.fail(Refused(line) if line else NoHome(f"{reader.what} lives on {why}{_UNKNOWN}"))


class CallTunnel(Tunnel):
    """The tunnel of a client that speaks IPROTO: many calls at a time."""

    def __init__(self, forwarding: Forwarding, client: Connection, node: bytes, number: int) -> None:
        super().__init__(forwarding, client, node, number)
        self._packets = AnswerPackets()
        self._calls: dict[int, list[str]] = {}  # What those are about that are under way, by their syncs.
        self._blocks = False  # Its client is not served until the other end has read more.
        self._node = forwarding.node

    def ask(self, request: Request, what: str) -> None:
        """Send a call."""
        self._calls.setdefault(request.sync, []).append(what)
        self.client.abroad += 1
        self.send(iproto.encode(request))
        if self.is_full():
            self._blocks = self.client.busy = True

    def was_read(self) -> None:
        """The other end has read something: go on with those that had to wait for that."""
        if self._blocks and not self.is_full():
            self._blocks = self.client.busy = False
            self._node.run(self.client)

    def answered(self, data: bytes, ends: bool) -> None:
        """Some answers came, or parts of them."""
        for packet in self._packets.feed(data):
            if self._is_over(int(iproto.sync_of(packet))):
                self.client.reply.raw(packet)
        self._node.run(self.client)

    def _is_over(self, sync: int) -> bool:
        calls = self._calls.get(sync)
        if not calls:
            return False
        calls.pop()
        if not calls:
            del self._calls[sync]
        self.client.abroad -= 1
        return True

    def fail(self, why: str, line: bytes) -> None:
        """It is over."""
        if self._blocks:
            self.client.busy = False
        for sync, calls in list(self._calls.items()):
            for what in list(calls):
                self._is_over(sync)
                refuse(self.client, sync, Refused(line) if line else NoHome(f"{what} lives on {why}{_UNKNOWN}"))
        self._node.run(self.client)


class Reader:
    """Somebody who waits for the answer to a command over RESP: a client."""

    def __init__(self, forwarding: Forwarding, client: Connection, what: str) -> None:
        self.what = what
        self._forwarding = forwarding
        self._client = client
        self._began = False

    def read(self, data: bytes) -> None:
        """Some of the answer came."""
        if data and self._client.muted == ANSWERED:
            self._began = True
            self._client.reply.raw(data)
            self._forwarding.node.answered(self._client)

    def end(self) -> None:
        """That was all of it."""
        self._forwarding.is_through(self._client, self._client.reply.length)

    def fail(self, refusal: PenstockError) -> None:
        """There will be no answer."""
        if self._began:
            # Whatever came next would be read as the rest of it.
            self._client.abort()
            return
        before = self._client.reply.length
        self._client.reply.error(refusal_line(refusal))
        self._forwarding.is_through(self._client, before)


class Part(Reader):
    """The answer to a part of a command."""

    def __init__(self, whole: Whole, what: str) -> None:
        self.what = what
        self._whole = whole
        self._answer = bytearray()

    def read(self, data: bytes) -> None:
        """Some of it came."""
        self._answer += data

    def end(self) -> None:
        """That was all of it."""
        self._whole.add(bytes(self._answer))

    def fail(self, refusal: PenstockError) -> None:
        """There will be none."""
        self._whole.add(b"-" + refusal_line(refusal) + b"\r\n")


class Whole:
    """The answer to a command of which several nodes have done a part each: counts are added up, lists are one."""

    def __init__(self, forwarding: Forwarding, client: Connection, parts: int) -> None:
        self._forwarding = forwarding
        self._client = client
        self._missing = parts
        self._answers: list[bytes] = []

    def add(self, answer: bytes) -> None:
        """A part is done."""
        self._answers.append(answer)
        self._missing -= 1
        if self._missing == 0 and not self._client.lost:
            before = self._client.reply.length
            self._client.reply.raw(_put_together(self._answers))
            self._forwarding.is_through(self._client, before)


def _put_together(parts: list[bytes]) -> bytes:
    """One answer out of several: the first refusal, the sum of numbers, or the items of all lists."""
    for part in parts:
        if part.startswith(b"-"):
            return part
    heads = [part.partition(b"\r\n") for part in parts]
    total = sum(int(head[1:]) for head, _, _ in heads)
    return parts[0][:1] + b"%d\r\n" % total + b"".join(rest for _, _, rest in heads)


class Forwarding(Abroad):
    """All tunnels of the clients of a node."""

    def __init__(self, node: Node, desk: Desk, cluster: Cluster, lines: Lines) -> None:
        self.node = node
        self.lines = lines
        self._desk = desk
        self._cluster = cluster
        self._number = node.now * _NUMBERS_PER_MS
        self._tunnels: dict[int, Tunnel] = {}
        self._by_client: dict[Client, dict[bytes, Tunnel]] = {}
        self._used: dict[bytes, dict[bytes, None]] = {}  # The nodes that a session uses, by its token.
        self._used_max = 1_024  # When there are more, those of sessions that are over are forgotten.

    def __len__(self) -> int:
        return len(self._tunnels)

    # What desks pass on

    def pass_on(self, client: Connection, args: list[bytes], where: Elsewhere) -> None:
        """A command over RESP is for another node, or for several."""
        if not isinstance(where, Spread):
            tunnel = self._tunnel(client, where.node, where.what, where.is_promised)
            self._begin(client, 1)
            assert isinstance(tunnel, RespTunnel)
            tunnel.ask(answers.encode(args), Reader(self, client, where.what))
            return
        tunnels = {node: self._tunnel(client, node, where.what) for node in where.parts}
        self._begin(client, len(tunnels))
        whole = Whole(self, client, len(tunnels))
        for node, tunnel in tunnels.items():
            assert isinstance(tunnel, RespTunnel)
            tunnel.ask(answers.encode(where.parts[node]), Part(whole, where.what))

    def pass_on_call(self, client: IprotoConnection, request: Request, where: Elsewhere) -> None:
        """A call over IPROTO is for another node."""
        tunnel = self._tunnel(client, where.node, where.what, where.is_promised)
        assert isinstance(tunnel, CallTunnel)
        tunnel.ask(request, where.what)

    def _begin(self, client: Connection, count: int) -> None:
        client.busy = True
        client.abroad = count

    def is_through(self, client: Connection, before: int) -> None:
        """What a client of RESP has asked for was answered, with what begins there, and the next command is run."""
        client.abroad = 0
        client.busy = False
        self._desk.answered(client, before)
        self.node.run(client)

    def _tunnel(self, client: Connection, node: bytes, what: str, is_promised: bool = False) -> Tunnel:
        """The tunnel of a client to a node, whose other end knows who that is."""
        if client.entry:
            raise NoHome(f"{what} does not live here any more, but on {self._cluster.place.shown(node)}; try again")
        if not self.lines.is_two_way(node):
            raise NoHome(f"{what} {self._never_made(node) if is_promised else f'lives on {self._why(node)}'}")
        tunnels = self._by_client.setdefault(client, {})
        tunnel = tunnels.get(node)
        if tunnel is None:
            self._number += 1
            kind = CallTunnel if isinstance(client, IprotoConnection) else RespTunnel
            tunnel = tunnels[node] = self._tunnels[self._number] = kind(self, client, node, self._number)
        self._show_papers(tunnel)
        return tunnel

    def _why(self, node: bytes) -> str:
        return f"{self._cluster.place.shown(node)}, which cannot be reached"

    def _never_made(self, node: bytes) -> str:
        there = f"was perhaps never made: {self._cluster.place.shown(node)}, which was to make it, cannot be reached"
        return f"{there}; wait until it is back, or give it up: penstock cluster forget {node.decode()}"

    # Who a client is

    def _show_papers(self, tunnel: Tunnel) -> None:
        """Let the other end know for whom it is, if that is not known."""
        papers = self._papers(tunnel)
        if tunnel.papers is None or not papers.is_like(tunnel.papers):
            tunnel.papers = papers
            self._note_use(papers.token, tunnel.node)
            self.lines.say(tunnel.node, papers)

    def _papers(self, tunnel: Tunnel) -> Papers:
        client = tunnel.client
        peer = self._cluster.members.peers.get(tunnel.node)
        door = m.RESP_3 if client.reply.resp3 else m.RESP_2
        if isinstance(client, IprotoConnection):
            door = m.IPROTO_15 if client.is_15 else m.IPROTO
        epoch = self._cluster.members.epoch if peer is None else peer.epoch
        papers = Papers(m.TUNNEL, tunnel.number, epoch, door)
        session = client.connection.session
        papers.user = client.user.name.encode()
        papers.groups = client.groups
        papers.tubes = list(EVERY_TUBE.texts if client.any_tube else client.tubes.texts)
        papers.token = session.token
        papers.grace = session.grace_ms + 1 if session.grace_ms >= 0 else 0
        papers.address = client.address.encode()
        papers.name = client.name
        return papers

    def _note_use(self, token: bytes, node: bytes) -> None:
        self._used.setdefault(token, {})[node] = None
        if len(self._used) > self._used_max:
            there = self.node.engine.sessions
            self._used = {each: nodes for each, nodes in self._used.items() if each in there}
            self._used_max = 2 * len(self._used) + 1_024

    def uses(self, client: Connection) -> list[bytes]:
        """The other nodes that the session of a client uses, as far as they can be reached."""
        if client.entry:
            return []
        nodes = self._used.get(client.connection.session.token, {})
        return [node for node in nodes if self.lines.is_two_way(node)]

    def identified(self, client: Connection) -> None:
        """A client is of another session now, or that has another grace: it is so on every node that it uses."""
        for tunnel in self._by_client.get(client, {}).values():
            self._show_papers(tunnel)
        for node in self.uses(client):
            self._tunnel(client, node, "")

    # What the node tells

    def hurry(self, client: Client) -> None:
        """A client waits no longer than need be."""
        for tunnel in self._by_client.get(client, {}).values():
            tunnel.say_hurry()

    def leaves(self, client: Client) -> None:
        """A client is gone."""
        for tunnel in self._by_client.pop(client, {}).values():
            del self._tunnels[tunnel.number]
            self._show_papers(tunnel)
            tunnel.say_end()

    def reads_again(self, client: Client) -> None:
        """A client reads again what it is sent."""
        for tunnel in self._by_client.get(client, {}).values():
            tunnel.inflow.go_on()

    # What other nodes say

    def hear(self, sender: bytes, message: Papers | OfTunnel) -> None:
        """The other end of a tunnel says something."""
        assert isinstance(message, OfTunnel)
        tunnel = self._tunnels.get(message.number)
        if tunnel is None or tunnel.node != sender:
            if message.kind == m.FORWARDED:
                self.lines.say(sender, OfTunnel(m.TUNNELEND, message.number, False, 0, b""))
        elif message.kind == m.TUNNELEND:
            # What was said until now may have opened it again there.
            tunnel.say_end()
            self._end(tunnel, f"{self._cluster.place.shown(sender)}, which has closed the connection", message.data)
        else:
            tunnel.hear(message)

    def has_room(self, node: bytes) -> None:
        """A node has read most of what it was told."""
        for tunnel in [each for each in self._tunnels.values() if each.node == node]:
            tunnel.flow()

    def link_lost(self, node: bytes) -> None:
        """What was under way to a node or from it may be lost."""
        for tunnel in [each for each in self._tunnels.values() if each.node == node]:
            # The other end may not have found out.
            tunnel.say_end()
            self._end(tunnel, self._why(node), b"")

    def _end(self, tunnel: Tunnel, why: str, line: bytes) -> None:
        del self._tunnels[tunnel.number]
        del self._by_client[tunnel.client][tunnel.node]
        self.node.begin_turn()
        tunnel.fail(why, line)


class _Lines:
    """What leads to other nodes, and to this one: a part of a command may be for it."""

    def __init__(self, node: Node, bus: Bus) -> None:
        self._node = node
        self._bus = bus

    def say(self, node: bytes, message: Papers | OfTunnel) -> None:
        """Tell a node something."""
        if node == self._bus.node:
            self._node.loop.call_soon(self._hear, message)
        else:
            self._bus.say(node, message)

    def is_two_way(self, node: bytes) -> bool:
        """Whether a node can be told something, and can answer."""
        return node == self._bus.node or self._bus.is_two_way(node)

    def is_crowded(self, node: bytes) -> bool:
        """Whether a node has so much to read that bytes of clients have to wait."""
        return self._bus.is_crowded(node)

    def _hear(self, message: Papers | OfTunnel) -> None:
        assert self._bus.tunnels is not None
        self._node.begin_turn()
        self._bus.tunnels.hear(self._bus.node, message)


def open_tunnels(server: Server, doors: list[Door]) -> None:
    """Let commands go to other nodes, and those of others come here."""
    node, bus, cluster = server.node, server.membership.bus, server.membership.cluster
    lines = _Lines(node, bus)
    by_door = {m.IPROTO_15 if door.is_15 else m.IPROTO: door for door in doors}
    guests = Guests(node, server.clients, lambda: int(cluster.members.epoch), by_door, lines)
    forwarding = Forwarding(node, server.desk, cluster, lines)
    bus.tunnels = Tunnels(forwarding, guests)
    node.abroad = forwarding
    server.desk.on_elsewhere = forwarding.pass_on
    server.site.uses = forwarding.uses
    server.site.on_identified = forwarding.identified
    for door in doors:
        door.calls.on_elsewhere = forwarding.pass_on_call
