"""The lower half of the engine: state transitions, deadlines, and serving the waits.

`Moves` has the state of a node and the mechanisms that all commands share. It replies to no client and checks no
arguments. `engine.py` does both, around calls of this class:

    check ──▶ change ──▶ settle
      │          │          └ serve the waits that can be served now
      │          └ one or more calls of `_move`, which cannot be undone, because their rows are in the outbox
      └ raise an error or return a refusal. Nothing has changed yet.

**Transitions.** `_move` is the only way in which a job changes its state. The caller first sets the fields that belong
to the event: `wake`, `expiry`, `order`, `holder`, counters. When `_move` returns, these statements hold (the labels
are those of testing/invariants.py):

    E1  the tube and the key counted the rule once                              `_move`, `_count_key`
    E2  the job is in the container of its state, and in no other one           `Tube.remove_from`, `Tube.place`
    E2  only jobs that are not GONE are found by number, name, key or value     `_enter_tube`, `_leave_tube`
    E5  its deadline is the first of its times that count in its state          `_arm`
    E8  it belongs to a session or claim only if it is TAKEN                    `_deliver`, `_remove_holder`
    E10 it belongs to a stage only if it is STAGED                              `_admit_staged`, `_leave_stage`
        the outbox, the copies and the subscribers got the change once          `_report`

A job is GONE before `_admit` and after its end. Between these it is GONE only during `_transfer`, which removes it from
one tube and adds it to another. During a transfer it stays in the table of jobs, so its id stays valid.

**Two moves in one command.** A failed delivery has a cause (for example TTR_PASSED) and can have a consequence (for
example EXHAUSTED). After the first move the job is READY, although the second one buries it. No consumer can get the
job in between, because `_wake` only records the tube, and waits are served by `settle` when the command has made all
its moves.

**Waits.** Invariant after `settle` (E9): no take waits while a job is ready that it could get, and no put waits while
its tube has room for it. Only three things can break it during a command: a job becomes ready or its key opens
(`_wake`), room appears, or a tube is resumed or altered. Each of them adds the tube to `woken_tubes` (`_wake_line`),
and `settle` serves these tubes until the list is empty. A tube gets into the list again only after a wait ended or a
job left the tube, so the list becomes empty.

**Time.** `now` is an argument and never decreases. `advance` fires the deadlines up to `now`, in order. Most commands
call it first, so that they use the state at `now`. Work per turn is limited: at most FIRED_PER_TURN_MAX deadlines, and
no more rows than fit in a frame. The rest is left to the next turn (`deadlines.next_due` is in the past then, or
`_defer_line` has recorded the tube). Meanwhile a state can outlast its deadline. This is handled where it matters:

    a READY job has expired      `_first` removes it instead of delivering it
    a command names a due job    `Engine.find` and `Engine.refresh` fire the deadlines of this job first
    a wait has timed out         `_fire` settles first, so that a job which came in time is still delivered
    a session or claim ended     its jobs return in slices, and it exists until it has no jobs

**A full disk.** `room_bytes` limits puts, and `moves_left` limits transitions that do not end a taken job. `_admit` and
`_report` count them down. `check_room` and `_check_moves` refuse commands before they change anything, and timers of
jobs that are not taken wait (`_fire_job`). The end of a taken job is never refused: journal/room.py explains why there
is space for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i32, i64, u8

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.batches import BATCH_PREFIX, DISCARDED, OPEN, PUBLISHED, Claim, Consumer, Stage, Stages
from penstock.core.deadlines import NOWHERE, Deadlines, Timed
from penstock.core.errors import (
    BatchOver,
    CommandError,
    JobExists,
    NameTaken,
    NoMemory,
    NoSpace,
    NumberTaken,
    UnknownBatch,
)
from penstock.core.ids import first_id, is_long
from penstock.core.job import (
    HELD_BY_CLAIM,
    NO_KEY,
    NO_SLOT,
    VERDICT_BURY,
    VERDICT_MOVE,
    VERDICT_NACK,
    BodyRef,
    Draft,
    Job,
    LabelBytes,
    Verdict,
)
from penstock.core.limits import (
    BODY_BYTES_MAX,
    CONSUMER_MEMORY_BYTES,
    FIRED_PER_TURN_MAX,
    JOB_MEMORY_BYTES,
    NEVER,
    NO_ROOM_MS,
    NOTE_MEMORY_BYTES,
    PRIORITY_UNSET,
    REASON_BYTES_MAX,
    ROW_ROOM_BYTES,
    STAGE_REMEMBERED_MS,
    TUBE_MEMORY_BYTES,
    UNSET,
    check_body,
    check_finite,
)
from penstock.core.outbox import Outbox, ReplicationHooks
from penstock.core.policy import TubePolicy
from penstock.core.random import Xorshift32
from penstock.core.retry import THEN_BURY, THEN_DROP, RetryPolicy
from penstock.core.sessions import Session
from penstock.core.states import NO_JOB, NOT_OWNER, NOT_TAKEN, OK
from penstock.core.table import JobTable, NumberSet
from penstock.core.tasks.progress import REMEMBERED_MS, JobProgress, ProgressBoard
from penstock.core.tube import Tube, key_of
from penstock.core.waits import EndWait, PeerWait, PutWait, SignalWait, TakeWait, Waiting

# Labels of this length count as one more transition in `moves_left`. Shorter ones are free, because the log reserves
# this number of bytes with each transition.
LABEL_BYTES_PER_MOVE: Final = 128

# The bytes that the log adds to each label, rounded up.
_LABEL_HEADER_BYTES: Final = 8
# The bytes of a row about a batch, without the batch's name, rounded up.
_BATCH_ROW_BYTES: Final = 512


class Moves:
    """All tubes, jobs, sessions and deadlines of one node, and their transitions."""

    now: i64  # The latest time passed by a caller. It never decreases.
    outbox: Outbox
    # Called for each transition, after the outbox, to inform subscribers.
    watch: Callable[[Job, Tube, int, int], None] | None
    copies: ReplicationHooks | None  # Keeps copies on other nodes consistent. None without a cluster.
    notes: dict[bytes, bytes]  # Values that other parts of the node store in the log, by key.
    jobs: JobTable
    deadlines: Deadlines
    tubes: dict[bytes, Tube]
    sessions: dict[bytes, Session]
    consumers: dict[bytes, Consumer]  # Consumers of claims by name: see claims.py.
    stages: Stages
    joined: dict[bytes, Stage]  # Batches, by name, to which the present command has added jobs.
    room_bytes: i64  # Bytes of bodies that the log has room for. The shell sets it after each commit.
    moves_left: i64  # Transitions that do not end a job and that the log has room for. Low only on a full disk.
    taken_count: i64  # Number of taken jobs of all tubes. Each needs room in the log to end.
    taken_label_bytes: i64  # Bytes of the labels of taken jobs: see `row_label_bytes`.
    # Taken at-most-once jobs by id, in order of delivery. They can only be acked, so a node without a journal may drop
    # them to free memory.
    delivered_once: dict[int, Job]
    resident_bytes: i64  # Total length of the bodies that are in memory.
    waiting_bytes: i64  # Memory of puts that wait for room.
    notes_bytes: i64  # Memory of all notes.
    tubes_bytes: i64  # Memory of all tubes without their jobs.
    consumers_bytes: i64  # Memory of all consumers of claims.
    labels: LabelBytes  # Memory of names, keys, unique values, dedup ids and headers.
    body_bytes_max: i64
    old_ids: dict[bytes, Job]  # Jobs imported from Disque by their original ids.
    memory_max: i64  # Limit of memory for all jobs and tubes, in bytes. The shell sets it.
    spills: bool  # Bodies for which memory has no room stay on disk only.
    session_grace_ms: i64  # Time that a session stays alive after its last connection closed.
    next_id: i64
    next_front: i64  # Order of the last urgent job. It counts down, so that a later urgent job is served first.
    last_creation: i64  # The newest place assigned in tubes ordered by creation.
    next_number: i64  # Counter for the numbers of tubes, sessions, connections and waits.
    _random: Xorshift32  # Randomness for the jitter of retries. The shell seeded it.
    tube_slots: list[Tube | None]
    tube_slots_free: list[i32]
    tube_numbers: NumberSet
    tubes_by_number: dict[int, Tube]
    session_slots: list[Session | None]
    session_slots_free: list[i32]
    woken_tubes: list[Tube]  # Tubes whose waits may be servable now. `settle` empties it.
    _deferred: list[Tube]  # Tubes whose waits an earlier turn put off, with the keys in `_deferred_keys`.
    _deferred_keys: list[bytes | None]
    end_waits_by_id: dict[int, list[EndWait]]  # Waits for the end of a job, by its id.
    progress: ProgressBoard
    _driving: bool  # Jobs change at present because their driver changed its tasks.

    def __init__(self, epoch: int, now: i64, outbox: Outbox, entropy: int = 1) -> None:
        """Create an empty node. No earlier run may have used `epoch`: see ids.py."""
        self.now = now
        self.outbox = outbox
        self.watch = None
        self.copies = None
        self.notes = {}
        self.jobs = JobTable()
        self.deadlines = Deadlines()
        self.tubes = {}
        self.sessions = {}
        self.consumers = {}
        self.stages = Stages()
        self.joined = {}
        self.room_bytes = NEVER
        self.moves_left = NEVER
        self.taken_count = 0
        self.taken_label_bytes = 0
        self.delivered_once = {}
        self.resident_bytes = 0
        self.waiting_bytes = 0
        self.notes_bytes = 0
        self.tubes_bytes = 0
        self.consumers_bytes = 0
        self.labels = LabelBytes()
        self.body_bytes_max = BODY_BYTES_MAX
        self.old_ids = {}
        self.memory_max = NEVER
        self.spills = False
        self.session_grace_ms = 0
        self.next_id = first_id(epoch)
        self.next_front = 0
        self.last_creation = 0
        self.next_number = 1
        self._random = Xorshift32(entropy)
        self.tube_slots = []
        self.tube_slots_free = []
        self.tube_numbers = NumberSet()
        self.tubes_by_number = {}
        self.session_slots = []
        self.session_slots_free = []
        self.woken_tubes = []
        self._deferred = []
        self._deferred_keys = []
        self.end_waits_by_id = {}
        self.progress = ProgressBoard()
        self._driving = False

    def tube_of(self, job: Job) -> Tube:
        """Return the tube of a job that is not gone."""
        tube = self.tube_slots[job.tube]
        assert tube is not None
        return tube

    def tube_at(self, slot: i64) -> Tube | None:
        return self.tube_slots[slot]

    # Time

    def advance(self, now: i64) -> None:
        """Fire due deadlines, at most FIRED_PER_TURN_MAX in one turn. Call this again at `deadlines.next_due`."""
        if now > self.now:
            self.now = now
        if self._deferred:
            self._wake_deferred()
        if self.deadlines.next_due <= now:
            fired: i64 = 0
            while self.deadlines.next_due <= now and fired < FIRED_PER_TURN_MAX and not self.outbox.full():
                fired += self._fire(self.deadlines.first(), now)
        if self.woken_tubes:
            self.settle(now)

    def _fire(self, item: Timed, now: i64) -> i64:
        """Fire one deadline. Return how much work it was, in transitions."""
        # The session whose command runs at present does not cause these transitions.
        actor = self.outbox.actor
        self.outbox.actor = None
        work = self._fire_item(item, now)
        self.outbox.actor = actor
        return work

    def _fire_item(self, item: Timed, now: i64) -> i64:
        if isinstance(item, Job):
            self._fire_job(item, now)
            return 1
        if isinstance(item, Waiting):
            # The job or room may have come in time although this turn is late, so serve it first.
            self.settle(now)
            if item.outcome == w.WAITING:
                self._end_wait(item, w.TIMED_OUT)
            return 1
        if isinstance(item, Claim):
            return self._end_claim(item, now)
        if isinstance(item, Session):
            return self._end_session(item, now)
        if isinstance(item, Stage):
            self._fire_stage(item, now)
            return 1
        if isinstance(item, JobProgress):
            self.forget_progress(item)
            return 1
        assert isinstance(item, Stages)
        return self._empty_stages(now)

    def _fire_job(self, job: Job, now: i64) -> None:
        tube = self.tube_of(job)
        state = job.state
        if self.moves_left <= 0 and state != s.TAKEN and not self._refill_moves():
            # The rest of the disk is reserved for taken jobs. No job can be taken meanwhile, so this one can wait.
            self.deadlines.set(job, now + NO_ROOM_MS)
            return
        if tube.paused_in and tube.pause_holds and self._hold_back(job, tube, now):
            return
        if self.copies is not None and job.copy() is not None and job.expiry > now:
            if (state == s.TAKEN or state == s.DELAYED) and self.copies.delays_requeue(job, tube, now):
                return
        if state == s.TAKEN and not (tube.ttl_kills and job.expiry <= now):
            job.returns += 1
            self._fail(job, tube, s.TTR_PASSED, now)
        elif state == s.ZOMBIE:
            self._move(job, tube, s.ZOMBIE_PASSED, now)
        elif job.expiry <= now:
            self._move(job, tube, s.EXPIRED, now)
        else:
            assert state == s.DELAYED
            self._move(job, tube, s.DELAY_PASSED, now)

    def _hold_back(self, job: Job, tube: Tube, now: i64) -> bool:
        """Delay a job by another ttr, because its tube is paused, instead of making it ready.

        Return False and do nothing if the job has no ttr, or if its ttl has ended.
        """
        if job.expiry <= now or job.ttr == NEVER or not (job.state == s.TAKEN or job.state == s.DELAYED):
            return False
        job.wake = now + job.ttr
        self._move(job, tube, s.TOUCHED if job.state == s.TAKEN else s.SWITCHED_DELAYED, now)
        return True

    def _end_session(self, session: Session, now: i64) -> i64:
        """Return a limited number of jobs of a session to their tubes. Later turns return the others.

        Remove the session when it has no jobs left.
        """
        released: i64 = 0
        while session.held and released < FIRED_PER_TURN_MAX and not self.outbox.full():
            job = session.held[-1]
            job.returns += 1
            self._fail(job, self.tube_of(job), s.DISCONNECTED, now)
            released += 1
        if not session.held:
            self.deadlines.clear(session)
            del self.sessions[session.token]
            self.session_slots[session.slot] = None
            self.session_slots_free.append(session.slot)
        return released + 1

    def _end_claim(self, claim: Claim, now: i64) -> i64:
        """End a claim. Ack its jobs if the claim was acked, and return them to their tubes otherwise.

        One turn handles a limited number of jobs. Later turns handle the others.
        """
        consumer = claim.consumer
        if claim.number in consumer.claims:
            self._close_claim(claim)
            self.outbox.consumer_changed(consumer, now)
        self.deadlines.clear(claim)
        released: i64 = 0
        while claim.jobs and released < FIRED_PER_TURN_MAX and not self.outbox.full():
            job = claim.jobs.pop()
            tube = self.tube_of(job)
            doomed = job.extra is not None and job.extra.doomed
            verdict = None if job.extra is None or doomed else job.extra.verdict
            if claim.acked and verdict is not None:
                self._execute(verdict, job, tube, now)
            elif claim.acked:
                self._move(
                    job, tube, s.ACKED if tube.deletes_on_ack or doomed else self._after_ack(job, tube, UNSET, now), now
                )
            elif doomed:
                self._move(job, tube, s.DELETED, now)
            else:
                job.returns += 1
                self._move(job, tube, s.CLAIM_ENDED, now)
            released += 1
        if claim.jobs:
            self.deadlines.set(claim, now)
        elif claim.acked:
            del consumer.acking[claim.number]
            self.outbox.consumer_changed(consumer, now)
        return released + 1

    def _execute(self, verdict: Verdict, job: Job, tube: Tube, now: i64) -> None:
        """Nack, bury or move a job of an acked claim.

        The verdict was checked when it was given. If the target of a move is no longer suitable, the job is buried.
        """
        extra = job.ensure_extra()
        if verdict.reason or verdict.kind == VERDICT_BURY:
            extra.reason = verdict.reason
        if verdict.kind == VERDICT_NACK:
            job.nacks += 1
            self._fail(job, tube, s.NACKED, now, verdict.delay_ms)
            return
        if verdict.kind == VERDICT_MOVE:
            target = self.tubes.get(verdict.tube)
            if target is not None and target is not tube and not target.driven:
                try:
                    body = self._body_in(job, target)
                except CommandError as damage:
                    extra.reason = str(damage).encode()[:REASON_BYTES_MAX]
                else:
                    event = s.MOVED_IN_READY
                    if verdict.delay_ms > 0 and target.policy.has_delay:
                        job.wake = now + verdict.delay_ms
                        event = s.MOVED_IN_DELAYED
                    self._transfer(job, tube, target, body, event, now)
                    return
            else:
                extra.reason = b"the job cannot move to the tube of its verdict, because the tube was dropped"
        extra.buries += 1
        self._move(job, tube, s.BURIED_BY, now)

    def _close_claim(self, claim: Claim) -> None:
        self.deadlines.clear(claim)
        claim.consumer.claims.pop(claim.number, None)

    def _fire_stage(self, stage: Stage, now: i64) -> None:
        """Discard a stage that has expired. Publish the callbacks of a batch whose members have all ended."""
        phase = DISCARDED
        if stage.members is not None:
            if stage.members.is_over():
                phase = PUBLISHED
            elif stage.until > now:
                # A member was put by the command that ended the last one.
                self.deadlines.set(stage, stage.until)
                return
            if self.moves_left <= 0 and not self._refill_moves():
                self.deadlines.set(stage, now + NO_ROOM_MS)
                return
        self._close_stage(stage, phase, now)
        self.outbox.stages_changed([stage], now)

    def check_batch(self, tube: Tube, name: bytes) -> None:
        """Raise an error if a job of a tube cannot belong to a batch."""
        if tube.temporary or tube.driven or not tube.session_owned:
            raise tube.lacks("batches: their jobs are in the journal, and belong to the session that takes them")
        stage = self.stages.by_name.get(BATCH_PREFIX + name)
        if stage is None or stage.members is None:
            raise UnknownBatch()
        if stage.phase != OPEN or stage.members.is_over():
            raise BatchOver("the batch has ended, so no job can be added to it; create another one")

    def _join_batch(self, job: Job, name: bytes, now: i64) -> None:
        """Add a new job to its batch. `report_joined` writes the new number of members to the log."""
        stage = self.stages.by_name[BATCH_PREFIX + name]
        members = stage.members
        assert members is not None
        job.ensure_extra().batch = stage.name
        members.total += 1
        members.pending += 1
        stage.until = now + stage.expire_ms
        self.deadlines.set(stage, stage.until)
        self.joined[stage.name] = stage

    def report_joined(self, now: i64) -> None:
        """Write the batches to the log to which the present command has added jobs."""
        for stage in self.joined.values():
            self.outbox.stages_changed([stage], now)
        self.joined = {}

    def _leave_batch(self, job: Job, failed: bool, now: i64) -> None:
        """Count a member of a batch as ended. If it was the last one, the next turn publishes the callbacks."""
        extra = job.ensure_extra()
        stage = self.stages.by_name.get(extra.batch)
        extra.batch = b""
        if stage is None or stage.members is None:
            return
        members = stage.members
        members.pending -= 1
        if failed:
            members.failed += 1
            self.outbox.stages_changed([stage], now)
        if stage.phase == OPEN and members.is_over():
            self.deadlines.set(stage, now)

    def _close_stage(self, stage: Stage, phase: i64, now: i64) -> None:
        """Publish or discard a stage, as `phase` says. It accepts no more jobs.

        Its jobs leave it later, after the jobs of all stages that were published or discarded earlier.
        """
        self.deadlines.clear(stage)
        stage.phase = phase
        stage.until = now + STAGE_REMEMBERED_MS
        if phase == PUBLISHED and stage.count > 0:
            stage.published = stage.count
        stage.closing = True
        self.stages.closing.append(stage)
        self.deadlines.set(self.stages, now)
        self.stages.add_closed(stage, now)

    def _empty_stages(self, now: i64) -> i64:
        """Move jobs of published stages to their tubes, and remove jobs of discarded stages.

        One call handles a limited number of jobs. Return how much work it was, in transitions.
        """
        closing = self.stages.closing
        moved: i64 = 0
        has_moves = self.moves_left > 0 or self._refill_moves()
        while closing and moved < FIRED_PER_TURN_MAX and has_moves and not self.outbox.full():
            has_moves = self.moves_left > 0 or self._refill_moves()
            stage = closing[0]
            moved += 1
            if stage.at < len(stage.jobs):
                job = stage.jobs[stage.at]
                stage.at += 1
                # A job that was deleted in the meantime is no longer staged.
                if job.state == s.STAGED and stage.phase == PUBLISHED:
                    self._publish(job, now)
                elif job.state == s.STAGED:
                    self._move(job, self.tube_of(job), s.WITHDRAWN, now)
            else:
                stage.jobs = []
                stage.at = 0
                stage.closing = False
                closing.pop(0)
        self.deadlines.set(self.stages, NEVER if not closing else now if has_moves else now + NO_ROOM_MS)
        return moved + 1

    def _publish(self, job: Job, now: i64) -> None:
        """Move a job from its published stage to the end of its tube. Its delay and ttl start now."""
        tube = self.tube_of(job)
        waited = now - job.created
        job.wake = later(job.wake, waited)
        job.expiry = later(job.expiry, waited)
        if job.extra is not None and job.extra.priority_given != PRIORITY_UNSET:
            self.next_front -= 1
            job.order = self.next_front
        else:
            job.order = self._newest_order(tube, now)
        self._publish_now(job, tube, now)

    def _publish_now(self, job: Job, tube: Tube, now: i64) -> None:
        """Make a staged job ready, or delayed if it has a delay."""
        self._move(job, tube, s.PUBLISHED if job.wake == NEVER else s.PUBLISHED_DELAYED, now)

    # Jobs

    def _move(self, job: Job, tube: Tube, event: i64, now: i64) -> None:
        """Apply an event to a job. The caller has already set the fields that the event changes.

        The transition is reported last, when the job has its new container and deadline. A job that is GONE is reported
        before it leaves the indexes of its tube, because its row in the log contains its key and name.
        """
        came_from = i64(job.state)
        since = job.since
        holder: i64 = 0
        rule = s.move(job, event)
        state = i64(job.state)
        # Not +=, because mypyc compiles += on a list item to a generic call.
        counts = tube.counts
        counts[rule] = counts[rule] + 1
        tube.used = now
        if tube.key_stats:
            self._count_key(job, tube, rule, came_from, state)
        if state != came_from:
            tube.remove_from(job, came_from)
            if tube.keys is None:
                if came_from == s.READY:
                    tube.ready_times.remove(since)
                elif state == s.READY:
                    tube.ready_times.add(now)
            job.since = now
            if tube.ready_bodies is not None:
                index_body(tube, job, came_from, state)
            if came_from == s.TAKEN:
                if event == s.ACKED or event == s.KEPT or event == s.LINGERED:
                    tube.count_run(now - since)
                self.taken_count -= 1
                if job.extra is not None or tube.keys is not None:
                    self.taken_label_bytes -= row_label_bytes(job, tube)
                if job.once:
                    del self.delivered_once[job.id]
                holder = self._remove_holder(job, tube, event)
            elif came_from == s.STAGED:
                self._leave_stage(job)
            extra = job.extra
            if (
                extra is not None
                and (extra.unique or extra.batch)
                and (state == s.GONE or s.BURIED <= state <= s.ZOMBIE)
            ):
                if extra.unique and (state == s.DONE or state == s.ZOMBIE):
                    _no_longer_unique(tube, job)
                if extra.batch and event != s.MOVED_OUT:
                    self._leave_batch(job, event != s.ACKED and (state == s.GONE or state == s.BURIED), now)
            if (state == s.GONE or s.BURIED <= state <= s.ZOMBIE) and (self.end_waits_by_id or self.progress.by_job):
                self._end_waits_by_event(job, came_from, event)
            if state == s.GONE:
                self._report(job, tube, rule, since, holder, now)
                self._leave_tube(job, tube)
                if event != s.MOVED_OUT:
                    self.jobs.remove(job)
                return
            if state == s.READY or state == s.BURIED or state == s.DONE:
                job.wake = NEVER
            tube.place(job)
            if state == s.READY:
                self._wake(tube, job)
                if tube.has_started and not self._driving:
                    tube.returned.append(job)
                    self._wake_line(tube, None)
            elif state == s.TAKEN:
                tube.count_wait(now - since)
                self.taken_count += 1
                if job.extra is not None or tube.keys is not None:
                    self.taken_label_bytes += row_label_bytes(job, tube)
                if job.once:
                    self.delivered_once[job.id] = job
        self._arm(job, tube)
        self._report(job, tube, rule, since, holder, now)

    def _report(self, job: Job, tube: Tube, rule: i64, since: i64, holder: i64, now: i64) -> None:
        self.moves_left -= 1
        extra = job.extra
        if extra is not None or tube.keys is not None:
            self.moves_left -= row_label_bytes(job, tube) // LABEL_BYTES_PER_MOVE
        if extra is not None:
            copy = extra.copy
            if copy is not None:
                copy.update_aside(s.SOURCE_OF[rule] == s.TARGET_OF[rule])
                if self.copies is not None:
                    self.copies.moved(job, tube, rule, now)
        self.outbox.moved(job, tube, rule, since, holder, now)
        if self.watch is not None:
            self.watch(job, tube, rule, now)

    def _remove_holder(self, job: Job, tube: Tube, event: i64) -> i64:
        """Remove a taken job from its session or claim.

        Wake the takes of the tube, because the job's key may be below its limit now. Return the number of the session,
        or 0.
        """
        number: i64 = 0
        if job.holder >= 0:
            holder = self.session_slots[job.holder]
            assert holder is not None
            holder.let_go(job)
            number = holder.number
            if holder.signals is not None:
                self._signal_end(job, holder, event)
            if job.extra is not None and job.extra.cancelled and job.state != s.READY and job.state != s.DELAYED:
                # The job ended, or its consumer decided what happens to it.
                job.extra.cancelled = False
        elif job.holder == HELD_BY_CLAIM:
            extra = job.ensure_extra()
            extra.consumer = b""
            extra.claim = 0
            extra.claim_place = 0
            extra.verdict = None
        job.holder = NO_SLOT
        if tube.keys is not None:
            self._wake(tube, job)
        return number

    def _signal_end(self, job: Job, holder: Session, event: i64) -> None:
        """Update the signals of a session whose delivery of a job has ended, and tell it if it lost the job."""
        signals = holder.signals
        assert signals is not None
        lost = self.outbox.actor is not holder and event != s.DISCONNECTED
        signals.left(job, s.EVENT_NAMES[event].encode() if lost else b"", self.now)
        if lost:
            self.serve_signals(holder)

    def serve_signals(self, session: Session) -> None:
        """End the waits of a session for signals, because it has a new one."""
        signals = session.signals
        if signals is not None:
            for wait in list(signals.waits.values()):
                assert isinstance(wait, SignalWait)
                self._end_wait(wait, w.SERVED)

    def _ends_cancelled(self, job: Job, tube: Tube, now: i64) -> bool:
        """Remove a job that has just returned to its tube, if it was cancelled while it was taken. Return whether."""
        if job.extra is None or not job.extra.cancelled:
            return False
        self._move(job, tube, s.DELETED, now)
        return True

    def forget_progress(self, progress: JobProgress) -> None:
        """Remove the progress of a job."""
        self.deadlines.clear(progress)
        self.progress.remove(progress)

    def _leave_stage(self, job: Job) -> None:
        extra = job.ensure_extra()
        # A job that waits for its copies is STAGED, too, but in no stage.
        if extra.stage:
            stage = self.stages.by_name[extra.stage]
            extra.stage = b""
            stage.let_go()

    def _arm(self, job: Job, tube: Tube) -> None:
        """Set the job's nearest deadline: the first of `wake` and `expiry` that counts in its present state."""
        due = job.wake
        if job.expiry < due and (job.state != s.TAKEN or (tube.ttl_kills and job.holder != HELD_BY_CLAIM)):
            due = job.expiry
        if job.state >= s.ZOMBIE:
            # The ttl and delay of a staged job have not started.
            due = job.wake if job.state == s.ZOMBIE else NEVER
        if due != NEVER or job.deadline_pos != NOWHERE:
            self.deadlines.set(job, due)

    def _leave_tube(self, job: Job, tube: Tube) -> None:
        if job.deadline_pos != NOWHERE:
            self.deadlines.clear(job)
        if tube.jobs_by_number is not None:
            tube.jobs_by_number.remove(job)
        if tube.keys is not None:
            tube.keys.leave(job)
        extra = job.extra
        if extra is not None:
            if extra.name:
                del tube.names[extra.name]
                if self.old_ids.get(extra.name) is job:
                    del self.old_ids[extra.name]
                tube.labels.total -= len(extra.name)
            if extra.unique:
                _no_longer_unique(tube, job)
            if extra.headers:
                tube.labels.headers -= len(extra.headers)
        tube.body_bytes -= i64(job.body_length())
        self.resident_bytes -= resident_length(job)
        if not isinstance(job.body, bytes):
            tube.spilled -= 1
        if tube.put_line.length > 0:
            self._wake_line(tube, None)

    def _admit(self, job: Job, tube: Tube, draft: Draft, now: i64) -> None:
        """Add a job that was created from a draft and checked."""
        self.next_id += 1
        if self.room_bytes != NEVER:
            self.room_bytes -= draft.log_bytes() + ROW_ROOM_BYTES
        event: i64 = s.PUT if job.wake == NEVER else s.PUT_DELAYED
        if draft.initial_state != s.READY:
            event = s.ARRIVALS[draft.initial_state]
        if draft.urgent and event == s.PUT:
            event = s.PUT_URGENT
            self.next_front -= 1
            job.order = self.next_front
        elif tube.by_creation:
            job.order = self._creation(now)
        self._enter_tube(job, tube, NO_KEY if draft.key is None else draft.key, now)
        if draft.batch is not None:
            self._join_batch(job, draft.batch, now)
        if draft.dedup is not None:
            tube.dedup_window().add(draft.dedup, job.id, i64(job.ttl_minutes), now)
            self.outbox.put_seen(job, tube, draft.dedup)
        self.jobs.add(job)
        self._move(job, tube, event, now)

    def _admit_staged(self, job: Job, tube: Tube, draft: Draft, stage: Stage, now: i64) -> None:
        """Add a job that was created from a draft and checked to a stage."""
        self.next_id += 1
        if self.room_bytes != NEVER:
            self.room_bytes -= draft.log_bytes() + ROW_ROOM_BYTES
        job.ensure_extra().stage = stage.name
        stage.jobs.append(job)
        stage.count += 1
        self._enter_tube(job, tube, NO_KEY if draft.key is None else draft.key, now)
        self.jobs.add(job)
        self._move(job, tube, s.PUT_STAGED, now)

    def _existing_job(self, tube: Tube, draft: Draft, now: i64) -> Job | None:
        """Return the job that already exists for a draft: it has the same unique value, body or dedup id.

        Return None if there is none. Raise JobExists if the draft requires a new job, and NameTaken or NumberTaken if
        another job has its name or number.
        """
        twin = self._find_duplicate(tube, draft, now)
        if twin is not None:
            if draft.new:
                raise JobExists()
            return twin
        # These checks come last, because a repeated put has the name and number of the job that it put before.
        if draft.name is not None and draft.name in tube.names:
            raise NameTaken()
        if (
            draft.number != UNSET
            and tube.jobs_by_number is not None
            and tube.jobs_by_number.find(i64(draft.number)) is not None
        ):
            raise NumberTaken()
        return None

    def _find_duplicate(self, tube: Tube, draft: Draft, now: i64) -> Job | None:
        if draft.dedup is not None and tube.dedups is not None:
            job_id: i64 = tube.dedups.find(draft.dedup, now)
            if job_id >= 0:
                job = self.jobs.find(job_id)
                # The job has ended. Return an object with its id, which is all that the producer needs.
                if job is None:
                    job = Job(job_id, tube.slot, b"", 0, now)
                    job.ttl_minutes = i32(tube.dedups.ttl_minutes(draft.dedup))
                return job
        if draft.unique is not None:
            unfinished = tube.uniques.get(draft.unique)
            if unfinished is not None:
                return unfinished
        if draft.same_body and tube.ready_bodies is not None and tube.delayed_bodies is not None:
            alike = tube.ready_bodies.find(draft.body)
            if alike is None and draft.delay_ms != 0:
                alike = tube.delayed_bodies.find(draft.body)
            if alike is not None:
                return alike
        return None

    def check_room(self, jobs: i64, log_bytes: i64, other_bytes: i64 = 0) -> None:
        """Raise an error if disk or memory has no space for these jobs.

        `other_bytes` is the additional space for tubes or a consumer.
        """
        if puts_bytes(jobs, log_bytes) + other_bytes > self.room_bytes:
            raise NoSpace()
        if self.memory_max != NEVER:
            needed = (self.jobs.count + jobs) * JOB_MEMORY_BYTES + self.tubes_bytes + other_bytes
            needed += self.waiting_bytes + self.notes_bytes + self.consumers_bytes
            needed += self.labels.total + self.labels.headers + self.progress.used
            if not self.spills:
                needed += self.resident_bytes + log_bytes
            if needed > self.memory_max:
                raise NoMemory()

    def _check_moves(self) -> None:
        """Raise NoSpace if the free disk space is only sufficient for the acks and releases of taken jobs.

        This is checked by commands that a client could repeat without limit.
        """
        if self.moves_left <= 0 and not self._refill_moves():
            raise NoSpace(
                "the disk is full, and the rest is reserved for acks; free some space, and jobs can be taken again"
            )

    def _refill_moves(self) -> bool:
        """Ask the log how many more transitions it has space for, because the granted number is used up.

        Return whether it has space for any.
        """
        self.count_moves()
        return self.moves_left > 0

    def count_moves(self) -> None:
        """Update the number of transitions that the log has space for.

        The space that is reserved for the end of taken jobs does not count.
        """
        self.moves_left = self.outbox.more_moves(self.moves_left, self.taken_count, self.taken_label_bytes)

    def wake_all_takes(self) -> None:
        """Mark all lists of waiting takes to be served, because the log has space for transitions again."""
        for tube in self.tubes.values():
            if tube.take_line.length > 0:
                self._wake_line(tube, None)
            for key in tube.key_lines:
                self._wake_line(tube, key)

    def memory_used(self) -> i64:
        """Return how many bytes of memory are in use, as counted for `memory_max`."""
        used = self.jobs.count * JOB_MEMORY_BYTES + self.tubes_bytes + self.resident_bytes
        used += self.waiting_bytes + self.notes_bytes + self.consumers_bytes
        return used + self.labels.total + self.labels.headers + self.progress.used

    def add_consumer(self, consumer: Consumer) -> None:
        self.consumers[consumer.name] = consumer
        self.consumers_bytes += CONSUMER_MEMORY_BYTES + len(consumer.name)

    def memory_left(self) -> i64:
        """Return how many bytes of memory are left for bodies.

        Bodies can use a quarter of `memory_max`. The rest is for the other data of jobs and tubes.
        """
        left = self.memory_max - self.memory_used()
        for_bodies = (self.memory_max >> 2) - self.resident_bytes
        return left if left < for_bodies else for_bodies

    def note(self, key: bytes, value: bytes, now: i64) -> None:
        """Store a value under a key in the log. An empty value deletes the key."""
        before = self.notes.get(key)
        if before is not None:
            self.notes_bytes -= NOTE_MEMORY_BYTES + len(key) + len(before)
        if value:
            self.notes[key] = value
            self.notes_bytes += NOTE_MEMORY_BYTES + len(key) + len(value)
        elif before is None:
            return
        else:
            del self.notes[key]
        self.outbox.noted(key, value, now)

    def _enter_tube(self, job: Job, tube: Tube, key: bytes, now: i64) -> None:
        if tube.jobs_by_number is not None:
            if job.local == tube.next_local:
                tube.next_local += 1
                if tube.next_local > tube.promised:
                    tube.reserve(now)
                    self.outbox.integers_reserved(tube, tube.reserved, now)
                tube.jobs_by_number.add(job)
            else:
                # Its producer chose a number below those that the tube assigns.
                tube.jobs_by_number.insert(job)
        tube.index(job, key)
        self.index_old_id(job, tube)
        self.resident_bytes += resident_length(job)
        if not isinstance(job.body, bytes):
            tube.spilled += 1

    def index_old_id(self, job: Job, tube: Tube) -> None:
        """Index an imported job by the id that it had in Disque. `penstock import disque-aof` stores it as `name`."""
        extra = job.extra
        if extra is not None and extra.name and tube.by_creation and is_long(extra.name):
            self.old_ids[extra.name] = job

    def _creation(self, now: i64) -> i64:
        """Return the order number of a new job. It increases even for jobs that are created in the same millisecond."""
        creation = now * 1_000_000
        if creation <= self.last_creation:
            creation = self.last_creation + 1
        self.last_creation = creation
        return creation

    def _newest_order(self, tube: Tube, now: i64) -> i64:
        """Return an order number that places a job behind all jobs of the tube.

        Order numbers and ids come from the same counter, so this uses up an id.
        """
        if tube.by_creation:
            return self._creation(now)
        order = self.next_id
        self.next_id += 1
        return order

    def _body_in(self, job: Job, target: Tube) -> bytes | BodyRef:
        """Return the body of a job in the form that the target tube needs.

        Call this before anything changes, because reading a body from disk can fail.
        """
        if target.temporary or target.ready_bodies is not None:
            # The job leaves the log, or the target indexes it by its body.
            return self.outbox.body_of(job)
        return job.body

    def _transfer(
        self, job: Job, source: Tube, target: Tube, body: bytes | BodyRef, event: i64, now: i64, given_up: bool = False
    ) -> None:
        """Move a job to the end of another tube. It keeps its id, body, ttl and counters.

        With `given_up`, its retry policy moves it after its last failure.
        """
        key = key_of(source, job)
        self._move(job, source, s.MOVED_OUT, now)
        if given_up:
            self.outbox.gave_up(job)
        job.tube = target.slot
        job.order = self._newest_order(target, now)
        if job.extra is not None and job.extra.priority_given != PRIORITY_UNSET:
            # `urgent` and `requeue` apply only to the tube that the job left.
            job.priority = job.extra.priority_given
            job.extra.priority_given = PRIORITY_UNSET
        if not target.by_priority:
            job.priority = target.policy.default_priority
        job.local = target.next_local if target.jobs_by_number is not None else NO_SLOT
        if job.extra is not None:
            # The name was unique only in the tube that the job left.
            job.extra.name = b""
        job.body = body
        self._enter_tube(job, target, key, now)
        self._move(job, target, event, now)

    def _after_ack(self, job: Job, tube: Tube, delay_ms: int, now: i64) -> i64:
        """Return the event of an ack in a tube that keeps acked jobs, and set the time until which the job is kept."""
        if tube.policy.after_ack == p.KEPT:
            if delay_ms != UNSET:
                raise tube.lacks("zombies, so an ack has no delay")
            job.expiry = NEVER
            return s.KEPT
        if delay_ms == UNSET:
            delay_ms = tube.policy.zombie_ms
        else:
            check_finite(delay_ms, "delay")
        if delay_ms <= 0:
            return s.ACKED
        job.wake = now + i64(delay_ms)
        return s.LINGERED

    def _fail(self, job: Job, tube: Tube, cause: i64, now: i64, delay_ms: i64 = UNSET) -> None:
        """End a failed delivery: return the job to its tube, or apply its retry policy.

        If `delay_ms` is given, it replaces the delay of the retry policy, but not its maximum number of deliveries.
        """
        retry = tube.retry
        if job.extra is not None and job.extra.retry is not None:
            retry = job.extra.retry
        self._move(job, tube, cause, now)
        if self._ends_cancelled(job, tube, now):
            return
        if retry is not None and retry.is_spent(i64(job.deliveries)):
            self._give_up(job, tube, retry, now)
            return
        wait = delay_ms
        if delay_ms == UNSET:
            wait = 0 if retry is None else retry.wait_ms(i64(job.deliveries), self._random.next32())
        if wait > 0:
            job.wake = now + wait
            self._move(job, tube, s.HELD_BACK, now)

    def _rekey(self, job: Job, tube: Tube, key: bytes) -> None:
        """Give a taken or buried job another key.

        The statistics count the job as gone from the old key and as new in the new key.
        """
        keys = tube.keys
        assert keys is not None
        state = i64(job.state)
        old = keys.of(job)
        if old.name == key:
            return
        if state == s.TAKEN:
            keys.give_back(job)
            self._wake(tube, job)
            self.taken_label_bytes += len(key) - len(old.name)
        if tube.key_stats:
            _count(tube, old.name, s.rule_of(s.MOVED_OUT, state), state, s.GONE)
            tube.arriving = True
        keys.leave(job)
        keys.join(job, key)
        if state == s.TAKEN:
            keys.of(job).taken += 1

    def _count_key(self, job: Job, tube: Tube, rule: i64, came_from: i64, state: i64) -> None:
        key = key_of(tube, job)
        if tube.arriving:
            tube.arriving = False
            _count(tube, key, s.rule_of(s.ARRIVALS[state], s.GONE), s.GONE, state)
        else:
            _count(tube, key, rule, came_from, state)

    def _give_up(self, job: Job, tube: Tube, retry: RetryPolicy, now: i64) -> None:
        """Bury, drop or move a job that failed for the last allowed time."""
        tube.dead_lettered += 1
        extra = job.ensure_extra()
        if not extra.reason:
            extra.reason = b"given up after %d deliveries" % job.deliveries
        if retry.then == THEN_DROP:
            self._move(job, tube, s.DISCARDED, now)
            return
        if retry.then == THEN_BURY:
            extra.buries += 1
            self._move(job, tube, s.EXHAUSTED, now)
            return
        target = self.tubes.get(retry.target)
        if target is None:
            target = self._make_tube(retry.target, p.FIFO, now)
        # A driver keeps its own tasks, so a job cannot be added behind its back.
        if target is not tube and not target.driven:
            try:
                body = self._body_in(job, target)
            except CommandError as damage:
                extra.reason = str(damage).encode()[:REASON_BYTES_MAX]
            else:
                if extra.batch:
                    self._leave_batch(job, True, now)
                self._transfer(job, tube, target, body, s.MOVED_IN_READY, now, True)
                if self.end_waits_by_id or self.progress.by_job:
                    self._end_waits_for(job, tube.slot, s.READY, w.END_DEAD_LETTERED)
                return
        extra.buries += 1
        self._move(job, tube, s.EXHAUSTED, now)

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
        """Make a job ready at its old place, or delay it, with a new ttl and priority. The caller has checked them."""
        if ttl_ms != UNSET:
            job.expiry = NEVER if ttl_ms == NEVER else now + i64(ttl_ms)
        if delay_ms != 0:
            if tube.delay_extends_ttl and (ttl_ms != UNSET or tube.policy.release_stretches_ttl):
                job.expiry = later(job.expiry, delay_ms)
            job.wake = now + i64(delay_ms)
        if priority != PRIORITY_UNSET:
            job.priority = priority
            if job.extra is not None:
                job.extra.priority_given = PRIORITY_UNSET
        self._move(job, tube, event if delay_ms == 0 else event_delayed, now)
        self._ends_cancelled(job, tube, now)

    # Tubes

    def _make_tube(self, name: bytes, policy: TubePolicy, now: i64) -> Tube:
        free = self.tube_slots_free
        slot: i32 = free.pop() if free else len(self.tube_slots)
        tube = Tube(name, self.new_number(), slot, policy, now, self.labels)
        self.add_tube(tube)
        if self.room_bytes != NEVER:
            self.room_bytes -= tube_bytes(name, policy)
        self.outbox.tube_made(tube, now)
        if self.copies is not None:
            self.copies.tube_made(tube)
        return tube

    def add_tube(self, tube: Tube) -> None:
        if tube.slot == len(self.tube_slots):
            self.tube_slots.append(tube)
        else:
            self.tube_slots[tube.slot] = tube
        self.tubes[tube.name] = tube
        self.tube_numbers.add(tube.number)
        self.tubes_by_number[tube.number] = tube
        self.tubes_bytes += tube_bytes(tube.name, tube.policy)

    # Waits

    def _wake(self, tube: Tube, job: Job) -> None:
        """Record that a job, or another job of its key, can be delivered.

        The waits are served when the command ends.
        """
        if tube.key_lines:
            self._wake_line(tube, key_of(tube, job))
        elif tube.take_line.length > 0:
            self._wake_line(tube, None)
        if tube.wanted_by_peers and self.copies is not None:
            self.copies.job_ready(tube)

    def _wake_line(self, tube: Tube, key: bytes | None) -> None:
        """Record that this tube, and the waits for `key` if it is not None, have to be served when the command ends."""
        if key is not None:
            tube.woken_keys.append(key)
        if not tube.woken:
            tube.woken = True
            self.woken_tubes.append(tube)

    def _defer_line(self, tube: Tube, key: bytes | None) -> None:
        """Let the next turn serve the commands that wait for this tube and key. This turn has done enough work."""
        self._deferred.append(tube)
        self._deferred_keys.append(key)

    def _wake_deferred(self) -> None:
        """Record that the waits which an earlier turn deferred have to be served."""
        later = self._deferred
        keys = self._deferred_keys
        self._deferred = []
        self._deferred_keys = []
        for i in range(len(later)):
            if not later[i].dropped:
                self._wake_line(later[i], keys[i])

    def settle(self, now: i64) -> None:
        """Serve the waits of all woken tubes, until no wait can be served."""
        while self.woken_tubes:
            woken = self.woken_tubes
            self.woken_tubes = []
            for tube in woken:
                tube.woken = False
                self._serve_puts(tube, now)
                names = tube.woken_keys
                tube.woken_keys = []
                can_serve = not tube.driven or self._serve_driver(tube, now)
                if can_serve and not tube.paused_out:
                    self._serve_any(tube, now)
                    for name in names:
                        self._serve_key(tube, name, now)

    def _serve_puts(self, tube: Tube, now: i64) -> None:
        """Add the jobs of waiting puts while the tube has space."""
        while not tube.paused_in:
            head = tube.put_line.head
            if head is None:
                return
            wait = head.wait
            assert isinstance(wait, PutWait)
            draft = wait.draft
            if not tube.has_room(len(draft.body)):
                return
            if self.outbox.full():
                self._defer_line(tube, None)
                return
            self._uncount(wait)
            try:
                self.check_room(1, draft.log_bytes())
                if draft.batch is not None:
                    self.check_batch(tube, draft.batch)
                twin = self._existing_job(tube, draft, now)
                job = tube.make(self.next_id, draft, now) if twin is None else twin
            except CommandError as refusal:
                # The put was valid when it started to wait, but is not any more.
                wait.refusal = refusal
                self._end_wait(wait, w.TIMED_OUT)
                continue
            if twin is None:
                actor = self.outbox.actor
                self.outbox.actor = wait.connection.session
                self._admit(job, tube, draft, now)
                self.report_joined(now)
                self.outbox.actor = actor
            wait.job = job
            self._end_wait(wait, w.SERVED)

    def _serve_any(self, tube: Tube, now: i64) -> None:
        while True:
            head = tube.take_line.head
            if head is None or not self._serve_take(head.wait, tube, None, now):
                return

    def _serve_key(self, tube: Tube, name: bytes, now: i64, before: i64 = NEVER) -> bool:
        """Serve the takes with numbers below `before` that wait for this key. Return whether any take was served."""
        line = tube.key_lines.get(name)
        served = False
        while line is not None:
            head = line.head
            if head is None or head.wait.number >= before or not self._serve_take(head.wait, tube, name, now):
                break
            served = True
        return served

    def _serve_take(self, wait: Waiting, tube: Tube, key: bytes | None, now: i64) -> bool:
        """Serve one waiting take with jobs, at most the number that it wants.

        Return False if there was no job for it.
        """
        assert isinstance(wait, TakeWait)
        session = wait.connection.session
        while wait.wants_more():
            if key is None and tube.key_lines:
                self._serve_earlier(tube, wait, now)
            if self.outbox.full():
                self._defer_line(tube, key)
                break
            try:
                job = self._take(session, tube, key, wait.ttr_ms, now)
            except CommandError as error:
                # The tube's driver failed. The present command belongs to another client and must not fail.
                self._driver_failed(tube, error)
                break
            if job is None:
                break
            wait.give(job)
        if not wait.jobs:
            return False
        self._end_wait(wait, w.SERVED)
        return True

    def _serve_earlier(self, tube: Tube, wait: Waiting, now: i64) -> None:
        """Serve the takes that wait for the key of the next job and are older than `wait`.

        Repeat this for the job that is next then, until no older take waits for its key.
        """
        while not self.outbox.full():
            job = self._first(tube, None, now)
            if job is None:
                return
            name = key_of(tube, job)
            line = tube.key_lines.get(name)
            if line is None or line.head is None or line.head.wait.number >= wait.number:
                return
            if not self._serve_key(tube, name, now, wait.number):
                # The job is ready, but the log has no room for its delivery.
                return

    def _take(self, session: Session, tube: Tube, key: bytes | None, ttr_ms: int, now: i64) -> Job | None:
        if tube.paused_out or (self.moves_left <= 0 and not self._refill_moves()):
            return None
        if tube.driven:
            return self._take_driven(session, tube, now)
        job = self._first(tube, key, now)
        if job is not None:
            self._deliver(job, tube, session, ttr_ms, now)
        return job

    def _first(self, tube: Tube, key: bytes | None, now: i64) -> Job | None:
        """Return the next ready job that has not expired. Remove expired jobs in front of it."""
        expired: i64 = 0
        while True:
            job = tube.first_ready(key)
            if job is None or job.expiry > now:
                return job
            if expired == FIRED_PER_TURN_MAX:
                # The next turns remove the rest.
                self._defer_line(tube, key)
                return None
            self._expire(job, tube, now)
            expired += 1

    def _expire(self, job: Job, tube: Tube, now: i64) -> None:
        """Remove a job whose ttl has ended. Its row in the log names no session as the cause."""
        actor = self.outbox.actor
        self.outbox.actor = None
        self._move(job, tube, s.EXPIRED, now)
        self.outbox.actor = actor

    def _deliver(self, job: Job, tube: Tube, session: Session, ttr_ms: int, now: i64) -> None:
        job.deliveries += 1
        ttr = job.ttr
        if ttr_ms != UNSET and not job.once:
            ttr = ttr_ms
        job.wake = NEVER if ttr == NEVER else now + ttr
        if tube.session_owned and not job.once:
            session.hold(job)
        # A command of another session can serve a waiting take.
        outbox = self.outbox
        actor = outbox.actor
        outbox.actor = session
        self._move(job, tube, s.TOOK, now)
        outbox.actor = actor

    # Holders and bodies

    def _not_held(self, job: Job, session: Session) -> int:
        """Return OK if the session is allowed to finish the job. Return the refusal otherwise.

        Any session can finish a job that belongs to no session.
        """
        if job.state != s.TAKEN:
            return NOT_TAKEN
        if job.holder != session.slot and job.holder != NO_SLOT:
            return NOT_OWNER
        return OK

    def _not_held_job(self, job: Job, session: Session) -> int:
        if job.state == s.GONE:
            return NO_JOB
        return self._not_held(job, session)

    def _check_new_body(self, job: Job, body: bytes) -> None:
        check_body(len(body), self.body_bytes_max)
        # A body that is not longer may use the reserve of taken jobs, because it comes with an ack or a release.
        if len(body) > job.body_length() and len(body) > self.room_bytes:
            raise NoSpace()

    def _check_growth(self, job: Job, body: bytes) -> None:
        """Raise NoMemory if the new body is longer than the old one and there is no memory for the difference."""
        more = len(body) - job.body_length()
        if more > 0 and self._counts_bodies():
            self.check_room(0, more)

    def _counts_bodies(self) -> bool:
        """Return whether bodies count for the memory limit. They do not if they can be left on disk."""
        return self.memory_max != NEVER and not self.spills

    def _replace_body(self, job: Job, tube: Tube, body: bytes, body_kind: int) -> None:
        tube.body_bytes += i64(len(body) - job.body_length())
        self.resident_bytes += len(body) - resident_length(job)
        if not isinstance(job.body, bytes):
            tube.spilled -= 1
        if self.room_bytes != NEVER:
            self.room_bytes -= len(body)
        job.body = body
        job.body_kind = u8(body_kind)
        job.format = tube.row_format
        self.outbox.body_changed()
        if tube.put_line.length > 0:
            self._wake_line(tube, None)

    # Implemented in driving.py

    def _take_driven(self, session: Session, tube: Tube, now: i64) -> Job | None:
        """Deliver the job that the driver of the tube chooses."""
        raise NotImplementedError

    def _serve_driver(self, tube: Tube, now: i64) -> bool:
        """Call a tube's driver for every job that returned to the tube. Return whether the driver can serve takes."""
        raise NotImplementedError

    def _driver_failed(self, tube: Tube, error: CommandError) -> None:
        raise NotImplementedError

    # Waits for the end of a job

    def _end_waits_by_event(self, job: Job, came_from: i64, event: i64) -> None:
        """End the waits for a job that ended or was buried. A move to another tube is not an end."""
        if event == s.MOVED_OUT:
            return
        if event == s.ACKED or job.state == s.DONE or job.state == s.ZOMBIE:
            self._end_waits_for(job, job.tube, came_from, w.END_ACKED)
        elif job.state == s.BURIED:
            self._end_waits_for(job, job.tube, came_from, w.END_BURIED)
        elif event == s.EXPIRED:
            self._end_waits_for(job, job.tube, came_from, w.END_EXPIRED)
        elif event == s.DISCARDED:
            self._end_waits_for(job, job.tube, came_from, w.END_DROPPED)
        else:
            self._end_waits_for(job, job.tube, came_from, w.END_DELETED)

    def _end_waits_for(self, job: Job, tube: i32, came_from: i64, end: i64) -> None:
        progress = self.progress.by_job.get(job.id)
        if progress is not None:
            progress.end = end
            if job.extra is not None and end != w.END_ACKED:
                progress.reason = job.extra.reason
            self.deadlines.set(progress, self.now + REMEMBERED_MS)
        waits = self.end_waits_by_id.get(job.id)
        if waits is None:
            return
        failed = end == w.END_BURIED or end == w.END_DEAD_LETTERED
        for wait in list(waits):
            if failed and not wait.failures:
                continue
            wait.ended(end, tube)
            wait.before = came_from
            self._end_wait(wait, w.SERVED)

    def _end_wait(self, wait: Waiting, outcome: i64) -> None:
        wait.outcome = outcome
        w.leave_all(wait)
        if isinstance(wait, PutWait):
            self._uncount(wait)
            # A smaller put behind it may fit.
            tube = self.tube_slots[wait.tube]
            if tube is not None and tube.put_line.length > 0:
                self._wake_line(tube, None)
        self.deadlines.clear(wait)
        del wait.connection.waits[wait.number]
        if isinstance(wait, EndWait):
            waits = self.end_waits_by_id[wait.job.id]
            waits.remove(wait)
            if not waits:
                del self.end_waits_by_id[wait.job.id]
        elif isinstance(wait, PeerWait) and self.copies is not None:
            self.copies.wait_ended(wait)
        elif isinstance(wait, SignalWait):
            del wait.signals.waits[wait.number]
        if outcome != w.CANCELLED:
            self.outbox.ended_waits.append(wait)

    def _uncount(self, wait: PutWait) -> None:
        """Stop counting the memory of a put that no longer waits."""
        self.waiting_bytes -= wait.counted
        wait.counted = 0

    def new_number(self) -> i64:
        """Return a number for a tube, session, connection or wait. It is not used again."""
        number = self.next_number
        self.next_number += 1
        return number


def _count(tube: Tube, key: bytes, rule: i64, came_from: i64, state: i64) -> None:
    """Count a transition in the statistics of its key, if the tube has statistics for this key."""
    stats = tube.key_stats.get(key)
    if stats is not None:
        stats.counts[rule] += 1
        if came_from != s.GONE:
            stats.states[came_from] -= 1
        if state != s.GONE:
            stats.states[state] += 1


def index_body(tube: Tube, job: Job, came_from: i64, state: i64) -> None:
    """Update the indexes of ready and delayed jobs by body."""
    body = job.body
    if isinstance(body, bytes) and tube.ready_bodies is not None and tube.delayed_bodies is not None:
        if came_from == s.READY:
            tube.ready_bodies.remove(body, job)
        elif came_from == s.DELAYED:
            tube.delayed_bodies.remove(body, job)
        if state == s.READY:
            tube.ready_bodies.add(body, job)
        elif state == s.DELAYED:
            tube.delayed_bodies.add(body, job)


def _no_longer_unique(tube: Tube, job: Job) -> None:
    """Release the unique value of a job that ended or left its tube."""
    extra = job.ensure_extra()
    del tube.uniques[extra.unique]
    tube.labels.total -= len(extra.unique)
    extra.unique = b""


def row_label_bytes(job: Job, tube: Tube) -> i64:
    """Return how many bytes the labels of a job add to each of its rows in the log.

    The labels are its key, its name, its unique value and the consumer of its claim, each up to 64 KB.
    """
    length: i64 = 0
    if tube.keys is not None:
        length += _LABEL_HEADER_BYTES + len(key_of(tube, job))
    extra = job.extra
    if extra is not None:
        if extra.name:
            length += _LABEL_HEADER_BYTES + len(extra.name)
        if extra.unique:
            length += _LABEL_HEADER_BYTES + len(extra.unique)
        if extra.consumer:
            length += _LABEL_HEADER_BYTES + len(extra.consumer)
        if extra.batch:
            # The end of the job also writes a row about the batch.
            length += _BATCH_ROW_BYTES + 2 * len(extra.batch)
    return length


def resident_length(job: Job) -> i64:
    """Return how many bytes of memory a job's body uses."""
    body = job.body
    return len(body) if isinstance(body, bytes) else 0


def puts_bytes(jobs: i64, log_bytes: i64) -> i64:
    """Return how many bytes of the log these puts need.

    The row of the first job is not counted, because there is always space for one row.
    """
    return log_bytes + (jobs - 1) * ROW_ROOM_BYTES if jobs > 1 else log_bytes


def tube_bytes(name: bytes, policy: TubePolicy) -> i64:
    """Return how many bytes of memory a tube uses without its jobs.

    In the log it uses this number of bytes or fewer.
    """
    # A character takes up to 12 bytes in the log: JSON may write it as two escapes of 6 bytes.
    return TUBE_MEMORY_BYTES + len(name) + 12 * len(policy.notes)


def later(moment: i64, more_ms: int) -> i64:
    """Return a time or duration extended by `more_ms`. NEVER stays NEVER."""
    if moment == NEVER:
        return NEVER
    end = moment + i64(more_ms)
    return end if end < NEVER else NEVER - 1
