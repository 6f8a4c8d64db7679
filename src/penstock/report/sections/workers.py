"""Section: workers, by the names of their clients.

A client that connects again has a new session. Sessions with one name and user are one worker. A session without a name
is a worker of its own.
"""

from __future__ import annotations

from typing import Any

from penstock.report.charts.bars import BarGroup, bars_chart
from penstock.report.context import ROWS_MAX, Context
from penstock.report.gold import greatest, sessions_by_id
from penstock.report.section import Figure, Section, column, count_column, duration_column

BARS_MAX = 8
_SUMS = ("taken", "acked", "failed", "busy_ms")


def workers(context: Context) -> Section:
    """Return the section with a row for each of the workers that took the most jobs."""
    names = sessions_by_id(context.gold.source)
    rows = context.gold.merged("workers", ["node", "session"])
    # Session numbers are unique only within a node.
    several = len({row["node"] for row in rows}) > 1
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        name, user = names.get((row["node"], row["session"]), ("", ""))
        worker = name or f"session {row['session']}" + (f" of node {row['node'][:8]}" if several else "")
        key = (name, user) if name else (row["node"], row["session"], "")
        group = groups.setdefault(key, {"worker": worker, "user": user, "sessions": 0, **dict.fromkeys(_SUMS, 0)})
        group["sessions"] += 1
        for field in _SUMS:
            group[field] += row[field]
    shown = greatest(groups.values(), "taken", ["worker", "user"], ROWS_MAX)
    bars = [BarGroup(row["worker"], [row["acked"], row["failed"]]) for row in shown[:BARS_MAX]]
    title = "jobs that each worker acked and failed"
    return Section(
        "workers",
        "Workers",
        "How many jobs did each worker take, ack and fail, and how long did it hold them?",
        [
            *(column("worker"), column("user"), count_column("sessions")),
            *(count_column(field) for field in ("taken", "acked", "failed")),
            duration_column("busy_ms", "busy"),
        ],
        shown,
        figures=[[Figure(title, bars_chart("workers-jobs", title, ["acked", "failed"], bars))]] if shown else [],
        legend=["acked", "failed"] if shown else [],
        note=_note(len(groups)),
    )


def _note(count: int) -> str:
    shown = f"The {ROWS_MAX} workers that took the most jobs, of {count:,}, in all tubes. " if count > ROWS_MAX else ""
    return f"{shown}Workers count for all tubes, because a session can take jobs of several."
