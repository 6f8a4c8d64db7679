"""The existing jobs as a batch: a scan that takes and changes no job.

The scan reads a running queue page by page. A job that exists during the whole scan is returned once, in the state that
it had when its page was read. A large tube is read by several Spark tasks, each of which reads one shard of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.client.commands import REPEAT, Call, find_tube, page, scan_tubes, tube_stats, tubes
from penstock.client.commands import states as in_states
from penstock.core.errors import UnknownTube
from penstock.spark.errors import as_source_error
from penstock.spark.jobs.options import ReadOptions
from penstock.spark.node import Node
from penstock.spark.versions import EqualTo, Filter, In, filter_offer

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from penstock.spark.jobs.columns import Group

# Jobs per page: the maximum of JOB SCAN.
_PAGE: Final = b"1000"


# The maximum number of tasks for a tube. Each task examines at least one job for every block that it skips.
_SHARDS_MAX: Final = 1_000


class Scan(InputPartition):
    """The input of one Spark task: a shard of a tube of a server, or of all its tubes if `tube` is None."""

    def __init__(self, url: str, tube: str | None, shard: int, shards: int) -> None:
        self.url = url
        self.tube = tube
        self.shard = shard
        self.shards = shards


class JobsReader(DataSourceReader):
    """Reads a batch of jobs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._required_tubes = options.tubes  # Tubes of the option must exist. Tubes that a filter names need not.

    @filter_offer
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept filters on the tube and the state, which the server applies. Yield the other filters."""
        for each in filters:
            name = each.attribute[0] if isinstance(each, (EqualTo, In)) else None
            values = each.value if isinstance(each, In) else (each.value,) if isinstance(each, EqualTo) else ()
            if name == "tube":
                wanted = [value for value in values if value is not None]
                kept = [tube for tube in self._options.tubes if tube in wanted] if self._options.tubes else wanted
                self._options = replace(self._options, tubes=tuple(dict.fromkeys(kept)) or ("",))
            elif name == "state":
                self._options = replace(
                    self._options, states=tuple(state for state in self._options.states if state in values)
                )
            else:
                yield each

    def partitions(self) -> list[InputPartition]:
        """Return Spark tasks for each selected tube of each server, or for each server if no tube is selected."""
        options = self._options
        with as_source_error():
            homes = servers_by_tube(options.urls, {*self._required_tubes, *options.tubes})
            with Node(options.urls[0]) as node:
                for tube in self._required_tubes:
                    if not homes.get(tube):
                        node.call(find_tube(tube.encode()))
            if not options.states:
                return []
            if not options.tubes:
                return [scan for url in options.urls for scan in self._shards(url, None)]
            # A tube may be on another node of the cluster only. It is then read through the first server.
            named = [(url, tube) for tube in options.tubes if tube for url in homes.get(tube) or options.urls[:1]]
            return [scan for url, tube in named for scan in self._shards(url, tube)]

    def _shards(self, url: str, tube: str | None) -> list[Scan]:
        """Return tasks that read about `rowsPerPartition` jobs each."""
        with Node(url) as node:
            jobs = _count_jobs(node, tube, self._options.states)
        shards = min(_SHARDS_MAX, max(1, -(-jobs // self._options.rows_per_partition)))
        return [Scan(url, tube, shard, shards) for shard in range(shards)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the jobs of one Spark task. If there are no tasks, Spark passes another object, and nothing is read."""
        from penstock.spark.jobs.columns import batch, words_of

        if not isinstance(partition, Scan):
            return
        words = [*words_of(self._options.columns), b"COUNT", _PAGE]
        words += [b"TUBE", partition.tube.encode()] if partition.tube is not None else []
        words += [b"SHARD", b"%d" % partition.shard, b"%d" % partition.shards] if partition.shards > 1 else []
        words += [b"STATE", *(state.encode() for state in self._options.states)]
        if "body" not in self._options.columns:
            words.append(b"NOBODIES")
        with as_source_error(), Node(partition.url) as node:
            cursor = b"0"
            while True:
                try:
                    cursor, groups = node.call(_scan(cursor, words))
                except UnknownTube:
                    return  # A filter names a tube that does not exist.
                if groups:
                    yield batch(groups, self._options.columns)
                if cursor == b"0":
                    return


def _scan(cursor: bytes, words: list[bytes]) -> Call[tuple[bytes, list[Group]]]:
    """Return the call that reads one page of a scan. Its result is the next cursor and the packed jobs."""
    from penstock.spark.jobs.columns import groups_of

    def read(answer: Any) -> tuple[bytes, list[Group]]:
        after, found = page(cursor, answer)
        return after, groups_of(found)

    return Call([b"JOB", b"SCAN", cursor, *words], read, REPEAT)


def _count_jobs(node: Node, tube: str | None, states: tuple[str, ...]) -> int:
    """Return how many jobs a tube, or all tubes of a server, have in these states. Return 0 for a missing tube."""
    if tube is not None:
        try:
            counts = [node.call(tube_stats(tube.encode(), in_states))]
        except UnknownTube:
            return 0
        return sum(count[state] for count in counts for state in states)
    jobs, cursor = 0, b"0"
    while True:
        cursor, counts = node.call(scan_tubes(cursor, in_states))
        jobs += sum(count[state] for count in counts for state in states)
        if cursor == b"0":
            return jobs


def servers_by_tube(urls: tuple[str, ...], wanted: set[str]) -> dict[str, list[str]]:
    """Return for each wanted tube the URLs of the servers that have it. With a single server, return nothing.

    In a cluster, a node that does not have a tube forwards a scan of it to the node that has it. If every node were
    scanned, the jobs of the tube would be returned several times.
    """
    found: dict[str, list[str]] = {tube: [] for tube in wanted}
    if wanted and len(urls) > 1:
        for url in urls:
            with Node(url) as node:
                theirs: list[str] = node.call(tubes())
            for tube in wanted.intersection(theirs):
                found[tube].append(url)
    return found
