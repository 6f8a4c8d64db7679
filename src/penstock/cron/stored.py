"""The schedules that are stored in a queue: list, add, pause, resume, run and remove them at run time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from penstock import api
from penstock.core.errors import OutOfRange, TubeExists, UnknownTube, WrongType
from penstock.cron.schedule import Schedule, decode_schedule
from penstock.cron.scheduler import CRON_TUBE, TTR_S


@dataclasses.dataclass(frozen=True)
class StoredSchedule:
    """A schedule and the job that stores it."""

    schedule: Schedule
    job: api.Job

    @property
    def is_paused(self) -> bool:
        """Whether the schedule is paused: its job is buried."""
        return self.job.state == "buried"


def schedules(queue: api.Queue) -> Iterator[StoredSchedule]:
    """Iterate over the schedules of a queue, in the order of their jobs."""
    try:
        tube = queue.find_tube(CRON_TUBE)
    except UnknownTube:
        return
    cursor = -1
    while cursor != 0:
        jobs, cursor = queue.scan(max(0, cursor), tube=tube)
        for job in jobs:
            with contextlib.suppress(WrongType):
                yield StoredSchedule(decode_schedule(job.body), job)


def find_schedule(queue: api.Queue, name: str) -> StoredSchedule:
    """Return the schedule with a name. Raise OutOfRange if there is none."""
    for each in schedules(queue):
        if each.schedule.name == name:
            return each
    raise OutOfRange(f"there is no schedule {name!r}; `penstock cron ls` lists them")


def add_schedule(queue: api.Queue, schedule: Schedule, now: int) -> bool:
    """Store a new schedule. Return whether it was added; False if there is one of this name already."""
    schedule.check()
    try:
        tube = queue.find_tube(CRON_TUBE)
    except UnknownTube:
        try:
            tube = queue.tube(CRON_TUBE, "fifottl", ttr=TTR_S)
        except TubeExists:
            tube = queue.find_tube(CRON_TUBE)
    before = {each.schedule.name for each in schedules(queue)}
    tube.put_many([dataclasses.replace(schedule, next=schedule.after(now)).job()])
    return schedule.name not in before


def pause_schedule(queue: api.Queue, name: str) -> None:
    """Put no ticks of a schedule until it is resumed."""
    find_schedule(queue, name).job.bury("paused")


def resume_schedule(queue: api.Queue, name: str, now: int) -> int:
    """Continue a paused schedule. Ticks that passed meanwhile are skipped. Return the next tick."""
    there = find_schedule(queue, name)
    following = dataclasses.replace(there.schedule, next=there.schedule.after(now))
    there.job.edit(following.encoded())
    there.job.dig(following.next - now)
    return following.next


def run_schedule(queue: api.Queue, name: str) -> api.Job:
    """Put a job of a schedule now, besides its ticks. Return the job."""
    schedule = find_schedule(queue, name).schedule
    return queue.tube(schedule.tube).put_many([schedule.tick_job(None)])[0]


def remove_schedule(queue: api.Queue, name: str) -> None:
    """Remove a schedule. Jobs of earlier ticks stay."""
    find_schedule(queue, name).job.delete()


def as_record(stored: StoredSchedule) -> dict[str, Any]:
    """Return a schedule as a record for tools."""
    schedule = stored.schedule
    return {
        "name": schedule.name,
        "cron": schedule.expression,
        "zone": schedule.zone,
        "catch_up": schedule.catch_up,
        "tube": schedule.tube,
        "task": schedule.headers.get("task", ""),
        "state": "paused" if stored.is_paused else "active",
        "next": schedule.next,
    }
