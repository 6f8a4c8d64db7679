"""Forwarded clients: clients of other nodes that use tubes of this one. Each is a connection whose socket is a tunnel.

A forwarded client has the session and the permissions of the original client, and is served like any other. It is
removed when the original client disconnects, or when the link to its node is lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from penstock.cluster import messages as m
from penstock.cluster.messages import Credentials, TunnelMessage
from penstock.core.limits import UNSET
from penstock.core.tube_patterns import TubePatterns
from penstock.core.waits import Connection as EngineConnection
from penstock.node.inbox import Inbox
from penstock.server.net.access import Account
from penstock.server.net.clients import Clients
from penstock.server.net.iproto_connection import IprotoPort
from penstock.server.net.resp_connection import Connection
from penstock.server.node import Node
from penstock.server.peers.tunnels import WINDOW_BYTES, Inflow, Outflow, PeerLinks, TunnelWriter
from penstock.wire.resp import RespParser, printable

# The maximum bytes of a text that a node sends about its client.
_STATED_BYTES_MAX: Final = 1_024


class ForwardedClient(Connection):
    """A forwarded client over RESP. It runs one command at a time, and marks the end of each reply."""

    __slots__ = ("has_command",)

    transport: TunnelTransport

    def __init__(self, node: Node, overseer: Clients, number: int, engine_connection: EngineConnection) -> None:
        super().__init__(node, overseer, number, engine_connection)
        self.has_command = False

    def send(self, answers: bytes) -> None:
        """Send replies through the tunnel. When the command is finished, mark the end of its reply."""
        self.transport.gather()
        super().send(answers)
        is_answered = self.has_command and self._is_finished()
        if is_answered:
            self.has_command = False
        self.transport.flush(is_answered)

    def _is_finished(self) -> bool:
        """Return whether the command has run and its whole reply was sent."""
        waits = self.wait is not None or self.busy
        return not waits and self.reply.length == 0 and not self.inbox.parser.is_unfinished()


class TunnelTransport(asyncio.Transport):
    """The asyncio transport of a forwarded client: it sends and receives bytes through a tunnel instead of a socket."""

    def __init__(self, guests: ForwardedClients, node: bytes, number: int) -> None:
        super().__init__()
        self.node = node
        self.number = number
        self.connection: Connection  # Deleted when the connection is lost.
        self._guests = guests
        voice = TunnelWriter(guests.lines, node, number, True)
        self._out = Outflow(voice.write_reply, voice.has_to_wait)
        self._in = Inflow(voice.write_read)
        self._gathered: bytearray | None = None
        self._why = b""  # The text written to a client before its first command: the reason of a refusal.
        self._is_slow = False
        self._closing = False

    # Messages from the other end

    def receive(self, message: TunnelMessage) -> None:
        """Handle a message from the other end of the tunnel."""
        if message.kind == m.TUNNELREAD:
            self._out.confirmed(message.argument)
            self._update_flow_control()
        elif message.argument & m.STOP_WAITING:
            self._guests.node.end_waits(self.connection)
        elif not self._closing:
            if isinstance(self.connection, ForwardedClient) and message.argument & m.COMMAND_ENDS:
                self.connection.has_command = True
            self.connection.data_received(message.data)
            self._in.read(len(message.data))

    def flow(self) -> None:
        """Send more of the waiting bytes, because the link has room again."""
        self._out.flow()
        self._update_flow_control()

    def lose(self) -> None:
        """Report to the client that its connection is lost, because the other end of the tunnel is gone."""
        self._closing = True
        connection = self.connection
        # The tunnel and the connection refer to each other. This breaks the cycle, so that both are freed.
        del self.connection
        if not connection.lost:
            connection.connection_lost(None)

    # The methods of an asyncio transport

    def gather(self) -> None:
        """Collect the bytes of all writes until `flush` is called."""
        self._gathered = bytearray()

    def flush(self, ends: bool) -> None:
        """Send the collected bytes. If `ends` is set, they are the end of a reply."""
        gathered, self._gathered = self._gathered or b"", None
        if (gathered or ends) and not self._closing:
            self._out.write(bytes(gathered), ends)
            self._update_flow_control()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, or collect them after `gather`."""
        if self._gathered is not None:
            self._gathered += data
        elif isinstance(self.connection, ForwardedClient):
            self._why = bytes(data)
        elif data:
            self._out.write(bytes(data), False)
            self._update_flow_control()

    def _update_flow_control(self) -> None:
        unread = self._out.unread()
        if not self._is_slow and unread > WINDOW_BYTES:
            self._is_slow = True
            self.connection.pause_writing()
        elif self._is_slow and unread < WINDOW_BYTES // 2:
            self._is_slow = False
            self.connection.resume_writing()

    def close(self) -> None:
        """Close the tunnel. Bytes for which the window has no room are dropped."""
        self.abort()

    def abort(self) -> None:
        """Close the tunnel immediately."""
        if not self._closing:
            self._closing = True
            said = bytes(self._gathered or self._why)
            self._guests.ends(self, said[1:].partition(b"\r\n")[0] if said.startswith(b"-") else b"")

    def is_closing(self) -> bool:
        """Return whether the tunnel is closed."""
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default, because a tunnel has no socket, address or certificate."""
        return default

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return self._out.waiting()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing, because a tunnel has its own limits."""

    def pause_reading(self) -> None:
        """Stop confirming received bytes, because the client cannot process more. The other end then stops sending."""
        self._in.hold()

    def resume_reading(self) -> None:
        """Confirm received bytes again, because the client can process more."""
        self._in.go_on()


class ForwardedClients:
    """All forwarded clients of a node."""

    def __init__(
        self, node: Node, clients: Clients, epoch: Callable[[], int], doors: dict[int, IprotoPort], lines: PeerLinks
    ) -> None:
        """Create an empty set of clients. `epoch` returns the epoch of this node.

        `doors` are the IPROTO ports by kind. `lines` sends messages to other nodes.
        """
        self.node = node
        self.lines = lines
        self._clients = clients
        self._epoch = epoch
        self._doors = doors
        self._tunnels: dict[tuple[bytes, int], TunnelTransport] = {}

    def __len__(self) -> int:
        return len(self._tunnels)

    def receive(self, sender: bytes, message: Credentials | TunnelMessage) -> None:
        """Handle a message about a forwarded client. Credentials add the client."""
        tunnel = self._tunnels.get((sender, message.number))
        if isinstance(message, Credentials):
            self._admit(sender, message, tunnel)
        elif message.kind == m.TUNNELEND:
            if tunnel is not None:
                del self._tunnels[sender, message.number]
                tunnel.lose()
        elif tunnel is not None:
            tunnel.receive(message)
        elif message.kind == m.FORWARD:
            self.lines.send(sender, TunnelMessage(m.TUNNELEND, message.number, True, 0, b""))

    def has_room(self, node: bytes) -> None:
        """Send more waiting bytes to a node, because the link to it has room again."""
        for tunnel in [each for each in self._tunnels.values() if each.node == node]:
            tunnel.flow()

    def link_lost(self, node: bytes) -> None:
        """Remove the clients of a node, because a link from it or to it is lost."""
        for key in [key for key in self._tunnels if key[0] == node]:
            self._tunnels.pop(key).lose()

    def ends(self, tunnel: TunnelTransport, why: bytes) -> None:
        """Close a tunnel. Send the reason `why` to the other node."""
        if self._tunnels.pop((tunnel.node, tunnel.number), None) is not None:
            self.lines.send(tunnel.node, TunnelMessage(m.TUNNELEND, tunnel.number, True, 0, why))
            self.node.loop.call_soon(tunnel.lose)

    def _admit(self, sender: bytes, papers: Credentials, tunnel: TunnelTransport | None) -> None:
        """Add a forwarded client with these credentials. If `tunnel` exists, update its client instead."""
        if papers.epoch != self._epoch():
            why = b"NOHOME the home of this tube has been replaced; try again"
            self.lines.send(sender, TunnelMessage(m.TUNNELEND, papers.number, True, 0, why))
            return
        if tunnel is None:
            tunnel = self._make(sender, papers)
        connection = tunnel.connection
        self._join(connection, papers)
        connection.log_in(Account(_printable(papers.user), None, papers.groups, TubePatterns(papers.tubes)))
        connection.reply.resp3 = papers.protocol == m.RESP_3
        connection.address = _printable(papers.address)
        connection.name = _printable(papers.name).encode()

    def _make(self, sender: bytes, papers: Credentials) -> TunnelTransport:
        tunnel = TunnelTransport(self, sender, papers.number)
        self._tunnels[sender, papers.number] = tunnel
        door = self._doors.get(papers.protocol)
        make = self._new_client if door is None else door.greeted
        # Other connections of the session may already be here.
        is_new = papers.token not in self.node.engine.sessions
        token = papers.token if is_new else secrets.token_bytes(len(papers.token))
        tunnel.connection = self._clients.connection(make, token)
        tunnel.connection.entry_node = sender
        tunnel.connection.connection_made(tunnel)
        tunnel.connection.is_local = False
        return tunnel

    def _new_client(self, number: int, engine_connection: EngineConnection) -> ForwardedClient:
        guest = ForwardedClient(self.node, self._clients, number, engine_connection)
        limits = self._clients.limits
        guest.inbox = Inbox(RespParser(limits.bulk_max, limits.buffer_max))
        return guest

    def _join(self, connection: Connection, papers: Credentials) -> None:
        """Let a forwarded client join the session of the original client."""
        engine, now = self.node.engine, self.node.now
        grace = papers.grace - 1 if papers.grace else UNSET
        if papers.token in engine.sessions:
            engine.identify(connection.connection, papers.token, now, grace)
        else:
            opener = engine.connect(papers.token)
            engine.identify(connection.connection, papers.token, now, grace)
            engine.disconnect(opener, now)


def _printable(stated: bytes) -> str:
    """Return a text that another node sent about its client, with spaces and control characters replaced.

    It is then safe in CLIENT LIST, MONITOR and the log.
    """
    return printable(stated[:_STATED_BYTES_MAX]).replace(b" ", b"?").decode()
