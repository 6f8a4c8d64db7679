"""Directories to measure in. They are removed when nobody refers to them any more, at the latest at the end."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache

from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.host.host import boot_id
from penstock.host.ledger import wall_ms
from penstock.journal.disk import RealDisk
from penstock.journal.log import NEVER_SYNC
from penstock.journal.recovery import Opened, open_log

Directory = tempfile.TemporaryDirectory[str]

BODY_BYTES = 100
BATCH = 1_000  # Jobs that one frame holds in a directory that is filled beforehand.

_SOURCE = bytes(BODY_BYTES + 1)


def body() -> bytes:
    """A body that no other job has."""
    return _SOURCE[1:]


def fresh() -> Directory:
    """A directory with nothing in it."""
    return tempfile.TemporaryDirectory(prefix="penstock-bench-")


def copy_of(directory: Directory) -> Directory:
    """Another directory with the same files."""
    other = fresh()
    shutil.copytree(directory.name, other.name, dirs_exist_ok=True)
    return other


def open_engine(directory: Directory) -> Opened:
    """An engine with its log, and nothing else: no lock, no maintenance."""
    return open_log(RealDisk(directory.name), wall_ms, boot_id(), fsync=NEVER_SYNC)


def close_engine(opened: Opened) -> None:
    """Close the log in order."""
    opened.log.close(opened.engine.now, wall_ms())


@cache
def filled(jobs: int) -> Directory:
    """The log of so many puts into one fifo, with no snapshot. Those who change it use a copy."""
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


def worked(jobs: int, rows: int) -> tuple[Directory, list[int]]:
    """The log of so many jobs that were put, taken and acked, with so many rows a frame; and which jobs they were."""
    directory = fresh()
    opened = open_engine(directory)
    engine, log, now = opened.engine, opened.log, opened.engine.now
    tube = engine.create_tube(b"bench", FIFO, now)
    session = engine.connect(b"consumer of bench").session
    finished: list[int] = []
    for _ in range(jobs // rows):
        finished += [job.id for job in engine.put_many(tube, [Draft(body()) for _ in range(rows)], now)]
        log.commit(now, now)
        taken = engine.take_many(session, [tube], rows, now)
        log.commit(now, now)
        for job in taken:
            engine.ack(session, job, now)
        log.commit(now, now)
    close_engine(opened)
    return directory, finished
