"""The events as a stream. Its offset is the next position of each node: {"1f0e…": 4711}.

Spark stores the offsets in the query's checkpoint, so a batch that is read again has exactly the same events. The
reader in the driver keeps its connections open; each task opens its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.spark.errors import as_source_error
from penstock.spark.events.admission import Admission, Offset, limit_rows
from penstock.spark.events.options import EventsOptions
from penstock.spark.events.ranges import EventsRange, NodeLogs
from penstock.spark.versions import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# How long the driver waits at the end of the logs before it reports to Spark that there are no new events.
_WAIT_MS: Final = 1_000


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of events."""

    def __init__(self, options: EventsOptions) -> None:
        self._options = options
        self._logs: NodeLogs | None = None
        self._admission = Admission(options)
        self._target: Offset | None = None  # With the trigger availableNow: the offset at which the query ends.

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle for Spark tasks. The connections stay in the driver."""
        return {**self.__dict__, "_logs": None}

    def _get_logs(self) -> NodeLogs:
        if self._logs is None:
            self._logs = NodeLogs(self._options)
        return self._logs

    def initialOffset(self) -> Offset:
        """Return the offset at which a query without a checkpoint starts."""
        with as_source_error():
            logs = self._get_logs()
            heads = logs.heads()
            return logs.check_starts(logs.positions(self._options.start, heads), heads)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit if the options have one. They have more kinds of limits, which `latestOffset` applies, too."""
        most = self._admission.default_rows()
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset at which the next batch ends. If there are no new events, first wait up to a second."""
        with as_source_error():
            logs = self._get_logs()
            ends = self._target or logs.wait_for_growth(start, _WAIT_MS)
            logs.check_nodes(start)
            starts = logs.check_starts(start, logs.heads())
            if isinstance(limit, ReadAllAvailable):
                # The options have no limits, or the trigger `once` ignores them.
                ends = limit_rows(starts, ends, None)
            else:
                # The trigger availableNow ends at its target, and must not wait for more rows.
                if self._target is None and not self._admission.is_due(starts, ends):
                    ends = logs.wait_for_growth(ends, _WAIT_MS)
                    if not self._admission.is_due(starts, ends):
                        return start
                ends = self._admission.limit(starts, ends, logs.bytes_between)
            # If failOnDataLoss is off, a node may be missing. Its position is kept in case it comes back.
            return {**start, **ends}

    def reportLatestOffset(self) -> Offset:
        """Return the ends of the logs. Spark computes the lag of the query from them."""
        with as_source_error():
            return {name: head.end for name, head in self._get_logs().heads().items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query stop at the present end of the logs."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the Spark tasks that read a batch."""
        with as_source_error():
            logs = self._get_logs()
            logs.check_nodes(end)
            heads = logs.heads()
            # The end is checked too: it may come from the checkpoint, and a log that was restored may be shorter.
            return logs.ranges(logs.check_starts(start, heads), logs.check_starts(end, heads))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the events of one Spark task."""
        from penstock.spark.events.columns import batches

        assert isinstance(partition, EventsRange)
        with as_source_error():
            yield from batches(partition, self._options)

    def commit(self, end: Offset) -> None:
        """Do nothing, because reading a log does not change it."""

    def stop(self) -> None:
        if self._logs is not None:
            self._logs.close()
