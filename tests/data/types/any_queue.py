"""One function for every queue: in this process or on a server. This program is type-checked and not run."""

from collections.abc import Callable

import penstock


def work(queue: penstock.Queue) -> list[penstock.Job]:
    """Use every blocking public type."""
    tube: penstock.Tube = queue.tube("emails", "fifottl", ttr=30)
    with queue.stage("batch") as stage:
        staged: penstock.Job = stage.put(tube, {"to": "ann"}, delay=5)
    tube.put(b"body", priority=1)
    queue.scan(tube=tube, states=["ready"])
    job = tube.take(timeout=1, key="k")
    if job is not None:
        with job:
            job.touch(10)
        job.move(queue.tube("other"))
    staged.release(5, priority=3)
    cancel: Callable[[], None] = queue.subscribe(lambda change: print(change.event))
    cancel()
    return [*queue.take([tube], count=10), *tube.take_many(5, ttr=60)]


async def work_async(queue: penstock.AsyncQueue) -> list[penstock.AsyncJob]:
    """Use every public type for asyncio."""
    tube: penstock.AsyncTube = await queue.tube("emails", "fifottl", ttr=30)
    stage: penstock.AsyncStage = queue.stage("batch")
    async with stage:
        staged: penstock.AsyncJob = await stage.put(tube, {"to": "ann"}, delay=5)
    await tube.put(b"body", priority=1)
    async for job in tube:
        async with job:
            await job.touch(10)
    await staged.release(5, priority=3)
    async for event in await queue.events():
        print(event.event)
    return [*await queue.take([tube], count=10), *await tube.take_many(5, ttr=60)]


async def main() -> None:
    """Call both functions with every kind of queue."""
    work(penstock.open())
    work(penstock.open("penstock://127.0.0.1"))
    work(penstock.connect("penstock://127.0.0.1", retry_for=5))
    await work_async(penstock.open_async())
    await work_async(penstock.connect_async("penstock://127.0.0.1", retry_for=5))
    with penstock.connect() as queue, queue.pipeline() as pipeline:
        for job in queue.tube("emails").take_many(10):
            pipeline.ack(job)
