"""The parts of a report. A section has a question, a table that answers it, and charts.

The page, the terminal and JSON show the same sections. A cell has a plain value; its column defines how people read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from penstock.report.units import count_text, duration_text, moment_text, share_text

Row = dict[str, Any]
Unit = Literal["", "ms", "share"]
Tone = Literal["good", "late", "bad", "unknown"]

_JSON_UNITS: Final[dict[Unit, str]] = {"": "", "ms": ", ms", "share": ", %"}

NO_DATA: Final = "No data for this section in the selected days and tubes."


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, a function that returns the value of a row, and the unit of the value."""

    heading: str
    cell: Callable[[Row], Any]
    unit: Unit = ""
    number: bool = False  # The column is aligned to the right.

    @property
    def json_key(self) -> str:
        """The name of the value for programs, which contains the unit."""
        return f"{self.heading}{_JSON_UNITS[self.unit]}"

    def json_value(self, row: Row) -> Any:
        """Return the cell for programs: durations in ms, and shares in percent."""
        value = self.cell(row)
        return round(100 * value, 2) if self.unit == "share" and value is not None else value

    def text(self, row: Row) -> str:
        """Return the cell as text for people."""
        return value_text(self.cell(row), self.unit)


def value_text(value: object, unit: Unit = "") -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if unit == "ms":
            return duration_text(round(value))
        return share_text(value) if unit == "share" else count_text(value)
    return moment_text(value) if isinstance(value, datetime) else str(value)


def column(field: str, heading: str | None = None) -> Column:
    """Return a column of texts."""
    return Column(heading or field.replace("_", " "), lambda row: row[field])


def count_column(field: str, heading: str | None = None) -> Column:
    return Column(heading or field.replace("_", " "), lambda row: row[field], number=True)


def duration_column(field: str, heading: str | None = None) -> Column:
    """Return a column of durations, which are in ms in the rows."""
    return Column(heading or field.replace("_", " "), lambda row: row[field], "ms", number=True)


def share_column(field: str, heading: str | None = None) -> Column:
    """Return a column of shares between 0 and 1, shown as percent."""
    return Column(heading or field.replace("_", " "), lambda row: row[field], "share", number=True)


@dataclass(frozen=True)
class Figure:
    """A chart with its caption. `svg` is markup; the caption is text."""

    caption: str
    svg: str


@dataclass(frozen=True)
class Status:
    """The answer of a section in one sentence. The page shows it at the top."""

    tone: Tone
    headline: str
    detail: str = ""


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    name: str
    title: str
    question: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = NO_DATA  # Text that replaces the table if there are no rows.
    figures: Sequence[Sequence[Figure]] = ()  # Figures of one group stand side by side.
    legend: Sequence[str] = ()  # Labels of the colours in the figures.
    note: str = ""  # Text below the table.
    status: Status | None = None


@dataclass(frozen=True)
class Report:
    """A report on a lake."""

    title: str
    subtitle: str
    totals: Sequence[tuple[str, str]]  # Labels and values of the numbers at the top.
    sections: Sequence[Section]
