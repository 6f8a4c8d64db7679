"""One queue, many tasks: cancelled takes, thousands of waiting takes, several loops, loops beside threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import penstock
from penstock.testing import check
from tests.conformance.interfaces import PATIENCE_S, AsyncFace, code_of, eventually, in_thread

from .stopped_clock import no_time_passes

FACE = AsyncFace()


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


# ---- Cancelled -------------------------------------------------------------------------------------------------------


async def test_a_cancelled_take_stops_waiting() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        take = asyncio.ensure_future(tube.take(timeout=None))
        await eventually(lambda: FACE.waiting(queue) == 1)
        take.cancel()
        await asyncio.wait([take])
        assert take.cancelled() and FACE.waiting(queue) == 0 and not queue.sync._host._sleepers
        assert (await tube.put("x")).state == "ready"


async def test_a_cancelled_take_returns_the_jobs_it_was_served_with() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x", max_deliveries=1)
        take = asyncio.ensure_future(tube.take_many(2, timeout=None))
        await eventually(lambda: FACE.waiting(queue) == 1)
        first, second = tube.sync.put_many([1, 2])
        assert (first.state, second.state) == ("taken", "taken")
        take.cancel()  # Before the task could see its jobs.
        await asyncio.wait([take])
        assert take.cancelled() and [first.state, second.state] == ["ready", "ready"]
        assert [first.deliveries, second.deliveries] == [0, 0]
        assert (await tube.events())["undelivered"] == 2


async def test_a_take_cancelled_by_wait_for_loses_no_job() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        served = 0
        for number in range(50):
            asyncio.get_running_loop().call_later(0.001 * (number % 3), tube.sync.put, number)
            try:
                job = await asyncio.wait_for(tube.take(timeout=None), 0.001)
                assert job is not None
                await job.ack()
                served += 1
            except TimeoutError:
                pass
        await eventually(lambda: sum(tube.sync.events().get(name, 0) for name in ("put",)) == 50)
        assert (await tube.stats())["taken"] == 0
        assert (await tube.stats())["ready"] + served == 50


async def test_a_cancelled_put_is_not_put_later() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x", capacity=1)
        there = await tube.put("x")
        put = asyncio.ensure_future(tube.put("y", timeout=None))
        await eventually(lambda: FACE.waiting(queue) == 1)
        put.cancel()
        await asyncio.wait([put])
        await there.delete()
        assert put.cancelled() and not any((await tube.stats()).values())


async def test_a_cancelled_wait_for_a_job_is_removed() -> None:
    async with penstock.open_async() as queue:
        job = await (await queue.tube("x")).put("x")
        wait = asyncio.ensure_future(job.wait())
        await eventually(lambda: FACE.waiting(queue) == 1)
        wait.cancel()
        await asyncio.wait([wait])
        assert FACE.waiting(queue) == 0
        await job.delete()
        check(queue.sync._host.engine)


async def test_a_cancelled_timekeeper_is_replaced() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        keeper = asyncio.ensure_future(tube.take(timeout=None))
        await eventually(lambda: FACE.waiting(queue) == 1)
        with no_time_passes(queue.sync):
            other = asyncio.ensure_future(tube.take(timeout=0.05))
            await eventually(lambda: FACE.waiting(queue) == 2)
        keeper.cancel()
        assert await asyncio.wait_for(other, 5) is None


async def test_a_consumer_loop_that_is_cancelled_gives_its_job_back() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        working = asyncio.Event()

        async def consume() -> None:
            async for job in tube:
                async with job:
                    working.set()
                    await asyncio.sleep(60)

        consumer = asyncio.ensure_future(consume())
        job = await tube.put("x")
        await working.wait()
        consumer.cancel()
        await asyncio.wait([consumer])
        assert consumer.cancelled() and job.state == "ready"


# ---- Many ------------------------------------------------------------------------------------------------------------


async def thousands(queues: list[penstock.AsyncQueue], count: int) -> None:
    tubes = [await queue.tube("x") for queue in queues]
    takes = [asyncio.ensure_future(tubes[number % len(tubes)].take(timeout=None)) for number in range(count)]
    await eventually(lambda: sum(FACE.waiting(queue) for queue in queues) == count or any(t.done() for t in takes))
    await tubes[0].put_many(range(count))
    bodies = set()
    for job in await asyncio.gather(*takes):
        bodies.add(job.body)
        await job.ack()
    assert bodies == set(range(count)) and not queues[0].sync._host._sleepers


async def test_thousands_of_tasks_may_wait_on_one_tube_in_one_session() -> None:
    async with penstock.open_async() as queue:
        await thousands([queue], 3_000)


async def test_thousands_of_tasks_may_wait_on_one_tube_in_several_sessions() -> None:
    async with penstock.open_async() as queue:
        await thousands([queue, *[await queue.session() for _ in range(3)]], 3_000)


async def test_a_take_that_waits_does_not_hold_the_loop_up() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        take = asyncio.ensure_future(tube.take(timeout=None))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not take.done()
        await tube.put("x")
        assert (await take) is not None


async def test_producers_and_consumers_in_tasks_lose_nothing() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x", capacity=10)
        seen: list[Any] = []

        async def produce(start: int) -> None:
            for number in range(start, start + 100):
                await tube.put(number, timeout=None)

        async def consume() -> None:
            async for job in tube:
                async with job:
                    seen.append(job.body)
                    await asyncio.sleep(0)

        consumers = [asyncio.ensure_future(consume()) for _ in range(5)]
        await asyncio.gather(*[produce(start) for start in (0, 100, 200)])
        await eventually(lambda: len(seen) == 300 and FACE.waiting(queue) == 5)
        await queue.close()
        assert [await code_of(consumer) for consumer in consumers] == ["CLOSED"] * 5
        assert sorted(seen) == list(range(300))


# ---- Several loops and threads ---------------------------------------------------------------------------------------


async def test_two_loops_on_one_queue_wake_each_other() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        with Loop() as other:
            there = other.run(tube.take(timeout=None))
            await eventually(lambda: FACE.waiting(queue) == 1)
            await tube.put("to there")
            assert (await there).body == "to there"
            here = asyncio.ensure_future(tube.take(timeout=None))
            await eventually(lambda: FACE.waiting(queue) == 1)
            await other.run(tube.put("to here"))
            assert (await here).body == "to here"


async def test_a_thread_and_a_loop_on_one_queue_wake_each_other() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        thread = asyncio.ensure_future(in_thread(tube.sync.take, timeout=None))
        await eventually(lambda: FACE.waiting(queue) == 1)
        await tube.put("to the thread")
        assert (await thread).body == "to the thread"
        task = asyncio.ensure_future(tube.take(timeout=None))
        await eventually(lambda: FACE.waiting(queue) == 1)
        await in_thread(tube.sync.put, "to the task")
        assert (await task).body == "to the task"


async def test_a_thread_and_a_loop_replace_each_other_as_timekeeper() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        in_turn: list[Callable[[float], Any]] = [
            lambda timeout: in_thread(tube.sync.take, timeout=timeout),
            lambda timeout: tube.take(timeout=timeout),
        ]
        for first, second in (in_turn, in_turn[::-1]):
            with no_time_passes(queue.sync):
                short = asyncio.ensure_future(first(0.05))
                await eventually(lambda: FACE.waiting(queue) == 1)
                long = asyncio.ensure_future(second(0.1))
                await eventually(lambda: FACE.waiting(queue) == 2)
            assert await asyncio.gather(short, long) == [None, None]


async def test_a_timeout_in_a_thread_does_not_depend_on_a_loop_that_is_busy() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        freed = threading.Event()
        with Loop() as busy:
            keeper = busy.run(tube.take(timeout=None))
            await eventually(lambda: FACE.waiting(queue) == 1)
            busy.loop.call_soon_threadsafe(freed.wait, 2 * PATIENCE_S)
            take = asyncio.ensure_future(in_thread(tube.sync.take, timeout=0.05))
            in_time, _ = await asyncio.wait([take], timeout=PATIENCE_S)
            freed.set()
            assert await take is None
            await tube.put("x")
            await keeper
        assert in_time, "it slept until another loop had time to wake it"


async def test_the_sync_and_the_async_interface_are_the_same_queue() -> None:
    async with penstock.open_async() as queue:
        tube = await queue.tube("x")
        job = queue.sync.tube("x").put("x")
        taken = await tube.take()
        assert taken.sync == job and taken.id == job.id
        job.ack()
        assert taken.state == "gone"
        assert await code_of(taken.ack()) == "NOJOB"
