"""Tubes as spaces: a row for each job.

The fields and indexes are those of tarantool/queue. Times are in microseconds.

    fifo       task_id status data
    utube      task_id status utube data
    fifottl    task_id status next_event ttl ttr pri created data
    utubettl   task_id status next_event ttl ttr pri created utube data

    index      parts                         exists in
    task_id    task_id                       all
    status     status [pri] task_id          all; pri in tubes with times
    watch      status next_event             tubes with times; not unique
    utube      status utube task_id          tubes with keys
    utube_pri  status utube pri task_id      tubes with keys and times

The primary index has the order of the job numbers (`core/table.py`). The first ready and buried jobs are read from the
heaps of the tube. Other orders are not stored, so they need a scan over the tube.
"""

from __future__ import annotations

import math
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core import states as s
from penstock.core import views
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import NEVER
from penstock.core.order import JobHeap
from penstock.core.policy import KEYS_NONE
from penstock.core.tube import Tube, key_of
from penstock.dialects.spaces.indexes import EQ, Index, Query
from penstock.dialects.spaces.reading import FEW_MAX, ReadableSpace, Scan
from penstock.dialects.tarantool.queue_functions import STATE_LETTERS, Tasks
from penstock.dialects.xqueue.formats import Field
from penstock.dialects.xqueue.options import NO_FIELD
from penstock.dialects.xqueue.rows import priority_of
from penstock.wire.bodies import name_value
from penstock.wire.msgpack import DEPTH_MAX, write_array, write_value

# The original's value for unlimited times: a hundred years.
CENTURY_US: Final = 3_153_600_000_000_000

# The number of a tube's space is FIRST_NUMBER plus the number of the tube. Clients use space numbers of 31 bits.
FIRST_NUMBER: Final = 1_024
LAST_NUMBER: Final = (1 << 31) - 1

# The fields that a row may have.
_FIELDS: Final = ("task_id", "status", "next_event", "ttl", "ttr", "pri", "created", "utube", "data")
_TASK_ID: Final = 0
_STATUS: Final = 1
_NEXT_EVENT: Final = 2
_TTL: Final = 3
_TTR: Final = 4
_PRI: Final = 5
_CREATED: Final = 6

# After these events the order of service differs from the order of the numbers.
_REORDERING: Final = (s.REQUEUED, s.PUT_URGENT, s.PUBLISHED, s.PUBLISHED_DELAYED)

_STATUSES: Final[dict[object, list[int]]] = {
    "r": [s.READY],
    "t": [s.TAKEN],
    "~": [s.DELAYED],
    "!": [s.BURIED],
    "-": [s.DONE, s.ZOMBIE],
}


class JobSpace(ReadableSpace):
    """A space whose items are the jobs of a tube."""

    engine: Engine
    tube: Tube
    _status: int  # The position of the status field.
    _priority: int  # The position of the priority field, or NO_FIELD.
    _key: int  # The position of the field with the job's key, or NO_FIELD.

    def __init__(
        self, engine: Engine, tube: Tube, fields: list[Field], indexes: list[Index], queue_fields: list[int]
    ) -> None:
        """Create the space of a tube. `queue_fields` are the positions of the status, the priority and the key."""
        super().__init__(
            tube.name.decode("utf-8", "backslashreplace"), FIRST_NUMBER + int(tube.number), fields, indexes
        )
        self.engine = engine
        self.tube = tube
        self._status, self._priority, self._key = queue_fields

    def find(self, key: list[object], now: i64) -> Job | None:
        """Return the job with a primary key, or None."""
        raise NotImplementedError

    def states_of(self, status: object) -> list[int]:
        """Return the job states that a status of this space stands for."""
        raise NotImplementedError

    def keys_are_numbers(self) -> bool:
        """Return whether the primary keys of all jobs are their numbers."""
        return self.tube.jobs_by_number is not None

    def advance(self, now: i64) -> None:
        self.engine.advance(now)

    def is_dropped(self) -> bool:
        return self.tube.dropped

    def contains(self, item: object) -> bool:
        """Return whether a job is still in this tube and visible. Staged jobs are not visible."""
        assert isinstance(item, Job)
        return item.tube == self.tube.slot and item.state != s.GONE and item.state != s.STAGED

    def scan(self, query: Query) -> Scan:
        if query.index is self.indexes[0] and self.keys_are_numbers():
            return _ByNumber(self.tube, query)
        states = -1
        if query.exact and self._status in query.index.parts[: len(query.values)]:
            states = 0
            for state in self.states_of(_text(query.values[query.index.parts.index(self._status)])):
                states |= 1 << state
        return _AnyOrder(self.engine, self.tube, states)

    def find_few(self, query: Query, now: i64) -> list[object] | None:
        """Return the jobs that can match, or None if a scan is needed to find them.

        No scan is needed for a primary key, for a status that few jobs have, or if a heap has the order of the index.
        """
        if not query.exact:
            return None
        index = query.index
        if index is self.indexes[0] and len(query.values) == len(index.parts):
            job = self.find(query.values, now)
            return [] if job is None else [job]
        if self._status not in index.parts[: len(query.values)]:
            return None
        states = self.states_of(_text(query.values[index.parts.index(self._status)]))
        if self._key != NO_FIELD and self._key in index.parts[: len(query.values)] and states == [s.READY]:
            return self._few_of_key(_text(query.values[index.parts.index(self._key)]), query)
        return self._few_in(states, query)

    def count(self, query: Query) -> int:
        tube = self.tube
        if not query.values:
            return tube.total() - tube.count_in(s.STAGED)
        if query.exact and len(query.values) == 1 and query.index.parts[0] == self._status:
            return sum([tube.count_in(state) for state in self.states_of(_text(query.values[0]))])
        return -1

    def _few_in(self, states: list[int], query: Query) -> list[object] | None:
        tube = self.tube
        keys = tube.keys
        if sum([tube.count_in(state) for state in states]) <= FEW_MAX:
            if s.READY not in states or keys is None or len(keys) <= FEW_MAX:
                return [job for state in states for job in tube.jobs_in(state)]
        if states == [s.READY] and keys is None:
            return self._first_of(tube.ready, None, query, 1)
        if states == [s.BURIED] and not tube.spent.items:
            return self._first_of(tube.buried, None, query, 1)
        return None

    def _few_of_key(self, name: object, query: Query) -> list[object] | None:
        assert self.tube.keys is not None
        text = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else b""
        key = self.tube.keys.find(text)
        if key is None or key.first is None:
            return []
        rest = key.rest
        if rest is None:
            return [key.first]
        if len(rest) < FEW_MAX:
            return [key.first, *rest.items]
        return self._first_of(rest, key.first, query, 2)

    def _first_of(self, heap: JobHeap, before: Job | None, query: Query, parts: int) -> list[object] | None:
        """Return the job `before`, if there is one, and the first jobs of a heap. Return None if a scan is needed.

        No scan is needed if the query is an EQ with `parts` values and a small limit, and the heap has the order of
        the index.
        """
        wanted = query.offset + query.limit
        if query.iterator != EQ or len(query.values) != parts or wanted > FEW_MAX or not self.keys_are_numbers():
            return None
        rest = [at for at in query.index.parts if at != self._status and at != self._key]
        served = [self._priority] if self.tube.by_priority else []
        if rest != served + self.indexes[0].parts:
            return None
        events = views.events(self.tube, True)
        if any(events[event] for event in _REORDERING):
            return None
        found: list[object] = [] if before is None else [before]
        found.extend(heap.first_many(wanted))
        return found


class _ByNumber(Scan):
    """Scans the jobs of a tube in the order of their numbers, starting at the key of a query."""

    _tube: Tube
    _descending: bool
    _next: i64

    def __init__(self, tube: Tube, query: Query) -> None:
        super().__init__(True)
        self._tube = tube
        self._descending = query.descending
        self._next = NEVER if query.descending else 0
        if query.values and query.key[0][0] == 2:
            self._next = _integer(query.key[0][1], query.descending)
        self.is_over = self._next < 0

    def next(self, count: int) -> list[object]:
        table = self._tube.jobs_by_number
        if table is None or self.is_over:
            return []
        found = table.scan_back(self._next, count) if self._descending else table.scan(self._next, count)
        if len(found) < count:
            self.is_over = True
        elif self._descending:
            self._next = found[-1].local - 1
            self.is_over = self._next < 0
        else:
            self._next = found[-1].local + 1
        return [*found]


def _integer(value: float, down: bool) -> int:
    """Round a number up, or down if `down` is set. A negative number becomes 0, or -1 if `down` is set."""
    if value >= NEVER:
        return NEVER
    if value < 0:
        return -1 if down else 0
    return math.floor(value) if down else math.ceil(value)


class _AnyOrder(Scan):
    """Scans all jobs of a tube that are in the given states, in any order."""

    _engine: Engine
    _tube: Tube
    _states: i64  # A bit for each state.
    _cursor: int

    def __init__(self, engine: Engine, tube: Tube, states: i64) -> None:
        super().__init__()
        self._engine = engine
        self._tube = tube
        self._states = states
        self._cursor = 0

    def next(self, count: int) -> list[object]:
        table = self._tube.jobs_by_number
        if table is None:
            jobs, self._cursor = self._engine.scan(self._cursor, count, self._tube, int(self._states))
            self.is_over = self._cursor == 0
            return [*jobs]
        jobs = table.scan(self._cursor, count)
        self.is_over = len(jobs) < count
        if jobs:
            self._cursor = jobs[-1].local + 1
        return [job for job in jobs if (self._states >> i64(job.state)) & 1]


class TaskSpace(JobSpace):
    """The space of a tube, with the rows that tarantool/queue stores."""

    _tasks: Tasks
    _field_kinds: list[int]  # The index in _FIELDS of each field.

    def __init__(self, tasks: Tasks, tube: Tube) -> None:
        policy = tube.policy
        timed = policy.has_ttl or policy.has_ttr or policy.has_delay
        keyed = policy.keys != KEYS_NONE
        fields = [
            Field("task_id", "unsigned" if tube.jobs_by_number is not None else "string"),
            Field("status", "string"),
        ]
        if timed:
            for name in ("next_event", "ttl", "ttr", "pri", "created"):
                fields.append(Field(name, "integer" if name == "pri" else "unsigned"))
        if keyed:
            fields.append(Field("utube", "string"))
        fields.append(Field("data", "any", True))
        self._tasks = tasks
        self._field_kinds = [_FIELDS.index(field.name) for field in fields]
        super().__init__(
            tasks.engine,
            tube,
            fields,
            self._indexes(fields, timed, keyed),
            [1, 5 if timed else NO_FIELD, len(fields) - 2 if keyed else NO_FIELD],
        )

    def _indexes(self, fields: list[Field], timed: bool, keyed: bool) -> list[Index]:
        wanted = ["task_id", "status", *(["watch"] if timed else []), *(["utube"] if keyed else [])]
        if timed and keyed:
            wanted.append("utube_pri")
        key = len(fields) - 2
        parts = {
            "task_id": [0],
            "status": [1, 5, 0] if timed else [1, 0],
            "watch": [1, 2],
            "utube": [1, key, 0],
            "utube_pri": [1, key, 5, 0],
        }
        return [Index(number, name, parts[name], fields, name != "watch") for number, name in enumerate(wanted)]

    def find(self, key: list[object], now: i64) -> Job | None:
        return self._tasks.find_id(self.tube, key[0], now)

    def states_of(self, status: object) -> list[int]:
        return _STATUSES.get(status, [])

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, Job)
        what = self._field_kinds[field]
        if what == _TASK_ID:
            return int(item.local) if item.local >= 0 else name_value(self._tasks.id_text(item))
        if what == _STATUS:
            return STATE_LETTERS[item.state]
        if what == _PRI:
            return priority_of(item)
        if what == _NEXT_EVENT:
            due = item.due if item.deadline_pos >= 0 else item.expiry
            return int(item.created) * 1000 + CENTURY_US if due == NEVER else int(due) * 1000
        if what == _TTL:
            return CENTURY_US if item.expiry == NEVER else int(item.expiry - item.created) * 1000
        if what == _TTR:
            return CENTURY_US if item.ttr == NEVER else int(item.ttr) * 1000
        if what == _CREATED:
            return int(item.created) * 1000
        return name_value(key_of(self.tube, item))

    def write(self, writer: BytesWriter, item: object) -> None:
        assert isinstance(item, Job)
        last = len(self.fields) - 1
        write_array(writer, last + 1)
        for field in range(last):
            write_value(writer, self.value(field, item), DEPTH_MAX)
        writer.write(self._tasks.data(item))


def _text(value: object) -> object:
    """Return a part of an index key. Text that arrived as binary is decoded."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
