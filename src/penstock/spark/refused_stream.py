"""A stream that cannot begin, because of what it was told: it says so when it is asked where it begins.

Spark's process for the driver's side of a stream takes for granted that there is a reader. If making one fails it tells
of a variable of its own that is missing, and not of what was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from penstock.spark.errors import SourceError, told


def made(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """A reader, or one that tells why there is none."""
    try:
        with told():
            return make()
    except SourceError as why:
        return RefusedStream(str(why))


class RefusedStream(DataSourceStreamReader):
    """Refuses whatever it is asked first."""

    def __init__(self, why: str) -> None:
        self._why = why

    def _refuse(self) -> NoReturn:
        with told():
            raise SourceError(self._why)

    def initialOffset(self) -> dict[str, int]:
        """Refused."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Refused."""
        self._refuse()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Refused."""
        self._refuse()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Refused."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Refused."""
        self._refuse()
