"""How everything happens: time, the one way a job changes, and who is served when it does. The engine's lower half.

`Moves` holds the state of a node and the mechanisms that all commands share. It answers no client and checks no
argument; `engine.py` does that, and then lets things happen here:
- `_move` is the one way in which a job changes: through the table of states.py, out of its old place, into its new
  one, its deadline set, the outbox told.
- `advance` lets what fell due happen, as much as one turn may.
- `_settle` ends a command: no waiting take and no job it could have, no waiting put and no room for it, coexist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i32, i64, u8

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.claims import Claim, Consumer
from penstock.core.deadlines import NOWHERE, Deadlines, Timed
from penstock.core.errors import CommandError, JobExists, NameTaken, NoMemory, NoSpace, NumberTaken
from penstock.core.ids import first_id, is_long
from penstock.core.job import HELD_BY_CLAIM, NO_KEY, NO_SLOT, BodyRef, Draft, Job
from penstock.core.keeper import CopyKeeper
from penstock.core.labels import LabelBytes
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
from penstock.core.outbox import Outbox
from penstock.core.outcomes import NO_JOB, NOT_OWNER, NOT_TAKEN, OK
from penstock.core.policy import TubePolicy
from penstock.core.retry import THEN_BURY, THEN_DROP, RetryPolicy
from penstock.core.sessions import Session
from penstock.core.stages import DISCARDED, PUBLISHED, Stage, Stages
from penstock.core.table import JobTable, NumberSet
from penstock.core.tube import Tube, key_of
from penstock.core.waits import ElsewhereWait, EndWait, PutWait, Wait, Waiting

_MASK32: Final = 0xFFFFFFFF


class Moves:
    """All tubes, jobs, sessions and deadlines of one node, and how they change."""

    now: i64  # The latest moment it was told of; time never goes back.
    outbox: Outbox
    watch: Callable[[Job, Tube, int, int], None] | None  # Told what the outbox is told of jobs, for subscribers.
    copies: CopyKeeper | None  # Keeps copies on other nodes in step, where there are other nodes.
    notes: dict[bytes, bytes]  # What the log has to remember for others than jobs, by key.
    jobs: JobTable
    deadlines: Deadlines
    tubes: dict[bytes, Tube]
    sessions: dict[bytes, Session]
    consumers: dict[bytes, Consumer]  # Those that claim jobs: see claims.py.
    stages: Stages
    room_bytes: i64  # How many bytes of bodies the log can take before it is full; the shell says, after each commit.
    moves_left: i64  # The same of moves of jobs that do not end by them; few on a full disk only.
    taken_count: i64  # How many jobs are taken, of all tubes: each needs room to end.
    # Taken jobs that are delivered at most once, by id, the oldest delivery first. Nothing can come of them but an ack,
    # so they are what a node without a journal can do without.
    delivered_once: dict[int, Job]
    resident_bytes: i64  # Of the bodies that are in memory.
    waiting_bytes: i64  # Of puts that wait for room.
    notes_bytes: i64  # What all notes take of memory.
    tubes_bytes: i64  # What all tubes take of memory beside their jobs.
    consumers_bytes: i64  # What all consumers of claims take of memory.
    labels: LabelBytes  # What names and the like do.
    body_bytes_max: i64
    old_ids: dict[bytes, Job]  # Jobs of Disque's kind that come from another system, by their ids there.
    memory_max: i64  # How many bytes all jobs and tubes may take; the shell says.
    spills: bool  # Bodies that are too many for memory are left on disk.
    session_grace_ms: i64  # How long a session outlives its last connection.
    _next_id: i64
    _next_front: i64  # Urgent jobs are ordered by a counter that goes down.
    _last_creation: i64  # The newest place given out in tubes ordered by creation.
    _next_number: i64  # Tubes, sessions, connections and waits are numbered from one counter.
    _random: i64  # 32 bits of a generator that the shell seeded.
    _tube_slots: list[Tube | None]
    _tube_slots_free: list[i32]
    _tube_numbers: NumberSet
    _tubes_by_number: dict[int, Tube]
    _session_slots: list[Session | None]
    _session_slots_free: list[i32]
    _woken: list[Tube]  # Tubes in which somebody who waits and what they wait for may have met.
    _later: list[Tube]  # Tubes that were left with expired jobs in front, and the keys looked at.
    _later_keys: list[bytes | None]
    _watchers: dict[int, list[EndWait]]  # Who wants to know when a job ends, by its id.
    _driving: bool  # Jobs change because their driver changed its tasks.

    def __init__(self, epoch: int, now: i64, outbox: Outbox, entropy: int = 1) -> None:
        """Start empty. The epoch is one that no earlier opening had; see ids.py."""
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
        self.room_bytes = NEVER
        self.moves_left = NEVER
        self.taken_count = 0
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
        self._next_id = first_id(epoch)
        self._next_front = 0
        self._last_creation = 0
        self._next_number = 1
        self._random = (entropy & _MASK32) or 1
        self._tube_slots = []
        self._tube_slots_free = []
        self._tube_numbers = NumberSet()
        self._tubes_by_number = {}
        self._session_slots = []
        self._session_slots_free = []
        self._woken = []
        self._later = []
        self._later_keys = []
        self._watchers = {}
        self._driving = False

    def tube_of(self, job: Job) -> Tube:
        """The tube of a job that is not gone."""
        tube = self._tube_slots[job.tube]
        assert tube is not None
        return tube

    def tube_at(self, slot: i64) -> Tube | None:
        """The tube of a slot, if there is one."""
        return self._tube_slots[slot]

    # Time

    def advance(self, now: i64) -> None:
        """Let what fell due happen, as much as one turn may; `deadlines.next_due` tells when to come again."""
        if now > self.now:
            self.now = now
        if self._later:
            self._look_again()
        if self.deadlines.next_due <= now:
            fired: i64 = 0
            while self.deadlines.next_due <= now and fired < FIRED_PER_TURN_MAX and not self.outbox.full():
                fired += self._fire(self.deadlines.first(), now)
        if self._woken:
            self._settle(now)

    def _fire(self, item: Timed, now: i64) -> i64:
        """Let one deadline happen; tell how much work it was."""
        if isinstance(item, Job):
            self._fire_job(item, now)
            return 1
        if isinstance(item, Waiting):
            # What it waits for may have come in time, and only the shell is late.
            self._settle(now)
            if item.outcome == w.WAITING:
                self._end_wait(item, w.TIMED_OUT)
            return 1
        if isinstance(item, Claim):
            return self._end_claim(item, now)
        if isinstance(item, Session):
            return self._end_session(item, now)
        if isinstance(item, Stage):
            self._close_stage(item, DISCARDED, now)
            self.outbox.stages_changed([item], now)
            return 1
        assert isinstance(item, Stages)
        return self._empty_stages(now)

    def _fire_job(self, job: Job, now: i64) -> None:
        tube = self.tube_of(job)
        state = job.state
        if self.moves_left <= 0 and state != s.TAKEN and not self._has_moves():
            # Nobody can take a job meanwhile, and what is left of the disk is for those that are taken.
            self.deadlines.set(job, now + NO_ROOM_MS)
            return
        if tube.paused_in and tube.pause_holds and self._hold_back(job, tube, now):
            return
        if self.copies is not None and job.copy() is not None and job.expiry > now:
            if (state == s.TAKEN or state == s.DELAYED) and self.copies.holds_back(job, tube, now):
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
        """Let a job that would come back to a paused tube wait for another ttr, if it has one and its ttl allows."""
        if job.expiry <= now or job.ttr == NEVER or not (job.state == s.TAKEN or job.state == s.DELAYED):
            return False
        job.wake = now + job.ttr
        self._move(job, tube, s.TOUCHED if job.state == s.TAKEN else s.SWITCHED_DELAYED, now)
        return True

    def _end_session(self, session: Session, now: i64) -> i64:
        """Give back what a session holds, as much as one turn may, and forget it when it holds nothing."""
        released: i64 = 0
        while session.held and released < FIRED_PER_TURN_MAX and not self.outbox.full():
            job = session.held[-1]
            job.returns += 1
            self._fail(job, self.tube_of(job), s.DISCONNECTED, now)
            released += 1
        if not session.held:
            self.deadlines.clear(session)
            del self.sessions[session.token]
            self._session_slots[session.slot] = None
            self._session_slots_free.append(session.slot)
        return released + 1

    def _end_claim(self, claim: Claim, now: i64) -> i64:
        """Give back, or ack, what a claim holds, as much as one turn may. It cannot be read any more."""
        consumer = claim.consumer
        if claim.number in consumer.claims:
            self._forget_claim(claim)
            self.outbox.consumer_changed(consumer, now)
        self.deadlines.clear(claim)
        released: i64 = 0
        while claim.jobs and released < FIRED_PER_TURN_MAX and not self.outbox.full():
            job = claim.jobs.pop()
            tube = self.tube_of(job)
            doomed = job.extra is not None and job.extra.doomed
            if claim.acked:
                self._move(job, tube, s.ACKED if tube.goes or doomed else self._after_ack(job, tube, UNSET, now), now)
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

    def _forget_claim(self, claim: Claim) -> None:
        self.deadlines.clear(claim)
        claim.consumer.claims.pop(claim.number, None)

    def _close_stage(self, stage: Stage, phase: i64, now: i64) -> None:
        """A stage that was open is over. Its jobs leave it when all that were over before are empty."""
        self.deadlines.clear(stage)
        stage.phase = phase
        stage.until = now + STAGE_REMEMBERED_MS
        if phase == PUBLISHED and stage.count > 0:
            stage.published = stage.count
        stage.closing = True
        self.stages.closing.append(stage)
        self.deadlines.set(self.stages, now)
        self.stages.remember(stage, now)

    def _empty_stages(self, now: i64) -> i64:
        """Let jobs leave the stages that are over, as many as one turn may: to their tubes, or for good."""
        closing = self.stages.closing
        moved: i64 = 0
        has_moves = self.moves_left > 0 or self._has_moves()
        while closing and moved < FIRED_PER_TURN_MAX and has_moves and not self.outbox.full():
            has_moves = self.moves_left > 0 or self._has_moves()
            stage = closing[0]
            moved += 1
            if stage.at < len(stage.jobs):
                job = stage.jobs[stage.at]
                stage.at += 1
                # One that was deleted meanwhile is not staged any more.
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
        """Let a staged job arrive: its delay and its ttl begin, and its place is behind all there are."""
        tube = self.tube_of(job)
        waited = now - job.created
        job.wake = later(job.wake, waited)
        job.expiry = later(job.expiry, waited)
        if job.extra is not None and job.extra.priority_given != PRIORITY_UNSET:
            self._next_front -= 1
            job.order = self._next_front
        else:
            job.order = self._newest_order(tube, now)
        self._let_in(job, tube, now)

    def _let_in(self, job: Job, tube: Tube, now: i64) -> None:
        """Let a staged job be ready, or begin its delay."""
        self._move(job, tube, s.PUBLISHED if job.wake == NEVER else s.PUBLISHED_DELAYED, now)

    # Jobs

    def _move(self, job: Job, tube: Tube, event: i64, now: i64) -> None:
        """Let an event happen to a job. The caller has set the fields that the event is about."""
        came_from = i64(job.state)
        rule = s.move(job, event)
        state = i64(job.state)
        # Written out: mypyc makes a generic call of += on an item.
        counts = tube.counts
        counts[rule] = counts[rule] + 1
        tube.used = now
        if tube.key_stats:
            self._count_key(job, tube, rule, came_from, state)
        if state != came_from:
            tube.displace(job, came_from)
            if tube.ready_bodies is not None:
                _index_body(tube, job, came_from, state)
            if job.extra is not None and (state == s.DONE or state == s.ZOMBIE) and job.extra.unique:
                _no_longer_unique(tube, job)
            if came_from == s.TAKEN:
                self.taken_count -= 1
                if job.once:
                    del self.delivered_once[job.id]
                self._let_go(job, tube)
            elif came_from == s.STAGED:
                self._leave_stage(job)
            if self._watchers and (state == s.GONE or s.BURIED <= state <= s.ZOMBIE):
                self._tell_end(job, came_from, event)
            if state == s.GONE:
                self._tell(job, tube, rule, now)
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
                    self._note(tube, None)
            elif state == s.TAKEN:
                self.taken_count += 1
                if job.once:
                    self.delivered_once[job.id] = job
        self._arm(job, tube)
        self._tell(job, tube, rule, now)

    def _tell(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        self.moves_left -= 1
        extra = job.extra
        if extra is not None and extra.copy is not None and self.copies is not None:
            self.copies.moved(job, tube, rule, now)
        self.outbox.moved(job, tube, rule, now)
        if self.watch is not None:
            self.watch(job, tube, rule, now)

    def _let_go(self, job: Job, tube: Tube) -> None:
        """A job is taken no longer: its holder forgets it, and another of its key may be had."""
        if job.holder >= 0:
            holder = self._session_slots[job.holder]
            assert holder is not None
            holder.let_go(job)
        elif job.holder == HELD_BY_CLAIM:
            extra = job.rare()
            extra.consumer = b""
            extra.claim = 0
            extra.claim_place = 0
        job.holder = NO_SLOT
        if tube.keys is not None:
            self._wake(tube, job)

    def _leave_stage(self, job: Job) -> None:
        extra = job.rare()
        # One that waits for its copies is in no stage.
        if extra.stage:
            stage = self.stages.by_name[extra.stage]
            extra.stage = b""
            stage.let_go()

    def _arm(self, job: Job, tube: Tube) -> None:
        """Set a job's nearest deadline: the end of its state, or of its ttl where that counts."""
        due = job.wake
        if job.expiry < due and (job.state != s.TAKEN or (tube.ttl_kills and job.holder != HELD_BY_CLAIM)):
            due = job.expiry
        if job.state >= s.ZOMBIE:
            # The time of one that is staged has not begun.
            due = job.wake if job.state == s.ZOMBIE else NEVER
        if due != NEVER or job.deadline_pos != NOWHERE:
            self.deadlines.set(job, due)

    def _leave_tube(self, job: Job, tube: Tube) -> None:
        """Take a job out of everything its tube knows it by."""
        if job.deadline_pos != NOWHERE:
            self.deadlines.clear(job)
        if tube.locals is not None:
            tube.locals.remove(job)
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
        tube.body_bytes -= i64(job.body_length())
        self.resident_bytes -= resident_length(job)
        if tube.put_line.length > 0:
            self._note(tube, None)

    def _admit(self, job: Job, tube: Tube, draft: Draft, now: i64) -> None:
        """Let a job in that was made and checked."""
        self._next_id += 1
        if self.room_bytes != NEVER:
            self.room_bytes -= draft.log_bytes() + ROW_ROOM_BYTES
        event: i64 = s.PUT if job.wake == NEVER else s.PUT_DELAYED
        if draft.arrives != s.READY:
            event = s.ARRIVALS[draft.arrives]
        if draft.urgent and event == s.PUT:
            event = s.PUT_URGENT
            self._next_front -= 1
            job.order = self._next_front
        elif tube.by_creation:
            job.order = self._creation(now)
        self._enter_tube(job, tube, NO_KEY if draft.key is None else draft.key, now)
        if draft.dedup is not None:
            tube.seen().add(draft.dedup, job.id, i64(job.ttl_minutes), now)
            self.outbox.put_seen(job, tube, draft.dedup)
        self.jobs.add(job)
        self._move(job, tube, event, now)

    def _admit_staged(self, job: Job, tube: Tube, draft: Draft, stage: Stage, now: i64) -> None:
        """Let a job in that was made and checked, to wait in a stage."""
        self._next_id += 1
        if self.room_bytes != NEVER:
            self.room_bytes -= draft.log_bytes() + ROW_ROOM_BYTES
        job.rare().stage = stage.name
        stage.jobs.append(job)
        stage.count += 1
        self._enter_tube(job, tube, NO_KEY if draft.key is None else draft.key, now)
        self.jobs.add(job)
        self._move(job, tube, s.PUT_STAGED, now)

    def _twin(self, tube: Tube, draft: Draft, now: i64) -> Job | None:
        """The job that already stands for a draft, because it is unique or was put lately; None if there is none."""
        twin = self._alike(tube, draft, now)
        if twin is not None:
            if draft.new:
                raise JobExists()
            return twin
        # A put that is repeated is no second job, so its name and its number are not taken; any other put's are.
        if draft.name is not None and draft.name in tube.names:
            raise NameTaken()
        if draft.number != UNSET and tube.locals is not None and tube.locals.find(i64(draft.number)) is not None:
            raise NumberTaken()
        return None

    def _alike(self, tube: Tube, draft: Draft, now: i64) -> Job | None:
        if draft.dedup is not None and tube.dedups is not None:
            job_id: i64 = tube.dedups.find(draft.dedup, now)
            if job_id >= 0:
                job = self.jobs.find(job_id)
                # One that is gone still has its id, and that is what a producer who asks again wants to know.
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

    def _check_room(self, jobs: i64, log_bytes: i64, other_bytes: i64 = 0) -> None:
        """Refuse jobs, and tubes for them or a consumer, that there is no disk or no memory for."""
        if puts_bytes(jobs, log_bytes) + other_bytes > self.room_bytes:
            raise NoSpace()
        if self.memory_max != NEVER:
            needed = (self.jobs.count + jobs) * JOB_MEMORY_BYTES + self.tubes_bytes + other_bytes
            needed += self.waiting_bytes + self.notes_bytes + self.consumers_bytes + self.labels.total
            if not self.spills:
                needed += self.resident_bytes + log_bytes
            if needed > self.memory_max:
                raise NoMemory()

    def _check_moves(self) -> None:
        """Refuse what could be done again and again, where the disk has just enough room for jobs to end."""
        if self.moves_left <= 0 and not self._has_moves():
            raise NoSpace(
                "the disk is full, and what is left of it is for acks; make room, and jobs can be taken again"
            )

    def _has_moves(self) -> bool:
        """Those moves that there was room for are used up: ask whether there is room for more."""
        self.count_moves()
        return self.moves_left > 0

    def count_moves(self) -> None:
        """Have the shell tell again how many moves there is room for, while all that is taken can still end."""
        label_bytes = self.labels.total // max(1, self.jobs.count)
        self.moves_left = self.outbox.more_moves(self.moves_left, self.taken_count, label_bytes)

    def takes_go_on(self) -> None:
        """There is room for moves again: look at who waits to take."""
        for tube in self.tubes.values():
            if tube.line.length > 0:
                self._note(tube, None)
            for key in tube.key_lines:
                self._note(tube, key)

    def memory_used(self) -> i64:
        """How many bytes of memory all there is takes, as `memory_max` counts it."""
        used = self.jobs.count * JOB_MEMORY_BYTES + self.tubes_bytes + self.resident_bytes
        return used + self.waiting_bytes + self.notes_bytes + self.consumers_bytes + self.labels.total

    def add_consumer(self, consumer: Consumer) -> None:
        """Have a consumer of claims among those there are."""
        self.consumers[consumer.name] = consumer
        self.consumers_bytes += CONSUMER_MEMORY_BYTES + len(consumer.name)

    def memory_left(self) -> i64:
        """How many bytes of memory jobs may take more. A quarter is for bodies: the rest is for jobs yet to come."""
        left = self.memory_max - self.memory_used()
        for_bodies = (self.memory_max >> 2) - self.resident_bytes
        return left if left < for_bodies else for_bodies

    def note(self, key: bytes, value: bytes, now: i64) -> None:
        """Let the log remember something under a key; with an empty value, forget it."""
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
        """Let a tube know a job by everything it will look it up by."""
        if tube.locals is not None:
            if job.local == tube.next_local:
                tube.next_local += 1
                if tube.next_local > tube.promised:
                    tube.reserve(now)
                    self.outbox.integers_reserved(tube, tube.reserved, now)
                tube.locals.add(job)
            else:
                # Its producer gave it a number below those that the tube counts.
                tube.locals.insert(job)
        tube.know(job, key)
        self.know_old_id(job, tube)
        self.resident_bytes += resident_length(job)

    def know_old_id(self, job: Job, tube: Tube) -> None:
        """Let a job be found by its id in another system, which is its name: see `penstock import disque-aof`."""
        extra = job.extra
        if extra is not None and extra.name and tube.by_creation and is_long(extra.name):
            self.old_ids[extra.name] = job

    def _creation(self, now: i64) -> i64:
        """A place in the order of creation: two jobs made in one millisecond must still sort as they were made."""
        creation = now * 1_000_000
        if creation <= self._last_creation:
            creation = self._last_creation + 1
        self._last_creation = creation
        return creation

    def _newest_order(self, tube: Tube, now: i64) -> i64:
        """A place behind every job there is. Orders and ids come from one counter, so an id is spent on it."""
        if tube.by_creation:
            return self._creation(now)
        order = self._next_id
        self._next_id += 1
        return order

    def _body_in(self, job: Job, target: Tube) -> bytes | BodyRef:
        """The body of a job as another tube has to have it. Ask before anything is changed: it may be unreadable."""
        if target.temporary or target.ready_bodies is not None:
            # It leaves the log, or will be looked up by its body.
            return self.outbox.body_of(job)
        return job.body

    def _transfer(self, job: Job, source: Tube, target: Tube, body: bytes | BodyRef, event: i64, now: i64) -> None:
        """Move a job to the end of another tube. It keeps its id, its body, its ttl and its counters."""
        key = key_of(source, job)
        self._move(job, source, s.MOVED_OUT, now)
        job.tube = target.slot
        job.order = self._newest_order(target, now)
        if job.extra is not None and job.extra.priority_given != PRIORITY_UNSET:
            # Urgent or requeued it was in the tube it left.
            job.priority = job.extra.priority_given
            job.extra.priority_given = PRIORITY_UNSET
        if not target.by_priority:
            job.priority = target.policy.default_priority
        job.local = target.next_local if target.locals is not None else NO_SLOT
        if job.extra is not None:
            # Its name was unique in the tube it left.
            job.extra.name = b""
        job.body = body
        self._enter_tube(job, target, key, now)
        self._move(job, target, event, now)

    def _after_ack(self, job: Job, tube: Tube, delay_ms: int, now: i64) -> i64:
        """How a job ends in a tube that keeps what was acked."""
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

    def _fail(self, job: Job, tube: Tube, cause: i64, now: i64) -> None:
        """A delivery came to nothing: the job goes back, or wherever its retry policy sends it."""
        retry = tube.retry
        if job.extra is not None and job.extra.retry is not None:
            retry = job.extra.retry
        self._move(job, tube, cause, now)
        if retry is None:
            return
        if retry.is_spent(i64(job.deliveries)):
            self._give_up(job, tube, retry, now)
            return
        wait = retry.wait_ms(i64(job.deliveries), self._random32())
        if wait > 0:
            job.wake = now + wait
            self._move(job, tube, s.HELD_BACK, now)

    def _rekey(self, job: Job, tube: Tube, key: bytes) -> None:
        """Give a taken or buried job another key: its old key counts it as moved out, its new one as moved in."""
        keys = tube.keys
        assert keys is not None
        state = i64(job.state)
        old = keys.of(job)
        if old.name == key:
            return
        if state == s.TAKEN:
            keys.give_back(job)
            self._wake(tube, job)
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
        """A job failed as often as it may."""
        extra = job.rare()
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
        # The driver of a tube would not know of it.
        if target is not tube and not target.driven:
            try:
                body = self._body_in(job, target)
            except CommandError as damage:
                extra.reason = str(damage).encode()[:REASON_BYTES_MAX]
            else:
                self._transfer(job, tube, target, body, s.MOVED_IN_READY, now)
                if self._watchers:
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
        """Return a job to its place with what it was given on its way, already checked."""
        if ttl_ms != UNSET:
            job.expiry = NEVER if ttl_ms == NEVER else now + i64(ttl_ms)
        if delay_ms != 0:
            if tube.stretches and (ttl_ms != UNSET or tube.policy.release_stretches_ttl):
                job.expiry = later(job.expiry, delay_ms)
            job.wake = now + i64(delay_ms)
        if priority != PRIORITY_UNSET:
            job.priority = priority
            if job.extra is not None:
                job.extra.priority_given = PRIORITY_UNSET
        self._move(job, tube, event if delay_ms == 0 else event_delayed, now)

    def _random32(self) -> i64:
        """The next 32 bits of a generator that is the same compiled and interpreted."""
        x = self._random
        x ^= (x << 13) & _MASK32
        x ^= x >> 17
        x ^= (x << 5) & _MASK32
        self._random = x
        return x

    # Tubes

    def _make_tube(self, name: bytes, policy: TubePolicy, now: i64) -> Tube:
        free = self._tube_slots_free
        slot: i32 = free.pop() if free else len(self._tube_slots)
        tube = Tube(name, self._number(), slot, policy, now, self.labels)
        self.add_tube(tube)
        if self.room_bytes != NEVER:
            self.room_bytes -= tube_bytes(name, policy)
        self.outbox.tube_made(tube, now)
        if self.copies is not None:
            self.copies.tube_made(tube)
        return tube

    def add_tube(self, tube: Tube) -> None:
        """Have a tube among those there are."""
        if tube.slot == len(self._tube_slots):
            self._tube_slots.append(tube)
        else:
            self._tube_slots[tube.slot] = tube
        self.tubes[tube.name] = tube
        self._tube_numbers.add(tube.number)
        self._tubes_by_number[tube.number] = tube
        self.tubes_bytes += tube_bytes(tube.name, tube.policy)

    # Those who wait

    def _wake(self, tube: Tube, job: Job) -> None:
        """A job can be had now; note it if somebody waits in this tube."""
        if tube.key_lines:
            self._note(tube, key_of(tube, job))
        elif tube.line.length > 0:
            self._note(tube, None)
        if tube.wanted and self.copies is not None:
            self.copies.can_be_had(tube)

    def _note(self, tube: Tube, key: bytes | None) -> None:
        """Look at the lines of this tube, and of this key, when the command ends."""
        if key is not None:
            tube.woken_keys.append(key)
        if not tube.woken:
            tube.woken = True
            self._woken.append(tube)

    def _put_off(self, tube: Tube, key: bytes | None) -> None:
        """Enough for one command: let the next turn look at this line again."""
        self._later.append(tube)
        self._later_keys.append(key)

    def _look_again(self) -> None:
        """Look at the lines that a command before this one left because it had done enough."""
        later = self._later
        keys = self._later_keys
        self._later = []
        self._later_keys = []
        for i in range(len(later)):
            if not later[i].dropped:
                self._note(later[i], keys[i])

    def _settle(self, now: i64) -> None:
        """Bring those who wait and what they wait for together, until nobody is left who could be served."""
        while self._woken:
            woken = self._woken
            self._woken = []
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
        """Let waiting puts in while there is room."""
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
                self._put_off(tube, None)
                return
            self._uncount(wait)
            try:
                self._check_room(1, draft.log_bytes())
                twin = self._twin(tube, draft, now)
                job = tube.make(self._next_id, draft, now) if twin is None else twin
            except CommandError as refusal:
                # What the tube would have let in when the put began to wait, it does not any more.
                wait.refusal = refusal
                self._end_wait(wait, w.TIMED_OUT)
                continue
            if twin is None:
                self._admit(job, tube, draft, now)
            wait.job = job
            self._end_wait(wait, w.SERVED)

    def _serve_any(self, tube: Tube, now: i64) -> None:
        """Serve the line of those who take any job."""
        while True:
            head = tube.line.head
            if head is None or not self._hand_to(head.wait, tube, None, now):
                return

    def _serve_key(self, tube: Tube, name: bytes, now: i64, before: i64 = NEVER) -> bool:
        """Serve the line of those who take one key, and came before a number; tell whether anybody was."""
        line = tube.key_lines.get(name)
        served = False
        while line is not None:
            head = line.head
            if head is None or head.wait.number >= before or not self._hand_to(head.wait, tube, name, now):
                break
            served = True
        return served

    def _hand_to(self, wait: Waiting, tube: Tube, key: bytes | None, now: i64) -> bool:
        """Serve one waiting take with as many jobs as there are and it wants."""
        assert isinstance(wait, Wait)
        session = wait.connection.session
        while wait.wants_more():
            if key is None and tube.key_lines:
                self._serve_earlier(tube, wait, now)
            if self.outbox.full():
                self._put_off(tube, key)
                break
            try:
                job = self._take(session, tube, key, wait.ttr_ms, now)
            except CommandError as error:
                # Of its driver. The command that got here is another client's, and must not fail.
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
        """Before one who takes any job gets the next: those who wait for just its key, and came before."""
        while not self.outbox.full():
            job = self._first(tube, None, now)
            if job is None:
                return
            name = key_of(tube, job)
            line = tube.key_lines.get(name)
            if line is None or line.head is None or line.head.wait.number >= wait.number:
                return
            if not self._serve_key(tube, name, now, wait.number):
                # The job is there, but no move is left to hand it out.
                return

    def _take(self, session: Session, tube: Tube, key: bytes | None, ttr_ms: int, now: i64) -> Job | None:
        if tube.paused_out or (self.moves_left <= 0 and not self._has_moves()):
            return None
        if tube.driven:
            return self._take_driven(session, tube, now)
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
                # The turns to come clear the rest.
                self._put_off(tube, key)
                return None
            self._move(job, tube, s.EXPIRED, now)
            expired += 1

    def _deliver(self, job: Job, tube: Tube, session: Session, ttr_ms: int, now: i64) -> None:
        job.deliveries += 1
        ttr = job.ttr
        if ttr_ms != UNSET and not job.once:
            ttr = ttr_ms
        job.wake = NEVER if ttr == NEVER else now + ttr
        if tube.owned and not job.once:
            session.hold(job)
        self._move(job, tube, s.TOOK, now)

    # Holders and bodies

    def _not_held(self, job: Job, session: Session) -> int:
        """Why a session may not do this to a job as its taker, or OK. One that nobody holds is anyone's."""
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
        # What is not longer than before may use the reserve: it comes with an ack or a release.
        if len(body) > job.body_length() and len(body) > self.room_bytes:
            raise NoSpace()

    def _check_growth(self, job: Job, body: bytes) -> None:
        """Refuse a body that is longer than before, and more than memory has room for."""
        more = len(body) - job.body_length()
        if more > 0 and self._counts_bodies():
            self._check_room(0, more)

    def _counts_bodies(self) -> bool:
        """Whether bodies have to fit in memory."""
        return self.memory_max != NEVER and not self.spills

    def _replace_body(self, job: Job, tube: Tube, body: bytes, body_kind: int) -> None:
        tube.body_bytes += i64(len(body) - job.body_length())
        self.resident_bytes += len(body) - resident_length(job)
        if self.room_bytes != NEVER:
            self.room_bytes -= len(body)
        job.body = body
        job.body_kind = u8(body_kind)
        self.outbox.body_changed()
        if tube.put_line.length > 0:
            self._note(tube, None)

    # What driving.py adds

    def _take_driven(self, session: Session, tube: Tube, now: i64) -> Job | None:
        """Hand out the job that the driver of a tube chooses."""
        raise NotImplementedError

    def _serve_driver(self, tube: Tube, now: i64) -> bool:
        """Have the driver of a tube release the tasks whose jobs returned; return whether it can serve."""
        raise NotImplementedError

    def _driver_failed(self, tube: Tube, error: CommandError) -> None:
        """Report an error of a driver that no client is waiting for."""
        raise NotImplementedError

    # Those who want to know

    def _tell_end(self, job: Job, came_from: i64, event: i64) -> None:
        """End the waits for a job that ended or was buried. Moving to another tube is no end."""
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
        waits = self._watchers.get(job.id)
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
            # What it did not fit into, a smaller one behind it may.
            tube = self._tube_slots[wait.tube]
            if tube is not None and tube.put_line.length > 0:
                self._note(tube, None)
        self.deadlines.clear(wait)
        del wait.connection.waits[wait.number]
        if isinstance(wait, EndWait):
            waits = self._watchers[wait.job.id]
            waits.remove(wait)
            if not waits:
                del self._watchers[wait.job.id]
        elif isinstance(wait, ElsewhereWait) and self.copies is not None:
            self.copies.wait_ended(wait)
        if outcome != w.CANCELLED:
            self.outbox.ended_waits.append(wait)

    def _uncount(self, wait: PutWait) -> None:
        """A put waits no longer, and what it takes of memory is its own no more."""
        self.waiting_bytes -= wait.counted
        wait.counted = 0

    def _number(self) -> i64:
        number = self._next_number
        self._next_number += 1
        return number


def _count(tube: Tube, key: bytes, rule: i64, came_from: i64, state: i64) -> None:
    """Count a transition for its key, where that key is counted apart."""
    stats = tube.key_stats.get(key)
    if stats is not None:
        stats.counts[rule] += 1
        if came_from != s.GONE:
            stats.states[came_from] -= 1
        if state != s.GONE:
            stats.states[state] += 1


def _index_body(tube: Tube, job: Job, came_from: i64, state: i64) -> None:
    """Keep the indexes of ready and delayed jobs by their bodies."""
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
    """A job ended, or left its tube: another of its value may be put."""
    extra = job.rare()
    del tube.uniques[extra.unique]
    tube.labels.total -= len(extra.unique)
    extra.unique = b""


def resident_length(job: Job) -> i64:
    """How many bytes a job's body takes in memory."""
    body = job.body
    return len(body) if isinstance(body, bytes) else 0


def puts_bytes(jobs: i64, log_bytes: i64) -> i64:
    """How many bytes of the log puts take. There is always room for the row of one; those of many count."""
    return log_bytes + (jobs - 1) * ROW_ROOM_BYTES if jobs > 1 else log_bytes


def tube_bytes(name: bytes, policy: TubePolicy) -> i64:
    """How many bytes a tube of this name takes in memory beside its jobs, and at most in the log."""
    # A character takes up to twelve in the log: JSON writes it as two escapes of six.
    return TUBE_MEMORY_BYTES + len(name) + 12 * len(policy.notes)


def later(moment: i64, more_ms: int) -> i64:
    """A moment or duration, later or longer by so much; what has no end keeps none."""
    if moment == NEVER:
        return NEVER
    end = moment + i64(more_ms)
    return end if end < NEVER else NEVER - 1
