"""The job: what the queue knows of one piece of work, and the draft it is made from.

A job's fields are its complete state: nothing about it lives only in a container. `states.py` alone writes `state`;
the containers (`order.py`, `deadlines.py`, `sessions.py`) keep their positions in the job, which is what makes leaving
one of them cost no search. A job refers to its tube, key and holder by slot numbers, never by reference, so jobs are
part of no cycle and the garbage collector never looks at them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr, u8

from penstock.core.deadlines import NOWHERE, Timed
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.retry import RetryPolicy

# What the bytes of a body are, so that every vocabulary gives back what was put.
BODY_BYTES: Final = 0  # Raw bytes.
BODY_TEXT: Final = 1  # Text, as UTF-8.
BODY_JSON: Final = 2  # Another value, as JSON text.
BODY_MSGPACK: Final = 3  # An array of fields, as msgpack.

NO_KEY: Final = b""  # The key of a job that was put without one.
NO_SLOT: Final = -1
HELD_BY_CLAIM: Final = -2  # In place of a session's slot: no session may touch the job.
ARRIVES_READY: Final = 1  # The state READY of states.py, which imports this file.


@mypyc_attr(acyclic=True)
class BodyRef:
    """A body that lives on disk only: where to read it, and how to know that it is the one."""

    file: i64  # The number of a segment of the log; that of a snapshot, negative.
    offset: i64
    length: i32
    crc: i32

    def __init__(self, file: i64, offset: i64, length: i32, crc: i32) -> None:
        self.file = file
        self.offset = offset
        self.length = length
        self.crc = crc

    def is_copy_of(self, other: BodyRef) -> bool:
        """Whether the same body is at both places."""
        return self.length == other.length and self.crc == other.crc


@mypyc_attr(acyclic=True)
class Copy:
    """That a job is one of several copies of it, each on a node of its own; or that it comes from another node."""

    foreign: bytes  # Its 40-character id if it was made on another node; empty if it was made here.
    repl: i32  # How many copies were asked for.
    holders: list[bytes]  # The nodes that are believed to have a copy, this one among them; shared objects.
    announces: bool  # It was queued before, here or elsewhere: that it is queued again is news to the other holders.
    warned: bool  # The other holders were told that it is about to be queued here.
    logged: bool  # The log has it as it is.
    told: i64  # When the other holders' time to wait for it began last, ms; 0 if that is not known.

    def __init__(self, foreign: bytes, repl: i32, holders: list[bytes], announces: bool) -> None:
        self.foreign = foreign
        self.repl = repl
        self.holders = holders
        self.announces = announces
        self.warned = False
        self.logged = False
        self.told = 0


@mypyc_attr(acyclic=True)
class Extra:
    """What few jobs have; one object, made when the first of these fields is needed."""

    reason: bytes  # Why it failed or was buried last; empty when nobody said.
    buries: i32  # How often it was buried.
    retry: RetryPolicy | None  # Its own retry policy, instead of its tube's.
    name: bytes  # The id that its user chose, unique in its tube; empty if none.
    unique: bytes  # What it is the only job of; empty if nothing.
    unique_pos: i32  # Its place among jobs of the same body: see unique.py.
    priority_given: i64  # Its priority before urgent or requeue set it aside; else PRIORITY_UNSET.
    consumer: bytes  # Whose claim holds it; empty if none.
    claim: i64  # The number of that claim.
    claim_place: i32  # Its place within that claim.
    doomed: bool  # Deleted while a claim held it: it goes when the claim ends.
    stage: bytes  # The stage that it waits in; empty if none.
    copy: Copy | None  # Its copies on other nodes, if it has any.
    shown: bytes | None  # Its body as users see it, in a tube with a driver: see driving.py. None elsewhere.
    shown_kind: u8

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
        self.stage = b""
        self.copy = None
        self.shown = None
        self.shown_kind = 0


@mypyc_attr(acyclic=True)
class Job(Timed):
    """One job. `due` of Timed is the nearest of `wake` and `expiry` that can fire in its state."""

    id: i64  # (epoch, sequence): see ids.py. Unique for ever on this node.
    local: i64  # Its integer within the tube, from 0; NO_SLOT in tubes that show other ids.
    priority: i64  # Lower is served first.
    order: i64  # Its place among equal priorities. It keeps it when it comes back.
    created: i64  # ms.
    expiry: i64  # When its ttl ends, ms; NEVER if it has none. While it is STAGED, this and `wake` stand still: they
    # are what they would be if it had been published when it was made.
    ttr: i64  # How long a taker may hold it, ms; NEVER if as long as it likes.
    wake: i64  # When its present state ends by itself: of DELAYED, TAKEN and ZOMBIE. NEVER elsewhere.
    position: i64  # Of its newest row in the log; 0 before the first.
    body: bytes | BodyRef
    extra: Extra | None
    tube: i32  # Slot of its tube.
    key: i32  # Slot of its key in a keyed tube, else NO_SLOT.
    holder: i32  # Slot of the session that holds it, or HELD_BY_CLAIM; NO_SLOT if not taken, or anyone may ack it.
    pos: i32  # Where in the container of its state: ready order, buried order, or a bag.
    held_pos: i32  # Where in its holder's bag, or NOWHERE.
    deliveries: i32  # How often it was handed out.
    nacks: i32  # How often a taker said it failed.
    returns: i32  # How often it came back for another reason: release, ttr, disconnect, kick.
    ttl_minutes: i32  # The ttl class that its 40-character id shows; fixed at put, because ids never change.
    body_kind: u8
    state: u8  # Written by states.py only.
    once: bool  # At most once: after its one delivery it never goes back to the queue.

    def __init__(self, id: i64, tube: i32, body: bytes | BodyRef, body_kind: u8, now: i64) -> None:
        self.due = NEVER
        self.due_seq = 0
        self.deadline_pos = NOWHERE
        self.id = id
        self.local = NO_SLOT
        self.priority = 0
        self.order = id
        self.created = now
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
        self.state = 0
        self.once = False

    def rare(self) -> Extra:
        """The rarely used fields, made on first need."""
        extra = self.extra
        if extra is None:
            extra = Extra()
            self.extra = extra
        return extra

    def copy(self) -> Copy | None:
        """Its copies on other nodes, if it has any."""
        extra = self.extra
        return None if extra is None else extra.copy

    def shown_body(self) -> bytes | BodyRef:
        """Return the body as users see it: in a tube with a driver, the data of the task."""
        extra = self.extra
        return self.body if extra is None or extra.shown is None else extra.shown

    def shown_kind(self) -> int:
        """Return what kind of body users see."""
        extra = self.extra
        return int(self.body_kind) if extra is None or extra.shown is None else int(extra.shown_kind)

    def body_length(self) -> int:
        """How many bytes the body has, wherever it lives."""
        body = self.body
        if isinstance(body, bytes):
            return len(body)
        return body.length


@mypyc_attr(acyclic=True)
class Draft:
    """A job as a producer asks for it. Numbers are Python's own: the tube checks them before they enter."""

    body: bytes
    body_kind: int
    ttl_ms: int  # UNSET: the tube's default. NEVER: for ever.
    ttr_ms: int  # UNSET: the tube's default, else its ttl. NEVER: as long as the taker likes.
    delay_ms: int  # 0: none.
    priority: int  # PRIORITY_UNSET: the tube's default.
    key: bytes | None  # None: none given, which keyed tubes treat as one key of its own.
    once: bool  # Deliver at most once.
    urgent: bool  # Before all others.
    retry: RetryPolicy | None  # Its own, instead of the tube's.
    name: bytes | None  # An id of the producer's own, unique in the tube.
    unique: bytes | None  # If an unfinished job of this value is there, this one is not put.
    same_body: bool  # If a ready job of the same body is there (or delayed, for a delayed one), this one is not put.
    dedup: bytes | None  # If a put of this value was seen lately, this one is not put.
    nacks: int  # How often it has failed already: where it comes from.
    options: dict[str, object] | None  # For the driver of the tube, as they are.
    number: int  # Its integer in the tube, below the tube's first_integer. UNSET: the tube counts.
    arrives: int  # The state that it arrives in: READY (or DELAYED, with a delay), BURIED or DONE.
    new: bool  # If a job stands for this put already, the put is refused instead of returning that job.
    at_ms: int  # Not before this moment, instead of a delay; UNSET: none.

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
        self.arrives = arrives
        self.new = new
        self.at_ms = at_ms

    def like(self, body: bytes) -> Draft:
        """The same of another body."""
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
            self.arrives,
            self.new,
            self.at_ms,
        )

    def log_bytes(self) -> i64:
        """How many bytes the log needs for it, beside its row."""
        length: i64 = len(self.body)
        if self.key is not None:
            length += len(self.key)
        if self.name is not None:
            length += len(self.name)
        if self.unique is not None:
            length += len(self.unique)
        if self.dedup is not None:
            length += len(self.dedup)
        if self.retry is not None:
            length += len(self.retry.text)
        return length


def plain_draft(body: bytes) -> Draft:
    """A draft of nothing but a body. Compiled code makes one in half the time that interpreted code takes."""
    return Draft(body)
