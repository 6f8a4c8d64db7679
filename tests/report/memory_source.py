"""A source of a report with tables in memory."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.report.source import AuditResult, NodeLag, UserTable

Rows = list[dict[str, Any]]

DAY = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
NOW = datetime.datetime(2026, 11, 17, 8, tzinfo=datetime.UTC)

_MINUTE = {"tube": pa.string(), "minute": pa.timestamp("us", "UTC")}
_STATES = ("ready", "taken", "delayed", "buried", "kept")


def _schema(keys: Mapping[str, Any], measures: str) -> pa.Schema:
    return pa.schema([("date", pa.date32()), *keys.items(), *((name, pa.int64()) for name in measures.split())])


SCHEMAS = {
    "rates": _schema(_MINUTE, "puts takes acks fails"),
    "redeliveries": _schema(
        _MINUTE, "takes redeliveries nacked ttr_passed disconnected released claim_ended snatched undelivered"
    ),
    "transitions": _schema(dict.fromkeys(("tube", "before", "after"), pa.string()), "count"),
    "failures": _schema({"tube": pa.string(), "reason": pa.string()}, "count dead_letters example_max"),
    "fairness": _schema({"tube": pa.string(), "key": pa.string()}, "jobs deliveries acks wait_ms wait_ms_max"),
    "workers": _schema({"node": pa.string(), "session": pa.int64()}, "taken acked failed busy_ms"),
    "durations": _schema({**_MINUTE, "kind": pa.string(), "bucket": pa.int32()}, "count"),
    "flows": _schema(
        {**_MINUTE, "node": pa.string(), "position": pa.int64()},
        "ready taken delayed buried kept ready_peak taken_peak",
    ),
}
_OPENING = pa.schema([("tube", pa.string()), *((state, pa.int64()) for state in _STATES)])
_SESSIONS = pa.schema([("node", pa.string()), ("session", pa.int64()), ("name", pa.string()), ("user", pa.string())])


class MemorySource:
    """A ReportSource with given rows. Measures that a row does not name are 0."""

    def __init__(
        self,
        gold: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
        opening: Rows | None = None,
        sessions: Rows | None = None,
        verdict: AuditResult | None = None,
        lag: Sequence[NodeLag] | None = None,
        grain: str = "minute",
        tubes: Collection[str] = (),
        user_tables: Sequence[UserTable] = (),
    ) -> None:
        self.grain = grain
        self._gold = {name: [_filled(row, SCHEMAS[name]) for row in rows] for name, rows in (gold or {}).items()}
        self._opening = [_filled(row, _OPENING) for row in opening or []]
        self._sessions = sessions or []
        self._verdict = verdict
        self._lag = lag
        self._tubes = tubes
        self._user_tables = user_tables

    def gold(self, name: str) -> pa.Table:
        return pa.Table.from_pylist(self._gold.get(name, []), SCHEMAS[name])

    def opening(self) -> pa.Table:
        return pa.Table.from_pylist(self._opening, _OPENING)

    def sessions(self) -> pa.Table:
        return pa.Table.from_pylist(self._sessions, _SESSIONS)

    def tubes(self) -> Collection[str]:
        return {*self._tubes, *(row["tube"] for rows in self._gold.values() for row in rows if "tube" in row)}

    def user_tables(self) -> Sequence[UserTable]:
        return self._user_tables

    def verdict(self) -> AuditResult | None:
        return self._verdict

    def lag(self) -> Sequence[NodeLag] | None:
        return self._lag


def _filled(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    zeros = {field.name: 0 for field in schema if field.type == pa.int64()}
    minute = row.get("minute")
    return {**zeros, "date": (minute or DAY).date(), **row}


def minute(number: int) -> datetime.datetime:
    return DAY + datetime.timedelta(minutes=number)
