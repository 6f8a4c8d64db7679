"""The input of a report. A lake implements ReportSource; tests implement it with tables in memory.

`gold` returns the rows of the selected days as they are stored: rows with equal keys can occur several times. The
reader merges them: columns that end in `_max` with max, other measures with sum. Each table has a column `date` (a
date). `minute` is a timestamp in UTC, rounded down to the grain. Measures are integers.

    rates         tube minute | puts takes acks fails
    redeliveries  tube minute | takes redeliveries nacked ttr_passed disconnected released claim_ended snatched
                                undelivered
    transitions   tube before after | count
    failures      tube reason | count dead_letters example_max            example_max is the number of a job
    fairness      tube key | jobs deliveries acks wait_ms wait_ms_max
    workers       node session | taken acked failed busy_ms
    durations     tube minute kind bucket | count                         see percentiles.py
    flows         tube minute node position |
                                ready taken delayed buried kept ready_peak taken_peak      see levels.py
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

# pyarrow has no types of its own.
Table = Any

Verdict = Literal["kept", "broken", "not judged"]


@dataclass(frozen=True)
class Finding:
    """The result of an audit for one promise."""

    promise: str
    verdict: Verdict
    broken: int = 0  # Number of violations.
    note: str = ""  # The reason why the promise was not judged, or a remark.


@dataclass(frozen=True)
class AuditResult:
    """The stored result of an audit."""

    findings: Sequence[Finding]
    made_at: datetime
    turn: int  # The turn of the pipeline whose tables were audited.


@dataclass(frozen=True)
class NodeLag:
    """The distance between the log of a node and the lake."""

    node: str
    unread: int | None  # Events that the lake lacks. None if the node did not answer.
    newest: datetime | None  # Time of the newest event in the lake. None if the lake has no event of the node.


@dataclass(frozen=True)
class UserTable:
    """A table that a user has defined, with its rows of the selected days. Measures are merged like those of gold."""

    name: str
    question: str
    keys: Sequence[str]  # Without `date`.
    measures: Sequence[str]
    rows: Table


class ReportSource(Protocol):
    """The tables of a lake for the selected days, and facts about the lake."""

    @property
    def grain(self) -> str:
        """The time resolution of the tables: "minute" or "second"."""

    def gold(self, name: str) -> Table:
        """Return the rows of a gold table for the selected days, as a pyarrow Table."""

    def opening(self) -> Table:
        """Return the sums of `flows` over all days before the selected ones, as a pyarrow Table.

        The columns are tube, ready, taken, delayed, buried and kept. Rows with equal tubes are added. The table is
        empty if the report starts with the first day of the lake.
        """

    def sessions(self) -> Table:
        """Return a pyarrow Table with the columns node, session, name and user: the names of clients.

        The last row of a session is valid. A name or user can be empty or null.
        """

    def tubes(self) -> Collection[str]:
        """Return the names of all tubes in the lake, also of those without events in the selected days."""

    def user_tables(self) -> Sequence[UserTable]:
        """Return the tables that users have defined, in order of their names."""

    def verdict(self) -> AuditResult | None:
        """Return the stored result of the last audit, or None if the lake was never audited."""

    def lag(self) -> Sequence[NodeLag] | None:
        """Return the lag of each node, or None if it is not known."""
