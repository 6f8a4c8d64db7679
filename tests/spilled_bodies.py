"""Moves the body of a job to disk, as the log does when memory is short."""

from __future__ import annotations

from penstock.core.engine import Engine
from penstock.core.job import BodyRef, Job


def spill(engine: Engine, job: Job, file: int, offset: int) -> None:
    """Replace the body of a job by a reference to a place in a file, which need not exist."""
    length = job.body_length()
    engine.resident_bytes -= length
    engine.tube_of(job).spilled += 1
    job.body = BodyRef(file, offset, length, 0)
