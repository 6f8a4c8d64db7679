"""CLUSTER, as a node answers that serves alone."""

from __future__ import annotations

import ipaddress
from typing import Final

from penstock.dialects.disque import parse_integer
from penstock.server.connection import Connection
from penstock.server.flushing import flush
from penstock.server.server import Server
from penstock.wire.errors import Refused

_WRONG: Final = b"ERR Wrong CLUSTER subcommand or number of arguments"
_NODE_ID_BYTES: Final = 40

# The bus of a node listens so far above its port.
_BUS_OFFSET: Final = 10_000


class ClusterCommands:
    """CLUSTER"""

    def __init__(self, server: Server) -> None:
        self._server = server

    def cluster(self, caller: Connection, args: list[bytes], now: int) -> None:
        """CLUSTER MEET | NODES | MYID | INFO | SAVECONFIG | FORGET | RESET | LEAVING"""
        word, count = args[1].upper(), len(args)
        reply = caller.reply
        if word == b"NODES" and count == 2:
            reply.bulk(self._line(caller).encode())
        elif word == b"MYID" and count == 2:
            reply.bulk(self._server.node_id.encode())
        elif word == b"INFO" and count == 2:
            reply.bulk(self._info().encode())
        elif word == b"SAVECONFIG" and count == 2:
            # Who this node is was on disk before it served anybody.
            reply.ok()
        elif word == b"MEET" and count == 4:
            self._meet(args[2], args[3])
        elif word == b"FORGET" and count == 3:
            self._forget(args[2])
        elif word == b"LEAVING" and count == 2:
            reply.simple(b"yes" if self._server.site.leaving else b"no")
        elif word == b"LEAVING" and count == 3:
            self._leave(caller, args[2])
        elif word == b"RESET" and (count == 2 or (count == 3 and args[2].upper() in (b"SOFT", b"HARD"))):
            if count == 3 and args[2].upper() == b"HARD":
                raise Refused(
                    b"ERR a node keeps its ID, which is part of the IDs of its jobs; start elsewhere for a new one"
                )
            flush(self._server, caller)
        else:
            raise Refused(_WRONG)

    def _line(self, caller: Connection) -> str:
        flags = "myself,leaving" if self._server.site.leaving else "myself"
        return f"{self._server.node_id} {caller.local_address} {flags} 0 0 connected\n"

    def _info(self) -> str:
        told = {
            "cluster_state": "ok",
            "cluster_known_nodes": 1,
            "cluster_reachable_nodes": 0,
            "cluster_size": 1,
            "cluster_stats_messages_sent": 0,
            "cluster_stats_messages_received": 0,
        }
        return "".join(f"{name}:{value}\r\n" for name, value in told.items())

    def _meet(self, host: bytes, port: bytes) -> None:
        number = parse_integer(port)
        if not 0 <= number < 1 << 63:
            raise Refused(b"ERR Invalid TCP port specified: " + port[:64])
        try:
            ipaddress.ip_address(host.decode("ascii", "replace"))
        except ValueError:
            number = 0
        if not 0 < number <= 65_535 - _BUS_OFFSET:
            raise Refused(b"ERR Invalid node address specified: " + host[:64] + b":" + port[:64])
        raise Refused(b"ERR this version of Penstock serves one node and cannot meet others")

    def _forget(self, node: bytes) -> None:
        if len(node) != _NODE_ID_BYTES:
            raise Refused(b"ERR Invalid node identifier")
        if node == self._server.node_id.encode():
            raise Refused(b"ERR I tried hard but I can't forget myself...")
        raise Refused(b"ERR Unknown node " + node)

    def _leave(self, caller: Connection, answer: bytes) -> None:
        if answer.lower() not in (b"yes", b"no"):
            raise Refused(b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
        self._server.set_leaving(answer.lower() == b"yes")
        caller.reply.ok()
