"""CLUSTER: show and change the nodes of the cluster."""

from __future__ import annotations

from typing import Final

from penstock.cluster.messages import MESSAGE_NAMES, MESSAGES_COUNT
from penstock.cluster.node import Cluster
from penstock.cluster.roster import nodes_text
from penstock.core.copy_commands import is_shared
from penstock.core.errors import ProtocolError
from penstock.dialects.disque import parse_integer
from penstock.dialects.pages import SCAN_SLICE, PagedReply
from penstock.node.caller import Caller, check_whole_server
from penstock.server.commands.flush import flush
from penstock.server.config.words import to_bytes
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire import bus as wire
from penstock.wire.errors import Refused

# Subcommands that change nothing and show only tubes that the caller may use.
_READ_ONLY: Final = frozenset([b"NODES", b"HOMES", b"MYID", b"INFO", b"COUNT-FAILURE-REPORTS"])

_WRONG: Final = b"ERR Wrong CLUSTER subcommand or number of arguments"


class ClusterCommands:
    """The CLUSTER commands."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def cluster(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run CLUSTER MEET | NODES | HOMES | MYID | INFO | SAVECONFIG | FORGET | RESET | LEAVING | EPOCH | …"""
        word, count = args[1].upper(), len(args)
        if word not in _READ_ONLY:
            check_whole_server(caller)
        reply = caller.reply
        if word == b"NODES" and count == 2:
            membership = self._server.membership
            membership.cluster.announce_condition(now)
            reply.bulk(nodes_text(membership.members, membership.address_for(caller.local_address)).encode())
        elif word == b"HOMES" and count == 2:
            self._server.context.run_sliced(caller, _Homes(self._server.membership.cluster), now)
        elif word == b"MYID" and count == 2:
            reply.bulk(self._server.node_id.encode())
        elif word == b"INFO" and count == 2:
            reply.bulk(self._info().encode())
        elif word == b"SAVECONFIG" and count == 2:
            self._save(caller)
        elif word == b"MEET" and count in (4, 5):
            self._meet(caller, args[2], args[3:])
        elif word == b"FORGET" and count == 2:
            reply.bulks(self._server.membership.members.given_up)
        elif word == b"FORGET" and count == 3:
            self._forget(caller, args[2], now)
        elif word == b"COUNT-FAILURE-REPORTS" and count == 3:
            self._count_reports(caller, args[2], now)
        elif word == b"EPOCH" and count in (3, 4):
            self._epoch(caller, args[2], args[3:], now)
        elif word == b"LEAVING" and count == 2:
            reply.simple(b"yes" if self._server.context.leaving else b"no")
        elif word == b"LEAVING" and count == 3:
            self._leave(caller, args[2])
        elif word == b"RESET" and (count == 2 or (count == 3 and args[2].upper() in (b"SOFT", b"HARD"))):
            self._reset(caller, count == 3 and args[2].upper() == b"HARD")
        else:
            raise Refused(_WRONG)

    def _info(self) -> str:
        membership = self._server.membership
        members, bus, homes = membership.members, membership.bus, membership.cluster.homes
        fields: dict[str, object] = {
            "cluster_state": "ok",
            "cluster_known_nodes": 1 + len(members.peers),
            "cluster_reachable_nodes": len(members.reachable()),
            "cluster_size": members.size(),
            "cluster_stats_messages_sent": bus.sent,
            "cluster_stats_messages_received": bus.received,
            "cluster_stats_messages_dropped": bus.dropped,
            "cluster_stats_bytes_sent": bus.bytes_out,
            "cluster_stats_bytes_received": bus.bytes_in,
            "cluster_stats_writes": bus.packets_out,
            "cluster_stats_refused": bus.refusals,
            "cluster_stats_strangers": int(members.unknown_senders),
            "cluster_adds_below_default": int(membership.cluster.replications.below_default),
            "cluster_paused_queues": len(membership.cluster.condition.paused),
            "cluster_my_epoch": int(members.epoch),
            "cluster_homes_elsewhere": len(homes.by_tube),
            "cluster_homes_claimed": len(membership.cluster.elections.by_tube),
            "cluster_homes_disputed": len(homes.disputes),
            **({} if bus.forwarding is None else bus.forwarding.counts()),
        }
        sent = membership.mail.sent
        fields |= {
            f"cluster_stats_sent_{MESSAGE_NAMES[kind]}": sent[kind] for kind in range(MESSAGES_COUNT) if sent[kind]
        }
        return "".join(f"{name}:{value}\r\n" for name, value in fields.items())

    def _save(self, caller: Connection) -> None:
        try:
            self._server.membership.save()
        except OSError as error:
            raise Refused(
                b"ERR error saving the cluster node config: " + to_bytes(error.strerror or str(error))
            ) from None
        caller.reply.ok()

    def _meet(self, caller: Connection, host: bytes, ports: list[bytes]) -> None:
        numbers = [parse_integer(port) for port in ports]
        for number, port in zip(numbers, ports, strict=True):
            if not 0 <= number < 1 << 63:
                raise Refused(b"ERR Invalid TCP port specified: " + port[:64])
        try:
            address = wire.address(host.decode("ascii", "replace"))
        except ProtocolError:
            numbers = [0]
        usual_max = 65_535 if len(ports) == 2 else 55_535
        if not 0 < numbers[0] <= usual_max or numbers[-1] > 65_535:
            raise Refused(b"ERR Invalid node address specified: " + host[:64] + b":" + b" ".join(ports)[:64])
        why_not = self._server.membership.meet(address, numbers[0], numbers[1] if len(numbers) == 2 else 0)
        if why_not:
            raise Refused(b"ERR " + to_bytes(why_not))
        caller.reply.ok()

    def _forget(self, caller: Connection, node: bytes, now: int) -> None:
        if len(node) != wire.NODE_ID_BYTES:
            raise Refused(b"ERR Invalid node identifier")
        if node == self._server.node_id.encode():
            raise Refused(b"ERR I tried hard but I can't forget myself...")
        if not self._server.membership.members.give_up(node, now):
            raise Refused(b"ERR Unknown node " + node)
        caller.reply.ok()

    def _count_reports(self, caller: Connection, node: bytes, now: int) -> None:
        members = self._server.membership.members
        if node not in members.peers:
            raise Refused(b"ERR Unknown node " + node[: wire.NODE_ID_BYTES])
        caller.reply.integer(members.failure_reports(node, now))

    def _epoch(self, caller: Connection, node: bytes, raised: list[bytes], now: int) -> None:
        """Run CLUSTER EPOCH: reply with the greatest known epoch of a node.

        If `raised` is not empty, first raise the epoch to its number. A standby does this before it replaces the node.
        """
        if not wire.is_node_id(node):
            raise Refused(b"ERR Invalid node identifier")
        members = self._server.membership.members
        if raised and not members.raise_epoch(node, _epoch(raised[0]), now):
            known = b"%d" % members.epoch_of(node)
            raise Refused(b"STALE node " + node + b" is already in epoch " + known + b"; choose a greater one")
        caller.reply.integer(members.epoch_of(node))

    def _leave(self, caller: Connection, answer: bytes) -> None:
        if answer.lower() not in (b"yes", b"no"):
            raise Refused(b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'")
        self._server.set_leaving(answer.lower() == b"yes")
        caller.reply.ok()

    def _reset(self, caller: Connection, hard: bool) -> None:
        flush(self._server, caller)
        self._server.membership.reset(hard)
        self._server.context.node = self._server.node_id.encode()


def _epoch(word: bytes) -> int:
    epoch = parse_integer(word)
    if not 0 < epoch <= wire.EPOCH_MAX:
        raise Refused(b"ERR an epoch must be 1 to %d" % wire.EPOCH_MAX)
    return epoch


class _Homes(PagedReply):
    """Runs CLUSTER HOMES: replies with every tube that has a home, the home and its epoch."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._cursor = 0
        self._elsewhere: list[bytes] | None = (
            None  # Remaining tubes of other nodes; None while local tubes are scanned.
        )

    def scan(self, caller: Caller, now: int) -> bool:
        members, homes = self._cluster.members, self._cluster.homes
        found: list[tuple[bytes, bytes, int]] = []
        if self._elsewhere is None:
            tubes, self._cursor = self._cluster.state.engine.scan_tubes(self._cursor, SCAN_SLICE)
            found = [(tube.name, members.myself, int(members.epoch)) for tube in tubes if not is_shared(tube)]
            if self._cursor == 0:
                self._elsewhere = homes.known()
        else:
            some, self._elsewhere = self._elsewhere[:SCAN_SLICE], self._elsewhere[SCAN_SLICE:]
            there = [(name, homes.home_of(name)) for name in some]
            found = [(name, node, int(members.peers[node].epoch)) for name, node in there if node]
        page = self.page(caller)
        for name, node, epoch in found:
            if caller.any_tube or caller.may_use(name):
                if not self.fits(page, len(name) + len(node), True):
                    self.add(page)
                    page = self.page(caller)
                page.array(3)
                page.bulk(name)
                page.bulk(node)
                page.integer(epoch)
                self.found += 1
        self.add(page)
        return self._elsewhere == []
