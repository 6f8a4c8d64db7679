"""Sections: wait times and run times, as percentiles over time and as a heatmap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow.compute as pc

from penstock.report.charts.heatmap import heatmap
from penstock.report.charts.lines import Line, Mark, lines_chart
from penstock.report.charts.scales import DurationBands, DurationScale
from penstock.report.charts.svg import clean
from penstock.report.context import Context
from penstock.report.gold import merge, of_tubes
from penstock.report.percentiles import add_counts, bucket_ms, percentiles, rank_of
from penstock.report.section import Figure, Section, column, count_column, duration_column
from penstock.report.source import Table
from penstock.report.units import duration_text

# A heatmap is wider than a chart of percentiles, but each of its columns has several cells.
HEATMAP_STEPS_MAX: Final = 96

_PERCENTS: Final = ("50", "95", "99")
_ACCURACY: Final = "Percentiles are exact up to 50 ms and accurate to 2 % above."
_HEATMAPS: Final = "In a heatmap, a stronger colour means more jobs, on a logarithmic scale."

Histogram = dict[int, int]


def waits(context: Context) -> Section:
    """Return the section about wait times, with the targets."""
    found = _percentile_rows(context, "wait")
    figures = [list(_percentile_figures(context, "wait")), list(_heatmaps(context))] if found else []
    return _section(
        context, "waits", "Wait times", "How long were jobs ready before they were taken?", "takes", found, figures
    )


def runs(context: Context) -> Section:
    """Return the section about run times."""
    found = _percentile_rows(context, "run")
    figures = [list(_percentile_figures(context, "run"))] if found else []
    return _section(
        context, "runs", "Run times", "How long did workers hold jobs before they acked them?", "acks", found, figures
    )


def _section(
    context: Context, name: str, title: str, question: str, of: str, rows: list[Any], figures: list[list[Figure]]
) -> Section:
    kind = name.removesuffix("s")
    columns = [duration_column(f"p{percent}") for percent in _percents(context, kind)]
    return Section(
        name,
        title,
        question,
        [column("tube"), count_column("count", of), *columns, duration_column("longest")],
        rows,
        figures=figures,
        legend=context.legend,
        note=" ".join(filter(None, (context.left_out, _ACCURACY, _HEATMAPS if kind == "wait" else ""))),
    )


def histograms(table: Table, kind: str, by: Sequence[str]) -> dict[tuple[Any, ...], Histogram]:
    """Return the counts of durations by bucket, for each group of the columns `by`."""
    found: dict[tuple[Any, ...], Histogram] = {}
    for row in merge(table.filter(pc.equal(table["kind"], kind)), [*by, "bucket"]):
        found.setdefault(tuple(row[key] for key in by), {})[row["bucket"]] = row["count"]
    return found


def tube_histograms(context: Context, kind: str) -> dict[tuple[Any, ...], Histogram]:
    """Return the counts of durations by bucket, for each tube that tables show."""
    return histograms(of_tubes(context.gold.table("durations"), context.table_tubes), kind, ["tube"])


def _percents(context: Context, kind: str) -> list[str]:
    """Return the percentiles to show: the usual ones, and those of targets, which are for wait times."""
    wanted = {*_PERCENTS, *(target.percent for target in context.targets if kind == "wait")}
    return sorted(wanted, key=float)


def _percentile_rows(context: Context, kind: str) -> list[dict[str, Any]]:
    percents = _percents(context, kind)
    ranks = [rank_of(percent) for percent in percents]
    rows = []
    for (tube,), counts in tube_histograms(context, kind).items():
        values = zip((f"p{percent}" for percent in percents), percentiles(counts, ranks))
        rows.append({"tube": tube, "count": sum(counts.values()), **dict(values), "longest": bucket_ms(max(counts))})
    return context.by_tube(rows)


def _percentile_figures(context: Context, kind: str) -> Iterator[Figure]:
    percents = _percents(context, kind)
    ranks = [rank_of(percent) for percent in percents]
    axis = context.axis
    table = context.stepped(context.gold.table("durations"), axis)
    values = {
        place: percentiles(counts, ranks) for place, counts in histograms(table, kind, ["tube", "minute"]).items()
    }
    nothing: list[int | None] = [None] * len(percents)
    for at, percent in enumerate(percents):
        lines = [
            Line(tube, number, [values.get((tube, step), nothing)[at] for step in range(axis.count)])
            for number, tube in enumerate(context.chart_tubes)
        ]
        marks = [
            Mark(target.ms, f"target {duration_text(target.ms)}")
            for target in context.targets
            if kind == "wait" and target.percent == percent
        ]
        scale = DurationScale([*(value for line in lines for value in line.values), *(mark.value for mark in marks)])
        title = "median (p50)" if percent == "50" else f"{percent}th percentile (p{percent})"
        text = lambda ms: duration_text(round(ms))  # noqa: E731
        yield Figure(
            title,
            lines_chart(
                f"{kind}-p{percent}".replace(".", "-"), f"{kind} time, {title}", lines, axis, scale, marks, text
            ),
        )


def _heatmaps(context: Context) -> Iterator[Figure]:
    """Yield a heatmap of the wait times of each tube."""
    axis = context.axis_of(HEATMAP_STEPS_MAX)
    table = context.stepped(context.gold.table("durations"), axis)
    by_step = histograms(table, "wait", ["tube", "minute"])
    for number, tube in enumerate(context.chart_tubes):
        mine = {step: counts for (name, step), counts in by_step.items() if name == tube}
        if not mine:
            continue
        bands = DurationBands(bucket_ms(bucket) for counts in mine.values() for bucket in counts)
        cells: dict[tuple[int, int], int] = {}
        for step, counts in mine.items():
            for band, count in add_counts((bands.band(bucket_ms(b)), count) for b, count in counts.items()).items():
                cells[step, band] = count
        mark = next((Mark(target.ms, str(target)) for target in context.targets), None)
        title = f"{clean(tube)}: jobs by wait time"
        yield Figure(title, heatmap(f"heat-{number}", title, cells, axis, bands, mark))
