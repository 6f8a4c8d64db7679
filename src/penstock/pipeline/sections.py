"""What a report consists of: sections, each a question, a table that answers it, and perhaps a chart.

The page and the terminal show the same sections, so what one says the other says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.pipeline.charts import Figure, Row


@dataclass(frozen=True)
class Column:
    """What a table shows of a row."""

    heading: str
    cell: Callable[[Row], Any]


def column(field: str, heading: str | None = None) -> Column:
    """A field of a row."""
    return Column(heading or field.replace("_", " "), lambda row: row[field])


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    name: str
    title: str
    question: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str  # What is said if there are no rows.
    figure: Figure | None = None
    note: str = ""  # What the reader has to know about it.


def text(value: object) -> str:
    """A value of a table as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
