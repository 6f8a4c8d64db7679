"""The longest single call while millions of jobs come and go: what a client may have to wait for the engine at worst.

Every call is timed. The run with the shortest of these counts: what the engine does takes as long each time, what
other processes do to the machine does not.
"""

from __future__ import annotations

from bench.clock import clock
from bench.rig import JOBS_PER_MS, Rig
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Trial
from penstock.core.policy import FIFOTTL

_GOAL = Goal(5)


def trials(scale: Scale) -> list[Trial]:
    """The collector as the server keeps it; and untouched, as an embedded queue finds it."""
    jobs = scale.jobs(5_000_000, 500_000)
    jobs_gc = scale.jobs(500_000, 100_000)
    with_gc = f"the longest call of {jobs_gc:,} jobs, the host's garbage collector untouched"
    return [
        Trial(
            (
                Spec("pauses/put", f"the longest put of {jobs:,} jobs, fifottl", Unit.MS, goal=_GOAL),
                Spec("pauses/take", "the longest take of them", Unit.MS, goal=_GOAL),
                Spec("pauses/ack", "the longest ack of them", Unit.MS, goal=_GOAL),
            ),
            lambda: lambda: _fill_and_drain(Rig(FIFOTTL), jobs),
            scale.rounds_long,
        ),
        Trial(
            (Spec("pauses/any+gc", with_gc, Unit.MS),),
            lambda: lambda: [max(_fill_and_drain(Rig(FIFOTTL), jobs_gc))],
            1 if scale.quick else scale.rounds_long,
            host_gc=True,
        ),
    ]


def _fill_and_drain(rig: Rig, jobs: int) -> list[float]:
    """The longest put, take and ack in ms."""
    put, take, find, ack = rig.engine.put, rig.engine.take, rig.find, rig.engine.ack
    tube, session = rig.tube, rig.consumer.session
    worst_put = worst_take = worst_ack = 0
    for i, draft in enumerate(rig.drafts(jobs)):
        now = rig.now + i // JOBS_PER_MS
        began = clock()
        put(tube, draft, now)
        took = clock() - began
        if took > worst_put:
            worst_put = took
    rig.now = now
    for i in range(jobs):
        now = rig.now + i // JOBS_PER_MS
        began = clock()
        job = take(session, tube, now)
        took = clock() - began
        if took > worst_take:
            worst_take = took
        assert job is not None
        number = rig.number_of(job)
        began = clock()
        found = find(number, now)
        assert found is not None
        ack(session, found, now)
        # The last name goes within the measure: freeing the job is part of its end.
        del job, found
        took = clock() - began
        if took > worst_ack:
            worst_ack = took
    assert tube.total() == 0
    return [worst_put / 1e6, worst_take / 1e6, worst_ack / 1e6]
