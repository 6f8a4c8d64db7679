"""The longest single call while millions of jobs come and go: what a client may have to wait for the engine at worst.

Every call is timed in every run, and counts with the least it took (`Repeated`): what is left is the engine's own.
"""

from __future__ import annotations

from array import array
from functools import partial

from bench.clock import Repeated, clock
from bench.rig import JOBS_PER_MS, Rig
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.policy import FIFOTTL

_GOAL = Goal(5)


def trials(scale: Scale) -> list[Trial]:
    """The collector as the server keeps it; and untouched, as an embedded queue finds it."""
    jobs = scale.jobs(5_000_000, 500_000)
    jobs_gc = scale.jobs(500_000, 50_000)
    with_gc = f"the longest call of {jobs_gc:,} jobs, the host's garbage collector untouched"
    return [
        Trial(
            (
                Spec("pauses/put", f"the longest put of {jobs:,} jobs, fifottl", Unit.MS, goal=_GOAL),
                Spec("pauses/take", "the longest take of them", Unit.MS, goal=_GOAL),
                Spec("pauses/ack", "the longest ack of them", Unit.MS, goal=_GOAL),
            ),
            partial(_prepare, jobs),
            scale.rounds_long,
        ),
        Trial(
            (Spec("pauses/any+gc", with_gc, Unit.MS),),
            lambda: _longest_of(_prepare(jobs_gc)),
            scale.rounds_long,
            host_gc=True,
        ),
    ]


def _prepare(jobs: int) -> Sample:
    puts, takes, acks = Repeated(), Repeated(), Repeated()

    def sample() -> list[float]:
        rig = Rig(FIFOTTL)
        puts.add(_fill(rig, jobs))
        took, acked = _drain(rig, jobs)
        takes.add(took)
        acks.add(acked)
        return [puts.longest_ms(), takes.longest_ms(), acks.longest_ms()]

    return sample


def _longest_of(sample: Sample) -> Sample:
    return lambda: [max(sample())]


def _fill(rig: Rig, jobs: int) -> array[int]:
    """What each put took."""
    put, tube = rig.engine.put, rig.tube
    times = array("q")
    for i, draft in enumerate(rig.drafts(jobs)):
        now = rig.now + i // JOBS_PER_MS
        began = clock()
        put(tube, draft, now)
        times.append(clock() - began)
    rig.now += jobs // JOBS_PER_MS
    return times


def _drain(rig: Rig, jobs: int) -> tuple[array[int], array[int]]:
    """What each take took, and each ack with its lookup."""
    take, find, ack = rig.engine.take, rig.find, rig.engine.ack
    tube, session = rig.tube, rig.consumer.session
    take_times, ack_times = array("q"), array("q")
    for i in range(jobs):
        now = rig.now + i // JOBS_PER_MS
        began = clock()
        job = take(session, tube, now)
        take_times.append(clock() - began)
        assert job is not None
        number = rig.number_of(job)
        began = clock()
        found = find(number, now)
        assert found is not None
        ack(session, found, now)
        # The last names go within the measure: freeing the job is part of its end.
        del job, found
        ack_times.append(clock() - began)
    assert tube.total() == 0
    return take_times, ack_times
