"""Reads gold tables for a report, filtered by days and tubes. Gold is small, so this needs no Spark."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake import Lake
from penstock.pipeline.tables import Table, gold_table

Row = dict[str, Any]


def days_between(lake: Lake, table: Table, since: datetime.date | None, until: datetime.date | None) -> list[str]:
    """Return the days of a table from `since` to `until`, both inclusive."""
    return [
        day
        for day in lake.days(table)
        if (since is None or day >= since.isoformat()) and (until is None or day <= until.isoformat())
    ]


class GoldReader:
    """The gold tables of some days, of all tubes or of the given ones."""

    def __init__(
        self,
        lake: Lake,
        tubes: Collection[str] = (),
        since: datetime.date | None = None,
        until: datetime.date | None = None,
    ) -> None:
        self._lake = lake
        self._tubes = tubes
        self._since = since
        self._until = until
        self.grain = lake.require_exists().manifest.grain

    def table(self, name: str) -> pa.Table:
        """Return the rows of a gold table for the days and tubes of this reader."""
        return pa.concat_tables([schema_of(gold_table(name)).empty_table(), *self._days(name)])

    def reduced(self, name: str, reduce: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Apply `reduce` to each day of a table, then to all results, because a table may not fit into memory."""
        nothing = schema_of(gold_table(name)).empty_table()
        return reduce(pa.concat_tables(reduce(part) for part in chain([nothing], self._days(name))))

    def _days(self, name: str) -> Iterator[pa.Table]:
        table = gold_table(name)
        days = days_between(self._lake, table, self._since, self._until)
        schema = schema_of(table)
        wanted = pc.field("tube").isin(sorted(self._tubes)) if self._tubes and "tube" in schema.names else None
        for file in self._lake.files(table, days):
            yield ds.dataset(self._lake.path(table, file), schema=schema).to_table(filter=wanted)

    def summed(self, name: str, by: Sequence[str], **how: str) -> list[Row]:
        """Return the rows of a table grouped by the columns `by`. Other columns are aggregated: `puts="sum"`."""
        return rows_of(group(self.table(name), by, **how))

    @cached_property
    def tubes(self) -> list[str]:
        """The tubes with any activity, the busiest first."""
        counts = dict.fromkeys(pc.unique(self._activity["tube"]).to_pylist(), 0)
        for row in self.summed("rates", ["tube"], puts="sum", takes="sum"):
            counts[row["tube"]] = row["puts"] + row["takes"]
        return sorted(counts, key=lambda tube: (-counts[tube], tube))

    @cached_property
    def span(self) -> tuple[datetime.datetime, datetime.datetime] | None:
        """The first and the last minute with any activity."""
        ends = pc.min_max(self._activity["minute"]).as_py()
        return None if ends["min"] is None else (ends["min"], ends["max"])

    @cached_property
    def _activity(self) -> pa.Table:
        """The tubes and minutes in `rates` and `flows`. A tube that only receives dead letters is not in `rates`."""
        return pa.concat_tables(self.table(name).select(["tube", "minute"]) for name in ("rates", "flows"))

    def require_tubes(self, tubes: Collection[str]) -> GoldReader:
        """Raise an error if a tube is not in the lake, because it is probably misspelt. Return this reader."""
        from penstock.pipeline import nodes

        known = {tube for node in nodes.load(self._lake).values() for tube in node["tubes"]}
        known |= set(GoldReader(self._lake).tubes)
        for tube in tubes:
            if tube not in known:
                raise PipelineError(f"{self._lake.root} has no tube {tube!r}; its tubes are {', '.join(sorted(known))}")
        return self


def group(table: pa.Table, by: Sequence[str], **how: str) -> pa.Table:
    """Group a table by the columns `by`. `how` maps other columns to their aggregation: sum, max or last."""
    # With several threads, the order of rows is undefined, and so is the last one.
    grouped = table.group_by(list(by), use_threads="last" not in how.values())
    return grouped.aggregate(list(how.items())).rename_columns([*by, *how])


def rows_of(table: pa.Table) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    return rows


def schema_of(table: Table) -> pa.Schema:
    """Return the columns of a file. The day is not among them, because it is the name of the folder."""
    return pa.schema([field for field in table.arrow if field.name != table.by])
