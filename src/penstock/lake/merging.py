"""Merges rows with equal keys: the tallies of gold, and the parts of jobs. Spark's views do the same in SQL."""

from __future__ import annotations

from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.tables import FLOWS, JOBS, Table

# Columns that have the value of the part with the greatest value of another column, by that column.
_NEWEST: Final = {
    "position": ("tube", "key", "state", "reason", "deliveries", "nacks", "returns", "event", "date"),
    "outcome_position": ("outcome", "finished_at", "run_ms"),
    "last_take_at": ("session",),
}
_LEAST: Final = ("put_at", "ready_at", "first_take_at")
_GREATEST: Final = ("once", "body_bytes", "whole")
_JOB: Final = ["node", "job"]


def merge(table: Table, rows: pa.Table) -> pa.Table:
    """Merge the rows of a table that have equal keys. A row of flows is a group of events and stays as it is."""
    # In Spark's tasks, tables are copies.
    if table == JOBS:
        return merge_parts(rows)
    if not table.keys or table == FLOWS:
        return rows
    how = [(name, "max" if name.endswith("_max") else "sum") for name in table.measures]
    merged = rows.group_by(list(table.keys)).aggregate(how).rename_columns([*table.keys, *table.measures])
    return merged.select(table.arrow.names).cast(table.arrow)


def merge_parts(parts: pa.Table) -> pa.Table:
    """Merge the parts of each job. Most jobs have only one part, which stays as it is."""
    numbered = _numbered(parts)
    found = numbered.group_by(_JOB).aggregate([("row", "min"), ("row", "count")])
    single = found["row_min"].filter(pc.equal(found["row_count"], 1))
    is_whole = pc.is_in(numbered["row"], value_set=single)
    tables = [parts.filter(is_whole)]
    if len(single) < len(parts):
        tables.append(_merge_several(parts.filter(pc.invert(is_whole))))
    return pa.concat_tables([each.select(JOBS.arrow.names).cast(JOBS.arrow) for each in tables])


def _numbered(parts: pa.Table) -> pa.Table:
    """Return the job of each part, and the number of the part's row."""
    return parts.select(_JOB).append_column("row", pa.array(range(len(parts)), pa.int64()))


def _merge_several(parts: pa.Table) -> pa.Table:
    """Merge the parts of jobs that have several."""
    jobs = parts.select(_JOB).group_by(_JOB).aggregate([])
    for by, names in _NEWEST.items():
        jobs = jobs.join(_ends(parts, by, "max").select([*_JOB, by, *names]), _JOB)
    jobs = jobs.join(_ends(parts, "first_take_at", "min").select([*_JOB, "wait_ms"]), _JOB)
    ends: list[tuple[str, Any]] = [*((name, "min") for name in _LEAST), *((name, "max") for name in _GREATEST)]
    limits = parts.group_by(_JOB).aggregate(ends).rename_columns([*_JOB, *_LEAST, *_GREATEST])
    return jobs.join(limits, _JOB)


def _ends(parts: pa.Table, by: str, end: Literal["min", "max"]) -> pa.Table:
    """Return the part of each job that has the least or the greatest value in a column.

    Parts without a value do not count. Times can be equal. Then positions decide.
    """
    there = parts.filter(pc.is_valid(parts[by])).sort_by([(by, "ascending"), ("position", "ascending")])
    found = _numbered(there).group_by(_JOB).aggregate([("row", end)])
    return there.take(found[f"row_{end}"])
