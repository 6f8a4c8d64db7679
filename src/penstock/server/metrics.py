"""/metrics: the figures of a node for Prometheus, collected when somebody asks.

Tubes come and go, and their names can be anything: those with the most jobs are told by name, up to a limit, so that no
client can make a monitoring system drown in them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.core import states as s
from penstock.core import stats
from penstock.server.server import Server

# How many tubes are told by name: those with the most jobs.
_TUBES_MAX: Final = 200


class Metrics:
    """Collects the figures of a server, as prometheus-client wants a collector to."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def page(self) -> tuple[str, str]:
        """The figures as text, and the type of that text."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode(), CONTENT_TYPE_LATEST

    def collect(self) -> Iterable[Metric]:
        """What prometheus-client calls."""
        server = self._server
        engine, desk, clients = server.node.engine, server.desk, server.clients
        journal = server.host.journal
        yield GaugeMetricFamily("penstock_jobs", "Jobs in any state.", int(engine.jobs.count))
        yield GaugeMetricFamily("penstock_tubes", "Tubes.", len(engine.tubes))
        yield GaugeMetricFamily("penstock_memory_bytes", "What jobs take, as maxmemory counts.", server.used_memory())
        yield GaugeMetricFamily("penstock_clients", "Connections.", len(clients))
        blocked = sum(client.wait is not None for client in clients)
        yield GaugeMetricFamily("penstock_clients_waiting", "Connections that wait for a job.", blocked)
        yield CounterMetricFamily("penstock_connections", "Connections accepted.", clients.accepted)
        yield CounterMetricFamily("penstock_connections_rejected", "Connections refused: too many.", clients.rejected)
        yield CounterMetricFamily("penstock_commands", "Commands run.", int(desk.executed))
        yield CounterMetricFamily("penstock_internal_errors", "Defects that were met.", int(desk.internal_errors))
        yield CounterMetricFamily("penstock_received_bytes", "Bytes received.", clients.bytes_in)
        yield CounterMetricFamily("penstock_sent_bytes", "Bytes sent.", clients.bytes_out)
        if journal is not None:
            log = journal.log
            yield GaugeMetricFamily("penstock_journal_bytes", "Log that a recovery reads.", log.needed_bytes())
            yield CounterMetricFamily("penstock_journal_rows", "Rows written to the log.", log.written)
            lag = log.written - log.durable
            yield GaugeMetricFamily("penstock_journal_unsynced_rows", "Rows that are not on disk yet.", lag)
            yield GaugeMetricFamily("penstock_sync_seconds", "How long a sync takes.", server.node.sync_average_s)
        calls = CounterMetricFamily("penstock_command_calls", "Calls of a command.", labels=["command"])
        seconds = CounterMetricFamily("penstock_command_seconds", "Time spent in a command.", labels=["command"])
        for command in desk.commands.values():
            if command.calls:
                calls.add_metric([command.name.decode()], int(command.calls))
                seconds.add_metric([command.name.decode()], int(command.ns) / 1e9)
        yield calls
        yield seconds
        jobs = GaugeMetricFamily("penstock_tube_jobs", "Jobs of a tube by state.", labels=["tube", "state"])
        events = CounterMetricFamily("penstock_tube_events", "What happened in a tube.", labels=["tube", "event"])
        for tube in heapq.nlargest(_TUBES_MAX, engine.tubes.values(), key=lambda tube: tube.total()):
            name = tube.name[:200].decode("utf-8", "backslashreplace")
            for state in range(1, s.STATES_COUNT):
                jobs.add_metric([name, s.STATE_NAMES[state]], tube.count_in(state))
            for event, count in enumerate(stats.events(tube)):
                if count:
                    events.add_metric([name, s.EVENT_NAMES[event]], count)
        yield jobs
        yield events
