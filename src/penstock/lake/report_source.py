"""The source of a report over a lake. All tables are read at the same turn."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow.compute as pc

from penstock.lake.delta import TableLog
from penstock.lake.files import read_table
from penstock.lake.lake import Lake
from penstock.lake.tables import FLOWS, SESSIONS, TUBES, USER_QUESTION, VERDICTS, Table, gold_table
from penstock.report.source import AuditResult, Finding, NodeLag, UserTable, Verdict

_VERDICTS: dict[bool | None, Verdict] = {True: "kept", False: "broken", None: "not judged"}


class LakeSource:
    """The gold tables of a lake from the day `since` to the day `until`, both inclusive."""

    def __init__(
        self,
        lake: Lake,
        since: datetime.date | None = None,
        until: datetime.date | None = None,
        unread: Callable[[], dict[str, int | None]] | None = None,
    ) -> None:
        """`unread` asks the nodes how many positions the lake has not read yet."""
        self._lake = lake.require_exists().pin()
        self._since = since
        self._until = until
        self._unread = unread
        self.grain = lake.grain

    def gold(self, name: str) -> Any:
        return self._rows(gold_table(name), self._is_selected)

    def opening(self) -> Any:
        names = ["tube", "ready", "taken", "delayed", "buried", "kept"]
        return self._rows(FLOWS, lambda day: day < str(self._since or "")).select(names)

    def _is_selected(self, day: str) -> bool:
        return (self._since is None or day >= str(self._since)) and (self._until is None or day <= str(self._until))

    def _rows(self, table: Table, wanted: Callable[[str], bool]) -> Any:
        return self._lake.read(table, [day for day in self._lake.days(table) if wanted(day)])

    def sessions(self) -> Any:
        return self._lake.read(SESSIONS).sort_by("position").select(["node", "session", "name", "user"])

    def tubes(self) -> Collection[str]:
        known = set(self._lake.read(TUBES)["tube"].to_pylist())
        for name in ("rates", "flows"):
            known |= set(pc.unique(self._lake.read(gold_table(name))["tube"]).to_pylist())
        return known

    def user_tables(self) -> Sequence[UserTable]:
        found = []
        for table in self._lake.user_tables():
            question = self._lake.log(table).settings.get(USER_QUESTION, "")
            keys = [name for name in table.keys if name != table.by]
            found.append(UserTable(table.name, question, keys, table.measures, self._rows(table, self._is_selected)))
        return found

    def verdict(self) -> AuditResult | None:
        log = TableLog(self._lake.place, VERDICTS)
        rows = read_table(self._lake.place, VERDICTS, log.files).to_pylist()
        if not rows:
            return None
        findings = [Finding(row["text"], _VERDICTS[row["kept"]], row["broken"], row["note"]) for row in rows]
        return AuditResult(findings, rows[0]["time"], rows[0]["turn"])

    def lag(self) -> Sequence[NodeLag] | None:
        newest: dict[str, datetime.datetime | None] = {}
        for row in self._lake.coverage():
            newest[row["node"]] = row["last_time"] or newest.get(row["node"])
        unread = self._unread() if self._unread is not None else {}
        return [NodeLag(node, unread.get(node), moment) for node, moment in sorted(newest.items())]
