"""What a waiting job takes beyond the bytes of its body: the growth of a fresh process with a million jobs.

Run as a module with a preset and a number of jobs, this file is that process: it prints the bytes a job.
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
    """One process each."""
    jobs = scale.jobs(1_000_000, 100_000)
    return [_trial(name, what, jobs) for name, what in _WHAT.items()]


def _trial(name: str, what: str, jobs: int) -> Trial:
    said = f"a waiting job beyond its {BODY_BYTES}-byte body, {what}"
    base = None if name == "fifo" else "memory/fifo"
    # Once: what a process allocates does not depend on how busy the machine is.
    return Trial((Spec(f"memory/{name}", said, Unit.BYTES, base, _GOAL),), partial(_prepare, name, jobs), rounds=1)


def _prepare(name: str, jobs: int) -> Sample:
    return lambda: child.figures("bench.memory", name, jobs)


def _resident_bytes() -> int:
    # Linux only: elsewhere the row says that it could not be measured.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _grow(name: str, jobs: int) -> float:
    rig = Rig(preset(name))
    # What the first jobs allocate once (code, caches, free lists) is not theirs.
    rig.fill(1_000)
    with server_gc():
        freeze()
        before = _resident_bytes()
        rig.fill(jobs)
        return (_resident_bytes() - before) / jobs - BODY_BYTES


if __name__ == "__main__":
    print(_grow(sys.argv[1], int(sys.argv[2])))
