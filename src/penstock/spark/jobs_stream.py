"""The jobs of a tube as a stream: claims, which are acked when Spark has finished the batch they were in.

A claim is a numbered batch that the server gives out the same on every read (core/claims.py). An offset is a consumer
and the number of the last claim before it, {"consumer": "…", "claim": 7}, and is kept in the query's checkpoint; so is
the consumer's name, which is made up when the query begins. When Spark asks for the next offset, it tells how far it
has finished: that is when claims are acked. Spark's `commit` is too late: it comes with the batch after, or never.

While the query runs, the leases of its claims are renewed. If it dies and does not come back in time, its jobs go back
to their tube. A query that comes back has a greater token, so one that hangs and wakes up later is refused.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.client import commands
from penstock.client.commands import AGAIN, Call
from penstock.core.errors import ClaimGone, PenstockError
from penstock.core.limits import CLAIMS_OPEN_MAX
from penstock.spark.errors import SourceError, told
from penstock.spark.jobs_options import StreamOptions
from penstock.spark.node import Node

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# So many jobs a claim, the most that the server gives; and about so many bytes of bodies a task.
_CLAIM_JOBS: Final = 4_000
_TASK_BYTES: Final = 32 * 1024 * 1024

# How often the driver looks whether there are jobs, for how long, before it tells Spark that there are none.
_LOOK_S: Final = 0.05
_LOOKS: Final = 10

Offset = dict[str, Any]
T = TypeVar("T")


class ClaimPart(InputPartition):
    """What one task reads: shards of claims."""

    def __init__(self, consumer: str, shards: list[tuple[int, int, int]]) -> None:
        self.consumer = consumer
        self.shards = shards  # The number of the claim, the shard, and of how many.


class JobsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of jobs."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._new_consumer = options.consumer or f"{options.tube}/spark/{uuid.uuid4().hex}"
        self._desk: _Desk | None = None
        self._left: int | None = None  # How many jobs a query that reads what is there may still claim.
        self._lost: Offset | None = None  # Where the server has lost claims, and we go on as a new consumer.

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; what the driver holds stays there."""
        return {**self.__dict__, "_desk": None}

    def _at(self, consumer: str) -> _Desk:
        if self._desk is not None and self._desk.consumer != consumer:
            self.stop()
            self._desk = None
        if self._desk is None:
            self._desk = _Desk(self._options, consumer)
        return self._desk

    def initialOffset(self) -> Offset:
        """Before the first claim. A consumer whose name is known may have finished some, with another checkpoint."""
        acked = 0
        if self._options.consumer is not None:
            with told(), Node(self._options.url) as node:
                acked = node.call(commands.claim_info(self._options.consumer)).acked
        return {"consumer": self._new_consumer, "claim": acked}

    def getDefaultReadLimit(self) -> ReadLimit:
        """How many jobs a batch may have."""
        return ReadMaxRows(self._options.rows_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Everything before the start is finished: ack it. Then claim the next jobs."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_per_trigger
        with told():
            begin = self._finished(start)
            desk = self._at(begin["consumer"])
            if self._left is None:
                newest, _ = desk.claim(begin["claim"], most, True)
            else:
                newest, claimed = desk.claim(begin["claim"], min(most, self._left), False)
                self._left -= claimed
            return {**begin, "claim": newest} if newest > begin["claim"] else start

    def _finished(self, start: Offset) -> Offset:
        """Ack what is before a start, and tell where to go on: there, unless the server does not know of it.

        It has crashed and lost its last second, or is another one: the jobs are in their tube, and are claimed anew.
        """
        if start != self._lost:
            desk = self._at(start["consumer"])
            desk.ack(start["claim"])
            if desk.newest >= start["claim"]:
                return start
            if self._options.consumer is not None:
                raise SourceError(
                    f"the server has {desk.newest} claims of consumer {start['consumer']}, and the checkpoint "
                    f"{start['claim']}: it has lost some, or is another one; begin with a new checkpoint"
                )
            self._lost = start
        return {"consumer": self._new_consumer, "claim": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Claim no more than is there now."""
        with told(), Node(self._options.url) as node:
            self._left = _ready(node, self._options.tube)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Share the claims of a batch out to tasks."""
        with told():
            # A first batch that is planned again has its consumer in its end: the start was made up anew.
            same = start["consumer"] == end["consumer"]
            desk = self._at(end["consumer"])
            return list(desk.parts(start["claim"] if same else 0, end["claim"]))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The jobs of one task."""
        from penstock.spark.jobs_columns import batch, groups_of

        assert isinstance(partition, ClaimPart)
        with told(), Node(self._options.url) as node:
            for number, shard, shards in partition.shards:
                words = [b"CLAIM", b"READ", partition.consumer.encode(), b"%d" % number, b"PACKED"]
                try:
                    groups = node.call(Call([*words, b"SHARD", b"%d" % shard, b"%d" % shards], groups_of, AGAIN))
                except ClaimGone:
                    # Its lease ended while nobody ran the query: the jobs are in their tube again, or somebody's.
                    continue
                if groups:
                    yield batch(groups, self._options.columns)

    def commit(self, end: Offset) -> None:
        """A batch is finished, says Spark when it plans the next; acking again does nothing."""
        with told():
            self._at(end["consumer"]).ack(end["claim"])

    def stop(self) -> None:
        """Hang up."""
        if self._desk is not None:
            self._desk.close()


class _Desk:
    """The driver's dealings with the server, as one consumer."""

    def __init__(self, options: StreamOptions, consumer: str) -> None:
        self._options = options
        self.consumer = consumer
        self._node = Node(options.url)
        self._node.call(commands.find_tube(options.tube.encode()))
        info = self._node.call(commands.claim_info(consumer))
        # Whoever called itself so before is refused from the first command on that changes something.
        self._token = info.token + 1
        self._acked = info.acked
        self.newest = info.newest  # The number of its newest claim.
        self._sizes: dict[int, tuple[int, int]] = {}  # Of open claims: jobs, and bytes of their bodies.
        self._lock = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._renew, daemon=True, name="penstock-leases").start()

    def close(self) -> None:
        """Hang up; the leases run on for a while."""
        self._over.set()
        self._node.close()

    def _call(self, call: Call[T]) -> T:
        with self._lock:
            return self._node.call(call)

    def _renew(self) -> None:
        """Keep the claims for as long as the query runs."""
        while not self._over.wait(self._options.lease_ms / 3000):
            try:
                self._call(commands.renew_claims(self.consumer, self._options.lease_ms / 1000, self._token))
            except PenstockError:
                pass  # The query is told when it claims or acks next.

    def ack(self, upto: int) -> None:
        """All claims up to a number are finished."""
        if upto > self._acked:
            self._call(commands.ack_claims(self.consumer, min(upto, self.newest), self._token))
            self._acked = upto
            self._sizes = {number: size for number, size in self._sizes.items() if number > upto}

    def claim(self, start: int, most: int, wait: bool) -> tuple[int, int]:
        """Claim jobs behind a claim: the number of the newest, and how many more jobs are claimed now.

        Claims that were made before, and perhaps never became a batch, are among them whatever the limit.
        """
        newest, jobs, more = start, 0, 0
        while newest - start < CLAIMS_OPEN_MAX and (jobs < most or newest < self.newest):
            is_new = newest >= self.newest
            size = self._take(newest + 1, min(_CLAIM_JOBS, max(1, most - jobs)))
            if size is not None:
                jobs += size[0]
                more += size[0] if is_new else 0
            elif is_new:
                if newest > start or not wait or not self._awaited():
                    break
                wait = False
                continue
            newest += 1
        return newest, more

    def _awaited(self) -> bool:
        """Wait a little for a job to come; tell whether one did."""
        for _ in range(_LOOKS):
            self._over.wait(_LOOK_S)
            with self._lock:
                if _ready(self._node, self._options.tube):
                    return True
        return False

    def _take(self, number: int, count: int) -> tuple[int, int] | None:
        """The size of a claim, made if it was not; None: it is gone, or there is nothing to claim."""
        words = [b"CLAIM", b"TAKE", self._options.tube.encode(), self.consumer.encode(), b"%d" % number]
        words += [b"COUNT", b"%d" % count, b"LEASE", commands.duration(self._options.lease_ms)]
        try:
            size = self._call(Call([*words, b"TOKEN", b"%d" % self._token, b"SIZE"], _size, AGAIN))
        except ClaimGone:
            return None
        if size is not None:
            self._sizes[number] = size
            self.newest = max(self.newest, number)
        return size

    def parts(self, start: int, end: int) -> Iterator[ClaimPart]:
        """The claims behind one number up to another, as tasks of about the same size."""
        shards: list[tuple[int, int, int]] = []
        rows = 0
        for number in range(start + 1, end + 1):
            # One that another driver made is met here first; how large it is, is not asked for.
            jobs, size = self._sizes.get(number, (_CLAIM_JOBS, 0))
            count = max(1, -(-jobs // self._options.rows_per_partition), -(-size // _TASK_BYTES))
            for shard in range(count):
                shards.append((number, shard, count))
                rows += jobs // count
                if rows >= self._options.rows_per_partition or count > 1:
                    yield ClaimPart(self.consumer, shards)
                    shards, rows = [], 0
        if shards:
            yield ClaimPart(self.consumer, shards)


def _ready(node: Node, tube: str) -> int:
    """How many jobs could be claimed now."""
    return node.call(Call([b"TUBE", b"STATS", tube.encode()], commands.states, AGAIN))["ready"]


def _size(answer: Any) -> tuple[int, int] | None:
    if answer is None:
        return None
    jobs, size = commands.items(answer)
    return commands.number(jobs), commands.number(size)
