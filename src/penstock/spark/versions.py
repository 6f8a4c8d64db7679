"""The differences between Spark 4.0, 4.1, 4.2 and 4.3. No other module checks the version of Spark.

`FEATURES` lists the features that a version lacks, and what happens without them. The documentation shows this table,
and the tests skip by it. The other names are classes of Spark's Python data sources. The sources import them from here,
because an older version does not have all of them. A missing class is replaced by a stand-in that Spark never uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        IsNull,
        LessThan,
        LessThanOrEqual,
        Not,
        StringContains,
        StringEndsWith,
        StringStartsWith,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

__all__ = [
    "SUPPORTED",
    "VERSION",
    "Feature",
    "FEATURES",
    "has",
    "FILTERS",
    "AVAILABLE_NOW",
    "LAST_ACK",
    "LAG",
    "DECLARATIVE",
    "JAVA_25",
    "JAVA_MIN",
    "supports_java",
    "supported_java",
    "DataSourceStreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "adapt_stream_reader",
    "filter_offer",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "IsNotNull",
    "IsNull",
    "LessThan",
    "LessThanOrEqual",
    "Not",
    "StringContains",
    "StringEndsWith",
    "StringStartsWith",
]

# The versions that are tested.
SUPPORTED: Final = ((4, 0), (4, 1), (4, 2), (4, 3))


def minor_version(text: str) -> tuple[int, int]:
    """Return the major and the minor number of a version like "4.1.0.dev3"."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else SUPPORTED[-1]


VERSION: Final = minor_version(pyspark.__version__)


# ---- What a version lacks --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feature:
    """A feature that Spark has since a version. Earlier versions work without it."""

    name: str
    since: tuple[int, int]
    without: str  # What happens in earlier versions.


FILTERS: Final = Feature(
    "filters are applied by the server",
    (4, 1),
    "The server sends all rows, and Spark applies the filters. The results are the same. Options like `tube`, `states` "
    "and `startingTimestamp` limit the rows that are sent.",
)
AVAILABLE_NOW: Final = Feature(
    "the trigger `availableNow` runs several batches",
    (4, 2),
    "It runs one batch, which has at most `maxRowsPerTrigger` rows. If the tube limits the jobs per key, the batch has "
    "at most this number of jobs of each key. Start the query until a run has no rows, or use the trigger "
    "`processingTime`.",
)
LAST_ACK: Final = Feature(
    "the last batch of a job stream is acked when the query ends",
    (4, 2),
    "A running query acks a batch before it takes the next one. The last batch before a query ends is acked when the "
    "query starts again. Set `lease` to more than the time between two runs, else the jobs of this batch are processed "
    "again.",
)
LAG: Final = Feature(
    "the progress of a stream has the ends of the journals (`latestOffset`)",
    (4, 2),
    "The progress has the end of the last batch instead.",
)
DECLARATIVE: Final = Feature(
    "Spark Declarative Pipelines (a part of the project of `penstock pipeline init`)",
    (4, 1),
    "There is no program `spark-pipelines`. The rest of the project works.",
)
JAVA_25: Final = Feature(
    "Java 25",
    (4, 2),
    "Java 17 or 21 is needed.",
)

FEATURES: Final = (FILTERS, AVAILABLE_NOW, LAST_ACK, LAG, DECLARATIVE, JAVA_25)


def has(feature: Feature) -> bool:
    """Return whether the installed version of Spark has a feature."""
    return feature.since <= VERSION


# ---- Java ------------------------------------------------------------------------------------------------------------

JAVA_MIN: Final = 17
# The newest Java that versions without JAVA_25 support.
_JAVA_MAX: Final = 21


def supports_java(major: int) -> bool:
    """Return whether the installed version of Spark supports a major version of Java. 0 stands for none."""
    return major >= JAVA_MIN and (major <= _JAVA_MAX or has(JAVA_25))


def supported_java() -> str:
    """Return the versions of Java that the installed version of Spark supports, as words."""
    return f"{JAVA_MIN} or later" if has(JAVA_25) else f"{JAVA_MIN} to {_JAVA_MAX}"


# ---- Classes ---------------------------------------------------------------------------------------------------------


if not TYPE_CHECKING:

    def _stand_in(name: str, base: type = object) -> type:
        """Return a class that Spark never makes an object of. It exists so that it can be imported."""
        return type(name, (base,), {"__doc__": f"Stands in for {name}, which this version of Spark does not have."})

    # Filters, since 4.1.
    Filter = getattr(datasource, "Filter", None) or _stand_in("Filter")
    for _name in (
        *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In"),
        *("IsNull", "IsNotNull", "Not", "StringStartsWith", "StringEndsWith", "StringContains"),
    ):
        globals()[_name] = getattr(datasource, _name, None) or _stand_in(_name, Filter)

    # Limits of a batch, and the trigger availableNow, since 4.2. The sources make limits in every version.
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        SupportsTriggerAvailableNow = _stand_in("SupportsTriggerAvailableNow")

        @dataclass
        class ReadLimit:
            """Stands in for Spark's class."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """Stands in for Spark's class."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """Stands in for Spark's class."""

            max_rows: int

        @dataclass
        class ReadMinRows(ReadLimit):
            """Stands in for Spark's class."""

            min_rows: int
            max_trigger_delay_ms: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            """Stands in for Spark's class."""

            max_bytes: int

    # A stream writer that gets Arrow batches, since 4.1. Spark 4.0 passes Arrow batches to every writer that is also a
    # DataSourceArrowWriter, and does not check the class of a stream writer otherwise.
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", None) or type(
        "DataSourceStreamArrowWriter", (DataSourceStreamWriter, DataSourceArrowWriter), {}
    )


# ---- Offsets without arguments ---------------------------------------------------------------------------------------

Offset = dict[str, Any]


def adapt_stream_reader(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """Return a reader that the installed version can use. `reader` has the methods of Spark 4.2."""
    return reader if hasattr(DataSourceStreamReader, "getDefaultReadLimit") else _StartTracker(reader)


class _StartTracker(DataSourceStreamReader):
    """Calls a reader of Spark 4.2 for Spark 4.0 and 4.1, which call `latestOffset` without a start and a limit.

    The start of a batch is the end of the last one. These versions ask for the end of a batch only when the previous
    batch is finished, so the end that was returned last is the start. After a restart, they first plan an empty batch
    whose start and end are the newest offset of the checkpoint. If this batch was not finished, they plan and run it
    again before they ask for the next end. So in all cases the start is the last end that was returned or planned.

    In the first batch of a query, they ask for the end before they ask for the initial offset. The initial offset is
    therefore stored, because it must not be after this end.
    """

    def __init__(self, reader: DataSourceStreamReader) -> None:
        self.reader = reader
        self._initial: Offset | None = None
        self._end: Offset | None = None  # The last end that was returned or planned.

    def initialOffset(self) -> Offset:
        if self._initial is None:
            self._initial = self.reader.initialOffset()
        return self._initial

    def latestOffset(self) -> Offset:  # type: ignore[override]
        start = self.initialOffset() if self._end is None else self._end
        self._end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        return self._end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        found = self.reader.partitions(start, end)
        self._end = end
        return found

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[RecordBatch]:
        return self.reader.read(partition)

    def commit(self, end: Offset) -> None:
        self.reader.commit(end)

    def stop(self) -> None:
        self.reader.stop()


# ---- Filters ---------------------------------------------------------------------------------------------------------


class filter_offer:
    """Decorates the method `pushFilters` of a reader, so that it works whether filter pushdown is switched on or off.

    Spark calls `pushFilters` if `spark.sql.python.filterPushdown.enabled` is set. By default it is not set, and then
    Spark refuses a reader that overrides the method, although the reader also works without filters. The planning
    process cannot read the setting. Spark detects an override by comparing the `__func__` of the method with its own.
    The decorated method has Spark's `__func__`, so Spark accepts the reader. Spark 4.0 never calls the method.
    """

    def __init__(self, push: Callable[[Any, list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __get__(self, reader: DataSourceReader | None, owner: type) -> Any:
        return self if reader is None else _Offer(MethodType(self._push, reader))


class _Offer:
    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)
