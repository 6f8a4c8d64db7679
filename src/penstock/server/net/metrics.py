"""/metrics: the metrics of a node for Prometheus, collected on each request.

Clients can create any number of tubes with any names. Only the tubes with the most jobs are listed by name, up to a
limit, so that no client can overload a monitoring system.
"""

from __future__ import annotations

import heapq
import platform
from collections.abc import Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock._build import is_compiled
from penstock._version import __version__
from penstock.core import states as s
from penstock.core import views
from penstock.server.server import Server

# The maximum number of tubes that are listed by name. Tubes with the most jobs are chosen.
_TUBES_MAX: Final = 200


class Metrics:
    """A collector for prometheus-client."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def page(self) -> tuple[str, str]:
        """Return the metrics as text, and the content type of the text."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode(), CONTENT_TYPE_LATEST

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics. prometheus-client calls this."""
        server = self._server
        engine, dispatcher, clients = server.turn.engine, server.dispatcher, server.clients
        journal = server.host.journal
        build = GaugeMetricFamily("penstock_build_info", "Version and build.", labels=["version", "python", "compiled"])
        build.add_metric([__version__, platform.python_version(), "yes" if is_compiled() else "no"], 1)
        yield build
        yield GaugeMetricFamily("penstock_jobs", "Jobs in any state.", int(engine.jobs.count))
        yield GaugeMetricFamily("penstock_tubes", "Tubes.", len(engine.tubes))
        yield GaugeMetricFamily(
            "penstock_memory_used_bytes", "Memory used by jobs, as counted by maxmemory.", server.used_memory()
        )
        yield GaugeMetricFamily("penstock_memory_limit_bytes", "maxmemory; 0 for no limit.", server.config.max_memory)
        yield GaugeMetricFamily("penstock_connections", "Open connections.", len(clients))
        waiting = sum(client.is_waiting for client in clients)
        yield GaugeMetricFamily("penstock_waiting_takes", "Connections that wait for a job.", waiting)
        yield CounterMetricFamily("penstock_connections_accepted", "Connections accepted.", clients.accepted)
        yield CounterMetricFamily("penstock_connections_rejected", "Connections refused.", clients.rejected)
        yield CounterMetricFamily(
            "penstock_internal_errors", "Internal errors since start.", int(dispatcher.internal_errors)
        )
        yield CounterMetricFamily("penstock_received_bytes", "Bytes received.", int(server.turn.bytes_in))
        yield CounterMetricFamily("penstock_sent_bytes", "Bytes sent.", int(server.turn.bytes_out))
        yield CounterMetricFamily(
            "penstock_adds_below_default",
            "Jobs with fewer than three copies, because some nodes do not accept copies.",
            int(server.membership.cluster.replications.below_default),
        )
        if journal is not None:
            log = journal.log
            yield GaugeMetricFamily("penstock_journal_bytes", "Bytes of log that recovery reads.", log.needed_bytes())
            yield GaugeMetricFamily("penstock_journal_position", "Position of the next row of the log.", log.written)
            lag = log.written - log.durable
            yield GaugeMetricFamily("penstock_journal_unsynced_rows", "Rows that are not on disk yet.", lag)
            yield GaugeMetricFamily(
                "penstock_journal_fsync_seconds", "Average duration of a sync.", server.turn_loop.syncs.average_s
            )
        yield from self._commands()
        yield from self._tubes()

    def _commands(self) -> Iterable[Metric]:
        calls = CounterMetricFamily("penstock_commands", "Calls of a command.", labels=["command"])
        seconds = CounterMetricFamily("penstock_command_seconds", "Time spent in a command.", labels=["command"])
        for command in self._server.dispatcher.commands.values():
            if command.calls:
                calls.add_metric([command.name.decode()], int(command.calls))
                seconds.add_metric([command.name.decode()], int(command.ns) / 1e9)
        yield calls
        yield seconds

    def _tubes(self) -> Iterable[Metric]:
        tubes = self._server.turn.engine.tubes.values()
        jobs = GaugeMetricFamily("penstock_tube_jobs", "Jobs of a tube by state.", labels=["tube", "state"])
        waiting = GaugeMetricFamily("penstock_tube_waiting_takes", "Takes that wait on a tube.", labels=["tube"])
        moves = CounterMetricFamily(
            "penstock_tube_transitions", "Transitions of jobs between two states.", labels=["tube", "from", "to"]
        )
        for tube in heapq.nlargest(_TUBES_MAX, tubes, key=lambda tube: tube.total()):
            name = tube.name[:200].decode("utf-8", "backslashreplace")
            waiting.add_metric([name], int(tube.take_line.length))
            for state in range(1, s.STATES_COUNT):
                jobs.add_metric([name, s.STATE_NAMES[state]], tube.count_in(state))
            for (source, target), count in views.transitions(tube).items():
                moves.add_metric([name, views.TRANSITION_NAMES[source], views.TRANSITION_NAMES[target]], count)
        yield jobs
        yield waiting
        yield moves
