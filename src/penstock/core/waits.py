"""Clients, and what they wait for: a job to take, room to put one, copies of one elsewhere, the end of a job. First
come, first served.

A waiting take has one link in the line of each tube it watches; being served takes it out of all of them. Where
takers name a key there is a line for each key beside the line of those who take any, and of the two at the head the
one who came first is served.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from penstock.core.deadlines import Timed
from penstock.core.errors import CommandError
from penstock.core.job import Draft, Job
from penstock.core.sessions import Session

WAITING: Final = 0
SERVED: Final = 1
TIMED_OUT: Final = 2
CANCELLED: Final = 3  # Its connection is gone, it gave up before its time, or its tube was dropped.


# How the wait for the end of a job ended.
STILL_THERE: Final = 0  # The job has not ended: the time of the wait is over.
END_UNKNOWN: Final = 1  # The job was gone before the wait began.
END_ACKED: Final = 2
END_BURIED: Final = 3
END_DEAD_LETTERED: Final = 4  # It failed as often as it may, and its retry policy moved it to another tube.
END_DROPPED: Final = 5  # It failed as often as it may, and its retry policy dropped it.
END_EXPIRED: Final = 6
END_DELETED: Final = 7  # By itself, with its tube or with its stage.
END_NAMES: Final = ["timeout", "gone", "acked", "buried", "dead-lettered", "dropped", "expired", "deleted"]


class Connection:
    """One client, for as long as it stays: the session it acts for, and what it waits for."""

    number: i64
    session: Session
    waits: dict[int, Waiting]  # By their number.

    def __init__(self, number: i64, session: Session) -> None:
        self.number = number
        self.session = session
        self.waits = {}


class Waiting(Timed):
    """One client waiting for something. Its deadline is when its patience ends."""

    number: i64  # Who came first.
    connection: Connection
    outcome: i64
    links: list[Link]
    tag: object  # The shell's own: whom to answer.
    since: i64  # When it began, ms.

    def __init__(self, number: i64, connection: Connection, tag: object) -> None:
        super().__init__()
        self.number = number
        self.connection = connection
        self.outcome = WAITING
        self.links = []
        self.tag = tag
        self.since = 0


class Wait(Waiting):
    """A take that waits for a job."""

    want: i64  # How many jobs it takes at most.
    want_bytes: i64  # With so many bytes of bodies it has enough, however many jobs that are.
    ttr_ms: i64  # The ttr it asked for, or UNSET.
    jobs: list[Job]  # What it was served with.
    deliveries: list[int]  # Which delivery of each that was.

    def __init__(
        self, number: i64, connection: Connection, want: i64, want_bytes: i64, ttr_ms: i64, tag: object
    ) -> None:
        super().__init__(number, connection, tag)
        self.want = want
        self.want_bytes = want_bytes
        self.ttr_ms = ttr_ms
        self.jobs = []
        self.deliveries = []

    def give(self, job: Job) -> None:
        """Serve it with a job that was just taken for it."""
        self.jobs.append(job)
        self.deliveries.append(job.deliveries)
        self.want_bytes -= job.body_length()

    def wants_more(self) -> bool:
        """Whether it can be served with another job."""
        return len(self.jobs) < self.want and self.want_bytes > 0


class PutWait(Waiting):
    """A put that waits for room."""

    draft: Draft
    tube: i32  # Slot of the tube it waits for.
    counted: i64  # How many bytes of memory it is counted as while it waits.
    job: Job | None  # What was put when there was room.
    refusal: CommandError | None  # Why it was not put although there was room.

    def __init__(self, number: i64, connection: Connection, tube: i32, draft: Draft, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.tube = tube
        self.draft = draft
        self.counted = 0
        self.job = None
        self.refusal = None


class EndWait(Waiting):
    """A client that waits for the end of a job."""

    job: Job
    failures: bool  # It also ends when the job is buried or dead-lettered.
    end: i64  # How the wait ended: one of the ENDs above.
    reason: bytes  # Why the job failed, if it did.
    tube: i32  # Slot of the tube in which the job was when the wait began.
    moved: bool  # The job ended in another tube, which the client may have no permission to use.
    processed: bool  # The job was acked; otherwise it ended in another way, or the time was over.
    before: i64  # The state from which it ended while we waited; GONE if it did not.

    def __init__(self, number: i64, connection: Connection, job: Job, failures: bool, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.job = job
        self.failures = failures
        self.end = STILL_THERE
        self.reason = b""
        self.tube = job.tube
        self.moved = False
        self.processed = False
        self.before = 0

    def ended(self, end: i64, tube: i32) -> None:
        """Note how the job ended, why, and in which tube."""
        self.end = end
        self.moved = tube != self.tube
        self.processed = end == END_ACKED
        extra = self.job.extra
        if end != END_ACKED and extra is not None:
            self.reason = extra.reason


class ElsewhereWait(Waiting):
    """Somebody who waits for other nodes."""


class CopyWait(ElsewhereWait):
    """A put that waits until other nodes have copies of its job."""

    job: Job
    refusal: bytes  # Why it was given up before its time, in the words of RESP; empty if it was not.

    def __init__(self, number: i64, connection: Connection, job: Job, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.job = job
        self.refusal = b""


class Link:
    """The place of one who waits in one line."""

    wait: Waiting
    line: Line
    before: Link | None
    after: Link | None

    def __init__(self, wait: Waiting, line: Line) -> None:
        self.wait = wait
        self.line = line
        self.before = None
        self.after = None


class Line:
    """Those who wait for the same: jobs of a tube, of one of its keys, or room in it. In the order they came."""

    head: Link | None
    tail: Link | None
    length: i64
    lines: dict[bytes, Line] | None  # Where this line is found by key, to leave it when empty.
    key: bytes

    def __init__(self, lines: dict[bytes, Line] | None, key: bytes) -> None:
        self.head = None
        self.tail = None
        self.length = 0
        self.lines = lines
        self.key = key

    def join(self, wait: Waiting) -> None:
        """Stand at the end."""
        link = Link(wait, self)
        tail = self.tail
        if tail is None:
            self.head = link
        else:
            tail.after = link
            link.before = tail
        self.tail = link
        self.length += 1
        wait.links.append(link)

    def leave(self, link: Link) -> None:
        """Step out of line."""
        before = link.before
        after = link.after
        if before is None:
            self.head = after
        else:
            before.after = after
        if after is None:
            self.tail = before
        else:
            after.before = before
        link.before = None
        link.after = None
        self.length -= 1
        lines = self.lines
        if self.length == 0 and lines is not None:
            del lines[self.key]


def leave_all(wait: Waiting) -> None:
    """Step out of every line."""
    for link in wait.links:
        link.line.leave(link)
    wait.links = []
