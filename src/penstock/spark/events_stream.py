"""The events as a stream. Its offset is the next position of each node: {"1f0e…": 4711}.

Spark keeps the offsets in the query's checkpoint, so it is Spark that remembers how far the query has come: a batch
that is read again has the very same events. The reader of the driver keeps its connections; tasks make their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.spark.errors import told
from penstock.spark.events_options import EventsOptions
from penstock.spark.events_range import EventsRange, Logs

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# How long the driver waits at the head of the logs before it tells Spark that there is nothing.
_WAIT_MS: Final = 1_000

Offset = dict[str, int]


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of events."""

    def __init__(self, options: EventsOptions) -> None:
        self._options = options
        self._logs: Logs | None = None
        self._target: Offset | None = None  # Where a query that reads what is there ends.

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; connections stay where they are."""
        return {**self.__dict__, "_logs": None}

    def _connected(self) -> Logs:
        if self._logs is None:
            self._logs = Logs(self._options)
        return self._logs

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins."""
        with told():
            logs = self._connected()
            heads = logs.heads()
            return logs.checked(logs.positions(self._options.start, heads), heads)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may have."""
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends. At the head of all logs, wait a little for one to grow."""
        with told():
            logs = self._connected()
            ends = self._target or logs.grown(start, _WAIT_MS)
            logs.check_names(start)
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            # A node that is gone, if that is allowed, keeps its place for when it comes back.
            return {**start, **_limited(logs.checked(start, logs.heads()), ends, most)}

    def reportLatestOffset(self) -> Offset:
        """How far the logs go, for the query's progress: the difference is its lag."""
        with told():
            return {name: head.end for name, head in self._connected().heads().items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and no more."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a batch."""
        with told():
            logs = self._connected()
            logs.check_names(end)
            heads = logs.heads()
            # The end comes from the checkpoint, too: a log that was restored may not reach it any more.
            return logs.ranges(logs.checked(start, heads), logs.checked(end, heads))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The events of one task."""
        from penstock.spark.events_columns import batches

        assert isinstance(partition, EventsRange)
        with told():
            yield from batches(partition, self._options)

    def commit(self, end: Offset) -> None:
        """Nothing is to be done: reading a log leaves no trace in it."""

    def stop(self) -> None:
        """Hang up."""
        if self._logs is not None:
            self._logs.close()


def _limited(starts: Offset, ends: Offset, most: int | None) -> Offset:
    """Ends that are no more than so many rows from the starts, shared out by how much each log has."""
    lags = {name: max(0, end - starts[name]) for name, end in ends.items() if name in starts}
    total = sum(lags.values())
    if most is None or total <= most:
        return {name: starts[name] + lag for name, lag in lags.items()}
    # Rounded up, so that each gets on: a row more than was asked for, for each node at the most.
    return {name: starts[name] + -(-lag * most // total) for name, lag in lags.items()}
