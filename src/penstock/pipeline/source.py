"""The source of events: the nodes whose logs the pipeline reads."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.client import commands
from penstock.core.errors import OutOfRange, Trimmed
from penstock.core.policy import TubePolicy
from penstock.journal.history.block import BlockDigest
from penstock.lake.errors import BadLake, PipelineError
from penstock.lake.lake import Lake
from penstock.lake.span import Span
from penstock.pipeline.bronze import POSITIONS_A_TASK
from penstock.pipeline.coverage import missing, spans
from penstock.spark.node import Head, Node

if TYPE_CHECKING:
    from penstock.spark.events.ranges import EventsRange


@dataclass(frozen=True)
class Source:
    """The logs of some nodes."""

    urls: tuple[str, ...]
    bodies: bool = True
    gaps: bool = False  # Whether to continue if history was trimmed before it was read.

    @contextmanager
    def connected(self) -> Iterator[Logs]:
        """Connect to all nodes for the block. An unreachable node is reported at once."""
        logs = Logs(self)
        try:
            yield logs
        finally:
            logs.close()

    def heads(self) -> dict[str, Head]:
        """Return the first and end position of each node's log."""
        with self.connected() as logs:
            return logs.heads()


class Logs:
    """Connections to the nodes of a source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._nodes: dict[str, Node] = {}
        try:
            for url in source.urls:
                node = Node(url)
                try:
                    head = node.head()
                except BaseException:
                    node.close()
                    raise
                if head.node in self._nodes:
                    node.close()
                    raise PipelineError(f"{self._nodes[head.node]} and {node} are the same node; name each node once")
                self._nodes[head.node] = node
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()

    def heads(self) -> dict[str, Head]:
        return {name: node.head() for name, node in self._nodes.items()}

    def url(self, node: str) -> str:
        return self._nodes[node].url

    def digests(self, node: str, start: int, end: int) -> list[BlockDigest]:
        """Return the digests of a part of a node's log."""
        found: list[BlockDigest] = []
        while start < end:
            start, blocks = self._nodes[node].call(commands.journal_digest(start, end))
            if not blocks:
                break
            found += blocks
        return found

    def policies(self, node: str) -> dict[str, TubePolicy]:
        """Return the present policies of a node's tubes by name. A page of a thousand tubes is one request."""
        found: dict[str, TubePolicy] = {}
        cursor, ended = b"0", False
        while not ended:
            cursor, some = self._nodes[node].call(commands.scan_policies(cursor))
            found |= dict(some)
            ended = cursor == b"0"
        return found

    def check_continues(self, lake: Lake) -> None:
        """Raise BadLake if the log of a node does not continue the history that the lake has.

        A node that was restored to an earlier position uses the later positions again. Its new events would be mistaken
        for events that the lake already has. So the last block of the lake is compared with the node's log.
        """
        heads = self.heads()
        last = lake.last_blocks(heads)
        for node, head in heads.items():
            block = last.get(node)
            if block is None or block["start"] < head.first:
                continue
            # A block with erased events has other digests than the log. So has a converted lake that lacks columns.
            comparable = not block["forgotten"] and block["rows_digest"] is not None
            if block["end"] <= head.end and (not comparable or self._has(node, block)):
                continue
            raise BadLake(
                f"node {node} was restored, or has lost the end of its log: at position {block['end'] - 1} its log "
                f"differs from {lake}; create a new lake"
            )

    def _has(self, node: str, block: dict[str, Any]) -> bool:
        """Return whether the log of a node has the rows of a block of the lake."""
        start, end = block["start"], block["end"]
        found = [each.rows_sha256 for each in self.digests(node, start, end)]
        if len(found) > 1:
            # A new segment starts within the block, so the node divides it. The block is read and hashed as a whole.
            from penstock.pipeline.log_reader import LogReader
            from penstock.spark.events.ranges import EventsRange

            reader = LogReader(EventsRange(self.url(node), node, start, end), bodies=False)
            for _ in reader.tables():
                pass
            found = [each["rows_digest"] for each in reader.coverage()]
        return found == [block["rows_digest"]]

    def new_ranges(self, lake: Lake, heads: dict[str, Head]) -> list[EventsRange]:
        """Return the ranges of positions that the lake has not read yet, from the oldest on."""
        found: list[EventsRange] = []
        for node, head in heads.items():
            start = lake.position(node) or head.first
            if start < head.first and not self._source.gaps:
                raise Trimmed(
                    f"position {start} of node {node} is no longer kept; the first that is kept is {head.first}; "
                    "continue there with --allow-gaps, or keep history for longer"
                )
            if start > head.end:
                raise OutOfRange(
                    f"the log of node {node} ends before position {start}: it was restored, or lost its end in a crash"
                )
            found += self._split(node, max(start, head.first), head.end)
        return found

    def between(self, node: str, head: Head, since: datetime.date | None, until: datetime.date | None) -> Span:
        """Return the positions of the events from the day `since` to the day `until`."""
        from penstock.spark.events.ranges import first_since

        ends = [head.first, head.end]
        for index, day in enumerate((since, None if until is None else until + datetime.timedelta(days=1))):
            if day is not None:
                midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
                ends[index] = first_since(self._nodes[node], head, round(midnight.timestamp() * 1_000))
        return Span(node, *ends)

    def missing_ranges(self, lake: Lake, heads: dict[str, Head], bounds: dict[str, Span]) -> list[EventsRange]:
        """Return the ranges that the nodes still have and the lake lacks, within `bounds`."""
        known = spans(lake.coverage())
        found: list[EventsRange] = []
        for node, head in heads.items():
            limit = bounds.get(node, Span(node, head.first, head.end))
            for start, end in missing(known, node, max(head.first, limit.start), min(head.end, limit.end)):
                found += self._split(node, start, end)
        return found

    def _split(self, node: str, start: int, end: int) -> Iterable[EventsRange]:
        from penstock.spark.events.ranges import EventsRange

        url = self.url(node)
        # Ranges end at multiples, so that most blocks of the lake are whole blocks of the log.
        while start < end:
            upto = min(end, start - start % POSITIONS_A_TASK + POSITIONS_A_TASK)
            yield EventsRange(url, node, start, upto)
            start = upto


def unread(lake: Lake, source: Source) -> dict[str, int | None]:
    """Return by node how many positions of its log the lake has not read yet."""
    return {node: max(0, head.end - max(head.first, lake.position(node))) for node, head in source.heads().items()}
