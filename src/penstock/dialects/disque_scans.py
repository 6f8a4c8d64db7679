"""QSCAN, JSCAN, and QPEEK with a negative count, in slices, so that other clients do not have to wait.

A scan with a cursor is one slice. When its page is full, it ends and returns the next cursor. A scan of everything
(BUSYLOOP, or QPEEK with a negative count) is a `SlicedCommand`, which also replies in slices. BUSYLOOP examines only
jobs that existed when it began. Otherwise it might never end, because more jobs can arrive per turn than a slice
examines.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.ids import LONG_ID_BYTES
from penstock.core.tube import Tube
from penstock.dialects.disque import Disque, PeekCommand, parse_integer, require_integer
from penstock.dialects.pages import SCAN_SLICE, PagedReply
from penstock.node.caller import SLICE, Caller
from penstock.wire.errors import SYNTAX, Refused
from penstock.wire.reply import Reply

_COUNT_DEFAULT: Final = 100

# The estimated bytes of a job in a reply, without its body and its queue.
_JOB_BYTES: Final = 640

_BAD_CURSOR: Final = b"ERR invalid cursor or option name"
_CURSOR_MAX: Final = (1 << 63) - 1

# Disque's words for states, as bits of our states.
_STATES: Final[dict[bytes, int]] = {
    b"wait-repl": 1 << s.STAGED,
    b"active": 1 << s.TAKEN | 1 << s.DELAYED | 1 << s.BURIED,
    b"queued": 1 << s.READY,
    b"acked": 1 << s.DONE | 1 << s.ZOMBIE,
}


class Query:
    """The arguments of a scan."""

    def __init__(self) -> None:
        self.cursor = 0
        self.has_cursor = False
        self.count: int = _COUNT_DEFAULT
        self.busyloop = False
        self.len_min = 0
        self.len_max: int = _CURSOR_MAX
        self.import_rate = 0
        self.queue: bytes | None = None
        self.states = 0  # A bit for each wanted state, or -1 for all states.
        self.whole = False  # Reply with all fields of each job, not only its id.


def parse_query(args: list[bytes], jobs: bool) -> Query:
    """Parse the words of QSCAN, or of JSCAN if `jobs` is set."""
    query = Query()
    at = 1
    while at < len(args):
        word = args[at].upper()
        value = args[at + 1] if at + 1 < len(args) else None
        at += 2
        if word == b"BUSYLOOP":
            query.busyloop = True
            at -= 1
        elif word == b"COUNT" and value is not None:
            query.count = require_integer(value)
        elif not jobs and word == b"MINLEN" and value is not None:
            query.len_min = require_integer(value)
        elif not jobs and word == b"MAXLEN" and value is not None:
            query.len_max = require_integer(value)
        elif not jobs and word == b"IMPORTRATE" and value is not None:
            query.import_rate = require_integer(value)
        elif jobs and word == b"QUEUE" and value is not None:
            query.queue = value
        elif jobs and word == b"STATE" and value is not None:
            state = _STATES.get(value.lower())
            if state is None:
                raise Refused(b"ERR Invalid job state name")
            # The bit of GONE marks that a filter was given, and matches no job.
            query.states |= state | 1
        elif jobs and word == b"REPLY" and value is not None:
            if value.lower() not in (b"all", b"id"):
                raise Refused(b"ERR Invalid REPLY type, try ID or ALL")
            query.whole = value.lower() == b"all"
        elif query.has_cursor:
            raise Refused(SYNTAX)
        else:
            query.cursor = parse_integer(word)
            if query.cursor < 0 or query.cursor > _CURSOR_MAX:
                raise Refused(_BAD_CURSOR)
            query.has_cursor = True
            at -= 1
    query.count = max(1, min(query.count, SLICE))
    if query.states == 0:
        query.states = -1
    return query


class _CursorScan(PagedReply):
    """A scan, and the results that it has found so far."""

    def __init__(self, engine: Engine, disque: Disque, query: Query, end: i64) -> None:
        super().__init__()
        self._engine = engine
        self._disque = disque
        self.query = query
        self.cursor: int = query.cursor
        # Entries with this number or a greater one were made after the scan began.
        self._end: i64 = end if query.busyloop else _CURSOR_MAX

    def write_head(self, reply: Reply) -> None:
        reply.array(2)
        reply.bulk(b"%d" % self.cursor)
        reply.array(self.found)

    def is_complete(self) -> bool:
        """Return whether the scan has ended. A BUSYLOOP examines all entries, any other scan only one slice."""
        if self.cursor >= self._end:
            # The remaining entries are newer than the scan.
            self.cursor = 0
        return self.cursor == 0 or not self.query.busyloop


class QueueScan(_CursorScan):
    """Runs QSCAN."""

    def __init__(self, engine: Engine, disque: Disque, query: Query) -> None:
        super().__init__(engine, disque, query, engine.next_number)

    def scan(self, caller: Caller, now: i64) -> bool:
        query = self.query
        page = self.page(caller)
        tubes, self.cursor = self._engine.scan_tubes(self.cursor, SCAN_SLICE if query.busyloop else query.count)
        for tube in tubes:
            if tube.number >= self._end:
                self.cursor = 0
                break
            length = tube.count_in(s.READY)
            if query.len_min <= length <= query.len_max and self._disque.import_rate(tube, now) >= query.import_rate:
                if caller.any_tube or caller.may_use(tube.name):
                    if not self.fits(page, len(tube.name), query.busyloop):
                        self.cursor = tube.number
                        break
                    page.bulk(tube.name)
                    self.found += 1
        self.add(page)
        return self.is_complete()


class JobScan(_CursorScan):
    """Runs JSCAN."""

    def __init__(self, engine: Engine, disque: Disque, query: Query) -> None:
        super().__init__(engine, disque, query, engine.next_id)

    def scan(self, caller: Caller, now: i64) -> bool:
        query = self.query
        tube: Tube | None = None
        if query.queue is not None:
            tube = self._engine.tubes.get(query.queue)
            if tube is None:
                self.cursor = 0
                return True
        page = self.page(caller)
        jobs, self.cursor = self._engine.scan(
            self.cursor, SCAN_SLICE if query.busyloop else query.count, tube, query.states
        )
        for job in jobs:
            if job.id >= self._end:
                self.cursor = 0
                break
            name = self._engine.tube_of(job).name
            if not caller.any_tube and not caller.may_use(name):
                continue
            if self.found == query.count and not query.busyloop:
                # The engine scans the job table in whole pages and may return more jobs than `count`.
                self.cursor = job.id
                break
            length = _JOB_BYTES + len(name) + job.reply_length() if query.whole else LONG_ID_BYTES
            if not self.fits(page, length, query.busyloop):
                self.cursor = job.id
                break
            if query.whole:
                self._disque.write_job(page, job, now)
            else:
                page.simple(self._disque.context.id_of(job))
            self.found += 1
        self.add(page)
        return self.is_complete()


class PeekNewest(PeekCommand):
    """Runs QPEEK for a negative count: replies with the newest jobs of a queue, the newest first."""

    def __init__(self, engine: Engine, disque: Disque, name: bytes, count: int) -> None:
        super().__init__(disque, engine.tubes.get(name), count, True)
