"""The JOB commands: commands about one job, and commands that list jobs."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core import views
from penstock.core.commands import edits
from penstock.core.commands.scans import Listing
from penstock.core.engine import Engine
from penstock.core.errors import BadSyntax, CrossHome, OutOfRange, UnknownJob
from penstock.core.ids import LONG_ID_BYTES
from penstock.core.job import BODY_BYTES, Job
from penstock.core.limits import BATCH_JOBS_MAX, NEVER, UNSET, check_count
from penstock.core.tube import Tube
from penstock.core.waits import END_NAMES, END_UNKNOWN, EndWait, Waiting
from penstock.dialects.native.arguments import (
    Words,
    body_kind,
    check_kind,
    duration,
    excerpt,
    parse_cursor,
    parse_priority,
    read_shard,
)
from penstock.dialects.native.delivery_commands import (
    AckOrDeleteMany,
    DeliveryCommands,
    read_delay,
)
from penstock.dialects.native.packed_jobs import write_packed
from penstock.dialects.native.search_reply import SearchReply, estimated_bytes, write_job_and_state
from penstock.dialects.pages import PAGE_BYTES_MAX, SCAN_SLICE, PagedReply
from penstock.node.caller import SLICE, Caller, WaitReply, check_tube
from penstock.search.conditions import Condition, parse_condition
from penstock.search.job_search import EXAMINED_DEFAULT, JobSearch, check_examined
from penstock.wire.reply import Reply

_SCAN_COUNT_DEFAULT: Final = 100
_LIST_COUNT_DEFAULT: Final = 1_000

_SCAN_OPTIONS: Final = [
    *("TUBE", "STATE", "COUNT", "SHARD", "IDS", "PACKED", "NOBODIES", "HEADERS", "SINCE", "WHERE", "EXAMINE"),
]

_STATES: Final[dict[bytes, int]] = {name.encode(): state for state, name in enumerate(s.STATE_NAMES) if state != s.GONE}


class JobCommands:
    """The commands that begin with JOB."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native
        self._engine: Engine = native.context.engine
        self._processed_reply: WaitReply = _ProcessedReply()
        self._outcome_reply: WaitReply = _OutcomeReply()

    # Commands of the session that holds the job

    def touch(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB TOUCH id [duration]: extend the ttr of a taken job by `duration`; without it, restart the ttr."""
        words = Words(args, 3)
        more = duration(words.value(), "the time to add") if words.has_more() else UNSET
        words.check_end()
        job = self._native.job(caller, args[2], now)
        self._native.reply_with_outcome(caller, self._engine.touch(caller.connection.session, job, now, more))

    def nack(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB NACK id [REASON text] [DELAY duration] [THEN PUT tube body ...].

        Report that a job failed, and put others. Its retry policy decides what follows. DELAY replaces the pause that
        the policy would make.
        """
        words = Words(args, 3)
        reason = b""
        delay = UNSET
        then = False
        while words.has_more() and not then:
            word = words.option()
            if word == b"REASON":
                reason = words.value()
            elif word == b"DELAY":
                delay = words.duration()
            elif word == b"THEN":
                words.at -= 1
                then = True
            else:
                raise words.unknown(["REASON", "DELAY", "THEN"])
        engine, session = self._engine, caller.connection.session
        if then:
            self._native.settle_then(
                caller, args[2], words, now, lambda job: engine.nack(session, job, now, reason, delay)
            )
            return
        job = self._native.job(caller, args[2], now)
        self._native.reply_with_outcome(caller, engine.nack(session, job, now, reason, delay))

    def done(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB DONE id result [AS bytes|text|json|msgpack] [TTL duration] [THEN PUT tube body ...].

        Ack a job and keep `result` in place of its body, for the time TTL. Put other jobs in the same step.
        """
        words = Words(args, 4)
        kind = BODY_BYTES
        ttl = UNSET
        then = False
        while words.has_more() and not then:
            word = words.option()
            if word == b"AS":
                kind = body_kind(words.value())
            elif word == b"TTL":
                ttl = words.duration()
            elif word == b"THEN":
                words.at -= 1
                then = True
            else:
                raise words.unknown(["AS", "TTL", "THEN"])
        check_kind(args[3], kind)
        engine, session = self._engine, caller.connection.session
        self._native.context.reserve_log(len(args[3]))
        if then:
            done_as, done_ttl = kind, ttl
            self._native.settle_then(
                caller, args[2], words, now, lambda job: engine.done(session, job, args[3], done_as, now, done_ttl)
            )
            return
        job = self._native.job(caller, args[2], now)
        self._native.reply_with_outcome(caller, engine.done(session, job, args[3], kind, now, ttl))

    def move(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB MOVE id tube [DELAY duration]: move a job to the end of another tube on this node."""
        delay = read_delay(Words(args, 4))
        job = self._native.job(caller, args[2], now)
        check_tube(caller, args[3])
        if args[3] not in self._engine.tubes and self._native.context.is_elsewhere(args[3]):
            raise CrossHome("the tube is on another node; put a new job there and ack this one instead of moving it")
        target = self._engine.tube(args[3])
        self._native.reply_with_outcome(caller, self._engine.move(caller.connection.session, job, target, now, delay))

    # Commands of any client

    def delete(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB DELETE id [id ...]: delete jobs in any state and reply with their number."""
        if len(args) > 3:
            self._native.context.split_by_node(caller, args, 2)
        self._native.ack_or_delete(caller, AckOrDeleteMany(self._native, args[2:], True), now)

    def snatch(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB SNATCH id [DELAY duration]: take a job away from the session that holds it."""
        delay = read_delay(Words(args, 3))
        self._native.reply_with_outcome(caller, self._engine.snatch(self._native.job(caller, args[2], now), now, delay))

    def restart(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB RESTART id [DELAY duration]: make a delayed or kept job ready again."""
        delay = read_delay(Words(args, 3))
        self._native.reply_with_outcome(
            caller, self._engine.restart(self._native.job(caller, args[2], now), now, delay)
        )

    def switch(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB SWITCH id state [DELAY duration]: change the state of a job that is not taken."""
        state = _parse_state(args[3])
        delay = read_delay(Words(args, 4))
        self._native.reply_with_outcome(
            caller, self._engine.switch(self._native.job(caller, args[2], now), state, now, delay)
        )

    def set_priority(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB PRIORITY id n: change the priority of a job that is ready, delayed or buried."""
        priority = parse_priority(args[3])
        job = self._native.job(caller, args[2], now)
        self._native.reply_with_outcome(caller, edits.set_priority(self._engine, job, now, priority))

    def run(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB RUN id: make a delayed job ready now."""
        job = self._native.job(caller, args[2], now)
        self._native.reply_with_outcome(caller, edits.end_delay(self._engine, job, now))

    def edit(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB EDIT id body [AS bytes|text|json|msgpack]: replace the body of a job that is not taken."""
        words = Words(args, 4)
        kind = BODY_BYTES
        while words.has_more():
            if words.option() != b"AS":
                raise words.unknown(["AS"])
            kind = body_kind(words.value())
        check_kind(args[3], kind)
        job = self._native.job(caller, args[2], now)
        self._native.context.reserve_log(len(args[3]))
        self._native.reply_with_outcome(caller, edits.edit(self._engine, job, now, args[3], kind))

    # Inspecting

    def peek(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB PEEK id: reply with a job, its body and its state."""
        self._write(caller.reply, self._native.job(caller, args[2], now))

    def named(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB NAMED tube name: reply with the job that has this name. Raise UnknownJob if there is none."""
        check_tube(caller, args[2])
        job = self._engine.find_named(self._native.context.tube(args[2]), args[3], now)
        if job is None:
            raise UnknownJob()
        self._write(caller.reply, job)

    def meta(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB META id: reply with a map that describes a job without its body."""
        job = self._native.job(caller, args[2], now)
        told = views.meta(self._engine, job, self._native.context.id_of(job))
        reply = caller.reply
        reply.map(len(told))
        for name, value in told.items():
            reply.bulk(name.encode())
            if value is None:
                reply.null()
            elif isinstance(value, bytes):
                reply.bulk(value)
            else:
                reply.integer(value)

    def wait(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB WAIT id [TIMEOUT duration] [TUBE tube] [OUTCOME]: wait until a job ends or fails for good."""
        words = Words(args, 3)
        timeout = NEVER
        home: Tube | None = None
        ending = self._processed_reply
        while words.has_more():
            word = words.option()
            if word == b"TIMEOUT":
                timeout = words.duration()
            elif word == b"TUBE":
                name = words.value()
                check_tube(caller, name)
                home = self._engine.tubes.get(name)
            elif word == b"OUTCOME":
                ending = self._outcome_reply
            else:
                raise words.unknown(["TIMEOUT", "TUBE", "OUTCOME"])
        job = self._native.find(caller, args[2], now)
        if job is None:
            self._native.refuse_elsewhere(args[2])
            # The job ended earlier, and its outcome is no longer known.
            if ending is self._outcome_reply:
                write_end(caller.reply, END_UNKNOWN, b"")
            else:
                caller.reply.integer(0)
            return
        wait = self._engine.wait_end(caller.connection, job, now, timeout, caller, True, home)
        caller.wait_for(wait, ending)

    def list_jobs(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB LIST tube state [COUNT n]: reply with the first jobs of a state, in the order of delivery."""
        state = _parse_state(args[3])
        words = Words(args, 4)
        count = _LIST_COUNT_DEFAULT
        while words.has_more():
            if words.option() != b"COUNT":
                raise words.unknown(["COUNT"])
            count = words.integer()
        if count < 0 or count > BATCH_JOBS_MAX:
            raise OutOfRange(f"COUNT must be 0 to {BATCH_JOBS_MAX}")
        check_tube(caller, args[2])
        self._engine.advance(now)
        self._native.context.run_sliced(
            caller, _FirstJobs(self._native, self._native.context.tube(args[2]), state, count), now
        )

    def held(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB HELD [ENDWAITS]: reply with the ids of the jobs that the caller's session holds.

        With ENDWAITS, the waiting takes of the session are ended first.
        """
        words = Words(args, 2)
        session = caller.connection.session
        ends_waits = False
        while words.has_more():
            if words.option() != b"ENDWAITS":
                raise words.unknown(["ENDWAITS"])
            ends_waits = True
        self._native.context.spread_to_used_nodes(caller, args)
        if ends_waits:
            self._engine.end_takes(session, now)
        self._engine.advance(now)
        self._native.context.run_sliced(caller, _HeldJobs(self._native, list(session.held)), now)

    def scan(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB SCAN cursor [TUBE tube] [STATE state ...] [COUNT n] [SHARD i n] [IDS | PACKED] [further options].

        Reply with the next cursor and some jobs: their ids, columns of their fields (PACKED), or a map for each job.
        NOBODIES leaves out the bodies. HEADERS adds the headers to the columns, and SINCE the time at which each job
        entered its state and the session that holds it. The map of a job always has the headers. SHARD examines only
        part `i` of `n` disjoint parts of the jobs. Every call of a scan must have the same SHARD.

        WHERE condition replies only with jobs that meet the condition (`SearchReply`). Such a call examines up to
        EXAMINE jobs.
        """
        scan = _Scan(self._native, parse_cursor(args[2]))
        condition: Condition | None = None
        examined_max = EXAMINED_DEFAULT
        words = Words(args, 3)
        while words.has_more():
            word = words.option()
            if word == b"COUNT":
                scan.count = min(check_count(words.integer(), "COUNT"), SLICE)
            elif word == b"TUBE":
                name = words.value()
                check_tube(caller, name)
                scan.tube = self._native.context.tube(name)
            elif word == b"STATE":
                scan.states |= read_states(words)
            elif word == b"SHARD":
                scan.shard, scan.shards = read_shard(words)
            elif word == b"IDS":
                scan.ids = True
            elif word == b"NOBODIES":
                scan.bodies = False
            elif word == b"PACKED":
                scan.packed = True
            elif word == b"HEADERS":
                scan.headers = True
            elif word == b"SINCE":
                scan.since = True
            elif word == b"WHERE":
                condition = parse_condition(words.text())
            elif word == b"EXAMINE":
                examined_max = check_examined(words.integer())
            else:
                raise words.unknown(_SCAN_OPTIONS)
        self._engine.advance(now)
        if condition is None:
            self._native.context.run_sliced(caller, scan, now)
            return
        if scan.packed:
            raise BadSyntax("PACKED is not available together with WHERE; ask for the maps of the jobs, or for IDS")
        context = self._native.context
        search = JobSearch(self._engine, condition, parse_cursor(args[2]), now, context.id_of, context.body_of)
        search.tube, search.states = scan.tube, scan.states or -1
        search.may_use = None if caller.any_tube else caller.may_use
        search.shard, search.shards = scan.shard, scan.shards
        search.examined_max = examined_max
        context.run_sliced(caller, SearchReply(self._native, search, scan.count, scan.ids, scan.bodies), now)

    def _write(self, reply: Reply, job: Job) -> None:
        write_job_and_state(self._native, reply, job)


def read_states(words: Words) -> int:
    """Read one or more names of states. Return a mask with a bit for each of these states."""
    states = 1 << _parse_state(words.value())
    while words.has_more() and words.args[words.at].lower() in _STATES:
        states |= 1 << _parse_state(words.value())
    return states


def _parse_state(word: bytes) -> int:
    state = _STATES.get(word.lower())
    if state is None:
        raise OutOfRange(f"a state is one of {', '.join(s.STATE_NAMES[1:])}, not {excerpt(word)}")
    return state


def write_end(reply: Reply, end: int, reason: bytes) -> None:
    """Write the outcome of a job and the reason for it."""
    reply.map(2)
    reply.bulk(b"outcome")
    reply.bulk(END_NAMES[end].encode())
    reply.bulk(b"reason")
    reply.bulk(reason)


class _OutcomeReply(WaitReply):
    """Writes the reply of a JOB WAIT with the option OUTCOME."""

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, EndWait)
        # The job may have moved to a tube that the caller may not use, so the reason is hidden.
        hidden = wait.moved and not caller.any_tube
        write_end(caller.reply, int(wait.end), b"" if hidden else wait.reason)


class _ProcessedReply(WaitReply):
    """Writes the reply of a JOB WAIT without the option OUTCOME."""

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, EndWait)
        caller.reply.integer(1 if wait.processed else 0)


class _Scan(PagedReply):
    """Runs JOB SCAN: examines one slice of the jobs and replies with the next cursor and the jobs that match."""

    def __init__(self, native: DeliveryCommands, cursor: int) -> None:
        super().__init__()
        self._native = native
        self._cursor = cursor
        self.tube: Tube | None = None
        self.states = 0  # A bit for each wanted state; 0 for all states.
        self.count: int = _SCAN_COUNT_DEFAULT
        self.shard = 0
        self.shards = 1
        self.ids = False  # Reply only with ids.
        self.bodies = True  # Reply with bodies; otherwise they are empty.
        self.packed = False  # Reply with columns.
        self.headers = False  # Add the headers to the columns.
        self.since = False  # Add times and sessions to the columns.

    def write_head(self, reply: Reply) -> None:
        reply.array(2)
        reply.bulk(b"%d" % self._cursor)
        reply.array(self.found)

    def scan(self, caller: Caller, now: i64) -> bool:
        native = self._native
        engine = native.context.engine
        page = self.page(caller)
        jobs, self._cursor = engine.scan(
            self._cursor, self.count, self.tube, self.states or -1, self.shard, self.shards
        )
        if self.packed:
            self._pack(caller, page, jobs)
            return True
        for job in jobs:
            name = engine.tube_of(job).name
            if not caller.any_tube and not caller.may_use(name):
                continue
            if not self.fits(page, LONG_ID_BYTES if self.ids else estimated_bytes(job, name), False):
                self._cursor = job.id
                break
            if self.ids:
                page.bulk(native.context.id_of(job))
            else:
                write_job_and_state(native, page, job, None if self.bodies else b"")
            self.found += 1
        self.add(page)
        return True

    def _pack(self, caller: Caller, page: Reply, jobs: list[Job]) -> None:
        """Write jobs as columns (`packed_jobs.py`). All columns together are one item of the reply's array."""
        some: list[Job] = []
        length: i64 = 0
        for job in jobs:
            name = self._native.context.engine.tube_of(job).name
            if not caller.any_tube and not caller.may_use(name):
                continue
            length += estimated_bytes(job, name)
            if some and length > PAGE_BYTES_MAX:
                self._cursor = job.id
                break
            some.append(job)
        if some:
            write_packed(self._native, page, some, self.bodies, self.headers, self.since)
            self.found = 1
        self.add(page)


class _HeldJobs(PagedReply):
    """Runs JOB HELD: replies with the ids of the jobs that a session held when the command began."""

    def __init__(self, native: DeliveryCommands, jobs: list[Job]) -> None:
        super().__init__()
        self._native = native
        self._jobs = jobs
        self._at = 0

    def scan(self, caller: Caller, now: i64) -> bool:
        page = self.page(caller)
        for job in self._jobs[self._at : self._at + SLICE]:
            # Another user may have taken the job in this session, before this caller joined it or logged in.
            if self._native.may_still_use(caller, job):
                page.bulk(self._native.context.id_of(job))
                self.found += 1
        self.add(page)
        self._at += SLICE
        return self._at >= len(self._jobs)


class _FirstJobs(PagedReply):
    """Runs JOB LIST: replies with the first jobs of a state in the order in which they would be delivered.

    The jobs are found and written in slices. Jobs that changed their state in the meantime are left out.
    """

    _native: DeliveryCommands
    _tube: Tube
    _parse_state: int
    _listing: Listing
    _is_listing: bool
    _first: list[Job]
    _at: int

    def __init__(self, native: DeliveryCommands, tube: Tube, state: int, count: int) -> None:
        super().__init__()
        self._native = native
        self._tube = tube
        self._state = state
        self._listing = Listing(native.context.engine, tube, state, count, SLICE)
        self._is_listing = True
        self._first = []
        self._at = 0

    def scan(self, caller: Caller, now: i64) -> bool:
        if self._is_listing:
            if not self._listing.step(SCAN_SLICE):
                return False
            self._is_listing = False
            self._first = self._listing.jobs()
        if self._tube.dropped:
            return True
        page = self.page(caller)
        for job in self._first[self._at : self._at + SCAN_SLICE]:
            if job.state != self._state or job.tube != self._tube.slot:
                continue
            if not self.fits(page, estimated_bytes(job, self._tube.name), True):
                self.add(page)
                page = self.page(caller)
            write_job_and_state(self._native, page, job)
            self.found += 1
        self.add(page)
        self._at += SCAN_SLICE
        return self._at >= len(self._first)
