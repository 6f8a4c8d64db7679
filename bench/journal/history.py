"""Time to find the history of a deleted job in a log of a few hundred megabytes."""

from __future__ import annotations

import random
import statistics
from functools import partial

import penstock
from bench.clock import clock
from bench.journal.directory import BATCH, worked
from bench.rows import Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.journal.history.reader import Reader
from penstock.journal.real_disk import ReadOnlyDisk

_JOBS_ASKED_FOR = 100
_EVENTS = 3  # Put, taken, acked.
_CYCLE_BYTES = 490  # Bytes of the log per job.


def trials(scale: Scale) -> list[Trial]:
    """Return trials of the first search of a reader, and of the following ones."""
    jobs = scale.jobs(600_000, 30_000)
    size = f"a log of {jobs * _CYCLE_BYTES // 1_000_000} MB"
    return [
        Trial(
            (
                Spec("journal/history-first", f"the history of a deleted job, first search in {size}", Unit.MS),
                Spec("journal/history-next", f"the history of another job, median of {_JOBS_ASKED_FOR}", Unit.MS),
            ),
            partial(_prepare, jobs),
            scale.rounds_long,
        )
    ]


def _prepare(jobs: int) -> Sample:
    directory, finished = worked(jobs, BATCH)
    # Full segments are indexed before the measurement, as in an open queue.
    with penstock.open(directory.name, fsync="never") as queue:
        queue.checkpoint()
    dice = random.Random(1)

    def sample() -> list[float]:
        reader = Reader(ReadOnlyDisk(directory.name))
        # The oldest job is the worst case, because a search starts with the newest segment.
        first = _look(reader, finished[0])
        others = [_look(reader, dice.choice(finished)) for _ in range(_JOBS_ASKED_FOR)]
        return [first, statistics.median(others)]

    return sample


def _look(reader: Reader, job: int) -> float:
    """Search the history of a job. Return the time in ms."""
    began = clock()
    events = reader.history(job)
    took = clock() - began
    assert len(events) == _EVENTS, "the history is incomplete"
    return took / 1e6
