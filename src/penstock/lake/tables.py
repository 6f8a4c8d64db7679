"""The tables of the lake: their columns, their partition column, and how rows with equal keys are merged.

Bronze has facts of the logs: the events, which positions were read, and the tubes and sessions. Silver and gold are
computed from the events. A turn of the pipeline only adds rows to them and never reads or changes older rows, so its
cost does not depend on the size of the lake. Readers merge the rows that have the same keys:

- Gold tables are tallies. Measures are added; if their name ends in `_max`, the maximum is used.
- `silver/jobs` has parts: what happened to a job on one day in one turn. `silver/merge.sql` merges the parts of a job.
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
    """One Delta table: a folder of the lake."""

    path: str
    columns: tuple[tuple[str, str], ...]  # Names and Spark types.
    by: str = ""  # The partition column, which is the last one: the day of a row. Empty: not partitioned.
    keys: tuple[str, ...] = ()  # Key columns of a tally.
    measures: tuple[str, ...] = ()  # Columns of a tally that are added, or of which the maximum is used (name_max).

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @cached_property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)

    @cached_property
    def arrow(self) -> Any:
        """All columns as an Arrow schema."""
        return pa.schema([(name, arrow_types()[kind]) for name, kind in self.columns])

    @cached_property
    def file_schema(self) -> Any:
        """The columns of a file as an Arrow schema. The partition column is in Delta's log instead."""
        return pa.schema([each for each in self.arrow if each.name != self.by])


def columns_of(text: str) -> tuple[tuple[str, str], ...]:
    """Parse columns that are written as `name type, name type`."""
    pairs = [column.split() for column in text.split(", ")]
    return tuple((name, kind) for name, kind in pairs)


EVENTS: Final = Table("bronze/events", (*schema.COLUMNS, ("date", "date")), by="date")

# Which positions of the logs were read, in blocks. `events` is the number of events; other rows are about tubes
# and sessions. The digests are those of JOURNAL DIGEST. Rows of a turn that bronze/events does not have do not count.
# `forgotten` is the number of events that were erased; the digests are then those of the events that remain.
COVERAGE: Final = Table(
    "bronze/coverage",
    columns_of(
        "turn bigint, node string, start bigint, end bigint, events bigint, rows_digest binary, bodies_digest binary, "
        "last_time timestamp, forgotten bigint"
    ),
)

# The lives of tubes: when they were created, changed and dropped, with their policies as JSON.
TUBES: Final = Table(
    "bronze/tubes",
    columns_of(
        "turn bigint, node string, tube_number bigint, tube string, position bigint, time timestamp, event string, "
        "policy string"
    ),
)
SESSIONS: Final = Table(
    "bronze/sessions",
    columns_of("turn bigint, node string, session bigint, position bigint, name string, user string"),
)

# What was erased on request, without naming it: one row for each erasure and node. `until` is the first position that
# was kept, and `day` the first day that was kept, if the oldest days were erased. `days` are the days to compute again.
FORGOTTEN: Final = Table(
    "bronze/forgotten",
    columns_of(
        "number bigint, time timestamp, kind string, node string, until bigint, day string, days string, events bigint"
    ),
)

JOBS: Final = Table(
    "silver/jobs",
    columns_of(
        "node string, job bigint, tube string, key binary, state string, outcome string, reason string, "
        "put_at timestamp, ready_at timestamp, first_take_at timestamp, last_take_at timestamp, finished_at timestamp, "
        "wait_ms bigint, run_ms bigint, deliveries int, nacks int, returns int, once boolean, session bigint, "
        "body_bytes bigint, whole boolean, event string, position bigint, outcome_position bigint, date date"
    ),
    by="date",
)


def tally(name: str, keys: str, measures: str, folder: str = "gold") -> Table:
    """Return a gold table, or a user's table, with the given key columns and measures."""
    key_columns, names = columns_of(keys), tuple(measures.split())
    columns = (*key_columns, *((each, "bigint") for each in names), ("date", "date"))
    return Table(f"{folder}/{name}", columns, "date", (*(key for key, _ in key_columns), "date"), names)


_MINUTE: Final = "tube string, minute timestamp"

DURATIONS: Final = tally("durations", f"{_MINUTE}, kind string, bucket int", "count")

# A row of flows is a group of events of one node. Groups are ordered by their first position. `ready_peak` is the
# greatest number of ready jobs within the group, minus the number before the group.
FLOWS: Final = tally(
    "flows", f"{_MINUTE}, node string, position bigint", "ready taken delayed buried kept ready_peak taken_peak"
)
GOLD: Final = (
    tally("rates", _MINUTE, "puts takes acks fails"),
    tally(
        "redeliveries",
        _MINUTE,
        "takes redeliveries nacked ttr_passed disconnected released claim_ended snatched undelivered",
    ),
    tally("transitions", "tube string, before string, after string", "count"),
    tally("failures", "tube string, reason string", "count dead_letters example_max"),
    tally("fairness", "tube string, key string", "jobs deliveries acks wait_ms wait_ms_max"),
    tally("workers", "node string, session bigint", "taken acked failed busy_ms"),
    DURATIONS,
    FLOWS,
)

BRONZE: Final = (EVENTS, COVERAGE, TUBES, SESSIONS)
DERIVED: Final = (*GOLD, JOBS)

# The result of the last audit.
VERDICTS: Final = Table(
    "audit/verdicts",
    columns_of(
        "turn bigint, time timestamp, promise string, text string, kept boolean, broken bigint, "
        "note string, examples string"
    ),
)

# The versions of all tables after a turn, written last. Readers that use them see all tables at the same turn.
TURNS: Final = Table("_turns", columns_of("turn bigint, table string, version bigint"))

ALL: Final = (*BRONZE, FORGOTTEN, *DERIVED)


# Folder of the tables that users define, and the settings of such a table that have its keys and measures.
USER: Final = "user"
USER_KEYS: Final = "penstock.keys"
USER_MEASURES: Final = "penstock.measures"
USER_QUESTION: Final = "penstock.question"


def gold_table(name: str) -> Table:
    return next(table for table in GOLD if table.name == name)
