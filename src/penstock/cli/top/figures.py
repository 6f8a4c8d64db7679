"""The first lines of the tab Server: the state of a server in words, from INFO and CLUSTER INFO."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.report.units import bytes_text, duration_text

Figures = Mapping[str, str]


def read_figures(text: str) -> dict[str, str]:
    """Return the figures in a reply like that of INFO, by name."""
    return {name: value for name, colon, value in (line.partition(":") for line in text.splitlines()) if colon}


def overview(info: Figures, cluster: Figures) -> list[tuple[str, str]]:
    """Return the most important figures. `cluster` is empty if the user may not see the cluster.

    A figure that the server does not report is left out. A malformed one raises ValueError.
    """
    found: list[tuple[str, str]] = []
    for name, make in _LINES:
        try:
            found.append((name, make(info, cluster)))
        except KeyError:
            pass
    return found


def _version(info: Figures, _: Figures) -> str:
    build = "compiled" if info["penstock_compiled"] == "yes" else "interpreted"
    return f"{info['penstock_version']}, {build}, Python {info['python_version']}"


def _clients(info: Figures, _: Figures) -> str:
    return f"{int(info['connected_clients']):,}, of which {int(info['blocked_clients']):,} wait"


def _memory(info: Figures, _: Figures) -> str:
    limit = int(info["maxmemory"])
    allowed = f" of {bytes_text(limit)}" if limit else ""
    return (
        f"{bytes_text(int(info['used_memory']))}{allowed} for jobs, {bytes_text(int(info['used_memory_rss']))} in all"
    )


def _journal(info: Figures, _: Figures) -> str:
    if info["aof_state"] == "off":
        return "off: jobs are in memory only"
    return f"{bytes_text(int(info['aof_current_size']))} to load at a start, fsync {info['journal_fsync']}"


def _sync(info: Figures, _: Figures) -> str:
    if not int(info["journal_sync_count"]):
        return "no sync in the last minute"
    return f"{_quantiles(info, 'journal_sync')} in the last minute"


def _lag(info: Figures, _: Figures) -> str:
    return f"{_quantiles(info, 'event_loop_lag')} in the last minute"


def _quantiles(info: Figures, name: str) -> str:
    return f"median {float(info[f'{name}_p50_ms']):.2f} ms, 99 % below {float(info[f'{name}_p99_ms']):.2f} ms"


def _cluster(_: Figures, cluster: Figures) -> str:
    known, others = int(cluster["cluster_known_nodes"]), int(cluster["cluster_reachable_nodes"])
    if known == 1:
        return "this node is not in a cluster"
    return f"{cluster['cluster_state']}: {known:,} nodes, {others:,} of the {known - 1:,} others are reachable"


_LINES: tuple[tuple[str, Callable[[Figures, Figures], str]], ...] = (
    ("version", _version),
    ("uptime", lambda info, _: duration_text(int(info["uptime_in_seconds"]) * 1_000)),
    ("clients", _clients),
    ("commands per second", lambda info, _: f"{int(info['instantaneous_ops_per_sec']):,}"),
    ("memory", _memory),
    ("journal", _journal),
    ("fsync time", _sync),
    ("event loop lag", _lag),
    ("cluster", _cluster),
)
