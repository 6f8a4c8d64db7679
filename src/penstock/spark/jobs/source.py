"""`format("penstock")`: reads the jobs of a server as a batch or a stream, and writes rows as jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    DataType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from penstock.client.commands import find_tube
from penstock.core.errors import WrongType
from penstock.spark.errors import as_source_error
from penstock.spark.jobs.options import NAME, ReadOptions, StreamOptions, VerdictOptions, WriteOptions, columns_of
from penstock.spark.jobs.schema import BODIES, PUT_COLUMNS, VERDICT_COLUMNS, ddl
from penstock.spark.node import Node

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
    )

_NUMBERS = (IntegralType,)
_TIMES = (IntegralType, FractionalType, StringType)
_TEXTS = (StringType, BinaryType)
_COLUMN_TYPES: dict[str, tuple[type[DataType], ...]] = {
    **dict.fromkeys(("body", "value", "key", "name", "unique", "dedup"), _TEXTS),
    **dict.fromkeys(("tube", "kind"), (StringType,)),
    **dict.fromkeys(("delay", "ttl", "ttr"), _TIMES),
    "priority": _NUMBERS,
    "headers": (MapType,),
}
_VERDICT_TYPES: dict[str, tuple[type[DataType], ...]] = {
    **dict.fromkeys(("id", "verdict", "tube", "claim"), (StringType,)),
    "reason": _TEXTS,
    "delay": _TIMES,
}


class JobsSource(DataSource):
    """Spark's entry point for reading and writing jobs."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Return the selected columns of a job as DDL."""
        with as_source_error():
            return ddl(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader that scans the existing jobs without taking them."""
        from penstock.spark.jobs.scan import JobsReader

        with as_source_error():
            return JobsReader(ReadOptions.read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that takes the jobs of a tube and acks them when their batch is finished."""
        from penstock.spark.jobs.stream import JobsStreamReader
        from penstock.spark.refused_stream import reader_or_refusal

        return reader_or_refusal(lambda: JobsStreamReader(StreamOptions.read(self.options)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that puts the rows of a batch as jobs, or that gives verdicts on jobs of a stream."""
        from penstock.spark.jobs.verdicts import VerdictsWriter
        from penstock.spark.jobs.write import JobsWriter

        with as_source_error():
            if overwrite:
                raise WrongType('a tube cannot be overwritten; write with .mode("append")')
            if _are_verdicts(schema):
                return VerdictsWriter(_check_verdicts(VerdictOptions.read(self.options), schema))
            return JobsWriter(_check_schema(WriteOptions.read(self.options), schema), tuple(schema.names))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return a writer that puts the rows of a stream as jobs, or that gives verdicts on jobs of the stream."""
        from penstock.spark.jobs.verdicts import VerdictsStreamWriter
        from penstock.spark.jobs.write import JobsStreamWriter

        with as_source_error():
            if _are_verdicts(schema):
                return VerdictsStreamWriter(_check_verdicts(VerdictOptions.read(self.options), schema))
            return JobsStreamWriter(_check_schema(WriteOptions.read(self.options), schema), tuple(schema.names))


def _are_verdicts(schema: StructType) -> bool:
    return "verdict" in schema.names


def _check_verdicts(options: VerdictOptions, schema: StructType) -> VerdictOptions:
    """Check the columns of verdicts in the driver, because otherwise each Spark task would fail."""
    for field in schema.fields:
        if field.name not in VERDICT_COLUMNS:
            names = ", ".join(VERDICT_COLUMNS)
            raise WrongType(f"a row with a verdict has no column {field.name!r}; its columns are {names}")
        if not isinstance(field.dataType, _VERDICT_TYPES[field.name]):
            raise WrongType(f"column {field.name!r} of a verdict cannot be of type {field.dataType.simpleString()}")
    if "id" not in schema.names:
        raise WrongType("the rows have a verdict but no column id, which names the job")
    if "claim" not in schema.names and len(options.urls) > 1:
        raise WrongType("verdicts for several servers need the column claim of the stream")
    return options


def _check_schema(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Check the schema and the tube in the driver, because otherwise each Spark task would fail."""
    for field in schema.fields:
        if field.name not in PUT_COLUMNS:
            raise WrongType(f"a job has no column {field.name!r}; its columns are {', '.join(PUT_COLUMNS)}")
        if not isinstance(field.dataType, _COLUMN_TYPES[field.name]):
            hint = "; convert it to text with to_json" if field.name in BODIES else ""
            raise WrongType(f"column {field.name!r} cannot be of type {field.dataType.simpleString()}{hint}")
        if isinstance(field.dataType, MapType) and not (
            isinstance(field.dataType.keyType, StringType) and isinstance(field.dataType.valueType, _TEXTS)
        ):
            raise WrongType(
                f"column {field.name!r} must be a map of strings to strings or binary, "
                f"not {field.dataType.simpleString()}"
            )
    if sum(name in BODIES for name in schema.names) != 1:
        raise WrongType("the rows need exactly one column for the body of the job, named body or value")
    if options.tube is None and "tube" not in schema.names:
        raise WrongType('no tube is given; use .option("tube", …) or a column tube')
    with Node(options.url) as node:
        if options.tube is not None:
            node.call(find_tube(options.tube.encode()))
    return options
