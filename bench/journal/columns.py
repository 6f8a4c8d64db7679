"""Speed of converting the log to Arrow columns in one process, with many rows per frame and with one."""

from __future__ import annotations

from functools import partial

from bench.clock import per_second
from bench.journal.directory import BATCH, worked
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.journal.real_disk import ReadOnlyDisk

_ROWS_OF_A_JOB = 3  # Put, taken, acked.


def trials(scale: Scale) -> list[Trial]:
    """Return trials of the best and the worst case."""
    jobs = scale.jobs(200_000, 50_000)
    rounds = scale.rounds_long
    return [
        Trial(
            (Spec("journal/columns", f"rows read as columns, {BATCH:,} per frame", Unit.ROWS, goal=Goal(2_000_000)),),
            partial(_prepare, jobs, BATCH),
            rounds,
        ),
        Trial(
            (Spec("journal/columns-1", "the same, one per frame", Unit.ROWS, "journal/columns", Goal(1_000_000)),),
            partial(_prepare, jobs, 1),
            rounds,
        ),
    ]


def _prepare(jobs: int, rows: int) -> Sample:
    # Imported here, so that without pyarrow only these rows fail.
    from penstock.journal.history.columns import batches

    directory, _ = worked(jobs, rows)
    count = jobs * _ROWS_OF_A_JOB

    def read() -> None:
        found = sum(batch.num_rows for batch in batches(ReadOnlyDisk(directory.name)))
        assert found == count, f"{found} rows were read of {count}"

    read()  # Warm up: imports and first allocations are not measured.
    return lambda: [per_second(read, count)]
