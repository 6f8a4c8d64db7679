"""Batches of jobs that are handled as one: claims go out to a consumer, stages come in from a producer.

`claims.py` and `stages.py` explain the concepts and have the commands. A claim is closed when it was acked or released,
or its lease ended. A stage is closed when it was published or discarded. The classes are here, below the engine,
because the engine holds the batches and closes a batch when its deadline passes.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.deadlines import Timed
from penstock.core.job import Job
from penstock.core.limits import STAGES_REMEMBERED

# Phases of a stage.
OPEN: Final = 0
PUBLISHED: Final = 1
DISCARDED: Final = 2  # By a command, or because it was not published in time.

# The names of the stages of batches begin with this. Commands about stages refuse such names.
BATCH_PREFIX: Final = b"\0batch\0"

STAGE_WORDS: Final = ["open", "published", "discarded"]


class Claim(Timed):
    """A batch of jobs. Its deadline is the end of its lease."""

    def __init__(self, consumer: Consumer, number: i64) -> None:
        super().__init__()
        self.consumer = consumer
        self.number = number
        self.jobs: list[Job] = []  # In the order in which they were claimed.
        # The claim was acked. Its jobs are being acked, up to the limit of each turn, from the end of the list.
        self.acked = False

    def shard(self, index: int, count: int) -> list[Job]:
        """Return the part of the batch for reader `index` of `count` readers. Every call returns the same jobs."""
        return self.jobs[index::count]


class Consumer:
    """A named reader of claims: its fencing token and its progress."""

    name: bytes
    token: i64  # The greatest token that was used.
    acked: i64  # Every claim up to this number is acked.
    newest: i64  # Number of the newest claim.
    lease_ms: i64  # The lease of the last claim. After a restart, open claims get it again.
    claims: dict[int, Claim]  # Open claims by number.
    acking: dict[int, Claim]  # Acked claims by number that still have jobs.

    def __init__(self, name: bytes, token: i64) -> None:
        self.name = name
        self.token = token
        self.acked = 0
        self.newest = 0
        self.lease_ms = 0
        self.claims = {}
        self.acking = {}


class BatchMembers:
    """How many jobs belong to a batch of tasks: see tasks/batch.py. The log has all of this except `pending`.

    After a restart, `pending` is the number of jobs that still name the batch.
    """

    sealed: bool  # The producer has put all members. The batch ends when none is pending.
    total: i64  # Number of jobs that were put into the batch.
    failed: i64  # Number of members that ended without an ack.
    pending: i64  # Number of members that have not ended.

    def __init__(self) -> None:
        self.sealed = False
        self.total = 0
        self.failed = 0
        self.pending = 0

    def is_over(self) -> bool:
        """Return whether all members have ended, and no more will come."""
        return self.sealed and self.pending == 0


class Stage(Timed):
    """A named set of jobs that are published together. The deadline of an open stage is the time when it expires.

    A batch of tasks is a stage, too: its jobs are the callbacks, which are published when all members have ended.
    """

    name: bytes
    phase: i64  # OPEN, PUBLISHED or DISCARDED.
    expire_ms: i64  # Time without a put or publication after which an open stage is discarded.
    until: i64  # Time (ms) of the expiry; for a closed stage, the time until which its name is kept.
    # Jobs in the order in which they were staged. Jobs that were deleted since then may still be in the list.
    jobs: list[Job]
    count: i64  # Number of jobs that are still staged.
    published: i64  # Number of jobs when the stage was published.
    closing: bool  # The stage is closed, but still has jobs.
    at: i64  # Number of jobs that have left the closed stage.
    members: BatchMembers | None  # The members of a batch; None for other stages.

    def __init__(self, name: bytes, expire_ms: i64) -> None:
        super().__init__()
        self.name = name
        self.phase = OPEN
        self.expire_ms = expire_ms
        self.until = 0
        self.jobs = []
        self.count = 0
        self.published = 0
        self.closing = False
        self.at = 0
        self.members = None

    def let_go(self) -> None:
        """Decrease the number of jobs in the stage by one, because a job has left it."""
        self.count -= 1
        if self.phase == OPEN and len(self.jobs) > 64 and self.count * 2 < len(self.jobs):
            # Compact the list only when more than half of it is gone, so that removing a job costs O(1) on average.
            self.jobs = [job for job in self.jobs if job.extra is not None and job.extra.stage == self.name]


class Stages(Timed):
    """All stages of a node.

    While published or discarded stages still have jobs, the deadline of this object is due, so that every turn moves
    some of these jobs.
    """

    by_name: dict[bytes, Stage]  # In the order in which they were created or closed.
    # Jobs that name a batch, while the engine is restored from the log. Otherwise empty.
    restored_members: list[Job]
    closing: list[Stage]  # Closed stages that still have jobs, in the order in which they are emptied.
    _closed: list[Stage]  # Closed stages whose names are kept, in the order of closing, from the index `_start` on.
    _start: i64

    def __init__(self) -> None:
        super().__init__()
        self.by_name = {}
        self.closing = []
        self.restored_members = []
        self._closed = []
        self._start = 0

    def find(self, name: bytes, now: i64) -> Stage | None:
        """Return the stage with this name.

        Return None if it never existed, or ended so long ago that it was removed.
        """
        stage = self.by_name.get(name)
        if stage is not None and stage.phase != OPEN and stage.until <= now and not stage.closing:
            return None
        return stage

    def add_closed(self, stage: Stage, now: i64) -> None:
        """Record that a stage was published or discarded.

        The names of such stages are kept. Remove the oldest of them if they are too old or too many.
        """
        # Move it to the end of the dict.
        self.by_name.pop(stage.name, None)
        self.by_name[stage.name] = stage
        over = self._closed
        over.append(stage)
        while self._start < len(over):
            oldest = over[self._start]
            if oldest.closing or (oldest.until > now and len(over) - self._start <= STAGES_REMEMBERED):
                break
            self._start += 1
            if self.by_name.get(oldest.name) is oldest:
                del self.by_name[oldest.name]
        if self._start > 64 and self._start * 2 > len(over):
            self._closed = over[self._start :]
            self._start = 0

    def names(self) -> list[bytes]:
        """Return the names of all stages, sorted by time.

        An open stage is sorted by the time of its creation, and a closed one by the time at which it was closed.
        """
        return list(self.by_name)
