"""The job, and the draft from which it is made.

The fields of a job are its complete state. Nothing about a job is stored only in a container. `states.py` alone writes
`state`. Containers (`order.py`, `deadlines.py`, `sessions.py`) store a job's position in the job itself, so that
removing it needs no search. A job refers to its tube, key and session by slot numbers. Jobs are therefore never part of
a reference cycle, and the garbage collector does not track them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr, u8

from penstock.core.deadlines import NOWHERE, Timed
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.retry import RetryPolicy

# The kind of a body, so that every dialect returns the same value that was put.
BODY_BYTES: Final = 0  # Raw bytes.
BODY_TEXT: Final = 1  # Text, as UTF-8.
BODY_JSON: Final = 2  # A value of another type, as JSON text.
BODY_MSGPACK: Final = 3  # An array of fields, as msgpack.

NO_KEY: Final = b""  # The key of a job that was put without one.
NO_SLOT: Final = -1
HELD_BY_CLAIM: Final = -2  # Used instead of a session's slot. No session may finish the job.
ARRIVES_READY: Final = 1  # Equal to states.READY, which cannot be imported here because states.py imports this module.

# The states in which a copy is created or read from the log. cluster/copy_states.py has all states and transitions.
COPY_FRESH: Final = 0  # The producer asked for a delay, and no node has queued the job yet.
COPY_UNWARNED: Final = 1  # The job was queued before, or had no delay.

# Bits of Copy.aside. The log stores the first two.
ASIDE: Final = 1  # The job waits here for another node, which has it queued or taken.
WAS_ASIDE: Final = 2  # It did so before its last event.
ASIDE_NEXT: Final = 4  # It does so from its next event on.
NOT_ASIDE_NEXT: Final = 8  # It does not do so from its next event on.


@mypyc_attr(acyclic=True)
class BodyRef:
    """A reference to a body that is only on disk: its file and offset, and a checksum to verify it."""

    def __init__(self, file: i64, offset: i64, length: i32, crc: i32) -> None:
        self.file = file  # Number of a log segment, or the negated number of a snapshot.
        self.offset = offset
        self.length = length
        self.crc = crc

    def is_copy_of(self, other: BodyRef) -> bool:
        """Return whether this body and another one have the same length and checksum."""
        return self.length == other.length and self.crc == other.crc


@mypyc_attr(acyclic=True)
class Copy:
    """Replication data of a job that has copies on other nodes, or that came from another node."""

    origin_id: bytes  # The 40-character id if the job was created on another node; empty if it was created here.
    repl: i32  # Number of copies that were requested.
    holders: list[bytes]  # Nodes that are assumed to have a copy, including this one. Equal node ids share one object.
    state: u8  # Which messages precede the next queueing: see cluster/copy_states.py, which alone changes it.
    aside: u8  # Whether the job waits here for another node: ASIDE and the other bits.
    logged: bool  # The log has the present holders, and whether the copy is fresh. Written by the log.
    timers_restarted: i64  # Time (ms) at which the other holders last restarted their retry timers; 0 if unknown.

    def __init__(self, foreign: bytes, repl: i32, holders: list[bytes], state: u8) -> None:
        self.origin_id = foreign
        self.repl = repl
        self.holders = holders
        self.state = state
        self.aside = 0
        self.logged = False
        self.timers_restarted = 0

    def update_aside(self, same_state: bool) -> None:
        """Compute `aside` for an event of the job. An event that does not change the state changes it only on request.

        Requests are ASIDE_NEXT and NOT_ASIDE_NEXT.
        """
        before = self.aside
        was = before & ASIDE
        after: u8 = 0
        if before & ASIDE_NEXT:
            after = ASIDE
        elif same_state and not before & NOT_ASIDE_NEXT:
            after = was
        self.aside = after | was << 1


# Verdicts on jobs of claims. Their numbers must never change, because the log stores them.
VERDICT_ACK: Final = 0  # Only in commands: it removes an earlier verdict.
VERDICT_NACK: Final = 1
VERDICT_BURY: Final = 2
VERDICT_MOVE: Final = 3

VERDICT_NAMES: Final = ["ack", "nack", "bury", "move"]


@mypyc_attr(acyclic=True)
class Verdict:
    """What happens to a job instead of an ack when its claim is acked: see claims.py."""

    kind: i64  # VERDICT_NACK, VERDICT_BURY or VERDICT_MOVE.
    reason: bytes  # Empty if none was given.
    delay_ms: i64  # Delay after a nack or a move; UNSET if none was given.
    tube: bytes  # Tube to which the job moves; empty for other verdicts.

    def __init__(self, kind: i64, reason: bytes, delay_ms: i64, tube: bytes) -> None:
        self.kind = kind
        self.reason = reason
        self.delay_ms = delay_ms
        self.tube = tube

    def encode(self) -> bytes:
        """Return the verdict as it is stored in the log."""
        return b"%d %d %d " % (self.kind, self.delay_ms, len(self.tube)) + self.tube + self.reason


def decode_verdict(text: bytes) -> Verdict:
    kind, delay_ms, length, rest = text.split(b" ", 3)
    cut = int(length)
    return Verdict(int(kind), rest[cut:], int(delay_ms), rest[:cut])


@mypyc_attr(acyclic=True)
class Extra:
    """Rarely used fields of a job. The object is created when the first of them is set.

    The short fields are next to each other, because this saves 16 bytes of padding.
    """

    reason: bytes  # Reason of the last failure or bury; empty if none was given.
    retry: RetryPolicy | None  # The job's own retry policy, which replaces the tube's.
    name: bytes  # Id chosen by the producer, unique in the tube; empty if none.
    unique: bytes  # Value that no other unfinished job of the tube has; empty if none.
    headers: bytes  # Metadata from the producer, encoded by wire/headers.py; empty if none.
    priority_given: i64  # Priority before `urgent` or `requeue` replaced it; otherwise PRIORITY_UNSET.
    consumer: bytes  # Consumer whose claim holds the job; empty if none.
    claim: i64  # Number of that claim.
    batch: bytes  # Name of the stage of the batch to which the job belongs; empty if none.
    stage: bytes  # Name of the stage that contains the job; empty if none.
    copy: Copy | None  # Replication data; None if the job has no copies.
    verdict: Verdict | None  # What happens to the job when its claim is acked. None: it is acked.
    user_body: bytes | None  # The body that users see, in a tube with a driver (driving.py). None in other tubes.
    buries: i32  # Number of times the job was buried.
    unique_pos: i32  # Position among jobs with the same body: see unique.py.
    claim_place: i32  # Index of the job in the claim `claim`.
    doomed: bool  # Deleted while a claim held the job. It is removed when the claim ends.
    cancelled: bool  # Cancelled while a session holds the job. It is removed when its delivery ends without an ack.
    user_body_kind: u8

    def __init__(self) -> None:
        self.reason = b""
        self.buries = 0
        self.retry = None
        self.name = b""
        self.unique = b""
        self.unique_pos = NOWHERE
        self.priority_given = PRIORITY_UNSET
        self.consumer = b""
        self.claim = 0
        self.claim_place = 0
        self.doomed = False
        self.cancelled = False
        self.stage = b""
        self.batch = b""
        self.copy = None
        self.verdict = None
        self.headers = b""
        self.user_body = None
        self.user_body_kind = 0


@mypyc_attr(acyclic=True)
class Job(Timed):
    """One job. Its deadline, `due`, is the first of `wake` and `expiry` that counts in the present state."""

    id: i64  # (epoch, sequence): see ids.py. Never reused on this node.
    local: i64  # Integer id within the tube; NO_SLOT in tubes with other ids.
    priority: i64  # Lower values are served first.
    order: i64  # Place among jobs of equal priority. A job that is given back keeps it.
    created: i64  # Time of creation, ms.
    since: i64  # Time (ms) at which the job entered its present state.
    # Time (ms) at which the ttl ends; NEVER if there is none. While the job is STAGED, `expiry` and `wake` do not fire:
    # they have the values that they would have if the job had been published when it was created.
    expiry: i64
    ttr: i64  # Time a consumer has to finish the job, ms; NEVER if unlimited.
    wake: i64  # Time (ms) at which DELAYED, TAKEN or ZOMBIE ends by itself; NEVER in other states.
    position: i64  # Log position of the newest row of the job; 0 if it has none.
    body: bytes | BodyRef
    extra: Extra | None
    tube: i32  # Slot of the tube.
    key: i32  # Slot of the key in a keyed tube; otherwise NO_SLOT.
    # Slot of the session that holds the job, or HELD_BY_CLAIM. NO_SLOT if not taken, or if anyone may ack it.
    holder: i32
    pos: i32  # Position in the container of the present state.
    held_pos: i32  # Position among the jobs of the session that holds this job, or NOWHERE.
    deliveries: i32  # Number of deliveries.
    nacks: i32  # Number of failures that consumers reported.
    returns: i32  # Number of times the job was given back for another reason: release, ttr, disconnect, kick.
    ttl_minutes: i32  # The ttl class encoded in the 40-character id. Fixed at put, because ids never change.
    body_kind: u8
    format: u8  # The `row_format` that the policy of its tube had when the body was written.
    state: u8  # Written by states.py only.
    once: bool  # Delivered at most once. After its delivery the job is never queued again.

    def __init__(self, id: i64, tube: i32, body: bytes | BodyRef, body_kind: u8, now: i64) -> None:
        self.due = NEVER
        self.due_seq = 0
        self.deadline_pos = NOWHERE
        self.id = id
        self.local = NO_SLOT
        self.priority = 0
        self.order = id
        self.created = now
        self.since = now
        self.expiry = NEVER
        self.ttr = NEVER
        self.wake = NEVER
        self.position = 0
        self.body = body
        self.extra = None
        self.tube = tube
        self.key = NO_SLOT
        self.holder = NO_SLOT
        self.pos = NOWHERE
        self.held_pos = NOWHERE
        self.deliveries = 0
        self.nacks = 0
        self.returns = 0
        self.ttl_minutes = 0
        self.body_kind = body_kind
        self.format = 0
        self.state = 0
        self.once = False

    def ensure_extra(self) -> Extra:
        extra = self.extra
        if extra is None:
            extra = Extra()
            self.extra = extra
        return extra

    def copy(self) -> Copy | None:
        """Return the replication data, or None if the job has no copies."""
        extra = self.extra
        return None if extra is None else extra.copy

    def headers(self) -> bytes:
        """Return the encoded headers, or b"" if the job has none."""
        extra = self.extra
        return b"" if extra is None else extra.headers

    def user_body(self) -> bytes | BodyRef:
        """Return the body that users see. In a tube with a driver, this is the data of the task."""
        extra = self.extra
        return self.body if extra is None or extra.user_body is None else extra.user_body

    def user_body_kind(self) -> int:
        """Return the kind of `user_body()`."""
        extra = self.extra
        return int(self.body_kind) if extra is None or extra.user_body is None else int(extra.user_body_kind)

    def body_length(self) -> int:
        """Return the length of the body in bytes, in memory or on disk."""
        body = self.body
        if isinstance(body, bytes):
            return len(body)
        return body.length

    def reply_length(self) -> int:
        """Return the length of the body and the headers, which determine the size of a reply with this job."""
        extra = self.extra
        return self.body_length() if extra is None else self.body_length() + len(extra.headers)


@mypyc_attr(acyclic=True)
class Draft:
    """A job as a producer requests it. Numbers are Python integers of any size, which the tube checks."""

    body: bytes
    body_kind: int
    ttl_ms: int  # UNSET: the tube's default. NEVER: no expiry.
    ttr_ms: int  # UNSET: the tube's default, otherwise the ttl. NEVER: unlimited.
    delay_ms: int  # 0: none.
    priority: int  # PRIORITY_UNSET: the tube's default.
    key: bytes | None  # None: no key. In keyed tubes, all jobs without a key share one key.
    once: bool  # Deliver at most once.
    urgent: bool  # Put the job in front of all others.
    retry: RetryPolicy | None  # The job's own retry policy, which replaces the tube's.
    name: bytes | None  # Id chosen by the producer, unique in the tube.
    unique: bytes | None  # If an unfinished job has this value, that job is returned instead.
    # If a ready job (or a delayed one, if this job is delayed) has the same body, that job is returned instead.
    same_body: bool
    dedup: bytes | None  # If a job was put with this value recently, that job is returned instead.
    nacks: int  # Initial number of failures, for jobs imported from another system.
    options: dict[str, object] | None  # Options for the driver of the tube, passed on unchanged.
    number: int  # Integer id in the tube, below its first_integer. UNSET: the tube assigns the next one.
    initial_state: int  # State of the new job: READY (DELAYED if there is a delay), BURIED or DONE.
    new: bool  # If a job exists for this put already, refuse the put instead of returning that job.
    at_ms: int  # Earliest time of delivery (ms since 1970), instead of a delay; UNSET: none.
    headers: bytes  # Metadata, encoded by wire/headers.py; empty: none.
    batch: bytes | None  # Name of the batch to which the job will belong; None: none.

    def __init__(
        self,
        body: bytes,
        ttl_ms: int = UNSET,
        ttr_ms: int = UNSET,
        delay_ms: int = 0,
        priority: int = PRIORITY_UNSET,
        key: bytes | None = None,
        once: bool = False,
        body_kind: int = BODY_BYTES,
        urgent: bool = False,
        retry: RetryPolicy | None = None,
        name: bytes | None = None,
        unique: bytes | None = None,
        same_body: bool = False,
        dedup: bytes | None = None,
        nacks: int = 0,
        options: dict[str, object] | None = None,
        number: int = UNSET,
        arrives: int = ARRIVES_READY,
        new: bool = False,
        at_ms: int = UNSET,
        headers: bytes = b"",
        batch: bytes | None = None,
    ) -> None:
        self.body = body
        self.body_kind = body_kind
        self.ttl_ms = ttl_ms
        self.ttr_ms = ttr_ms
        self.delay_ms = delay_ms
        self.priority = priority
        self.key = key
        self.once = once
        self.urgent = urgent
        self.retry = retry
        self.name = name
        self.unique = unique
        self.same_body = same_body
        self.dedup = dedup
        self.nacks = nacks
        self.options = options
        self.number = number
        self.initial_state = arrives
        self.new = new
        self.at_ms = at_ms
        self.headers = headers
        self.batch = batch

    def with_body(self, body: bytes) -> Draft:
        return Draft(
            body,
            self.ttl_ms,
            self.ttr_ms,
            self.delay_ms,
            self.priority,
            self.key,
            self.once,
            self.body_kind,
            self.urgent,
            self.retry,
            self.name,
            self.unique,
            self.same_body,
            self.dedup,
            self.nacks,
            self.options,
            self.number,
            self.initial_state,
            self.new,
            self.at_ms,
            self.headers,
            self.batch,
        )

    def log_bytes(self) -> i64:
        """Return how many bytes the job needs in the log, in addition to a row of fixed length."""
        length: i64 = len(self.body) + len(self.headers)
        if self.key is not None:
            length += len(self.key)
        if self.name is not None:
            length += len(self.name)
        if self.unique is not None:
            length += len(self.unique)
        if self.dedup is not None:
            length += len(self.dedup)
        if self.batch is not None:
            length += 2 * len(self.batch)
        if self.retry is not None:
            length += len(self.retry.text)
        return length


def plain_draft(body: bytes) -> Draft:
    """Return a draft without options. Calling this from interpreted code takes half the time of `Draft(body)`."""
    return Draft(body)


@mypyc_attr(acyclic=True)
class LabelBytes:
    """Counts the memory of labels: the names of jobs, keys, unique values and dedup ids, each up to 64 KB.

    Headers have a counter of their own, because only the first row of a job contains them. All tubes of an engine
    share the counters. Each put checks the memory limit, and adding up the counters of a million tubes would be slow.
    """

    def __init__(self) -> None:
        self.total: i64 = 0
        self.headers: i64 = 0  # Bytes of the headers of all jobs.
