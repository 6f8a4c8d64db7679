"""Replays the rows of a log: the last row of each job, tube, session and consumer wins.

No rule of the engine runs here. A snapshot is read first, if there is one, then the log from the start of the snapshot.
A snapshot was taken while work continued, so each of its rows is valid at its own position. Rows of the log that are
not newer than the state from the snapshot are skipped. From the position at which the snapshot was complete, all states
are consistent with each other.
"""

from __future__ import annotations

import json
from typing import Any, Final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i32, i64, mypyc_attr, u8

from penstock.core import states as s
from penstock.core.batches import STAGE_WORDS, BatchMembers, Consumer, Stage
from penstock.core.errors import NewerJournal
from penstock.core.job import ASIDE, WAS_ASIDE, BodyRef, Copy, Job, decode_verdict
from penstock.core.retry import parse_retry
from penstock.core.table import JobTable
from penstock.journal import frame as f
from penstock.journal import layout, rows

# Length of a body that was not read, because its job was put before the first row that was read.
_UNREAD: Final = -1


@mypyc_attr(acyclic=True)
class ReplayedTube:
    """The state of a tube after the rows read so far."""

    number: i64
    name: bytes
    fields: dict[str, Any]  # Policy and other fields of the tube. Empty until a row with them was read.
    counts: list[int]  # Number of times that each rule was applied.
    key_counts: dict[bytes, list[int]]  # These counters by key, for keys with separate statistics.
    next_local: i64
    reserved: i64
    upto: i64  # Rows of the log below this position are already included.

    def __init__(self, number: i64) -> None:
        self.number = number
        self.name = b""
        self.fields = {}
        self.counts = [0] * s.RULES_COUNT
        self.key_counts = {}
        self.next_local = 0
        self.reserved = 0
        self.upto = 0


class Replay:
    """The state after the rows read so far."""

    jobs: JobTable  # By id. `job.tube` is an index into `tubes`.
    late: dict[int, Job]  # Jobs that returned to the log after jobs with greater ids.
    keys: dict[int, bytes]  # By job id.
    held: dict[int, int]  # Session number by job id.
    sessions: dict[int, bytes]  # Token by session number.
    graces: dict[int, int]  # Grace time in ms by session number, for sessions that set their own.
    tubes: list[ReplayedTube | None]  # None for dropped tubes.
    tube_indexes: dict[int, int]  # Index into `tubes` by tube number.
    # Tube number, dedup id, job id, ttl class, time. Includes dropped tubes, whose numbers are not reused.
    dedups: list[tuple[int, bytes, int, int, int]]
    consumers: dict[bytes, Consumer]
    open_claims: dict[bytes, list[int]]
    acked_claims: dict[bytes, list[int]]  # Acked claims that still have jobs.
    stages: dict[bytes, Stage]  # By name, in the order of their last change.
    notes: dict[bytes, bytes]  # By key.
    counters: dict[str, int]  # Values from which counters continue, from the snapshot.
    bodiless: dict[int, int]  # Jobs whose put was not read, with the position of their newest row.
    highest_id: i64
    lowest_order: i64
    highest_number: i64
    latest_ms: i64
    position: i64  # Position of the next row.
    stopped: bool  # Whether the log was closed regularly at this position.
    leave_bodies: bool  # Whether bodies are left on disk, except for the shortest.
    _nodes: dict[bytes, bytes]  # Interned node ids.
    _newest_id: i64  # Greatest id in `jobs`, including jobs that are gone.
    _leaving: dict[int, None]  # Jobs that moved out of a tube and not yet into another.
    # By job id: the key under which a job was last counted, in tubes with separate statistics for keys.
    _counted_keys: dict[int, bytes]

    def __init__(self, leave_bodies: bool) -> None:
        self.jobs = JobTable()
        self.late = {}
        self.keys = {}
        self.held = {}
        self.sessions = {}
        self.graces = {}
        self.tubes = []
        self.tube_indexes = {}
        self.dedups = []
        self.consumers = {}
        self.open_claims = {}
        self.acked_claims = {}
        self.stages = {}
        self.notes = {}
        self.counters = {}
        self.bodiless = {}
        self.highest_id = 0
        self.lowest_order = 0
        self.highest_number = 0
        self.latest_ms = 0
        self.position = 1
        self.stopped = True
        self.leave_bodies = leave_bodies
        self._nodes = {}
        self._newest_id = -1
        self._leaving = {}
        self._counted_keys = {}

    def find(self, job_id: i64) -> Job | None:
        job = self.jobs.find(job_id)
        if job is None and self.late:
            return self.late.get(job_id)
        return job

    def apply_frames(self, data: bytes, frames: list[f.Frame], file: i64, base: i64) -> f.Frame | None:
        """Apply consecutive frames of the log. Return the first frame with an unexpected position, or None."""
        for found in frames:
            if found.position != self.position:
                return found
            self.apply_frame(data, found, file, base)
        return None

    def apply_frame(self, data: bytes, found: f.Frame, file: i64, base: i64) -> None:
        at = found.rows_at
        position = found.position
        for _ in range(found.rows):
            event = i64(data[at + layout.EVENT_AT])
            self.stopped = event == layout.STOPPED
            if event >= layout.TUBE_MADE:
                self._apply_other(data, at, found, event, position)
            else:
                self._apply_job(data, at, found, event, position, file, base)
            at += found.row_bytes
            position += 1
        # A job that moved to a tube that is not logged has left the log. A move between logged tubes ends in the same
        # frame.
        if self._leaving:
            for job_id in self._leaving:
                self.drop(job_id)
            self._leaving = {}
        self.position = position
        if found.engine_ms > self.latest_ms:
            self.latest_ms = found.engine_ms

    def apply_snapshot_frame(self, data: bytes, found: f.Frame, file: i64, base: i64) -> None:
        at = found.rows_at
        for _ in range(found.rows):
            event = i64(data[at + layout.EVENT_AT])
            if event == layout.SNAPSHOT_JOB:
                self._load_job(data, at, found, read_i64_le(data, at + layout.BEFORE_AT), file, base)
            elif event == layout.SNAPSHOT_DEDUP:
                fields = dict(f.var_fields(data, at, found))
                ttl_minutes = int(read_i32_le(data, at + layout.TTL_MINUTES_AT))
                number, job_id = read_i64_le(data, at + layout.TUBE_AT), read_i64_le(data, at)
                when = read_i64_le(data, at + layout.TIME_AT)
                self.dedups.append((number, fields[layout.TAG_DEDUP], job_id, ttl_minutes, when))
            elif event == layout.SNAPSHOT_END:
                self.counters = json.loads(dict(f.var_fields(data, at, found))[layout.TAG_JSON])
            else:
                self._apply_other(data, at, found, event, found.position)
            at += found.row_bytes
        if found.engine_ms > self.latest_ms:
            self.latest_ms = found.engine_ms

    def use_up_integers(self) -> None:
        """Skip the reserved integer ids of all tubes. Consumers may have seen them on jobs that a crash removed."""
        for tube in self.tubes:
            if tube is not None and tube.next_local < tube.reserved:
                tube.next_local = tube.reserved

    def drop_bodiless(self) -> None:
        """Drop the jobs whose bodies are lost. Called only by a salvage."""
        for job_id in list(self.bodiless):
            self.drop(job_id)

    def _tube_index(self, number: i64) -> i64:
        at = self.tube_indexes.get(number)
        if at is None:
            at = len(self.tubes)
            self.tubes.append(ReplayedTube(number))
            self.tube_indexes[number] = at
        return at

    def _apply_job(self, data: bytes, at: i64, found: f.Frame, event: i64, position: i64, file: i64, base: i64) -> None:
        job_id = read_i64_le(data, at)
        number = read_i64_le(data, at + layout.TUBE_AT)
        tube = self.tubes[self._tube_index(number)]
        assert tube is not None
        before, after = i64(data[at + layout.FROM_AT]), i64(data[at + layout.TO_AT])
        if event >= s.EVENTS_COUNT or before >= s.STATES_COUNT or not s.allowed(before, event):
            raise _unknown(position, f"event {event} of a job in state {before}")
        if after >= s.STATES_COUNT:
            raise _unknown(position, f"state {after}")
        if job_id > self.highest_id:
            self.highest_id = job_id
        if found.version > 1:
            actor = read_i64_le(data, at + layout.ACTOR_AT)
            if actor > self.highest_number:
                self.highest_number = actor
        known = self.find(job_id)
        if position >= tube.upto:
            self._count(tube, data, at, found, event)
            if tube.key_counts:
                self._count_key(tube, known, data, at, found, event, position)
        if known is not None and position <= known.position:
            # The snapshot includes this row. But dedup ids must be recorded in the order of the log.
            self._note_dedup(data, at, found, number, position)
            return
        if event == s.MOVED_OUT:
            _check_tags(data, at, found, position)
            self._leaving[job_id] = None
            return
        if self._leaving:
            self._leaving.pop(job_id, None)
        if after == s.GONE:
            _check_tags(data, at, found, position)
            self.drop(job_id)
            return
        self._load_job(data, at, found, position, file, base)

    def _count(self, tube: ReplayedTube, data: bytes, at: i64, found: f.Frame, event: i64) -> None:
        tube.counts[s.rule_of(event, i64(data[at + layout.FROM_AT]))] += 1
        local = read_i64_le(data, at + layout.NUMBER_AT)
        if local >= tube.next_local:
            tube.next_local = local + 1

    def _count_key(
        self, tube: ReplayedTube, known: Job | None, data: bytes, at: i64, found: f.Frame, event: i64, position: i64
    ) -> None:
        """Count a row in the statistics of its key.

        A job that returns with another key is counted as gone from the old key and as new in the new one.
        """
        job_id = read_i64_le(data, at)
        before, after = i64(data[at + layout.FROM_AT]), i64(data[at + layout.TO_AT])
        key = dict(f.var_fields(data, at, found)).get(layout.TAG_KEY, b"")
        old = self._counted_keys.get(job_id)
        if old is None and known is not None and position > known.position:
            old = self.keys.get(job_id)
        rule = s.rule_of(event, before)
        if before != s.GONE and old is not None and old != key:
            _add(tube.key_counts.get(old), s.rule_of(s.MOVED_OUT, before))
            rule = s.rule_of(s.ARRIVALS[after], s.GONE)
        _add(tube.key_counts.get(key), rule)
        if after == s.GONE:
            self._counted_keys.pop(job_id, None)
        else:
            self._counted_keys[job_id] = key

    def _load_job(self, data: bytes, at: i64, found: f.Frame, position: i64, file: i64, base: i64) -> None:
        job_id = read_i64_le(data, at)
        number = read_i64_le(data, at + layout.TUBE_AT)
        job = self.find(job_id)
        if job is None:
            job = Job(job_id, 0, BodyRef(0, 0, _UNREAD, 0), 0, 0)
            if job_id > self._newest_id:
                self._newest_id = job_id
                self.jobs.add(job)
            else:
                self.late[job_id] = job
        f.load_row(job, data, at, found, position)
        s.restore(job, i64(data[at + layout.TO_AT]))
        job.tube = i32(self._tube_index(number))
        if job_id > self.highest_id:
            self.highest_id = job_id
        if job.order < self.lowest_order:
            self.lowest_order = job.order
        session = read_i64_le(data, at + layout.HOLDER_AT)
        if session > self.highest_number:
            self.highest_number = session
        if session != 0 and job.state == s.TAKEN:
            self.held[job_id] = session
        elif self.held:
            self.held.pop(job_id, None)
        self._load_vars(job, data, at, found, number, file, base)
        body = job.body
        if isinstance(body, BodyRef) and body.length == _UNREAD:
            self.bodiless[job_id] = position
        elif self.bodiless:
            self.bodiless.pop(job_id, None)

    def _load_vars(self, job: Job, data: bytes, row_at: i64, found: f.Frame, number: i64, file: i64, base: i64) -> None:
        # Fields that are written only when they change keep their values from earlier rows.
        copy: Copy | None = job.copy()
        headers = job.headers()
        job.extra = None
        at = found.var_at + i64(read_i32_le(data, row_at + layout.VAR_OFFSET_AT))
        end = at + i64(read_i32_le(data, row_at + layout.VAR_LENGTH_AT))
        while at < end:
            tag = i64(data[at])
            length = i64(read_i32_le(data, at + layout.VAR_FIELD_LENGTH_AT))
            at += layout.VAR_HEADER_BYTES
            if tag == layout.TAG_BODY:
                self._load_body(job, data, at, length, file, base)
            else:
                self._load_var(job, tag, data[at : at + length], number, read_i64_le(data, row_at + layout.TIME_AT))
            at += length
        flags = i64(data[row_at + layout.FLAGS_AT])
        if flags & layout.FLAG_DOOMED:
            job.ensure_extra().doomed = True
        if flags & layout.FLAG_CANCELLED:
            job.ensure_extra().cancelled = True
        if copy is not None and job.copy() is None:
            job.ensure_extra().copy = copy
        copy = job.copy()
        if copy is not None:
            copy.aside = u8((flags >> layout.ASIDE_SHIFT) & (ASIDE | WAS_ASIDE))
        if headers and not job.headers():
            job.ensure_extra().headers = headers

    def _load_body(self, job: Job, data: bytes, at: i64, length: i64, file: i64, base: i64) -> None:
        if self.leave_bodies and length >= rows.SPILLED_BYTES_MIN:
            job.body = BodyRef(file, base + at, i32(length), f.signed_crc(data[at : at + length], 0))
        else:
            job.body = data[at : at + length]

    def _load_var(self, job: Job, tag: i64, value: bytes, number: i64, when: i64) -> None:
        if tag == layout.TAG_KEY:
            self.keys[job.id] = value
        elif tag == layout.TAG_REASON:
            job.ensure_extra().reason = value
        elif tag == layout.TAG_RETRY:
            job.ensure_extra().retry = parse_retry(value.decode())
        elif tag == layout.TAG_NAME:
            job.ensure_extra().name = value
        elif tag == layout.TAG_UNIQUE:
            job.ensure_extra().unique = value
        elif tag == layout.TAG_DEDUP:
            self.dedups.append((number, value, job.id, int(job.ttl_minutes), when))
        elif tag == layout.TAG_CONSUMER:
            job.ensure_extra().consumer = value
        elif tag == layout.TAG_CLAIM:
            claim, place = value.split()
            job.ensure_extra().claim = int(claim)
            job.ensure_extra().claim_place = i32(int(place))
        elif tag == layout.TAG_VERDICT:
            job.ensure_extra().verdict = decode_verdict(value)
        elif tag == layout.TAG_STAGE:
            job.ensure_extra().stage = value
        elif tag == layout.TAG_BATCH:
            job.ensure_extra().batch = value
        elif tag == layout.TAG_COPY:
            job.ensure_extra().copy = rows.decode_copy(value, self._nodes)
        elif tag == layout.TAG_HEADERS:
            job.ensure_extra().headers = value
        elif tag == layout.TAG_PRIORITY_GIVEN:
            job.ensure_extra().priority_given = int(value)
        elif tag == layout.TAG_BURIES:
            job.ensure_extra().buries = i32(int(value))
        elif layout.is_unknown_tag(tag):
            raise _unknown(job.position, f"tag {tag}")

    def _note_dedup(self, data: bytes, at: i64, found: f.Frame, number: i64, position: i64) -> None:
        if read_i32_le(data, at + layout.VAR_LENGTH_AT) == 0:
            return
        _check_tags(data, at, found, position)
        dedup = dict(f.var_fields(data, at, found)).get(layout.TAG_DEDUP)
        if dedup is not None:
            ttl_minutes = int(read_i32_le(data, at + layout.TTL_MINUTES_AT))
            when = read_i64_le(data, at + layout.TIME_AT)
            self.dedups.append((number, dedup, read_i64_le(data, at), ttl_minutes, when))

    def drop(self, job_id: i64) -> None:
        job = self.find(job_id)
        if job is not None:
            if self.late and job_id in self.late:
                del self.late[job_id]
            else:
                self.jobs.remove(job)
        if self.keys:
            self.keys.pop(job_id, None)
        if self.held:
            self.held.pop(job_id, None)
        if self.bodiless:
            self.bodiless.pop(job_id, None)

    def _apply_other(self, data: bytes, at: i64, found: f.Frame, event: i64, position: i64) -> None:
        if event >= layout.OPTIONAL:
            return
        if layout.is_unknown_event(event):
            raise _unknown(position, f"event {event}")
        number = read_i64_le(data, at)
        fields = dict(f.var_fields(data, at, found))
        for tag in fields:
            if layout.is_unknown_tag(tag):
                raise _unknown(position, f"tag {tag}")
        if number > self.highest_number:
            self.highest_number = number
        if event == layout.SESSION_MADE:
            self.sessions[number] = fields[layout.TAG_NAME]
            if layout.TAG_JSON in fields:
                self.graces[number] = json.loads(fields[layout.TAG_JSON])["grace_ms"]
        elif event == layout.CONSUMER_CHANGED:
            self._apply_consumer(fields)
        elif event == layout.STAGES_CHANGED:
            self._apply_stages(f.var_fields(data, at, found), fields)
        elif event == layout.NOTED:
            note = fields.get(layout.TAG_NOTE)
            if note is None:
                self.notes.pop(fields[layout.TAG_NAME], None)
            else:
                self.notes[fields[layout.TAG_NAME]] = note
        elif event == layout.TUBE_NAMED:
            named = self.tubes[self._tube_index(number)]
            assert named is not None
            named.name = fields[layout.TAG_NAME]
        elif event != layout.STOPPED and event < layout.SESSION_NAMED:
            at_index = self._tube_index(number)
            tube = self.tubes[at_index]
            assert tube is not None
            if position < tube.upto:
                return
            if event == layout.TUBE_DROPPED:
                del self.tube_indexes[number]
                self.tubes[at_index] = None
                return
            tube.reserved = read_i64_le(data, at + layout.NUMBER_AT)
            if event != layout.INTEGERS_RESERVED:
                self._apply_tube(tube, fields, position if found.kind == layout.SNAPSHOT_FRAME else 0)

    def _apply_tube(self, tube: ReplayedTube, fields: dict[int, bytes], upto: i64) -> None:
        tube.name = fields[layout.TAG_NAME]
        told = json.loads(fields[layout.TAG_JSON])
        if not tube.fields and "next_local" not in told:
            first: i64 = told["policy"]["first_integer"]
            if first > tube.next_local:
                tube.next_local = first
        tube.fields = told
        counted = [key.encode() for key in told["policy"]["key_stats"]]
        tube.key_counts = {key: tube.key_counts.get(key, [0] * s.RULES_COUNT) for key in counted}
        if upto > 0:
            # The row is from a snapshot and includes everything up to here.
            tube.upto = upto
            tube.next_local = told["next_local"]
            tube.counts = _counts(told["counts"])
            for name, counts in told["key_counts"].items():
                tube.key_counts[bytes.fromhex(name)] = _counts(counts)

    def _apply_stages(self, every: list[tuple[int, bytes]], fields: dict[int, bytes]) -> None:
        told = json.loads(fields[layout.TAG_JSON])
        names = [value for tag, value in every if tag == layout.TAG_NAME]
        for name, published in zip(names, told["published"], strict=True):
            stage = Stage(name, told["expire_ms"])
            stage.phase = STAGE_WORDS.index(told["phase"])
            stage.until = told["until"]
            stage.published = published
            if "sealed" in told:
                stage.members = BatchMembers()
                stage.members.sealed = told["sealed"]
                stage.members.total = told["total"]
                stage.members.failed = told["failed"]
            self.stages.pop(name, None)
            self.stages[name] = stage

    def _apply_consumer(self, fields: dict[int, bytes]) -> None:
        told = json.loads(fields[layout.TAG_JSON])
        consumer = Consumer(fields[layout.TAG_NAME], told["token"])
        consumer.acked = told["acked"]
        consumer.newest = told["newest"]
        consumer.lease_ms = told["lease_ms"]
        self.consumers[consumer.name] = consumer
        self.open_claims[consumer.name] = told["open"]
        # An older version did not write this, because it acked all jobs of a claim at once.
        self.acked_claims[consumer.name] = told.get("acking", [])


def _check_tags(data: bytes, row_at: i64, found: f.Frame, position: i64) -> None:
    """Raise NewerJournal if a row whose var fields are not needed has a tag that this version does not know."""
    at = found.var_at + i64(read_i32_le(data, row_at + layout.VAR_OFFSET_AT))
    end = at + i64(read_i32_le(data, row_at + layout.VAR_LENGTH_AT))
    while at < end:
        tag = i64(data[at])
        if layout.is_unknown_tag(tag):
            raise _unknown(position, f"tag {tag}")
        at += layout.VAR_HEADER_BYTES + i64(read_i32_le(data, at + layout.VAR_FIELD_LENGTH_AT))


def _unknown(position: i64, what: str) -> NewerJournal:
    return NewerJournal(f"row {position} has the unknown {what}; use the newer Penstock that wrote it")


def _add(counts: list[int] | None, rule: i64) -> None:
    if counts is not None:
        counts[rule] += 1


def _counts(told: list[list[int]]) -> list[int]:
    counts = [0] * s.RULES_COUNT
    for event, state, times in told:
        counts[s.rule_of(event, state)] = times
    return counts
