"""The source of events: the nodes whose logs the pipeline reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.client import commands
from penstock.core.errors import UnknownTube
from penstock.core.policy import TubePolicy
from penstock.spark.events.options import NAME
from penstock.spark.events.ranges import time_at
from penstock.spark.node import Head, Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows per batch of the stream. The fixed cost of a batch is negligible, and little work is lost in a crash.
ROWS_A_BATCH: Final = 2_000_000


@dataclass(frozen=True)
class Source:
    """The logs of some nodes."""

    urls: tuple[str, ...]
    bodies: bool = True
    gaps: bool = False  # Whether to continue if history was trimmed before it was read.
    rows_a_batch: int = ROWS_A_BATCH

    def stream(self, spark: SparkSession, positions: dict[str, int]) -> DataFrame:
        """Stream the events, starting at `positions`. If a node is not in it, start at the first position of its log.

        If the query has a checkpoint, it continues there instead.
        """
        start = json.dumps(positions) if positions else "earliest"
        reader = spark.readStream.format(NAME).option("maxRowsPerTrigger", self.rows_a_batch)
        return reader.options(startingOffsets=start, **self._options()).load()

    def batch(self, spark: SparkSession) -> DataFrame:
        """Return all events that the logs have."""
        return spark.read.format(NAME).options(**self._options()).load()

    def heads(self) -> dict[str, Head]:
        """Return the first and end position of each node's log.

        This is called before Spark starts, so that an unreachable server is reported early.
        """
        found = {}
        for url in self.urls:
            with Node(url) as node:
                head = node.head()
                found[head.node] = head
        return found

    def diverged(self, known: dict[str, tuple[int, int]]) -> Iterator[str]:
        """Yield the nodes whose log differs from `known`.

        `known` has for each node a position and the time of the event at this position, in ms. Positions that a node no
        longer keeps are not checked.
        """
        for url in self.urls:
            with Node(url) as node:
                head = node.head()
                position, moment = known.get(head.node, (0, 0))
                if position >= head.end or (position >= head.first and time_at(node, position) not in (moment, None)):
                    yield head.node

    def policies(self) -> dict[str, dict[str, TubePolicy]]:
        """Return the present policy of each tube, by node and name."""
        found = {}
        for url in self.urls:
            with Node(url) as node:
                found[node.head().node] = dict(_policies(node))
        return found

    def _options(self) -> dict[str, str]:
        return {
            "url": ",".join(self.urls),
            "includeBodies": str(self.bodies).lower(),
            "failOnDataLoss": str(not self.gaps).lower(),
        }


def _policies(node: Node) -> Iterator[tuple[str, TubePolicy]]:
    cursor, ended = b"0", False
    while not ended:
        cursor, some = node.call(commands.scan_tubes(cursor, commands.name))
        ended = cursor == b"0"
        for tube in some:
            with suppress(UnknownTube):  # The tube was dropped meanwhile, or its name is not text.
                yield tube, node.call(commands.find_tube(tube.encode()))
