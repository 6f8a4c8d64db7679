"""The jobs of a tube as a stream: claims, which are acked when Spark has finished their batch.

A claim is a numbered batch of jobs. The server returns the same jobs each time a claim is read (core/claims.py). An
offset is {"consumer": "…", "claim": 7}: the name of a consumer and the number of its last claim before the offset.
Spark stores it in the query's checkpoint. The consumer's name is generated when the query starts for the first time.

Claims are acked when Spark asks for the next offset, because this call states how far the query has finished. Spark's
`commit` is too late: Spark calls it one batch later, or never.

The leases of the claims are renewed while the query runs. If the query dies and is not restarted before they expire,
its jobs return to their tube. A restarted query uses a greater fencing token, so the server refuses an old driver that
hung and resumes later.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.core.errors import ClaimGone, PenstockError
from penstock.core.limits import CLAIMS_OPEN_MAX
from penstock.spark.errors import SourceError, as_source_error
from penstock.spark.jobs.options import StreamOptions
from penstock.spark.node import Node
from penstock.spark.versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Jobs per claim: the maximum of the server.
_CLAIM_JOBS: Final = 4_000
# Approximate bytes of bodies per task.
_TASK_BYTES: Final = 32 * 1024 * 1024

# If the tube is empty, the driver checks it again this often and this many times before it reports no new jobs.
_POLL_S: Final = 0.05
_POLLS_MAX: Final = 10

Offset = dict[str, Any]
T = TypeVar("T")


class ClaimPart(InputPartition):
    """The input of one Spark task: parts (shards) of one or several claims."""

    def __init__(self, consumer: str, shards: list[tuple[int, int, int]]) -> None:
        self.consumer = consumer
        self.shards = shards  # Number of the claim, index of the shard, shards of the claim.


class JobsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of jobs."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._new_consumer = options.consumer or f"{options.tube}/spark/{uuid.uuid4().hex}"
        self._client: _ClaimClient | None = None
        self._left: int | None = None  # With the trigger availableNow: number of jobs that may still be claimed.
        self._lost: Offset | None = None  # An offset whose claims the server lost. The query continues as a new one.

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle for Spark tasks, which do not use the driver's connection."""
        return {**self.__dict__, "_client": None}

    def _client_for(self, consumer: str) -> _ClaimClient:
        if self._client is not None and self._client.consumer != consumer:
            self.stop()
            self._client = None
        if self._client is None:
            self._client = _ClaimClient(self._options, consumer)
        return self._client

    def initialOffset(self) -> Offset:
        """Return the offset after the last acked claim of the consumer. A generated consumer has no claims yet."""
        acked = 0
        if self._options.consumer is not None:
            with as_source_error(), Node(self._options.url) as node:
                acked = node.call(commands.claim_info(self._options.consumer)).acked
        return {"consumer": self._new_consumer, "claim": acked}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Ack all claims up to `start`, because Spark has finished them. Then claim the next jobs."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_per_trigger
        with as_source_error():
            begin = self._ack_finished(start)
            client = self._client_for(begin["consumer"])
            if self._left is None:
                newest, _ = client.claim(begin["claim"], most, True)
            else:
                newest, claimed = client.claim(begin["claim"], min(most, self._left), False)
                self._left -= claimed
            return {**begin, "claim": newest} if newest > begin["claim"] else start

    def _ack_finished(self, start: Offset) -> Offset:
        """Ack the claims up to `start`. Return the offset to continue from.

        The offset is `start` if the server has these claims. Otherwise the server has crashed and lost the changes of
        its last second, or it is another server. The jobs are then still in their tube, and a new consumer claims them.
        """
        if start != self._lost:
            client = self._client_for(start["consumer"])
            client.ack(start["claim"])
            if client.newest >= start["claim"]:
                return start
            if self._options.consumer is not None:
                raise SourceError(
                    f"the server has {client.newest} claims of consumer {start['consumer']}, and the checkpoint "
                    f"{start['claim']}: the server has lost claims, or is another one; start with a new checkpoint"
                )
            self._lost = start
        return {"consumer": self._new_consumer, "claim": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the number of jobs that are ready now."""
        with as_source_error(), Node(self._options.url) as node:
            self._left = node.call(_count_states(self._options.tube))["ready"]

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the Spark tasks that read the claims of a batch."""
        with as_source_error():
            # If the first batch is planned again after a restart, the start has a newly generated consumer. The end has
            # the consumer that made the claims.
            same = start["consumer"] == end["consumer"]
            client = self._client_for(end["consumer"])
            return list(client.parts(start["claim"] if same else 0, end["claim"]))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the jobs of one Spark task."""
        from penstock.spark.jobs.columns import batch, groups_of

        assert isinstance(partition, ClaimPart)
        with as_source_error(), Node(self._options.url) as node:
            for number, shard, shards in partition.shards:
                words = [b"CLAIM", b"READ", partition.consumer.encode(), b"%d" % number, b"PACKED"]
                if "headers" in self._options.columns:
                    words.append(b"HEADERS")
                try:
                    groups = node.call(Call([*words, b"SHARD", b"%d" % shard, b"%d" % shards], groups_of, REPEAT))
                except ClaimGone:
                    # The lease expired while the query was stopped. The jobs returned to their tube, where another
                    # consumer may have taken them.
                    continue
                if groups:
                    yield batch(groups, self._options.columns)

    def commit(self, end: Offset) -> None:
        """Ack a finished batch. Most often latestOffset has acked it before, and then this has no effect."""
        with as_source_error():
            self._client_for(end["consumer"]).ack(end["claim"])

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()


class _ClaimClient:
    """The driver's connection to the server: claims, acks and renews leases as one consumer."""

    def __init__(self, options: StreamOptions, consumer: str) -> None:
        self._options = options
        self.consumer = consumer
        self._node = Node(options.url)
        self._node.call(commands.find_tube(options.tube.encode()))
        info = self._node.call(commands.claim_info(consumer))
        # After the first command with this token, the server refuses earlier drivers of the same consumer.
        self._token = info.token + 1
        self._acked = info.acked
        self.newest = info.newest  # Number of the consumer's newest claim.
        self._sizes: dict[int, tuple[int, int]] = {}  # Jobs and bytes of bodies of each open claim, by its number.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._renew, daemon=True, name="penstock-leases").start()

    def close(self) -> None:
        """Close the connection and stop renewing. The leases stay valid until they expire."""
        self._closed.set()
        self._node.close()

    def _call(self, call: Call[T]) -> T:
        with self._lock:
            return self._node.call(call)

    def _renew(self) -> None:
        while not self._closed.wait(self._options.lease_ms / 3000):
            try:
                self._call(commands.renew_claims(self.consumer, self._options.lease_ms / 1000, self._token))
            except PenstockError:
                pass  # The next claim or ack of the query raises the error.

    def ack(self, upto: int) -> None:
        """Ack all claims up to and including the number `upto`."""
        if upto > self._acked:
            self._call(commands.ack_claims(self.consumer, min(upto, self.newest), self._token))
            self._acked = upto
            self._sizes = {number: size for number, size in self._sizes.items() if number > upto}

    def claim(self, start: int, most: int, wait: bool) -> tuple[int, int]:
        """Claim jobs, until the claims after the claim `start` have `most` jobs together.

        Some of these claims can exist already, if Spark has not put them into a batch yet. Return the newest claim, and
        how many jobs were claimed now.
        """
        newest, jobs, more = start, 0, 0
        while newest - start < CLAIMS_OPEN_MAX and (jobs < most or newest < self.newest):
            is_new = newest >= self.newest
            size = self._take(newest + 1, min(_CLAIM_JOBS, max(1, most - jobs)))
            if size is not None:
                jobs += size[0]
                more += size[0] if is_new else 0
            elif is_new:
                if newest > start or not wait or not self._wait_for_jobs():
                    break
                wait = False
                continue
            newest += 1
        return newest, more

    def _wait_for_jobs(self) -> bool:
        """Wait up to half a second for a ready job. Return whether there is one."""
        for _ in range(_POLLS_MAX):
            self._closed.wait(_POLL_S)
            if self._call(_count_states(self._options.tube))["ready"]:
                return True
        return False

    def _take(self, number: int, count: int) -> tuple[int, int] | None:
        """Claim up to `count` jobs as claim `number`, unless this claim exists. Return how many jobs and bytes it has.

        Return None if the lease of the claim expired, or if there are no jobs to claim.
        """
        words = [b"CLAIM", b"TAKE", self._options.tube.encode(), self.consumer.encode(), b"%d" % number]
        words += [b"COUNT", b"%d" % count, b"LEASE", commands.duration(self._options.lease_ms)]
        try:
            size = self._call(Call([*words, b"TOKEN", b"%d" % self._token, b"SIZE"], _size, REPEAT))
        except ClaimGone:
            return None
        if size is not None:
            self._sizes[number] = size
            self.newest = max(self.newest, number)
        return size

    def parts(self, start: int, end: int) -> Iterator[ClaimPart]:
        """Yield Spark tasks of about the same size for the claims after `start` up to and including `end`."""
        shards: list[tuple[int, int, int]] = []
        rows = 0
        for number in range(start + 1, end + 1):
            # The size of a claim that another driver made is not known here.
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


def _count_states(tube: str) -> Call[dict[str, int]]:
    return commands.tube_stats(tube.encode(), commands.states)


def _size(answer: Any) -> tuple[int, int] | None:
    if answer is None:
        return None
    jobs, size = commands.items(answer)
    return commands.number(jobs), commands.number(size)
