"""Connections and their waits: for a job to take, space to put one, copies on other nodes, or the end of a job.

A *line* is a list of waits in order of arrival. Waits are served first come, first served. A waiting take has a link in
one line of each tube that it waits on. When it ends, it leaves all of them. A tube has one line for takes of any job
and one line for each key that takes wait for.

If several takes could get a job, the one that arrived first gets it, even if they are in different lines. Therefore,
before a take of any job gets a job, earlier takes of that job's key are served. If one turn delivers several jobs to
takes of different lines, the order of these deliveries is not guaranteed. In fair tubes, this order also decides which
key is next.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from penstock.core.deadlines import Timed
from penstock.core.errors import CommandError
from penstock.core.job import Draft, Job
from penstock.core.sessions import Session
from penstock.core.tasks.signals import Signals

WAITING: Final = 0
SERVED: Final = 1
TIMED_OUT: Final = 2
CANCELLED: Final = 3  # The connection closed, the client cancelled the wait, or the tube was dropped.


# How the wait for the end of a job ended.
STILL_THERE: Final = 0  # The job has not ended: the wait timed out.
END_UNKNOWN: Final = 1  # The job was gone before the wait started.
END_ACKED: Final = 2
END_BURIED: Final = 3
END_DEAD_LETTERED: Final = 4  # The job failed for the last allowed time, and its retry policy moved it to another tube.
END_DROPPED: Final = 5  # The job failed for the last allowed time, and its retry policy dropped it.
END_EXPIRED: Final = 6
END_DELETED: Final = 7  # The job, its tube or its stage was deleted.
END_NAMES: Final = ["timeout", "gone", "acked", "buried", "dead-lettered", "dropped", "expired", "deleted"]


class Connection:
    """One client connection: its session and its pending waits."""

    def __init__(self, number: i64, session: Session) -> None:
        self.number = number
        self.session = session
        self.waits: dict[int, Waiting] = {}  # Pending waits by number.


class Waiting(Timed):
    """A waiting command of a client. Its deadline is its timeout."""

    def __init__(self, number: i64, connection: Connection, tag: object) -> None:
        super().__init__()
        self.number = number  # Order of arrival.
        self.connection = connection
        self.outcome: i64 = WAITING
        self.links: list[Link] = []
        self.tag = tag  # Used by the caller of the engine to find the client to answer.
        self.since: i64 = 0  # Time (ms) at which the wait started.


class TakeWait(Waiting):
    """A take that waits for jobs."""

    want: i64  # Maximal number of jobs.
    want_bytes: i64  # The wait takes no further job when the bodies of its jobs have this many bytes. Counted down.
    ttr_ms: i64  # Requested ttr, or UNSET.
    jobs: list[Job]  # Jobs that were delivered.
    deliveries: list[int]  # Delivery number of each of these jobs.

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
        """Add a job that was just delivered to this wait."""
        self.jobs.append(job)
        self.deliveries.append(job.deliveries)
        self.want_bytes -= job.reply_length()

    def wants_more(self) -> bool:
        return len(self.jobs) < self.want and self.want_bytes > 0


class PutWait(Waiting):
    """A put that waits for space in its tube."""

    draft: Draft
    tube: i32  # Slot of the tube.
    counted: i64  # Bytes of memory that are counted for the waiting put.
    job: Job | None  # The job that was put.
    refusal: CommandError | None  # Error that occurred when the tube had room.

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
    failures: bool  # The wait also ends when the job is buried or dead-lettered.
    end: i64  # How the job ended: one of the constants above.
    reason: bytes  # Reason of the failure, if the job failed.
    tube: i32  # Slot of the job's tube when the wait started.
    moved: bool  # The job ended in another tube, for which the client may lack permission.
    processed: bool  # The job was acked. False if it ended in another way or the wait timed out.
    before: i64  # State before the job ended during the wait; GONE if it did not.

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
        """Record how and why the job ended, and whether it ended in another tube."""
        self.end = end
        self.moved = tube != self.tube
        self.processed = end == END_ACKED
        extra = self.job.extra
        if end != END_ACKED and extra is not None:
            self.reason = extra.reason


class WatchWait(EndWait):
    """A client that waits for progress of a job after a number, or for its end."""

    def __init__(self, number: i64, connection: Connection, job: Job, after: i64, tag: object) -> None:
        super().__init__(number, connection, job, True, tag)
        self.after = after


class SignalWait(Waiting):
    """A client that waits for a signal to its session with a greater number than `after`."""

    def __init__(self, number: i64, connection: Connection, signals: Signals, after: i64, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.signals = signals
        self.after = after


class PeerWait(Waiting):
    """A command of a client that waits for other nodes."""


class CopyWait(PeerWait):
    """A put that waits until other nodes have copies of its job."""

    def __init__(self, number: i64, connection: Connection, job: Job, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.job = job
        self.refusal = b""  # RESP error if the put was given up before its timeout; otherwise empty.


class Link:
    """The entry of one wait in one line, which is a doubly linked list."""

    def __init__(self, wait: Waiting, line: WaitLine) -> None:
        self.wait = wait
        self.line = line
        self.before: Link | None = None
        self.after: Link | None = None


class WaitLine:
    """A list of waits in order of arrival: for any job of a tube, for jobs of one key, or for space in the tube."""

    def __init__(self, lines: dict[bytes, WaitLine] | None, key: bytes, tube: i32) -> None:
        self.head: Link | None = None
        self.tail: Link | None = None
        self.length: i64 = 0
        # The dict that contains this line by its key, from which it is removed when empty. None for other lines.
        self.lines = lines
        self.key = key
        self.tube = tube  # Slot of the tube.

    def join(self, wait: Waiting) -> None:
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
        """Remove the link of a wait from its line. If the line of a key is empty then, remove it from its tube."""
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
    for link in wait.links:
        link.line.leave(link)
    wait.links = []
