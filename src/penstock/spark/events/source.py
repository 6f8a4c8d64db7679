"""`format("penstock_events")`: the events in the logs of all nodes, as a batch or a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.errors import as_source_error
from penstock.spark.events.filters import EventFilters
from penstock.spark.events.options import NAME, EventsOptions
from penstock.spark.events.schema import ddl, select_columns
from penstock.spark.options import split_words
from penstock.spark.versions import Filter, filter_offer

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class EventsSource(DataSource):
    """Spark's entry point for reading events."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Return the selected columns of an event as DDL."""
        with as_source_error():
            return ddl(select_columns(split_words(self.options.get("columns"))))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the events between two offsets."""
        with as_source_error():
            return EventsReader(EventsOptions.read(self.options, streaming=False, columns=schema.names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that streams all events, starting at an offset."""
        from penstock.spark.events.stream import EventsStreamReader
        from penstock.spark.refused_stream import reader_or_refusal

        return reader_or_refusal(
            lambda: EventsStreamReader(EventsOptions.read(self.options, streaming=True, columns=schema.names))
        )


class EventsReader(DataSourceReader):
    """Reads a batch of events."""

    def __init__(self, options: EventsOptions) -> None:
        self._options = options
        self._filters = EventFilters.of_options(options)

    @filter_offer
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept filters on some columns, which limit the part of the logs that is read. Return the other filters."""
        self._filters, left = self._filters.push(filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """Ask the nodes for the ends of their logs. Return the Spark tasks that read the logs."""
        from penstock.spark.events.ranges import NodeLogs

        with as_source_error():
            logs = NodeLogs(self._options)
            try:
                heads = logs.heads()
                starts = logs.check_starts(logs.positions(self._options.start, heads), heads)
                return logs.ranges(*logs.narrow(starts, logs.ends(heads), self._filters))
            finally:
                logs.close()

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the events of one range. If there are no ranges, Spark passes another object, and nothing is read."""
        from penstock.spark.events.columns import batches
        from penstock.spark.events.ranges import EventsRange

        if isinstance(partition, EventsRange):
            with as_source_error():
                yield from batches(partition, self._options, self._filters)
