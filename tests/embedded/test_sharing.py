"""Tasks of one pass of the loop share a frame. All other callers find its rows in the log."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import penstock
from penstock.embedded import Queue
from penstock.embedded_async import AsyncQueue, AsyncTube
from penstock.host.host import Host, Store
from penstock.host.session import Session
from penstock.journal.log import Log
from penstock.journal.room import RESERVE_BYTES
from penstock.journal.segment import FrameFile, segment_names
from penstock.testing.disk import MemoryDisk, MemoryFile
from tests.conformance.interfaces import code_of, eventually
from tests.journal.maintenance_waits import wait_for_rest

T = TypeVar("T")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def tube(disk: MemoryDisk) -> Iterator[AsyncTube]:
    queue = Queue(Session(Host(0, store=Store(disk))))
    queue.tube("t", "fifo")
    wait_for_rest(queue)
    tasks = AsyncQueue(queue)
    yield AsyncTube._of(tasks, tasks._inner.tube("t"))
    with contextlib.suppress(penstock.CommandError):
        queue.close()


def log_of(tube: AsyncTube) -> Log:
    return tube._queue._host.require_journal().log


def frames(disk: MemoryDisk) -> list[int]:
    """Return the lengths of all frames."""
    found: list[int] = []
    for name in segment_names(disk):
        with FrameFile(disk, name) as file:
            found += [frame.length for _, frame, _ in file.frames()]
    return found


async def half_way(call: Coroutine[Any, Any, T], tube: AsyncTube) -> asyncio.Task[T]:
    """Return a task that has made its call, and waits for the disk with rows that are not in the log yet."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    assert log_of(tube).written < log_of(tube).writer.position
    return task


async def test_tasks_of_one_turn_share_a_frame_and_it_is_durable_when_they_return(
    tube: AsyncTube, disk: MemoryDisk
) -> None:
    async def work(number: int) -> None:
        await tube.put(number)
        job = await tube.take()
        assert job is not None
        await job.ack()
        assert log_of(tube).durable == log_of(tube).writer.position

    before = len(frames(disk))
    await asyncio.gather(*(work(number) for number in range(50)))
    assert len(frames(disk)) == before + 3


async def test_a_shared_frame_has_a_limit(tube: AsyncTube, disk: MemoryDisk) -> None:
    await asyncio.gather(*(tube.put(os.urandom(100_000)) for _ in range(30)))
    assert max(frames(disk)) < RESERVE_BYTES // 4 + 110_000
    assert (await tube.stats())["ready"] == 30


async def test_a_thread_sees_only_changes_that_are_in_a_file(tube: AsyncTube) -> None:
    putting = await half_way(tube.put("x"), tube)
    assert tube.sync.stats()["ready"] == 1
    assert log_of(tube).durable == log_of(tube).writer.position
    await putting


async def test_a_waiting_take_that_a_task_serves_gets_a_durable_job(tube: AsyncTube) -> None:
    taking = asyncio.ensure_future(asyncio.to_thread(tube.sync.take, timeout=10))
    while not tube._inner._session.connection.waits:
        await asyncio.sleep(0.001)
    await tube.put("x")
    job = await taking
    assert job is not None and job.body == "x"
    assert log_of(tube).durable == log_of(tube).writer.position


async def test_history_includes_a_job_whose_newest_row_is_pending(tube: AsyncTube) -> None:
    job = await tube.put("x")
    taking = await half_way(tube.take(), tube)
    assert [event.event for event in job._inner.history()] == ["put"]
    await taking
    assert [event.event for event in await job.history()] == ["put", "taken"]


async def test_a_snapshot_that_is_taken_meanwhile_has_all_of_it(tube: AsyncTube, disk: MemoryDisk) -> None:
    putting = await half_way(tube.put("x"), tube)
    tube._queue.sync.checkpoint()
    await putting
    await tube._queue.close()
    with Queue(Session(Host(0, store=Store(disk)))) as again:
        assert [job.body for job in again.tube("t").jobs("ready")] == ["x"]


async def test_a_take_that_is_cancelled_before_its_row_is_written_is_undone(tube: AsyncTube) -> None:
    job = await tube.put("x")
    taking = await half_way(tube.take(), tube)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert (job.state, job.deliveries) == ("ready", 0)


async def test_a_put_that_is_cancelled_is_written_with_the_others(tube: AsyncTube) -> None:
    putting = await half_way(tube.put("cancelled"), tube)
    putting.cancel()
    await tube.put("x")
    assert [job.body for job in await tube.jobs("ready")] == ["cancelled", "x"]
    assert log_of(tube).durable == log_of(tube).writer.position


async def test_a_queue_that_is_closed_meanwhile_has_all_of_it(tube: AsyncTube, disk: MemoryDisk) -> None:
    putting = await half_way(tube.put("x"), tube)
    tube._queue.sync.close()
    await asyncio.wait_for(putting, 10)
    with Queue(Session(Host(0, store=Store(disk)))) as again:
        assert again.tube("t").stats()["ready"] == 1


@pytest.mark.parametrize("fails", ["write", "sync"])
@pytest.mark.parametrize("ends", ["by itself", "by a close"])
async def test_a_failed_disk_fails_all_tasks_that_share_a_frame(
    tube: AsyncTube, monkeypatch: pytest.MonkeyPatch, fails: str, ends: str
) -> None:
    def broken(file: MemoryFile, *_: object) -> None:
        raise OSError(errno.EIO, "broken")

    putting = [asyncio.ensure_future(code_of(tube.put("x"))) for _ in range(5)]
    await half_way(code_of(tube.put("x")), tube)
    monkeypatch.setattr(MemoryFile, fails, broken)
    if ends == "by a close":
        with pytest.raises(penstock.CommandError):
            tube._queue.sync.close()
    assert await asyncio.wait_for(asyncio.gather(*putting), 10) == ["JOURNALFAILED"] * 5


async def test_a_command_that_is_interrupted_half_way_is_not_written_with_those_of_others(
    tube: AsyncTube, disk: MemoryDisk
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    putting = await half_way(code_of(tube.put("whole")), tube)
    tube._queue._host.engine.watch = interrupt
    with pytest.raises(KeyboardInterrupt):
        tube.sync.put("half")
    assert await asyncio.wait_for(putting, 10) == "INTERRUPTED"


async def test_waiting_for_rows_that_will_never_be_written_fails(tube: AsyncTube) -> None:
    """For example in the child of a fork that continues with the loop."""
    putting = await half_way(code_of(tube.put("x")), tube)
    tube._queue._host.closed = True
    assert await asyncio.wait_for(putting, 10) == "CLOSED"
    tube._queue._host.closed = False


async def test_an_unused_queue_is_freed_while_the_loop_of_its_tasks_lives(tmp_path: Path) -> None:
    async def use_and_forget() -> None:
        queue = penstock.open_async(tmp_path)
        tube = await queue.tube("t")
        await asyncio.gather(*(tube.put("x") for _ in range(5)))

    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="was not closed") as warnings:
            await use_and_forget()
            # Maintenance keeps a reference while it works.
            await eventually(lambda: len(warnings))
    finally:
        gc.enable()
