"""More jobs than the memory limit allows: bodies are kept on disk until they are needed.

`spilling.py` is the measured process. If a job is out of order or damaged, the process fails and its rows have no
figures.
"""

from __future__ import annotations

from functools import partial

from bench import child
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial

BODY_BYTES = 4_096
MB = 1024 * 1024
_LIMIT_MB_MIN = 16  # A smaller limit would be close to the memory of file buffers and indexes.


def trials(scale: Scale) -> list[Trial]:
    """Return trials of eight times the memory limit (four times in the short form), and of few jobs without a limit."""
    jobs = scale.jobs(524_288, 16_384)
    kept_jobs = scale.jobs(16_384, 4_096)
    limit_mb = max(_LIMIT_MB_MIN, jobs * BODY_BYTES // 8 // MB)
    many, few = (f"{count * BODY_BYTES / MB:,.0f} MB of {BODY_BYTES:,}-byte jobs" for count in (jobs, kept_jobs))
    take = "take + ack of them"
    return [
        Trial(
            (
                Spec("journal/kept-put", f"put {few}, fsync=never, no limit", Unit.MB_RATE),
                Spec("journal/kept-take", take, Unit.MB_RATE),
                Spec("journal/kept-memory", "growth of the process", Unit.MB),
            ),
            partial(_prepare, kept_jobs, 0),
            scale.rounds_long,
        ),
        Trial(
            (
                Spec(
                    "journal/spill-put", f"put {many} within {limit_mb} MB of memory", Unit.MB_RATE, "journal/kept-put"
                ),
                Spec("journal/spill-take", f"{take}, in order", Unit.MB_RATE, "journal/kept-take"),
                Spec("journal/spill-memory", "growth of the process", Unit.MB, goal=Goal(limit_mb)),
            ),
            partial(_prepare, jobs, limit_mb),
            1,
        ),
    ]


def _prepare(jobs: int, limit_mb: int) -> Sample:
    return lambda: child.figures("bench.journal.spilling", jobs, limit_mb)
