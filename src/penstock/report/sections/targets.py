"""Section: the targets for wait times, and how much of their error budgets is used."""

from __future__ import annotations

from penstock.report.charts.bars import BarGroup, bars_chart
from penstock.report.context import Context
from penstock.report.percentiles import percentiles
from penstock.report.section import Figure, Section, column, count_column, duration_column, share_column
from penstock.report.sections.durations import tube_histograms
from penstock.report.targets import budget_of
from penstock.report.units import share_text


def targets(context: Context) -> Section:
    """Return the section with a row for each target and tube."""
    waits = tube_histograms(context, "wait")
    rows = []
    for target in context.targets:
        found = []
        for (tube,), counts in waits.items():
            budget = budget_of(target, counts)
            found.append(
                {
                    "tube": tube,
                    "target": str(target),
                    "actual": percentiles(counts, [target.rank])[0],
                    "waits": budget.total,
                    "slower": budget.slower,
                    "share": budget.share,
                    "allowed": float(target.allowed),
                    "used": budget.used,
                    "result": "met" if budget.met else "missed",
                }
            )
        rows += context.by_tube(found)
    groups = [BarGroup(f"{row['tube']}: {row['target']}", [row["used"]], row["used"] > 1) for row in rows]
    title = "used error budget; the mark is the whole budget"
    chart = bars_chart("targets-used", title, ["used"], groups, share_text, mark=1)
    return Section(
        "targets",
        "Targets",
        "Did jobs wait longer than the targets allow, and how much of the error budgets is used?",
        [
            *(column("tube"), column("target"), column("result"), duration_column("actual")),
            *(count_column("waits", "takes"), count_column("slower", "slower than the target")),
            *(share_column("share", "slower"), share_column("allowed"), share_column("used", "budget used")),
        ],
        rows,
        figures=[[Figure(title, chart)]] if rows else [],
        note="The error budget is the share of jobs that may wait longer than the target: 5 % for a p95.",
    )
