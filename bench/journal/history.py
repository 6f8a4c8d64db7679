"""How long it takes to find what happened to a job that is long gone, in a log of a few hundred megabytes."""

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
from penstock.journal.disk import ReadOnlyDisk
from penstock.journal.reader import Reader

_JOBS_ASKED_FOR = 100
_EVENTS = 3  # Put, taken, acked.
_CYCLE_BYTES = 490  # Of the log.


def trials(scale: Scale) -> list[Trial]:
    """The first that a reader is asked for, and those that follow."""
    jobs = scale.jobs(600_000, 30_000)
    size = f"a log of {jobs * _CYCLE_BYTES // 1_000_000} MB"
    return [
        Trial(
            (
                Spec("journal/history-first", f"the history of a job that is gone, first look into {size}", Unit.MS),
                Spec("journal/history-next", f"the history of another one, median of {_JOBS_ASKED_FOR}", Unit.MS),
            ),
            partial(_prepare, jobs),
            scale.rounds_long,
        )
    ]


def _prepare(jobs: int) -> Sample:
    directory, finished = worked(jobs, BATCH)
    # Full segments are indexed by then, as they are in a queue that is open.
    with penstock.open(directory.name, fsync="never") as queue:
        queue.checkpoint()
    dice = random.Random(1)

    def sample() -> list[float]:
        reader = Reader(ReadOnlyDisk(directory.name))
        # The oldest first: whoever looks for it begins with the newest segment.
        first = _look(reader, finished[0])
        others = [_look(reader, dice.choice(finished)) for _ in range(_JOBS_ASKED_FOR)]
        return [first, statistics.median(others)]

    return sample


def _look(reader: Reader, job: int) -> float:
    """How long it took, in ms."""
    began = clock()
    events = reader.history(job)
    took = clock() - began
    assert len(events) == _EVENTS, "not all of the history was found"
    return took / 1e6
