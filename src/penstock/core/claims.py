"""Claims: numbered batches of jobs for a consumer that must be able to read the same batch again.

A stream reader plans a batch, reads it in several processes, may fail and read it again, and learns later that it was
finished. Therefore a consumer requests claim number n and always gets the same jobs, until it acks the claim or the
claim's lease ends. While a claim holds a job, its ttr does not apply and its ttl does not expire. Other clients cannot
ack, release or bury it, and a delete takes effect when the claim ends.

A consumer is fenced by its token: a client with a greater token takes over, and requests with the smaller token are
refused from then on.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.deadlines import Timed
from penstock.core.job import Job


class Claim(Timed):
    """A batch of jobs. Its deadline is the end of its lease."""

    consumer: Consumer
    number: i64
    jobs: list[Job]  # In the order in which they were claimed.
    # The claim was acked. Its jobs are being acked, up to the limit of each turn, from the end of the list.
    acked: bool

    def __init__(self, consumer: Consumer, number: i64) -> None:
        super().__init__()
        self.consumer = consumer
        self.number = number
        self.jobs = []
        self.acked = False

    def shard(self, index: int, count: int) -> list[Job]:
        """Return one reader's part of the batch: the same jobs on every read."""
        return self.jobs[index::count]


class Consumer:
    """A named reader: its fencing token and its progress."""

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
