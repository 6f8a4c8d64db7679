"""CPU time of an idle server with a million delayed jobs that are not due."""

from __future__ import annotations

import time
from functools import partial

from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.filling import fill
from bench.trial import Sample, Trial

_SECONDS = 10.0
_PERCENT_MAX = 1.0


def trials(scale: Scale) -> list[Trial]:
    """Return the trial."""
    jobs = scale.jobs(1_000_000, 100_000)
    what = f"CPU time of an idle server with {jobs:,} delayed jobs in {_SECONDS:.0f} s"
    return [Trial((Spec("server/idle", what, Unit.PERCENT, goal=Goal(_PERCENT_MAX)),), partial(_prepare, jobs), 1)]


def _prepare(jobs: int) -> Sample:
    server = processes.penstock()
    fill(server, "later", jobs, "DELAY", 3_600)

    def sample() -> list[float]:
        before = server.cpu_s()
        time.sleep(_SECONDS)
        return [(server.cpu_s() - before) / _SECONDS * 100]

    return sample
