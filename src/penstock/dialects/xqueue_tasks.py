"""A task between a method's beginning and its end: as it was found, and what is changed of it."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.job import Job
from penstock.core.limits import PRIORITY_UNSET
from penstock.dialects.xqueue_rows import Row, Rows


class Changes:
    """What an `update` makes of a task."""

    body: bytes | None = None
    kind: int = 0
    priority: int = PRIORITY_UNSET
    tube: bytes | None = None


NOTHING: Final = Changes()


class Task:
    """A task as a method found it. It can be shown when it is gone."""

    def __init__(self, rows: Rows, key: list[Any], job: Job, tube: bytes, body: bytes) -> None:
        self._rows = rows
        self.key = key
        self.job = job
        self.tube = tube
        self.body = body

    def row(self, state: int, new: Changes = NOTHING) -> Row:
        """Its row with this status, and with what was changed."""
        tube = self.tube if new.tube is None else new.tube
        body = self.body if new.body is None else new.body
        row = self._rows.row(self.job, self.key, tube, body, state)
        if new.priority != PRIORITY_UNSET:
            row[self._rows.options.priority] = new.priority
        return row

    def shown(self, state: int, new: Changes = NOTHING) -> object:
        """The same, as the space returns rows."""
        return self._rows.show(self.row(state, new))
