"""The metrics of a node without those of its tubes: commands, connections, memory, journal, cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from typing import Final

from penstock.cluster.messages import IPROTO, IPROTO_15, NODE_FAILED, NODE_LEAVING, NODE_SUSPECTED, RESP_2, RESP_3
from penstock.cluster.peers import HANDSHAKE, NOADDR, Peer
from penstock.node.command_counts import RESULT_NAMES, CommandCounts
from penstock.server.metrics.page import MICROSECONDS, MILLISECONDS, Limits, Page, escaped
from penstock.server.net.connection import Connection
from penstock.server.server import Server

_PROTOCOLS: Final = {RESP_2: "resp", RESP_3: "resp", IPROTO: "iproto", IPROTO_15: "iproto"}

# This many clients are counted at a time.
_CLIENTS: Final = 500

# A histogram of each command would have too many series with all limits.
_PER_COMMAND: Final = Limits(MICROSECONDS, 2)
_SHORT: Final = Limits(MICROSECONDS, 1)
_LONG: Final = Limits(MILLISECONDS, 1)

# The states of nodes, in the order in which they are checked.
_STATES: Final = (
    (HANDSHAKE, "handshake"),
    (NODE_FAILED, "failed"),
    (NODE_SUSPECTED, "suspected"),
    (NOADDR, "no_address"),
    (NODE_LEAVING, "leaving"),
)


def add_node(page: Page, server: Server) -> Generator[None]:
    """Add the metrics of the node. Yield where other work can be done."""
    _add_jobs(page, server)
    yield
    yield from _add_commands(page, server)
    yield from _add_connections(page, server)
    _add_journal(page, server)
    _add_cluster(page, server)
    page.add_histogram("penstock_event_loop_lag_seconds", server.loop_lag.lag_us, _SHORT)
    yield


def _add_jobs(page: Page, server: Server) -> None:
    engine = server.turn.engine
    page.add("penstock_jobs", int(engine.jobs.count))
    page.add("penstock_memory_used_bytes", server.used_memory())
    page.add("penstock_memory_limit_bytes", server.config.max_memory)
    page.add("penstock_memory_body_bytes", int(engine.resident_bytes))


def _add_commands(page: Page, server: Server) -> Generator[None]:
    dispatcher = server.dispatcher
    for command in list({id(each): each for each in dispatcher.commands.values()}.values()):
        _add_command(page, "resp", command.name.decode(), command.counts)
        yield
    for name, counts in list(dispatcher.functions.items()):
        _add_command(page, "iproto", name.decode("utf-8", "backslashreplace"), counts)
        yield
    if dispatcher.unknown:
        page.add(
            "penstock_commands_total",
            int(dispatcher.unknown),
            'protocol="resp",command="(unknown)",result="error"',
        )


def _add_command(page: Page, protocol: str, name: str, counts: CommandCounts) -> None:
    labels = f'protocol="{protocol}",command="{escaped(name)}"'
    calls = counts.by_result()
    if not any(calls):
        return
    for result, count in zip(RESULT_NAMES, calls, strict=True):
        page.add("penstock_commands_total", count, f'{labels},result="{result}"')
    page.add_histogram("penstock_command_duration_seconds", counts.durations, _PER_COMMAND, labels)


def _add_connections(page: Page, server: Server) -> Generator[None]:
    by_protocol = Counter({"resp": 0, "iproto": 0, "forwarded": 0})
    waiting = 0
    clients = list(server.clients)
    for start in range(0, len(clients), _CLIENTS):
        for client in clients[start : start + _CLIENTS]:
            waiting += client.is_waiting
            is_own = isinstance(client, Connection)
            by_protocol[_PROTOCOLS[client.inbox.protocol(client)] if is_own else "forwarded"] += 1
        yield
    for protocol, count in by_protocol.items():
        page.add("penstock_connections", count, f'protocol="{protocol}"')
    page.add("penstock_waiting_clients", waiting)
    totals = server.totals()
    page.add("penstock_connections_accepted_total", totals.accepted)
    page.add("penstock_connections_rejected_total", totals.rejected)
    page.add("penstock_received_bytes_total", totals.received)
    page.add("penstock_sent_bytes_total", totals.sent)
    page.add("penstock_internal_errors_total", int(server.dispatcher.internal_errors))


def _add_journal(page: Page, server: Server) -> None:
    journal = server.host.journal
    if journal is None:
        return
    log = journal.log
    page.add("penstock_journal_bytes", log.needed_bytes())
    page.add("penstock_journal_position", log.written)
    page.add("penstock_journal_unsynced_rows", log.written - log.durable)
    age_s = max(0.0, time.time() - log.recovery_range.since / 1000)
    page.add("penstock_journal_oldest_segment_age_seconds", round(age_s, 3))
    page.add_histogram("penstock_journal_fsync_seconds", log.sync_us, _SHORT)


def _add_cluster(page: Page, server: Server) -> None:
    membership = server.membership
    cluster, members, bus = membership.cluster, membership.members, membership.bus
    now = server.turn.clock.now()
    states = Counter({"ok": 0} | {name: 0 for _, name in _STATES})
    states["leaving" if server.context.leaving else "ok"] += 1
    for peer in members.peers.values():
        states[_state_of(peer)] += 1
    for state, count in states.items():
        page.add("penstock_cluster_nodes", count, f'state="{state}"')
    copies = cluster.replications
    page.add("penstock_replication_copies_wanted_total", int(copies.copies_wanted))
    page.add("penstock_replication_copies_made_total", int(copies.copies_made))
    page.add_histogram("penstock_replication_acks_seconds", copies.durations, _LONG)
    page.add("penstock_replication_waiting_puts", len(copies.by_id))
    page.add("penstock_replication_lag_seconds", max(0, copies.oldest_wait_ms(now)) / 1000)
    page.add("penstock_replication_given_up_total", int(copies.given_up))
    page.add("penstock_adds_below_default_total", int(copies.below_default))
    page.add("penstock_cluster_waiting_acks", len(cluster.acks.by_id))
    page.add("penstock_cluster_handovers", len(cluster.handovers.under_way))
    page.add("penstock_cluster_handovers_total", int(cluster.handovers.accepted), 'result="accepted"')
    page.add("penstock_cluster_handovers_total", int(cluster.handovers.refused), 'result="refused"')
    page.add("penstock_cluster_import_jobs_total", int(cluster.federation.imported))
    page.add("penstock_cluster_export_jobs_total", int(cluster.federation.exported))
    for peer in members.peers.values():
        if not peer.is_member():
            continue
        labels = f'node="{peer.id.decode()}"'
        sent, received = bus.traffic.get(peer.id, (0, 0))
        page.add("penstock_peer_up", int(peer.linked), labels)
        page.add("penstock_peer_sent_bytes_total", sent, labels)
        page.add("penstock_peer_received_bytes_total", received, labels)
        page.add("penstock_peer_unsent_bytes", bus.unsent_bytes(peer.id), labels)
        heard = peer.pong_received or peer.added
        page.add("penstock_peer_silence_seconds", max(0, int(now - heard)) / 1000, labels)


def _state_of(peer: Peer) -> str:
    for flag, name in _STATES:
        if peer.flags & flag:
            return name
    return "ok"
