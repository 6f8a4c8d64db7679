"""Temporary queue directories. They are removed when the last reference is dropped, or at the end of the process."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache

from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.host.clock import wall_ms
from penstock.host.host import boot_id
from penstock.journal.log import NEVER_SYNC
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.opening import Opened, open_log

Directory = tempfile.TemporaryDirectory[str]

BODY_BYTES = 100
BATCH = 1_000  # Jobs per frame in directories that are filled in advance.

_SOURCE = bytes(BODY_BYTES + 1)


def body() -> bytes:
    """Return a new body object."""
    return _SOURCE[1:]


def fresh() -> Directory:
    """Return a new empty directory."""
    return tempfile.TemporaryDirectory(prefix="penstock-bench-")


def copy_of(directory: Directory) -> Directory:
    """Return a copy of a directory."""
    other = fresh()
    shutil.copytree(directory.name, other.name, dirs_exist_ok=True)
    return other


def open_engine(directory: Directory) -> Opened:
    """Return an engine with its log, without lock and maintenance."""
    return open_log(RealDisk(directory.name), wall_ms, boot_id(), fsync=NEVER_SYNC)


def close_engine(opened: Opened) -> None:
    """Close the log cleanly."""
    opened.log.close(opened.engine.now, wall_ms())


@cache
def filled(jobs: int) -> Directory:
    """Return a directory with a log of puts into one fifo and no snapshot. Callers that change it use a copy."""
    directory = fresh()
    opened = open_engine(directory)
    engine, log = opened.engine, opened.log
    now = engine.now
    tube = engine.create_tube(b"bench", FIFO, now)
    for _ in range(jobs // BATCH):
        engine.put_many(tube, [Draft(body()) for _ in range(BATCH)], now)
        log.commit(now, now)
    close_engine(opened)
    return directory


def worked(jobs: int, rows: int, hours: int = 0) -> tuple[Directory, list[int]]:
    """Return a directory with a log of jobs that were put, taken and acked, and the ids of the jobs.

    The events are spread evenly over the last `hours` hours.
    """
    directory = fresh()
    span_ms = hours * 3_600_000
    opened = open_log(RealDisk(directory.name), lambda: wall_ms() - span_ms, boot_id(), fsync=NEVER_SYNC)
    engine, log, first = opened.engine, opened.log, opened.engine.now
    tube = engine.create_tube(b"bench", FIFO, first)
    session = engine.connect(b"consumer of bench").session
    finished: list[int] = []
    for batch in range(jobs // rows):
        now = first + span_ms * batch * rows // jobs
        finished += [job.id for job in engine.put_many(tube, [Draft(body()) for _ in range(rows)], now)]
        log.commit(now, now)
        taken = engine.take_many(session, [tube], rows, now)
        log.commit(now, now)
        for job in taken:
            engine.ack(session, job, now)
        log.commit(now, now)
    close_engine(opened)
    return directory, finished
