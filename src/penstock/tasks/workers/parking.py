"""Parking: where jobs wait whose task this worker does not know.

During a rolling restart, a new producer can put jobs of a task that old workers do not have yet. An old worker moves
such a job to the tube `TUBE.unknown.TASK`, where statistics show it. A worker that knows the task moves the job back.
The job keeps its id, its headers and its attempts, and is never buried for this reason.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Final

from penstock import api_async
from penstock.core.errors import CommandError, NotOwner, NotTaken, PenstockError, UnknownJob, UnknownTube

_log = logging.getLogger("penstock.tasks")

_INFIX: Final = ".unknown."
# How often a worker looks for parked jobs of its tasks.
LOOK_S: Final = 10.0
# The delay of a job that cannot be moved, because the user may not create tubes or the tubes are on different nodes.
_RELEASE_S: Final = 30
_PAGE_JOBS: Final = 1_000


def parking_name(tube: str, task: str) -> str:
    """Return the name of the parking tube for jobs of a tube and a task."""
    return f"{tube}{_INFIX}{task}"


async def park(queue: api_async.AsyncQueue, job: api_async.AsyncJob, task: str) -> None:
    """Move a taken job of an unknown task to its parking tube."""
    name = parking_name(job.tube, task or "?")
    _log.warning("unknown task: task=%s job=%s parked_in=%s", task, job.id, name)
    try:
        source = await queue.find_tube(job.tube)
        await job.move(await _parking_tube(queue, name, source))
    except (NotTaken, NotOwner, UnknownJob):
        pass  # Its ttr has passed.
    except CommandError as error:
        _log.warning("job not parked, but delayed: job=%s error=%r", job.id, str(error))
        await job.release(_RELEASE_S)


async def _parking_tube(queue: api_async.AsyncQueue, name: str, source: api_async.AsyncTube) -> api_async.AsyncTube:
    try:
        return await queue.find_tube(name)
    except UnknownTube:
        return await queue.tube(name, source.policy)


async def return_parked(queue: api_async.AsyncQueue, tubes: Iterable[str], tasks: Container[str]) -> int:
    """Move the parked jobs of known tasks back to their tubes. Return their number."""
    returned = 0
    names = await queue.tubes()
    for tube in tubes:
        prefix = f"{tube}{_INFIX}"
        for name in names:
            if name.startswith(prefix) and name.removeprefix(prefix) in tasks:
                returned += await _empty(await queue.find_tube(name), await queue.find_tube(tube))
    return returned


async def _empty(parked: api_async.AsyncTube, home: api_async.AsyncTube) -> int:
    """Move all jobs of a parking tube to another tube, and drop it. Return the number of jobs."""
    moved = 0
    for state in ("ready", "delayed"):
        while jobs := await parked.jobs("ready" if state == "ready" else "delayed", _PAGE_JOBS):
            for job in jobs:
                try:
                    await job.move(home)
                    moved += 1
                except (UnknownJob, NotOwner):
                    pass  # Another worker has moved it.
            if len(jobs) < _PAGE_JOBS:
                break
    try:
        await parked.drop()
    except PenstockError:
        pass  # Another worker has dropped it, or has just parked a job in it.
    return moved
