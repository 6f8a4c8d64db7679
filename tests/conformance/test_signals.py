"""What workers and the clients of their jobs tell each other: cancel, lost jobs, progress."""

from __future__ import annotations

import asyncio
from typing import Any

from .interfaces import Interface, another, code_of, eventually, state_of


async def test_a_cancelled_job_that_waits_has_ended(queue: Any) -> None:
    tube = await queue.tube("work")
    job = await tube.put("x")
    assert await job.cancel("not needed") is True
    assert await state_of(job) == "gone" and await tube.take() is None
    assert await code_of(job.cancel()) == "NOJOB"


async def test_the_worker_of_a_cancelled_job_is_told_and_the_job_ends_with_its_delivery(
    queue: Any, face: Interface
) -> None:
    tube = await queue.tube("work")
    put = await tube.put("x")
    job = await tube.take()
    waiting = asyncio.create_task(queue.session_events(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    other = await another(queue)
    assert await (await other.job(put.id)).cancel("user left") is False
    told = await waiting
    assert told.events == [("cancelled", put.id, "user left")]
    assert (await queue.session_events()).events == told.events, "until it leaves the session"
    assert (await queue.session_events(told.after)).events == []
    await job.nack("stopped")
    assert await state_of(put) == "gone" and (await queue.session_events()).events == []
    ended = await put.wait()
    assert ended.outcome in ("deleted", "gone")


async def test_a_worker_is_told_that_it_lost_a_job(queue: Any) -> None:
    tube = await queue.tube("work", "fifottl")
    job = await tube.put("x", ttr=0.01)
    assert (await queue.session_events()).events == []
    await tube.take()
    told = await queue.session_events(timeout=None, tube=tube)
    assert told.events == [("lost", job.id, "ttr passed")]


async def test_progress_is_read_in_order_until_the_job_ends(queue: Any, face: Interface) -> None:
    tube = await queue.tube("work")
    put = await tube.put("x")
    assert await put.watch(timeout=0) == (0, [], None)
    job = await tube.take()
    waiting = asyncio.create_task(put.watch())
    await eventually(lambda: face.waiting(queue) == 1)
    await job.report({"done": 1, "of": 3})
    news = await waiting
    assert [each.value for each in news.values] == [{"done": 1, "of": 3}] and news.outcome is None
    await job.report("two")
    await job.report(b"three")
    await job.ack()
    last = await put.watch(news.after)
    assert [each.value for each in last.values] == ["two", b"three"]
    assert [each.number for each in last.values] == [news.after + 1, news.after + 2]
    assert last.outcome is not None and last.outcome.outcome == "acked"


async def test_only_the_worker_reports_progress(queue: Any) -> None:
    tube = await queue.tube("work")
    job = await tube.put("x")
    assert await code_of(job.report("early")) == "NOTTAKEN"
    await tube.take()
    other = await another(queue)
    assert await code_of((await other.job(job.id)).report("not mine")) == "NOTOWNER"
    assert await code_of(job.report("x" * 100_000)) == "RANGE"


async def test_a_job_with_a_result_cannot_be_cancelled(queue: Any) -> None:
    tube = await queue.tube("work")
    await tube.put("x")
    job = await tube.take()
    await job.done("result")
    assert await code_of(job.cancel()) == "FINISHED"
