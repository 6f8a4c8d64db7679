"""`then`: jobs that are put in the same step in which another one is settled."""

from __future__ import annotations

from typing import Any

import pytest

import penstock

from .interfaces import code_of, state_of


async def taken(queue: Any) -> tuple[Any, Any]:
    tube = await queue.tube("steps")
    await tube.put("x")
    return tube, await tube.take()


@pytest.mark.parametrize("settle", ["ack", "done", "nack", "bury"])
async def test_a_job_is_settled_and_others_are_put(queue: Any, settle: str) -> None:
    tube, job = await taken(queue)
    following = [(tube, {"step": 2}), ("mails", penstock.NewJob("to: ann", priority=3, headers={"trace": "7"}))]
    call = job.done("result", then=following) if settle == "done" else getattr(job, settle)(then=following)
    jobs = await call
    assert [(each.tube, each.body) for each in jobs] == [("steps", {"step": 2}), ("mails", "to: ann")]
    assert await state_of(job) == {"ack": "gone", "done": "done", "nack": "delayed", "bury": "buried"}[settle]
    mail = await (await queue.find_tube("mails")).take()
    assert mail.id == jobs[1].id and mail.headers == {"trace": "7"}


async def test_a_job_without_following_ones_is_settled_as_usual(queue: Any) -> None:
    _, job = await taken(queue)
    assert await job.ack(then=[]) == []


async def test_nothing_happens_if_a_put_is_refused(queue: Any) -> None:
    tube, job = await taken(queue)
    small = await queue.tube("small", capacity=1)
    await small.put("first")
    assert await code_of(job.ack(then=[(tube, "fine"), (small, "too much")])) == "FULL"
    assert await state_of(job) == "taken" and (await tube.stats())["ready"] == 0
    await job.ack(then=[(tube, "fine")])


async def test_nothing_happens_if_the_job_is_lost(queue: Any) -> None:
    tube, job = await taken(queue)
    await job.release()
    assert await code_of(job.ack(then=[(tube, "next")])) == "NOTTAKEN"
    assert await code_of(job.ack(then=[("another", "next")])) == "NOTTAKEN"
    assert (await tube.stats())["ready"] == 1 and "another" not in await queue.tubes()


async def test_what_follows_is_a_list_of_pairs(queue: Any) -> None:
    _, job = await taken(queue)
    for wrong in (["body"], [("tube",)], [("tube", "body", 3)], [(5, "body")]):
        assert await code_of(job.ack(then=wrong)) == "WRONGTYPE"
