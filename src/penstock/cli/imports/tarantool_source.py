"""The tasks of a Tarantool server as items of an import, ordered by tube name and by id within a tube.

The cursor of an item is the name of its tube and the key of its row, because rows may change on a running server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.cli.errors import NOT_FOUND, USAGE
from penstock.cli.imports.import_items import ImportItem, SkippedItem
from penstock.cli.imports.tarantool_spaces import QUEUES, BadSource, Database
from penstock.cli.imports.tarantool_tubes import TEMPORARY_TUBE, QueueTube, XqueueSpace, is_xqueue
from penstock.core.errors import ProtocolError
from penstock.core.policy import TubePolicy
from penstock.wire.msgpack import unpack

UNREADABLE: Final = "tubes that cannot be read"


class TarantoolSource:
    """All queues of a Tarantool server, or those with the given names."""

    total: int | None = None

    def __init__(
        self, database: Database, names: list[str], upgrade: dict[str, Any] | None, keeps_temporary: bool
    ) -> None:
        self._database = database
        self._keeps_temporary = keeps_temporary
        self.fingerprint = f"{database.id} {' '.join(sorted(names))}".strip()
        self.passed: dict[str, int] = {}
        self.notes: list[str] = []
        self._tubes = self._found(names, upgrade)
        self._policies: dict[str, TubePolicy] = {}

    def items(self, start: int, cursor: Any, now_ms: Callable[[], int]) -> Iterator[ImportItem | SkippedItem]:
        at_tube, at_row = cursor if cursor else ("", None)
        for name in sorted(self._tubes):
            if name < at_tube:
                continue
            tube = self._tubes[name]
            for row in self._database.rows(tube.space, at_row if name == at_tube else None):
                item = tube.item(row.raw, now_ms())
                if tube.policy.temporary and not self._keeps_temporary and isinstance(item, ImportItem):
                    item = SkippedItem(TEMPORARY_TUBE)
                yield dataclasses.replace(item, cursor=[name, row.cursor])

    def new_tube(self, arrival: ImportItem) -> TubePolicy:
        """Return the policy of a task's tube. The numbers of new jobs start after the greatest id of the space."""
        name = str(arrival.tube)
        if name not in self._policies:
            tube = self._tubes[name]
            try:
                self._policies[name] = tube.numbers_from(self._database.last(tube.space))
            except (ProtocolError, LookupError):
                self._policies[name] = tube.policy
        return self._policies[name]

    def _found(self, names: list[str], upgrade: dict[str, Any] | None) -> dict[str, QueueTube | XqueueSpace]:
        """Return a dict of the tubes to import. Raise BadSource if there is none, or if a given name is not a queue."""
        database = self._database
        rows: dict[str, list[Any]] = {}
        if QUEUES in database.spaces:
            for row in database.rows(database.spaces[QUEUES]):
                fields = unpack(row.raw)
                if isinstance(fields, list) and fields:
                    rows[str(fields[0])] = fields
        spaces = [
            space.name for space in database.spaces.values() if is_xqueue(space) and not space.name.startswith("_")
        ]
        wanted = names or sorted({*rows, *spaces})
        if not wanted:
            raise BadSource(
                f"{database.label}: no queue was found: no tube of tarantool/queue and no space of xqueue is readable",
                NOT_FOUND,
            )
        found: dict[str, QueueTube | XqueueSpace] = {}
        for name in wanted:
            try:
                found[name] = self._tube(name, rows, upgrade)
            except BadSource as error:
                if names:
                    raise
                self.notes.append(f"{error}; it is not imported")
                self.passed[UNREADABLE] = self.passed.get(UNREADABLE, 0) + 1
        if not found:
            raise BadSource(f"{database.label}: none of its queues can be imported", USAGE)
        return found

    def _tube(self, name: str, rows: dict[str, list[Any]], upgrade: dict[str, Any] | None) -> QueueTube | XqueueSpace:
        database = self._database
        if name in rows:
            return QueueTube(rows[name], database.spaces, database.id)
        if name not in database.spaces:
            raise BadSource(f"{database.label}: there is no readable tube or space {name}", NOT_FOUND)
        return XqueueSpace(database.spaces[name], upgrade, database.id)
