"""The spaces of tarantool/queue about all tubes: `_queue`, `_queue_consumers`, `_queue_taken` and `_queue_taken_2`.

    space             number   fields                                                       indexes
    _queue            512      tube_name tube_id space_name tube_type opts                  tube, tube_id
    _queue_consumers  513      connection_id fiber_id tube_id event_time fiber_time         pk, consumer
    _queue_taken      514      session_id tube_id task_id taken_time                        pk, task
    _queue_taken_2    515      tube_id task_id connection_id session_uuid taken_time        task, uuid

tarantool/queue has `_queue_taken` in older releases, and `_queue_taken_2` in its release 1.5. A client sees the rows of
tubes that it may use. A session's uuid is shown only to that session, because a client with the uuid can join it.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import NEVER
from penstock.core.tube import Tube
from penstock.core.waits import Link, Waiting, WaitLine
from penstock.dialects.spaces.indexes import Index, Query, read_fields
from penstock.dialects.spaces.job_spaces import CENTURY_US
from penstock.dialects.spaces.reading import FEW_MAX, ReadableSpace, Scan
from penstock.dialects.tarantool.queue_functions import Tasks, description
from penstock.dialects.xqueue.formats import Field
from penstock.node.caller import Caller
from penstock.wire.bodies import name_value
from penstock.wire.msgpack import DEPTH_MAX, write_array, write_value

QUEUE: Final = b"_queue"
CONSUMERS: Final = b"_queue_consumers"
TAKEN: Final = b"_queue_taken"
TAKEN_2: Final = b"_queue_taken_2"

_TUBES_SLICE: Final = 100

# Stands for the session of a taken job that no session holds: it is in a claim, or any client may finish it.
_NO_SESSION: Final = 0


_QUEUE_FIELDS: Final = read_fields("tube_name:string tube_id:unsigned space_name:string tube_type:string opts:any")
_CONSUMERS_FIELDS: Final = read_fields(
    "connection_id:unsigned fiber_id:unsigned tube_id:unsigned event_time:unsigned fiber_time:unsigned"
)
_TAKEN_FIELDS: Final = read_fields("session_id:unsigned tube_id:unsigned task_id:scalar taken_time:unsigned?")
_TAKEN_2_FIELDS: Final = read_fields(
    "tube_id:unsigned task_id:scalar connection_id:unsigned session_uuid:string? taken_time:unsigned?"
)

_QUEUE_INDEXES: Final = [Index(0, "tube", [0], _QUEUE_FIELDS), Index(1, "tube_id", [1], _QUEUE_FIELDS)]
_CONSUMERS_INDEXES: Final = [
    # A client of another protocol that waits for several tubes has a row for each of them.
    Index(0, "pk", [0, 1], _CONSUMERS_FIELDS),
    Index(1, "consumer", [2, 3], _CONSUMERS_FIELDS, False),
]
_TAKEN_INDEXES: Final = [Index(0, "pk", [0, 1, 2], _TAKEN_FIELDS), Index(1, "task", [1, 2], _TAKEN_FIELDS)]
_TAKEN_2_INDEXES: Final = [Index(0, "task", [0, 1], _TAKEN_2_FIELDS), Index(1, "uuid", [3], _TAKEN_2_FIELDS, False)]


class _AllTubesSpace(ReadableSpace):
    engine: Engine
    caller: Caller

    def __init__(
        self, name: bytes, number: int, fields: list[Field], indexes: list[Index], engine: Engine, caller: Caller
    ) -> None:
        super().__init__(name.decode(), number, fields, indexes)
        self.engine = engine
        self.caller = caller

    def advance(self, now: i64) -> None:
        self.engine.advance(now)

    def may_read(self, tube: Tube) -> bool:
        """Return whether the client may see the rows about a tube."""
        return not tube.dropped and (self.caller.any_tube or self.caller.may_use(tube.name))

    def write(self, writer: BytesWriter, item: object) -> None:
        write_array(writer, len(self.fields))
        for field in range(len(self.fields)):
            write_value(writer, self.value(field, item), DEPTH_MAX)

    def tubes_of(self, query: Query, field: int) -> list[Tube] | None:
        """Return the tubes that can match a query, or None for all tubes.

        `field` is the position of the tube number. If the query contains this number, at most one tube can match.
        """
        parts = query.index.parts
        if not query.exact or field not in parts[: len(query.values)]:
            return None
        tube = tube_of_number(self.engine, query.values[parts.index(field)])
        return [] if tube is None else [tube]


def tube_of_number(engine: Engine, number: object) -> Tube | None:
    """Return the tube with a number, or None."""
    if not isinstance(number, (int, float)) or number < 0 or number >= NEVER:
        return None
    tubes, _ = engine.scan_tubes(int(number), 1)
    return tubes[0] if tubes and tubes[0].number == number else None


class QueueSpace(_AllTubesSpace):
    """The space `_queue`. Its items are tubes."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(QUEUE, 512, _QUEUE_FIELDS, _QUEUE_INDEXES, engine, caller)

    def contains(self, item: object) -> bool:
        assert isinstance(item, Tube)
        return self.may_read(item)

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, Tube)
        if field == 1:
            return int(item.number)
        if field == 0 or field == 2:
            return name_value(item.name)
        return item.policy.type if field == 3 else description(item)["opts"]

    def scan(self, query: Query) -> Scan:
        """Start a scan over the tubes, in the order of their numbers if the query asks for this order."""
        if query.index.number != 1 or query.descending:
            return _Tubes(self.engine, 0, False)
        start = query.key[0][1] if query.values else 0
        return _Tubes(self.engine, int(min(start, NEVER)), True)

    def find_few(self, query: Query, now: i64) -> list[object] | None:
        if not query.exact:
            return None
        if query.index.number == 1:
            tube = tube_of_number(self.engine, query.values[0])
        else:
            tube = self.engine.tubes.get(query.key[0][1])
        return [] if tube is None else [tube]

    def count(self, query: Query) -> int:
        return len(self.engine.tubes) if not query.values and self.caller.any_tube else -1


class _Tubes(Scan):
    """Scans all tubes in the order of their numbers."""

    _engine: Engine
    _cursor: int

    def __init__(self, engine: Engine, start: int, ordered: bool) -> None:
        super().__init__(ordered)
        self._engine = engine
        self._cursor = start

    def next(self, count: int) -> list[object]:
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, min(count, _TUBES_SLICE))
        self.is_over = self._cursor == 0
        return [*tubes]


class TakenSpace(_AllTubesSpace):
    """The space `_queue_taken` or `_queue_taken_2`. Its items are taken jobs."""

    _tasks: Tasks
    _order: list[int]  # For each field its index in `_queue_taken`; 4 stands for the uuid.

    def __init__(self, tasks: Tasks, caller: Caller, second: bool) -> None:
        self._tasks = tasks
        if second:
            self._order = [1, 2, 0, 4, 3]
            super().__init__(TAKEN_2, 515, _TAKEN_2_FIELDS, _TAKEN_2_INDEXES, tasks.engine, caller)
        else:
            self._order = [0, 1, 2, 3]
            super().__init__(TAKEN, 514, _TAKEN_FIELDS, _TAKEN_INDEXES, tasks.engine, caller)

    def contains(self, item: object) -> bool:
        assert isinstance(item, Job)
        if item.state != s.TAKEN:
            return False
        tube = self.engine.tube_at(i64(item.tube))
        return tube is not None and self.may_read(tube)

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, Job)
        what = self._order[field]
        if what == 1:
            return int(self.engine.tube_of(item).number)
        if what == 2:
            return int(item.local) if item.local >= 0 else name_value(self._tasks.id_text(item))
        if what == 3:
            # The time of the take is calculated from the end of the lease.
            known = item.wake != NEVER and item.ttr != NEVER
            return int(item.wake - item.ttr) * 1000 if known else None
        session = self.engine.session_number(item.holder) if item.holder >= 0 else _NO_SESSION
        if what == 0:
            return session
        reader = self.caller.connection.session
        return name_value(reader.token) if session == reader.number else None

    def scan(self, query: Query) -> Scan:
        return _TakenJobs(self.engine, self.tubes_of(query, self._order.index(1)))

    def find_few(self, query: Query, now: i64) -> list[object] | None:
        """Return the jobs that a query selects, or None if they can only be found by a scan.

        If the query names a tube and a task id, at most one job matches. If it names the client's own session, the
        jobs that this session holds match.
        """
        parts = query.index.parts[: len(query.values)]
        task, session = self._order.index(2), self._order.index(0)
        if query.exact and self._order.index(1) in parts and task in parts:
            tubes = self.tubes_of(query, self._order.index(1))
            job = self._find(tubes[0], query.values[parts.index(task)], now) if tubes else None
            return [] if job is None else [job]
        mine = self.caller.connection.session
        if query.exact and session in parts and query.values[parts.index(session)] == mine.number:
            return [*mine.held] if len(mine.held) <= FEW_MAX else None
        return None

    def _find(self, tube: Tube, id: object, now: i64) -> Job | None:
        """Return the job with an id, or None. The id can be any value."""
        if not self.may_read(tube):
            return None
        if tube.jobs_by_number is None:
            return self._tasks.find_id(tube, id, now) if isinstance(id, (str, bytes)) else None
        if isinstance(id, bool) or not isinstance(id, (int, float)) or not 0 <= id < NEVER or id != int(id):
            return None
        return self.engine.find_local(tube, int(id), now)

    def count(self, query: Query) -> int:
        return int(self.engine.taken_count) if not query.values and self.caller.any_tube else -1


class _TubesScan(Scan):
    """Scans some tubes, or all tubes in the order of their numbers if `tubes` is None."""

    _engine: Engine
    _tubes: list[Tube]  # The next tubes.
    _cursor: int  # The cursor of the tubes after them; -1 if there are no more.

    def __init__(self, engine: Engine, tubes: list[Tube] | None) -> None:
        super().__init__()
        self._engine = engine
        self._tubes = [] if tubes is None else tubes
        self._cursor = 0 if tubes is None else -1

    def _has_more_tubes(self) -> bool:
        if self._cursor < 0:
            self.is_over = True
            return False
        self._tubes, self._cursor = self._engine.scan_tubes(self._cursor, _TUBES_SLICE)
        if self._cursor == 0:
            self._cursor = -1
        return True


class _TakenJobs(_TubesScan):
    """Scans the taken jobs of some tubes or of all tubes.

    When a job leaves a tube's list of taken jobs, the last job moves to its place. New jobs are added at the end. A
    scan from the end to the beginning therefore misses no job that stays, but it can return a job twice.
    """

    _at: int  # The position in the first tube, counting down; -1 before it is examined.

    def __init__(self, engine: Engine, tubes: list[Tube] | None) -> None:
        super().__init__(engine, tubes)
        self._at = -1

    def next(self, count: int) -> list[object]:
        found: list[object] = []
        looked = 0
        while looked < count:
            if not self._tubes:
                if not self._has_more_tubes():
                    break
                continue
            bag = self._tubes[0].taken.items
            end = len(bag) if self._at < 0 else min(self._at, len(bag))
            start = max(0, end - (count - looked))
            found.extend(bag[start:end])
            looked += 1 + end - start
            self._at = start
            if start == 0:
                self._tubes.pop(0)
                self._at = -1
        return found


class _Consumer:
    """A client that waits for a job of a tube. It is a row of `_queue_consumers`."""

    tube: Tube
    wait: Waiting
    link: Link

    def __init__(self, tube: Tube, link: Link) -> None:
        self.tube = tube
        self.wait = link.wait
        self.link = link


class ConsumersSpace(_AllTubesSpace):
    """The space `_queue_consumers`. Its items are waiting clients, one for each tube that a client waits for."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(CONSUMERS, 513, _CONSUMERS_FIELDS, _CONSUMERS_INDEXES, engine, caller)

    def contains(self, item: object) -> bool:
        assert isinstance(item, _Consumer)
        return _is_in_line(item.link) and self.may_read(item.tube)

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, _Consumer)
        wait = item.wait
        if field == 0:
            return int(wait.connection.session.number)
        if field == 1:
            return int(wait.number)
        if field == 2:
            return int(item.tube.number)
        if field == 3:
            return int(wait.since) * 1000 + CENTURY_US if wait.deadline_pos < 0 else int(wait.due) * 1000
        return int(wait.since) * 1000

    def sort_key(self, query: Query, item: object) -> tuple[object, ...]:
        """Return the sort key of a consumer. It ends with the number of the tube.

        Without this number, all rows of a client that waits for several tubes would have the same sort key.
        """
        assert isinstance(item, _Consumer)
        return (*super().sort_key(query, item), (2, int(item.tube.number)))

    def scan(self, query: Query) -> Scan:
        return _Consumers(self.engine, self.tubes_of(query, 2))


class _Consumers(_TubesScan):
    """Scans the consumers that wait for jobs of some tubes or of all tubes."""

    _lines: list[WaitLine]  # The queues of waiting consumers of the first tube that are still to be examined.
    _is_in_tube: bool
    _last: Link | None  # The consumer that was found last in the first of these queues.

    def __init__(self, engine: Engine, tubes: list[Tube] | None) -> None:
        super().__init__(engine, tubes)
        self._lines = []
        self._is_in_tube = False
        self._last = None

    def next(self, count: int) -> list[object]:
        found: list[object] = []
        looked = 0
        while looked < count:
            looked += 1
            if self._lines:
                link = self._lines[0].head if self._last is None else _after(self._last)
                while link is not None and looked < count:
                    found.append(_Consumer(self._tubes[0], link))
                    self._last = link
                    link = link.after
                    looked += 1
                if link is None:
                    self._lines.pop(0)
                    self._last = None
            elif self._is_in_tube:
                self._tubes.pop(0)
                self._is_in_tube = False
            elif self._tubes:
                tube = self._tubes[0]
                self._lines = [tube.take_line, *tube.key_lines.values()]
                self._is_in_tube = True
            elif not self._has_more_tubes():
                break
        return found


def _is_in_line(link: Link) -> bool:
    return link.before is not None or link.line.head is link


def _after(last: Link) -> Link | None:
    """Return the consumer after `last` in its list. If `last` has left, return the first one that came later."""
    if _is_in_line(last):
        return last.after
    link = last.line.head
    while link is not None and link.wait.number <= last.wait.number:
        link = link.after
    return link
