"""Visits all objects of an engine in short slices, for a snapshot. Pure and compiled.

The engine runs other commands between two slices. Jobs, tubes and puts are visited in the order of their numbers, so
each object that exists during the whole walk is visited exactly once. Objects that are added, removed or changed
meanwhile have rows in the log after the start of the walk, and `replay.py` combines these rows with the snapshot.
Therefore the walk can skip objects that were added after its start, so it ends even if many jobs are added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.job import BodyRef
from penstock.journal import frame as f
from penstock.journal import layout, rows

# Limits of a slice: rows, and about this many bytes. A slice takes a fraction of a millisecond.
SLICE_ROWS: Final = 512
SLICE_BYTES: Final = 512 * 1024
# Fewer tubes and stages than rows, because the row of a tube is a page of JSON.
SLICE_TUBES: Final = 16
SLICE_STAGES: Final = 64


class EngineWalk:
    """One walk over an engine. It writes the rows to a RowWriter of its own."""

    writer: rows.RowWriter
    jobs: i64  # Number of jobs seen so far.
    _rows_max: i64
    _engine: Engine
    _steps: list[Callable[[int], None]]  # The parts of the walk that are left, the next one last.
    _next: i64  # Number of the next object of the present step.
    _next_put: i64  # Number of the next remembered put of the present tube.
    _jobs_end: i64  # Jobs from this id on were added after the walk started.
    _tubes_end: i64  # Tubes from this number on were added after the walk started.
    _began: i64  # Time at which the walk started.
    _consumers: list[bytes]  # Names of the consumers that are not visited yet.
    _stages: list[bytes]  # Names of the stages that are not visited yet, in reverse order.
    _notes: list[bytes]  # Keys of the notes that are not visited yet.

    def __init__(self, engine: Engine, writer: rows.RowWriter, now: i64, rows_max: i64 = SLICE_ROWS) -> None:
        self.writer = writer
        self.jobs = 0
        self._rows_max = rows_max
        self._engine = engine
        self._steps = [
            *(self._end, self._walk_tubes, self._walk_notes, self._walk_puts),
            *(self._walk_stages, self._walk_consumers, self._walk_sessions, self._walk_jobs),
        ]
        self._next = 0
        self._next_put = 0
        self._jobs_end = engine.next_id
        self._tubes_end = engine.next_number
        self._began = now
        self._consumers = []
        self._stages = []
        self._notes = []
        writer.attach(engine.session_slots, engine.tube_slots)

    def slice(self, position: i64, now: i64) -> bool:
        """Write the rows of the next objects, as they are at `position` of the log. Return whether there is more."""
        self.writer.position = position
        self._steps[-1](now)
        return bool(self._steps)

    def _next_phase(self) -> None:
        self._steps.pop()
        self._next = 0

    def _walk_jobs(self, now: i64) -> None:
        found = self._engine.jobs.scan(self._next, self._rows_max)
        if not found or found[0].id >= self._jobs_end:
            self._next_phase()
            return
        for job in found:
            if job.id >= self._jobs_end:
                return
            tube = self._engine.tube_of(job)
            self._next = job.id + 1
            if not tube.temporary:
                self.writer.add_snapshot_job(job, tube, self.writer.body_of(job), now)
                self.jobs += 1
                if self.writer.rows >= self._rows_max or self.writer.frame_bytes() > SLICE_BYTES:
                    return

    def _walk_sessions(self, now: i64) -> None:
        slots = self._engine.session_slots
        end = min(self._next + self._rows_max, len(slots))
        for slot in range(self._next, end):
            session = slots[slot]
            if session is not None and self._engine.grace_of(session) > 0:
                self.writer.session_made(session, now)
        self._next = end
        if end == len(slots):
            self._next_phase()
            self._consumers = list(self._engine.consumers)

    def _walk_consumers(self, now: i64) -> None:
        for _ in range(min(SLICE_TUBES, len(self._consumers))):
            consumer = self._engine.consumers.get(self._consumers.pop())
            if consumer is not None:
                self.writer.consumer_changed(consumer, now)
        if not self._consumers:
            self._next_phase()
            self._stages = self._engine.stages.names()[::-1]

    def _walk_stages(self, now: i64) -> None:
        for _ in range(min(SLICE_STAGES, len(self._stages))):
            stage = self._engine.stages.by_name.get(self._stages.pop())
            if stage is not None:
                self.writer.stages_changed([stage], now)
        if not self._stages:
            self._next_phase()

    def _walk_puts(self, now: i64) -> None:
        """Write the dedup ids that tubes remember.

        A slice visits at most `_rows_max` tubes, even if it writes no rows, because most tubes have no dedup ids.
        """
        for _ in range(self._rows_max):
            number: i64 = self._engine.tube_numbers.next_from(self._next)
            if number < 0 or number >= self._tubes_end:
                self._next_phase()
                self._notes = list(self._engine.notes)
                return
            tube = self._engine.tubes_by_number[number]
            if number != self._next:
                # The tube in which the last slice stopped was dropped.
                self._next_put = 0
            self._next = number
            if tube.dedups is not None and not tube.temporary:
                self._next_put, puts = tube.dedups.some(self._next_put, self._rows_max - self.writer.rows)
                for dedup, job_id, ttl_minutes, when in puts:
                    self.writer.add_snapshot_dedup(tube, dedup, job_id, ttl_minutes, when)
                if self.writer.rows >= self._rows_max or self.writer.frame_bytes() > SLICE_BYTES:
                    if puts[-1][3] > self._began:
                        self._next_tube(number)
                    return
            self._next_tube(number)

    def _next_tube(self, number: i64) -> None:
        self._next_put = 0
        self._next = number + 1

    def _walk_notes(self, now: i64) -> None:
        for _ in range(min(self._rows_max, len(self._notes))):
            key = self._notes.pop()
            note = self._engine.notes.get(key)
            if note is not None:
                self.writer.noted(key, note, now)
        if not self._notes:
            self._next_phase()

    def _walk_tubes(self, now: i64) -> None:
        for _ in range(SLICE_TUBES):
            number: i64 = self._engine.tube_numbers.next_from(self._next)
            if number < 0 or number >= self._tubes_end:
                self._next_phase()
                return
            self.writer.add_snapshot_tube(self._engine.tubes_by_number[number], now)
            self._next = number + 1

    def _end(self, now: i64) -> None:
        engine = self._engine
        counts: dict[str, int] = {
            "upto": self.writer.position,
            "jobs": self.jobs,
            "next_id": engine.next_id,
            "next_front": engine.next_front,
            "last_creation": engine.last_creation,
            "next_number": engine.next_number,
        }
        self.writer.add_snapshot_end(counts, now)
        self._next_phase()


def use_snapshot_bodies(engine: Engine, data: bytes, found: f.Frame, snapshot: i64, base: i64) -> None:
    """Make the jobs in a frame of a snapshot read their bodies from this frame, instead of from earlier files."""
    row_at = found.rows_at
    for _ in range(found.rows):
        if data[row_at + layout.EVENT_AT] == layout.SNAPSHOT_JOB:
            job = engine.jobs.find(read_i64_le(data, row_at))
            if job is not None:
                body = job.body
                # A body in a file that is newer than the start of the snapshot is another body.
                if isinstance(body, BodyRef) and body.file < snapshot:
                    # The body is the first var field of a row.
                    at = found.var_at + i64(read_i32_le(data, row_at + layout.VAR_OFFSET_AT)) + layout.VAR_HEADER_BYTES
                    job.body = BodyRef(-snapshot, base + at, body.length, body.crc)
        row_at += found.row_bytes
