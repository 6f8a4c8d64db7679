"""The binary format of the log: rows and frames. Pure and compiled. docs/explanation/journal.md explains each field.

A *row* is the complete state of a job after a change. Recovery is therefore "the last row wins" and runs no rule of the
engine. A *frame* is one commit: either all of its rows exist, or none. All integers are little-endian.

Frame header, 64 bytes:

     0  magic u32 "PENF"
     4  crc32 u32: of the frame from byte 8 to its end, with a seed that depends on file and offset
     8  version u8 │  9 kind u8 (1: log, 2: snapshot, 3: end of snapshot) │ 10  flags u16
    12  length of the whole frame u32, a multiple of 8
    16  position of the first row u64. The first row of a log has position 1.
        In a snapshot: position of the log at which this state was read. Rows of the log from there on are newer
    24  engine time i64 │ 32  wall time i64, both ms since 1970
    40  number of rows u32 │ 44  length of each row u16 │ 46  0
    48  length of the var bytes u32 │ 52  0
    56  durable u64: every position below it was on disk when this frame was written

then the rows, then the var bytes, then zeros up to the length.

Row, 128 bytes. Later versions can append fields, so readers use the length of a row from the frame header:

     0  job id i64 (epoch 20 bits, sequence 43), or the number of a tube, session or consumer
     8  order i64 │ 16  wake i64 │ 24  expiry i64 │ 32  ttr i64. In the last three, 2^61 means never
    40  priority i64 │ 48  time of the event i64 │ 56  created i64
    64  position of the job's row before this one u64, 0 for none
    72  number of the session that holds or acked the job i64, 0 for none
    80  integer within the tube i64, -1 for none
    88  tube number i64
    96  deliveries u32 │ 100  nacks u32 │ 104  returns u32 │ 108  ttl class u32
   112  event u8 │ 113  from u8 │ 114  to u8
   115  flags u8 (1: at most once, 2: held by a claim, 4: deleted while claimed)
   116  body kind u8 │ 117  0 │ 118  origin node u16
   120  var offset u32, within the var bytes │ 124  var length u32

Var fields of a row, one after the other: tag u8, length u32, bytes.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le
from librt.vecs import vec
from mypy_extensions import i32, i64, mypyc_attr, u8

from penstock.core import states as s
from penstock.core.batches import STAGE_WORDS, Consumer, Stage
from penstock.core.errors import PenstockError
from penstock.core.job import COPY_FRESH, COPY_UNWARNED, HELD_BY_CLAIM, BodyRef, Copy, Extra, Job
from penstock.core.limits import JOB_MEMORY_BYTES, NEVER, PRIORITY_UNSET, TURN_BYTES_MAX, UNSET
from penstock.core.outbox import Outbox
from penstock.core.sessions import Session
from penstock.core.tube import Tube, key_of
from penstock.journal.checksum import crc32

FRAME_MAGIC: Final = 0x464E4550  # "PENF"
FRAME_VERSION: Final = 1
FRAME_HEADER_BYTES: Final = 64
ROW_BYTES: Final = 128

# Kinds of frames.
LOG_FRAME: Final = 1  # A frame of the log: the changes of one turn.
SNAPSHOT_FRAME: Final = 2  # A frame of a snapshot.
SNAPSHOT_END_FRAME: Final = 3  # The last frame of a snapshot.

VAR_HEADER_BYTES: Final = 5

# A shorter body stays in memory, because a reference would save nothing.
SPILLED_BYTES_MIN: Final = 128

# Distance of two marks in the index of a segment. A mark is the position and the offset of a frame.
MARK_BYTES: Final = 64 * 1024

# A longer length in a header is damage. It is checked before the frame is read.
FRAME_BYTES_MAX: Final = 1 << 30

# Rows are collected as 64-bit words in native byte order, which equals the byte order of the file. This is twice as
# fast as writing bytes.
assert sys.byteorder == "little"
HEADER_WORDS: Final = FRAME_HEADER_BYTES // 8
ROW_WORDS: Final = ROW_BYTES // 8
FIRST_WORDS: Final = HEADER_WORDS + 64 * ROW_WORDS

# Buffers are reused for the next frame, unless this frame was longer than this.
BUFFER_BYTES_MAX: Final = 1024 * 1024

# Event of a job's row in a snapshot: no change, only the state. The other events of jobs are numbered in states.py.
SNAPSHOT_JOB: Final = 127

# Events of rows that are not about jobs.
TUBE_MADE: Final = 128
TUBE_CHANGED: Final = 129
TUBE_DROPPED: Final = 130
INTEGERS_RESERVED: Final = 131
SESSION_MADE: Final = 132
CONSUMER_CHANGED: Final = 133
STOPPED: Final = 134  # The log was closed regularly, so no rows are missing.
SNAPSHOT_DEDUP: Final = 135  # Snapshot only: a put whose dedup id is remembered.
SNAPSHOT_END: Final = 136  # Snapshot only: the snapshot is complete. Contains the values from which counters continue.
TUBE_NAMED: Final = 137  # The name of a tube that is used in this segment, so that each segment can be read alone.
STAGES_CHANGED: Final = 138  # These stages are open, published or discarded from now on.
NOTED: Final = 139  # A note was stored under a key, or removed.

FLAG_ONCE: Final = 1
FLAG_CLAIMED: Final = 2
FLAG_DOOMED: Final = 4  # The job was deleted while it was claimed. It ends with its claim.

# Tags of var fields.
TAG_BODY: Final = 1
TAG_KEY: Final = 2
TAG_REASON: Final = 3
TAG_RETRY: Final = 4
TAG_NAME: Final = 5
TAG_UNIQUE: Final = 6
TAG_DEDUP: Final = 7
TAG_CONSUMER: Final = 8
TAG_JSON: Final = 9
TAG_PRIORITY_GIVEN: Final = 10
TAG_BURIES: Final = 11
TAG_CLAIM: Final = 12
TAG_STAGE: Final = 13
TAG_COPY: Final = 14
TAG_NOTE: Final = 15


class DamagedFrame(PenstockError):
    """These bytes are not a frame of this file at this offset."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BodySource:
    """Base class of readers for bodies that are only on disk. Implemented in `bodies.py`."""

    def read(self, ref: BodyRef) -> bytes:
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class Spilled:
    """A job whose body is dropped from memory once the frame that contains the body is written."""

    job: Job
    body: bytes
    var_offset: i64  # Offset of the body in the var bytes of the frame.

    def __init__(self, job: Job, body: bytes, var_offset: i64) -> None:
        self.job = job
        self.body = body
        self.var_offset = var_offset


@mypyc_attr(allow_interpreted_subclasses=True)
class MoveSource:
    """Limits the number of transitions to those that the log has space for. `room.py` implements this base class."""

    def more_moves(self, tail: object, offset: i64, pending: i64, taken: i64, label_bytes: i64) -> i64:
        """Return how many more transitions the log has space for. The result can be negative.

        `pending` is the number of bytes that are not written yet. The space to end `taken` taken jobs is reserved.
        `label_bytes` is the total length of their labels.
        """
        raise NotImplementedError


class RowWriter(Outbox):
    """The outbox of a logged engine. Collects one row for each change, until `make_frame` turns them into a frame."""

    segment: i64  # Number of the segment that frames are written to.
    position: i64  # Position of the next row.
    rows: i64  # Number of rows since the last frame.
    frame: bytes  # A frame that was made and may not be written yet.
    written: i64  # Every position below this is in a file.
    tail: object  # The file that frames are written to. Owned by the log.
    offset: i64  # Offset in that file at which the next frame starts.
    promised: i64  # Positions below this must be synced under every fsync policy, because they must survive any loss.
    memory_left: i64  # Bytes of memory left for new jobs. When it is negative, their bodies stay in the log only.
    bodies: BodySource | None  # Reads bodies that are on disk only.
    room: MoveSource | None  # Computes how much can be written.
    _spilled: list[Spilled]  # Jobs of the collected rows whose bodies will be dropped from memory.
    _frame_spilled: list[Spilled]  # Jobs of the frame that was made whose bodies will be dropped from memory.
    _var_start: i64  # Offset of the var bytes in that frame.
    _words: vec[i64]  # Space for the frame header, then the collected rows, then unused space.
    _view: memoryview  # A view of the words.
    _vars: BytesWriter
    _var_bytes: i64  # Length of `_vars`. Asking `_vars` for it costs as much as writing to it.
    _events: vec[i64]  # For each rule, its event and source state as they are stored in a row.
    _sessions: list[Session | None]  # The engine's list of sessions, by slot.
    _dedup: bytes | None  # Dedup id of the job that enters next.
    _acked_by: i64  # Session that acks the job that moves next, or 0.
    _new_body: bool  # Whether the job that moves next has a new body.

    def __init__(self, position: i64) -> None:
        super().__init__()
        self.segment = 0
        self.position = position
        self.rows = 0
        self.frame = b""
        self.written = position
        self.tail = None
        self.offset = 0
        self.promised = 0
        self.memory_left = NEVER
        self.bodies = None
        self.room = None
        self._spilled = []
        self._frame_spilled = []
        self._var_start = 0
        self._replace_buffer(FIRST_WORDS)
        self._vars = BytesWriter()
        self._var_bytes = 0
        self._events = vec[i64]([s.EVENT_OF[rule] | s.SOURCE_OF[rule] << 8 for rule in range(s.RULES_COUNT)])
        self._sessions = []
        self._dedup = None
        self._acked_by = 0
        self._new_body = False

    def attach(self, sessions: list[Session | None]) -> None:
        """Set the engine's list of sessions, from which the rows of jobs get their session numbers."""
        self._sessions = sessions

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        if tube.defined_in_segment != self.segment:
            self._add_tube_row(tube, TUBE_NAMED, now, None)
        if tube.temporary:
            # A temporary tube is not logged. If the job moves to a logged tube, its row must be complete. A negative
            # position is the position of its last row, negated.
            if job.position > 0:
                job.position = -job.position
            self._new_body = False
            return
        before = job.position
        job.position = self.position
        body: bytes | None = None
        if before <= 0 or self._new_body:
            # The body is written only if it is new to the log. Otherwise, an earlier row has it.
            self._new_body = False
            held = job.body
            assert isinstance(held, bytes)
            body = held
            self.memory_left -= len(body) + JOB_MEMORY_BYTES
            if self.memory_left < 0 and len(body) >= SPILLED_BYTES_MIN and tube.ready_bodies is None:
                self._spilled.append(Spilled(job, body, self._var_bytes + VAR_HEADER_BYTES))
        extra = job.extra
        copy: Copy | None = None
        if extra is not None and extra.copy is not None and (before <= 0 or not extra.copy.logged):
            # The copy is written only if it is new to the log, too.
            copy = extra.copy
            copy.logged = True
        self._add_job_row(job, tube, now, -before if before < 0 else before, self._events[rule], body, copy)

    def add_snapshot_job(self, job: Job, tube: Tube, body: bytes, now: i64) -> None:
        """Add the present state of a job to a snapshot. The row refers to the newest row of the job in the log."""
        self._add_job_row(job, tube, now, job.position, SNAPSHOT_JOB | (i64(job.state) << 8), body, job.copy())

    def _add_job_row(
        self,
        job: Job,
        tube: Tube,
        now: i64,
        before: i64,
        event: i64,
        body: bytes | None,
        copy: Copy | None,
    ) -> None:
        flags: i64 = 0
        if job.once:
            flags = FLAG_ONCE
        session: i64 = 0
        holder = job.holder
        if holder >= 0:
            held_by = self._sessions[i64(holder)]  # Indexing with an i64 is faster than with a smaller integer.
            if held_by is not None:
                session = held_by.number
        elif holder == HELD_BY_CLAIM:
            flags |= FLAG_CLAIMED
        elif self._acked_by != 0:
            session = self._acked_by
            self._acked_by = 0
        start = self._var_bytes
        extra = job.extra
        if body is not None:
            self._add_var(TAG_BODY, body)
        if tube.keys is not None:
            self._add_var(TAG_KEY, key_of(tube, job))
        if extra is not None:
            if extra.doomed:
                flags |= FLAG_DOOMED
            self._add_extra_vars(extra)
            if copy is not None:
                self._add_var(TAG_COPY, encode_copy(copy))
        dedup = self._dedup
        if dedup is not None:
            self._add_var(TAG_DEDUP, dedup)
            self._dedup = None
        self._add_row(job, tube.number, now, before, session, event | (i64(job.state) << 16) | (flags << 24), start)

    def _replace_buffer(self, count: i64) -> None:
        """Replace the buffer by one of `count` words. Copy the rows collected so far."""
        words = vec[i64]([0] * count)
        for i in range(HEADER_WORDS, HEADER_WORDS + self.rows * ROW_WORDS):
            words[i] = self._words[i]
        self._words = words
        self._view = memoryview(words)

    def body_changed(self) -> None:
        """Make the next row of a job contain its body."""
        self._new_body = True

    def acked_by(self, session: Session, tube: Tube) -> None:
        """Write the acking session in the next row. It may differ from the session that held the job."""
        if not tube.temporary:
            self._acked_by = session.number

    def put_seen(self, job: Job, tube: Tube, dedup: bytes) -> None:
        if not tube.temporary:
            self._dedup = dedup

    def body_of(self, job: Job) -> bytes:
        body = job.body
        if isinstance(body, bytes):
            # Keep it in memory, because the caller may need it there.
            if self._spilled:
                self._spilled = [spilled for spilled in self._spilled if spilled.job is not job]
            if self._frame_spilled:
                self._frame_spilled = [spilled for spilled in self._frame_spilled if spilled.job is not job]
            return body
        bodies = self.bodies
        assert bodies is not None
        return bodies.read(body)

    def more_moves(self, left: i64, taken: i64, label_bytes: i64) -> i64:
        """Return how many more transitions the files of the log have space for, after the rows collected so far."""
        room = self.room
        if room is None:
            return left
        return room.more_moves(self.tail, self.offset, self.frame_bytes(), taken, label_bytes)

    def tube_made(self, tube: Tube, now: i64) -> None:
        self._add_tube_row(tube, TUBE_MADE, now, _tube_fields(tube))

    def tube_changed(self, tube: Tube, now: i64) -> None:
        self._add_tube_row(tube, TUBE_CHANGED, now, _tube_fields(tube))

    def tube_dropped(self, tube: Tube, now: i64) -> None:
        self._add_tube_row(tube, TUBE_DROPPED, now, None)

    def integers_reserved(self, tube: Tube, ceiling: i64, now: i64) -> None:
        """Add a row that reserves the integer ids of a tube below `ceiling`, so that a crash does not reuse them.

        Ids are reserved in blocks. A block is reserved while the tube assigns the ids of the previous block. So only
        the first reservation of a tube has to be on disk before the next reply. For a later one, it is enough that the
        previous reservation is on disk.
        """
        if tube.temporary:
            return
        self._add_tube_row(tube, INTEGERS_RESERVED, now, None)
        needed = tube.reserved_at + 1 if tube.reserved_at > 0 else self.position
        if needed > self.promised:
            self.promised = needed
        tube.reserved_at = self.position - 1

    def session_made(self, session: Session, now: i64) -> None:
        start = self._var_bytes
        self._add_var(TAG_NAME, session.token)
        if session.grace_ms != UNSET:
            self._add_var(TAG_JSON, json.dumps({"grace_ms": session.grace_ms}).encode())
        self._add_other_row(SESSION_MADE, session.number, 0, 0, now, start)

    def consumer_changed(self, consumer: Consumer, now: i64) -> None:
        start = self._var_bytes
        self._add_var(TAG_NAME, consumer.name)
        told = {
            "token": consumer.token,
            "acked": consumer.acked,
            "newest": consumer.newest,
            "lease_ms": consumer.lease_ms,
            "open": list(consumer.claims),
            "acking": list(consumer.acking),
        }
        self._add_var(TAG_JSON, json.dumps(told).encode())
        self._add_other_row(CONSUMER_CHANGED, 0, 0, 0, now, start)

    def stages_changed(self, stages: list[Stage], now: i64) -> None:
        """Add one row about several stages, because publishing them must be atomic."""
        start = self._var_bytes
        for stage in stages:
            self._add_var(TAG_NAME, stage.name)
        told = {
            "phase": STAGE_WORDS[stages[0].phase],
            "until": stages[0].until,
            "expire_ms": stages[0].expire_ms,
            "published": [stage.published for stage in stages],
        }
        self._add_var(TAG_JSON, json.dumps(told).encode())
        self._add_other_row(STAGES_CHANGED, 0, 0, 0, now, start)

    def noted(self, key: bytes, value: bytes, now: i64) -> None:
        start = self._var_bytes
        self._add_var(TAG_NAME, key)
        if value:
            self._add_var(TAG_NOTE, value)
        self._add_other_row(NOTED, 0, 0, 0, now, start)

    def add_snapshot_tube(self, tube: Tube, now: i64) -> None:
        """Add the present state of a tube, including its counters, to a snapshot."""
        announced = tube.defined_in_segment
        told = _tube_fields(tube)
        told["next_local"] = tube.next_local
        told["counts"] = _counts(tube.counts, tube.counts_before)
        told["key_counts"] = {
            key.hex(): _counts(stats.counts, stats.counts_before) for key, stats in tube.key_stats.items()
        }
        self._add_tube_row(tube, TUBE_MADE, now, told)
        tube.defined_in_segment = announced

    def add_snapshot_dedup(self, tube: Tube, dedup: bytes, job_id: i64, ttl_minutes: i64, when: i64) -> None:
        start = self._var_bytes
        self._add_var(TAG_DEDUP, dedup)
        job = Job(job_id, 0, b"", 0, when)
        job.ttl_minutes = i32(ttl_minutes)
        self._add_row(job, tube.number, when, 0, 0, SNAPSHOT_DEDUP, start)

    def add_snapshot_end(self, told: dict[str, int], now: i64) -> None:
        start = self._var_bytes
        self._add_var(TAG_JSON, json.dumps(told).encode())
        self._add_other_row(SNAPSHOT_END, 0, 0, 0, now, start)

    def add_stopped(self, now: i64) -> None:
        """Add the row that marks a regular close of the log."""
        self._add_other_row(STOPPED, 0, 0, 0, now, self._var_bytes)

    def full(self) -> bool:
        return self.frame_bytes() >= TURN_BYTES_MAX

    def frame_bytes(self) -> i64:
        """Return the length of the frame that the collected rows will make."""
        return (FRAME_HEADER_BYTES + self.rows * ROW_BYTES + self._var_bytes + 7) & ~7

    def make_frame(self, now: i64, wall: i64, durable: i64, seed: int, kind: i64 = LOG_FRAME) -> None:
        """Make a frame of the collected rows.

        The frame stays in `frame` until `wrote_frame` is called. If the write is interrupted, the same bytes can
        therefore be written to the same place again.
        """
        self.frame = seal_frame(
            self._words, self._view, self.rows, self._vars, kind, self.position - self.rows, now, wall, durable, seed
        )
        self._var_start = FRAME_HEADER_BYTES + self.rows * ROW_BYTES
        if self._spilled:
            self._frame_spilled = self._spilled
            self._spilled = []
        self.rows = 0
        self._var_bytes = 0
        if len(self.frame) <= BUFFER_BYTES_MAX:
            self._vars.truncate(0)
        else:
            self._replace_buffer(FIRST_WORDS)
            self._vars = BytesWriter()

    def wrote_frame(self, file: i64) -> i64:
        """Record that the frame is in file `file`. Return how many bytes of bodies were dropped from memory.

        This is one compiled call, so that no interrupt occurs between its steps.
        """
        let_go = self._drop_spilled_bodies(file) if self._frame_spilled else 0
        self.offset += len(self.frame)
        self.frame = b""
        self.written = self.position - self.rows
        return let_go

    def _drop_spilled_bodies(self, file: i64) -> i64:
        """Replace the bodies of spilled jobs by references to the written frame.

        Return how many bytes of memory this frees.
        """
        freed: i64 = 0
        for spilled in self._frame_spilled:
            job = spilled.job
            # A job that was taken immediately keeps its body, because the body is about to be read. A changed body
            # stays, too.
            if job.body is spilled.body and job.state != s.TAKEN and job.state != s.GONE:
                body = spilled.body
                at = self.offset + self._var_start + spilled.var_offset
                job.body = BodyRef(file, at, len(body), signed_crc(body, 0))
                freed += len(body)
        self._frame_spilled = []
        return freed

    def begin_segment(self, tail: object, segment: i64, offset: i64) -> None:
        """Write the next frames to another segment, starting at `offset`.

        This is one compiled call, so that no interrupt occurs between its steps.
        """
        self.tail = tail
        self.segment = segment
        self.offset = offset

    def name_tubes(self, tubes: dict[int, Tube], segment: i64, now: i64) -> None:
        """Add a row with the name of each tube that the collected rows refer to by number.

        The rows go to the new segment `segment`, and every segment has to contain the names of its tubes.
        """
        for row in range(self.rows):
            tube = tubes.get(self._words[HEADER_WORDS + row * ROW_WORDS + 11])
            if tube is not None and tube.defined_in_segment != segment:
                self._add_tube_row(tube, TUBE_NAMED, now, None)
                tube.defined_in_segment = segment

    def _add_extra_vars(self, extra: Extra) -> None:
        if extra.reason:
            self._add_var(TAG_REASON, extra.reason)
        retry = extra.retry
        if retry is not None:
            self._add_var(TAG_RETRY, retry.text.encode())
        if extra.name:
            self._add_var(TAG_NAME, extra.name)
        if extra.unique:
            self._add_var(TAG_UNIQUE, extra.unique)
        if extra.consumer:
            self._add_var(TAG_CONSUMER, extra.consumer)
            self._add_var(TAG_CLAIM, b"%d %d" % (extra.claim, extra.claim_place))
        if extra.stage:
            self._add_var(TAG_STAGE, extra.stage)
        if extra.priority_given != PRIORITY_UNSET:
            self._add_var(TAG_PRIORITY_GIVEN, b"%d" % extra.priority_given)
        if extra.buries:
            self._add_var(TAG_BURIES, b"%d" % extra.buries)

    def _add_var(self, tag: u8, value: bytes) -> None:
        self._vars.append(tag)
        write_i32_le(self._vars, i32(len(value)))
        self._vars.write(value)
        self._var_bytes += VAR_HEADER_BYTES + len(value)

    def _add_tube_row(self, tube: Tube, event: i64, now: i64, told: dict[str, object] | None) -> None:
        if tube.temporary:
            return
        tube.defined_in_segment = self.segment
        start = self._var_bytes
        self._add_var(TAG_NAME, tube.name)
        if told is not None:
            self._add_var(TAG_JSON, json.dumps(told).encode())
        self._add_other_row(event, tube.number, tube.number, tube.reserved, now, start)

    def _add_other_row(self, event: i64, number: i64, tube: i64, local: i64, now: i64, var_start: i64) -> None:
        """Add a row that is not about a job."""
        job = Job(number, 0, b"", 0, now)
        job.local = local
        self._add_row(job, tube, now, 0, 0, event, var_start)

    def _add_row(
        self,
        job: Job,
        tube: i64,
        now: i64,
        before: i64,
        session: i64,
        event: i64,
        var_start: i64,
    ) -> None:
        at = HEADER_WORDS + self.rows * ROW_WORDS
        if at + ROW_WORDS > len(self._words):
            self._replace_buffer(2 * at)
        out = self._words
        out[at] = job.id
        out[at + 1] = job.order
        out[at + 2] = job.wake
        out[at + 3] = job.expiry
        out[at + 4] = job.ttr
        out[at + 5] = job.priority
        out[at + 6] = now
        out[at + 7] = job.created
        out[at + 8] = before
        out[at + 9] = session
        out[at + 10] = job.local
        out[at + 11] = tube
        out[at + 12] = i64(job.deliveries) | (i64(job.nacks) << 32)
        out[at + 13] = i64(job.returns) | (i64(job.ttl_minutes) << 32)
        out[at + 14] = event | (i64(job.body_kind) << 32)
        out[at + 15] = var_start | ((self._var_bytes - var_start) << 32)
        self.rows += 1
        self.position += 1


def encode_copy(copy: Copy) -> bytes:
    """Encode the replication data of a job. Its parts are separated by spaces.

    They are the job's id on the node that it came from, or "-", the requested number of copies, flags, and holders.
    """
    words = [copy.origin_id or b"-", b"%d" % copy.repl, b"-" if copy.state == COPY_FRESH else b"a", *copy.holders]
    return b" ".join(words)


def decode_copy(text: bytes, nodes: dict[bytes, bytes]) -> Copy:
    """Decode the bytes that `encode_copy` encoded.

    `nodes` maps each known node id to one shared object, which saves memory.
    """
    words = text.split(b" ")
    holders = [nodes.setdefault(node, node) for node in words[3:]]
    state: u8 = COPY_UNWARNED if words[2] == b"a" else COPY_FRESH
    copy = Copy(b"" if words[0] == b"-" else words[0], i32(int(words[1])), holders, state)
    copy.logged = True
    return copy


def _tube_fields(tube: Tube) -> dict[str, object]:
    return {
        "policy": dataclasses.asdict(tube.policy),
        "created": tube.created,
        "paused_in": tube.paused_in,
        "paused_out": tube.paused_out,
    }


def _counts(now: list[int], before: list[int]) -> list[tuple[int, int, int]]:
    """Return (event, state, count) for each applied rule. `count` is the total of this run and all earlier ones."""
    return [
        (int(s.EVENT_OF[rule]), int(s.SOURCE_OF[rule]), now[rule] + before[rule])
        for rule in range(s.RULES_COUNT)
        if now[rule] + before[rule] > 0
    ]


def signed_crc(data: bytes, seed: int) -> i32:
    return _signed(crc32(data, seed))


def _signed(crc: int) -> i32:
    return i32(crc - (1 << 32) if crc >= 1 << 31 else crc)


def seal_frame(
    words: vec[i64],
    view: memoryview,
    rows: i64,
    var: BytesWriter,
    kind: i64,
    position: i64,
    now: i64,
    wall: i64,
    durable: i64,
    seed: int,
) -> bytes:
    """Return a frame of `rows` rows and the var bytes, with its header and checksum.

    `words` contains the rows after unused space for the header. `view` is a memoryview of the same words.
    """
    var_bytes: i64 = len(var)
    while len(var) & 7:
        var.append(0)
    end = var.getvalue()
    used = HEADER_WORDS + rows * ROW_WORDS
    words[1] = FRAME_VERSION | (kind << 8) | ((used * 8 + len(end)) << 32)
    words[2] = position
    words[3] = now
    words[4] = wall
    words[5] = rows | (ROW_BYTES << 32)
    words[6] = var_bytes
    words[7] = durable
    crc = crc32(view[1:used], seed)
    if end:
        crc = crc32(end, crc)
    words[0] = FRAME_MAGIC | (i64(_signed(crc)) << 32)
    return b"".join([view[:used], end]) if end else bytes(view[:used])


@mypyc_attr(acyclic=True)
class Frame:
    """A decoded frame header, with the offsets of the frame's parts in the bytes that it was read from."""

    at: i64  # Offset of the frame.
    kind: i64
    length: i64
    position: i64
    engine_ms: i64
    wall_ms: i64
    rows: i64
    row_bytes: i64
    rows_at: i64
    var_at: i64
    var_bytes: i64
    durable: i64

    def __init__(self, data: bytes, at: i64) -> None:
        """Decode a header whose magic, version and length were checked."""
        self.at = at
        self.kind = i64(data[at + 9])
        self.length = i64(read_i32_le(data, at + 12))
        self.position = read_i64_le(data, at + 16)
        self.engine_ms = read_i64_le(data, at + 24)
        self.wall_ms = read_i64_le(data, at + 32)
        self.rows = i64(read_i32_le(data, at + 40))
        self.row_bytes = i64(read_i32_le(data, at + 44)) & 0xFFFF
        self.rows_at = at + FRAME_HEADER_BYTES
        self.var_at = self.rows_at + self.rows * self.row_bytes
        self.var_bytes = i64(read_i32_le(data, at + 48))
        self.durable = read_i64_le(data, at + 56)


def read_frame(data: bytes, at: i64, seed: int) -> Frame | None:
    """Return the frame at offset `at`, or None if there are only zeros. Raise DamagedFrame if there are other bytes."""
    left = len(data) - at
    if left < FRAME_HEADER_BYTES:
        if any(data[at:]):
            raise DamagedFrame("the frame header is truncated")
        return None
    magic = i64(read_i32_le(data, at))
    if magic == 0 and not any(data[at : at + FRAME_HEADER_BYTES]):
        return None
    if magic != FRAME_MAGIC:
        raise DamagedFrame("no frame begins here")
    version = i64(data[at + 8])
    if version != FRAME_VERSION:
        raise DamagedFrame(f"frame version {version} is not known")
    length = i64(read_i32_le(data, at + 12))
    if length < FRAME_HEADER_BYTES or length > FRAME_BYTES_MAX or length & 7 or length > left:
        raise DamagedFrame("the frame's length is wrong, or the frame is truncated")
    if i64(crc32(data[at + 8 : at + length], seed)) != i64(read_i32_le(data, at + 4)) & 0xFFFFFFFF:
        raise DamagedFrame("the frame's checksum is wrong")
    frame = Frame(data, at)
    if frame.rows < 0 or frame.row_bytes < ROW_BYTES or frame.var_at > at + length:
        raise DamagedFrame("the frame's number of rows is wrong")
    return frame


def read_frames(data: bytes, at: i64, base: i64, seed: int, last: bool) -> list[Frame]:
    """Return the consecutive complete frames of a piece of a file.

    `base` is the offset of the piece in the file, `seed` is the seed of the file's checksums, and `last` says that no
    bytes follow the piece. The list ends before the first invalid frame. `read_frame` raises the error for that frame.
    """
    found: list[Frame] = []
    while len(data) - at >= FRAME_HEADER_BYTES:
        length = i64(read_i32_le(data, at + 12))
        if length > len(data) - at and not last:
            break
        try:
            frame = read_frame(data, at, seed_at(seed, base + at))
        except DamagedFrame:
            break
        if frame is None:
            break
        found.append(frame)
        at += frame.length
    return found


def parse_sent_frames(data: bytes) -> list[Frame]:
    """Return the frames that a server has sent one after the other. Raise DamagedFrame if one of them is invalid.

    The checksums are not checked, because they depend on the offset in the file. The server has checked them.
    """
    found: list[Frame] = []
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        if end - at < FRAME_HEADER_BYTES or i64(read_i32_le(data, at)) != FRAME_MAGIC:
            raise DamagedFrame("no frame begins here")
        if i64(data[at + 8]) != FRAME_VERSION:
            raise DamagedFrame(f"frame version {data[at + 8]} is not known")
        frame = Frame(data, at)
        if frame.length < FRAME_HEADER_BYTES or frame.length > end - at:
            raise DamagedFrame("the frame's length is wrong, or the frame is truncated")
        if frame.rows < 0 or frame.row_bytes < ROW_BYTES or frame.var_at + frame.var_bytes > at + frame.length:
            raise DamagedFrame("the frame's number of rows is wrong")
        found.append(frame)
        at += frame.length
    return found


def seed_at(seed: int, offset: i64) -> int:
    """Return the seed of a frame's checksum. It depends on file and offset, so that the frame is valid only there."""
    return seed ^ (offset >> 3)


def load_row(job: Job, data: bytes, at: i64, position: i64) -> None:
    """Set the fields of a job from a row, except for its state and its var fields."""
    job.order = read_i64_le(data, at + 8)
    job.wake = read_i64_le(data, at + 16)
    job.expiry = read_i64_le(data, at + 24)
    job.ttr = read_i64_le(data, at + 32)
    job.priority = read_i64_le(data, at + 40)
    job.created = read_i64_le(data, at + 56)
    job.position = position
    job.local = read_i64_le(data, at + 80)
    job.deliveries = read_i32_le(data, at + 96)
    job.nacks = read_i32_le(data, at + 100)
    job.returns = read_i32_le(data, at + 104)
    job.ttl_minutes = read_i32_le(data, at + 108)
    job.body_kind = data[at + 116]
    job.once = (i64(data[at + 115]) & FLAG_ONCE) != 0


@mypyc_attr(acyclic=True)
class Row:
    """The fixed fields of a row about a job, for display."""

    job: i64
    wake: i64
    expiry: i64
    priority: i64
    session: i64
    local: i64
    tube: i64
    deliveries: i64
    nacks: i64
    returns: i64
    ttl_minutes: i64
    before: i64
    after: i64

    def __init__(self, data: bytes, at: i64) -> None:
        self.job = read_i64_le(data, at)
        self.wake = read_i64_le(data, at + 16)
        self.expiry = read_i64_le(data, at + 24)
        self.priority = read_i64_le(data, at + 40)
        self.session = read_i64_le(data, at + 72)
        self.local = read_i64_le(data, at + 80)
        self.tube = read_i64_le(data, at + 88)
        self.deliveries = i64(read_i32_le(data, at + 96))
        self.nacks = i64(read_i32_le(data, at + 100))
        self.returns = i64(read_i32_le(data, at + 104))
        self.ttl_minutes = i64(read_i32_le(data, at + 108))
        self.before = i64(data[at + 113])
        self.after = i64(data[at + 114])


def integer_at(data: bytes, at: i64) -> i64:
    return read_i64_le(data, at)


def var_fields(data: bytes, row_at: i64, frame: Frame) -> list[tuple[int, bytes]]:
    at = frame.var_at + i64(read_i32_le(data, row_at + 120))
    end = at + i64(read_i32_le(data, row_at + 124))
    found: list[tuple[int, bytes]] = []
    while at < end:
        length = i64(read_i32_le(data, at + 1))
        found.append((data[at], data[at + 5 : at + 5 + length]))
        at += 5 + length
    return found


def index_frames(
    data: bytes, frames: list[Frame], base: i64, newest: dict[int, int], names: dict[int, bytes], marks: list[int]
) -> None:
    """Record the newest row of each job in `newest`, the names of tubes in `names`, and offsets in `marks`.

    `marks` gets the position and the offset of one frame about every MARK_BYTES bytes.
    """
    for found in frames:
        if not marks or base + found.at - marks[-1] >= MARK_BYTES:
            marks.append(found.position)
            marks.append(base + found.at)
        at = found.rows_at
        position = found.position
        for _ in range(found.rows):
            event = i64(data[at + 112])
            if event < TUBE_MADE:
                newest[read_i64_le(data, at)] = position
            elif event <= INTEGERS_RESERVED or event == TUBE_NAMED:
                names[read_i64_le(data, at)] = dict(var_fields(data, at, found))[TAG_NAME]
            at += found.row_bytes
            position += 1


def reseal_frame(data: bytes, found: Frame, bodies: bool, seed: int) -> bytes:
    """Return a copy of a frame with the checksum for another file or offset, with or without the bodies of jobs."""
    words = vec[i64]([0] * (HEADER_WORDS + found.rows * ROW_WORDS))
    var = BytesWriter()
    word: i64 = HEADER_WORDS
    row_at = found.rows_at
    while row_at < found.var_at:
        start: i64 = len(var)
        at = found.var_at + i64(read_i32_le(data, row_at + 120))
        end = at + i64(read_i32_le(data, row_at + 124))
        while at < end:
            length = i64(read_i32_le(data, at + 1)) + VAR_HEADER_BYTES
            if bodies or data[at] != TAG_BODY:
                var.write(data[at : at + length])
            at += length
        for i in range(ROW_WORDS - 1):
            words[word + i] = read_i64_le(data, row_at + 8 * i)
        words[word + ROW_WORDS - 1] = start | ((len(var) - start) << 32)
        word += ROW_WORDS
        row_at += found.row_bytes
    return seal_frame(
        words,
        memoryview(words),
        found.rows,
        var,
        LOG_FRAME,
        found.position,
        found.engine_ms,
        found.wall_ms,
        found.durable,
        seed,
    )
