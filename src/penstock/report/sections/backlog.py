"""Section: ready, taken and buried jobs over time, with the true peaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc

from penstock.report.charts.lines import Line, lines_chart
from penstock.report.charts.scales import LinearScale
from penstock.report.context import Context, steps_of
from penstock.report.levels import PEAKS, STATES
from penstock.report.section import Figure, Section, column, count_column
from penstock.report.source import Table


def backlog(context: Context) -> Section:
    """Return the section with the levels at the end, and the peaks, of each tube."""
    levels = context.gold.levels(context.table_tubes)
    rows = [_row(tube, table) for tube, table in levels.items()]
    columns = [column("tube")]
    for state in PEAKS:
        columns.append(count_column(f"{state}_peak", f"most {state}"))
    columns.append(column("peak_at", "most ready at, UTC"))
    return Section(
        "backlog",
        "Backlog",
        "How many jobs were ready, taken, delayed, buried and kept?",
        [*columns, *(count_column(state, f"{state} at the end") for state in STATES)],
        context.by_tube(rows),
        figures=[list(_figures(context, levels))] if rows else [],
        legend=context.legend,
        note=f"Pale lines are peaks, bold lines are levels at the end of a step. Where a line is dotted, no event "
        f"changed the level. {context.left_out}".strip(),
    )


def _row(tube: str, table: Table) -> dict[str, Any]:
    last = table.slice(table.num_rows - 1).to_pylist()[0]
    peaks = {f"{state}_peak": pc.max(table[f"{state}_peak"]).as_py() for state in PEAKS}
    at = pc.index(table["ready_peak"], peaks["ready_peak"]).as_py()
    return {"tube": tube, **{state: last[state] for state in STATES}, **peaks, "peak_at": table["minute"][at].as_py()}


def _figures(context: Context, levels: dict[str, Table]) -> Iterator[Figure]:
    axis = context.axis
    by_step = {tube: _by_step(context, table) for tube, table in levels.items() if tube in context.chart_tubes}
    for state in ("ready", "taken", "buried"):
        lines = []
        for number, tube in enumerate(context.chart_tubes):
            steps = by_step.get(tube, {})
            before = context.gold.opening.get(tube, {}).get(state, 0)
            values = [steps[step][state] if step in steps else None for step in range(axis.count)]
            lines.append(Line(tube, number, values, level=True, before=before))
            if state in PEAKS:
                peaks = [steps[step][f"{state}_peak"] if step in steps else None for step in range(axis.count)]
                lines.append(Line(f"{tube}, peak", number, peaks, level=True, faint=True))
        scale = LinearScale(value for line in lines for value in (*line.values, line.before))
        yield Figure(f"{state} jobs", lines_chart(f"backlog-{state}", f"{state} jobs", lines, axis, scale))


def _by_step(context: Context, table: Table) -> dict[int, dict[str, int]]:
    """Return the last level and the greatest peak of each state, by step."""
    steps = table.append_column("step", steps_of(table["minute"], context.axis))
    how = [*((state, "last") for state in STATES), *((f"{state}_peak", "max") for state in PEAKS)]
    # With several threads, the order of rows is undefined, and so is the last one.
    grouped = steps.group_by(["step"], use_threads=False).aggregate(how)
    grouped = grouped.rename_columns(["step", *(name for name, _ in how)])
    return {row["step"]: row for row in grouped.to_pylist()}
