"""Section: the keys with the most jobs, and whether they wait longer than others."""

from __future__ import annotations

from penstock.report.charts.bars import BarGroup, bars_chart
from penstock.report.context import ROWS_MAX, Context
from penstock.report.section import Figure, Section, column, count_column, duration_column
from penstock.report.units import duration_text

BARS_MAX = 8


def keys(context: Context) -> Section:
    """Return the section with a row for each of the keys with the most jobs."""
    rows, count = context.gold.top("fairness", ["tube", "key"], "jobs", ROWS_MAX)
    for row in rows:
        row["wait_mean"] = round(row["wait_ms"] / row["deliveries"]) if row["deliveries"] else None
    groups = [BarGroup(f"{row['key']} · {row['tube']}", [row["wait_mean"]]) for row in rows[:BARS_MAX]]
    title = "mean wait of the keys with the most jobs"
    chart = bars_chart("fairness-waits", title, ["mean wait"], groups, lambda ms: duration_text(round(ms)))
    return Section(
        "fairness",
        "Keys",
        "Do the jobs of any key wait longer than those of other keys in the same tube?",
        [
            *(column("tube"), column("key"), count_column("jobs"), count_column("deliveries")),
            *(duration_column("wait_mean", "mean wait"), duration_column("wait_ms_max", "longest")),
        ],
        rows,
        figures=[[Figure(title, chart)]] if rows else [],
        note=f"The {ROWS_MAX} keys with the most jobs, of {count:,}." if count > ROWS_MAX else "",
    )
