"""Reading a space of xqueue: a row for each task, with the fields that `upgrade` defined.

    index        number   parts                              exists
    primary      0        the primary key                    always
    status       1        status [priority] primary key      always
    tube_status  2        tube status [priority] primary key if the space has a tube field
    runat        3        runat primary key                  if the space has a runat field

In xqueue, users create these indexes themselves and choose their names. Here they always exist.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.job import BODY_JSON, BODY_MSGPACK, Job
from penstock.core.tube import Tube, key_of
from penstock.dialects.spaces.indexes import Index
from penstock.dialects.spaces.job_spaces import JobSpace
from penstock.dialects.xqueue.options import AUTO_INCREMENT, NO_FIELD, Options, XqueueError
from penstock.dialects.xqueue.rows import Rows, find_job, key_of_job, priority_of, runat_of
from penstock.dialects.xqueue.statuses import STATUS_LETTERS
from penstock.node.context import CommandContext
from penstock.wire.msgpack import DEPTH_MAX, write_value

_STATES: Final[dict[object, list[int]]] = {
    STATUS_LETTERS[state]: [state] for state in (s.READY, s.TAKEN, s.DELAYED, s.BURIED, s.DONE, s.ZOMBIE)
}

# Bodies without a value, used in place of a body that cannot be read.
_NO_BODY: Final = {BODY_JSON: b"null", BODY_MSGPACK: b"\x90"}


class XqueueSpace(JobSpace):
    """A space of xqueue."""

    _context: CommandContext
    _rows: Rows
    _options: Options

    def __init__(self, context: CommandContext, tube: Tube, rows: Rows) -> None:
        options = rows.options
        self._context = context
        self._rows = rows
        self._options = options
        fields = list(options.format)
        key = list(options.key)
        served = ([] if options.priority == NO_FIELD else [options.priority]) + key
        indexes = [Index(0, "primary", key, fields), Index(1, "status", [options.status, *served], fields)]
        if options.tube != NO_FIELD:
            parts = [options.tube, options.status, *served]
            indexes.append(Index(2, "tube_status", list(dict.fromkeys(parts)), fields))
        if options.runat != NO_FIELD:
            indexes.append(Index(3, "runat", [options.runat, *key], fields))
        # If the tube is part of the key, it may differ from the key of the job.
        job_key = NO_FIELD if options.tube in options.key else options.tube
        super().__init__(context.engine, tube, fields, indexes, [options.status, options.priority, job_key])

    def find(self, key: list[object], now: i64) -> Job | None:
        try:
            parts: list[Any] = self._rows.check_key([*key])
        except XqueueError:
            return None  # No task can have this key.
        job = find_job(self.engine, self.tube, self._options, self._context.ids, parts)
        if job is not None:
            self.engine.refresh(job, now)
        return job

    def states_of(self, status: object) -> list[int]:
        return _STATES.get(status, [])

    def keys_are_numbers(self) -> bool:
        """Return whether the primary keys of all tasks are the numbers of their jobs, because no task has a name."""
        made = self._options.id == AUTO_INCREMENT or self._options.key_type() not in ("string", "any", "scalar")
        return made and self.tube.jobs_by_number is not None and not self.tube.names

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, Job)
        options = self._options
        if field in options.key:
            return key_of_job(item, options, self._context.ids)[options.key.index(field)]
        if field == options.status:
            return STATUS_LETTERS[item.state]
        if field == options.runat:
            return runat_of(item)
        if field == options.priority:
            return priority_of(item)
        assert field == options.tube
        return key_of(self.tube, item).decode("utf-8", "surrogateescape") or None

    def write(self, writer: BytesWriter, item: object) -> None:
        assert isinstance(item, Job)
        body = self._context.body_or_none(item)
        if body is None:
            body = _NO_BODY.get(int(item.body_kind), b"")
        key = key_of_job(item, self._options, self._context.ids)
        kind, format = int(item.body_kind), int(item.format)
        row = self._rows.row(item, key, key_of(self.tube, item), body, kind, format, item.state)
        write_value(writer, row, DEPTH_MAX)
