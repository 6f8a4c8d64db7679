"""Forwarding: commands that run on the home of their tube, and the replies to them. Pure.

    client ── RESP or IPROTO ── this node ── tunnel ── the home of the tube

A client has a tunnel to each home that it uses, as long as both links to that node are up. A RESP client has one
command in progress and waits for it. An IPROTO client can have many, identified by the request number (sync) of
IPROTO. A command is never sent twice: if the link is lost before the reply arrives, the client gets an error that the
outcome is unknown.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster import messages as m
from penstock.cluster.messages import Credentials, Message, TunnelMessage
from penstock.cluster.node import Cluster
from penstock.core.errors import NoHome, PenstockError
from penstock.core.tube_patterns import EVERY_TUBE
from penstock.core.waits import Waiting
from penstock.node.caller import ANSWERED, Caller
from penstock.node.client import Client
from penstock.node.context import CommandContext
from penstock.node.dispatch import refusal_line
from penstock.node.forwarded_clients import ForwardedClients
from penstock.node.remote import RemoteCommands
from penstock.node.routing import Elsewhere, NeedsAnswer, NeedsDecision, OnSeveralNodes
from penstock.node.tunnels import WINDOW_BYTES, Inflow, Outflow, TunnelWriter
from penstock.node.turn import Turn
from penstock.wire import iproto, resp_client
from penstock.wire.errors import Refused
from penstock.wire.iproto import IprotoReply, ReplyPackets, Request

# Tunnel numbers start at the time in ms times this, so none is used again after a restart: a million per second fit.
_NUMBERS_PER_MS: Final = 1_000

_UNKNOWN: Final = "; the command may have been executed"


class Tunnel:
    """The end of a tunnel at the node of the client. It carries the commands of one client to one other node."""

    def __init__(self, forwarding: Forwarding, client: Client, node: bytes, number: int) -> None:
        self.client = client
        self.node = node
        self.number = number
        self.credentials: Credentials | None = None  # The credentials that the other end has.
        self._writer = TunnelWriter(forwarding.links, node, number, False)
        self.inflow = Inflow(self._writer.write_read)
        self._out = Outflow(self._writer.write_command, self._writer.has_to_wait)
        self._hurries = False  # The other end is asked again to end waits when all waiting bytes are sent.

    def send(self, command: bytes) -> None:
        """Send a complete command."""
        self._out.write(command, True)

    def is_full(self) -> bool:
        """Return whether more bytes wait to be sent than fit in the window."""
        return self._out.waiting() > WINDOW_BYTES

    def receive(self, message: TunnelMessage) -> None:
        """Handle a message from the other end of the tunnel."""
        if message.kind == m.TUNNELREAD:
            self._out.confirmed(message.argument)
            self._flowed()
        elif message.kind == m.FORWARDED:
            self.answered(message.data, bool(message.argument))
            if self.client.is_unread:
                self.inflow.hold()
            self.inflow.read(len(message.data))

    def flow(self) -> None:
        """Send more of the waiting bytes, because the link has room again."""
        self._out.flow()
        self._flowed()

    def _flowed(self) -> None:
        if self._hurries and not self._out.waiting():
            self.send_hurry()
        self.after_read()

    def after_read(self) -> None:
        """Called when the other end has read bytes, so that more fit in the window."""

    def answered(self, data: bytes, ends: bool) -> None:
        """Handle a part of a reply. `ends` marks the last part."""
        raise NotImplementedError

    def fail(self, why: str, line: bytes) -> None:
        """End the tunnel, and refuse the commands in progress. `why` is the reason.

        If `line` is not empty, it is the RESP error with which the other node ended the tunnel.
        """
        raise NotImplementedError

    def send_hurry(self) -> None:
        """Ask the other end to end the waits of the commands in progress, as if they had timed out.

        This message overtakes the bytes that wait for the window or the link. It is repeated behind them.
        """
        self._hurries = self._out.waiting() > 0
        self._writer.write(m.FORWARD, m.STOP_WAITING, b"")

    def send_end(self) -> None:
        """Ask the other end to close, because the client has disconnected."""
        self._writer.write(m.TUNNELEND, 0, b"")


class RespTunnel(Tunnel):
    """The tunnel of a RESP client. It has at most one command in progress."""

    reader: ReplyReader | None = None

    def ask(self, command: bytes, reader: ReplyReader) -> None:
        """Send a command. `reader` processes the reply."""
        self.reader = reader
        self.send(command)

    def answered(self, data: bytes, ends: bool) -> None:
        if self.reader is not None:
            self.reader.read(data)
            if ends:
                reader, self.reader = self.reader, None
                reader.end()

    def fail(self, why: str, line: bytes) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.fail(Refused(line) if line else NoHome(f"{reader.what} lives on {why}{_UNKNOWN}"))


class CallTunnel(Tunnel):
    """The tunnel of an IPROTO client. It can have many calls in progress."""

    def __init__(self, forwarding: Forwarding, client: Client, node: bytes, number: int) -> None:
        super().__init__(forwarding, client, node, number)
        self._packets = ReplyPackets()
        self._calls: dict[int, list[str]] = {}  # The subjects of the calls in progress, by their syncs.
        self._blocks = False  # The client is not served until the other end has read more.
        self._turn = forwarding.turn

    def ask(self, request: Request, what: str) -> None:
        """Send a call. `what` names its tube or job in errors."""
        self._calls.setdefault(request.sync, []).append(what)
        self.client.remote_count += 1
        self.send(iproto.encode(request))
        if self.is_full():
            self._blocks = self.client.busy = True

    def after_read(self) -> None:
        """Run the client's next calls, if they had to wait because the tunnel was full."""
        if self._blocks and not self.is_full():
            self._blocks = self.client.busy = False
            self._turn.run(self.client)

    def answered(self, data: bytes, ends: bool) -> None:
        """Handle received bytes of replies, and send the complete replies to the client."""
        for packet in self._packets.feed(data):
            if self._is_over(int(iproto.sync_of(packet))):
                self.client.reply.raw(packet)
        self._turn.run(self.client)

    def _is_over(self, sync: int) -> bool:
        calls = self._calls.get(sync)
        if not calls:
            return False
        calls.pop()
        if not calls:
            del self._calls[sync]
        self.client.remote_count -= 1
        return True

    def fail(self, why: str, line: bytes) -> None:
        if self._blocks:
            self.client.busy = False
        for sync, calls in list(self._calls.items()):
            for what in list(calls):
                self._is_over(sync)
                refusal = Refused(line) if line else NoHome(f"{what} lives on {why}{_UNKNOWN}")
                self.client.inbox.refuse_call(self.client, sync, refusal)
        self._turn.run(self.client)


class ReplyReader:
    """Passes the reply of a forwarded RESP command on to the client."""

    def __init__(self, forwarding: Forwarding, client: Client, what: str) -> None:
        self.what = what
        self._forwarding = forwarding
        self._client = client
        self._began = False

    def read(self, data: bytes) -> None:
        """Pass a part of the reply on to the client."""
        if data and self._client.reply_mode == ANSWERED:
            self._began = True
            self._client.reply.raw(data)
            self._forwarding.turn.answered(self._client)

    def end(self) -> None:
        """Finish the command, because its reply is complete."""
        self._forwarding.finish(self._client, self._client.reply.length)

    def fail(self, refusal: PenstockError) -> None:
        """Refuse the command, because there will be no reply."""
        if self._began:
            # The client would read an error as the rest of the reply.
            self._client.abort()
            return
        before = self._client.reply.length
        self._client.reply.error(refusal_line(refusal))
        self._forwarding.finish(self._client, before)


class PartReply(ReplyReader):
    """Collects the reply of one part of a command that runs on several nodes."""

    def __init__(self, whole: MergedReply, what: str) -> None:
        self.what = what
        self._whole = whole
        self._answer = bytearray()

    def read(self, data: bytes) -> None:
        """Collect a part of the reply."""
        self._answer += data

    def end(self) -> None:
        """Add the complete reply to the merged one."""
        self._whole.add(bytes(self._answer))

    def fail(self, refusal: PenstockError) -> None:
        """Add an error to the merged reply."""
        self._whole.add(b"-" + refusal_line(refusal) + b"\r\n")


class MergedReply:
    """The reply to a command that several nodes run in parts. Counts are added, and lists are concatenated."""

    def __init__(self, forwarding: Forwarding, client: Client, parts: int) -> None:
        self._forwarding = forwarding
        self._client = client
        self._missing = parts
        self._answers: list[bytes] = []

    def add(self, answer: bytes) -> None:
        """Add the reply of one part. After the last part, reply to the client."""
        self._answers.append(answer)
        self._missing -= 1
        if self._missing == 0 and not self._client.lost:
            before = self._client.reply.length
            self._client.reply.raw(_merge(self._answers))
            self._forwarding.finish(self._client, before)


def _merge(parts: list[bytes]) -> bytes:
    """Return the first error among the replies. If there is none, add up the counts or concatenate the lists."""
    for part in parts:
        if part.startswith(b"-"):
            return part
    heads = [part.partition(b"\r\n") for part in parts]
    total = sum(int(head[1:]) for head, _, _ in heads)
    return parts[0][:1] + b"%d\r\n" % total + b"".join(rest for _, _, rest in heads)


class Forwarding(RemoteCommands):
    """The commands that clients of a node run on other nodes, and their tunnels.

    `guests` are the forwarded clients: clients of other nodes that use tubes of this node.
    """

    def __init__(self, turn: Turn, context: CommandContext, cluster: Cluster, guests: ForwardedClients) -> None:
        self.turn = turn
        self.links = guests.links
        self.guests = guests
        self._context = context
        self._cluster = cluster
        self._number = turn.now * _NUMBERS_PER_MS
        self._tunnels: dict[int, Tunnel] = {}
        self._by_client: dict[Client, dict[bytes, Tunnel]] = {}
        self._used: dict[bytes, dict[bytes, None]] = {}  # The nodes that each session uses, by its token.
        self._used_max = 1_024  # Above this number of entries, those of ended sessions are removed.

    def counts(self) -> dict[str, int]:
        """Return the number of tunnels from this node and of tunnels to this node, for CLUSTER INFO."""
        return {"cluster_tunnels_out": len(self._tunnels), "cluster_tunnels_in": len(self.guests)}

    # Called by the dispatchers

    def ask(self, caller: Caller, question: NeedsAnswer, tag: object, now: i64) -> Waiting:
        if isinstance(question, NeedsDecision) and not self.links.is_two_way(question.where.node):
            raise NoHome(f"{question.where.what} {self._never_made(question.where.node)}")
        return self._context.ask_others(caller, question, tag, now)

    def forward(self, caller: Caller, args: list[bytes], where: Elsewhere) -> None:
        """Forward a RESP command to another node, or its parts to several nodes."""
        client = _client(caller)
        if not isinstance(where, OnSeveralNodes):
            tunnel = self._tunnel(client, where.node, where.what)
            self._begin(client, 1)
            assert isinstance(tunnel, RespTunnel)
            tunnel.ask(resp_client.encode(args), ReplyReader(self, client, where.what))
            return
        tunnels = {node: self._tunnel(client, node, where.what) for node in where.parts}
        self._begin(client, len(tunnels))
        whole = MergedReply(self, client, len(tunnels))
        for node, tunnel in tunnels.items():
            assert isinstance(tunnel, RespTunnel)
            tunnel.ask(resp_client.encode(where.parts[node]), PartReply(whole, where.what))

    def forward_call(self, caller: Caller, request: Request, where: Elsewhere) -> None:
        """Forward an IPROTO call to another node."""
        client = _client(caller)
        tunnel = self._tunnel(client, where.node, where.what)
        assert isinstance(tunnel, CallTunnel)
        tunnel.ask(request, where.what)

    def _begin(self, client: Client, count: int) -> None:
        client.busy = True
        client.remote_count = count

    def finish(self, client: Client, before: int) -> None:
        """Finish the forwarded command of a RESP client and run the next one.

        The reply of the command starts at `before` in the client's buffer.
        """
        client.remote_count = 0
        client.busy = False
        self.turn.dispatcher.drop_muted_reply(client, before)
        self.turn.run(client)

    def _tunnel(self, client: Client, node: bytes, what: str) -> Tunnel:
        """Return the tunnel of a client to a node. Open it if necessary, and send the client's credentials.

        Raise an error if the node cannot be reached. `what` names the tube or job in the error.
        """
        if client.entry_node:
            raise NoHome(f"{what} has moved to {self._cluster.state.describe(node)}; try again")
        if not self.links.is_two_way(node):
            raise NoHome(f"{what} lives on {self._why(node)}")
        tunnels = self._by_client.setdefault(client, {})
        tunnel = tunnels.get(node)
        if tunnel is None:
            self._number += 1
            kind = CallTunnel if isinstance(client.reply, IprotoReply) else RespTunnel
            tunnel = tunnels[node] = self._tunnels[self._number] = kind(self, client, node, self._number)
        self._send_credentials(tunnel)
        return tunnel

    def _why(self, node: bytes) -> str:
        return f"{self._cluster.state.describe(node)}, which cannot be reached"

    def _never_made(self, node: bytes) -> str:
        there = f"may not exist: {self._cluster.state.describe(node)}, which was creating it, cannot be reached"
        return f"{there}; wait until it is back, or remove it for good: penstock cluster forget {node.decode()}"

    # Credentials of a client

    def _send_credentials(self, tunnel: Tunnel) -> None:
        """Send the client's credentials to the other end, if they have changed since the last time."""
        credentials = self._credentials(tunnel)
        if tunnel.credentials is None or not credentials.is_like(tunnel.credentials):
            tunnel.credentials = credentials
            self._note_use(credentials.token, tunnel.node)
            self.links.send(tunnel.node, credentials)

    def _credentials(self, tunnel: Tunnel) -> Credentials:
        client = tunnel.client
        peer = self._cluster.members.peers.get(tunnel.node)
        epoch = self._cluster.members.epoch if peer is None else peer.epoch
        credentials = Credentials(m.TUNNEL, tunnel.number, epoch, client.inbox.protocol(client))
        session = client.connection.session
        credentials.user = client.user_name.encode()
        credentials.groups = client.groups
        credentials.tubes = list(EVERY_TUBE.texts if client.any_tube else client.tubes.texts)
        credentials.token = session.token
        credentials.grace = session.grace_ms + 1 if session.grace_ms >= 0 else 0
        credentials.address = client.address.encode()
        credentials.name = client.name
        return credentials

    def _note_use(self, token: bytes, node: bytes) -> None:
        self._used.setdefault(token, {})[node] = None
        if len(self._used) > self._used_max:
            there = self.turn.engine.sessions
            self._used = {each: nodes for each, nodes in self._used.items() if each in there}
            self._used_max = 2 * len(self._used) + 1_024

    def nodes_in_use(self, caller: Caller) -> list[bytes]:
        if caller.entry_node:
            return []
        nodes = self._used.get(caller.connection.session.token, {})
        return [node for node in nodes if self.links.is_two_way(node)]

    def identified(self, caller: Caller) -> None:
        """Send new credentials to all nodes that a client uses, because its session or grace time has changed."""
        client = _client(caller)
        for tunnel in self._by_client.get(client, {}).values():
            self._send_credentials(tunnel)
        for node in self.nodes_in_use(client):
            self._tunnel(client, node, "")

    # Called by the node

    def stop_waiting(self, caller: Caller) -> None:
        for tunnel in self._by_client.get(_client(caller), {}).values():
            tunnel.send_hurry()

    def leaves(self, caller: Caller) -> None:
        """Close the client's tunnels, because it has disconnected."""
        for tunnel in self._by_client.pop(_client(caller), {}).values():
            del self._tunnels[tunnel.number]
            self._send_credentials(tunnel)
            tunnel.send_end()

    def reads_again(self, caller: Caller) -> None:
        for tunnel in self._by_client.get(_client(caller), {}).values():
            tunnel.inflow.go_on()

    # Called by the turn and by the links

    def receive(self, sender: bytes, message: Message) -> None:
        """Handle a message of a tunnel that belongs to one of this node's clients or to a forwarded client."""
        self.turn.begin()
        if isinstance(message, Credentials):
            self.guests.receive(sender, message)
        elif isinstance(message, TunnelMessage):
            if message.is_reply:
                self._receive_reply(sender, message)
            else:
                self.guests.receive(sender, message)

    def _receive_reply(self, sender: bytes, message: TunnelMessage) -> None:
        tunnel = self._tunnels.get(message.number)
        if tunnel is None or tunnel.node != sender:
            if message.kind == m.FORWARDED:
                self.links.send(sender, TunnelMessage(m.TUNNELEND, message.number, False, 0, b""))
        elif message.kind == m.TUNNELEND:
            # Messages that were sent before this arrived may have opened the tunnel there again.
            tunnel.send_end()
            self._end(tunnel, f"{self._cluster.state.describe(sender)}, which has closed the connection", message.data)
        else:
            tunnel.receive(message)

    def send_waiting(self, node: bytes) -> None:
        """Send more waiting bytes to a node, because the link to it has room again."""
        self.turn.begin()
        for tunnel in [each for each in self._tunnels.values() if each.node == node]:
            tunnel.flow()
        self.guests.send_waiting(node)

    def link_lost(self, node: bytes) -> None:
        """End all tunnels to and from a node, because a link was lost and messages may be lost with it."""
        self.turn.begin()
        for tunnel in [each for each in self._tunnels.values() if each.node == node]:
            # The other end may not have noticed.
            tunnel.send_end()
            self._end(tunnel, self._why(node), b"")
        self.guests.link_lost(node)

    def _end(self, tunnel: Tunnel, why: str, line: bytes) -> None:
        del self._tunnels[tunnel.number]
        del self._by_client[tunnel.client][tunnel.node]
        tunnel.fail(why, line)


def _client(caller: Caller) -> Client:
    assert isinstance(caller, Client)
    return caller
