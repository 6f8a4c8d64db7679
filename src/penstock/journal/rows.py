"""The writer of rows: the outbox of an engine whose changes are logged. Pure and compiled. See layout.py."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Final

from librt.strings import BytesWriter, write_i32_le
from librt.vecs import vec
from mypy_extensions import i32, i64, mypyc_attr, u8

from penstock.core import states as s
from penstock.core.batches import STAGE_WORDS, Consumer, Stage
from penstock.core.job import ASIDE, COPY_FRESH, COPY_UNWARNED, HELD_BY_CLAIM, WAS_ASIDE, BodyRef, Copy, Extra, Job
from penstock.core.limits import JOB_MEMORY_BYTES, NEVER, PRIORITY_UNSET, TURN_BYTES_MAX, UNSET
from penstock.core.outbox import Outbox
from penstock.core.sessions import Session
from penstock.core.tube import Tube, key_of
from penstock.journal.frame import seal_frame, signed_crc
from penstock.journal.layout import (
    ACTOR_AT,
    ASIDE_SHIFT,
    BEFORE_AT,
    CONSUMER_CHANGED,
    CREATED_AT,
    DELIVERIES_AT,
    EVENT_AT,
    EXPIRY_AT,
    FLAG_CANCELLED,
    FLAG_CLAIMED,
    FLAG_DOOMED,
    FLAG_GIVEN_UP,
    FLAG_ONCE,
    FRAME_HEADER_BYTES,
    HOLDER_AT,
    ID_AT,
    INTEGERS_RESERVED,
    LOG_FRAME,
    NOTED,
    NUMBER_AT,
    ORDER_AT,
    PRIORITY_AT,
    RETURNS_AT,
    ROW_BYTES,
    SESSION_MADE,
    SESSION_NAMED,
    SINCE_AT,
    SNAPSHOT_DEDUP,
    SNAPSHOT_END,
    SNAPSHOT_JOB,
    STAGES_CHANGED,
    STOPPED,
    TAG_BATCH,
    TAG_BODY,
    TAG_BURIES,
    TAG_CLAIM,
    TAG_CONSUMER,
    TAG_COPY,
    TAG_DEDUP,
    TAG_HEADERS,
    TAG_JSON,
    TAG_KEY,
    TAG_NAME,
    TAG_NOTE,
    TAG_PRIORITY_GIVEN,
    TAG_REASON,
    TAG_RETRY,
    TAG_STAGE,
    TAG_UNIQUE,
    TAG_USER,
    TAG_VERDICT,
    TIME_AT,
    TTR_AT,
    TUBE_AT,
    TUBE_CHANGED,
    TUBE_DROPPED,
    TUBE_MADE,
    TUBE_NAMED,
    VAR_HEADER_BYTES,
    VAR_OFFSET_AT,
    WAKE_AT,
)

# A shorter body stays in memory, because a reference would save nothing.
SPILLED_BYTES_MIN: Final = 128

# Rows are collected as 64-bit words in native byte order, which equals the byte order of the file. This is twice as
# fast as writing bytes.
assert sys.byteorder == "little"
_HEADER_WORDS: Final = FRAME_HEADER_BYTES // 8
_ROW_WORDS: Final = ROW_BYTES // 8
_FIRST_WORDS: Final = _HEADER_WORDS + 64 * _ROW_WORDS

# The names and users of sessions are cut to this length, because each segment repeats them.
_SESSION_NAME_BYTES_MAX: Final = 256

# Buffers are reused for the next frame, unless this frame was longer than this.
_BUFFER_BYTES_MAX: Final = 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class BodySource:
    """Base class of readers for bodies that are only on disk. Implemented in `bodies.py`."""

    def read(self, ref: BodyRef) -> bytes:
        """Return the body at `ref`."""
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
    names_sessions: bool  # Whether there is space for the names of sessions. On a full disk, they are left out.
    _spilled: list[Spilled]  # Jobs of the collected rows whose bodies will be dropped from memory.
    _frame_spilled: list[Spilled]  # Jobs of the frame that was made whose bodies will be dropped from memory.
    _var_start: i64  # Offset of the var bytes in that frame.
    _words: vec[i64]  # Space for the frame header, then the collected rows, then unused space.
    _view: memoryview  # A view of the words.
    _vars: BytesWriter
    _var_bytes: i64  # Length of `_vars`. Asking `_vars` for it costs as much as writing to it.
    _events: vec[i64]  # For each rule, its event, source state and flags as they are stored in a row.
    _sessions: list[Session | None]  # The engine's list of sessions, by slot.
    _tubes: list[Tube | None]  # The engine's list of tubes, by slot.
    _dedup: bytes | None  # Dedup id of the job that enters next.
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
        self.names_sessions = True
        self._spilled = []
        self._frame_spilled = []
        self._var_start = 0
        self._replace_buffer(_FIRST_WORDS)
        self._vars = BytesWriter()
        self._var_bytes = 0
        self._events = vec[i64](
            [s.EVENT_OF[rule] | s.SOURCE_OF[rule] << 8 | _rule_flags(rule) << 24 for rule in range(s.RULES_COUNT)]
        )
        self._sessions = []
        self._tubes = []
        self._dedup = None
        self._new_body = False

    def attach(self, sessions: list[Session | None], tubes: list[Tube | None]) -> None:
        """Set the engine's lists of sessions and tubes. The rows of jobs get their session numbers from the first."""
        self._sessions = sessions
        self._tubes = tubes

    def moved(self, job: Job, tube: Tube, rule: i64, since: i64, holder: i64, now: i64) -> None:
        if tube.temporary:
            # The jobs of a temporary tube are not logged. If the job moves to a logged tube, its row must be complete.
            # A negative position is the position of its last row, negated.
            if job.position > 0:
                job.position = -job.position
            self._new_body = False
            return
        if tube.defined_in_segment != self.segment:
            self._add_tube_row(tube, TUBE_NAMED, now, None)
        actor = self.actor
        acting: i64 = 0
        if actor is not None:
            acting = actor.number
            if actor.named_in_segment != self.segment and self.names_sessions:
                self._name_session(actor, now)
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
        headers = b""
        if extra is not None:
            if extra.copy is not None and (before <= 0 or not extra.copy.logged):
                # The copy is written only if it is new to the log, too.
                copy = extra.copy
                copy.logged = True
            if before <= 0:
                # Headers never change, so only the first row has them.
                headers = extra.headers
        if before < 0:
            before = -before
        self._add_job_row(job, tube, now, before, self._events[rule], body, headers, copy, since, holder, acting)

    def gave_up(self, job: Job) -> None:
        # The row of a job in a temporary tube was not written.
        if self.rows > 0 and job.position == self.position - 1:
            at = _HEADER_WORDS + (self.rows - 1) * _ROW_WORDS + EVENT_AT // 8
            self._words[at] = self._words[at] | FLAG_GIVEN_UP << 24

    def add_snapshot_job(self, job: Job, tube: Tube, body: bytes, now: i64) -> None:
        """Add the present state of a job to a snapshot. The row refers to the newest row of the job in the log."""
        event = SNAPSHOT_JOB | (i64(job.state) << 8)
        self._add_job_row(job, tube, now, job.position, event, body, job.headers(), job.copy(), job.since, 0, 0)

    def _add_job_row(
        self,
        job: Job,
        tube: Tube,
        now: i64,
        before: i64,
        event: i64,
        body: bytes | None,
        headers: bytes,
        copy: Copy | None,
        since: i64,
        held_before: i64,
        actor: i64,
    ) -> None:
        flags: i64 = 0
        if job.once:
            flags = FLAG_ONCE
        session = held_before
        holder = job.holder
        if holder >= 0:
            held_by = self._sessions[i64(holder)]  # Indexing with an i64 is faster than with a smaller integer.
            if held_by is not None:
                session = held_by.number
        elif holder == HELD_BY_CLAIM:
            flags |= FLAG_CLAIMED
        start = self._var_bytes
        extra = job.extra
        if body is not None:
            self._add_var(TAG_BODY, body)
        if tube.keys is not None:
            self._add_var(TAG_KEY, key_of(tube, job))
        if extra is not None:
            if extra.doomed:
                flags |= FLAG_DOOMED
            if extra.cancelled:
                flags |= FLAG_CANCELLED
            self._add_extra_vars(extra)
            if headers:
                self._add_var(TAG_HEADERS, headers)
            present = extra.copy
            if present is not None:
                flags |= (i64(present.aside) & (ASIDE | WAS_ASIDE)) << ASIDE_SHIFT
                if copy is not None:
                    self._add_var(TAG_COPY, encode_copy(copy))
        dedup = self._dedup
        if dedup is not None:
            self._add_var(TAG_DEDUP, dedup)
            self._dedup = None
        event |= (i64(job.state) << 16) | (flags << 24)
        self._add_row(job, tube.number, now, before, session, event, start, since, actor)

    def _replace_buffer(self, count: i64) -> None:
        """Replace the buffer by one of `count` words. Copy the rows collected so far."""
        words = vec[i64]([0] * count)
        for i in range(_HEADER_WORDS, _HEADER_WORDS + self.rows * _ROW_WORDS):
            words[i] = self._words[i]
        self._words = words
        self._view = memoryview(words)

    def body_changed(self) -> None:
        """Make the next row of a job contain its body."""
        self._new_body = True

    def put_seen(self, job: Job, tube: Tube, dedup: bytes) -> None:
        """Write the dedup id of a put in the next row."""
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

    def _name_session(self, session: Session, now: i64) -> None:
        """Add a row with the name and user of a session to this segment, if the session has any."""
        session.named_in_segment = self.segment
        if session.name or session.user:
            start = self._var_bytes
            self._add_var(TAG_NAME, session.name[:_SESSION_NAME_BYTES_MAX])
            self._add_var(TAG_USER, session.user[:_SESSION_NAME_BYTES_MAX])
            self._add_other_row(SESSION_NAMED, session.number, 0, 0, now, start)

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
        told: dict[str, object] = {
            "phase": STAGE_WORDS[stages[0].phase],
            "until": stages[0].until,
            "expire_ms": stages[0].expire_ms,
            "published": [stage.published for stage in stages],
        }
        members = stages[0].members
        if members is not None:
            # The row of a batch is about this batch alone.
            told["sealed"] = members.sealed
            told["total"] = members.total
            told["failed"] = members.failed
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
        # The jobs of a temporary tube do not survive, and so it starts again like a new one.
        told["next_local"] = tube.policy.first_integer if tube.temporary else tube.next_local
        told["counts"] = [] if tube.temporary else _counts(tube.counts, tube.counts_before)
        told["key_counts"] = {
            key.hex(): [] if tube.temporary else _counts(stats.counts, stats.counts_before)
            for key, stats in tube.key_stats.items()
        }
        self._add_tube_row(tube, TUBE_MADE, now, told)
        tube.defined_in_segment = announced

    def add_snapshot_dedup(self, tube: Tube, dedup: bytes, job_id: i64, ttl_minutes: i64, when: i64) -> None:
        """Add the dedup id of a put to a snapshot."""
        start = self._var_bytes
        self._add_var(TAG_DEDUP, dedup)
        job = Job(job_id, 0, b"", 0, when)
        job.ttl_minutes = i32(ttl_minutes)
        self._add_row(job, tube.number, when, 0, 0, SNAPSHOT_DEDUP, start, when, 0)

    def add_snapshot_end(self, told: dict[str, int], now: i64) -> None:
        """Add the end row to a snapshot."""
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
        if len(self.frame) <= _BUFFER_BYTES_MAX:
            self._vars.truncate(0)
        else:
            self._replace_buffer(_FIRST_WORDS)
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
                tube = self._tubes[job.tube]
                assert tube is not None
                tube.spilled += 1
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

    def name_again(self, tubes: dict[int, Tube], segment: i64, now: i64) -> None:
        """Add rows with the names of the tubes and sessions that the collected rows refer to by number.

        The rows go to the new segment `segment`, and every segment has to contain the names that it uses.
        """
        actors: set[int] = set()
        for row in range(self.rows):
            at = _HEADER_WORDS + row * _ROW_WORDS
            actors.add(self._words[at + ACTOR_AT // 8])
            tube = tubes.get(self._words[at + TUBE_AT // 8])
            if tube is not None and tube.defined_in_segment != segment:
                self._add_tube_row(tube, TUBE_NAMED, now, None)
                tube.defined_in_segment = segment
        if self.names_sessions:
            # A look at each session: this happens once per segment.
            for session in self._sessions:
                if session is not None and session.number in actors:
                    self._name_session(session, now)
                    session.named_in_segment = segment

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
            verdict = extra.verdict
            if verdict is not None:
                self._add_var(TAG_VERDICT, verdict.encode())
        if extra.stage:
            self._add_var(TAG_STAGE, extra.stage)
        if extra.batch:
            self._add_var(TAG_BATCH, extra.batch)
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
        self._add_row(job, tube, now, 0, 0, event, var_start, now, 0)

    def _add_row(
        self,
        job: Job,
        tube: i64,
        now: i64,
        before: i64,
        session: i64,
        event: i64,
        var_start: i64,
        since: i64,
        actor: i64,
    ) -> None:
        at = _HEADER_WORDS + self.rows * _ROW_WORDS
        if at + _ROW_WORDS > len(self._words):
            self._replace_buffer(2 * at)
        out = self._words
        out[at + ID_AT // 8] = job.id
        out[at + ORDER_AT // 8] = job.order
        out[at + WAKE_AT // 8] = job.wake
        out[at + EXPIRY_AT // 8] = job.expiry
        out[at + TTR_AT // 8] = job.ttr
        out[at + PRIORITY_AT // 8] = job.priority
        out[at + TIME_AT // 8] = now
        out[at + CREATED_AT // 8] = job.created
        out[at + BEFORE_AT // 8] = before
        out[at + HOLDER_AT // 8] = session
        out[at + NUMBER_AT // 8] = job.local
        out[at + TUBE_AT // 8] = tube
        out[at + DELIVERIES_AT // 8] = i64(job.deliveries) | (i64(job.nacks) << 32)
        out[at + RETURNS_AT // 8] = i64(job.returns) | (i64(job.ttl_minutes) << 32)
        out[at + EVENT_AT // 8] = event | (i64(job.body_kind) << 32) | (i64(job.format) << 40)
        out[at + VAR_OFFSET_AT // 8] = var_start | ((self._var_bytes - var_start) << 32)
        out[at + SINCE_AT // 8] = since
        out[at + ACTOR_AT // 8] = actor
        self.rows += 1
        self.position += 1


def _rule_flags(rule: int) -> int:
    return FLAG_GIVEN_UP if s.EVENT_OF[rule] in (s.EXHAUSTED, s.DISCARDED) else 0


def encode_copy(copy: Copy) -> bytes:
    """Encode the replication data of a job. Its parts are separated by spaces.

    The parts are the job's id on the node that it came from ("-" if it was put here), the requested number of copies,
    flags, and the holders.
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
    policy = dataclasses.asdict(tube.policy)
    if tube.policy.row_format == 0:
        del policy["row_format"]  # Nearly all tubes have no formats. A field that is not written has its default.
    return {
        "policy": policy,
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
