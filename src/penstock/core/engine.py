"""The engine: all tubes of one node, and the commands on them.

A command maps (state, arguments, now) to an outcome. Three rules hold for all of them:
- Time is an argument. Each command first fires due deadlines (`advance`). One turn fires a limited number of them, but
  a job that a command uses always has its state at `now` (`_refreshed`, `_first`). Therefore no job is taken after its
  ttl, acked after its ttr or delivered before its delay, even if the caller is late. Commands on one job are called
  directly after `find`, with the same `now`.
- A refused command changes nothing. Refusals that clients can cause in bulk are returned as small integers (errors.py).
  All others are raised before the first change.
- Commands change state only through the functions of `moves.py`, and end with `settle`.

A command returns the engine's own Job object. Read it immediately, or find it again by its id. The object is never
reused for another job. When the job has ended, its state is GONE.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.deadlines import NOWHERE
from penstock.core.driving import Driving
from penstock.core.errors import (
    BodyTooLarge,
    Full,
    NoSpace,
    OutOfRange,
    Paused,
    TooManyWaits,
    TubeAwaited,
    TubeExists,
    TubeTaken,
    UnknownSession,
    UnknownTube,
    Unsupported,
)
from penstock.core.job import BODY_BYTES, HELD_BY_CLAIM, NO_KEY, Draft, Job
from penstock.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_JOBS_MAX,
    JOB_TTL,
    NEVER,
    PRIORITY_BACK,
    PRIORITY_UNSET,
    REASON_BYTES_MAX,
    RESULT_TTL_MS,
    SCAN_EXAMINED_MAX,
    UNSET,
    WAIT_TUBES_MAX,
    WAITS_PER_CONNECTION_MAX,
    check_body,
    check_count,
    check_duration,
    check_finite,
    check_name,
)
from penstock.core.moves import later, puts_bytes, tube_bytes
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.retry import THEN_MOVE
from penstock.core.sessions import Session
from penstock.core.states import (
    IS_STAGED,
    IS_TAKEN,
    NO_JOB,
    NOT_BURIED,
    NOT_KEPT,
    NOT_OWNER,
    NOT_TAKEN,
    OK,
    ONLY_ONCE,
)
from penstock.core.tube import Tube
from penstock.core.waits import Connection, EndWait, PutWait, TakeWait, Waiting, WaitLine


class Engine(Driving):
    """All commands of one node."""

    def __init__(self, epoch: int, now: i64, outbox: Outbox, entropy: int = 1) -> None:
        """Create an empty engine.

        No earlier run may have used `epoch` (ids.py). `entropy` seeds the jitter of retries.
        """
        super().__init__(epoch, now, outbox, entropy)
        self.waits_per_connection_max: i64 = WAITS_PER_CONNECTION_MAX

    # Tubes

    def create_tube(self, name: bytes, policy: TubePolicy, now: i64) -> Tube:
        """Create a tube. If a tube of this name exists with the same policy, return it."""
        self.advance(now)
        policy.check()
        there = self.tubes.get(name)
        if there is not None:
            if there.policy == policy:
                return there
            raise TubeExists(p.exists_text(name, there.policy, policy))
        self.check_new([name], policy)
        if policy.driven:
            self.drivers.create(name, policy)
        tube = self._make_tube(name, policy, now)
        if policy.driven:
            self.attach(tube, now)
        return tube

    def check_new(self, names: list[bytes], policy: TubePolicy) -> None:
        """Raise an error if there is no memory or disk space for new tubes with all of these names."""
        tubes_bytes: i64 = 0
        for name in names:
            check_name(name, "the name of a tube")
            tubes_bytes += tube_bytes(name, policy)
        self.check_room(0, 0, tubes_bytes)

    def check_first(self, name: bytes, policy: TubePolicy, drafts: list[Draft], now: i64) -> None:
        """Raise an error if a new tube with this policy would refuse one of these jobs.

        Also raise one if there is no space for the tube and the jobs.
        """
        check_name(name, "the name of a tube")
        policy.check()
        self._check_many(Tube(name, 0, 0, policy, now), drafts, now, tube_bytes(name, policy))

    def tube(self, name: bytes) -> Tube:
        """Return the tube of this name. Raise UnknownTube if it does not exist."""
        tube = self.tubes.get(name)
        if tube is None:
            raise UnknownTube(f"there is no tube {quoted_name(name)}; create it first")
        return tube

    def alter(self, tube: Tube, policy: TubePolicy, now: i64) -> None:
        """Change the policy of a tube that is in use. The order, keys and ids of its jobs cannot be changed.

        Existing jobs keep their times, for example the ttl. A job that is taken now can be finished by the same
        sessions as before.
        """
        self.advance(now)
        policy.check()
        if tube.driven:
            raise Unsupported(f"a {tube.policy.type} tube has a driver, so its policy cannot be altered")
        old = tube.policy
        rebuilt = policy.order != old.order or policy.keys != old.keys or policy.ids != old.ids
        rebuilt = rebuilt or policy.unique_bodies != old.unique_bodies
        if rebuilt or policy.temporary != old.temporary or policy.driven != old.driven:
            raise Unsupported(
                "order, keys, ids, unique_bodies, temporary and driven are fixed; create another tube and move the jobs"
            )
        if policy.row_format < old.row_format:
            raise Unsupported("row_format cannot be lowered, because a later format would get the number of an old one")
        if policy == old:
            return
        more_bytes = tube_bytes(tube.name, policy) - tube_bytes(tube.name, old)
        if more_bytes > 0:
            self.check_room(0, 0, more_bytes)
        self.tubes_bytes += more_bytes
        tube.apply_policy(policy)
        for job in tube.taken.items:
            self._arm(job, tube)
        self.outbox.tube_changed(tube, now)
        # The new limits may allow more jobs in total or per key.
        self._wake_all_lines(tube)
        self.settle(now)

    def pause(self, tube: Tube, inward: bool, outward: bool, now: i64) -> None:
        """Set whether a tube is paused for puts (`inward`) and for takes (`outward`)."""
        self.advance(now)
        if tube.paused_in == inward and tube.paused_out == outward:
            return
        tube.paused_in = inward
        tube.paused_out = outward
        if self.copies is not None:
            self.copies.tube_paused(tube)
        self.outbox.tube_changed(tube, now)
        self._wake_all_lines(tube)
        self.settle(now)

    def truncate(self, tube: Tube, now: i64, limit: int = BATCH_JOBS_MAX) -> int:
        """Remove up to `limit` jobs in any state, and return how many. Call it again until it returns 0.

        Jobs of a claim are counted now, but removed when the claim ends. On a full disk the result may be 0 although
        jobs are left.
        """
        self.advance(now)
        if limit < 0:
            raise OutOfRange("the number of jobs to remove must be 0 or more")
        removed = 0
        for state in (s.READY, s.DELAYED, s.BURIED, s.DONE, s.ZOMBIE, s.STAGED, s.TAKEN):
            for job in tube.last_jobs(state, limit - removed):
                if self.moves_left <= 0 and not self._refill_moves():
                    break
                if job.holder == HELD_BY_CLAIM:
                    self._doom(job, tube, now)
                elif tube.driven:
                    self._remove(job, tube, s.TRUNCATED, None, now)
                else:
                    self._move(job, tube, s.TRUNCATED, now)
                removed += 1
        self.settle(now)
        return removed

    def check_drop(self, tube: Tube, now: i64) -> None:
        """Raise an error if a tube cannot be dropped, because clients wait on it or hold its jobs."""
        self.advance(now)
        if _is_awaited(tube):
            raise TubeAwaited(
                f"clients are waiting on tube {quoted_name(tube.name)}; let their calls end, then drop it"
            )
        if len(tube.taken):
            raise TubeTaken(
                f"tube {quoted_name(tube.name)} has {len(tube.taken)} taken jobs; "
                "wait for their acks or release them, then drop it"
            )

    def drop(self, tube: Tube, now: i64) -> None:
        """Remove a tube and its jobs. The caller truncates a large tube before, in slices."""
        self.check_drop(tube, now)
        while tube.total():
            if not self.truncate(tube, now):
                self._check_moves()
        self._drop(tube, now)

    def drop_if_empty(self, tube: Tube, now: i64) -> bool:
        """Fire all due deadlines, then remove the tube if it has no jobs and no client waits on it.

        Return whether it was removed.
        """
        self.advance(now)
        if tube.total() or _is_awaited(tube):
            return False
        self._drop(tube, now)
        return True

    def _drop(self, tube: Tube, now: i64) -> None:
        tube.dropped = True
        if tube.dedups is not None:
            tube.dedups.clear()
        self.outbox.tube_dropped(tube, now)
        self.tubes_bytes -= tube_bytes(tube.name, tube.policy)
        if tube.driven:
            self.drivers.drop(tube)
        del self.tubes[tube.name]
        del self.tubes_by_number[tube.number]
        self.tube_numbers.remove(tube.number)
        self.tube_slots[tube.slot] = None
        self.tube_slots_free.append(tube.slot)
        if self.copies is not None:
            self.copies.tube_dropped(tube)

    def scan_tubes(self, cursor: int, count: int) -> tuple[list[Tube], int]:
        """Return up to `count` tubes, starting at a cursor, and the next cursor.

        The scan starts with cursor 0, and ends when 0 is returned.
        """
        check_count(count, "count")
        found: list[Tube] = []
        number = self.tube_numbers.next_from(cursor)
        while number >= 0:
            if len(found) == count:
                return found, number
            found.append(self.tubes_by_number[number])
            number = self.tube_numbers.next_from(number + 1)
        return found, 0

    # Putting

    def put(self, tube: Tube, draft: Draft, now: i64) -> Job:
        """Add a job, or return the job that exists for this draft already.

        If a take waits for such a job, the job is already TAKEN on return.
        """
        self.advance(now)
        self._check_put(tube, draft)
        if tube.driven:
            job = self._put_driven(tube, draft, now)
            self.settle(now)
            return job
        job = tube.make(self.next_id, draft, now)
        twin = self._existing_job(tube, draft, now)
        if twin is not None:
            return twin
        if tube.limited:
            self._check_capacity(tube, draft)
        self._admit(job, tube, draft, now)
        if self.joined:
            self.report_joined(now)
        if self.woken_tubes:
            self.settle(now)
        return job

    def put_many(self, tube: Tube, drafts: list[Draft], now: i64) -> list[Job]:
        """Add all of these jobs, or none of them."""
        self.advance(now)
        self._check_many(tube, drafts, now, 0)
        jobs: list[Job] = []
        for draft in drafts:
            job = self._existing_job(tube, draft, now)
            if job is None:
                job = tube.make(self.next_id, draft, now)
                self._admit(job, tube, draft, now)
            jobs.append(job)
        self.report_joined(now)
        self.settle(now)
        return jobs

    def _check_many(self, tube: Tube, drafts: list[Draft], now: i64, tubes_bytes: i64) -> None:
        """Raise an error if these jobs cannot all be put.

        `tubes_bytes` is the space for a tube that has to be created first.
        """
        check_count(len(drafts), "the number of jobs in one put")
        if tube.driven:
            raise tube.lacks("batches: its driver puts one job at a time")
        body_bytes = 0
        log_bytes = 0
        added = 0
        names: set[bytes] = set()
        numbers: set[int] = set()
        for draft in drafts:
            self._check_put(tube, draft)
            tube.make(self.next_id, draft, now)
            if self._existing_job(tube, draft, now) is not None:
                continue
            body_bytes += len(draft.body)
            log_bytes += draft.log_bytes()
            added += 1
            if draft.name is not None:
                if draft.name in names:
                    raise OutOfRange("two jobs of one put have the same name")
                names.add(draft.name)
            if draft.number != UNSET:
                if draft.number in numbers:
                    raise OutOfRange("two jobs of one put have the same number")
                numbers.add(draft.number)
        if puts_bytes(added, log_bytes) > BATCH_BYTES_MAX:
            raise BodyTooLarge(f"the jobs of one put may have {BATCH_BYTES_MAX} bytes in all; put fewer at a time")
        self.check_room(added, log_bytes, tubes_bytes)
        if tube.limited and added > 0 and not self._has_room_for(tube, added, body_bytes):
            raise Full(f"tube {quoted_name(tube.name)} has no room for all of these; wait, or put fewer")

    def wait_put(
        self, connection: Connection, tube: Tube, draft: Draft, now: i64, timeout_ms: int, tag: object = None
    ) -> PutWait:
        """Add a job as soon as its tube has space for it.

        When the job was put or the timeout passed, the wait is in `outbox.ended_waits`.
        """
        self.advance(now)
        check_duration(timeout_ms, "timeout")
        self._check_put(tube, draft)
        tube.make(self.next_id, draft, now)
        wait = PutWait(self.new_number(), connection, tube.slot, draft, tag)
        self._begin_wait(wait, timeout_ms, now)
        wait.counted = draft.log_bytes()
        self.waiting_bytes += wait.counted
        tube.put_line.join(wait)
        self._wake_line(tube, None)
        self.settle(now)
        return wait

    def _check_put(self, tube: Tube, draft: Draft) -> None:
        if tube.paused_in:
            raise Paused(f"tube {quoted_name(tube.name)} is paused for puts; try later, or resume it")
        check_body(len(draft.body), self.body_bytes_max)
        if draft.batch is not None:
            self.check_batch(tube, draft.batch)
        if tube.limited and 0 < tube.policy.capacity_bytes < len(draft.body):
            raise BodyTooLarge(f"the body has {len(draft.body)} bytes, more than the capacity of the whole tube")
        if self.room_bytes != NEVER or self.memory_max != NEVER:
            self.check_room(1, draft.log_bytes())

    def _check_capacity(self, tube: Tube, draft: Draft) -> None:
        """Raise an error if a tube with a capacity has no room for a job, or if earlier puts wait for room."""
        if tube.put_line.length > 0 or not tube.has_room(len(draft.body)):
            raise Full(f"tube {quoted_name(tube.name)} is full; wait for room, or take from it")

    def _has_room_for(self, tube: Tube, jobs: int, body_bytes: int) -> bool:
        policy = tube.policy
        if tube.put_line.length > 0 or (policy.capacity > 0 and tube.total() + jobs > policy.capacity):
            return False
        return policy.capacity_bytes == 0 or tube.body_bytes + body_bytes <= policy.capacity_bytes

    # Taking

    def take(self, session: Session, tube: Tube, now: i64, key: bytes | None = None, ttr_ms: int = UNSET) -> Job | None:
        """Deliver the next job of a tube. Return None if the tube has no job to take."""
        self.advance(now)
        self._check_take(session, tube, key, ttr_ms)
        if key is None and tube.requires_key:
            key = NO_KEY
        job = self._take(session, tube, key, ttr_ms, now)
        if self.woken_tubes:
            self.settle(now)
        return job

    def _check_take(self, session: Session, tube: Tube, key: bytes | None, ttr_ms: int) -> None:
        if key is not None:
            tube.check_key(key)
        if ttr_ms != UNSET:
            tube.check_ttr(ttr_ms)
        if not session.connections:
            raise UnknownSession()
        self._check_moves()

    def take_many(
        self,
        session: Session,
        tubes: list[Tube],
        count: int,
        now: i64,
        key: bytes | None = None,
        ttr_ms: int = UNSET,
        bytes_max: int = NEVER,
    ) -> list[Job]:
        """Deliver up to `count` jobs. Take one from each tube in the given order, and repeat this.

        Fewer jobs are delivered if the tubes have no more, if the bodies exceed `bytes_max`, if the turn has written
        its maximum to the log, or if the disk is full.
        """
        check_count(count, "count")
        for tube in tubes:
            self._check_take(session, tube, key, ttr_ms)
        self.advance(now)
        jobs = self._take_in_turn(session, tubes, count, now, key, ttr_ms, bytes_max)
        if self.woken_tubes:
            self.settle(now)
        return jobs

    def _take_in_turn(
        self, session: Session, tubes: list[Tube], count: int, now: i64, key: bytes | None, ttr_ms: int, bytes_max: int
    ) -> list[Job]:
        jobs: list[Job] = []
        length = 0
        while tubes:
            # Skip tubes that were empty. Otherwise each job of one tube would cost a look at all empty ones.
            had: list[Tube] = []
            for tube in tubes:
                job = self._take(session, tube, NO_KEY if key is None and tube.requires_key else key, ttr_ms, now)
                if job is not None:
                    jobs.append(job)
                    length += job.reply_length()
                    if len(jobs) == count or length > bytes_max or self.outbox.full():
                        return jobs
                    had.append(tube)
            tubes = had
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
        count_bytes: int = NEVER,
    ) -> TakeWait:
        """Create a wait that takes jobs as soon as there are any. When the wait ends, it is in `outbox.ended_waits`.

        When jobs are ready, the wait takes up to `count` of them and ends. It takes no more once their bodies have
        `count_bytes` bytes together.
        """
        self.advance(now)
        check_duration(timeout_ms, "timeout")
        check_count(count, "count")
        if len(tubes) < 1 or len(tubes) > WAIT_TUBES_MAX:
            raise OutOfRange(f"a take may wait on 1 to {WAIT_TUBES_MAX} tubes")
        for tube in tubes:
            if key is not None:
                tube.check_key(key)
            if ttr_ms != UNSET:
                tube.check_ttr(ttr_ms)
        wait = TakeWait(self.new_number(), connection, count, count_bytes, ttr_ms, tag)
        self._begin_wait(wait, timeout_ms, now)
        for tube in tubes:
            line = _line_of(tube, key)
            line.join(wait)
            name = None if line is tube.take_line else line.key
            if tube.driven or tube.first_ready(name) is not None:
                self._wake_line(tube, name)
        self.settle(now)
        return wait

    def cancel(self, wait: Waiting) -> None:
        """End a wait without a result. A wait that has ended already is not changed."""
        if wait.outcome == w.WAITING:
            self._end_wait(wait, w.CANCELLED)
            self.settle(self.now)

    def undelivered(self, job: Job, now: i64, deliveries: int = UNSET) -> None:
        """Return a job to its tube, because its consumer disconnected before the first byte of the job was sent.

        `deliveries` is the number of that delivery. If the job has returned and was delivered again since then, nothing
        changes.
        """
        if job.state != s.TAKEN or (deliveries != UNSET and job.deliveries != deliveries):
            return
        job.deliveries -= 1
        tube = self.tube_of(job)
        self._move(job, tube, s.UNDELIVERED, now)
        self._ends_cancelled(job, tube, now)
        self.settle(now)

    def _begin_wait(self, wait: Waiting, timeout_ms: int, now: i64) -> None:
        connection = wait.connection
        if len(connection.waits) >= self.waits_per_connection_max:
            raise TooManyWaits()
        if not connection.session.connections:
            raise UnknownSession()
        connection.waits[wait.number] = wait
        wait.since = now
        if timeout_ms != NEVER:
            self.deadlines.set(wait, now + i64(timeout_ms))

    # Finding

    def find(self, job_id: i64, now: i64) -> Job | None:
        """Return the job with this id in its state at `now`, or None if it is gone."""
        self.advance(now)
        return self._refreshed(self.jobs.find(job_id), now)

    def refresh(self, job: Job, now: i64) -> None:
        """Fire due deadlines, and in any case those of this job, so that the job is in its state at `now`."""
        self.advance(now)
        self._refreshed(job, now)

    def _refreshed(self, job: Job | None, now: i64) -> Job | None:
        """Fire the job's own due deadlines, even if this turn has reached its limit of fired deadlines.

        Return the job, or None if it is gone.
        """
        if job is None:
            return None
        while job.deadline_pos != NOWHERE and job.due <= now:
            self._fire(job, now)
        if self.woken_tubes:
            self.settle(now)
        return None if job.state == s.GONE else job

    def find_local(self, tube: Tube, local: i64, now: i64) -> Job | None:
        """Return the job with this integer id in the tube, in its state at `now`, or None."""
        self.advance(now)
        if tube.driven:
            return tube.names.get(b"%d" % int(local))
        return None if tube.jobs_by_number is None else self._refreshed(tube.jobs_by_number.find(local), now)

    def find_named(self, tube: Tube, name: bytes, now: i64) -> Job | None:
        """Return the job with this name in the tube, in its state at `now`, or None."""
        self.advance(now)
        return self._refreshed(tube.names.get(name), now)

    def scan(
        self, cursor: int, count: int, tube: Tube | None = None, states: int = -1, shard: int = 0, shards: int = 1
    ) -> tuple[list[Job], int]:
        """Return about `count` jobs, starting at a cursor, and the next cursor.

        The scan starts with cursor 0, and ends when 0 is returned. `states` has one bit for each wanted state. If the
        filter matches few jobs, a call may return fewer than `count` jobs, or none, with a cursor other than 0. With
        `shards`, only jobs of shard `shard` are examined (`JobTable.scan_shard`).
        """
        check_count(count, "count")
        if cursor < 0 or cursor >= 1 << 63:
            raise OutOfRange("a cursor must be 0 or a value that an earlier scan returned")
        if tube is not None and tube.dropped:
            # Its slot may belong to another tube by now, and jobs are matched by slot.
            return [], 0
        start: i64 = cursor
        found: list[Job] = []
        examined = 0
        while len(found) < count and examined < SCAN_EXAMINED_MAX:
            if shards == 1:
                batch = self.jobs.scan(start, count)
                after = batch[-1].id + 1 if batch else 0
            else:
                batch, after = self.jobs.scan_shard(start, count, shard, shards)
                # A call that only skips blocks examines no jobs, but also costs time.
                examined += count - min(count, len(batch))
            examined += len(batch)
            for job in batch:
                if (tube is None or job.tube == tube.slot) and (states >> i64(job.state)) & 1:
                    found.append(job)
            if after == 0:
                return found, 0
            start = after
        return found, start

    def wait_end(
        self,
        connection: Connection,
        job: Job,
        now: i64,
        timeout_ms: int = NEVER,
        tag: object = None,
        failures: bool = False,
        home: Tube | None = None,
    ) -> EndWait:
        """Create a wait for the end of a job. A job that was acked and is kept counts as ended.

        With `failures`, the wait also ends when the job is buried or dead-lettered. `home` is the tube in which the
        caller expects the job. If the job's retry policy moves exhausted jobs to another tube, and the job is there
        now, it counts as dead-lettered. A job without a retry policy of its own has that of `home`.
        """
        self.advance(now)
        check_duration(timeout_ms, "timeout")
        wait = EndWait(self.new_number(), connection, job, failures, tag)
        self._begin_end_wait(wait, timeout_ms, home, now)
        return wait

    def _begin_end_wait(self, wait: EndWait, timeout_ms: int, home: Tube | None, now: i64) -> None:
        """Start a wait for the end of a job. If the job has ended, end the wait immediately."""
        job = wait.job
        self._begin_wait(wait, timeout_ms, now)
        self.end_waits_by_id.setdefault(job.id, []).append(wait)
        end = w.STILL_THERE
        if job.state == s.GONE:
            end = w.END_UNKNOWN
        elif job.state == s.DONE or job.state == s.ZOMBIE:
            end = w.END_ACKED
        elif wait.failures and job.state == s.BURIED:
            end = w.END_BURIED
        elif wait.failures and home is not None and self._is_dead_letter(job, home):
            end = w.END_DEAD_LETTERED
        if end != w.STILL_THERE:
            wait.ended(end, job.tube)
            self._end_wait(wait, w.SERVED)

    def _is_dead_letter(self, job: Job, home: Tube) -> bool:
        """Return whether a job that was in `home` is now in the tube to which its retry policy moves exhausted jobs."""
        retry = home.retry
        if job.extra is not None and job.extra.retry is not None:
            retry = job.extra.retry
        name = self.tube_of(job).name
        return retry is not None and retry.then == THEN_MOVE and retry.target == name and home.name != name

    # Finishing

    def ack(
        self,
        session: Session,
        job: Job,
        now: i64,
        delay_ms: int = UNSET,
        body: bytes | None = None,
        body_kind: int = BODY_BYTES,
        priority: int = PRIORITY_UNSET,
        key: bytes | None = None,
    ) -> int:
        """Finish a job: remove it, or keep it if its tube keeps acked jobs.

        The arguments after `now` change a job that is kept, and are ignored otherwise. If the policy of the tube has
        `ack_cancels`, an ack also removes a job that is not taken.
        """
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if tube.driven:
            return self._ack_driven(session, job, tube, now)
        # A job that still waits for its copies can be acked: another node may have delivered its copy.
        waits = job.state == s.STAGED and job.copy() is not None
        may_go = waits or (job.holder != HELD_BY_CLAIM and s.allowed(i64(job.state), s.ACKED))
        if not (tube.policy.ack_cancels and may_go):
            refusal = self._not_held(job, session)
            if refusal != OK:
                return refusal
        if body is not None:
            self._check_new_body(job, body)
            if not tube.deletes_on_ack:
                self._check_growth(job, body)
        event: i64 = s.ACKED
        if tube.deletes_on_ack and delay_ms != UNSET:
            raise tube.lacks("zombies, so an ack has no delay")
        if key is not None or priority != PRIORITY_UNSET:
            tube.check_change(key, priority)
        if job.state == s.TAKEN:
            # Only a taken job is kept. A job that is not taken was cancelled, not done.
            if not tube.deletes_on_ack:
                event = self._after_ack(job, tube, delay_ms, now)
            if body is not None:
                self._replace_body(job, tube, body, body_kind)
            if event != s.ACKED and (key is not None or priority != PRIORITY_UNSET):
                self._change(job, tube, key, priority)
        if waits:
            self._publish_now(job, tube, now)
        self._move(job, tube, event, now)
        if self.woken_tubes:
            self.settle(now)
        return OK

    def done(self, session: Session, job: Job, body: bytes, body_kind: int, now: i64, ttl_ms: int = UNSET) -> int:
        """Finish a job and store its result as the new body. The job stays DONE until the result expires.

        `ttl_ms` is how long the result is kept. UNSET means one day, or for ever if the tube keeps acked jobs. JOB_TTL
        means until the job's own ttl ends.
        """
        check_body(len(body), self.body_bytes_max)
        if ttl_ms != UNSET and ttl_ms != JOB_TTL:
            check_duration(ttl_ms, "ttl")
        refusal = self._not_held_job(job, session)
        if refusal != OK:
            return refusal
        tube = self.tube_of(job)
        _check_free(tube, "done")
        self._set_body(job, tube, body, body_kind)
        if ttl_ms == UNSET:
            ttl_ms = NEVER if tube.policy.after_ack == p.KEPT else RESULT_TTL_MS
        if ttl_ms != JOB_TTL:
            job.expiry = NEVER if ttl_ms == NEVER else now + i64(ttl_ms)
        self._move(job, tube, s.KEPT, now)
        self.settle(now)
        return OK

    def release(
        self,
        session: Session,
        job: Job,
        now: i64,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        priority: int = PRIORITY_UNSET,
        key: bytes | None = None,
        body: bytes | None = None,
        body_kind: int = BODY_BYTES,
    ) -> int:
        """Return a taken job to its old place, or delay it.

        The other arguments change its ttl, priority, key and body.
        """
        refusal = self._not_returnable(job, session)
        if refusal != OK:
            return refusal
        tube = self.tube_of(job)
        if tube.driven:
            return self.release_driven(session, job, _release_options(delay_ms, ttl_ms, priority, key), now)
        tube.check_return(delay_ms, ttl_ms, priority)
        if key is not None:
            tube.check_key(key)
        self._set_body(job, tube, body, body_kind)
        if key is not None:
            self._rekey(job, tube, key)
        job.returns += 1
        self._send_back(job, tube, s.RELEASED, s.POSTPONED, now, delay_ms, ttl_ms, priority)
        self.settle(now)
        return OK

    def release_many(self, tube: Tube, jobs: list[Job], now: i64) -> int:
        """Release those of the given jobs that sessions have taken. Return how many. Jobs of claims stay taken."""
        self.advance(now)
        released = 0
        for job in jobs:
            if job.state == s.TAKEN and job.tube == tube.slot and job.holder != HELD_BY_CLAIM and not job.once:
                if tube.driven:
                    self._release(job, tube, {}, s.RELEASED, now)
                else:
                    job.returns += 1
                    self._move(job, tube, s.RELEASED, now)
                    self._ends_cancelled(job, tube, now)
                released += 1
        self.settle(now)
        return released

    def requeue(self, session: Session, job: Job, now: i64) -> int:
        """Return a taken job to the end of its tube."""
        refusal = self._not_returnable(job, session)
        if refusal != OK:
            return refusal
        tube = self.tube_of(job)
        _check_free(tube, "requeue")
        if tube.by_priority:
            extra = job.ensure_extra()
            if extra.priority_given == PRIORITY_UNSET:
                extra.priority_given = job.priority
            job.priority = PRIORITY_BACK
        elif job.extra is not None and job.extra.priority_given != PRIORITY_UNSET:
            # The job was urgent. Requeueing ends that.
            job.priority = job.extra.priority_given
            job.extra.priority_given = PRIORITY_UNSET
        job.order = self._newest_order(tube, now)
        job.returns += 1
        self._move(job, tube, s.REQUEUED, now)
        self._ends_cancelled(job, tube, now)
        self.settle(now)
        return OK

    def nack(self, session: Session, job: Job, now: i64, reason: bytes = b"", delay_ms: int = UNSET) -> int:
        """Report that a job failed. Its retry policy decides whether it is retried, buried, dropped or moved.

        If `delay_ms` is given, it replaces the delay of the retry policy, but not its maximum number of deliveries.
        """
        check_reason(reason)
        if delay_ms != UNSET:
            check_finite(delay_ms, "delay")
        refusal = self._not_returnable(job, session)
        if refusal != OK:
            return refusal
        tube = self.tube_of(job)
        if tube.driven:
            if delay_ms != UNSET:
                raise Unsupported("the driver of the tube decides when a failed job is retried; nack without a delay")
            self._release(job, tube, {}, s.NACKED, now)
        if reason:
            job.ensure_extra().reason = reason
        job.nacks += 1
        if not tube.driven:
            self._fail(job, tube, s.NACKED, now, i64(delay_ms))
        self.settle(now)
        return OK

    def bury(
        self,
        session: Session,
        job: Job,
        now: i64,
        reason: bytes = b"",
        ttl_ms: int = UNSET,
        key: bytes | None = None,
        body: bytes | None = None,
        body_kind: int = BODY_BYTES,
        priority: int = PRIORITY_UNSET,
    ) -> int:
        """Set a job aside until it is kicked or dug, with a reason and optionally a new ttl.

        A taken job can also get another body, key and priority. For a job that is not taken, a new body is refused, and
        a new key or priority is ignored.
        """
        check_reason(reason)
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if not tube.policy.has_bury:
            raise tube.lacks("bury")
        if tube.bury_owned or job.holder == HELD_BY_CLAIM:
            refusal = self._not_held(job, session)
            if refusal != OK:
                return refusal
        if job.state == s.BURIED:
            return OK
        if not s.allowed(i64(job.state), s.BURIED_BY):
            return NOT_TAKEN
        if tube.driven:
            self._bury_driven(job, tube, reason, now)
            return OK
        tube.check_return(0, ttl_ms, priority)
        if key is not None:
            tube.check_key(key)
        if body is not None and job.state != s.TAKEN:
            return NOT_TAKEN
        self._set_body(job, tube, body, body_kind)
        if ttl_ms != UNSET:
            job.expiry = NEVER if ttl_ms == NEVER else now + i64(ttl_ms)
        if job.state == s.TAKEN:
            self._change(job, tube, key, priority)
        extra = job.ensure_extra()
        extra.reason = reason
        extra.buries += 1
        self._move(job, tube, s.BURIED_BY, now)
        self.settle(now)
        return OK

    def touch(self, session: Session, job: Job, now: i64, more_ms: int = UNSET) -> int:
        """Restart the ttr of a taken job. If `more_ms` is given, extend its ttr and its ttl by this time instead."""
        self._check_moves()
        if job.state == s.GONE:
            return NO_JOB
        tube = self.tube_of(job)
        if not tube.policy.has_ttr:
            raise tube.lacks("ttr, so there is nothing to touch")
        if more_ms != UNSET:
            check_finite(more_ms, "the time to add")
        refusal = self._not_held(job, session)
        if refusal != OK:
            return refusal
        if more_ms == UNSET:
            job.wake = NEVER if job.ttr == NEVER else now + job.ttr
        else:
            job.wake = later(job.wake, more_ms)
            job.expiry = later(job.expiry, more_ms)
            job.ttr = later(job.ttr, more_ms)
        self._move(job, tube, s.TOUCHED, now)
        return OK

    # Commands that any session may use

    def prolong(self, job: Job, now: i64, more_ms: int) -> int:
        """Extend the ttl of a ready job. A job without a ttl is not changed."""
        self._check_moves()
        if job.state == s.GONE:
            return NO_JOB
        if job.state != s.READY:
            return IS_TAKEN if job.state == s.TAKEN else NOT_TAKEN
        tube = self.tube_of(job)
        if not tube.policy.has_ttl:
            raise tube.lacks("ttl")
        check_finite(more_ms, "the time to add")
        job.expiry = later(job.expiry, more_ms)
        self._move(job, tube, s.TOUCHED, now)
        return OK

    def delete(self, job: Job, now: i64) -> int:
        """Remove a job in any state, even if a session has taken it.

        A job of a claim is removed when the claim ends.
        """
        if job.state == s.GONE:
            return NO_JOB
        if job.holder == HELD_BY_CLAIM:
            self._doom(job, self.tube_of(job), now)
            return OK
        if job.state != s.TAKEN:
            self._check_moves()
        tube = self.tube_of(job)
        if tube.driven:
            self._remove(job, tube, s.DELETED, None, now)
        else:
            self._move(job, tube, s.DELETED, now)
        self.settle(now)
        return OK

    def dig(
        self,
        job: Job,
        now: i64,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        priority: int = PRIORITY_UNSET,
        key: bytes | None = None,
        body: bytes | None = None,
        body_kind: int = BODY_BYTES,
    ) -> int:
        """Make one buried job ready at its old place, or delay it."""
        self._check_moves()
        if job.state == s.GONE:
            return NO_JOB
        if job.state != s.BURIED:
            return NOT_BURIED
        if job.once and job.deliveries > 0:
            return ONLY_ONCE
        tube = self.tube_of(job)
        _check_free(tube, "dig")
        tube.check_return(delay_ms, ttl_ms, priority)
        if key is not None:
            tube.check_key(key)
        self._set_body(job, tube, body, body_kind)
        if key is not None:
            self._rekey(job, tube, key)
        job.returns += 1
        self._send_back(job, tube, s.KICKED, s.KICKED_DELAYED, now, delay_ms, ttl_ms, priority)
        self.settle(now)
        return OK

    def kick(
        self,
        tube: Tube,
        count: int,
        now: i64,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        body: bytes | None = None,
        body_kind: int = BODY_BYTES,
    ) -> int:
        """Kick the first buried jobs, at most `count`, in the order in which they would be taken. Return how many.

        Each of them gets the given delay, ttl and body.
        """
        self._check_moves()
        self.advance(now)
        check_count(count, "the number of jobs to kick")
        if tube.driven:
            return self._kick_driven(tube, count, now)
        tube.check_return(delay_ms, ttl_ms, PRIORITY_UNSET)
        if body is not None:
            # The command must not fail halfway, so check that all bodies have room.
            check_body(len(body), self.body_bytes_max)
            wanted = min(count, len(tube.buried))
            if len(body) * wanted > self.room_bytes:
                raise NoSpace()
            if self._counts_bodies():
                more: i64 = 0
                for job in tube.buried.first_many(wanted):
                    more += max(0, len(body) - job.body_length())
                self.check_room(0, more)
        kicked = 0
        while kicked < count:
            first = tube.buried.first()
            if first is None:
                break
            if body is not None:
                self._replace_body(first, tube, body, body_kind)
            first.returns += 1
            self._send_back(first, tube, s.KICKED, s.KICKED_DELAYED, now, delay_ms, ttl_ms, PRIORITY_UNSET)
            kicked += 1
        self.settle(now)
        return kicked

    def snatch(self, job: Job, now: i64, delay_ms: int = 0) -> int:
        """Take a job away from the session that holds it. The job returns to its old place, or is delayed."""
        self._check_moves()
        if job.state == s.GONE:
            return NO_JOB
        if job.state != s.TAKEN:
            return NOT_TAKEN
        if job.holder == HELD_BY_CLAIM:
            return NOT_OWNER
        if job.once:
            return ONLY_ONCE
        tube = self.tube_of(job)
        _check_free(tube, "snatch")
        tube.check_return(delay_ms, UNSET, PRIORITY_UNSET)
        job.returns += 1
        self._send_back(job, tube, s.SNATCHED, s.SNATCHED_DELAYED, now, delay_ms, UNSET, PRIORITY_UNSET)
        self.settle(now)
        return OK

    def restart(self, job: Job, now: i64, delay_ms: int = 0) -> int:
        """Make a job ready that is delayed, or that was acked and kept.

        A job with a result gets the default ttl of its tube.
        """
        self._check_moves()
        if job.state == s.GONE:
            return NO_JOB
        if not s.allowed(i64(job.state), s.RESTARTED):
            return IS_TAKEN if job.state == s.TAKEN else NOT_KEPT
        if job.once and job.deliveries > 0:
            return ONLY_ONCE
        tube = self.tube_of(job)
        _check_free(tube, "restart")
        tube.check_return(delay_ms, UNSET, PRIORITY_UNSET)
        _reset_result_ttl(job, tube, now)
        if job.state != s.DELAYED:
            # A delayed job has been counted already.
            job.returns += 1
        self._send_back(job, tube, s.RESTARTED, s.RESTARTED_DELAYED, now, delay_ms, UNSET, PRIORITY_UNSET)
        self.settle(now)
        return OK

    def switch(self, job: Job, state: int, now: i64, delay_ms: int = 0, failed: bool = False) -> int:
        """Change the state of a job that is neither taken nor staged. DELAYED and ZOMBIE need a delay.

        With `failed`, the change counts as a failure (nack) of the job.
        """
        self._check_moves()
        events = {
            s.READY: s.SWITCHED_READY,
            s.DELAYED: s.SWITCHED_DELAYED,
            s.BURIED: s.SWITCHED_BURIED,
            s.DONE: s.SWITCHED_DONE,
            s.ZOMBIE: s.SWITCHED_ZOMBIE,
        }
        if job.state == s.GONE:
            return NO_JOB
        if job.state == s.TAKEN:
            return IS_TAKEN
        if job.state == s.STAGED:
            return IS_STAGED
        if state not in events:
            raise OutOfRange("a job can be switched to ready, delayed, buried, done or zombie")
        check_finite(delay_ms, "delay")
        timed = state == s.DELAYED or state == s.ZOMBIE
        if timed != (delay_ms > 0):
            raise OutOfRange("a delay is required for the states delayed and zombie, and not allowed for others")
        if job.once and job.deliveries > 0 and (state == s.READY or state == s.DELAYED):
            return ONLY_ONCE
        tube = self.tube_of(job)
        _check_free(tube, "switch")
        if state != s.DONE:
            _reset_result_ttl(job, tube, now)
        if timed:
            job.wake = now + i64(delay_ms)
        elif state == s.DONE and tube.policy.after_ack == p.KEPT:
            # The same as after an ack in this tube.
            job.expiry = NEVER
        if failed:
            job.nacks += 1
        self._move(job, tube, events[state], now)
        self.settle(now)
        return OK

    def move(self, session: Session, job: Job, target: Tube, now: i64, delay_ms: int = 0) -> int:
        """Move a job to the end of another tube.

        A taken job can only be moved by the session that has taken it. Staged jobs and zombies are refused.
        """
        self._check_moves()
        if job.state == s.GONE:
            return NO_JOB
        source = self.tube_of(job)
        if source is target:
            raise OutOfRange("the job is in that tube already")
        if job.state == s.STAGED:
            return IS_STAGED
        if source.driven:
            # A driver has its own index of tasks, which a move would bypass.
            raise source.lacks("moves: its driver decides which jobs it serves")
        self.check_arrival(job, target)
        state = i64(job.state)
        if state == s.TAKEN:
            refusal = self._not_returnable(job, session)
            if refusal != OK:
                return refusal
        elif state == s.ZOMBIE:
            return NOT_TAKEN
        if delay_ms != 0:
            target.check_return(delay_ms, UNSET, PRIORITY_UNSET)
        body = self._body_in(job, target)
        event = s.ARRIVALS[state]
        if delay_ms != 0:
            job.wake = now + i64(delay_ms)
            event = s.MOVED_IN_DELAYED
        self._transfer(job, source, target, body, event, now)
        self.settle(now)
        return OK

    def check_arrival(self, job: Job, target: Tube) -> None:
        """Raise an error if a tube does not accept a job that moves to it."""
        if target.driven:
            raise target.lacks("moves: its driver decides which jobs it serves")
        if job.once and target.session_owned:
            raise target.lacks("at-most-once delivery: the jobs of a session are given back when it disconnects")
        if job.extra is not None and job.extra.batch and (target.temporary or not target.session_owned):
            raise target.lacks("batches, and the job belongs to one")
        if target.paused_in:
            raise Paused(f"tube {quoted_name(target.name)} is paused for puts; try later, or resume it")
        if target.limited and not self._has_room_for(target, 1, job.body_length()):
            raise Full(f"tube {quoted_name(target.name)} is full; wait for room, or take from it")

    # Sessions

    def connect(self, token: bytes) -> Connection:
        """Create a connection and a new session for it. Other connections can join this session with `token`."""
        assert token not in self.sessions
        free = self.session_slots_free
        slot: i32 = free.pop() if free else len(self.session_slots)
        session = Session(self.new_number(), slot, token)
        if slot == len(self.session_slots):
            self.session_slots.append(session)
        else:
            self.session_slots[slot] = session
        self.sessions[token] = session
        if self.session_grace_ms > 0:
            self.outbox.session_made(session, self.now)
        connection = Connection(self.new_number(), session)
        session.connections[connection.number] = connection
        return connection

    def identify(self, connection: Connection, token: bytes, now: i64, grace_ms: int = UNSET) -> Session:
        """Leave the present session, and join the session of this token with all its jobs.

        If `grace_ms` is given, change the grace time of the joined session.
        """
        self.advance(now)
        if grace_ms != UNSET:
            check_finite(grace_ms, "grace")
        session = self.sessions.get(token)
        if session is None:
            raise UnknownSession()
        if grace_ms != UNSET and grace_ms != self.grace_of(session):
            session.grace_ms = i64(grace_ms)
            self.outbox.session_made(session, now)
        if session is not connection.session:
            session.connections[connection.number] = connection
            self.deadlines.clear(session)
            left = connection.session
            connection.session = session
            self._leave(left, connection, now)
        return session

    def end_takes(self, session: Session, now: i64) -> None:
        """End all waiting takes of a session as if their timeouts had passed."""
        for connection in session.connections.values():
            assert isinstance(connection, Connection)
            for wait in list(connection.waits.values()):
                if isinstance(wait, TakeWait):
                    self._end_wait(wait, w.TIMED_OUT)
        self.settle(now)

    def grace_of(self, session: Session) -> i64:
        """Return the time in ms that a session stays alive after its last connection closed."""
        return self.session_grace_ms if session.grace_ms == UNSET else session.grace_ms

    def session_number(self, slot: int) -> int:
        """Return the number of a session. `slot` is its index in the table of sessions, as in `job.holder`."""
        session = self.session_slots[slot]
        assert session is not None
        return session.number

    def disconnect(self, connection: Connection, now: i64) -> None:
        """Close a connection and cancel its waits.

        With the last connection of a session, the grace time of the session starts.
        """
        for wait in list(connection.waits.values()):
            self._end_wait(wait, w.CANCELLED)
        self._leave(connection.session, connection, now)

    def _leave(self, session: Session, connection: Connection, now: i64) -> None:
        del session.connections[connection.number]
        if not session.connections:
            self.deadlines.set(session, now + self.grace_of(session))
        self.advance(now)

    # Shared by the commands

    def _not_returnable(self, job: Job, session: Session) -> int:
        refusal = self._not_held_job(job, session)
        if refusal == OK and job.once:
            return ONLY_ONCE
        return refusal

    def _doom(self, job: Job, tube: Tube, now: i64) -> None:
        """Mark a job of a claim as deleted.

        It is removed when the claim ends, because an open claim must not change.
        """
        extra = job.ensure_extra()
        if not extra.doomed:
            extra.doomed = True
            tube.taken.doom(job)
            self._move(job, tube, s.DOOMED, now)

    def _set_body(self, job: Job, tube: Tube, body: bytes | None, body_kind: int) -> None:
        """Check and replace the body of a job, unless `body` is None."""
        if body is not None:
            self._check_new_body(job, body)
            self._check_growth(job, body)
            self._replace_body(job, tube, body, body_kind)

    def _change(self, job: Job, tube: Tube, key: bytes | None, priority: int) -> None:
        """Give a taken job another key or priority. The caller has checked both."""
        if key is not None:
            self._rekey(job, tube, key)
        if priority != PRIORITY_UNSET:
            job.priority = priority
            if job.extra is not None:
                job.extra.priority_given = PRIORITY_UNSET

    def _wake_all_lines(self, tube: Tube) -> None:
        """Mark all lists of waits of a tube, so that they are served when the command ends."""
        tube.woken_keys.extend(tube.key_lines)
        self._wake_line(tube, None)


def _check_free(tube: Tube, command: str) -> None:
    """Raise an error if the tube has a driver, because drivers do not support `command`."""
    if tube.driven:
        raise tube.lacks(f"{command}: its driver has put, take, release, bury, kick and delete")


def _release_options(delay_ms: int, ttl_ms: int, priority: int, key: bytes | None) -> dict[str, object]:
    """Return the options of a release in the form that drivers get."""
    options: dict[str, object] = {}
    if delay_ms != 0:
        options["delay"] = delay_ms / 1000
    if ttl_ms != UNSET:
        options["ttl"] = None if ttl_ms == NEVER else ttl_ms / 1000
    if priority != PRIORITY_UNSET:
        options["priority"] = priority
    if key is not None:
        options["key"] = key
    return options


def _is_awaited(tube: Tube) -> bool:
    return tube.take_line.length > 0 or len(tube.key_lines) > 0 or tube.put_line.length > 0


def _line_of(tube: Tube, key: bytes | None) -> WaitLine:
    """Return the list of the takes that wait for this tube and key. Create it if necessary."""
    if key is None:
        if not tube.requires_key:
            return tube.take_line
        key = NO_KEY
    line = tube.key_lines.get(key)
    if line is None:
        line = WaitLine(tube.key_lines, key, tube.slot)
        tube.key_lines[key] = line
    return line


def _reset_result_ttl(job: Job, tube: Tube, now: i64) -> None:
    """Give a DONE job that becomes active again the default ttl of its tube. Its present ttl is that of its result."""
    if job.state == s.DONE and job.expiry != NEVER:
        ttl_ms = tube.policy.default_ttl_ms
        job.expiry = NEVER if ttl_ms == NEVER else now + i64(ttl_ms)


def check_reason(reason: bytes) -> None:
    """Raise OutOfRange if a reason is too long."""
    if len(reason) > REASON_BYTES_MAX:
        raise OutOfRange(f"a reason must have at most {REASON_BYTES_MAX} bytes")


def quoted_name(name: bytes) -> str:
    """Return the name of a tube for error messages: decoded, and cut to 60 bytes."""
    text = name[:60].decode("utf-8", "backslashreplace")
    return f"'{text}…'" if len(name) > 60 else f"'{text}'"
