"""A search for jobs that match a condition, in slices of about a millisecond.

The jobs are examined in the order of their ids, starting at a cursor. A search ends when it has found the wanted number
of jobs, examined the allowed number of them, reached the last one, or lasted half a second. Its cursor says where the
next call continues, and `examined` how far it looked. So a search of millions of jobs never delays other clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.errors import OutOfRange
from penstock.core.job import Job
from penstock.core.limits import check_integer
from penstock.core.tube import Tube
from penstock.search.conditions import Condition
from penstock.search.job_fields import JobFields

# How many jobs a call examines.
EXAMINED_DEFAULT: Final = 100_000
EXAMINED_MAX: Final = 1_000_000

# A call ends after this time. On a busy node each slice waits for the commands of other clients.
LASTS_MS_MAX: Final = 500

# Work of a slice, in units of about a tenth of a microsecond. A job costs one unit, and one for each two parts of the
# condition. A body costs one unit for 8 bytes, and some for starting the parser. So a slice takes less than a
# millisecond, and about five milliseconds if the code is not compiled.
_SLICE_WORK: Final = 4_000
_PARTS_PER_UNIT: Final = 2
_BODY_BYTES_PER_UNIT: Final = 8
_BODY_WORK: Final = 12

# Jobs that are read from the table at once.
_BATCH: Final = 64


class JobSearch:
    """A search for jobs."""

    cursor: int  # Where the next call continues: 0 after the last job.
    examined: int
    fields: JobFields

    def __init__(
        self,
        engine: Engine,
        condition: Condition,
        cursor: int,
        now: i64,
        id_of: Callable[[Job], bytes],
        body_of: Callable[[Job], bytes],
    ) -> None:
        if cursor < 0 or cursor >= 1 << 63:
            raise OutOfRange("a cursor must be 0 or a value that an earlier scan returned")
        self.cursor = cursor
        self.examined = 0
        self.fields = JobFields(engine, now, id_of, body_of)
        self.tube: Tube | None = None
        self.states: i64 = -1  # A bit for each wanted state.
        self.may_use: Callable[[bytes], bool] | None = None  # Whether the caller may see the jobs of a tube.
        self.shard = 0
        self.shards = 1
        self.examined_max: int = EXAMINED_DEFAULT
        self._engine = engine
        self._condition = condition
        self._is_last = False
        self._is_late = False
        self._seen = 0  # The number of jobs that were examined, with those that the caller must not see.

    def step(self, count: int, now: i64) -> list[Job]:
        """Examine one slice, and return up to `count` jobs that match. `is_over` says then whether it was the last."""
        engine, condition, fields, tube, may_use = self._engine, self._condition, self.fields, self.tube, self.may_use
        found: list[Job] = []
        if now >= fields.now + LASTS_MS_MAX:
            # This slice is still examined, so that every call makes progress.
            self._is_late = True
        if tube is not None and tube.dropped:
            # Its slot may belong to another tube by now, and jobs are matched by slot.
            self.cursor = 0
            self._is_last = True
            return found
        per_job: i64 = 1 + condition.cost // _PARTS_PER_UNIT
        work: i64 = 0
        while work < _SLICE_WORK and self._seen < self.examined_max:
            batch, after = self._batch()
            for job in batch:
                if work >= _SLICE_WORK or len(found) == count or self._seen == self.examined_max:
                    self.cursor = job.id
                    return found
                self._seen += 1
                work += per_job
                if may_use is not None and not may_use(engine.tube_of(job).name):
                    continue
                self.examined += 1
                if (tube is not None and job.tube != tube.slot) or not (self.states >> i64(job.state)) & 1:
                    continue
                fields.load(job)
                bytes_before = fields.parsed_bytes
                if condition.matches(fields):
                    found.append(job)
                if fields.parsed_bytes > bytes_before:
                    work += _BODY_WORK + (fields.parsed_bytes - bytes_before) // _BODY_BYTES_PER_UNIT
            if not batch:
                # Skipping blocks of other shards costs time, too.
                work += _BATCH
            self.cursor = after
            if after == 0:
                self._is_last = True
                break
        return found

    def is_over(self) -> bool:
        """Return whether the last job or the allowed number of jobs was examined, or the time is over."""
        return self._is_last or self._is_late or self._seen >= self.examined_max

    def _batch(self) -> tuple[list[Job], int]:
        """Return the next jobs and the cursor behind them."""
        jobs = self._engine.jobs
        if self.shards == 1:
            batch = jobs.scan(self.cursor, _BATCH)
            return batch, batch[-1].id + 1 if batch else 0
        return jobs.scan_shard(self.cursor, _BATCH, self.shard, self.shards)


def check_examined(value: int) -> int:
    """Return how many jobs a call may examine, if the number is 1 to EXAMINED_MAX. Raise OutOfRange otherwise."""
    check_integer(value, "EXAMINE")
    if value < 1 or value > EXAMINED_MAX:
        raise OutOfRange(f"EXAMINE must be 1 to {EXAMINED_MAX}")
    return value
