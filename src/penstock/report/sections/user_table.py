"""Section: a table that a user has defined, without a chart."""

from __future__ import annotations

from penstock.report.context import ROWS_MAX, Context
from penstock.report.gold import greatest
from penstock.report.section import Section, column, count_column
from penstock.report.source import UserTable


def user_table(table: UserTable, context: Context) -> Section:
    """Return the rows with the greatest values of the first measure, summed over the selected days."""
    how = [(name, "max" if name.endswith("_max") else "sum") for name in table.measures]
    grouped = context.gold.selected(table.rows).group_by(list(table.keys)).aggregate(how)
    merged = grouped.rename_columns([*table.keys, *table.measures]).to_pylist()
    rows = greatest(merged, table.measures[0], list(table.keys), ROWS_MAX)
    return Section(
        f"user-{table.name}",
        table.name.replace("_", " ").capitalize(),
        table.question or "A table of your own.",
        [*(column(name) for name in table.keys), *(count_column(name) for name in table.measures)],
        rows,
        note=f"The first {ROWS_MAX} of {len(merged):,} rows." if len(merged) > ROWS_MAX else "",
    )
