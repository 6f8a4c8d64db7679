"""The jobs of tubes as a stream: claims, which are acked when Spark has finished their batch.

A claim is a numbered batch of jobs. The server returns the same jobs each time a claim is read (core/claims.py). An
offset is {"consumer": "…", "claim": 7}: the name of a consumer and the number of its last claim before the offset.
Spark stores it in the query's checkpoint. The consumer's name is generated when the query starts for the first time. A
stream of several tubes or servers has one consumer for each tube of each server. Its offset is {"claims": […]}, with an
entry {"tube": "…", "consumer": "…", "claim": 7} for each consumer.

Claims are acked when Spark asks for the next offset, because this call states how far the query has finished. Spark's
`commit` is too late: Spark calls it one batch later, or never. The ack also executes verdicts (verdicts.py). If a batch
is run again, its claims lose the verdicts of the earlier run when the batch is planned.

The leases of the claims are renewed while the query runs. If the query dies and is not restarted before they expire,
its jobs return to their tube. A restarted query uses a greater fencing token, so the server refuses an old driver that
hung and resumes later.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.core.errors import ClaimGone, PenstockError
from penstock.core.limits import CLAIMS_OPEN_MAX
from penstock.spark.errors import SourceError, as_source_error
from penstock.spark.jobs.claim_names import ClaimName
from penstock.spark.jobs.options import StreamOptions
from penstock.spark.jobs.scan import servers_by_tube
from penstock.spark.jobs.verdicts import verdict_call
from penstock.spark.node import Node
from penstock.spark.versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Jobs per claim: the maximum of the server.
_CLAIM_JOBS: Final = 4_000
# Approximate bytes of bodies per task.
_TASK_BYTES: Final = 32 * 1024 * 1024

# If the tubes are empty, the driver checks them again this often and this many times before it reports no new jobs.
_POLL_S: Final = 0.05
_POLLS_MAX: Final = 10

Offset = dict[str, Any]
T = TypeVar("T")


class Source(NamedTuple):
    """A tube of a server."""

    tube: str
    url: str


class Progress(NamedTuple):
    """How far a consumer has come: an offset, or one of the entries of an offset."""

    tube: str
    consumer: str
    claim: int  # Number of the last claim before the offset.


class ClaimPart(InputPartition):
    """The input of one Spark task: parts (shards) of one or several claims."""

    def __init__(self, url: str, consumer: str, token: int, shards: list[tuple[int, int, int]]) -> None:
        self.url = url
        self.consumer = consumer
        self.token = token
        self.shards = shards  # Number of the claim, index of the shard, shards of the claim.


class JobsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of jobs."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._sources_found: list[Source] = []  # Empty until they are needed.
        self._names: dict[Source, str] = {}  # The consumers of sources that are not in the checkpoint.
        self._urls: dict[str, str] = {}  # The servers of consumers, as far as they are known.
        self._clients: dict[str, _ClaimClient] = {}  # By consumer.
        self._left: dict[Source, int] | None = (
            None  # With the trigger availableNow: how many jobs may still be claimed.
        )
        # New consumers by the consumers whose claims the server lost. The query continues with the new ones.
        self._replaced: dict[str, Progress] = {}
        self._turn = 0  # Number of batches that were claimed. The sources take turns in being the first.

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle for Spark tasks, which do not use the driver's connections."""
        return {**self.__dict__, "_clients": {}}

    # Sources and consumers

    def _sources(self) -> list[Source]:
        """Return the tubes of the options with the servers that have them. Raise UnknownTube if no server has one."""
        if not self._sources_found:
            urls, tubes = self._options.urls, self._options.tubes
            homes = servers_by_tube(urls, set(tubes))
            with Node(urls[0]) as node:
                for tube in tubes:
                    if not homes[tube]:
                        # If it is on another node of a cluster, the first server forwards the commands.
                        node.call(commands.find_tube(tube.encode()))
            self._sources_found = [Source(tube, url) for tube in tubes for url in homes[tube] or urls[:1]]
        return self._sources_found

    @property
    def _is_single(self) -> bool:
        """Whether the stream has one consumer, whose offset has no list of entries."""
        return len(self._options.urls) == len(self._options.tubes) == 1

    def _name(self, source: Source) -> str:
        """Return the name of the consumer of a source that is not in the checkpoint."""
        if source not in self._names:
            given = self._options.consumer
            if given is None:
                name = _new_name(source.tube)
            elif self._is_single:
                name = given
            else:
                # The names differ even if several servers have the tube, because an offset does not name the server.
                before = [other for other in self._sources() if other.tube == source.tube].index(source)
                name = f"{given}/{source.tube}" + (f"/{before}" if before else "")
            self._names[source] = name
            self._urls[name] = source.url
        return self._names[source]

    def _entries(self, offset: Offset) -> list[Progress]:
        if "claims" in offset:
            return [Progress(each["tube"], each["consumer"], each["claim"]) for each in offset["claims"]]
        return [Progress(self._options.tubes[0], offset["consumer"], offset["claim"])]

    def _offset(self, entries: list[Progress]) -> Offset:
        if self._is_single:
            return {"consumer": entries[0].consumer, "claim": entries[0].claim}
        return {"claims": [entry._asdict() for entry in sorted(entries)]}

    def _by_source(self, entries: list[Progress]) -> dict[Source, Progress]:
        """Return the entry of each source. A source that is not in the checkpoint gets a new consumer."""
        if self._is_single:
            return {Source(self._options.tubes[0], self._options.urls[0]): entries[0]}
        found = {Source(entry.tube, self._url(entry)): entry for entry in entries}
        return {source: found.get(source) or Progress(source.tube, self._name(source), 0) for source in self._sources()}

    def _url(self, entry: Progress) -> str:
        """Return the server that has the claims of a consumer."""
        if entry.consumer not in self._urls:
            urls = [source.url for source in self._sources() if source.tube == entry.tube] or [self._options.urls[0]]
            found = urls[0]
            for url in urls[1:]:
                with Node(url) as node:
                    if node.call(commands.claim_info(entry.consumer)).newest:
                        found = url
            self._urls[entry.consumer] = found
        return self._urls[entry.consumer]

    def _client(self, entry: Progress) -> _ClaimClient:
        if entry.consumer not in self._clients:
            self._clients[entry.consumer] = _ClaimClient(self._options, entry, self._url(entry))
        return self._clients[entry.consumer]

    # Offsets

    def initialOffset(self) -> Offset:
        """Return the offset after the last acked claims of the consumers. A generated consumer has no claims yet."""
        if self._is_single and self._options.consumer is None:
            [tube], [url] = self._options.tubes, self._options.urls
            return self._offset([Progress(tube, self._name(Source(tube, url)), 0)])
        entries = []
        with as_source_error():
            for source in self._sources():
                acked, name = 0, self._name(source)
                if self._options.consumer is not None:
                    with Node(source.url) as node:
                        acked = node.call(commands.claim_info(name)).acked
                entries.append(Progress(source.tube, name, acked))
        return self._offset(entries)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_trigger)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Ack all claims up to `start`, because Spark has finished them. Then claim the next jobs."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_per_trigger
        with as_source_error():
            self._sources()
            entries = self._entries(start)
            # An entry can belong to a tube that was removed from the options. Its claims are acked, too.
            begins = {entry.consumer: self._ack_finished(entry) for entry in entries}
            by_source = self._by_source([begins[entry.consumer] for entry in entries])
            ends = self._claim(by_source, most)
            if ends == by_source and self._left is None and self._wait_for_jobs(by_source):
                ends = self._claim(by_source, most)
            return start if ends == by_source else self._offset(list(ends.values()))

    def _ack_finished(self, entry: Progress) -> Progress:
        """Ack the claims up to an entry of an offset. Return the entry to continue from.

        This is `entry` if the server has these claims. Otherwise the server has crashed and lost the changes of its
        last second, or it is another server. The jobs are then still in their tube, and a new consumer claims them.
        """
        if entry.consumer not in self._replaced:
            client = self._client(entry)
            client.ack(entry.claim)
            if client.newest >= entry.claim:
                return entry
            if self._options.consumer is not None:
                raise SourceError(
                    f"the server has {client.newest} claims of consumer {entry.consumer}, and the checkpoint "
                    f"{entry.claim}: the server has lost claims, or is another one; start with a new checkpoint"
                )
            self._replaced[entry.consumer] = new = Progress(entry.tube, _new_name(entry.tube), 0)
            self._urls[new.consumer] = client.url
        return self._replaced[entry.consumer]

    def _claim(self, by_source: dict[Source, Progress], most: int) -> dict[Source, Progress]:
        """Claim up to `most` jobs of all sources together. Return the new entry of each source.

        The sources get equal shares. A source that has fewer jobs leaves the rest of its share to those after it.
        """
        ends = dict(by_source)
        first = self._turn % len(by_source)
        order = [*list(by_source)[first:], *list(by_source)[:first]]
        for at, source in enumerate(order):
            share = -(-most // (len(order) - at))
            if self._left is not None:
                share = min(share, self._left[source])
            entry = by_source[source]
            newest, jobs, claimed = self._client(entry).claim(entry.claim, share)
            most = max(0, most - jobs)
            if self._left is not None:
                self._left[source] -= claimed
            ends[source] = entry._replace(claim=newest)
        self._turn += ends != by_source
        return ends

    def _wait_for_jobs(self, by_source: dict[Source, Progress]) -> bool:
        """Wait up to half a second for a ready job. Return whether there is one."""
        for _ in range(_POLLS_MAX):
            time.sleep(_POLL_S)
            if any(self._client(entry).count_ready() for entry in by_source.values()):
                return True
        return False

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the number of jobs that are ready now."""
        with as_source_error():
            self._left = {}
            for source in self._sources():
                with Node(source.url) as node:
                    self._left[source] = node.call(_count_states(source.tube))["ready"]

    # Batches

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the Spark tasks that read the claims of a batch."""
        with as_source_error():
            # If the first batch is planned again after a restart, the start has newly generated consumers. The end has
            # the consumers that made the claims.
            begins = {entry.consumer: entry.claim for entry in self._entries(start)}
            found: list[InputPartition] = []
            for entry in self._entries(end):
                client, begin = self._client(entry), begins.get(entry.consumer, 0)
                client.clear_verdicts(begin, entry.claim)
                found += client.parts(begin, entry.claim)
            return found

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the jobs of one Spark task."""
        from penstock.spark.jobs.columns import batch, groups_of, words_of

        assert isinstance(partition, ClaimPart)
        columns = self._options.columns
        with as_source_error(), Node(partition.url) as node:
            for number, shard, shards in partition.shards:
                words = [b"CLAIM", b"READ", partition.consumer.encode(), b"%d" % number, *words_of(columns)]
                try:
                    groups = node.call(Call([*words, b"SHARD", b"%d" % shard, b"%d" % shards], groups_of, REPEAT))
                except ClaimGone:
                    # The lease expired while the query was stopped. The jobs returned to their tube, where another
                    # consumer may have taken them.
                    continue
                if groups:
                    yield batch(groups, columns, str(ClaimName(partition.consumer, number, partition.token)))

    def commit(self, end: Offset) -> None:
        """Ack a finished batch. Most often latestOffset has acked it before, and then this has no effect."""
        with as_source_error():
            for entry in self._entries(end):
                self._client(entry).ack(entry.claim)

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()


class _ClaimClient:
    """The driver's connection to a server: claims, acks and renews leases as one consumer."""

    def __init__(self, options: StreamOptions, entry: Progress, url: str) -> None:
        self._options = options
        self._tube = entry.tube
        self._consumer = entry.consumer
        self.url = url
        self._node = Node(url)
        info = self._node.call(commands.claim_info(entry.consumer))
        # After the first command with this token, the server refuses earlier drivers of the same consumer.
        self._token = info.token + 1
        self._acked = info.acked
        self.newest = info.newest  # Number of the consumer's newest claim.
        self._foreign = {number for number in info.open if number <= info.newest}  # Claims that may have old verdicts.
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
                self._call(commands.renew_claims(self._consumer, self._options.lease_ms / 1000, self._token))
            except PenstockError:
                pass  # The next claim or ack of the query raises the error.

    def count_ready(self) -> int:
        return self._call(_count_states(self._tube))["ready"]

    def ack(self, upto: int) -> None:
        """Ack all claims up to and including the number `upto`."""
        if upto > self._acked:
            self._call(commands.ack_claims(self._consumer, min(upto, self.newest), self._token))
            self._acked = upto
            self._sizes = {number: size for number, size in self._sizes.items() if number > upto}

    def claim(self, start: int, most: int) -> tuple[int, int, int]:
        """Claim jobs, until the claims after the claim `start` have `most` jobs together.

        Some of these claims can exist already, if Spark has not put them into a batch yet. Return the newest claim, the
        number of jobs after `start`, and how many of them were claimed now.
        """
        newest, jobs, more = start, 0, 0
        while newest - start < CLAIMS_OPEN_MAX and (jobs < most or newest < self.newest):
            is_new = newest >= self.newest
            size = self._take(newest + 1, min(_CLAIM_JOBS, max(1, most - jobs)))
            if size is not None:
                jobs += size[0]
                more += size[0] if is_new else 0
            elif is_new:
                break
            newest += 1
        return newest, jobs, more

    def _take(self, number: int, count: int) -> tuple[int, int] | None:
        """Claim up to `count` jobs as claim `number`, unless this claim exists. Return how many jobs and bytes it has.

        Return None if the lease of the claim expired, or if there are no jobs to claim.
        """
        words = [b"CLAIM", b"TAKE", self._tube.encode(), self._consumer.encode(), b"%d" % number]
        words += [b"COUNT", b"%d" % count, b"LEASE", commands.duration(self._options.lease_ms)]
        try:
            size = self._call(Call([*words, b"TOKEN", b"%d" % self._token, b"SIZE"], _size, REPEAT))
        except ClaimGone:
            return None
        if size is not None:
            self._sizes[number] = size
            self.newest = max(self.newest, number)
        return size

    def clear_verdicts(self, start: int, end: int) -> None:
        """Remove the verdicts that an earlier driver gave in a batch that is planned again."""
        for number in range(start + 1, end + 1):
            if number in self._foreign:
                try:
                    self._call(verdict_call(ClaimName(self._consumer, number, self._token), []))
                except ClaimGone:
                    pass  # Its lease expired, and its verdicts have no effect.
                self._foreign.discard(number)

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
                    yield ClaimPart(self.url, self._consumer, self._token, shards)
                    shards, rows = [], 0
        if shards:
            yield ClaimPart(self.url, self._consumer, self._token, shards)


def _new_name(tube: str) -> str:
    """Return a new name for a consumer. It starts with the tube, because a user may be allowed only such names."""
    return f"{tube}/spark/{uuid.uuid4().hex}"


def _count_states(tube: str) -> Call[dict[str, int]]:
    return commands.tube_stats(tube.encode(), commands.states)


def _size(answer: Any) -> tuple[int, int] | None:
    if answer is None:
        return None
    jobs, size = commands.items(answer)
    return commands.number(jobs), commands.number(size)
