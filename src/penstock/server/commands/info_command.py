"""INFO: the statistics of a node, in Disque's sections and with its field names."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock._build import is_compiled
from penstock._version import __version__
from penstock.durations import durations_from
from penstock.server.config.words import to_bytes
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import SYNTAX, Refused

# Rates are the mean over this many samples, taken at this interval.
_SAMPLES: Final = 16
SAMPLE_S: Final = 0.1

# The section Latency describes the time since a mark that is at most this old. Marks are set at this interval.
_MARKS: Final = 6
_MARK_S: Final = 10.0

# Disque does not have these sections, or shows them only on request.
_ON_REQUEST: Final = frozenset(["Commandstats", "Latency"])

# Users that are limited to some tubes do not see these sections, because they count the jobs of other users.
_OF_ALL_TUBES: Final = frozenset(["Jobs", "Queues", "Commandstats"])

Figures = dict[str, object]


class Info:
    """The INFO command."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: deque[tuple[float, int, int, int]] = deque(maxlen=_SAMPLES)
        self._memory_peak = 0
        self._sections: dict[str, Callable[[], Figures]] = {
            "Server": self._about_server,
            "Clients": self._about_clients,
            "Memory": self._about_memory,
            "Jobs": lambda: {"registered_jobs": self._server.membership.cluster.registered()},
            "Queues": lambda: {"registered_queues": len(self._server.turn.engine.tubes)},
            "Persistence": self._about_persistence,
            "Stats": self._about_traffic,
            "CPU": self._about_cpu,
            "Commandstats": self._about_commands,
            "Latency": self._about_latency,
        }
        # The counts of syncs and of the loop's lag at the last marks, with the time of each mark.
        self._marks: deque[tuple[float, list[int], list[int]]] = deque(maxlen=_MARKS)

    def info(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run INFO [section]: reply with the statistics of the node."""
        if len(args) > 2:
            raise Refused(SYNTAX)
        wanted = args[1].decode("utf-8", "replace").lower() if len(args) == 2 else "default"
        parts = []
        for name, figures in self._sections.items():
            if name in _OF_ALL_TUBES and not caller.any_tube:
                continue
            if wanted in (name.lower(), "all") or (wanted == "default" and name not in _ON_REQUEST):
                parts.append(section(name, figures()))
        caller.reply.bulk(to_bytes("\r\n".join(parts)))

    def forget_rates(self) -> None:
        """Drop the samples of the counters, because the counters were reset."""
        self._samples.clear()

    def sample(self) -> None:
        """Record the present values of the counters. Rates are computed from the last samples."""
        turn, dispatcher = self._server.turn, self._server.dispatcher
        self._samples.append((time.monotonic(), int(dispatcher.executed), int(turn.bytes_in), int(turn.bytes_out)))
        self._memory_peak = max(self._memory_peak, self._server.used_memory())
        if not self._marks or time.monotonic() - self._marks[-1][0] >= _MARK_S:
            self._marks.append((time.monotonic(), *self._latency_counts()))

    def _latency_counts(self) -> tuple[list[int], list[int]]:
        journal = self._server.host.journal
        return [] if journal is None else journal.log.sync_us.counts(), self._server.loop_lag.lag_us.counts()

    def _rate(self, figure: int) -> float:
        """Return how much a counter grows per second. `figure` is the index of the counter in a sample."""
        if len(self._samples) < 2:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        return (last[figure] - first[figure]) / max(last[0] - first[0], 0.001)

    def _about_server(self) -> Figures:
        server = self._server
        uptime = int(time.monotonic() - server.started)
        return {
            "disque_version": "1.0-rc1",
            "disque_git_sha1": "00000000",
            "disque_git_dirty": 0,
            "disque_build_id": "0",
            "penstock_version": __version__,
            "penstock_compiled": "yes" if is_compiled() else "no",
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "arch_bits": 64 if sys.maxsize > 2**32 else 32,
            "multiplexing_api": type(server.loop).__module__.partition(".")[0],
            "gcc_version": "0.0.0",
            "python_version": platform.python_version(),
            "process_id": os.getpid(),
            "run_id": server.run_id,
            "tcp_port": server.config.port,
            "uptime_in_seconds": uptime,
            "uptime_in_days": uptime // 86_400,
            "hz": server.config.hz,
            "executable": sys.executable,
            "config_file": server.config.file or "",
        }

    def _about_clients(self) -> Figures:
        clients = list(self._server.clients)
        return {
            "connected_clients": len(clients),
            "client_longest_output_list": max((int(client.buffered() > 0) for client in clients), default=0),
            "client_biggest_input_buf": max((int(client.inbox.buffer.pending()) for client in clients), default=0),
            "blocked_clients": sum(client.is_waiting for client in clients),
        }

    def _about_memory(self) -> Figures:
        used, rss = self._server.used_memory(), _rss_bytes()
        self._memory_peak = max(self._memory_peak, used)
        return {
            "used_memory": used,
            "used_memory_human": human_bytes(used),
            "used_memory_rss": rss,
            "used_memory_peak": self._memory_peak,
            "used_memory_peak_human": human_bytes(self._memory_peak),
            "mem_fragmentation_ratio": f"{rss / max(used, 1):.2f}",
            "mem_allocator": "python",
            "maxmemory": self._server.config.max_memory,
        }

    def _about_persistence(self) -> Figures:
        server = self._server
        journal = server.host.journal
        figures: Figures = {
            "loading": 0,
            "aof_enabled": int(journal is not None),
            "aof_state": "off" if journal is None else "on",
            "aof_rewrite_in_progress": int(server.rewriting),
            "aof_rewrite_scheduled": 0,
            "aof_last_rewrite_time_sec": server.last_rewrite_s,
            "aof_current_rewrite_time_sec": -1,
            "aof_last_bgrewrite_status": "ok" if server.last_rewrite_ok else "err",
            "aof_last_write_status": "ok",
        }
        if journal is not None:
            log = journal.log
            figures |= {
                "aof_current_size": log.needed_bytes(),
                "aof_base_size": log.recovery_range.snapshot_bytes,
                "aof_pending_rewrite": 0,
                "aof_buffer_length": 0,
                "aof_rewrite_buffer_length": 0,
                "aof_pending_bio_fsync": 0,
                "aof_delayed_fsync": 0,
                "journal_fsync": log.fsync,
                "journal_written": log.written,
                "journal_durable": log.durable,
                "journal_sync_ms": f"{server.turn_loop.syncs.average_s * 1000:.3f}",
            }
        return figures

    def _about_traffic(self) -> Figures:
        clients, turn, dispatcher = self._server.clients, self._server.turn, self._server.dispatcher
        return {
            "total_connections_received": clients.accepted,
            "total_commands_processed": int(dispatcher.executed),
            "instantaneous_ops_per_sec": round(self._rate(1)),
            "total_net_input_bytes": int(turn.bytes_in),
            "total_net_output_bytes": int(turn.bytes_out),
            "instantaneous_input_kbps": f"{self._rate(2) / 1024:.2f}",
            "instantaneous_output_kbps": f"{self._rate(3) / 1024:.2f}",
            "rejected_connections": clients.rejected,
            "latest_fork_usec": 0,
            "errors_internal": int(dispatcher.internal_errors),
        }

    def _about_latency(self) -> Figures:
        """Return the durations of syncs and the lag of the event loop, within the last minute."""
        syncs, lags = self._latency_counts()
        _, syncs_before, lags_before = self._marks[0] if self._marks else (0.0, [], [])
        if len(syncs_before) != len(syncs):
            # The journal was switched on or off meanwhile.
            syncs_before = []
        return {
            **_quantiles("journal_sync", _growth(syncs_before, syncs)),
            **_quantiles("event_loop_lag", _growth(lags_before, lags)),
        }

    def _about_cpu(self) -> Figures:
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "used_cpu_sys": f"{own.ru_stime:.2f}",
            "used_cpu_user": f"{own.ru_utime:.2f}",
            "used_cpu_sys_children": f"{children.ru_stime:.2f}",
            "used_cpu_user_children": f"{children.ru_utime:.2f}",
        }

    def _about_commands(self) -> Figures:
        figures: Figures = {}
        for command in self._server.dispatcher.commands.values():
            if command.calls:
                us = int(command.ns) / 1000
                figures[f"cmdstat_{command.name.decode()}"] = (
                    f"calls={command.calls},usec={us:.0f},usec_per_call={us / int(command.calls):.2f}"
                )
        return figures


def _growth(before: list[int], now: list[int]) -> list[int]:
    return [count - (before[i] if before else 0) for i, count in enumerate(now)]


def _quantiles(name: str, buckets: list[int]) -> Figures:
    """Return the count, the median and the 99th percentile of a histogram in microseconds."""
    # The buckets are given as if they were milliseconds, so the quantiles are not in seconds but in milliseconds.
    durations = durations_from(buckets, 0)
    return {
        f"{name}_count": durations.count,
        f"{name}_p50_ms": f"{durations.quantile(0.5) or 0:.3f}",
        f"{name}_p99_ms": f"{durations.quantile(0.99) or 0:.3f}",
    }


def section(name: str, figures: Figures) -> str:
    return "".join(line + "\r\n" for line in (f"# {name}", *(f"{key}:{value}" for key, value in figures.items())))


def _rss_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        # The system has no /proc. The largest size so far is in bytes on macOS, and in KiB elsewhere.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def human_bytes(number: int) -> str:
    """Return a size as readable text, in the form that Disque uses."""
    if number < 1024:
        return f"{number}B"
    size = float(number)
    for unit in "KMGT":
        size /= 1024
        if size < 1024:
            return f"{size:.2f}{unit}"
    return f"{size / 1024:.2f}P"
