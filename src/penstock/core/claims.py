"""Claims: numbered batches of jobs for a consumer that must be able to read the same batch again.

A stream reader plans a batch, reads it in several places, may fail and read it again, and learns only later that it was
finished. So a consumer asks for claim number n and gets the same jobs however often it asks, until it acks the claim
or the claim's lease runs out. Within a claim jobs have no ttr and their ttl waits; others cannot ack, release or bury
them, and a delete takes effect when the claim ends. A consumer is fenced by its token: one that comes with a greater
token takes over, and the one before is refused from then on.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.deadlines import Timed
from penstock.core.job import Job


class Claim(Timed):
    """One batch. Its deadline is the end of its lease."""

    consumer: Consumer
    number: i64
    jobs: list[Job]  # In the order they were served.
    acked: bool  # It has ended so: its jobs are being acked, a turn's worth at a time, the last of the list first.

    def __init__(self, consumer: Consumer, number: i64) -> None:
        super().__init__()
        self.consumer = consumer
        self.number = number
        self.jobs = []
        self.acked = False

    def shard(self, index: int, count: int) -> list[Job]:
        """One reader's part of the batch: the same jobs on every read."""
        return self.jobs[index::count]


class Consumer:
    """One named reader: who it is now, and how far it is."""

    name: bytes
    token: i64  # The greatest it was seen with.
    acked: i64  # Every claim up to this number is acked.
    newest: i64  # The number of its newest claim.
    lease_ms: i64  # The lease it asked for last; its claims get it anew after a restart.
    claims: dict[int, Claim]  # Those neither acked nor ended.
    acking: dict[int, Claim]  # Those that were acked, and of which not all jobs are gone yet.

    def __init__(self, name: bytes, token: i64) -> None:
        self.name = name
        self.token = token
        self.acked = 0
        self.newest = 0
        self.lease_ms = 0
        self.claims = {}
        self.acking = {}
