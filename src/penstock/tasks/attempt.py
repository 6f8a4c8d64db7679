"""One delivery of the job of a task to a worker, and how it ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, cast

from penstock import api_async
from penstock.options import EncodedBody, Seconds
from penstock.tasks.call import TaskCall
from penstock.tasks.context import Context, RunningJob, TaskLink
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.progress import Progress


class Ending(IntEnum):
    """How an attempt ended, and so what the queue is asked to do with the job."""

    NONE = 0  # It has not ended.
    ACK = 1  # It succeeded without a result.
    RESULT = 2  # It succeeded, and its result is stored.
    NACK = 3  # It failed. The retry policy decides what happens next.
    RETRY = 4  # It failed, and named the time of the next attempt.
    BURY = 5
    DISCARD = 6
    RELEASE = 7  # The worker stopped before the task ended.
    CANCELLED = 8  # The job was cancelled.
    LOST = 9  # The session no longer holds the job, for example because its ttr has passed.


class _NoLink:
    """The link of a context that no worker listens to."""

    def heartbeat(self) -> None:
        """Do nothing."""

    def report(self, progress: Progress) -> None:
        """Do nothing."""


NO_LINK = _NoLink()


def _no_link(_: Attempt) -> TaskLink:
    return NO_LINK


class Attempt:
    """One delivery of a job to this worker."""

    __slots__ = (
        "abandoned",
        "context",
        "delay",
        "ending",
        "error",
        "handle",
        "job",
        "later",
        "make_link",
        "next_step",
        "reason",
        "reporter",
        "reports",
        "result",
        "slot",
        "started_at",
        "taken_at",
        "task",
        "thread",
    )

    def __init__(self, job: api_async.AsyncJob, task: TaskDeclaration[Any], taken_at: float) -> None:
        self.job = job
        self.task = task
        self.make_link: Callable[[Attempt], TaskLink] = _no_link  # Returns the link of the context.
        self.context: Context | None = None  # Created when it is needed.
        self.ending = Ending.NONE
        self.error: BaseException | None = None
        self.reason = ""
        self.delay: Seconds | None = None
        self.result: EncodedBody | None = None
        self.later: Any = ()  # The later steps of its chain, as they are stored.
        self.next_step: TaskCall[Any] | None = None  # The next step of its chain, if this one has succeeded.
        self.handle: asyncio.Task[None] | None = None  # The asyncio task of an async function.
        self.thread = 0  # The id of the thread of a plain function.
        self.slot = -1  # The place in the state file of the process, while it runs.
        self.taken_at = taken_at
        self.started_at = 0.0
        self.abandoned = False  # It has ended for the queue, but its thread still runs the function.
        # Reports that are not sent yet, and the asyncio task that sends them. The queue keeps no more than 256, either.
        self.reports: deque[Progress] = deque(maxlen=256)
        self.reporter: asyncio.Task[None] | None = None

    @property
    def puts(self) -> Sequence[TaskCall[Any]]:
        """The calls to be put together with the ack of the job."""
        puts: Sequence[TaskCall[Any]] = () if self.context is None else cast(list[TaskCall[Any]], self.context.puts)
        return puts if self.next_step is None else (*puts, self.next_step)

    def make_context(self) -> Context:
        """Return the context of this attempt."""
        if self.context is None:
            job = self.job
            running = RunningJob(job.id, job.tube, self.task.name, job.deliveries, job.headers)
            self.context = Context(running, self.make_link(self))
        return self.context
