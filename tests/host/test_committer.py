"""Tasks that wait for the disk share one sync, in the loop while the disk is fast and in a thread while it is slow."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

import penstock
from penstock.core import policy
from penstock.core.errors import JournalFailed
from penstock.core.job import Draft
from penstock.embedded_async import AsyncQueue
from penstock.host.committer import Committer
from penstock.journal.recovery.opening import Opened, open_log
from penstock.node.sync_policy import INLINE_MAX_S
from penstock.testing.disk import MemoryDisk, MemoryFile
from tests.conformance.interfaces import PATIENCE_S, eventually


class SlowDisk(MemoryDisk):
    """A disk whose syncs take a given time, or until they are released. It records the threads that made them."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_s = 0.0
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()
        self.threads: list[int] = []

    def open_log(self) -> Opened:
        return open_log(self, lambda: 1_000, "boot", segment_bytes=1024 * 1024)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    sync = MemoryFile.sync

    def slow(file: MemoryFile) -> None:
        time.sleep(disk.takes_s)
        disk.begun.set()
        assert disk.goes_on.wait(PATIENCE_S)
        disk.threads.append(threading.get_ident())
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", slow)
    return disk


def committer_of(opened: Opened) -> Committer:
    return Committer(opened.log, lambda: opened.log.commit(1_000, 1_000))


def put(opened: Opened) -> int:
    engine = opened.engine
    engine.put(engine.create_tube(b"t", policy.DISQUE, 1_000), Draft(b"x"), 1_000)
    return opened.log.writer.position


async def put_and_wait(opened: Opened, committer: Committer) -> None:
    position = put(opened)
    await committer.durable(position)
    assert opened.log.durable >= position


def writes(disk: MemoryDisk) -> int:
    return sum(effect.what == "write" for effect in disk.effects)


async def test_tasks_of_one_pass_of_the_loop_share_one_frame_and_one_sync(disk: SlowDisk) -> None:
    opened = disk.open_log()
    committer = committer_of(opened)
    for _ in range(3):
        before, frames = len(disk.threads), writes(disk)
        await asyncio.gather(*(put_and_wait(opened, committer) for _ in range(50)))
        assert len(disk.threads) == before + 1
        assert writes(disk) == frames + 1


async def test_a_fast_disk_is_synced_in_the_loop_and_a_slow_one_in_a_thread(disk: SlowDisk) -> None:
    opened = disk.open_log()
    committer = committer_of(opened)
    here = threading.get_ident()
    disk.threads.clear()
    await put_and_wait(opened, committer)
    assert disk.threads == [here]
    disk.takes_s = INLINE_MAX_S * 20
    await put_and_wait(opened, committer)
    disk.threads.clear()
    await put_and_wait(opened, committer)
    assert disk.threads and here not in disk.threads
    disk.takes_s = 0.0
    tries = 0
    while disk.threads[-1] != here:
        # On a busy machine it may take a while until the average shows that the disk is fast again.
        await put_and_wait(opened, committer)
        tries += 1
        assert tries < 10_000


async def test_a_task_that_arrives_during_a_sync_waits_for_the_next_one(disk: SlowDisk) -> None:
    opened = disk.open_log()
    committer = committer_of(opened)
    committer.policy.average_s = 1.0
    disk.begun.clear()
    disk.goes_on.clear()
    disk.threads.clear()
    first = asyncio.ensure_future(put_and_wait(opened, committer))
    await eventually(disk.begun.is_set)
    later = [asyncio.ensure_future(put_and_wait(opened, committer)) for _ in range(5)]
    await asyncio.sleep(0)
    disk.goes_on.set()
    await asyncio.gather(first, *later)
    assert len(disk.threads) == 2


@pytest.mark.parametrize("average_s", [0.0, 1.0])
async def test_a_failed_sync_fails_all_waiting_tasks(disk: SlowDisk, average_s: float) -> None:
    opened = disk.open_log()
    committer = committer_of(opened)
    committer.policy.average_s = average_s
    disk.sync_error = OSError(errno.EIO, "broken")
    heard = await asyncio.gather(*(put_and_wait(opened, committer) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(error, JournalFailed) for error in heard)


async def test_a_cancelled_task_does_not_delay_the_others(disk: SlowDisk) -> None:
    opened = disk.open_log()
    committer = committer_of(opened)
    tasks = [asyncio.ensure_future(put_and_wait(opened, committer)) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks[1:])
    assert tasks[0].cancelled()


def test_a_queue_keeps_no_loop_alive_that_used_it(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

        async def work() -> None:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            tube = await AsyncQueue(queue).tube("t")
            await tube.put("x")

        asyncio.run(work())
        gc.collect()
        assert loops[0]() is None


async def test_an_interrupt_of_the_loop_leaves_no_task_waiting_for_ever(disk: SlowDisk) -> None:
    opened = disk.open_log()
    interrupts = [KeyboardInterrupt()]

    def commit() -> None:
        if interrupts:
            raise interrupts.pop()
        opened.log.commit(1_000, 1_000)

    committer = Committer(opened.log, commit)
    with pytest.raises(KeyboardInterrupt):
        committer.durable(put(opened))
        committer._begin()
    await asyncio.wait_for(put_and_wait(opened, committer), PATIENCE_S)
