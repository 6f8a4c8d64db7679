"""Taking: which job is delivered to which client, and which events wake a waiting take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .interfaces import Interface, another, code_of, eventually, state_of


async def test_a_take_from_an_empty_tube_returns_none_at_once(queue: Any) -> None:
    tube = await queue.tube("empty")
    assert await tube.take() is None and await tube.take_many(3) == []
    assert await queue.take([tube]) == []


async def test_a_take_returns_none_at_its_timeout(queue: Any, face: Interface) -> None:
    tube = await queue.tube("empty")
    assert await tube.take(timeout=0.02) is None
    assert await tube.take(0.02) is None
    assert await tube.take_many(3, 0.02) == []
    assert await queue.take([tube, tube], timeout=0.02) == []
    assert face.waiting(queue) == 0


async def test_a_taken_job_has_one_delivery_and_is_not_delivered_again(queue: Any) -> None:
    tube = await queue.tube("one")
    put = await tube.put("x")
    job = await tube.take()
    assert job == put and (await state_of(job), job.deliveries) == ("taken", 1)
    assert await tube.take() is None


async def test_takes_that_wait_are_served_first_come_first_served(queue: Any, face: Interface) -> None:
    tube = await queue.tube("line")
    takes = []
    for number in range(3):
        takes.append(asyncio.ensure_future(tube.take(timeout=None)))
        await eventually(lambda number=number: face.waiting(queue) == number + 1)
    for body in ("first", "second", "third"):
        await tube.put(body)
    assert [job.body for job in await asyncio.gather(*takes)] == ["first", "second", "third"]


async def test_a_waiting_take_is_served_by_everything_that_makes_a_job_ready(queue: Any, face: Interface) -> None:
    tube, elsewhere = await queue.tube("wakers", "fifottl"), await queue.tube("elsewhere", "fifottl")
    job = await tube.put("put")

    async def release() -> None:
        await job.release()

    async def nack() -> None:
        await job.nack()

    async def kick() -> None:
        await job.bury()
        assert await tube.kick() == 1

    async def restart() -> None:
        await job.done("result")
        await job.restart()

    async def switch() -> None:
        await job.bury()
        await job.switch("ready")

    async def move() -> None:
        await job.move(elsewhere)
        await job.move(tube)

    async def release_all() -> None:
        assert await tube.release_all() == 1

    async def delay() -> None:
        await job.release(delay=0.02)

    assert await tube.take() == job
    for cause in (release, nack, job.requeue, job.snatch, kick, restart, switch, move, release_all, delay):
        take = asyncio.ensure_future(tube.take(timeout=None))
        await eventually(lambda: face.waiting(queue) == 1)
        await cause()
        assert await take == job, cause
        assert await state_of(job) == "taken"


async def test_take_many_takes_up_to_the_count_in_order(queue: Any) -> None:
    tube = await queue.tube("many")
    await tube.put_many(range(5))
    assert [job.body for job in await tube.take_many(3)] == [0, 1, 2]
    assert [job.body for job in await tube.take_many(3)] == [3, 4]


async def test_a_waiting_take_many_returns_when_the_first_job_arrives(queue: Any, face: Interface) -> None:
    tube = await queue.tube("many")
    take = asyncio.ensure_future(tube.take_many(3, timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await tube.put_many([1, 2])
    assert [job.body for job in await take] == [1, 2]


async def test_a_ttr_given_to_a_take_holds_for_this_delivery_only(queue: Any) -> None:
    tube = await queue.tube("ttr", "fifottl")
    put = await tube.put("x", ttr=60)
    assert await tube.take(ttr=0.02) == put
    job = await tube.take(timeout=None, ttr=30)
    assert job == put and job.deliveries == 2
    meta = await job.meta()
    assert 25 < meta["wakes"] - meta["now"] <= 30 and meta["ttr"] == 60
    await job.release()
    [job] = await tube.take_many(1)
    meta = await job.meta()
    assert 55 < meta["wakes"] - meta["now"] <= 60


async def test_a_ttr_given_to_a_take_that_waits_holds_too(queue: Any, face: Interface) -> None:
    tube = await queue.tube("ttr")
    take = asyncio.ensure_future(tube.take(timeout=None, ttr=30))
    await eventually(lambda: face.waiting(queue) == 1)
    await tube.put("x")
    meta = await (await take).meta()
    assert 25 < meta["wakes"] - meta["now"] <= 30


# ---- Keys ------------------------------------------------------------------------------------------------------------


async def test_a_utube_never_hands_out_two_of_one_key(queue: Any) -> None:
    tube = await queue.tube("utube", "utube")
    for body, key in [(1, "a"), (2, "a"), (3, "b")]:
        await tube.put(body, key=key)
    first, second = await tube.take(), await tube.take()
    assert [first.body, second.body] == [1, 3] and await tube.take() is None
    take = asyncio.ensure_future(tube.take(timeout=None))
    await first.ack()
    assert (await take).body == 2


async def test_a_take_of_one_key_gets_that_key_only(queue: Any) -> None:
    for type in ("utube", "stube", "utubettl"):
        tube = await queue.tube(f"key {type}", type)
        await tube.put(1, key="a")
        await tube.put(2, key=b"b")
        assert await tube.take(key="c") is None
        job = await tube.take(key="b")
        assert job.body == 2 and (await job.meta())["key"] == "b", type
        assert await tube.take(key="b", timeout=0.01) is None


async def test_a_take_waits_for_its_key(queue: Any, face: Interface) -> None:
    tube = await queue.tube("stube", "stube")
    take = asyncio.ensure_future(tube.take(timeout=None, key="b"))
    any_take = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 2)
    await tube.put("of another key", key="a")
    await tube.put("of b", key="b")
    await tube.put("of none")
    assert (await take).body == "of b"
    assert (await any_take).body == "of none", "in a stube a take without a key gets the jobs without one"


async def test_fair_keys_are_served_in_turn(queue: Any) -> None:
    tube = await queue.tube("fair", "utube", fair=True, key_limit=10)
    for body, key in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")]:
        await tube.put(body, key=key)
    assert [job.body for job in await tube.take_many(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_raised_key_limit_serves_waiting_takes(queue: Any, face: Interface) -> None:
    tube = await queue.tube("limit", "utube")
    for body in (1, 2, 3):
        await tube.put(body, key="k")
    assert (await tube.take()).body == 1
    take = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await tube.alter(key_limit=2)
    assert (await take).body == 2
    assert await tube.take() is None


async def test_a_key_in_a_tube_without_keys_is_refused(queue: Any) -> None:
    tube = await queue.tube("plain")
    assert await code_of(tube.take(key="k")) == await code_of(tube.take_many(2, 1, key="k")) == "UNSUPPORTED"
    fifo = await queue.tube("fifo", "fifo")
    assert await code_of(fifo.take(ttr=5)) == "UNSUPPORTED"


# ---- Several tubes ---------------------------------------------------------------------------------------------------


async def test_several_tubes_are_served_one_of_each_in_turn(queue: Any) -> None:
    tubes = [await queue.tube(name) for name in "abc"]
    for tube, count in zip(tubes, [3, 1, 2], strict=True):
        await tube.put_many([f"{tube.name}{number}" for number in range(count)])
    jobs = await queue.take(tubes, count=10)
    assert [job.body for job in jobs] == ["a0", "b0", "c0", "a1", "c1", "a2"]
    assert [job.tube for job in jobs] == ["a", "b", "c", "a", "c", "a"]
    for job in jobs:
        await job.ack()


async def test_a_take_from_several_tubes_takes_one_unless_it_says_more(queue: Any) -> None:
    tubes = [await queue.tube(name) for name in "ab"]
    for tube in tubes:
        await tube.put(tube.name)
    assert [job.body for job in await queue.take(tubes[::-1])] == ["b"]
    assert [job.body for job in await queue.take(tubes, 5)] == ["a"]


async def test_a_take_waits_on_all_its_tubes_and_then_on_none(queue: Any, face: Interface) -> None:
    first, second = await queue.tube("a"), await queue.tube("b")
    take = asyncio.ensure_future(queue.take([first, second], timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await second.put("x")
    [job] = await take
    assert (job.body, job.tube) == ("x", "b")
    assert (await first.put("y")).state == "ready"


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
async def test_a_take_from_tubes_of_another_session_belongs_to_this_session(queue: Any, names: list[str]) -> None:
    other = await another(queue)
    tubes = [await other.tube(name) for name in names]
    await tubes[0].put_many([1, 2])
    [acked], [kept] = await queue.take(tubes), await queue.take(tubes)
    await acked.ack()
    await other.close()
    assert await state_of(kept) == "taken", "the session that took it is still there"
    await kept.ack()


# ---- The consumer loop -----------------------------------------------------------------------------------------------


async def test_iterating_a_tube_takes_jobs_for_ever(queue: Any) -> None:
    tube = await queue.tube("loop")
    await tube.put_many([1, 2])
    seen = []
    async for job in tube:
        async with job:
            seen.append(job.body)
        if job.body < 4:
            asyncio.get_running_loop().call_later(0.01, lambda n=job.body: asyncio.ensure_future(tube.put(n + 2)))
        if len(seen) == 4:
            break
    assert seen == [1, 2, 3, 4]


async def test_a_consumer_loop_ends_with_the_queue(queue: Any, face: Interface) -> None:
    tube = await queue.tube("loop")

    async def consume() -> None:
        async for job in tube:
            await job.ack()

    loop = asyncio.ensure_future(consume())
    await eventually(lambda: face.waiting(queue) == 1)
    await queue.close()
    assert await code_of(loop) == "CLOSED"
