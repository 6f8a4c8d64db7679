"""Forwarding between this server and its peers: which forwarded clients are accepted, and how they are served."""

from __future__ import annotations

import secrets

from mypy_extensions import i64

from penstock.cluster import messages as m
from penstock.core.limits import WAITS_PER_CONNECTION_MAX
from penstock.dialects.tarantool.calls import CallInbox
from penstock.node.forwarded_clients import Admission, ForwardedClients
from penstock.node.forwarding import Forwarding
from penstock.node.inbox import Inbox, RespInbox
from penstock.node.tunnels import TunnelLinks
from penstock.server.net.iproto_port import IprotoPort
from penstock.server.server import Server
from penstock.wire.iproto import IprotoParser
from penstock.wire.resp import RespParser


class ServerAdmission(Admission):
    """Accepts forwarded clients. The limits of the server's own clients also count for them."""

    def __init__(self, server: Server, iproto_ports: list[IprotoPort]) -> None:
        self._server = server
        self._calls = {port.calls.protocol: port.calls for port in iproto_ports}

    def make_room(self) -> bool:
        return self._server.clients.make_room(1)

    def inbox(self, protocol: i64) -> Inbox:
        limits = self._server.clients.limits
        if protocol in (m.RESP_2, m.RESP_3):
            return RespInbox(RespParser(limits.bulk_max, limits.buffer_max), self._server.dispatcher)
        parser = IprotoParser(limits.bulk_max, limits.buffer_max)
        return CallInbox(parser, self._calls[int(protocol)], WAITS_PER_CONNECTION_MAX)

    def bulk_max(self) -> i64:
        return self._server.clients.limits.bulk_max

    def token(self, length: i64) -> bytes:
        return secrets.token_bytes(length)


def open_forwarding(server: Server, iproto_ports: list[IprotoPort]) -> None:
    """Start to forward commands of this server's clients to other nodes, and to serve the clients of other nodes."""
    turn, cluster = server.turn, server.membership.cluster
    guests = ForwardedClients(turn, cluster, TunnelLinks(turn, cluster), ServerAdmission(server, iproto_ports))
    forwarding = Forwarding(turn, server.context, cluster, guests)
    server.membership.bus.forwarding = forwarding
    turn.remote = server.dispatcher.remote = server.context.remote = forwarding
