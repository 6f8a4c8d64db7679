"""Section: takes that were not the first of their job, and why jobs returned."""

from __future__ import annotations

from penstock.report.context import Context
from penstock.report.section import Column, Section, column, count_column

_CAUSES = ("nacked", "ttr_passed", "disconnected", "released", "claim_ended", "snatched", "undelivered")


def redeliveries(context: Context) -> Section:
    """Return the section with a row for each tube."""
    rows = context.by_tube(context.gold.merged("redeliveries", ["tube"]))
    share = Column("share", lambda row: row["redeliveries"] / row["takes"] if row["takes"] else None, "share", True)
    return Section(
        "redeliveries",
        "Redeliveries",
        "How many takes were not the first of their job, and why did taken jobs return to the tube?",
        [
            *(column("tube"), count_column("takes", "taken"), count_column("redeliveries", "again"), share),
            *map(count_column, _CAUSES),
        ],
        rows,
        figures=[list(context.rate_figures("redeliveries", {"redeliveries": "redelivered"}))] if rows else [],
        legend=context.legend,
        note=context.left_out,
    )
