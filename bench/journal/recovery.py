"""Time to open a queue with a million jobs: from the whole log, and from a snapshot.

The files are in the page cache, as after a restart of the process and not of the machine.
"""

from __future__ import annotations

from functools import partial

from bench.clock import clock
from bench.journal.directory import BODY_BYTES, Directory, close_engine, copy_of, filled, open_engine
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.host.clock import wall_ms
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import RealDisk

_GOAL = Goal(10)


def trials(scale: Scale) -> list[Trial]:
    """Return trials of the whole log, with the collector of the server and the default one, and of a snapshot."""
    jobs = scale.jobs(1_000_000, 50_000)
    from_log = f"{jobs:,} jobs with bodies of {BODY_BYTES} bytes, from the whole log"
    gc = "the same, with the default garbage collector"
    rounds = scale.rounds_long
    return [
        Trial((Spec("journal/open-log", from_log, Unit.SECONDS, goal=_GOAL),), partial(_prepare_log, jobs), rounds),
        Trial(
            (Spec("journal/open-log+gc", gc, Unit.SECONDS, "journal/open-log"),),
            partial(_prepare_log, jobs),
            rounds,
            host_gc=True,
        ),
        Trial(
            (Spec("journal/open-snapshot", "the same jobs from a snapshot", Unit.SECONDS, goal=_GOAL),),
            partial(_prepare_snapshot, jobs),
            rounds,
        ),
    ]


def _prepare_log(jobs: int) -> Sample:
    return partial(_sample, filled(jobs), jobs)


def _prepare_snapshot(jobs: int) -> Sample:
    directory = copy_of(filled(jobs))
    opened = open_engine(directory)
    take_snapshot(RealDisk(directory.name), opened.log, opened.engine, opened.engine.now, wall_ms())
    close_engine(opened)
    return partial(_sample, directory, jobs)


def _sample(directory: Directory, jobs: int) -> list[float]:
    began = clock()
    opened = open_engine(directory)
    took = clock() - began
    assert opened.engine.tubes[b"bench"].total() == jobs, "not all jobs were recovered"
    close_engine(opened)
    return [took / 1e9]
