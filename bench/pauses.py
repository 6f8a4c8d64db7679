"""The longest single call among millions of jobs: the longest time that a client may have to wait for the engine.

Every call is timed in several runs. Only its shortest time counts (`Repeated`), to exclude delays by other processes.
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
    """Return trials with the collector of the server, and with the default collector of an embedded queue."""
    jobs = scale.jobs(5_000_000, 500_000)
    jobs_gc = scale.jobs(500_000, 50_000)
    with_gc = f"the longest call of {jobs_gc:,} jobs, with the default garbage collector"
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
    """Return the time of each put."""
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
    """Return the times of each take, and of each ack with its lookup."""
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
        # The last references are dropped within the measurement, because freeing the job is part of the ack.
        del job, found
        ack_times.append(clock() - began)
    assert tube.total() == 0
    return take_times, ack_times
