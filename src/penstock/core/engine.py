"""The engine: every tube of a node. A command in, its outcome out, at a moment that the caller names.

The rules it lives by:
- Time is an argument. Every command first lets what fell due until `now` happen (`advance`), so no job is taken after
  its ttl, acked after its ttr, or handed out before its delay, however late the shell is.
- `_move` is the one way in which a job changes: out of its old place, through the table of states.py, into its new
  place, its deadline set, the outbox told.
- At the end of a command no waiting take and no job that it could have coexist (`_settle`).
- A command that is refused has changed nothing. Refusals that clients cause in bulk are small integers (errors.py);
  the rest are raised before the first change.

A Job that a command returns is the engine's own: read it at once, do not keep it. Look it up again by its id.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.deadlines import NOWHERE, Deadlines, Timed
from penstock.core.errors import (
    NO_JOB,
    NOT_BURIED,
    NOT_OWNER,
    NOT_TAKEN,
    OK,
    ONLY_ONCE,
    OutOfRange,
    Paused,
    TooManyWaits,
    TubeAwaited,
    TubeExists,
    TubeTaken,
    UnknownSession,
    UnknownTube,
)
from penstock.core.ids import first_id
from penstock.core.job import NO_KEY, NO_SLOT, Draft, Job
from penstock.core.limits import (
    BATCH_JOBS_MAX,
    BODY_BYTES_MAX,
    FIRED_PER_TURN_MAX,
    LOCAL_IDS_BLOCK,
    NEVER,
    PRIORITY_UNSET,
    REASON_BYTES_MAX,
    SCAN_EXAMINED_MAX,
    UNSET,
    WAIT_TUBES_MAX,
    WAITS_PER_CONNECTION_MAX,
    check_body,
    check_count,
    check_duration,
    check_finite,
    check_name,
    check_priority,
)
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.sessions import Session
from penstock.core.table import JobTable, NumberSet
from penstock.core.tube import Tube, key_of
from penstock.core.waits import Connection, Line, Wait


class Engine:
    """All tubes, jobs, sessions and deadlines of one node."""

    now: i64  # The latest moment it was told of; time never goes back.
    outbox: Outbox
    body_bytes_max: i64
    session_grace_ms: i64  # How long a session outlives its last connection.
    jobs: JobTable
    deadlines: Deadlines
    tubes: dict[bytes, Tube]
    sessions: dict[bytes, Session]
    _next_id: i64
    _last_creation: i64  # The newest place given out in tubes ordered by creation.
    _next_number: i64  # Tubes, sessions, connections and waits are numbered from one counter.
    _tube_slots: list[Tube | None]
    _tube_slots_free: list[i32]
    _tube_numbers: NumberSet
    _tubes_by_number: dict[int, Tube]
    _session_slots: list[Session | None]
    _session_slots_free: list[i32]
    _woken: list[Tube]  # Tubes in which a waiting take and a job for it may have met.

    def __init__(self, epoch: int, now: i64, outbox: Outbox) -> None:
        """Start empty. The epoch is one that no earlier opening had; see ids.py."""
        self.now = now
        self.outbox = outbox
        self.body_bytes_max = BODY_BYTES_MAX
        self.session_grace_ms = 0
        self.jobs = JobTable()
        self.deadlines = Deadlines()
        self.tubes = {}
        self.sessions = {}
        self._next_id = first_id(epoch)
        self._last_creation = 0
        self._next_number = 1
        self._tube_slots = []
        self._tube_slots_free = []
        self._tube_numbers = NumberSet()
        self._tubes_by_number = {}
        self._session_slots = []
        self._session_slots_free = []
        self._woken = []

    # Time

    def advance(self, now: i64) -> None:
        """Let what fell due happen, as much as one turn may; `deadlines.next_due` tells when to come again."""
        if now > self.now:
            self.now = now
        if self.deadlines.next_due <= now:
            fired: i64 = 0
            while self.deadlines.next_due <= now and fired < FIRED_PER_TURN_MAX:
                fired += self._fire(self.deadlines.first(), now)
        if self._woken:
            self._settle(now)

    def _fire(self, item: Timed, now: i64) -> i64:
        """Let one deadline happen; tell how much work it was."""
        if isinstance(item, Job):
            self._fire_job(item, now)
            return 1
        if isinstance(item, Wait):
            self._end_wait(item, w.TIMED_OUT)
            return 1
        assert isinstance(item, Session)
        return self._end_session(item, now)

    def _fire_job(self, job: Job, now: i64) -> None:
        tube = self.tube_of(job)
        if job.state == s.TAKEN and not (tube.ttl_kills and job.expiry <= now):
            job.returns += 1
            self._move(job, tube, s.TTR_PASSED, now)
        elif job.expiry <= now:
            self._move(job, tube, s.EXPIRED, now)
        else:
            assert job.state == s.DELAYED
            self._move(job, tube, s.DELAY_PASSED, now)

    # Tubes

    def create_tube(self, name: bytes, policy: TubePolicy, now: i64) -> Tube:
        """Make a tube, or find it if it exists with the same policy."""
        self.advance(now)
        check_name(name, "the name of a tube")
        policy.check()
        there = self.tubes.get(name)
        if there is not None:
            if there.policy == policy:
                return there
            raise TubeExists(f"tube {_shown(name)} exists as a {there.policy.type} tube with other options")
        free = self._tube_slots_free
        slot: i32 = free.pop() if free else len(self._tube_slots)
        tube = Tube(name, self._number(), slot, policy, now)
        if slot == len(self._tube_slots):
            self._tube_slots.append(tube)
        else:
            self._tube_slots[slot] = tube
        self.tubes[name] = tube
        self._tube_numbers.add(tube.number)
        self._tubes_by_number[tube.number] = tube
        self.outbox.tube_made(tube, now)
        return tube

    def tube(self, name: bytes) -> Tube:
        """The tube of this name."""
        tube = self.tubes.get(name)
        if tube is None:
            raise UnknownTube(f"there is no tube {_shown(name)}; create it first")
        return tube

    def tube_of(self, job: Job) -> Tube:
        """The tube of a job."""
        tube = self._tube_slots[job.tube]
        assert tube is not None
        return tube

    def pause(self, tube: Tube, inward: bool, outward: bool, now: i64) -> None:
        """Say which way a tube is closed: for puts, for takes, both or neither."""
        self.advance(now)
        if tube.paused_in == inward and tube.paused_out == outward:
            return
        tube.paused_in = inward
        opened = tube.paused_out and not outward
        tube.paused_out = outward
        self.outbox.tube_changed(tube, now)
        if opened:
            tube.woken_keys.extend(tube.key_lines)
            self._note(tube, None)
            self._settle(now)

    def truncate(self, tube: Tube, now: i64, limit: int = BATCH_JOBS_MAX) -> int:
        """Remove up to `limit` jobs, in whatever state; tell how many went. Call again until none does."""
        self.advance(now)
        removed = 0
        for state in (s.READY, s.DELAYED, s.BURIED, s.TAKEN):
            jobs = tube.jobs_in(state)
            # From the end, where leaving a heap or a bag is cheapest.
            for job in jobs[: -(limit - removed) - 1 : -1]:
                self._move(job, tube, s.TRUNCATED, now)
                removed += 1
        self._settle(now)
        return removed

    def drop(self, tube: Tube, now: i64) -> None:
        """Remove a tube and the jobs in it; refused while consumers wait on it or hold its jobs."""
        self.advance(now)
        if self._waiting(tube):
            raise TubeAwaited(f"consumers are waiting on tube {_shown(tube.name)}; let their takes end, then drop it")
        if len(tube.taken):
            raise TubeTaken(
                f"tube {_shown(tube.name)} has {len(tube.taken)} taken jobs; wait for their acks or release them, then drop it"
            )
        while tube.total():
            self.truncate(tube, now)
        tube.dropped = True
        self.outbox.tube_dropped(tube, now)
        del self.tubes[tube.name]
        del self._tubes_by_number[tube.number]
        self._tube_numbers.remove(tube.number)
        self._tube_slots[tube.slot] = None
        self._tube_slots_free.append(tube.slot)

    def scan_tubes(self, cursor: int, count: int) -> tuple[list[Tube], int]:
        """Up to `count` tubes from a cursor on, and the cursor to go on from; 0 begins, and 0 is the end."""
        check_count(count, "count")
        found: list[Tube] = []
        index = self._tube_numbers.index_from(cursor)
        while True:
            number = self._tube_numbers.at(index)
            if number < 0:
                return found, 0
            tube = self._tubes_by_number.get(number)
            if tube is not None:
                if len(found) == count:
                    return found, number
                found.append(tube)
            index += 1

    # Putting

    def put(self, tube: Tube, draft: Draft, now: i64) -> Job:
        """Add a job. If somebody waits for it, it is taken when this returns."""
        self.advance(now)
        if tube.paused_in:
            raise Paused(f"tube {_shown(tube.name)} is paused for puts; try later, or resume it")
        check_body(len(draft.body), self.body_bytes_max)
        job = tube.make(self._next_id, draft, now)
        self._admit(job, tube, draft, now)
        if self._woken:
            self._settle(now)
        return job

    def put_many(self, tube: Tube, drafts: list[Draft], now: i64) -> list[Job]:
        """Add all of these jobs, or none."""
        self.advance(now)
        check_count(len(drafts), "the number of jobs in one put")
        if tube.paused_in:
            raise Paused(f"tube {_shown(tube.name)} is paused for puts; try later, or resume it")
        for draft in drafts:
            check_body(len(draft.body), self.body_bytes_max)
            tube.make(self._next_id, draft, now)
        jobs: list[Job] = []
        for draft in drafts:
            job = tube.make(self._next_id, draft, now)
            self._admit(job, tube, draft, now)
            jobs.append(job)
        self._settle(now)
        return jobs

    def _admit(self, job: Job, tube: Tube, draft: Draft, now: i64) -> None:
        self._next_id += 1
        if tube.by_creation:
            # Two jobs made in one millisecond must still sort as they were made, here and on every node.
            creation = now * 1_000_000
            if creation <= self._last_creation:
                creation = self._last_creation + 1
            self._last_creation = creation
            job.order = creation
        if tube.locals is not None:
            tube.next_local += 1
            if tube.next_local > tube.reserved:
                tube.reserved += LOCAL_IDS_BLOCK
                self.outbox.integers_reserved(tube, tube.reserved, now)
            tube.locals.add(job)
        if tube.keys is not None:
            tube.keys.join(job, NO_KEY if draft.key is None else draft.key)
        self.jobs.add(job)
        tube.body_bytes += len(draft.body)
        self._move(job, tube, s.PUT if job.wake == NEVER else s.PUT_DELAYED, now)

    # Taking

    def take(
        self, session: Session, tube: Tube, now: i64, key: bytes | None = None, ttr_ms: int = UNSET
    ) -> Job | None:
        """Hand out the next job of a tube, if there is one."""
        self.advance(now)
        if key is not None:
            tube.check_key(key)
        elif tube.named:
            key = NO_KEY
        if ttr_ms != UNSET:
            _check_ttr(tube, ttr_ms)
        if session.connections == 0:
            raise UnknownSession()
        return self._take(session, tube, key, ttr_ms, now)

    def take_many(
        self,
        session: Session,
        tubes: list[Tube],
        count: int,
        now: i64,
        key: bytes | None = None,
        ttr_ms: int = UNSET,
    ) -> list[Job]:
        """Hand out up to `count` jobs: one of each tube in turn, as they are named, until none has any."""
        check_count(count, "count")
        jobs: list[Job] = []
        found = True
        while found:
            found = False
            for tube in tubes:
                if len(jobs) == count:
                    return jobs
                job = self.take(session, tube, now, key, ttr_ms)
                if job is not None:
                    jobs.append(job)
                    found = True
        return jobs

    def wait(
        self,
        connection: Connection,
        tubes: list[Tube],
        now: i64,
        timeout_ms: int = NEVER,
        count: int = 1,
        key: bytes | None = None,
        ttr_ms: int = UNSET,
        tag: object = None,
    ) -> Wait:
        """Take when there is something to take: the outbox tells when it is served, or when its time is over."""
        check_duration(timeout_ms, "timeout")
        check_count(count, "count")
        if len(tubes) < 1 or len(tubes) > WAIT_TUBES_MAX:
            raise OutOfRange(f"a take may wait on 1 to {WAIT_TUBES_MAX} tubes")
        if len(connection.waits) >= WAITS_PER_CONNECTION_MAX:
            raise TooManyWaits()
        for tube in tubes:
            if key is not None:
                tube.check_key(key)
            if ttr_ms != UNSET:
                _check_ttr(tube, ttr_ms)
        self.advance(now)
        wait = Wait(self._number(), connection, count, ttr_ms, tag)
        for tube in tubes:
            line = _line_of(tube, key)
            line.join(wait)
            name = None if line is tube.line else line.key
            if tube.first_ready(name) is not None:
                self._note(tube, name)
        connection.waits[wait.number] = wait
        if timeout_ms != NEVER:
            self.deadlines.set(wait, now + i64(timeout_ms))
        self._settle(now)
        return wait

    def cancel(self, wait: Wait) -> None:
        """Stop waiting, unless it ended already."""
        if wait.outcome == w.WAITING:
            self._end_wait(wait, w.CANCELLED)

    def undelivered(self, job: Job, now: i64) -> None:
        """Take a job back whose taker vanished before a byte of it was written: it was never delivered."""
        assert job.state == s.TAKEN
        job.deliveries -= 1
        self._move(job, self.tube_of(job), s.UNDELIVERED, now)
        self._settle(now)

    def _take(self, session: Session, tube: Tube, key: bytes | None, ttr_ms: int, now: i64) -> Job | None:
        if tube.paused_out:
            return None
        job = self._first(tube, key, now)
        if job is not None:
            self._deliver(job, tube, session, ttr_ms, now)
        return job

    def _first(self, tube: Tube, key: bytes | None, now: i64) -> Job | None:
        """The next job that is alive. Those whose ttl passed and that no turn got round to yet expire here."""
        expired: i64 = 0
        while True:
            job = tube.first_ready(key)
            if job is None or job.expiry > now:
                return job
            if expired == FIRED_PER_TURN_MAX:
                # Enough for one command: the turns to come clear the rest, and look at who waits.
                self._note(tube, key)
                return None
            self._move(job, tube, s.EXPIRED, now)
            expired += 1

    def _deliver(self, job: Job, tube: Tube, session: Session, ttr_ms: int, now: i64) -> None:
        job.deliveries += 1
        ttr = job.ttr
        if ttr_ms != UNSET and not job.once:
            ttr = ttr_ms
        job.wake = NEVER if ttr == NEVER else now + ttr
        if tube.owned:
            session.hold(job)
        self._move(job, tube, s.TOOK, now)

    # Finishing

    def find(self, job_id: i64, now: i64) -> Job | None:
        """The job of this id, as it is now."""
        self.advance(now)
        return self.jobs.find(job_id)

    def find_local(self, tube: Tube, local: i64, now: i64) -> Job | None:
        """The job of this integer within a tube, as it is now."""
        self.advance(now)
        return None if tube.locals is None else tube.locals.find(local)

    def ack(self, session: Session, job: Job, now: i64) -> int:
        """The work is done: the job goes. Where anyone may ack, this also cancels a job that nobody holds."""
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if tube.owned or not s.allowed(i64(job.state), s.ACKED):
            refusal = self._not_held(job, session, tube.owned)
            if refusal != OK:
                return refusal
        self._move(job, tube, s.ACKED, now)
        if self._woken:
            self._settle(now)
        return OK

    def release(
        self,
        session: Session,
        job: Job,
        now: i64,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        priority: int = PRIORITY_UNSET,
    ) -> int:
        """Give a job back unfinished: to its old place, or after a delay, with a new ttl or priority if given."""
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        refusal = self._not_returnable(job, session, tube)
        if refusal != OK:
            return refusal
        _check_return(tube, delay_ms, ttl_ms, priority)
        job.returns += 1
        self._send_back(job, tube, s.RELEASED, s.POSTPONED, now, delay_ms, ttl_ms, priority)
        return OK

    def nack(self, session: Session, job: Job, now: i64) -> int:
        """Give a job back because it failed: as release, and counted as a failure."""
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        refusal = self._not_returnable(job, session, tube)
        if refusal != OK:
            return refusal
        job.nacks += 1
        self._move(job, tube, s.NACKED, now)
        self._settle(now)
        return OK

    def bury(self, session: Session, job: Job, now: i64, reason: bytes = b"") -> int:
        """Put a job aside until somebody digs it up, and say why."""
        if len(reason) > REASON_BYTES_MAX:
            raise OutOfRange(f"a reason must have at most {REASON_BYTES_MAX} bytes")
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if tube.bury_owned:
            refusal = self._not_held(job, session, tube.owned)
            if refusal != OK:
                return refusal
        if job.state == s.BURIED:
            return OK
        extra = job.rare()
        extra.reason = reason
        extra.buries += 1
        self._move(job, tube, s.BURIED_BY, now)
        self._settle(now)
        return OK

    def touch(self, session: Session, job: Job, now: i64, more_ms: int = UNSET) -> int:
        """Ask for more time: so much more, or a whole ttr from now. More time also prolongs the ttl."""
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if not tube.policy.has_ttr:
            raise tube.lacks("ttr, so there is nothing to touch")
        if more_ms != UNSET:
            check_finite(more_ms, "the time to add")
        refusal = self._not_held(job, session, tube.owned)
        if refusal != OK:
            return refusal
        if more_ms == UNSET:
            job.wake = NEVER if job.ttr == NEVER else now + job.ttr
        else:
            job.wake = _later(job.wake, more_ms)
            job.expiry = _later(job.expiry, more_ms)
            job.ttr = _later(job.ttr, more_ms)
        self._move(job, tube, s.TOUCHED, now)
        return OK

    def delete(self, job: Job, now: i64) -> int:
        """Remove a job, whatever its state and whoever holds it."""
        if job.state == s.GONE:
            return NO_JOB
        self._move(job, self.tube_of(job), s.DELETED, now)
        self._settle(now)
        return OK

    def dig(
        self,
        job: Job,
        now: i64,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        priority: int = PRIORITY_UNSET,
    ) -> int:
        """Dig one buried job up: to its old place, or after a delay."""
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if job.state != s.BURIED:
            return NOT_BURIED
        if job.once and job.deliveries > 0:
            return ONLY_ONCE
        _check_return(tube, delay_ms, ttl_ms, priority)
        job.returns += 1
        self._send_back(job, tube, s.KICKED, s.KICKED_DELAYED, now, delay_ms, ttl_ms, priority)
        return OK

    def kick(self, tube: Tube, count: int, now: i64) -> int:
        """Dig up to `count` buried jobs up, the first to be served first; tell how many there were."""
        self.advance(now)
        check_count(count, "the number of jobs to kick")
        kicked = 0
        while kicked < count:
            job = tube.buried.first()
            if job is None:
                break
            job.returns += 1
            self._move(job, tube, s.KICKED, now)
            kicked += 1
        self._settle(now)
        return kicked

    def scan(self, cursor: int, count: int, tube: Tube | None = None, states: int = -1) -> tuple[list[Job], int]:
        """About `count` jobs from a cursor on, and the cursor to go on from; 0 begins, and 0 is the end.

        `states` has a bit for each state asked for. A filter that matches little gives less than `count`, even
        nothing, with a cursor that is not 0.
        """
        check_count(count, "count")
        table = self.jobs
        start: i64 = cursor
        found: list[Job] = []
        examined = 0
        while len(found) < count and examined < SCAN_EXAMINED_MAX:
            batch = table.scan(start, count)
            if not batch:
                return found, 0
            examined += len(batch)
            for job in batch:
                if (tube is None or job.tube == tube.slot) and (states >> i64(job.state)) & 1:
                    found.append(job)
            start = batch[-1].id + 1
        return found, start

    # Sessions

    def connect(self, token: bytes) -> Connection:
        """A client came: it gets a session of its own, which others may join by this token."""
        assert token not in self.sessions
        free = self._session_slots_free
        slot: i32 = free.pop() if free else len(self._session_slots)
        session = Session(self._number(), slot, token)
        if slot == len(self._session_slots):
            self._session_slots.append(session)
        else:
            self._session_slots[slot] = session
        self.sessions[token] = session
        session.connections = 1
        return Connection(self._number(), session)

    def identify(self, connection: Connection, token: bytes, now: i64) -> Session:
        """Leave the present session and join the one of this token, with all it holds."""
        self.advance(now)
        session = self.sessions.get(token)
        if session is None:
            raise UnknownSession()
        if session is not connection.session:
            session.connections += 1
            self.deadlines.clear(session)
            left = connection.session
            connection.session = session
            self._leave(left, now)
        return session

    def disconnect(self, connection: Connection, now: i64) -> None:
        """A client is gone: its waiting takes end, and with its last connection the grace of its session begins."""
        for wait in list(connection.waits.values()):
            self._end_wait(wait, w.CANCELLED)
        self._leave(connection.session, now)

    def _leave(self, session: Session, now: i64) -> None:
        session.connections -= 1
        if session.connections == 0:
            self.deadlines.set(session, now + self.session_grace_ms)
        self.advance(now)

    def _end_session(self, session: Session, now: i64) -> i64:
        """Give back what a session holds, as much as one turn may, and forget it when it holds nothing."""
        released: i64 = 0
        while session.held and released < FIRED_PER_TURN_MAX:
            job = session.held[-1]
            job.returns += 1
            self._move(job, self.tube_of(job), s.DISCONNECTED, now)
            released += 1
        if not session.held:
            self.deadlines.clear(session)
            del self.sessions[session.token]
            self._session_slots[session.slot] = None
            self._session_slots_free.append(session.slot)
        return released + 1

    # How everything happens

    def _move(self, job: Job, tube: Tube, event: i64, now: i64) -> None:
        """Let an event happen to a job. The caller has set the fields that the event is about."""
        came_from = i64(job.state)
        rule = s.move(job, event)
        state = i64(job.state)
        tube.counts[rule] += 1
        if state != came_from:
            tube.displace(job, came_from)
            if came_from == s.TAKEN:
                self._let_go(job, tube)
            if state == s.GONE:
                self.outbox.moved(job, tube, rule, now)
                self._forget(job, tube)
                return
            if state == s.READY or state == s.BURIED:
                job.wake = NEVER
            tube.place(job)
            if state == s.READY:
                self._wake(tube, job)
        self._arm(job, tube)
        self.outbox.moved(job, tube, rule, now)

    def _let_go(self, job: Job, tube: Tube) -> None:
        """A job is taken no longer: its holder forgets it, and another of its key may be had."""
        if job.holder != NO_SLOT:
            holder = self._session_slots[job.holder]
            assert holder is not None
            holder.let_go(job)
            job.holder = NO_SLOT
        if tube.keys is not None:
            self._wake(tube, job)

    def _arm(self, job: Job, tube: Tube) -> None:
        """Set a job's nearest deadline: the end of its state, or of its ttl where that counts."""
        due = job.wake
        if job.expiry < due and (job.state != s.TAKEN or tube.ttl_kills):
            due = job.expiry
        if due != NEVER or job.deadline_pos != NOWHERE:
            self.deadlines.set(job, due)

    def _forget(self, job: Job, tube: Tube) -> None:
        if job.deadline_pos != NOWHERE:
            self.deadlines.clear(job)
        self.jobs.remove(job)
        if tube.locals is not None:
            tube.locals.remove(job)
        if tube.keys is not None:
            tube.keys.leave(job)
        tube.body_bytes -= job.body_length()

    def _send_back(
        self,
        job: Job,
        tube: Tube,
        event: i64,
        event_delayed: i64,
        now: i64,
        delay_ms: int,
        ttl_ms: int,
        priority: int,
    ) -> None:
        """Return a job to its place with what its holder asked for, already checked."""
        if ttl_ms != UNSET:
            job.expiry = NEVER if ttl_ms == NEVER else now + i64(ttl_ms)
        if delay_ms != 0 and tube.stretches:
            job.expiry = _later(job.expiry, delay_ms)
        if delay_ms != 0:
            job.wake = now + i64(delay_ms)
        if priority != PRIORITY_UNSET:
            job.priority = priority
        self._move(job, tube, event if delay_ms == 0 else event_delayed, now)
        self._settle(now)

    def _not_held(self, job: Job, session: Session, owned: bool) -> int:
        """Why a session may not do this to a job as its taker, or OK."""
        if job.state != s.TAKEN:
            return NOT_TAKEN
        if owned and job.holder != session.slot:
            return NOT_OWNER
        return OK

    def _not_returnable(self, job: Job, session: Session, tube: Tube) -> int:
        refusal = self._not_held(job, session, tube.owned)
        if refusal == OK and job.once:
            return ONLY_ONCE
        return refusal

    # Who waits

    def _wake(self, tube: Tube, job: Job) -> None:
        """A job can be had now; note it if somebody waits in this tube."""
        if tube.key_lines:
            self._note(tube, key_of(tube, job))
        elif tube.line.length > 0:
            self._note(tube, None)

    def _note(self, tube: Tube, key: bytes | None) -> None:
        """Look at the lines of this tube, and of this key, when the command ends."""
        if key is not None:
            tube.woken_keys.append(key)
        if not tube.woken:
            tube.woken = True
            self._woken.append(tube)

    def _settle(self, now: i64) -> None:
        """Bring those who wait and the jobs they wait for together."""
        if not self._woken:
            return
        woken = self._woken
        self._woken = []
        for tube in woken:
            names = tube.woken_keys
            tube.woken = False
            tube.woken_keys = []
            if tube.paused_out:
                continue
            self._serve_any(tube, now)
            for name in names:
                line = tube.key_lines.get(name)
                while line is not None and line.length > 0:
                    head = line.head
                    assert head is not None
                    if not self._hand_to(head.wait, tube, name, now):
                        break

    def _serve_any(self, tube: Tube, now: i64) -> None:
        """Serve the line of those who take any job; one who waits for just this key and came first goes first."""
        while True:
            head = tube.line.head
            if head is None:
                return
            job = self._first(tube, None, now)
            if job is None:
                return
            wait = head.wait
            name: bytes | None = None
            if tube.key_lines:
                line = tube.key_lines.get(key_of(tube, job))
                if line is not None and line.head is not None and line.head.wait.number < wait.number:
                    wait = line.head.wait
                    name = line.key
            self._hand_to(wait, tube, name, now)

    def _hand_to(self, wait: Wait, tube: Tube, key: bytes | None, now: i64) -> bool:
        """Serve one waiting take with as many jobs as there are and it wants."""
        session = wait.connection.session
        while len(wait.jobs) < wait.want:
            job = self._take(session, tube, key, wait.ttr_ms, now)
            if job is None:
                break
            wait.jobs.append(job)
        if not wait.jobs:
            return False
        self._end_wait(wait, w.SERVED)
        return True

    def _end_wait(self, wait: Wait, outcome: i64) -> None:
        wait.outcome = outcome
        w.leave_all(wait)
        self.deadlines.clear(wait)
        del wait.connection.waits[wait.number]
        if outcome != w.CANCELLED:
            self.outbox.ended_waits.append(wait)

    def _waiting(self, tube: Tube) -> bool:
        return tube.line.length > 0 or len(tube.key_lines) > 0

    def _number(self) -> i64:
        number = self._next_number
        self._next_number += 1
        return number


def _line_of(tube: Tube, key: bytes | None) -> Line:
    """The line in which a take of this tube and key waits."""
    if key is None:
        if not tube.named:
            return tube.line
        key = NO_KEY
    line = tube.key_lines.get(key)
    if line is None:
        line = Line(tube.key_lines, key)
        tube.key_lines[key] = line
    return line


def _check_ttr(tube: Tube, ttr_ms: int) -> None:
    if not tube.policy.has_ttr:
        raise tube.lacks("ttr")
    if ttr_ms == 0:
        raise OutOfRange("ttr must be more than 0 seconds")
    check_duration(ttr_ms, "ttr")


def _check_return(tube: Tube, delay_ms: int, ttl_ms: int, priority: int) -> None:
    """Refuse what a job of this tube cannot be given on its way back."""
    if delay_ms != 0:
        if not tube.policy.has_delay:
            raise tube.lacks("delay")
        check_finite(delay_ms, "delay")
    if ttl_ms != UNSET:
        if not tube.policy.has_ttl:
            raise tube.lacks("ttl")
        check_duration(ttl_ms, "ttl")
    if priority != PRIORITY_UNSET:
        if not tube.by_priority:
            raise tube.lacks("priority")
        check_priority(priority)


def _later(moment: i64, more_ms: int) -> i64:
    """A moment or duration, later or longer by so much; what has no end keeps none."""
    if moment == NEVER:
        return NEVER
    later = moment + i64(more_ms)
    return later if later < NEVER else NEVER - 1


def _shown(name: bytes) -> str:
    """A tube's name for people: as text where it is text, cut where it is long."""
    text = name[:60].decode("utf-8", "backslashreplace")
    return f"'{text}…'" if len(name) > 60 else f"'{text}'"
