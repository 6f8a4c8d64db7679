"""Memory of a waiting job in addition to its body: the growth of a new process with a million jobs.

This file is also the program of that process. Run with a preset and a number of jobs, it prints the bytes per job.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from bench import child
from bench.clock import freeze, server_gc
from bench.rig import BODY_BYTES, Rig
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.policy import preset

_GOAL = Goal(260)
_WHAT = {
    "fifo": "fifo",
    "fifottl": "fifottl with a priority and a ttl",
    "utube": "utube with 1,000 keys",
    "disque": "disque",
}


def trials(scale: Scale) -> list[Trial]:
    """Return a trial for each preset. Each sample starts a process."""
    jobs = scale.jobs(1_000_000, 100_000)
    return [_trial(name, what, jobs) for name, what in _WHAT.items()]


def _trial(name: str, what: str, jobs: int) -> Trial:
    said = f"a waiting job without its {BODY_BYTES}-byte body, {what}"
    base = None if name == "fifo" else "memory/fifo"
    # One sample, because the memory of a process does not depend on the load of the machine.
    return Trial((Spec(f"memory/{name}", said, Unit.BYTES, base, _GOAL),), partial(_prepare, name, jobs), rounds=1)


def _prepare(name: str, jobs: int) -> Sample:
    return lambda: child.figures("bench.memory", name, jobs)


def _resident_bytes() -> int:
    # Linux only. On other systems the row is reported as not measured.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _grow(name: str, jobs: int) -> float:
    rig = Rig(preset(name))
    # One-time allocations by the first jobs (code, caches, free lists) are not counted.
    rig.fill(1_000)
    with server_gc():
        freeze()
        before = _resident_bytes()
        rig.fill(jobs)
        return (_resident_bytes() - before) / jobs - BODY_BYTES


if __name__ == "__main__":
    print(_grow(sys.argv[1], int(sys.argv[2])))
