"""The bytes of the log: rows and frames. Pure, compiled, and public: docs/explanation/journal.md shows these boxes.

A *row* is the complete state of a job after something happened to it, so recovery is "the last row wins" and runs no
rule of the engine. A *frame* is one commit: all its rows, or none. All integers are little-endian.

Frame header, 64 bytes:

     0  magic u32 "PENF"
     4  crc32 u32: of bytes 8 to length, begun with the seed of this file and offset
     8  version u8 │  9 kind u8 (1: log, 2: snapshot, 3: end of snapshot) │ 10  flags u16
    12  length u32: of the whole frame, a multiple of 8
    16  position u64: of the first row; rows are numbered from 1 in the life of a log.
        In a snapshot: of the log when this was so; rows of the log from there on are news to it
    24  engine time i64 │ 32  wall time i64, both ms since 1970
    40  rows u32 │ 44  bytes a row u16 │ 46  0
    48  var bytes u32 │ 52  0
    56  durable u64: every position below it was on disk when this frame was written

then the rows, then the var bytes, then zeros up to the length.

Row, 128 bytes (a later version may append to it: readers go by the frame's "bytes a row"):

     0  job id i64 (epoch 20 bits, sequence 43), or the number of a tube, session or consumer
     8  order i64 │ 16  wake i64 │ 24  expiry i64 │ 32  ttr i64 (2^61 in these: never)
    40  priority i64 │ 48  time of the event i64 │ 56  created i64
    64  position of the job's row before this one u64, 0 for none
    72  number of the session that holds it, or that acked it, i64, 0 for none
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
from penstock.core.claims import Consumer
from penstock.core.errors import PenstockError
from penstock.core.job import HELD_BY_CLAIM, BodyRef, Copy, Extra, Job
from penstock.core.limits import JOB_MEMORY_BYTES, NEVER, PRIORITY_UNSET, TURN_BYTES_MAX, UNSET
from penstock.core.outbox import Outbox
from penstock.core.sessions import Session
from penstock.core.stages import STAGE_WORDS, Stage
from penstock.core.tube import Tube, key_of
from penstock.journal.checksum import crc32

FRAME_MAGIC: Final = 0x464E4550  # "PENF"
FRAME_VERSION: Final = 1
FRAME_HEADER_BYTES: Final = 64
ROW_BYTES: Final = 128

# A frame's kind.
LIVE: Final = 1  # Of the log: what one turn of the loop decided.
KEPT: Final = 2  # Of a snapshot: what was so at a moment.
KEPT_END: Final = 3  # The last one of a snapshot.

VAR_HEADER_BYTES: Final = 5

# A shorter body is not worth a reference in its place.
SPILLED_BYTES_MIN: Final = 128

# How far apart places are that the index of a segment knows.
MARK_BYTES: Final = 64 * 1024

# A frame longer than this is no frame: the length is checked before anything is read by it.
FRAME_BYTES_MAX: Final = 1 << 30

# Rows are gathered as words of 64 bits in the machine's order, which is the file's. (Twice as fast as writing bytes.)
assert sys.byteorder == "little"
HEADER_WORDS: Final = FRAME_HEADER_BYTES // 8
ROW_WORDS: Final = ROW_BYTES // 8
FIRST_WORDS: Final = HEADER_WORDS + 64 * ROW_WORDS

# What they were gathered in is used again for the next frame, unless this one was so large.
BUFFER_BYTES_MAX: Final = 1024 * 1024

# The event of a job's row in a snapshot: nothing happened, that is how it is. Others of jobs are numbered by states.py.
AS_IT_IS: Final = 127

# Events of rows that are not about jobs.
TUBE_MADE: Final = 128
TUBE_CHANGED: Final = 129
TUBE_DROPPED: Final = 130
INTEGERS_RESERVED: Final = 131
SESSION_MADE: Final = 132
CONSUMER_CHANGED: Final = 133
STOPPED: Final = 134  # The log was closed in order: nothing of it can be missing.
PUT_SEEN: Final = 135  # Of a snapshot: a put that is remembered by its dedup id.
SNAPSHOT_ENDS: Final = 136  # Of a snapshot: that it is whole, and what counters go on from.
TUBE_NAMED: Final = 137  # A tube is used in this segment, and has this name: each segment can be read by itself.
STAGES_CHANGED: Final = 138  # Stages of these names are open, published or discarded from now on.
NOTED: Final = 139  # Something is to be remembered under a key, or no longer.

FLAG_ONCE: Final = 1
FLAG_CLAIMED: Final = 2
FLAG_DOOMED: Final = 4

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
    """These bytes are no frame of this segment at this place."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BodySource:
    """Reads bodies that live on disk only; `bodies.py` has the real one."""

    def read(self, ref: BodyRef) -> bytes:
        """The body that is there."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class Spilled:
    """A job that gives up its body when the frame that has it is written."""

    job: Job
    body: bytes
    var_offset: i64  # Among the var bytes of the frame.

    def __init__(self, job: Job, body: bytes, var_offset: i64) -> None:
        self.job = job
        self.body = body
        self.var_offset = var_offset


@mypyc_attr(allow_interpreted_subclasses=True)
class MoveSource:
    """Knows how many moves there is room for; `room.py` has the real one."""

    def more_moves(self, tail: object, offset: i64, pending: i64, taken: i64, label_bytes: i64) -> i64:
        """So many, beside a frame that is pending, and with so many jobs taken. They may be less than none."""
        raise NotImplementedError


class RowWriter(Outbox):
    """The outbox of an engine whose changes are logged: one row for each, until `make_frame` makes a frame of them."""

    segment: i64  # That frames go to.
    position: i64  # Of the next row.
    rows: i64  # Rows since the last frame.
    frame: bytes  # Made, and not known to be written.
    written: i64  # Every position below it is in a file.
    tail: object  # The log's own: the file that frames go to.
    offset: i64  # Where in that file the next one goes.
    promised: i64  # Every position below it has to be synced, whatever the policy: it must hold whatever is lost.
    memory_left: i64  # How many bytes of memory jobs that are new may take; then their bodies live in the log only.
    bodies: BodySource | None  # Where bodies are read that live on disk only.
    room: MoveSource | None  # Who knows how much can be written.
    _spilled: list[Spilled]  # Jobs of the rows so far that give up their bodies.
    _frame_spilled: list[Spilled]  # The same, of the frame that was made.
    _var_start: i64  # Where the var bytes begin in that frame.
    _words: vec[i64]  # Room for the frame's header, the rows so far, and room for more.
    _view: memoryview  # Of the words.
    _vars: BytesWriter
    _var_bytes: i64  # How many bytes are in it: asking it costs as much as writing to it.
    _events: vec[i64]  # The event and the state before of every rule, as a row has them.
    _sessions: list[Session | None]  # The engine's own list, by slot.
    _dedup: bytes | None  # Of the job that enters next.
    _acked_by: i64  # Who acks the job that moves next; 0 for nobody.
    _new_body: bool  # The job that moves next has another body than its rows before say.

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
        self._use(FIRST_WORDS)
        self._vars = BytesWriter()
        self._var_bytes = 0
        self._events = vec[i64]([s.EVENT_OF[rule] | s.SOURCE_OF[rule] << 8 for rule in range(s.RULES_COUNT)])
        self._sessions = []
        self._dedup = None
        self._acked_by = 0
        self._new_body = False

    def attach(self, sessions: list[Session | None]) -> None:
        """Know who the engine's sessions are."""
        self._sessions = sessions

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """Write the row of a job."""
        if tube.announced != self.segment:
            self._announce(tube, TUBE_NAMED, now, None)
        if tube.temporary:
            # Nothing of it is in the log: if it comes back to a tube that is, all of it has to be written. A negative
            # position says where it was before.
            if job.position > 0:
                job.position = -job.position
            self._new_body = False
            return
        before = job.position
        job.position = self.position
        body: bytes | None = None
        if before <= 0 or self._new_body:
            # Only where it is new to the log: otherwise the rows before have it.
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
            # The same.
            copy = extra.copy
            copy.logged = True
        self._job_row(job, tube, now, -before if before < 0 else before, self._events[rule], body, copy)

    def kept(self, job: Job, tube: Tube, body: bytes, now: i64) -> None:
        """Write a job as it is, for a snapshot; its newest row in the log is the row before."""
        self._job_row(job, tube, now, job.position, AS_IT_IS | (i64(job.state) << 8), body, job.copy())

    def _job_row(
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
            held_by = self._sessions[i64(holder)]  # An i64 finds it faster than a smaller integer does.
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
            self._var(TAG_BODY, body)
        if tube.keys is not None:
            self._var(TAG_KEY, key_of(tube, job))
        if extra is not None:
            if extra.doomed:
                flags |= FLAG_DOOMED
            self._write_extra(extra)
            if copy is not None:
                self._var(TAG_COPY, written_copy(copy))
        dedup = self._dedup
        if dedup is not None:
            self._var(TAG_DEDUP, dedup)
            self._dedup = None
        self._fixed(job, tube.number, now, before, session, event | (i64(job.state) << 16) | (flags << 24), start)

    def _use(self, count: i64) -> None:
        """Gather rows in so many words from now on; those so far go along."""
        words = vec[i64]([0] * count)
        for i in range(HEADER_WORDS, HEADER_WORDS + self.rows * ROW_WORDS):
            words[i] = self._words[i]
        self._words = words
        self._view = memoryview(words)

    def body_changed(self) -> None:
        """Write the body in the row that comes next."""
        self._new_body = True

    def acked_by(self, session: Session, tube: Tube) -> None:
        """Remember who acks for the row that comes next: that session need not be the one that held the job."""
        if not tube.temporary:
            self._acked_by = session.number

    def put_seen(self, job: Job, tube: Tube, dedup: bytes) -> None:
        """Remember a dedup id for the row that comes next."""
        if not tube.temporary:
            self._dedup = dedup

    def body_of(self, job: Job) -> bytes:
        """The body of a job, read from disk if need be."""
        body = job.body
        if isinstance(body, bytes):
            # Whoever asks may need it to stay in memory.
            if self._spilled:
                self._spilled = [spilled for spilled in self._spilled if spilled.job is not job]
            if self._frame_spilled:
                self._frame_spilled = [spilled for spilled in self._frame_spilled if spilled.job is not job]
            return body
        bodies = self.bodies
        assert bodies is not None
        return bodies.read(body)

    def more_moves(self, left: i64, taken: i64, label_bytes: i64) -> i64:
        """How many moves there is room for in the files of the log, beside the rows so far."""
        room = self.room
        if room is None:
            return left
        return room.more_moves(self.tail, self.offset, self.frame_bytes(), taken, label_bytes)

    def tube_made(self, tube: Tube, now: i64) -> None:
        """Write what a tube is."""
        self._announce(tube, TUBE_MADE, now, _told_of(tube))

    def tube_changed(self, tube: Tube, now: i64) -> None:
        """Write what a tube has become."""
        self._announce(tube, TUBE_CHANGED, now, _told_of(tube))

    def tube_dropped(self, tube: Tube, now: i64) -> None:
        """Write that a tube is gone."""
        self._announce(tube, TUBE_DROPPED, now, None)

    def integers_reserved(self, tube: Tube, ceiling: i64, now: i64) -> None:
        """Write up to where a tube may give out integers. A crash must not let them be given out again.

        A block is reserved while the one before is given out, so what has to be on disk by now is the reservation
        before this one; only the first of a tube is needed at once.
        """
        if tube.temporary:
            return
        self._announce(tube, INTEGERS_RESERVED, now, None)
        needed = tube.reserved_at + 1 if tube.reserved_at > 0 else self.position
        if needed > self.promised:
            self.promised = needed
        tube.reserved_at = self.position - 1

    def session_made(self, session: Session, now: i64) -> None:
        """Write that a session began, or what its own grace time is now."""
        start = self._var_bytes
        self._var(TAG_NAME, session.token)
        if session.grace_ms != UNSET:
            self._var(TAG_JSON, json.dumps({"grace_ms": session.grace_ms}).encode())
        self._plain(SESSION_MADE, session.number, 0, 0, now, start)

    def consumer_changed(self, consumer: Consumer, now: i64) -> None:
        """Write how far a consumer is."""
        start = self._var_bytes
        self._var(TAG_NAME, consumer.name)
        told = {
            "token": consumer.token,
            "acked": consumer.acked,
            "newest": consumer.newest,
            "lease_ms": consumer.lease_ms,
            "open": list(consumer.claims),
            "acking": list(consumer.acking),
        }
        self._var(TAG_JSON, json.dumps(told).encode())
        self._plain(CONSUMER_CHANGED, 0, 0, 0, now, start)

    def stages_changed(self, stages: list[Stage], now: i64) -> None:
        """Write what has become of stages, in one row: that they were published is true of all of them, or of none."""
        start = self._var_bytes
        for stage in stages:
            self._var(TAG_NAME, stage.name)
        told = {
            "phase": STAGE_WORDS[stages[0].phase],
            "until": stages[0].until,
            "expire_ms": stages[0].expire_ms,
            "published": [stage.published for stage in stages],
        }
        self._var(TAG_JSON, json.dumps(told).encode())
        self._plain(STAGES_CHANGED, 0, 0, 0, now, start)

    def noted(self, key: bytes, value: bytes, now: i64) -> None:
        """Write what is to be remembered, or that it is not any more."""
        start = self._var_bytes
        self._var(TAG_NAME, key)
        if value:
            self._var(TAG_NOTE, value)
        self._plain(NOTED, 0, 0, 0, now, start)

    def kept_tube(self, tube: Tube, now: i64) -> None:
        """Write a tube as it is, for a snapshot: with what was counted in its life."""
        announced = tube.announced
        told = _told_of(tube)
        told["next_local"] = tube.next_local
        told["counts"] = _counts(tube.counts, tube.counts_before)
        told["key_counts"] = {
            key.hex(): _counts(stats.counts, stats.counts_before) for key, stats in tube.key_stats.items()
        }
        self._announce(tube, TUBE_MADE, now, told)
        tube.announced = announced

    def kept_put(self, tube: Tube, dedup: bytes, job_id: i64, ttl_minutes: i64, when: i64) -> None:
        """Write a put that is remembered by its dedup id, for a snapshot."""
        start = self._var_bytes
        self._var(TAG_DEDUP, dedup)
        job = Job(job_id, 0, b"", 0, when)
        job.ttl_minutes = i32(ttl_minutes)
        self._fixed(job, tube.number, when, 0, 0, PUT_SEEN, start)

    def kept_end(self, told: dict[str, int], now: i64) -> None:
        """Write that a snapshot is whole."""
        start = self._var_bytes
        self._var(TAG_JSON, json.dumps(told).encode())
        self._plain(SNAPSHOT_ENDS, 0, 0, 0, now, start)

    def stopped(self, now: i64) -> None:
        """Write that the log is closed in order."""
        self._plain(STOPPED, 0, 0, 0, now, self._var_bytes)

    def full(self) -> bool:
        """Whether the rows so far are enough for one frame."""
        return self.frame_bytes() >= TURN_BYTES_MAX

    def frame_bytes(self) -> i64:
        """How long the frame of the rows so far is going to be."""
        return (FRAME_HEADER_BYTES + self.rows * ROW_BYTES + self._var_bytes + 7) & ~7

    def make_frame(self, now: i64, wall: i64, durable: i64, seed: int, kind: i64 = LIVE) -> None:
        """Make a frame of the rows so far, and begin anew.

        It stays in `frame` until `wrote_frame`: a writer that is interrupted writes the same bytes to the same place.
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
            self._use(FIRST_WORDS)
            self._vars = BytesWriter()

    def wrote_frame(self, file: i64) -> i64:
        """The frame is in its file; tell how many bytes of bodies were let go of, because they can be read there.

        One step, so that no interrupt comes between its parts.
        """
        let_go = self._let_go(file) if self._frame_spilled else 0
        self.offset += len(self.frame)
        self.frame = b""
        self.written = self.position - self.rows
        return let_go

    def _let_go(self, file: i64) -> i64:
        """Let jobs find their bodies where the frame was written; tell how many bytes that frees."""
        freed: i64 = 0
        for spilled in self._frame_spilled:
            job = spilled.job
            # Not of one that was handed out at once, since somebody is about to read it; nor if it has another by now.
            if job.body is spilled.body and job.state != s.TAKEN and job.state != s.GONE:
                body = spilled.body
                at = self.offset + self._var_start + spilled.var_offset
                job.body = BodyRef(file, at, len(body), signed_crc(body, 0))
                freed += len(body)
        self._frame_spilled = []
        return freed

    def begin_segment(self, tail: object, segment: i64, offset: i64) -> None:
        """Frames go to another file from now on; one step, as above."""
        self.tail = tail
        self.segment = segment
        self.offset = offset

    def name_tubes(self, tubes: dict[int, Tube], segment: i64, now: i64) -> None:
        """Name the tubes of the rows so far: they go to this segment, and not to the one they were made for."""
        for row in range(self.rows):
            tube = tubes.get(self._words[HEADER_WORDS + row * ROW_WORDS + 11])
            if tube is not None and tube.announced != segment:
                self._announce(tube, TUBE_NAMED, now, None)
                tube.announced = segment

    def _write_extra(self, extra: Extra) -> None:
        if extra.reason:
            self._var(TAG_REASON, extra.reason)
        retry = extra.retry
        if retry is not None:
            self._var(TAG_RETRY, retry.text.encode())
        if extra.name:
            self._var(TAG_NAME, extra.name)
        if extra.unique:
            self._var(TAG_UNIQUE, extra.unique)
        if extra.consumer:
            self._var(TAG_CONSUMER, extra.consumer)
            self._var(TAG_CLAIM, b"%d %d" % (extra.claim, extra.claim_place))
        if extra.stage:
            self._var(TAG_STAGE, extra.stage)
        if extra.priority_given != PRIORITY_UNSET:
            self._var(TAG_PRIORITY_GIVEN, b"%d" % extra.priority_given)
        if extra.buries:
            self._var(TAG_BURIES, b"%d" % extra.buries)

    def _var(self, tag: u8, value: bytes) -> None:
        self._vars.append(tag)
        write_i32_le(self._vars, i32(len(value)))
        self._vars.write(value)
        self._var_bytes += VAR_HEADER_BYTES + len(value)

    def _announce(self, tube: Tube, event: i64, now: i64, told: dict[str, object] | None) -> None:
        """Write a row about a tube."""
        if tube.temporary:
            return
        tube.announced = self.segment
        start = self._var_bytes
        self._var(TAG_NAME, tube.name)
        if told is not None:
            self._var(TAG_JSON, json.dumps(told).encode())
        self._plain(event, tube.number, tube.number, tube.reserved, now, start)

    def _plain(self, event: i64, number: i64, tube: i64, local: i64, now: i64, var_start: i64) -> None:
        """A row that is not about a job."""
        job = Job(number, 0, b"", 0, now)
        job.local = local
        self._fixed(job, tube, now, 0, 0, event, var_start)

    def _fixed(
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
            self._use(2 * at)
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


def written_copy(copy: Copy) -> bytes:
    """What a job's copies are, in words: its foreign id or -, how many were asked for, flags, the holders."""
    words = [copy.foreign or b"-", b"%d" % copy.repl, b"a" if copy.announces else b"-", *copy.holders]
    return b" ".join(words)


def read_copy(text: bytes, nodes: dict[bytes, bytes]) -> Copy:
    """The same, read. `nodes` has one object for each node's id."""
    words = text.split(b" ")
    holders = [nodes.setdefault(node, node) for node in words[3:]]
    copy = Copy(b"" if words[0] == b"-" else words[0], i32(int(words[1])), holders, words[2] == b"a")
    copy.logged = True
    return copy


def _told_of(tube: Tube) -> dict[str, object]:
    return {
        "policy": dataclasses.asdict(tube.policy),
        "created": tube.created,
        "paused_in": tube.paused_in,
        "paused_out": tube.paused_out,
    }


def _counts(now: list[int], before: list[int]) -> list[tuple[int, int, int]]:
    """How often each event happened to jobs in each state, where it did: event, state, times."""
    return [
        (int(s.EVENT_OF[rule]), int(s.SOURCE_OF[rule]), now[rule] + before[rule])
        for rule in range(s.RULES_COUNT)
        if now[rule] + before[rule] > 0
    ]


def signed_crc(data: bytes, seed: int) -> i32:
    """The checksum of some bytes, as 32 bits with a sign have it."""
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
    """A frame of these var bytes and so many rows; the words, and the view of them, have room for the header first."""
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
    """A frame that was read: where its parts are in the bytes it was read from."""

    at: i64  # Where the frame begins.
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
        """Read a header whose magic, version and length were found good."""
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
    """The frame that begins here; None where the log ends, in zeros. Anything else is DamagedFrame."""
    left = len(data) - at
    if left < FRAME_HEADER_BYTES:
        if any(data[at:]):
            raise DamagedFrame("a frame header is cut")
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
        raise DamagedFrame("the frame's length is wrong, or it is cut")
    if i64(crc32(data[at + 8 : at + length], seed)) != i64(read_i32_le(data, at + 4)) & 0xFFFFFFFF:
        raise DamagedFrame("the frame's checksum is wrong")
    frame = Frame(data, at)
    if frame.rows < 0 or frame.row_bytes < ROW_BYTES or frame.var_at > at + length:
        raise DamagedFrame("the frame's number of rows is wrong")
    return frame


def read_frames(data: bytes, at: i64, base: i64, seed: int, last: bool) -> list[Frame]:
    """The frames that follow each other in a piece of a file, as far as they are whole in it.

    `base` is where the piece begins in the file, and `seed` where the seeds of its frames do; behind the `last` piece
    there is nothing more. A frame that is not good is not among them: who asks for it by itself is told why.
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


def sent_frames(data: bytes) -> list[Frame]:
    """The frames that a server has sent one after the other. It has checked their sums, which tell of their places."""
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
            raise DamagedFrame("the frame's length is wrong, or it is cut")
        if frame.rows < 0 or frame.row_bytes < ROW_BYTES or frame.var_at + frame.var_bytes > at + frame.length:
            raise DamagedFrame("the frame's number of rows is wrong")
        found.append(frame)
        at += frame.length
    return found


def seed_at(seed: int, offset: i64) -> int:
    """Where the checksum of a frame begins, so that it is valid in its own file and place only."""
    return seed ^ (offset >> 3)


def load_row(job: Job, data: bytes, at: i64, position: i64) -> None:
    """Set the fields of a job to what a row says; its state and its var fields aside."""
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
    """The fixed fields of a row about a job, for those who show them."""

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
    """A 64-bit field of a row."""
    return read_i64_le(data, at)


def var_fields(data: bytes, row_at: i64, frame: Frame) -> list[tuple[int, bytes]]:
    """The var fields of a row: their tags and bytes."""
    at = frame.var_at + i64(read_i32_le(data, row_at + 120))
    end = at + i64(read_i32_le(data, row_at + 124))
    found: list[tuple[int, bytes]] = []
    while at < end:
        length = i64(read_i32_le(data, at + 1))
        found.append((data[at], data[at + 5 : at + 5 + length]))
        at += 5 + length
    return found


def note_frames(
    data: bytes, frames: list[Frame], base: i64, newest: dict[int, int], names: dict[int, bytes], marks: list[int]
) -> None:
    """Note the newest row of each job, the name of each tube, and every so often where a frame begins.

    `marks` are positions and offsets in turn.
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


def sealed_again(data: bytes, found: Frame, bodies: bool, seed: int) -> bytes:
    """The same frame for another place; without the bodies of jobs, if they are not wanted."""
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
        LIVE,
        found.position,
        found.engine_ms,
        found.wall_ms,
        found.durable,
        seed,
    )
