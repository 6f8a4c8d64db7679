"""A scheduler: it takes the jobs of schedules that are due, and puts the jobs of their ticks.

Each schedule is one delayed job in the tube `penstock.cron`. When it is due, one scheduler takes it. The scheduler acks
it, and in the same step puts the job of the tick and the schedule's next job. So each tick is put once, however many
schedulers run, and whenever one of them is killed: either the step happened or another scheduler repeats it.

If the tube of the tick is on another node of a cluster, one step is not possible. Then the tick is put first, with a
dedup id made of the schedule and the tick, so that a repetition within the tube's dedup window puts it once.

A scheduler waits for the next job; it does not poll. Every worker runs one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from penstock import api_async
from penstock.core.errors import (
    Closed,
    CommandError,
    CrossHome,
    OutOfRange,
    PenstockError,
    TubeExists,
    UnknownTube,
    WrongType,
)
from penstock.cron.schedule import Schedule, decode_schedule

CRON_TUBE: Final = "penstock.cron"
# A scheduler that was killed holds a schedule for at most this long.
TTR_S: Final = 30

# How often a scheduler without schedules looks whether there are any, in seconds.
_LOOK_S: Final = 30.0
_FAILED_S: Final = 1.0
# How often a schedule that is being processed is tried again before its definition is changed.
_TRIES: Final = 50

_log = logging.getLogger("penstock.cron")


class Scheduler:
    """A scheduler on a queue. `declared` returns the schedules of this program, which it stores when it starts."""

    def __init__(
        self,
        queue: api_async.AsyncQueue,
        declared: Callable[[], Awaitable[Iterable[Schedule]]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._declared = declared
        self._now = now

    async def run(self) -> None:
        """Put the jobs of ticks until the queue is closed."""
        stored = False
        while True:
            try:
                if not stored and self._declared is not None:
                    for schedule in await self._declared():
                        await declare(self._queue, schedule, int(self._now()))
                    stored = True
                tube = await self._queue.find_tube(CRON_TUBE)
                while True:
                    job = await tube.take(timeout=None)
                    if job is not None:
                        await self.step(job)
            except Closed:
                return
            except UnknownTube:
                await asyncio.sleep(_LOOK_S)
            except PenstockError as error:
                _log.warning("schedules not processed: error=%r", str(error))
                await asyncio.sleep(_FAILED_S)

    async def step(self, job: api_async.AsyncJob) -> list[int]:
        """Put the ticks of a schedule that is due. Return them, in seconds since 1970."""
        try:
            schedule = decode_schedule(job.body)
            # The clock of this machine may be behind that of the queue, which has delivered the job.
            ticks, following = schedule.due(max(int(self._now()), schedule.next))
        except (WrongType, OutOfRange) as error:
            await job.bury(str(error))
            return []
        puts = [(schedule.tube, schedule.tick_job(tick)) for tick in ticks]
        chain = (CRON_TUBE, following.job())
        try:
            await job.ack(then=[*puts, chain])
        except CrossHome:
            for name, put in puts:
                tube = await self._queue.tube(name)
                await tube.put_many([put])
            await job.ack(then=[chain])
        except CommandError as error:
            # The tube of the task is full or paused, for example. The tick is tried again.
            _log.warning("tick not put: schedule=%s error=%r", schedule.name, str(error))
            await job.release(_FAILED_S)
            return []
        return ticks


async def cron_tube(queue: api_async.AsyncQueue) -> api_async.AsyncTube:
    """Return the tube of the schedules. Create it if it does not exist."""
    try:
        return await queue.find_tube(CRON_TUBE)
    except UnknownTube:
        try:
            return await queue.tube(CRON_TUBE, "fifottl", ttr=TTR_S)
        except TubeExists:
            return await queue.find_tube(CRON_TUBE)


async def declare(queue: api_async.AsyncQueue, schedule: Schedule, now: int) -> None:
    """Store a schedule, or change the stored one of this name if it has another definition."""
    schedule.check()
    tube = await cron_tube(queue)
    fresh = dataclasses.replace(schedule, next=schedule.after(now))
    for _ in range(_TRIES):
        there = await queue.job((await tube.put_many([fresh.job()]))[0].id)
        stored = decode_schedule(there.body)
        if stored.has_definition_of(schedule):
            return
        try:
            await there.edit(fresh.encoded())
            if there.state == "delayed":
                await there.switch("delayed", max(0.001, fresh.next - time.time()))
            return
        except CommandError:
            # A scheduler processes it at this moment.
            await asyncio.sleep(0.1)
