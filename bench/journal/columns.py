"""How fast the log becomes Arrow columns, in one process: where a frame holds many rows, and where it holds one."""

from __future__ import annotations

from functools import partial

from bench.clock import per_second
from bench.journal.directory import BATCH, worked
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.journal.disk import ReadOnlyDisk

_ROWS_OF_A_JOB = 3  # Put, taken, acked.


def trials(scale: Scale) -> list[Trial]:
    """The best and the worst case of a writer."""
    jobs = scale.jobs(200_000, 50_000)
    rounds = scale.rounds_long
    return [
        Trial(
            (Spec("journal/columns", f"rows read as columns, {BATCH:,} a frame", Unit.ROWS, goal=Goal(2_000_000)),),
            partial(_prepare, jobs, BATCH),
            rounds,
        ),
        Trial(
            (Spec("journal/columns-1", "the same, one a frame", Unit.ROWS, "journal/columns", Goal(1_000_000)),),
            partial(_prepare, jobs, 1),
            rounds,
        ),
    ]


def _prepare(jobs: int, rows: int) -> Sample:
    # Here, so that only these rows are missing where pyarrow is.
    from penstock.journal.columns import batches

    directory, _ = worked(jobs, rows)
    count = jobs * _ROWS_OF_A_JOB

    def read() -> None:
        found = sum(batch.num_rows for batch in batches(ReadOnlyDisk(directory.name)))
        assert found == count, f"{found} rows were read of {count}"

    read()  # Once for nothing: what is imported and allocated at first is not part of it.
    return lambda: [per_second(read, count)]
