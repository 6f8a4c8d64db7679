"""`tube.take_each` takes jobs one after the other, until none becomes ready in time."""

import asyncio

import penstock


def test_jobs_are_taken_one_after_the_other_until_there_is_none() -> None:
    with penstock.open(":memory:") as queue:
        tube = queue.tube("work")
        tube.put_many(["a", "b", "c"])
        seen = []
        for job in tube.take_each(timeout=0):
            with job:
                seen.append(job.body)
        assert seen == ["a", "b", "c"] and tube.stats()["taken"] == 0


def test_asyncio_takes_one_after_the_other_too() -> None:
    async def scenario() -> list[str]:
        async with penstock.open_async(":memory:") as queue:
            tube = await queue.tube("work")
            await tube.put_many(["a", "b"])
            return [job.body async for job in tube.take_each(timeout=0.01)]

    assert asyncio.run(scenario()) == ["a", "b"]
