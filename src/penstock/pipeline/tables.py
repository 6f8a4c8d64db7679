"""THE tables of the lake: what each holds, by what it is partitioned, and how two rows of one key become one.

Gold is made of tallies: numbers that can be added up. So a turn adds what is new to what is there, for the days it
touches, and never reads old events again. What cannot be added up (a percentile, a level) is a view of a tally.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.spark import events_schema


@dataclass(frozen=True)
class Table:
    """One table: a folder of the lake."""

    path: str
    columns: str  # As Spark writes a schema; the column that it is partitioned by is the last.
    by: str  # The day that a row tells of; its folders are named by it.
    keys: tuple[str, ...] = ()  # Of a tally: what its rows are distinct by, besides the day.
    measures: tuple[str, ...] = ()  # Of a tally: what is added up; the greatest is kept where a name ends in _max.

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


EVENTS: Final = Table("bronze/events", f"{events_schema.DDL}, date DATE", by="date")

# A job that is still there has no day of its end: those are together in one folder, which each turn writes anew.
JOBS: Final = Table(
    "silver/jobs",
    "node STRING, job BIGINT, tube STRING, key BINARY, state STRING, outcome STRING, reason STRING, put_at TIMESTAMP, "
    "ready_at TIMESTAMP, first_take_at TIMESTAMP, last_take_at TIMESTAMP, finished_at TIMESTAMP, wait_ms BIGINT, "
    "run_ms BIGINT, deliveries INT, nacks INT, returns INT, once BOOLEAN, session BIGINT, body_bytes BIGINT, "
    "whole BOOLEAN, ready_since TIMESTAMP, event STRING, position BIGINT, ended DATE",
    by="ended",
)


def _tally(name: str, keys: str, measures: str) -> Table:
    """A table of gold: its keys as in a schema, its measures by name."""
    names = tuple(measures.split())
    columns = f"{keys}, {', '.join(f'{each} BIGINT' for each in names)}, date DATE"
    return Table(f"gold/{name}", columns, "date", tuple(key.split()[0] for key in keys.split(", ")), names)


_MINUTE: Final = "tube STRING, minute TIMESTAMP"

TALLIES: Final = [
    _tally("rates", _MINUTE, "puts takes acks fails"),
    _tally("redeliveries", _MINUTE, "takes redeliveries nacked ttr_passed disconnected released"),
    _tally("transitions", "tube STRING, before STRING, after STRING", "count"),
    _tally("failures", "tube STRING, reason STRING", "count dead_letters"),
    _tally("fairness", "tube STRING, key STRING", "jobs deliveries acks wait_ms wait_ms_max"),
    _tally("workers", "node STRING, session BIGINT", "taken acked failed busy_ms"),
    _tally("durations", f"{_MINUTE}, kind STRING, bucket INT", "count"),
    _tally("flows", _MINUTE, "ready taken delayed buried kept"),
]

# Views of tallies, written out for whoever reads: see gold/latency.sql and gold/backlog.sql.
LATENCY: Final = Table(
    "gold/latency",
    "tube STRING, minute TIMESTAMP, waits BIGINT, wait_p50 DOUBLE, wait_p95 DOUBLE, wait_p99 DOUBLE, "
    "runs BIGINT, run_p50 DOUBLE, run_p95 DOUBLE, run_p99 DOUBLE, date DATE",
    by="date",
)
BACKLOG: Final = Table(
    "gold/backlog",
    "tube STRING, minute TIMESTAMP, ready BIGINT, taken BIGINT, delayed BIGINT, buried BIGINT, kept BIGINT, date DATE",
    by="date",
)

GOLD: Final = [*TALLIES, LATENCY, BACKLOG]
ALL: Final = [EVENTS, JOBS, *GOLD]
BY_PATH: Final = {table.path: table for table in ALL}
