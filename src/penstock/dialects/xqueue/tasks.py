"""A task during a method call: the state in which it was found, and its changes."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.job import Job
from penstock.core.limits import PRIORITY_UNSET
from penstock.dialects.xqueue.rows import Row, Rows


class Changes:
    """The parts of a job that an `update` changes: its body, priority and key."""

    body: bytes | None = None
    kind: int = 0
    priority: int = PRIORITY_UNSET
    tube: bytes | None = None


NO_CHANGES: Final = Changes()


class Task:
    """A task as a method found it. It can be returned to the client even after the job has ended."""

    def __init__(self, rows: Rows, key: list[Any], job: Job, tube: bytes, body: bytes) -> None:
        self._rows = rows
        self.key = key
        self.job = job
        self.tube = tube
        self.set_body(body)

    def set_body(self, body: bytes) -> None:
        """Set the body, and copy its kind and format from the job. `body` must be the current body of the job."""
        self.body = body
        self.kind = int(self.job.body_kind)
        self.format = int(self.job.format)

    def row(self, state: int, new: Changes = NO_CHANGES) -> Row:
        """Return the row of the task, with its status replaced by `state` and the changes `new` applied."""
        tube = self.tube if new.tube is None else new.tube
        if new.body is None:
            row = self._rows.row(self.job, self.key, tube, self.body, self.kind, self.format, state)
        else:
            number = self._rows.options.format_number()
            row = self._rows.row(self.job, self.key, tube, new.body, new.kind, number, state)
        if new.priority != PRIORITY_UNSET:
            row[self._rows.options.priority] = new.priority
        return row

    def as_result(self, state: int, new: Changes = NO_CHANGES) -> object:
        return self._rows.as_result(self.row(state, new))
