"""Schedulers: each tick is put once, however many of them run and whenever they are killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

import penstock
from penstock.cron.schedule import Schedule
from penstock.cron.scheduler import CRON_TUBE, Scheduler, declare
from penstock.cron.stored import (
    add_schedule,
    as_record,
    find_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
    schedules,
)
from penstock.options import EncodedBody

MINUTELY = Schedule("minutely", "* * * * *", "tasks", EncodedBody(b"{}", 2), headers={"task": "clean"})


class Clock:
    """The clock of a queue in this process, which the test sets."""

    def __init__(self, queue: Any) -> None:
        self._host: Any = queue._host
        self.ms = self._host.now()
        self._host.now = lambda: self.ms

    def now(self) -> float:
        return self.ms / 1_000


async def steps(queue: Any, clock: Clock) -> int:
    """Run a scheduler until no schedule is due. Return the number of steps."""
    scheduler, count = Scheduler(queue, now=clock.now), 0
    tube = await queue.find_tube(CRON_TUBE)
    while (job := await tube.take()) is not None:
        await scheduler.step(job)
        count += 1
    return count


async def put_ticks(queue: Any) -> list[str]:
    tube = await queue.find_tube("tasks")
    return [job.headers["tick"] for job in await tube.jobs("ready", 10_000)]


@pytest.mark.parametrize("seed", range(5))
async def test_each_tick_of_an_hour_fires_once_with_three_schedulers_of_which_two_are_killed_at_random(
    seed: int,
) -> None:
    chance = random.Random(seed)
    async with penstock.open_async(":memory:") as queue:
        clock = Clock(queue)
        for number, expression in enumerate(("* * * * *", "*/5 * * * *", "7 * * * *")):
            schedule = Schedule(f"schedule {number}", expression, "tasks", EncodedBody(b"{}", 2), catch_up="all")
            await declare(queue, schedule, int(clock.now()))
        begin = clock.ms
        sessions = [await queue.session() for _ in range(3)]
        while clock.ms < begin + 3_600_000:
            clock.ms += chance.randrange(1, 20_000)
            at = chance.randrange(3)
            tube = await sessions[at].find_tube(CRON_TUBE)
            job = await tube.take()
            if job is None:
                continue
            # Two of the three die again and again: before the step, or right after it.
            dies = at < 2 and chance.random() < 0.5
            if not dies or chance.random() < 0.5:
                await Scheduler(sessions[at], now=clock.now).step(job)
            if dies:
                await sessions[at].close()
                sessions[at] = await queue.session()
        await steps(queue, clock)
        tube = await queue.find_tube("tasks")
        fired = Counter((job.headers["cron"], job.headers["tick"]) for job in await tube.jobs("ready", 10_000))
        assert set(fired.values()) == {1}
        count = Counter(name for name, _ in fired)
        minutes = clock.ms // 60_000 - begin // 60_000
        assert count["schedule 0"] == minutes and count["schedule 1"] in (12, 13) and count["schedule 2"] == 1
        for session in sessions:
            await session.close()


async def test_a_scheduler_waits_for_the_tick_and_puts_it() -> None:
    async with penstock.open_async(":memory:") as queue:
        clock = Clock(queue)

        async def declared() -> list[Schedule]:
            return [MINUTELY]

        running = asyncio.create_task(Scheduler(queue, declared, clock.now).run())
        while CRON_TUBE not in await queue.tubes():
            await asyncio.sleep(0)
        clock.ms += 60_000
        tube = await queue.tube("tasks")
        async with asyncio.timeout(30):
            job = await tube.take(timeout=None)
        assert job is not None and job.body == {} and job.headers["task"] == "clean"
        running.cancel()


async def test_a_changed_definition_replaces_the_stored_one_once() -> None:
    async with penstock.open_async(":memory:") as queue:
        clock = Clock(queue)
        for expression in ("0 * * * *", "0 * * * *", "* * * * *"):
            schedule = Schedule("s", expression, "tasks", EncodedBody(b"{}", 2))
            await declare(queue, schedule, int(clock.now()))
        [stored] = schedules(queue.sync)
        assert stored.schedule.expression == "* * * * *"
        clock.ms += 60_000
        assert await steps(queue, clock) == 1 and len(await put_ticks(queue)) == 1


async def test_a_tick_that_is_refused_is_tried_again() -> None:
    async with penstock.open_async(":memory:") as queue:
        clock = Clock(queue)
        tasks = await queue.tube("tasks")
        await tasks.pause(puts=True)
        await declare(queue, MINUTELY, int(clock.now()))
        clock.ms += 60_000
        assert await steps(queue, clock) == 1 and not await put_ticks(queue)
        await tasks.pause()
        clock.ms += 1_000
        assert await steps(queue, clock) == 1 and len(await put_ticks(queue)) == 1


async def test_a_job_that_is_no_schedule_is_buried_with_a_reason() -> None:
    async with penstock.open_async(":memory:") as queue:
        clock = Clock(queue)
        job = await (await queue.tube(CRON_TUBE, "fifottl", ttr=30)).put("nonsense")
        assert await steps(queue, clock) == 1
        assert job.state == "buried" and "not a schedule" in (await job.meta())["reason"]


async def test_schedules_are_listed_paused_resumed_run_and_removed() -> None:
    async with penstock.open_async(":memory:") as queue:
        clock, sync = Clock(queue), queue.sync
        assert list(schedules(sync)) == []
        assert add_schedule(sync, MINUTELY, int(clock.now())) and not add_schedule(sync, MINUTELY, int(clock.now()))
        [record] = map(as_record, schedules(sync))
        assert (record["name"], record["task"], record["state"]) == ("minutely", "clean", "active")
        pause_schedule(sync, "minutely")
        assert as_record(find_schedule(sync, "minutely"))["state"] == "paused"
        clock.ms += 600_000
        assert await steps(queue, clock) == 0
        following = resume_schedule(sync, "minutely", int(clock.now()))
        assert await steps(queue, clock) == 0 and following > clock.now()
        clock.ms += 60_000
        assert await steps(queue, clock) == 1
        assert run_schedule(sync, "minutely").headers["tick"] == "manual"
        assert len(await put_ticks(queue)) == 2
        remove_schedule(sync, "minutely")
        assert list(schedules(sync)) == []
        with pytest.raises(penstock.OutOfRange, match="no schedule"):
            pause_schedule(sync, "minutely")
