"""Subscriptions: every change of a job in order, delivered by a separate thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest

from .interfaces import Interface, another, code_of, eventually, settled


async def test_every_change_is_delivered_in_order(queue: Any) -> None:
    told: list[Any] = []
    await settled(queue.subscribe(told.append))
    tube = await queue.tube("changes")
    job = await tube.put("x")
    await (await tube.take()).release(delay=60)
    await job.restart()
    async with await tube.take():
        pass
    await eventually(lambda: len(told) == 6)
    assert [(change.event, change.before, change.after) for change in told] == [
        ("put", "gone", "ready"),
        ("taken", "ready", "taken"),
        ("postponed", "taken", "delayed"),
        ("restarted", "delayed", "ready"),
        ("taken", "ready", "taken"),
        ("acked", "taken", "gone"),
    ]
    assert {(change.id, change.tube) for change in told} == {(job.id, "changes")}
    assert all(abs(change.time - time.time()) < 60 for change in told)


async def test_changes_by_timers_are_delivered(queue: Any) -> None:
    told: list[Any] = []
    await settled(queue.subscribe(told.append))
    tube = await queue.tube("due", retry="1x then bury")
    await tube.put("x", delay=0.01, ttr=0.01, ttl=60)
    await tube.take(timeout=None)
    assert await tube.take(timeout=0.05) is None
    await eventually(lambda: len(told) == 5)
    assert [change.event for change in told] == ["put delayed", "delay passed", "taken", "ttr passed", "exhausted"]


async def test_a_subscription_to_a_tube_has_only_its_own_jobs(queue: Any) -> None:
    here, there = await queue.tube("here"), await queue.tube("there")
    told: list[Any] = []
    all_told: list[Any] = []
    await settled(here.subscribe(told.append))
    await settled(queue.subscribe(all_told.append))
    await there.put("x")
    job = await here.put("y")
    await job.move(there)
    await eventually(lambda: len(all_told) == 4 and len(told) == 2)
    assert [(change.tube, change.event) for change in told] == [("here", "put"), ("here", "moved out")]


async def test_changes_by_other_sessions_are_delivered(queue: Any) -> None:
    told: list[Any] = []
    # A server may still finish work of an earlier scenario in other tubes.
    await settled(queue.subscribe(lambda change: told.append(change) if change.tube == "x" else None))
    other = await another(queue)
    await (await other.tube("x", "fifo")).put("x")
    await (await other.tube("x")).take()
    await other.close()
    await eventually(lambda: len(told) == 3)
    assert [change.event for change in told] == ["put", "taken", "disconnected"]


async def test_a_subscription_ends_when_it_is_cancelled(queue: Any) -> None:
    told: list[Any] = []
    rest: list[Any] = []
    cancel = await settled(queue.subscribe(told.append))
    await settled(queue.subscribe(rest.append))
    tube = await queue.tube("cancel")
    await tube.put(1)
    await eventually(lambda: len(told) == 1)
    await settled(cancel())
    await settled(cancel())
    await tube.put(2)
    await eventually(lambda: len(rest) == 2)
    assert len(told) == 1


async def test_a_subscriber_may_use_the_queue(queue: Any) -> None:
    tube, copies = await queue.tube("original"), await queue.tube("copies")
    loop = asyncio.get_running_loop()
    await settled(tube.subscribe(lambda change: asyncio.run_coroutine_threadsafe(copies.put(change.event), loop)))
    await tube.put("x")
    assert (await copies.take(timeout=None)).body == "put"


async def test_subscribers_run_in_a_thread_that_is_not_the_callers(queue: Any, face: Interface) -> None:
    if not face.is_live:
        pytest.skip("a client for asyncio tells them in its loop")
    threads: list[Any] = []
    await settled(queue.subscribe(lambda change: threads.append(threading.current_thread())))
    tube = await queue.tube("thread")
    await tube.put_many([1, 2])
    await eventually(lambda: len(threads) == 2)
    assert len(set(threads)) == 1 and threads[0] is not threading.current_thread() and threads[0].daemon


async def test_a_failing_subscriber_only_causes_a_warning(queue: Any) -> None:
    def fail(change: Any) -> None:
        raise ValueError("mine")

    told: list[Any] = []
    cancel = await settled(queue.subscribe(fail))
    await settled(queue.subscribe(told.append))
    tube = await queue.tube("failing")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        await tube.put("x")
        assert (await tube.take()).body == "x"
        await eventually(lambda: len(told) == 2 and len(caught) == 2)
        await settled(cancel())
    assert [warning.category for warning in caught] == [RuntimeWarning] * 2
    assert "ValueError('mine')" in str(caught[0].message)


def test_a_failing_subscriber_is_harmless_even_if_warnings_are_errors() -> None:
    script = (
        "import penstock, threading\n"
        "told = threading.Semaphore(0)\n"
        "queue = penstock.open()\n"
        "queue.subscribe(lambda change: 1 / 0)\n"
        "queue.subscribe(lambda change: told.release())\n"
        "queue.tube('x').put_many([1, 2])\n"
        "print(told.acquire(timeout=20) and told.acquire(timeout=20))\n"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).stdout == b"True\n"


async def test_changes_before_the_close_are_delivered(queue: Any, face: Interface) -> None:
    if not face.is_live:
        pytest.skip("a client that is closed hears no more")
    told: list[Any] = []
    await settled(queue.subscribe(told.append))
    tube = await queue.tube("close", "fifo")
    await tube.put("x")
    await tube.take()
    await queue.close()
    await eventually(lambda: len(told) == 3)
    assert [change.event for change in told] == ["put", "taken", "disconnected"]


async def test_a_closed_queue_and_a_dropped_tube_take_no_subscribers(queue: Any) -> None:
    async def subscribed(where: Any) -> Any:
        return await settled(where.subscribe(print))

    tube = await queue.tube("dropped")
    await tube.drop()
    assert await code_of(subscribed(tube)) == "NOTUBE"
    await queue.close()
    assert await code_of(subscribed(queue)) == "CLOSED"
