"""Section: jobs that were put, taken, acked and failed."""

from __future__ import annotations

from penstock.report.context import Context
from penstock.report.section import Column, Section, column, count_column

_FIELDS = {"puts": "put", "takes": "taken", "acks": "acked", "fails": "failed"}


def rates(context: Context) -> Section:
    """Return the section with a row for each tube."""
    gold = context.gold
    rows = context.by_tube(gold.merged("rates", ["tube"]))
    busiest = gold.busiest("rates", "puts", [row["tube"] for row in rows])
    grain = gold.source.grain
    return Section(
        "rates",
        "Rates",
        f"How many jobs were put, taken, acked and failed in each tube and {grain}?",
        [
            *(column("tube"), *(count_column(field, name) for field, name in _FIELDS.items())),
            Column(f"put in the busiest {grain}", lambda row: busiest[row["tube"]], number=True),
        ],
        rows,
        figures=[list(context.rate_figures("rates", _FIELDS))] if rows else [],
        legend=context.legend,
        note=context.left_out,
    )
