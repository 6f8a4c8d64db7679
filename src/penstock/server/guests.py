"""Clients of other nodes that use tubes of this one: each a connection like any other, whose socket is a tunnel.

A guest has the session of its client, may do what its client may do there, and is served in its turn. It leaves when
its client does, or when the link to its node is lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from penstock.cluster import messages as m
from penstock.cluster.messages import OfTunnel, Papers
from penstock.core.limits import UNSET
from penstock.core.tube_patterns import TubePatterns
from penstock.core.waits import Connection as EngineConnection
from penstock.dialects.inbox import Inbox
from penstock.server.access import Account
from penstock.server.clients import Clients
from penstock.server.connection import Connection
from penstock.server.iproto import Door
from penstock.server.node import Node
from penstock.server.tunnels import WINDOW_BYTES, Inflow, Lines, Outflow, Voice
from penstock.wire.resp import RespParser, printable

# What a node states of its client may have this many bytes.
_STATED_BYTES_MAX: Final = 1_024


class Guest(Connection):
    """A guest that speaks RESP: one command at a time, and its node hears when the answer is complete."""

    __slots__ = ("was_asked",)

    transport: Tunnel

    def __init__(self, node: Node, overseer: Clients, number: int, engine_connection: EngineConnection) -> None:
        super().__init__(node, overseer, number, engine_connection)
        self.was_asked = False

    def send(self, answers: bytes) -> None:
        """Send it answers."""
        self.transport.gather()
        super().send(answers)
        is_answered = self.was_asked and self._is_through()
        if is_answered:
            self.was_asked = False
        self.transport.flush(is_answered)

    def _is_through(self) -> bool:
        """Whether its command has run, and all of the answer is in what was sent last."""
        waits = self.wait is not None or self.busy
        return not waits and self.reply.length == 0 and not self.inbox.parser.is_unfinished()


class Tunnel(asyncio.Transport):
    """The socket of a guest."""

    def __init__(self, guests: Guests, node: bytes, number: int) -> None:
        super().__init__()
        self.node = node
        self.number = number
        self.connection: Connection  # Until that is lost.
        self._guests = guests
        voice = Voice(guests.lines, node, number, True)
        self._out = Outflow(voice.say_answer, voice.has_to_wait)
        self._in = Inflow(voice.say_read)
        self._gathered: bytearray | None = None
        self._why = b""  # What was written to a guest before it asked for anything.
        self._is_slow = False
        self._closing = False

    # What the other end says

    def hear(self, message: OfTunnel) -> None:
        """The other end says something."""
        if message.kind == m.TUNNELREAD:
            self._out.were_read(message.aux)
            self._look_whether_slow()
        elif message.aux & m.HURRY:
            self._guests.node.end_waits(self.connection)
        elif not self._closing:
            if isinstance(self.connection, Guest) and message.aux & m.COMMAND_ENDS:
                self.connection.was_asked = True
            self.connection.data_received(message.data)
            self._in.read(len(message.data))

    def flow(self) -> None:
        """There is room for more of what waits."""
        self._out.flow()
        self._look_whether_slow()

    def lose(self) -> None:
        """The other end is gone."""
        self._closing = True
        connection = self.connection
        # Each has the other: together they would stay for ever.
        del self.connection
        if not connection.lost:
            connection.connection_lost(None)

    # What a connection wants of its socket

    def gather(self) -> None:
        """Keep what is written until `flush`."""
        self._gathered = bytearray()

    def flush(self, ends: bool) -> None:
        """Say what was gathered; an answer ends with it, perhaps."""
        gathered, self._gathered = self._gathered or b"", None
        if (gathered or ends) and not self._closing:
            self._out.write(bytes(gathered), ends)
            self._look_whether_slow()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Say something."""
        if self._gathered is not None:
            self._gathered += data
        elif isinstance(self.connection, Guest):
            self._why = bytes(data)
        elif data:
            self._out.write(bytes(data), False)
            self._look_whether_slow()

    def _look_whether_slow(self) -> None:
        unread = self._out.unread()
        if not self._is_slow and unread > WINDOW_BYTES:
            self._is_slow = True
            self.connection.pause_writing()
        elif self._is_slow and unread < WINDOW_BYTES // 2:
            self._is_slow = False
            self.connection.resume_writing()

    def close(self) -> None:
        """Close it, when what was written has been read as far as it can be."""
        self.abort()

    def abort(self) -> None:
        """Close it at once."""
        if not self._closing:
            self._closing = True
            said = bytes(self._gathered or self._why)
            self._guests.ends(self, said[1:].partition(b"\r\n")[0] if said.startswith(b"-") else b"")

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """It has no address, no certificate."""
        return default

    def get_write_buffer_size(self) -> int:
        """How many bytes wait until others were read."""
        return self._out.waiting()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It has limits of its own."""

    def pause_reading(self) -> None:
        """Its connection has enough to do."""
        self._in.hold()

    def resume_reading(self) -> None:
        """Its connection wants more."""
        self._in.go_on()


class Guests:
    """All guests of a node."""

    def __init__(
        self, node: Node, clients: Clients, epoch: Callable[[], int], doors: dict[int, Door], lines: Lines
    ) -> None:
        """Take which epoch of itself the node is of, its doors for IPROTO, and what leads to other nodes."""
        self.node = node
        self.lines = lines
        self._clients = clients
        self._epoch = epoch
        self._doors = doors
        self._tunnels: dict[tuple[bytes, int], Tunnel] = {}

    def __len__(self) -> int:
        return len(self._tunnels)

    def hear(self, sender: bytes, message: Papers | OfTunnel) -> None:
        """A node says something for a guest."""
        tunnel = self._tunnels.get((sender, message.number))
        if isinstance(message, Papers):
            self._admit(sender, message, tunnel)
        elif message.kind == m.TUNNELEND:
            if tunnel is not None:
                del self._tunnels[sender, message.number]
                tunnel.lose()
        elif tunnel is not None:
            tunnel.hear(message)
        elif message.kind == m.FORWARD:
            self.lines.say(sender, OfTunnel(m.TUNNELEND, message.number, True, 0, b""))

    def has_room(self, node: bytes) -> None:
        """A node has read most of what it was told."""
        for tunnel in [each for each in self._tunnels.values() if each.node == node]:
            tunnel.flow()

    def link_lost(self, node: bytes) -> None:
        """A node cannot be heard any more, or not be told anything: its guests leave."""
        for key in [key for key in self._tunnels if key[0] == node]:
            self._tunnels.pop(key).lose()

    def ends(self, tunnel: Tunnel, why: bytes) -> None:
        """A guest has to leave."""
        if self._tunnels.pop((tunnel.node, tunnel.number), None) is not None:
            self.lines.say(tunnel.node, OfTunnel(m.TUNNELEND, tunnel.number, True, 0, why))
            self.node.loop.call_soon(tunnel.lose)

    def _admit(self, sender: bytes, papers: Papers, tunnel: Tunnel | None) -> None:
        """Let a guest in, or know who it is now."""
        if papers.epoch != self._epoch():
            why = b"NOHOME the node that this tube lives on has been replaced; try again"
            self.lines.say(sender, OfTunnel(m.TUNNELEND, papers.number, True, 0, why))
            return
        if tunnel is None:
            tunnel = self._make(sender, papers)
        connection = tunnel.connection
        self._join(connection, papers)
        connection.become(Account(_shown(papers.user), None, papers.groups, TubePatterns(papers.tubes)))
        connection.reply.resp3 = papers.door == m.RESP_3
        connection.address = _shown(papers.address)
        connection.name = _shown(papers.name).encode()

    def _make(self, sender: bytes, papers: Papers) -> Tunnel:
        tunnel = Tunnel(self, sender, papers.number)
        self._tunnels[sender, papers.number] = tunnel
        door = self._doors.get(papers.door)
        make = self._guest if door is None else door.greeted
        # Others of its session may be here already.
        is_new = papers.token not in self.node.engine.sessions
        token = papers.token if is_new else secrets.token_bytes(len(papers.token))
        tunnel.connection = self._clients.connection(make, token)
        tunnel.connection.entry = sender
        tunnel.connection.connection_made(tunnel)
        tunnel.connection.is_local = False
        return tunnel

    def _guest(self, number: int, engine_connection: EngineConnection) -> Guest:
        guest = Guest(self.node, self._clients, number, engine_connection)
        limits = self._clients.limits
        guest.inbox = Inbox(RespParser(limits.bulk_max, limits.buffer_max))
        return guest

    def _join(self, connection: Connection, papers: Papers) -> None:
        """Let a guest be of the session that its client is of."""
        engine, now = self.node.engine, self.node.now
        grace = papers.grace - 1 if papers.grace else UNSET
        if papers.token in engine.sessions:
            engine.identify(connection.connection, papers.token, now, grace)
        else:
            opener = engine.connect(papers.token)
            engine.identify(connection.connection, papers.token, now, grace)
            engine.disconnect(opener, now)


def _shown(stated: bytes) -> str:
    """Return what a node states of its client as it may stand in a line of CLIENT LIST, MONITOR and the log."""
    return printable(stated[:_STATED_BYTES_MAX]).replace(b" ", b"?").decode()
