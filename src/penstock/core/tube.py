"""One tube: its compiled policy, its jobs by state, its indexes and its lists of waits.

A tube determines which container a job belongs to in each state (`place`), creates jobs from drafts (`make`), and
checks whether it has space for more. It reads no clock and does not change the state of a job. The engine changes
states, and passes the time as an argument.
"""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import i32, i64, u8

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import BadName, OutOfRange, Unsupported
from penstock.core.ids import ttl_class
from penstock.core.job import BODY_BYTES, BODY_MSGPACK, NO_KEY, NO_SLOT, Draft, Job, LabelBytes
from penstock.core.keys import Keys
from penstock.core.limits import (
    LOCAL_IDS_BLOCK,
    LOCAL_IDS_BLOCK_MAX,
    NAME_BYTES_MAX,
    NEVER,
    PRIORITY_FRONT,
    PRIORITY_UNSET,
    UNSET,
    check_duration,
    check_finite,
    check_nacks,
    check_priority,
)
from penstock.core.order import JobBag, JobHeap, ReadyTimes, TakenBag
from penstock.core.policy import TubePolicy
from penstock.core.retry import RetryPolicy, parse_retry
from penstock.core.statistics.histogram import Histogram
from penstock.core.table import JobTable
from penstock.core.unique import BodyIndex, DedupWindow
from penstock.core.waits import WaitLine

# Disque's default RETRY: a tenth of the ttl, 1 s to 5 min.
_RETRY_MS_MAX: Final = 300_000
_RETRY_MS_MIN: Final = 1_000


class KeyStats:
    """Counters of a key. A tube has them for the keys that its policy counts separately."""

    counts: list[int]  # Number of times each rule was applied since start.
    counts_before: list[int]  # Number of times each rule was applied before this start.
    states: list[int]  # Number of jobs in each state.

    def __init__(self) -> None:
        self.counts = [0] * s.RULES_COUNT
        self.counts_before = [0] * s.RULES_COUNT
        self.states = [0] * s.STATES_COUNT


class Tube:
    """A tube: a named queue of jobs with its own policy."""

    name: bytes
    number: i64  # Assigned in the order of creation and never reused. Scans and the log identify tubes by it.
    slot: i32  # Index by which jobs refer to their tube. Reused after a drop.
    created: i64
    used: i64  # Time (ms) of the last change of one of its jobs.
    defined_in_segment: i64  # Newest log segment that contains the definition of the tube.
    policy: TubePolicy
    dropped: bool  # The tube was dropped. Code that still refers to it has to look it up again.
    paused_in: bool  # Puts are refused.
    paused_out: bool  # Takes find nothing.
    wanted_by_peers: bool  # Other nodes requested jobs of this tube.

    # The policy, compiled for the hot path.
    by_priority: bool
    by_creation: bool
    session_owned: bool  # Only the session that took a job may finish it.
    bury_owned: bool  # Only the session that took a job may bury it.
    ttl_kills: bool  # The ttl also ends while a job is taken.
    delay_extends_ttl: bool  # A delay extends the ttl.
    requires_key: bool  # A take without a key gets the jobs that were put without one.
    deletes_on_ack: bool  # Acked jobs are removed, not kept.
    limited: bool  # It has a capacity.
    driven: bool  # A driver decides which job is next: see driving.py.
    temporary: bool  # Its jobs are not logged.
    pause_holds: bool  # While the tube is paused for puts, jobs do not become ready again either.
    row_format: u8  # Number of the format of new bodies: see Job.format.
    retry: RetryPolicy | None

    ready: JobHeap  # Ready jobs, if the tube has no keys.
    ready_times: ReadyTimes  # When they became ready.
    keys: Keys | None  # Ready jobs by key, if the tube has keys.
    taken: TakenBag
    delayed: JobBag
    buried: JobHeap
    spent: JobBag  # Buried at-most-once jobs that were delivered. They cannot be kicked.
    done: JobBag
    zombies: JobBag
    staged: JobBag

    jobs_by_number: JobTable | None  # Jobs by integer id.
    next_local: i64
    promised: i64  # Integers below this may be assigned, because their reservation is durable in the log.
    reserved: i64  # Integers below this are reserved in the log: one block more, unless none was assigned since start.
    reserved_at: i64  # Log position of that reservation; 0 if there was none since start.
    _reserved_when: i64
    _block: i64  # Number of integers that are reserved at once.
    names: dict[bytes, Job]  # Jobs by the name that their producer chose.
    # The driver has started. Until then, returned jobs need no release, because it reads all jobs when it starts.
    has_started: bool
    returned: list[Job]  # Ready jobs whose tasks the driver has not released yet.
    uniques: dict[bytes, Job]  # Unfinished jobs by their unique values.
    ready_bodies: BodyIndex | None  # Ready jobs by body, if the policy has unique_bodies.
    delayed_bodies: BodyIndex | None  # Delayed jobs by body, if the policy has unique_bodies.
    dedups: DedupWindow | None  # Recent puts by dedup id. Created when needed.
    labels: LabelBytes  # Memory counter that all tubes of the engine share.
    body_bytes: i64  # Total length of all bodies.
    spilled: i64  # Jobs whose bodies are on disk only.
    counts: list[int]  # Number of times each rule of states.py was applied since start.
    counts_before: list[int]  # Number of times each rule was applied before this start.
    # Durations in ms since the node started, or None before the first one. Most tubes of a node with very many tubes
    # have no jobs, and a histogram needs 300 bytes.
    waits: Histogram | None  # From ready to taken.
    runs: Histogram | None  # From taken to acked.
    dead_lettered: i64  # Jobs that failed for the last allowed time, since the node started.
    key_stats: dict[bytes, KeyStats]  # Counters of the keys that are counted separately.
    arriving: bool  # The next transition counts as an arrival of its key, because the job came from another key.

    take_line: WaitLine  # Takes that wait for any job.
    key_lines: dict[bytes, WaitLine]  # Takes that wait for one key.
    put_line: WaitLine  # Puts that wait for room.
    woken: bool  # The tube is in the engine's list of tubes whose lines are served when the command ends.
    woken_keys: list[bytes]  # Keys whose lines are served then.

    def __init__(
        self, name: bytes, number: i64, slot: i32, policy: TubePolicy, now: i64, labels: LabelBytes | None = None
    ) -> None:
        self.name = name
        self.labels = LabelBytes() if labels is None else labels
        self.number = number
        self.slot = slot
        self.created = now
        self.used = now
        self.defined_in_segment = -1
        self.dropped = False
        self.paused_in = False
        self.paused_out = False
        self.wanted_by_peers = False
        self.ready = JobHeap()
        self.ready_times = ReadyTimes()
        self.keys = None
        self.taken = TakenBag()
        self.delayed = JobBag()
        self.buried = JobHeap()
        self.spent = JobBag()
        self.done = JobBag()
        self.zombies = JobBag()
        self.staged = JobBag()
        self.jobs_by_number = JobTable(local=True) if policy.ids == p.ID_INTEGER else None
        self.next_local = policy.first_integer
        self.promised = self.next_local
        self.reserved = self.next_local
        self.reserved_at = 0
        self._reserved_when = 0
        self._block = LOCAL_IDS_BLOCK
        self.names = {}
        self.has_started = False
        self.returned = []
        self.uniques = {}
        self.ready_bodies = BodyIndex() if policy.unique_bodies else None
        self.delayed_bodies = BodyIndex() if policy.unique_bodies else None
        self.dedups = None
        self.body_bytes = 0
        self.spilled = 0
        self.counts = [0] * s.RULES_COUNT
        self.counts_before = [0] * s.RULES_COUNT
        self.waits = None
        self.runs = None
        self.dead_lettered = 0
        self.key_stats = {}
        self.arriving = False
        self.take_line = WaitLine(None, NO_KEY, slot)
        self.key_lines = {}
        self.put_line = WaitLine(None, NO_KEY, slot)
        self.woken = False
        self.woken_keys = []
        self.apply_policy(policy)

    def apply_policy(self, policy: TubePolicy) -> None:
        """Set the policy and compile its fields. A new policy must keep the order, the keys and the ids of jobs."""
        self.policy = policy
        self.by_priority = policy.order == p.BY_PRIORITY
        self.by_creation = policy.order == p.BY_CREATION
        self.session_owned = policy.owner == p.SESSION
        self.bury_owned = policy.bury_by == p.SESSION
        self.ttl_kills = policy.ttl_while_taken == p.KILLS
        self.delay_extends_ttl = policy.delay_stretches_ttl
        self.requires_key = policy.keys == p.KEYS_NAMED
        self.deletes_on_ack = policy.after_ack == p.GOES
        self.limited = policy.capacity > 0 or policy.capacity_bytes > 0
        self.driven = policy.driven
        self.temporary = policy.temporary
        self.pause_holds = policy.pause_holds
        self.row_format = u8(policy.row_format)
        self.retry = parse_retry(policy.retry) if policy.retry else None
        if policy.keys != p.KEYS_NONE:
            limit: i32 = i32(policy.key_limit) if policy.keys == p.KEYS_LIMITED else 0
            fair = policy.key_order == p.FAIR
            keys = self.keys
            if keys is None:
                self.keys = Keys(limit, fair, self.labels)
            else:
                if keys.limit != limit:
                    keys.set_limit(limit)
                if keys.fair != fair:
                    keys.set_fair(fair)
        if self.dedups is not None:
            self.dedups.count_max = policy.dedup_count
            self.dedups.window_ms = policy.dedup_ms
        counted = [key.encode() for key in policy.key_stats]
        for name in list(self.key_stats):
            if name not in counted:
                del self.key_stats[name]
        for name in counted:
            if name not in self.key_stats:
                self.key_stats[name] = KeyStats()
                self._count_states(name)

    def _count_states(self, name: bytes) -> None:
        """Count the present jobs of a key by state, because the key is counted separately from now on."""
        keys = self.keys
        if keys is not None and keys.find(name) is not None:
            for state in range(1, s.STATES_COUNT):
                for job in self.jobs_in(state):
                    if key_of(self, job) == name:
                        self.key_stats[name].states[state] += 1

    def reserve(self, now: i64) -> None:
        """Start to use the block of integer ids that is already reserved, and reserve the next block."""
        if now - self._reserved_when < 1_000 and self._block < LOCAL_IDS_BLOCK_MAX:
            self._block *= 2
        elif now - self._reserved_when >= 1_000:
            self._block = LOCAL_IDS_BLOCK
        self._reserved_when = now
        self.promised = self.reserved if self.reserved > self.promised else self.next_local + self._block
        self.reserved = self.promised + self._block

    def count_in(self, state: int) -> int:
        if state == s.READY:
            keys = self.keys
            return len(self.ready) if keys is None else keys.ready
        if state == s.TAKEN:
            return len(self.taken)
        if state == s.DELAYED:
            return len(self.delayed)
        if state == s.BURIED:
            return len(self.buried) + len(self.spent)
        if state == s.DONE:
            return len(self.done)
        if state == s.ZOMBIE:
            return len(self.zombies)
        return len(self.staged) if state == s.STAGED else 0

    def total(self) -> int:
        total = self.count_in(s.READY) + self.count_in(s.BURIED)
        total += len(self.taken) + len(self.delayed) + len(self.done) + len(self.zombies)
        return total + len(self.staged)

    def count_wait(self, ms: i64) -> None:
        """Count how long a job was ready before it was taken."""
        waits = self.waits
        if waits is None:
            waits = Histogram()
            self.waits = waits
        waits.add(ms)

    def count_run(self, ms: i64) -> None:
        """Count how long a job was taken before it was acked."""
        runs = self.runs
        if runs is None:
            runs = Histogram()
            self.runs = runs
        runs.add(ms)

    def has_room(self, body_length: int) -> bool:
        """Return whether the limits of the tube allow one more job with a body of this length."""
        policy = self.policy
        if policy.capacity > 0 and self.total() >= policy.capacity:
            return False
        return policy.capacity_bytes == 0 or self.body_bytes + body_length <= policy.capacity_bytes

    def first_jobs(self, state: int, count: int) -> list[Job]:
        """Return up to `count` jobs of a state, in the order in which they would be taken."""
        if state == s.READY and self.keys is None:
            return self.ready.first_many(count)
        return heapq.nsmallest(count, self.jobs_in(state), key=_place)

    def last_jobs(self, state: int, count: int) -> list[Job]:
        """Return up to `count` jobs of a state from the end of its container, where removing them is cheapest.

        Jobs that were deleted while a claim had them are not included.
        """
        if count <= 0:
            return []
        if state == s.READY and self.keys is not None:
            return self.keys.some_ready(count)
        if state == s.BURIED:
            found = self.spent.items[: -count - 1 : -1]
            return found + self.buried.items[: -(count - len(found)) - 1 : -1]
        if state == s.TAKEN:
            count = min(count, len(self.taken) - int(self.taken.doomed))
        return self.jobs_in(state)[: -count - 1 : -1]

    def jobs_in(self, state: int) -> list[Job]:
        """Return the jobs in a state, in no particular order.

        The list may be the container itself, so do not modify it.
        """
        if state == s.READY:
            keys = self.keys
            if keys is None:
                return self.ready.items
            found: list[Job] = []
            for key in keys.all_keys():
                if key.first is not None:
                    found.append(key.first)
                if key.rest is not None:
                    found.extend(key.rest.items)
            return found
        if state == s.TAKEN:
            return self.taken.items
        if state == s.DELAYED:
            return self.delayed.items
        if state == s.BURIED:
            return self.buried.items + self.spent.items
        if state == s.DONE:
            return self.done.items
        if state == s.ZOMBIE:
            return self.zombies.items
        return self.staged.items if state == s.STAGED else []

    def first_ready(self, key: bytes | None) -> Job | None:
        """Return the job to take next, of any key if `key` is None. Return None if no job can be taken."""
        keys = self.keys
        if keys is None:
            return self.ready.first()
        if key is None:
            return keys.first()
        return keys.first_of(key)

    def oldest_ready(self) -> i64:
        """Return the time at which the oldest ready job became ready, or NEVER if there is none.

        In a tube with keys, only the first ready job of each key that is below its limit counts.
        """
        keys = self.keys
        return self.ready_times.oldest() if keys is None else keys.oldest()

    def index(self, job: Job, key: bytes) -> None:
        """Add a job to the tube's indexes. Its container depends on its state: see `place`."""
        if self.keys is not None:
            self.keys.join(job, key)
        extra = job.extra
        if extra is not None:
            if extra.name:
                self.names[extra.name] = job
                self.labels.total += len(extra.name)
            if extra.unique:
                self.uniques[extra.unique] = job
                self.labels.total += len(extra.unique)
            if extra.headers:
                self.labels.headers += len(extra.headers)
        self.body_bytes += i64(job.body_length())

    def dedup_window(self) -> DedupWindow:
        """Return the window with the dedup ids of recent puts. Create it if necessary."""
        dedups = self.dedups
        if dedups is None:
            dedups = DedupWindow(i64(self.policy.dedup_count), i64(self.policy.dedup_ms), self.labels)
            self.dedups = dedups
        return dedups

    def place(self, job: Job) -> None:
        state = job.state
        if state == s.READY:
            keys = self.keys
            if keys is None:
                self.ready.push(job)
            else:
                keys.push(job)
        elif state == s.TAKEN:
            self.taken.push(job)
        elif state == s.DELAYED:
            self.delayed.push(job)
        elif state == s.BURIED:
            if job.once and job.deliveries > 0:
                self.spent.push(job)
            else:
                self.buried.push(job)
        elif state == s.DONE:
            self.done.push(job)
        elif state == s.ZOMBIE:
            self.zombies.push(job)
        else:
            self.staged.push(job)

    def set_priority(self, job: Job, priority: i64) -> None:
        """Change the priority of a job that is ready, delayed or buried."""
        keys = self.keys
        if job.state == s.READY and keys is not None:
            keys.set_priority(job, priority)
        elif job.state == s.DELAYED:
            job.priority = priority
        else:
            self.remove_from(job, i64(job.state))
            job.priority = priority
            self.place(job)
        if job.extra is not None:
            job.extra.priority_given = PRIORITY_UNSET

    def remove_from(self, job: Job, state: i64) -> None:
        """Remove a job from the container of `state`, its previous state."""
        keys = self.keys
        if state == s.READY:
            if keys is None:
                self.ready.remove(job)
            elif job.state == s.TAKEN:
                keys.take(job)
            else:
                keys.remove(job)
        elif state == s.TAKEN:
            self.taken.remove(job)
            if keys is not None:
                keys.give_back(job)
        elif state == s.DELAYED:
            self.delayed.remove(job)
        elif state == s.BURIED:
            if job.once and job.deliveries > 0:
                self.spent.remove(job)
            else:
                self.buried.remove(job)
        elif state == s.DONE:
            self.done.remove(job)
        elif state == s.ZOMBIE:
            self.zombies.remove(job)
        elif state == s.STAGED:
            self.staged.remove(job)

    def make(self, job_id: i64, draft: Draft, now: i64) -> Job:
        """Return the job that a draft describes, or raise an error. Nothing else changes."""
        policy = self.policy
        ttl_ms = draft.ttl_ms
        if ttl_ms == UNSET:
            ttl_ms = policy.default_ttl_ms
        elif not policy.has_ttl:
            raise self.lacks("ttl")
        else:
            check_duration(ttl_ms, "ttl")
        ttr_ms = draft.ttr_ms
        if ttr_ms == UNSET:
            ttr_ms = self._default_ttr(ttl_ms)
        else:
            self.check_ttr(ttr_ms)
        priority = draft.priority
        if priority == PRIORITY_UNSET:
            priority = policy.default_priority
        elif not self.by_priority:
            raise self.lacks("priority")
        else:
            check_priority(priority)
        delay_ms = draft.delay_ms
        if draft.at_ms != UNSET:
            if not policy.has_delay:
                raise self.lacks("delay")
            if delay_ms != 0:
                raise Unsupported("a job can have a delay or a time (at), not both")
            # A time in the past means no delay.
            delay_ms = max(draft.at_ms - int(now), 0)
        if delay_ms != 0:
            if not policy.has_delay:
                raise self.lacks("delay")
            check_finite(delay_ms, "delay")
            if not self.delay_extends_ttl and delay_ms >= ttl_ms:
                raise OutOfRange("the delay is not shorter than the ttl, so the job would never be delivered")
        if draft.options is not None:
            raise self.lacks("driver, so a put has no options for one")
        if draft.key is not None:
            self.check_key(draft.key)
        if draft.once and self.session_owned:
            raise self.lacks("at-most-once delivery: the jobs of a session are given back when it disconnects")
        if draft.body_kind < BODY_BYTES or draft.body_kind > BODY_MSGPACK:
            raise OutOfRange(f"the kind of a body must be {BODY_BYTES} to {BODY_MSGPACK}")
        job = Job(job_id, self.slot, draft.body, u8(draft.body_kind), now)
        job.format = self.row_format
        job.priority = priority
        job.ttr = NEVER if draft.once else ttr_ms
        job.once = draft.once
        if draft.nacks != 0:
            job.nacks = i32(check_nacks(draft.nacks))
        job.ttl_minutes = i32(ttl_class(ttl_ms, draft.once))
        if ttl_ms != NEVER:
            job.expiry = now + i64(ttl_ms)
            if self.delay_extends_ttl:
                job.expiry += i64(delay_ms)
        if delay_ms != 0:
            job.wake = now + i64(delay_ms)
        elif draft.urgent:
            job.ensure_extra().priority_given = priority
            job.priority = PRIORITY_FRONT
        if draft.retry is not None:
            job.ensure_extra().retry = draft.retry
        if draft.name is not None:
            job.ensure_extra().name = self.check_label(draft.name, "a job's name")
        if draft.unique is not None:
            job.ensure_extra().unique = self.check_label(draft.unique, "a unique value")
        if draft.headers:
            job.ensure_extra().headers = draft.headers
        if draft.same_body and not policy.unique_bodies:
            raise self.lacks("index of bodies (unique_bodies)")
        if draft.dedup is not None:
            self.check_label(draft.dedup, "a dedup id")
        if draft.initial_state != s.READY:
            self._check_state(draft)
        if draft.number != UNSET:
            job.local = self._check_number(draft.number)
        elif self.jobs_by_number is not None:
            job.local = self.next_local
        return job

    def _check_state(self, draft: Draft) -> None:
        """Raise an error if a job of this tube cannot be put in the state that the draft requests."""
        if draft.initial_state != s.BURIED and draft.initial_state != s.DONE:
            raise OutOfRange("a job can be put as ready, buried or done")
        if draft.initial_state == s.BURIED and not self.policy.has_bury:
            raise self.lacks("buried jobs")
        if draft.initial_state == s.DONE and self.policy.after_ack != p.KEPT:
            raise self.lacks("jobs that are kept when they are done (keep)")
        if draft.delay_ms != 0 or draft.urgent:
            raise Unsupported(
                f"a job that is put as {s.STATE_NAMES[draft.initial_state]} cannot have a delay or be urgent"
            )

    def _check_number(self, number: int) -> i64:
        """Return the integer id that the producer chose for a job.

        Raise an error if the tube has no integer ids, or if the id is not below those that the tube itself assigns.
        """
        if self.jobs_by_number is None:
            raise self.lacks("numbers")
        end = min(self.policy.first_integer, self.next_local)
        if number < 0 or number >= end:
            raise OutOfRange(
                f"a number must be below {end}, the first one that the tube assigns itself; "
                "create the tube with a greater first_integer"
            )
        return i64(number)

    def check_key(self, key: bytes) -> None:
        """Raise an error if the key is too long, or if the tube has no keys."""
        if self.keys is None:
            raise self.lacks("key")
        if len(key) > NAME_BYTES_MAX:
            raise BadName(f"a key must have at most {NAME_BYTES_MAX} bytes, this one has {len(key)}")

    def check_label(self, label: bytes, what: str) -> bytes:
        """Return a name, unique value or dedup id if it is valid. Raise an error if it is empty or too long."""
        if len(label) < 1 or len(label) > NAME_BYTES_MAX:
            raise BadName(f"{what} must have 1 to {NAME_BYTES_MAX} bytes, this one has {len(label)}")
        return label

    def check_ttr(self, ttr_ms: int) -> None:
        """Raise an error if the tube has no ttr, or if the ttr is out of range."""
        if not self.policy.has_ttr:
            raise self.lacks("ttr")
        if ttr_ms == 0:
            raise OutOfRange("ttr must be more than 0 seconds, or the job would be given back immediately")
        check_duration(ttr_ms, "ttr")

    def check_change(self, key: bytes | None, priority: int) -> None:
        """Raise an error if a job of this tube cannot have this key or priority."""
        if key is not None:
            self.check_key(key)
        if priority != PRIORITY_UNSET:
            if not self.by_priority:
                raise self.lacks("priority")
            check_priority(priority)

    def check_return(self, delay_ms: int, ttl_ms: int, priority: int) -> None:
        """Raise an error if a job of this tube cannot get this delay, ttl or priority when it returns to the tube."""
        if delay_ms != 0:
            if not self.policy.has_delay:
                raise self.lacks("delay")
            check_finite(delay_ms, "delay")
        if ttl_ms != UNSET:
            if not self.policy.has_ttl:
                raise self.lacks("ttl")
            check_duration(ttl_ms, "ttl")
        self.check_change(None, priority)

    def lacks(self, what: str) -> Unsupported:
        """Return the error for an option or command that this type of tube does not support."""
        hint = ""
        if what == "key":
            hint = "; use a type that has one, such as utubettl"
        elif what in ("ttl", "ttr", "delay", "priority"):
            hint = f"; use a type that has one, such as {self.policy.type_with_times()}"
        return Unsupported(f"a {self.policy.type} tube has no {what}{hint}")

    def _default_ttr(self, ttl_ms: int) -> int:
        policy = self.policy
        if policy.default_ttr_ms != UNSET:
            return policy.default_ttr_ms
        if not policy.has_ttr:
            return NEVER
        if policy.ttr_rule == p.TTR_IS_TENTH and ttl_ms != NEVER:
            tenth = ttl_ms // 10_000 * 1_000
            return max(_RETRY_MS_MIN, min(tenth, _RETRY_MS_MAX))
        return ttl_ms if ttl_ms > 0 else NEVER


def _place(job: Job) -> tuple[int, int]:
    return job.priority, job.order


def key_of(tube: Tube, job: Job) -> bytes:
    """Return the name of a job's key, or NO_KEY if it has none."""
    keys = tube.keys
    if keys is None or job.key == NO_SLOT:
        return NO_KEY
    return keys.of(job).name
