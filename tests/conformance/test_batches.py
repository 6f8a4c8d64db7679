"""Batches: many jobs, and callbacks that are put when all of them have ended."""

from __future__ import annotations

from typing import Any

import penstock

from .interfaces import code_of


async def test_the_callbacks_are_put_when_all_members_have_ended(queue: Any) -> None:
    name = f"crawl-{queue.token}"
    tube, reports = await queue.tube("pages"), await queue.tube("reports")
    await queue.create_batch(name, then=[(reports, {"report": "crawl"}), ("mails", penstock.NewJob("x", delay=60))])
    await tube.put_many(["/a", "/b"], batch=name)
    assert await queue.seal_batch(name) == 2
    first, second = await tube.take_many(2)
    await first.ack(then=[(tube, penstock.NewJob("/c", batch=name))])
    await second.bury("broken")
    assert await reports.take() is None
    assert await queue.batch_info(name) == ("sealed", 3, 1, 1, 2)
    await (await tube.take()).ack()
    report = await reports.take(timeout=5)
    assert report.body == {"report": "crawl"} and await reports.take() is None
    assert await queue.batch_info(name) == ("ended", 3, 0, 1, 2)


async def test_a_batch_that_is_unknown_or_over_is_refused(queue: Any) -> None:
    name, tube = f"empty-{queue.token}", await queue.tube("pages")
    assert await code_of(queue.seal_batch("none")) == await code_of(queue.batch_info("none")) == "NOBATCH"
    assert await code_of(tube.put("/a", batch="none")) == "NOBATCH"
    await queue.create_batch(name)
    assert await queue.seal_batch(name) == 0
    assert await code_of(queue.create_batch(name)) == "BATCHOVER"
    assert await code_of(tube.put("/a", batch=name)) == "BATCHOVER"
