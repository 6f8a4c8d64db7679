"""Full tubes: a put waits for room, first come, first served, and is refused when its time is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .interfaces import PATIENCE_S, Interface, another, code_of, eventually, state_of


async def waiting_puts(
    face: Interface, queue: Any, tube: Any, bodies: list[Any], **options: Any
) -> list[asyncio.Future[Any]]:
    """Start puts that wait, one after the other."""
    puts = []
    for number, body in enumerate(bodies, start=1 + face.waiting(queue)):
        puts.append(asyncio.ensure_future(tube.put(body, timeout=None, **options)))
        await eventually(lambda number=number: face.waiting(queue) == number)
    return puts


async def test_a_put_to_a_full_tube_is_refused_at_once_without_a_timeout(queue: Any) -> None:
    tube = await queue.tube("full", "limfifottl", capacity=2)
    await tube.put_many([1, 2])
    assert await code_of(tube.put(3)) == "FULL"
    assert (await tube.stats())["ready"] == 2


async def test_a_put_that_waited_its_timeout_is_refused(queue: Any, face: Interface) -> None:
    tube = await queue.tube("full", "limfifottl", capacity=1)
    await tube.put(1)
    assert await code_of(tube.put(2, timeout=0.03)) == "FULL"
    assert (await tube.stats())["ready"] == 1 and face.waiting(queue) == 0


async def test_jobs_in_every_state_count(queue: Any) -> None:
    tube = await queue.tube("states", "limfifottl", capacity=5, keep=True)
    await tube.put_many(["done", "buried", "taken"])
    done, buried, _ = await tube.take_many(3)
    await done.ack()
    await buried.bury()
    await tube.put("delayed", delay=60)
    await tube.put("ready")
    assert sorted((await tube.stats()).values()) == [0, 0, 1, 1, 1, 1, 1]
    assert await code_of(tube.put("one more")) == "FULL"


async def test_waiting_puts_get_in_first_come_first_served(queue: Any, face: Interface) -> None:
    tube = await queue.tube("line", "limfifottl", capacity=1)
    await tube.put("there")
    puts = await waiting_puts(face, queue, tube, ["first", "second", "third"])
    for expected in ["there", "first", "second", "third"]:
        job = await tube.take(timeout=None)
        assert job.body == expected
        await job.ack()
    assert [job.body for job in await asyncio.gather(*puts)] == ["first", "second", "third"]


async def test_a_later_put_does_not_overtake_waiting_puts(queue: Any, face: Interface) -> None:
    tube = await queue.tube("line", "limfifottl", capacity_bytes=10)
    await tube.put(b"12345678")
    [big] = await waiting_puts(face, queue, tube, [b"12345"])
    assert await code_of(tube.put(b"1")) == "FULL", "it would fit, but it is not its turn"
    await (await tube.take()).ack()
    assert (await big).state == "ready"
    await tube.put(b"1")


async def test_a_job_that_ends_in_any_way_makes_room(queue: Any, face: Interface) -> None:
    tube, elsewhere = await queue.tube("room", "limfifottl", capacity=1), await queue.tube("elsewhere")
    job = await tube.put("acked")
    for way in ("ack", "delete", "move", "truncate"):
        [put] = await waiting_puts(face, queue, tube, [way])
        if way == "ack":
            await (await tube.take()).ack()
        elif way == "delete":
            await job.delete()
        elif way == "move":
            await job.move(elsewhere)
        else:
            assert await tube.truncate() == 1
        job = await put
        assert job.body == way and await state_of(job) == "ready"


async def test_an_expired_job_makes_room_for_a_waiting_put(queue: Any) -> None:
    tube = await queue.tube("room", "limfifottl", capacity=1)
    await tube.put("short", ttl=0.03)
    assert (await tube.put("next", timeout=None)).body == "next"


async def test_the_job_of_a_waiting_put_goes_to_a_waiting_take(queue: Any, face: Interface) -> None:
    tube = await queue.tube("both", "limfifottl", capacity=1)
    first = await tube.put("first")
    assert await tube.take() == first
    taker = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    put = asyncio.ensure_future(tube.put("second", timeout=None))
    await eventually(lambda: face.waiting(queue) == 2)
    await first.ack()
    assert await taker == await put and (await taker).deliveries == 1


async def test_capacity_in_bytes_counts_bodies_as_they_are_now(queue: Any) -> None:
    tube = await queue.tube("bytes", capacity_bytes=10)
    await tube.put(b"123456")
    assert await code_of(tube.put(b"12345")) == "FULL"
    await tube.put(b"1234")
    assert await code_of(tube.put(b"1")) == "FULL"
    await tube.put(b"")
    await (await tube.take()).done(b"1")
    await tube.put(b"12345")
    assert await code_of(tube.put(b"1")) == "FULL"


async def test_a_body_that_can_never_fit_is_refused_at_once_instead_of_blocking_the_line(queue: Any) -> None:
    tube = await queue.tube("bytes", capacity_bytes=4)
    put = asyncio.ensure_future(tube.put(b"12345", timeout=60))
    done, _ = await asyncio.wait([put], timeout=PATIENCE_S)
    assert done, "it waits for room that can never be"
    assert await code_of(put) in ("FULL", "TOOBIG")


async def test_a_raised_capacity_lets_waiting_puts_in(queue: Any, face: Interface) -> None:
    tube = await queue.tube("raised", capacity=1, capacity_bytes=100)
    await tube.put("there")
    puts = await waiting_puts(face, queue, tube, ["a", "b", "c"])
    await tube.alter(capacity=3)
    await asyncio.gather(puts[0], puts[1])
    assert not puts[2].done()
    await tube.alter(capacity=0)
    assert (await puts[2]).state == "ready"
    assert (await tube.stats())["ready"] == 4


async def test_a_lowered_capacity_removes_no_jobs(queue: Any) -> None:
    tube = await queue.tube("lowered", capacity=5)
    await tube.put_many([1, 2, 3])
    await tube.alter(capacity=1)
    assert (await tube.stats())["ready"] == 3
    assert await code_of(tube.put(4)) == "FULL"


async def test_puts_wait_while_the_tube_is_paused_for_puts(queue: Any, face: Interface) -> None:
    tube = await queue.tube("paused", capacity=1)
    await tube.put("there")
    [put] = await waiting_puts(face, queue, tube, ["waits"])
    await tube.pause(puts=True)
    await (await tube.take()).ack()
    assert face.waiting(queue) == 1 and not any((await tube.stats()).values())
    await tube.pause()
    assert (await put).state == "ready"


async def test_a_unique_put_to_a_full_tube_returns_the_job_that_is_there(queue: Any) -> None:
    tube = await queue.tube("full", capacity=1)
    job = await tube.put("x", unique="v", dedup="d")
    assert await tube.put("y", unique="v") == job
    assert await tube.put("z", dedup="d") == job


async def test_a_batch_whose_jobs_are_all_there_already_needs_no_room(queue: Any) -> None:
    tube = await queue.tube("full", capacity=1)
    job = await tube.put("x", unique="v")
    assert await tube.put_many(["y", "z"], unique="v") == [job, job]


async def test_two_unique_puts_that_wait_for_room_become_one_job(queue: Any, face: Interface) -> None:
    tube = await queue.tube("full", capacity=1)
    await tube.put("there")
    puts = await waiting_puts(face, queue, tube, ["a", "b"], unique="v")
    await tube.alter(capacity=9)
    first, second = await asyncio.gather(*puts)
    assert first == second and (await tube.stats())["ready"] == 2


async def test_a_waiting_put_fails_if_its_name_was_taken_meanwhile(queue: Any, face: Interface) -> None:
    tube = await queue.tube("full", capacity=1)
    await tube.put("there")
    first, second = await waiting_puts(face, queue, tube, ["a", "b"], name="n")
    await tube.alter(capacity=9)
    assert (await first).body == "a"
    assert await code_of(second) == "NAMETAKEN"


async def test_a_session_that_closes_gives_up_its_place_in_the_line(queue: Any, face: Interface) -> None:
    tube = await queue.tube("line", capacity=1)
    await tube.put("there")
    leaver = await another(queue)
    [gone] = await waiting_puts(face, leaver, await leaver.tube("line"), ["gone"])
    [stays] = await waiting_puts(face, queue, tube, ["stays"])
    await leaver.close()
    assert await code_of(gone) == "CLOSED"
    await (await tube.take()).ack()
    assert (await stays).body == "stays" and (await tube.stats())["ready"] == 1


@pytest.mark.parametrize("capacity", [3, 1])
async def test_a_tube_never_holds_more_than_it_may(queue: Any, capacity: int) -> None:
    tube = await queue.tube("never", "limfifottl", capacity=capacity)
    seen = []

    async def consume() -> None:
        for _ in range(30):
            job = await tube.take(timeout=None)
            seen.append(sum((await tube.stats()).values()))
            await job.ack()

    await asyncio.gather(consume(), *[tube.put(number, timeout=None) for number in range(30)])
    assert max(seen) <= capacity and len(seen) == 30
