"""Stages: puts that nobody can see or take until all of them are published together.

Many writers of one piece of work put what they have into stages of their own, and whoever oversees them publishes all
of these stages at once, or none. A staged job is in its tube's table already, with its id, its body and its name: what
could refuse it has been checked, and what remains is to let it go. That it is published is one row of the log for all
stages of a publication; the jobs move after that, a turn's worth at a time, in the order in which stages were published
and jobs were staged. What was published stays so whatever happens in between, and is not published twice: the names of
stages that are over are remembered for a while.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.deadlines import Timed
from penstock.core.job import Job
from penstock.core.limits import STAGES_REMEMBERED

OPEN: Final = 0
PUBLISHED: Final = 1
DISCARDED: Final = 2  # By somebody, or because it was not published in time.

STAGE_WORDS: Final = ["open", "published", "discarded"]


class Stage(Timed):
    """One stage. Its deadline is when it expires, while it is open."""

    name: bytes
    phase: i64  # OPEN, PUBLISHED or DISCARDED.
    expire_ms: i64  # How long it may wait for another put, or to be published.
    until: i64  # When it expires; once it is over, until when its name is remembered. ms.
    jobs: list[Job]  # In the order they were staged. Those that were deleted since are gone, and still in it.
    count: i64  # How many of them are staged.
    published: i64  # How many there were when it was published.
    closing: bool  # It is over, and its jobs have not all left it.
    at: i64  # How many of its jobs have left it, then.

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

    def let_go(self) -> None:
        """One of its jobs is staged no more."""
        self.count -= 1
        if self.phase == OPEN and len(self.jobs) > 64 and self.count * 2 < len(self.jobs):
            # Each is passed over once for each that stays.
            self.jobs = [job for job in self.jobs if job.extra is not None and job.extra.stage == self.name]


class Stages(Timed):
    """All stages of a node. Its deadline is now, while jobs have to leave stages that are over."""

    by_name: dict[bytes, Stage]  # In the order in which they were made or over.
    closing: list[Stage]  # Those that are over and have jobs, the first to be emptied first.
    _over: list[Stage]  # Those that are remembered, in the order they were over,
    _start: i64  # from here on.

    def __init__(self) -> None:
        super().__init__()
        self.by_name = {}
        self.closing = []
        self._over = []
        self._start = 0

    def find(self, name: bytes, now: i64) -> Stage | None:
        """The stage of a name, unless that was to be forgotten by now."""
        stage = self.by_name.get(name)
        if stage is not None and stage.phase != OPEN and stage.until <= now and not stage.closing:
            return None
        return stage

    def remember(self, stage: Stage, now: i64) -> None:
        """A stage is over. Forget those that are too old or too many; each is forgotten once."""
        # Behind all that changed before it.
        self.by_name.pop(stage.name, None)
        self.by_name[stage.name] = stage
        over = self._over
        over.append(stage)
        while self._start < len(over):
            oldest = over[self._start]
            if oldest.closing or (oldest.until > now and len(over) - self._start <= STAGES_REMEMBERED):
                break
            self._start += 1
            if self.by_name.get(oldest.name) is oldest:
                del self.by_name[oldest.name]
        if self._start > 64 and self._start * 2 > len(over):
            self._over = over[self._start :]
            self._start = 0

    def names(self) -> list[bytes]:
        """The names of all, in the order in which they were made or over."""
        return list(self.by_name)
