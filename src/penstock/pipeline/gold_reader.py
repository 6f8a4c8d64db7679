"""The gold tables as a report reads them: of some days, of some tubes, without Spark, since gold is small."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.pipeline.lake import Lake
from penstock.pipeline.tables import Table, gold_table

Row = dict[str, Any]


def days_between(lake: Lake, table: Table, since: datetime.date | None, until: datetime.date | None) -> list[str]:
    """The days of a table from one to another, both with it."""
    return [
        day
        for day in lake.days(table)
        if (since is None or day >= since.isoformat()) and (until is None or day <= until.isoformat())
    ]


class GoldReader:
    """Gold of some days and, if any are named, of some tubes."""

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
        self.grain = lake.must_be_there().manifest.grain

    def table(self, name: str) -> pa.Table:
        """A table of gold."""
        table = gold_table(name)
        schema = schema_of(table)
        days = days_between(self._lake, table, self._since, self._until)
        files = [str(self._lake.root / table.path / file) for file in self._lake.files(table, days)]
        if not files:
            return schema.empty_table()
        wanted = None
        if self._tubes and "tube" in schema.names:
            wanted = pc.field("tube").isin(sorted(self._tubes))
        return ds.dataset(files, schema=schema).to_table(filter=wanted)

    def summed(self, name: str, by: Sequence[str], **how: str) -> list[Row]:
        """A table by fewer columns; of the others, each is brought together as said: `puts="sum"`."""
        return rows_of(group(self.table(name), by, **how))

    @cached_property
    def tubes(self) -> list[str]:
        """The tubes that there is something about, the busiest first."""
        rows = self.summed("rates", ["tube"], puts="sum", takes="sum")
        return [row["tube"] for row in sorted(rows, key=lambda row: (-row["puts"] - row["takes"], row["tube"]))]

    @cached_property
    def span(self) -> tuple[datetime.datetime, datetime.datetime] | None:
        """The first and the last minute in which something happened."""
        ends = pc.min_max(self.table("rates")["minute"]).as_py()
        return None if ends["min"] is None else (ends["min"], ends["max"])


def group(table: pa.Table, by: Sequence[str], **how: str) -> pa.Table:
    """A table by fewer columns; of the others, each is brought together as said."""
    return table.group_by(list(by)).aggregate(list(how.items())).rename_columns([*by, *how])


def rows_of(table: pa.Table) -> list[Row]:
    """A table as rows."""
    rows: list[Row] = table.to_pylist()
    return rows


def schema_of(table: Table) -> pa.Schema:
    """The columns of a file: the day is the name of its folder."""
    return pa.schema([field for field in table.arrow if field.name != table.by])
