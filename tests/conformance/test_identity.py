"""Ids of jobs, and the metadata of a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .interfaces import Interface, code_of, state_of

FIELDS = {
    *(
        "id",
        "tube",
        "state",
        "number",
        "name",
        "key",
        "priority",
        "served_as",
        "created",
        "expires",
        "wakes",
        "next_event",
    ),
    *("ttl", "ttr", "holder", "deliveries", "nacks", "returns", "buries", "reason", "retry", "now"),
}


async def test_a_job_is_found_by_its_id_in_both_forms(queue: Any, face: Interface) -> None:
    tube = await queue.tube("ids")
    jobs = [await tube.put(number) for number in range(3)]
    for job in jobs:
        assert len(job.id) == 40 and len(face.hex_id(job)) == 32
        for id in (job.id, face.hex_id(job)):
            found = await queue.job(id)
            assert found == await tube.job(id) == job
            assert (found.body, found.tube, found.id) == (job.body, "ids", job.id)
    assert len({job.id for job in jobs}) == 3 == len({face.hex_id(job) for job in jobs})


async def test_an_id_never_changes(queue: Any) -> None:
    tube, other = await queue.tube("ids"), await queue.tube("others")
    job = await tube.put("x", ttl=120)
    id = job.id
    assert await tube.take() == job
    await job.touch(600)
    await job.release(ttl=5_000)
    await job.move(other)
    assert job.id == id and await queue.job(id) == job
    await job.delete()
    assert job.id == id


async def test_a_job_is_found_only_in_its_own_tube_and_until_it_ends(queue: Any, face: Interface) -> None:
    tube, other = await queue.tube("ids"), await queue.tube("others")
    job = await tube.put("x")
    assert await code_of(other.job(job.id)) == await code_of(other.job(face.hex_id(job))) == "NOJOB"
    await job.delete()
    for id in (job.id, face.hex_id(job)):
        assert await code_of(queue.job(id)) == await code_of(tube.job(id)) == "NOJOB"


async def test_a_forged_id_is_refused_without_a_lookup(queue: Any, face: Interface) -> None:
    job = await (await queue.tube("ids")).put("x")
    long, hex = job.id, face.hex_id(job)
    forged = [
        "",
        "x",
        long[:-1],
        long + "0",
        long[:11] + ("A" if long[11] != "A" else "B") + long[12:],
        ("0" if hex[0] != "0" else "1") + hex[1:],
        hex.upper() if hex.upper() != hex else "g" * 32,
        "é" * 20,
        "D-" + "0" * 38,
    ]
    for id in forged:
        assert await code_of(queue.job(id)) == "BADID", id


async def test_an_id_of_another_queue_is_refused(queue: Any, face: Interface) -> None:
    async with face.open() as stranger:
        job = await (await stranger.tube("ids")).put("x")
        assert await code_of(queue.job(job.id)) == await code_of(queue.job(face.hex_id(job))) == "BADID"


async def test_handles_of_one_job_are_equal_and_hash_alike(queue: Any) -> None:
    tube = await queue.tube("handles")
    job, other = await tube.put("x"), await tube.put("x")
    same = await queue.job(job.id)
    assert same == job and hash(same) == hash(job) and {same, job, other} == {job, other}
    assert job != other and job != job.id


async def test_a_handle_is_live(queue: Any, face: Interface) -> None:
    if not face.is_live:
        pytest.skip("a client knows what it was told")
    tube = await queue.tube("handles", "fifottl")
    job = await tube.put("x")
    taken = await tube.take()
    assert (await state_of(job), job.deliveries) == ("taken", 1)
    await taken.nack()
    assert (await state_of(job), job.nacks) == ("ready", 1)
    assert job.id in repr(job) and "ready" in repr(job) and "handles" in repr(tube)


async def test_meta_has_every_field_from_the_first_moment(queue: Any) -> None:
    tube = await queue.tube("meta", "fifottl")
    meta = await (await tube.put("x")).meta()
    assert set(meta) == FIELDS
    assert meta["created"] <= meta["now"] <= meta["created"] + 5
    nothing = {field for field, value in meta.items() if value is None}
    assert nothing == {"name", "key", "expires", "wakes", "next_event", "ttl", "ttr", "holder", "reason", "retry"}
    assert [meta[field] for field in ("number", "deliveries", "nacks", "returns", "buries")] == [0] * 5


async def test_meta_has_the_options_of_the_put_and_the_counters(queue: Any) -> None:
    tube = await queue.tube("meta", "utubettl")
    await tube.put("first")
    job = await tube.put("x", name="n", key="k", priority=3, ttl=500, ttr=50, delay=0, retry="7x")
    assert await tube.take(key="k") == job
    await job.release()
    assert await tube.take(key="k") == job
    await job.nack("twice")
    assert await tube.take(key="k") == job
    meta = await job.meta()
    expected = {"number": 1, "name": "n", "key": "k", "priority": 3, "ttr": 50, "retry": "7x", "reason": "twice"}
    expected |= {"deliveries": 3, "nacks": 1, "returns": 1, "state": "taken", "tube": "meta", "id": job.id}
    assert {field: meta[field] for field in expected} == expected
    assert meta["ttl"] == pytest.approx(500) and meta["expires"] == pytest.approx(meta["created"] + 500)
    assert meta["wakes"] == meta["next_event"] and meta["wakes"] - meta["now"] == pytest.approx(50, abs=5)
    assert isinstance(meta["holder"], int)


async def test_meta_of_a_delayed_job_has_its_wake_time(queue: Any) -> None:
    meta = await (await (await queue.tube("meta")).put("x", delay=30, ttl=60)).meta()
    assert meta["wakes"] == meta["next_event"] == pytest.approx(meta["created"] + 30)
    assert meta["expires"] == pytest.approx(meta["created"] + 90)


async def test_numbers_count_from_the_first_of_the_tube(queue: Any) -> None:
    for type, first in [("fifo", 0), ("fifottl", 0), ("xqueue", 1), ("disque", None), ("queue15", None)]:
        tube = await queue.tube(f"numbers {type}", type)
        numbers = [(await job.meta())["number"] for job in await tube.put_many([b"", b""])]
        assert numbers == ([None, None] if first is None else [first, first + 1]), type


async def test_a_state_is_current_even_without_other_calls(queue: Any) -> None:
    tube = await queue.tube("live")
    delayed, short = await tube.put("x", delay=0.01), await tube.put("x", ttl=0.01)
    await asyncio.sleep(0.05)  # The test is about time: no call touches the queue.
    assert (await state_of(delayed), await state_of(short)) == ("ready", "gone")
