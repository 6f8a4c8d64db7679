"""When the disk fails, all present and waiting calls fail."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.core.errors import JournalFailed
from penstock.embedded import Queue
from penstock.embedded_async import AsyncQueue
from penstock.host.host import Host, Store
from penstock.host.session import Session
from penstock.testing.disk import MemoryDisk
from tests.conformance.interfaces import PATIENCE_S, AsyncFace, code_of, eventually, in_thread


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def queue(disk: MemoryDisk) -> Iterator[Queue]:
    queue = Queue(Session(Host(0, store=Store(disk))))
    yield queue
    try:
        queue.close()
    except penstock.CommandError:
        pass  # Close fails, too, because durability can no longer be promised.


def fail(disk: MemoryDisk) -> None:
    disk.sync_error = OSError(errno.EIO, "the disk is broken")


async def test_the_call_that_could_not_be_made_durable_is_refused_and_all_after_it(
    queue: Queue, disk: MemoryDisk
) -> None:
    tube = queue.tube("x")
    fail(disk)
    for _ in range(2):
        assert await code_of(in_thread(tube.put, "x")) == "JOURNALFAILED"
    assert await code_of(in_thread(tube.take)) == await code_of(in_thread(queue.tubes)) == "JOURNALFAILED"


TIMEOUTS = pytest.mark.parametrize("timeouts", [(None, 30, 60), (None, None)], ids=["some end", "none ends"])


@TIMEOUTS
async def test_waiting_threads_fail_with_the_journal(
    queue: Queue, disk: MemoryDisk, timeouts: tuple[float | None, ...]
) -> None:
    tube, quiet = queue.tube("x"), queue.tube("quiet")
    sleepers = [asyncio.ensure_future(in_thread(quiet.take, timeout=timeout)) for timeout in timeouts]
    await eventually(lambda: len(queue._session.connection.waits) == len(timeouts))
    fail(disk)
    assert await code_of(in_thread(tube.put, "x")) == "JOURNALFAILED"
    await all_told(sleepers)


@TIMEOUTS
async def test_waiting_tasks_fail_with_the_journal(
    queue: Queue, disk: MemoryDisk, timeouts: tuple[float | None, ...]
) -> None:
    tasks = AsyncQueue(queue)
    tube, quiet = await tasks.tube("x"), await tasks.tube("quiet")
    sleepers = [asyncio.ensure_future(quiet.take(timeout=timeout)) for timeout in timeouts]
    await eventually(lambda: AsyncFace().waiting(tasks) == len(timeouts))
    fail(disk)
    assert await code_of(tube.put("x")) == "JOURNALFAILED"
    await all_told(sleepers)


async def all_told(sleepers: list[asyncio.Future[Any]]) -> None:
    _, asleep = await asyncio.wait(sleepers, timeout=PATIENCE_S)
    assert not asleep
    assert [await code_of(sleeper) for sleeper in sleepers] == ["JOURNALFAILED"] * len(sleepers)


# ---- Stopping the journal --------------------------------------------------------------------------------------------


def test_a_journal_that_cannot_be_stopped_fails_the_host_and_doubtful_jobs_are_not_delivered(
    disk: MemoryDisk,
) -> None:
    host = Host(0, store=Store(disk))
    tube = Queue(Session(host)).tube("x", "disque")
    tube.put("once", once=True)
    tube.put("more than once")
    fail(disk)
    with host.lock, pytest.raises(JournalFailed, match="the disk is broken"):
        host.stop_journal()
    with pytest.raises(JournalFailed):
        tube.take()
    with host.lock:
        host.close()
    disk.sync_error = None
    with Queue(Session(Host(0, store=Store(disk)))) as again:
        assert [job.body for job in again.tube("x").take_many(10)] == ["more than once"]


def test_a_journal_that_cannot_be_stopped_on_a_full_disk_continues(disk: MemoryDisk) -> None:
    host = Host(0, store=Store(disk))
    tube = Queue(Session(host)).tube("x")
    tube.put("before")
    disk.capacity = 0
    with host.lock, pytest.raises(OSError, match="no space left"):
        host.stop_journal()
    disk.capacity = None
    tube.put("after")
    with host.lock:
        host.close()
    with Queue(Session(Host(0, store=Store(disk)))) as again:
        assert [job.body for job in again.tube("x").take_many(10)] == ["before", "after"]
