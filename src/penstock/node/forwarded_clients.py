"""Forwarded clients: clients of other nodes that use tubes of this one. Their connections are tunnels. Pure.

A forwarded client has the session and the permissions of the original client, and is served like any other. It is
removed when the original client disconnects, or when the link to its node is lost.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster import messages as m
from penstock.cluster.messages import Credentials, TunnelMessage
from penstock.cluster.node import Cluster
from penstock.core.errors import UnknownSession
from penstock.core.limits import UNSET
from penstock.core.tube_patterns import TubePatterns
from penstock.core.waits import Connection
from penstock.node.client import Client
from penstock.node.inbox import Inbox
from penstock.node.tunnels import WINDOW_BYTES, Inflow, Outflow, TunnelLinks, TunnelWriter
from penstock.node.turn import Turn
from penstock.wire.iproto import IprotoReply
from penstock.wire.resp import printable

# The maximum bytes of a text that a node sends about its client.
_STATED_BYTES_MAX: Final = 1_024

_TOO_MANY: Final = b"ERR max number of clients reached"


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission:
    """Decides whether a forwarded client is accepted, and provides its inbox and limits. Implemented by each driver."""

    def make_room(self) -> bool:
        """Return whether one more client is accepted. This may disconnect a client that has not logged in."""
        return True

    def inbox(self, protocol: i64) -> Inbox:
        """Return a new inbox for the requests of a protocol, which is a constant of cluster/messages.py."""
        raise NotImplementedError

    def bulk_max(self) -> i64:
        """Return the maximum bytes of an argument."""
        raise NotImplementedError

    def token(self, length: i64) -> bytes:
        """Return `length` random bytes for the token of a session."""
        raise NotImplementedError


class ForwardedClient(Client):
    """A client of another node. Its bytes come and go through a tunnel.

    Over RESP it runs one command at a time, and the end of each reply is marked.
    """

    node: bytes
    tunnel_number: int

    def __init__(
        self, guests: ForwardedClients, node: bytes, tunnel_number: int, number: int, connection: Connection, now: i64
    ) -> None:
        super().__init__(number, connection, now)
        self.node = node
        self.entry_node = node
        self.tunnel_number = tunnel_number
        self._guests = guests
        writer = TunnelWriter(guests.links, node, tunnel_number, True)
        self._out = Outflow(writer.write_reply, writer.has_to_wait)
        self._in = Inflow(writer.write_read)
        self._has_command = False  # A RESP command is in progress.

    # Messages from the other end

    def receive(self, message: TunnelMessage) -> None:
        """Handle a message from the other end of the tunnel."""
        if message.kind == m.TUNNELREAD:
            self._out.confirmed(message.argument)
            self._update_flow_control()
        elif message.argument & m.STOP_WAITING:
            # The commands that arrived before this message may not have run yet. They must not wait, either.
            self._guests.turn.stopped_sending(self)
        elif not self.is_closed:
            self.sends_no_more = False
            if message.argument & m.COMMAND_ENDS:
                self._has_command = True
            self._guests.turn.received(self, message.data)
            self._in.read(len(message.data))

    def flow(self) -> None:
        """Send more of the waiting bytes, because the link has room again."""
        self._out.flow()
        self._update_flow_control()

    def lose(self) -> None:
        """Remove the client, because the other end of the tunnel is gone."""
        if not self.lost:
            self.lost = self.is_closed = True
            self._guests.turn.leave(self)

    # The connection: see Client

    def send(self, replies: bytes) -> None:
        """Send replies through the tunnel. When a RESP command is finished, mark the end of its reply."""
        if self.is_closed:
            return
        were_last = self.confirm_sent()
        ends = self._has_command and self._is_finished()
        if ends:
            self._has_command = False
        if replies or ends:
            self._out.write(replies, ends)
            self._update_flow_control()
        if were_last:
            self._guests.end(self, _error_line(replies))

    def _is_finished(self) -> bool:
        """Return whether the command has run and its whole reply was sent."""
        if isinstance(self.reply, IprotoReply):
            return False
        return not self.is_blocked() and self.reply.length == 0 and not self.inbox.buffer.is_unfinished()

    def _update_flow_control(self) -> None:
        unread = self._out.unread()
        if not self.is_unread and unread > WINDOW_BYTES:
            self.is_unread = True
            self.hold()
        elif self.is_unread and unread < WINDOW_BYTES // 2:
            self.is_unread = False
            if not self.lost:
                self._guests.turn.reads_again(self)

    def close(self) -> None:
        """Close the tunnel. Bytes for which the window has no room are dropped."""
        self.abort()

    def abort(self) -> None:
        """Close the tunnel immediately."""
        self._guests.end(self, b"")

    def set_held(self, held: bool) -> None:
        """Stop confirming received bytes while the client cannot process more. The other end then stops sending."""
        self.is_held = held
        if held:
            self._in.hold()
        else:
            self._in.go_on()

    def buffered(self) -> int:
        """Return how many bytes of replies are not sent."""
        return self._out.waiting() + int(self.owed)


class ForwardedClients:
    """All forwarded clients of a node."""

    def __init__(self, turn: Turn, cluster: Cluster, links: TunnelLinks, admission: Admission) -> None:
        self.turn = turn
        self.links = links
        self._cluster = cluster
        self._admission = admission
        self._clients: dict[tuple[bytes, int], ForwardedClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def receive(self, sender: bytes, message: Credentials | TunnelMessage) -> None:
        """Handle a message about a forwarded client. A message with credentials adds or updates the client."""
        client = self._clients.get((sender, message.number))
        if isinstance(message, Credentials):
            self._admit(sender, message, client)
        elif message.kind == m.TUNNELEND:
            if client is not None:
                del self._clients[sender, message.number]
                client.lose()
        elif client is not None:
            client.receive(message)
        elif message.kind == m.FORWARD:
            self._end_tunnel(sender, message.number, b"")

    def send_waiting(self, node: bytes) -> None:
        """Send more waiting bytes to a node, because the link to it has room again."""
        for client in [each for each in self._clients.values() if each.node == node]:
            client.flow()

    def link_lost(self, node: bytes) -> None:
        """Remove the clients of a node, because a link from it or to it is lost."""
        for key in [key for key in self._clients if key[0] == node]:
            self._clients.pop(key).lose()

    def end(self, client: ForwardedClient, why: bytes) -> None:
        """Close the tunnel of a client. Send the reason `why`, a RESP error line, to the other node."""
        client.closing = client.is_closed = True
        if self._clients.pop((client.node, client.tunnel_number), None) is not None:
            self._end_tunnel(client.node, client.tunnel_number, why)
            # The client may be running a command now.
            self.turn.defer(client.lose)

    def _end_tunnel(self, node: bytes, number: int, why: bytes) -> None:
        self.links.send(node, TunnelMessage(m.TUNNELEND, number, True, 0, why))

    def _admit(self, sender: bytes, credentials: Credentials, client: ForwardedClient | None) -> None:
        """Add a forwarded client with these credentials. If `client` is not None, update it instead."""
        if credentials.epoch != self._cluster.members.epoch:
            why = b"NOHOME the home of this tube has been replaced; try again"
            self._end_tunnel(sender, credentials.number, why)
            return
        if client is None:
            if not self._admission.make_room():
                self._end_tunnel(sender, credentials.number, _TOO_MANY)
                return
            client = self._add(sender, credentials)
        self._join_session(client, credentials)
        client.log_in(_printable(credentials.user), credentials.groups, TubePatterns(credentials.tubes))
        client.reply.resp3 = credentials.protocol == m.RESP_3
        client.address = _printable(credentials.address)
        client.set_name(_printable(credentials.name).encode())

    def _add(self, sender: bytes, credentials: Credentials) -> ForwardedClient:
        turn, number = self.turn, credentials.number
        # Other connections of the session may already be here.
        is_new = credentials.token not in turn.engine.sessions
        token = credentials.token if is_new else self._admission.token(len(credentials.token))
        client = ForwardedClient(self, sender, number, turn.next_number(), turn.engine.connect(token), turn.now)
        client.inbox = self._admission.inbox(credentials.protocol)
        client.bulk_max = self._admission.bulk_max()
        if credentials.protocol in (m.IPROTO, m.IPROTO_15):
            client.reply = IprotoReply()
        self._clients[sender, number] = client
        turn.join(client)
        return client

    def _join_session(self, client: ForwardedClient, credentials: Credentials) -> None:
        engine, now = self.turn.engine, self.turn.now
        grace = credentials.grace - 1 if credentials.grace else UNSET
        try:
            engine.identify(client.connection, credentials.token, now, grace)
        except UnknownSession:
            # The session is new here, or its grace time ends with this turn.
            opener = engine.connect(credentials.token)
            engine.identify(client.connection, credentials.token, now, grace)
            engine.disconnect(opener, now)


def _error_line(replies: bytes) -> bytes:
    """If a reply is a RESP error, return its line without the dash, otherwise b""."""
    return replies[1:].partition(b"\r\n")[0] if replies.startswith(b"-") else b""


def _printable(stated: bytes) -> str:
    """Return a text that another node sent about its client, with spaces and control characters replaced.

    It is then safe in CLIENT LIST, MONITOR and the log.
    """
    return printable(stated[:_STATED_BYTES_MAX]).replace(b" ", b"?").decode()
