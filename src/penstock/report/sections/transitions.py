"""Section: how often jobs changed from one state to another."""

from __future__ import annotations

from penstock.report.charts.matrix import matrix
from penstock.report.context import ROWS_MAX, Context
from penstock.report.section import Figure, Section, column, count_column

# The order of a job's life. Other names follow in alphabetical order.
_ORDER = ("new", "none", "elsewhere", "delayed", "ready", "taken", "buried", "done", "zombie", "gone")


def transitions(context: Context) -> Section:
    """Return the section with a row for each of the most frequent transitions."""
    rows, count = context.gold.top("transitions", ["tube", "before", "after"], "count", ROWS_MAX)
    counts = {
        (row["before"], row["after"]): row["count"] for row in context.gold.merged("transitions", ["before", "after"])
    }
    downs, acrosses = (_sorted({place[at] for place in counts}) for at in (0, 1))
    title = "from the state on the left to the state on top, all tubes"
    chart = matrix("transitions-matrix", title, downs, acrosses, counts)
    return Section(
        "transitions",
        "Transitions",
        "How often did jobs of each tube change from one state to another?",
        [column("tube"), column("before", "from"), column("after", "to"), count_column("count")],
        rows,
        figures=[[Figure(title, chart)]] if rows else [],
        note=f"The {ROWS_MAX} most frequent of {count:,}." if count > ROWS_MAX else "",
    )


def _sorted(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
