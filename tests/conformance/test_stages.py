"""Stages: puts that are seen together, or never."""

from __future__ import annotations

from typing import Any

import pytest

from .faces import code_of, settled


async def test_what_is_staged_is_seen_when_it_is_published_and_all_at_once(queue: Any) -> None:
    tube = await queue.tube("here")
    stage = await settled(queue.stage(name := f"batch {queue.token}"))
    one = await stage.put(tube, {"n": 1})
    two, three = await stage.put_many("there", [b"2", "3"], priority=1)
    assert len({one.id, two.id, three.id}) == 3 and one.body == {"n": 1}
    assert await tube.take() is None and (await tube.stats())["staged"] == 1
    assert await stage.publish() == 3 == await queue.publish(name), "again: nothing more, and the same answer"
    assert await tube.take() == one
    assert [job.body for job in await (await queue.tube("there")).take_many(5)] == [b"2", "3"]
    assert await code_of(stage.put(tube, "late")) == "STAGEOVER"


async def test_what_is_discarded_was_never_there(queue: Any) -> None:
    tube = await queue.tube("here")
    stage = await settled(queue.stage(f"dropped {queue.token}"))
    with pytest.raises(ValueError, match="mine"):
        async with stage:
            await stage.put_many(tube, [1, 2])
            raise ValueError("mine")
    assert await tube.take() is None and not any((await tube.stats()).values())
    assert await code_of(queue.discard()) == await code_of(queue.publish()) == "RANGE"
