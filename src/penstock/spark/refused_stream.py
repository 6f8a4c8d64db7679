"""A stream reader for wrong options. It raises the error when Spark calls it, and not when it is constructed.

If the construction of a stream reader fails, Spark does not report our error, but an undefined variable in its own
code. If a call to the reader fails, Spark reports our error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from penstock.spark.errors import SourceError, as_source_error
from penstock.spark.versions import adapt_stream_reader


def reader_or_refusal(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Return the reader that `make` constructs. If this fails, return a reader that raises the error when called."""
    try:
        with as_source_error():
            return adapt_stream_reader(make())
    except SourceError as why:
        return RefusedStream(str(why))


class RefusedStream(DataSourceStreamReader):
    """Raises the same error in every method."""

    def __init__(self, why: str) -> None:
        self._why = why

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        with as_source_error():
            raise SourceError(self._why)

    initialOffset = getDefaultReadLimit = latestOffset = partitions = read = _refuse
