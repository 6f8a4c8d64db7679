"""The tables of the lake: their columns, their partition column, and how rows with equal keys are merged.

Most gold tables are tallies: tables of numbers that can be added. A turn of the pipeline adds the numbers of new events
to those of the same day, and never reads old events again. The other gold tables are views. They are computed from
tallies, because their values (percentiles, backlog) cannot be added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from penstock.spark.column_types import arrow_types
from penstock.spark.events import schema


@dataclass(frozen=True)
class Table:
    """One table: a folder of the lake."""

    path: str
    columns: tuple[tuple[str, str], ...]  # Names and Spark types.
    by: str  # The partition column: the day of a row. It is the last column.
    keys: tuple[str, ...] = ()  # Key columns of a tally.
    measures: tuple[str, ...] = ()  # Columns of a tally that are added, or of which the maximum is kept (name_max).

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @cached_property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)

    @cached_property
    def arrow(self) -> Any:
        return pa.schema([(name, arrow_types()[kind]) for name, kind in self.columns])


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    """Parse columns that are written as `name type, name type`."""
    pairs = [column.split() for column in text.split(", ")]
    return tuple((name, kind) for name, kind in pairs)


EVENTS: Final = Table("bronze/events", (*schema.COLUMNS, ("date", "date")), by="date")

# Unfinished jobs have no end date. They are in one folder, which each turn rewrites.
JOBS: Final = Table(
    "silver/jobs",
    _columns(
        "node string, job bigint, tube string, key binary, state string, outcome string, reason string, "
        "put_at timestamp, ready_at timestamp, first_take_at timestamp, last_take_at timestamp, finished_at timestamp, "
        "wait_ms bigint, run_ms bigint, deliveries int, nacks int, returns int, once boolean, session bigint, "
        "body_bytes bigint, whole boolean, ready_since timestamp, event string, position bigint, ended date"
    ),
    by="ended",
)


def _tally(name: str, keys: str, measures: str) -> Table:
    """Return a gold table with the given key columns and measures."""
    key_columns, names = _columns(keys), tuple(measures.split())
    columns = (*key_columns, *((each, "bigint") for each in names), ("date", "date"))
    return Table(f"gold/{name}", columns, "date", (*(key for key, _ in key_columns), "date"), names)


_MINUTE: Final = "tube string, minute timestamp"

DURATIONS: Final = _tally("durations", f"{_MINUTE}, kind string, bucket int", "count")
FLOWS: Final = _tally("flows", _MINUTE, "ready taken delayed buried kept")
TALLIES: Final = (
    _tally("rates", _MINUTE, "puts takes acks fails"),
    _tally(
        "redeliveries",
        _MINUTE,
        "takes redeliveries nacked ttr_passed disconnected released claim_ended snatched undelivered",
    ),
    _tally("transitions", "tube string, before string, after string", "count"),
    _tally("failures", "tube string, reason string", "count dead_letters"),
    _tally("fairness", "tube string, key string", "jobs deliveries acks wait_ms wait_ms_max"),
    _tally("workers", "node string, session bigint", "taken acked failed busy_ms"),
    DURATIONS,
    FLOWS,
)

# Views of tallies, stored for readers.
LATENCY: Final = Table(
    "gold/latency",
    _columns(
        f"{_MINUTE}, waits bigint, wait_p50 double, wait_p95 double, wait_p99 double, "
        "runs bigint, run_p50 double, run_p95 double, run_p99 double, date date"
    ),
    by="date",
)
BACKLOG: Final = Table(
    "gold/backlog",
    _columns(f"{_MINUTE}, ready bigint, taken bigint, delayed bigint, buried bigint, kept bigint, date date"),
    by="date",
)
VIEWS: Final = (LATENCY, BACKLOG)

GOLD: Final = (*TALLIES, *VIEWS)
ALL: Final = (EVENTS, JOBS, *GOLD)


def gold_table(name: str) -> Table:
    return next(table for table in GOLD if table.name == name)
