"""Reads the gold tables of a source for a report: filters tubes, and merges rows with equal keys."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.report.errors import ReportError
from penstock.report.levels import STATES, levels_of
from penstock.report.source import ReportSource, Table

Row = dict[str, Any]

# The columns of gold tables that are not measures.
KEYS: Final = frozenset(
    ("date", "tube", "minute", "kind", "bucket", "before", "after", "reason", "key", "node", "session", "position")
)
# More names than this would not fit into a message.
_NAMES_MAX: Final = 20


class Gold:
    """The gold tables of a source, for all tubes or for the given ones."""

    def __init__(self, source: ReportSource, tubes: Collection[str] = ()) -> None:
        """Raise ReportError if a tube is not in the lake, because its name is probably misspelt."""
        self.source = source
        self._only = sorted(set(tubes))
        known = source.tubes() if tubes else ()
        for tube in tubes:
            if tube not in known:
                raise ReportError(f"the lake has no tube {tube!r}; its tubes are {_listed(known)}")
        self.table = cache(self._table)

    def _table(self, name: str) -> Table:
        return self.selected(self.source.gold(name))

    def selected(self, table: Table) -> Table:
        """Return the rows of a table about the selected tubes."""
        if self._only and "tube" in table.column_names:
            table = table.filter(pc.is_in(table["tube"], pa.array(self._only, pa.string())))
        return table

    def merged(self, name: str, by: Sequence[str]) -> list[Row]:
        """Return the rows of a table, grouped by the columns `by`, with all measures merged."""
        return merge(self.table(name), by)

    def top(self, name: str, by: Sequence[str], order: str, count: int) -> tuple[list[Row], int]:
        """Return the merged rows with the greatest values of `order`, and the number of all merged rows.

        Ties are broken by the columns `by`, so the result is always the same.
        """
        table = merge_table(self.table(name), by)
        keys = [(order, "descending"), *((each, "ascending") for each in by)]
        return table.take(pc.sort_indices(table, keys)[:count]).to_pylist(), table.num_rows

    def busiest(self, name: str, field: str, tubes: Collection[str]) -> dict[str, int]:
        """Return for each tube the greatest value of a field in one minute."""
        by_minute = merge_table(of_tubes(self.table(name), tubes), ["tube", "minute"])
        rows = by_minute.group_by(["tube"]).aggregate([(field, "max")]).to_pylist()
        return {row["tube"]: row[f"{field}_max"] for row in rows}

    @cached_property
    def tubes(self) -> list[str]:
        """The tubes with any activity, the busiest first."""
        counts = dict.fromkeys(pc.unique(self._activity["tube"]).to_pylist(), 0)
        for row in self.merged("rates", ["tube"]):
            counts[row["tube"]] = row["puts"] + row["takes"]
        return sorted(counts, key=lambda tube: (-counts[tube], tube))

    @cached_property
    def span(self) -> tuple[datetime.datetime, datetime.datetime] | None:
        """The beginnings of the first and the last minute (or second) with any activity."""
        ends = pc.min_max(self._activity["minute"]).as_py()
        return None if ends["min"] is None else (ends["min"], ends["max"])

    @property
    def grain_s(self) -> int:
        return 1 if self.source.grain == "second" else 60

    @cached_property
    def _activity(self) -> Table:
        """The tubes and minutes in `rates` and `flows`. A tube that only receives dead letters is not in `rates`."""
        parts = [self.table(name).select(["tube", "minute"]) for name in ("rates", "flows")]
        return pa.concat_tables([part.cast(parts[0].schema) for part in parts])

    @cached_property
    def opening(self) -> dict[str, dict[str, int]]:
        """The levels of each tube before the selected days."""
        return {row["tube"]: {state: row[state] for state in STATES} for row in merge(self.source.opening(), ["tube"])}

    def levels(self, tubes: Collection[str]) -> dict[str, Table]:
        """Return the levels of tubes after each group of events, and the peaks in each group."""
        return levels_of(self.table("flows"), self.opening, tubes)


def merge_table(table: Table, by: Sequence[str]) -> Table:
    """Group a table by the columns `by`. Merge measures that end in `_max` with max, and other measures with sum."""
    measures = [name for name in table.column_names if name not in KEYS]
    how = [(name, "max" if name.endswith("_max") else "sum") for name in measures]
    return table.group_by(list(by)).aggregate(how).rename_columns([*by, *measures])


def merge(table: Table, by: Sequence[str]) -> list[Row]:
    """Return the rows of `merge_table`."""
    rows: list[Row] = merge_table(table, by).to_pylist()
    # Sums over no rows are null.
    return [row if by else {name: value or 0 for name, value in row.items()} for row in rows]


def of_tubes(table: Table, tubes: Iterable[str]) -> Table:
    """Return the rows of these tubes."""
    return table.filter(pc.is_in(table["tube"], pa.array(list(tubes), pa.string())))


def greatest(rows: Iterable[Row], order: str, by: Sequence[str], count: int) -> list[Row]:
    """Return the rows with the greatest values of `order`. Ties are broken by the columns `by`."""
    return sorted(rows, key=lambda row: (-row[order], *(str(row[key]) for key in by)))[:count]


def sessions_by_id(source: ReportSource) -> Mapping[tuple[str, int], tuple[str, str]]:
    """Return the name and the user of each session, by node and session number."""
    table = source.sessions().select(["node", "session", "name", "user"])
    return {(row["node"], row["session"]): (row["name"] or "", row["user"] or "") for row in table.to_pylist()}


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:_NAMES_MAX]
    more = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more if shown else "none"
