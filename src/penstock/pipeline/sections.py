"""The sections of a report. A section has a question, a table that answers it, and perhaps a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.pipeline.charts import Figure, Row


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and a function that returns the value of a row."""

    heading: str
    cell: Callable[[Row], Any]


def column(field: str, heading: str | None = None) -> Column:
    return Column(heading or field.replace("_", " "), lambda row: row[field])


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    name: str
    title: str
    question: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str  # Text that replaces the table if there are no rows.
    figure: Figure | None = None
    note: str = ""  # Text below the table.


def text(value: object) -> str:
    """Return a value of a table as text for people."""
    if value is None:
        return "–"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
