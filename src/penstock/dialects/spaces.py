"""Tubes as the spaces that they are in Tarantool: `box.space.NAME:select` and the other ways to read one.

A row of a tube has the fields of the original, in their order, times in microseconds:

    fifo       id state data                            fifottl    id state next_event ttl ttr pri created data
    utube      id state utube data                      utubettl   id state next_event ttl ttr pri created utube data

`_queue`, `_queue_consumers` and `_queue_taken` tell of tubes, of who waits, and of what is taken; `_queue_taken_2` is
the last in the order of today's releases. There are no other spaces, and none can be written: this is no database.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import BATCH_JOBS_MAX, NEVER
from penstock.core.policy import KEYS_NONE
from penstock.core.sessions import Session
from penstock.core.tube import Tube, key_of
from penstock.core.waits import Waiting
from penstock.dialects.calls import Family, Functions, LongCall, Method, argument, one, run_long
from penstock.dialects.command import READ, SLICE, Caller
from penstock.dialects.site import Site
from penstock.dialects.tarantool import STATE_LETTERS, Tasks, description, read_options
from penstock.wire.bodies import name_value, write_name
from penstock.wire.errors import BoxError, LuaError
from penstock.wire.iproto import ER_NO_SUCH_SPACE, Request
from penstock.wire.msgpack import NIL, pack, write_array, write_integer, write_text

QUEUE: Final = b"_queue"
CONSUMERS: Final = b"_queue_consumers"
TAKEN: Final = b"_queue_taken"
TAKEN_2: Final = b"_queue_taken_2"
_ABOUT_TUBES: Final = frozenset([QUEUE, CONSUMERS, TAKEN, TAKEN_2])
_ABOUT_TAKEN: Final = frozenset([TAKEN, TAKEN_2])

# What the original has for "no end": a hundred years.
_CENTURY_US: Final = 3_153_600_000_000_000

# How many bytes of rows an answer may have, and how many of those who wait for one tube are told.
_ROWS_BYTES_MAX: Final = 16 * 1024 * 1024
_TUBES_SLICE: Final = 100
_WAITS_MAX: Final = 1_000

# What a space of Tarantool's can do that would make of this a database.
_WRITING: Final = frozenset(
    [
        b"insert",
        b"replace",
        b"update",
        b"upsert",
        b"delete",
        b"auto_increment",
        b"drop",
        b"create_index",
        b"rename",
        b"alter",
        b"format",
        b"on_replace",
        b"before_replace",
    ]
)
_ER_UNSUPPORTED: Final = 5


class Spaces(Family):
    """The methods of a space."""

    tasks: Tasks
    _site: Site
    _engine: Engine
    _methods: dict[bytes, Method]

    def __init__(self, site: Site) -> None:
        self.tasks = Tasks(site)
        self._site = site
        self._engine = site.engine
        self._methods = {
            b"count": Method(READ, self.count),
            b"len": Method(READ, self.count),
            b"get": Method(READ, self.get),
            b"select": Method(READ, self.select),
        }

    def method(self, owner: bytes, name: bytes) -> Method | None:
        """The method of a name, of a tube or of what tells of all tubes."""
        return Method(READ, _refuse_writing) if name in _WRITING else self._methods.get(name)

    def count(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """space:count(), space:len()"""
        if name in _ABOUT_TUBES:
            return run_long(self._site, caller, _Counting(call, self._engine, name), now)
        tube = self._tube(name)
        key = _key(call)
        if key is None:
            self._engine.advance(now)
            return one(tube.total())
        return one(0 if self.tasks.find_id(tube, key, now) is None else 1)

    def get(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """space:get(id)"""
        tube = self._tube(name)
        key = _key(call)
        if key is None:
            raise BoxError(19, "Invalid key part count in an exact match (expected 1, got 0)")
        job = self.tasks.find_id(tube, key, now)
        if job is None:
            return b"\x91" + NIL
        writer = BytesWriter()
        writer.append(0x91)
        self.write_row(writer, tube, job)
        return writer.getvalue()

    def select(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """space:select(id, {limit, offset}): rows in the order of their ids"""
        limit, offset = _page(call)
        if name in _ABOUT_TUBES:
            about = _AboutTubes(call, self, name)
            about.limit, about.offset = limit, offset
            return run_long(self._site, caller, about, now)
        tube = self._tube(name)
        self._engine.advance(now)
        key = _key(call)
        if key is None:
            return run_long(self._site, caller, _Rows(call, self, tube, limit, offset), now)
        job = self.tasks.find_id(tube, key, now)
        writer = BytesWriter()
        writer.append(0x91)
        is_there = job is not None and limit > 0 and offset == 0
        write_array(writer, 1 if is_there else 0)
        if job is not None and is_there:
            self.write_row(writer, tube, job)
        return writer.getvalue()

    def _tube(self, name: bytes) -> Tube:
        tube = self._engine.tubes.get(name)
        if tube is None:
            self._site.seek([name])
            shown = name[:200].decode("utf-8", "backslashreplace")
            raise BoxError(ER_NO_SUCH_SPACE, f"Space '{shown}' does not exist; there are only tubes here")
        return tube

    def write_row(self, writer: BytesWriter, tube: Tube, job: Job) -> None:
        """A job as a row of its tube."""
        policy = tube.policy
        timed = policy.has_ttl or policy.has_ttr or policy.has_delay
        keyed = policy.keys != KEYS_NONE
        write_array(writer, 3 + (5 if timed else 0) + (1 if keyed else 0))
        if job.local >= 0:
            write_integer(writer, job.local)
        else:
            write_name(writer, self.tasks.id_text(job))
        write_text(writer, STATE_LETTERS[job.state].encode())
        if timed:
            ttl = _CENTURY_US if job.expiry == NEVER else (job.expiry - job.created) * 1000
            due = job.due if job.deadline_pos >= 0 else job.expiry
            write_integer(writer, job.created * 1000 + _CENTURY_US if due == NEVER else due * 1000)
            write_integer(writer, ttl)
            write_integer(writer, _CENTURY_US if job.ttr == NEVER else job.ttr * 1000)
            write_integer(writer, job.priority)
            write_integer(writer, job.created * 1000)
        if keyed:
            write_name(writer, key_of(tube, job))
        writer.write(self.tasks.data(job))

    def rows_about(self, caller: Caller, name: bytes, tube: Tube, start: i64) -> list[bytes]:
        """Rows that tell of a tube, from one on, no more than a slice."""
        if name == QUEUE:
            told = description(tube)
            return [pack([told["name"], told["tube_id"], told["name"], told["type"], told["opts"]])]
        if name in _ABOUT_TAKEN:
            reader = caller.connection.session if name == TAKEN_2 else None
            return [self._taken(tube, job, reader) for job in tube.taken.items[start : start + SLICE]]
        rows: list[bytes] = []
        for line in [tube.line, *tube.key_lines.values()]:
            link = line.head
            while link is not None and len(rows) < _WAITS_MAX:
                rows.append(_waiting(tube, link.wait))
                link = link.after
            if len(rows) >= _WAITS_MAX:
                break
        return rows

    def _taken(self, tube: Tube, job: Job, reader: Session | None) -> bytes:
        """A row of `_queue_taken`; for a reader, of `_queue_taken_2`."""
        session = self._engine.session_number(job.holder) if job.holder >= 0 else None
        id: object = job.local if job.local >= 0 else name_value(self.tasks.id_text(job))
        # When a task was taken is known by when its time to run will be over.
        known = job.wake != NEVER and job.ttr != NEVER
        since = (job.wake - job.ttr) * 1000 if known else None
        if reader is None:
            return pack([session, tube.number, id, since])
        # Whoever knows the uuid of a session may join it, so nobody is told that of another.
        uuid = name_value(reader.token) if session == reader.number else None
        return pack([tube.number, id, session, uuid, since])


def _waiting(tube: Tube, wait: Waiting) -> bytes:
    until = wait.since * 1000 + _CENTURY_US if wait.deadline_pos < 0 else wait.due * 1000
    return pack([wait.connection.session.number, wait.number, tube.number, until, wait.since * 1000])


def _refuse_writing(caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
    shown = name[:200].decode("utf-8", "backslashreplace")
    raise BoxError(
        _ER_UNSUPPORTED,
        f"Penstock does not support writing space '{shown}': it is no database; use queue.tube.{shown} and its methods",
    )


class Box(Functions):
    """The functions of `box`: few, and those that would make a database are refused by name."""

    def method(self, owner: bytes, name: bytes) -> Method | None:
        """A function; one that refuses, for what makes or configures spaces."""
        if name == b"cfg" or name.startswith((b"schema.", b"execute", b"sql.")):
            return Method(READ, _refuse_database)
        return super().method(owner, name)


def _refuse_database(caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
    shown = call.name[:200].decode("utf-8", "backslashreplace")
    raise BoxError(
        _ER_UNSUPPORTED,
        f"Penstock does not support {shown}: it is no database, and has no spaces but its tubes; "
        "make one by queue.create_tube",
    )


def _key(call: Request) -> object:
    """The one part of the key that a call brings; None if it brings none."""
    key = argument(call, 0)
    if isinstance(key, list):
        if len(key) > 1:
            raise BoxError(19, f"Invalid key part count in an exact match (expected 1, got {len(key)})")
        return key[0] if key else None
    return None if key == {} else key


def _page(call: Request) -> tuple[int, int]:
    """How many rows a select wants, and how many it passes over."""
    found = {"limit": BATCH_JOBS_MAX, "offset": 0}
    for name, value in read_options(call.args[1]).items() if len(call.args) > 1 else ():
        if name == "iterator":
            if value not in ("EQ", "ALL", "GE", 0, 2, 5):
                raise LuaError("a tube is read in the order of its ids, so the iterator must be EQ, GE or ALL")
            continue
        if name not in ("limit", "offset") or isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise LuaError("the options of select are limit and offset, numbers from 0 on")
        found[str(name)] = min(value, NEVER)
    return min(found["limit"], BATCH_JOBS_MAX), found["offset"]


class _Selecting(LongCall):
    """Rows that are found in slices."""

    limit: int
    offset: int
    _writer: BytesWriter
    _found: i64

    def __init__(self, call: Request) -> None:
        super().__init__(call)
        self.limit = BATCH_JOBS_MAX
        self.offset = 0
        self._writer = BytesWriter()
        self._found = 0

    def wants_more(self) -> bool:
        """Whether another row may be told."""
        return self._found < self.limit and len(self._writer) < _ROWS_BYTES_MAX

    def results(self) -> bytes:
        """All rows as one result."""
        head = BytesWriter()
        head.append(0x91)
        write_array(head, self._found)
        head.write(self._writer.getvalue())
        return head.getvalue()


class _Rows(_Selecting):
    """The rows of a tube, in the order of their ids."""

    _spaces: Spaces
    _tube: Tube
    _next: i64

    def __init__(self, call: Request, spaces: Spaces, tube: Tube, limit: int, offset: int) -> None:
        super().__init__(call)
        self.limit = limit
        self.offset = offset
        self._spaces = spaces
        self._tube = tube
        self._next = 0

    def slice(self, caller: Caller, now: i64) -> bytes | None:
        """Look at the next jobs."""
        if self._tube.dropped or not self.wants_more():
            return self.results()
        is_last = False
        if self._tube.locals is not None:
            jobs = self._tube.locals.scan(self._next, SLICE)
            is_last = len(jobs) < SLICE
            if jobs:
                self._next = jobs[-1].local + 1
        else:
            jobs, cursor = self._spaces.tasks.engine.scan(self._next, SLICE, self._tube)
            self._next = cursor
            is_last = cursor == 0
        for job in jobs:
            if self.offset > 0:
                self.offset -= 1
            elif self.wants_more():
                self._spaces.write_row(self._writer, self._tube, job)
                self._found += 1
        return self.results() if is_last else None


class _AboutTubes(_Selecting):
    """The rows of `_queue` and its like, tube by tube."""

    _spaces: Spaces
    _name: bytes
    _cursor: int
    _tubes: list[Tube]
    _at: i64  # Where in the first of these tubes it goes on.

    def __init__(self, call: Request, spaces: Spaces, name: bytes) -> None:
        super().__init__(call)
        self._spaces = spaces
        self._name = name
        self._cursor = 0
        self._tubes = []
        self._at = -1

    def slice(self, caller: Caller, now: i64) -> bytes | None:
        """Look at the next tubes."""
        if not self._tubes:
            if self._at >= 0 and self._cursor == 0:
                return self.results()
            self._tubes, self._cursor = self._spaces.tasks.engine.scan_tubes(self._cursor, _TUBES_SLICE)
            self._at = 0
        written: i64 = 0
        while self._tubes and written < SLICE:
            tube = self._tubes[0]
            rows: list[bytes] = []
            if self.wants_more() and not tube.dropped and (caller.any_tube or caller.may_use(tube.name)):
                rows = self._spaces.rows_about(caller, self._name, tube, self._at)
            self._add(rows)
            written += 1 + len(rows)
            if len(rows) == SLICE and self._name in _ABOUT_TAKEN:
                self._at += SLICE
            else:
                self._at = 0
                self._tubes.pop(0)
        return None

    def _add(self, rows: list[bytes]) -> None:
        for row in rows:
            if self.offset > 0:
                self.offset -= 1
            elif self.wants_more():
                self._writer.write(row)
                self._found += 1


class _Counting(LongCall):
    """How many rows `_queue` and its like have: all of them, also where no answer could have so many."""

    _engine: Engine
    _name: bytes
    _cursor: int
    _count: int

    def __init__(self, call: Request, engine: Engine, name: bytes) -> None:
        super().__init__(call)
        self._engine = engine
        self._name = name
        self._cursor = 0
        self._count = 0

    def slice(self, caller: Caller, now: i64) -> bytes | None:
        """Look at the next tubes."""
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, _TUBES_SLICE)
        work = 0
        for tube in tubes:
            if work > SLICE:
                self._cursor = tube.number
                break
            work += 1 + len(tube.key_lines)
            if caller.any_tube or caller.may_use(tube.name):
                self._count += self._rows_of(tube)
        return one(self._count) if self._cursor == 0 else None

    def _rows_of(self, tube: Tube) -> int:
        if self._name == QUEUE:
            return 1
        if self._name in _ABOUT_TAKEN:
            return len(tube.taken)
        count = int(tube.line.length)
        for line in tube.key_lines.values():
            count += int(line.length)
        return count
