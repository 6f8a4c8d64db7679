"""Fifty concurrent producers that wait for a sync with each put, compared with a bare loop that writes the same bytes.

The bare loop repeats the groups of the run: the same number of syncs, each after the same number of bytes. Its file is
allocated but not written. All segments of a queue except the first are filled with zeros in advance, which makes syncs
faster. A second bare loop therefore uses such a file. The difference to this loop is the cost of the queue.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bench.clock import clock
from bench.journal.directory import Directory, body, fresh
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.job import Draft
from penstock.embedded import Queue
from penstock.embedded_async import AsyncQueue
from penstock.host.host import Host, Store
from penstock.host.session import Session
from penstock.journal.log import ALWAYS, SEGMENT_BYTES
from penstock.journal.real_disk import RealDisk, RealFile

_PUTTERS = 50
_PUTS = 40  # Per producer and sample.
# Samples that are not counted. The queue syncs in a thread if syncs take long on average (`host/committer.py`), and the
# average starts at 0.
_WARM_UP = 5


def trials(scale: Scale) -> list[Trial]:
    """Return trials of turns without clients, of tasks of one event loop, and of threads."""
    puts = scale.calls(_PUTS)
    return [
        Trial(
            _specs("turns", "puts of the engine: one commit, one sync", Goal(0.7, Of.RATIO)),
            partial(_prepare, _Turns, puts),
        ),
        Trial(_specs("tasks", "asyncio tasks put, each waits for its sync", None), partial(_prepare, _Tasks, puts)),
        Trial(_specs("threads", "threads put, each waits for its sync", None), partial(_prepare, _Threads, puts)),
    ]


def _specs(name: str, who: str, goal: Goal | None) -> tuple[Spec, ...]:
    bare = f"journal/bare-{name}"
    return (
        Spec(bare, f"the bytes of always-{name}, in its groups, by pwrite + fdatasync", Unit.PUTS),
        Spec(f"journal/filled-{name}", "the same, into a file that was filled with zeros", Unit.PUTS, bare),
        Spec(
            f"journal/always-{name}",
            f"{_PUTTERS} {who}",
            Unit.PUTS,
            bare,
            goal,
        ),
        Spec(f"journal/group-{name}", "bytes per sync, at least", Unit.BYTES),
    )


def _prepare(kind: Callable[[Queue, int], Putters], puts: int) -> Sample:
    directory = fresh()
    disk = _WatchedDisk(directory.name)
    putters = kind(Queue(Session(Host(0, store=Store(disk, ALWAYS)))), puts)
    bare, filled = _BareFile(directory, filled=False), _BareFile(directory, filled=True)
    for _ in range(_WARM_UP):
        putters.put_all()

    def sample() -> list[float]:
        disk.groups.clear()
        began = clock()
        putters.put_all()
        took = clock() - began
        rates = [_PUTTERS * puts / ns * 1e9 for ns in (bare.write(disk.groups), filled.write(disk.groups), took)]
        return [*rates, sum(disk.groups) / len(disk.groups)]

    return sample


class Putters(Protocol):
    """The concurrent producers."""

    def put_all(self) -> None:
        """Let each producer put its jobs. Return when all have finished."""


class _Turns:
    """Turns like those of a server, without clients: a put for each client, one commit, one sync."""

    def __init__(self, queue: Queue, puts: int) -> None:
        self._puts = puts
        self._tube = queue.tube("bench", "fifo")._core
        self._engine = queue._host.engine
        self._log = queue._host.require_journal().log

    def put_all(self) -> None:
        engine, log = self._engine, self._log
        for _ in range(self._puts):
            for _ in range(_PUTTERS):
                engine.put(self._tube, Draft(body()), engine.now)
            log.commit(engine.now, engine.now)
            log.make_durable(log.written)
            engine.room_bytes = log.room()


class _Tasks:
    """Tasks of one event loop."""

    def __init__(self, queue: Queue, puts: int) -> None:
        self._runner = asyncio.Runner()
        self._puts = puts
        self._tube = self._runner.run(AsyncQueue(queue).tube("bench", "fifo"))

    def put_all(self) -> None:
        self._runner.run(self._all())

    async def _all(self) -> None:
        await asyncio.gather(*(self._one() for _ in range(_PUTTERS)))

    async def _one(self) -> None:
        for _ in range(self._puts):
            await self._tube.put(body())


class _Threads:
    """Threads. They are kept between samples, because starting them is not measured."""

    def __init__(self, queue: Queue, puts: int) -> None:
        self._puts = puts
        self._tube = queue.tube("bench", "fifo")
        self._begin = threading.Barrier(_PUTTERS + 1)
        self._end = threading.Barrier(_PUTTERS + 1)
        for _ in range(_PUTTERS):
            threading.Thread(target=self._one, daemon=True).start()

    def put_all(self) -> None:
        self._begin.wait()
        self._end.wait()

    def _one(self) -> None:
        while True:
            self._begin.wait()
            for _ in range(self._puts):
                self._tube.put(body())
            self._end.wait()


class _WatchedDisk(RealDisk):
    """A disk that records the bytes of each sync."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.groups: list[int] = []

    def create(self, name: str, size: int, head: bytes) -> RealFile:
        return _WatchedFile(super().create(name, size, head), len(head), self.groups)


class _WatchedFile(RealFile):
    """A segment of the disk."""

    def __init__(self, file: RealFile, end: int, groups: list[int]) -> None:
        super().__init__(file._fd)
        file._fd = -1  # This object owns the descriptor now. The other file must not close it.
        self._groups = groups
        self._end = self._synced = end

    def write(self, offset: int, data: bytes) -> None:
        super().write(offset, data)
        self._end = offset + len(data)

    def sync(self) -> None:
        end = self._end
        super().sync()
        self._groups.append(end - self._synced)
        self._synced = end


class _BareFile:
    """A file of the size of a segment, created in the same way."""

    def __init__(self, directory: Directory, filled: bool) -> None:
        self._directory = directory
        self._fill_steps = filled
        self._source = os.urandom(SEGMENT_BYTES)
        self._fd = -1
        self._offset = SEGMENT_BYTES

    def write(self, groups: list[int]) -> int:
        """Write and sync groups of these sizes. Return the time in ns."""
        if self._offset + sum(groups) > SEGMENT_BYTES:
            self._make()
        parts = [self._source[:length] for length in groups]
        offset, descriptor = self._offset, self._fd
        began = clock()
        for part in parts:
            os.pwrite(descriptor, part, offset)
            os.fdatasync(descriptor)
            offset += len(part)
        took = clock() - began
        self._offset = offset
        return took

    def _make(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        name = "filled" if self._fill_steps else "bare"
        self._fd = os.open(os.path.join(self._directory.name, name), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.posix_fallocate(self._fd, 0, SEGMENT_BYTES)
        if self._fill_steps:
            os.pwrite(self._fd, bytes(SEGMENT_BYTES), 0)
        os.fsync(self._fd)
        self._offset = 0
