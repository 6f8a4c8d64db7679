"""Section: failures, grouped by their cause."""

from __future__ import annotations

from typing import Any

from penstock.report.charts.bars import BarGroup, bars_chart
from penstock.report.context import ROWS_MAX, Context
from penstock.report.gold import greatest
from penstock.report.section import Column, Figure, Section, column, count_column
from penstock.search.causes import cause_of

EXAMPLES_MAX = 3
BARS_MAX = 8


def failures(context: Context) -> Section:
    """Return the section with a row for each tube and cause."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in context.gold.merged("failures", ["tube", "reason"]):
        cause = cause_of(row["reason"])
        group = groups.setdefault(
            (row["tube"], cause), {"tube": row["tube"], "cause": cause, "count": 0, "dead_letters": 0, "jobs": []}
        )
        group["count"] += row["count"]
        group["dead_letters"] += row["dead_letters"]
        # Each reason has one example. A number of 0 or null means that it has none.
        if row["example_max"]:
            group["jobs"].append(row["example_max"])
    for group in groups.values():
        group["total"] = group["count"] + group["dead_letters"]
    rows = greatest(groups.values(), "total", ["tube", "cause"], ROWS_MAX)
    bars = [BarGroup(f"{row['cause']} · {row['tube']}", [row["count"], row["dead_letters"]]) for row in rows[:BARS_MAX]]
    title = "failures by cause"
    return Section(
        "failures",
        "Failures",
        "Why and how often did jobs fail, and how many were given up: buried, dropped or moved to another tube?",
        [
            *(column("tube"), column("cause"), count_column("count", "failed")),
            *(count_column("dead_letters", "given up"), Column("example jobs", _examples)),
        ],
        rows,
        figures=[[Figure(title, bars_chart("failures-causes", title, ["failed", "given up"], bars))]] if rows else [],
        legend=["failed", "given up"] if rows else [],
        note=_note(len(groups)),
    )


def _examples(row: dict[str, Any]) -> str:
    """Return numbers of jobs that failed for this cause, the newest first."""
    newest = sorted(set(row["jobs"]), reverse=True)[:EXAMPLES_MAX]
    return ", ".join(map(str, newest))


def _note(causes: int) -> str:
    shown = f"The {ROWS_MAX} most frequent of {causes:,} causes. " if causes > ROWS_MAX else ""
    return f"{shown}`penstock job history NUMBER` shows an example, at the node of its tube."
