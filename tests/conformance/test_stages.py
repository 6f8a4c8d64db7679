"""Stages: jobs that become visible together, or never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock

from .interfaces import another, code_of, eventually, own, settled, state_of


async def bodies(tube: Any) -> list[Any]:
    return [job.body for job in await tube.take_many(10_000)]


async def test_jobs_are_seen_when_their_stage_is_published(queue: Any) -> None:
    tube = await queue.tube("t")
    stage = await settled(queue.stage(own("work")))
    job = await stage.put(tube, {"n": 1}, priority=2)
    await stage.put_many("t", ["a", b"b"])
    assert await state_of(job) == "staged" and await tube.take() is None
    assert (await tube.stats())["staged"] == 3
    assert [found.id for found in await tube.jobs("staged", 3)][-1] == job.id
    assert await stage.publish() == 3 and await stage.publish() == 3
    assert await bodies(tube) == ["a", b"b", {"n": 1}]


async def test_a_context_publishes_or_discards(queue: Any) -> None:
    tube = await queue.tube("t")
    async with await settled(queue.stage(own("good"))) as stage:
        await stage.put(tube, 1)
    with pytest.raises(ZeroDivisionError):
        async with await settled(queue.stage(own("bad"))) as stage:
            await stage.put(tube, 2)
            raise ZeroDivisionError
    assert await bodies(tube) == [1]
    assert await code_of(stage.publish()) == "NOSTAGE"
    assert await code_of(stage.put(tube, 3)) == "STAGEOVER"


async def test_stages_of_several_writers_are_published_together(queue: Any) -> None:
    writers = [await another(queue) for _ in range(3)]
    for number, writer in enumerate(writers):
        stage = await settled(writer.stage(own(f"part {number}")))
        await stage.put_many("t", [number, number])
    first, second = await settled(queue.stage(own("part 1"))), await settled(queue.stage(own("part 0")))
    assert await code_of(queue.publish(first, own("nowhere"))) == "NOSTAGE"
    assert await queue.publish(first, second, own("part 2")) == 6
    assert await bodies(await queue.tube("t")) == [1, 1, 0, 0, 2, 2]


async def test_a_large_stage_is_published_and_discarded_whole(queue: Any) -> None:
    for name in ("kept", "dropped"):
        stage = await settled(queue.stage(own(name)))
        await stage.put_many("t", range(3_000))
    tube = await queue.tube("t")
    assert await queue.publish(own("kept")) == 3_000 and (await tube.stats())["ready"] == 3_000
    assert await queue.discard(own("dropped"), own("never there")) == 3_000 and (await tube.stats())["staged"] == 0
    assert await bodies(tube) == list(range(3_000))


async def test_a_stage_that_is_forgotten_expires(queue: Any) -> None:
    tube = await queue.tube("t")
    await (await settled(queue.stage(own("a"), expire=0.02))).put(tube, 1)

    async def gone() -> bool:
        return (await tube.stats())["staged"] == 0

    await eventually(gone)
    assert await code_of(queue.publish(own("a"))) == "NOSTAGE"


async def test_invalid_arguments_of_stages_are_refused(queue: Any) -> None:
    stage = await settled(queue.stage(own("a")))
    assert await code_of(stage.put("t", 1, unique="u")) == "UNSUPPORTED"
    assert await code_of(stage.put_many("t", "text")) == "WRONGTYPE"
    assert await stage.put_many("t", []) == []
    assert await code_of(queue.publish()) == await code_of(queue.publish(*["a"] * 10_001)) == "RANGE"
    assert await code_of(queue.discard(3)) == "WRONGTYPE"


def test_stages_survive_a_close_with_bodies_on_disk(tmp_path: Path) -> None:
    body = b"x" * 200_000
    with penstock.open(tmp_path, memory_limit=1 << 20) as queue:
        stage = queue.stage("a")
        for _ in range(10):
            stage.put("t", body)
        queue.checkpoint()
    with penstock.open(tmp_path, memory_limit=1 << 20) as queue:
        assert queue.stats()["t"]["staged"] == 10 and queue.publish("a") == 10
    with penstock.open(tmp_path, memory_limit=1 << 20) as queue:
        assert queue.publish("a") == 10
        assert [job.body for job in queue.tube("t").take_many(20)] == [body] * 10


def test_another_queue_s_tube_is_refused() -> None:
    with penstock.open() as one, penstock.open() as other, pytest.raises(penstock.CommandError):
        one.stage("a").put(other.tube("t"), 1)
