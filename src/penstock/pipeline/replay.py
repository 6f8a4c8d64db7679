"""Replay: puts the rows of a query or of a saved table into a tube as new jobs.

A row either has a body itself, or names a job of the lake in its columns `node` and `job`. Each new job gets a name
made of its origin, and a dedup id made of the replay and the origin. An interrupted replay can therefore be repeated: a
row is not put again if this replay has already put it, or if its job from an earlier replay is still unfinished.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.errors import CommandError, NameTaken, WrongType
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, BODY_TEXT
from penstock.core.limits import NEVER
from penstock.lake.errors import PipelineError
from penstock.lake.lake import Lake
from penstock.options import EncodedBody
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.views import create_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from penstock.client.queue import Queue, Tube

Progress = Callable[[int], None]

# Jobs per round trip. If a rate is given, a batch has the jobs of a tenth of a second.
BATCH_JOBS: Final = 500
BATCHES_A_SECOND: Final = 10

# Columns that are options of a put.
_TIMES: Final = ("delay", "ttl", "ttr")
OPTIONS: Final = ("key", "priority", *_TIMES)
_KINDS: Final = (BODY_BYTES, BODY_TEXT, BODY_JSON, BODY_MSGPACK)

# All columns with a meaning. Others are ignored.
_OURS: Final = frozenset((*OPTIONS, "tube", "node", "job", "body", "value", "body_kind"))

# Internal column: the index of a row among equal rows.
_COPY_COLUMN: Final = "__copy"

# The newest body of each job, and its kind.
_BODIES: Final = """
SELECT node, job, newest.body AS lake_body, newest.body_kind AS lake_kind
FROM (SELECT node, job, max_by(struct(body, body_kind), position) AS newest FROM events WHERE body IS NOT NULL
      GROUP BY node, job)
"""


@dataclass
class ReplayResult:
    """The result of a replay: numbers of jobs."""

    put: int = 0  # Includes earlier runs of this replay, because the reply to a repeated dedup id is the same.
    existing: int = 0  # Not put, because a job of another replay with this origin is unfinished.
    bodiless: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # By error.


@dataclass(frozen=True)
class TubePlan:
    """The jobs that a replay would put into one tube."""

    tube: str
    jobs: int
    body_bytes: int
    bodiless: int


def rows_of(spark: SparkSession, lake: Lake | None, query: str | None, table: str | None) -> DataFrame:
    """Return the rows of a query or of a table. Queries can use the tables of the lake: events, jobs, rates …"""
    if lake is not None:
        create_views(spark, lake)
    with as_pipeline_error():
        if query is not None:
            return spark.sql(query)
        assert table is not None
        if Path(table).exists():
            # Absolute, because Java may have another working directory.
            return spark.read.parquet(str(Path(table).absolute()))
        return spark.read.parquet(table) if "/" in table else spark.table(table)


@as_pipeline_error()
def as_jobs(rows: DataFrame, tube: str | None, lake_is_there: bool) -> DataFrame:
    """Return rows with the columns tube, body, body_kind and origin, and those columns of `rows` that are options."""
    from pyspark.sql import functions as f

    # Column names are case-insensitive in Spark.
    rows = rows.withColumnsRenamed({name: name.lower() for name in rows.columns if name.lower() in _OURS})
    names = [name.lower() for name in rows.columns]
    if tube is None and "tube" not in names:
        raise PipelineError("the rows have no column tube; give the tube with --tube")
    if "value" in names and "body" not in names:
        rows = rows.withColumnRenamed("value", "body")
    told_of = {"node", "job"} <= set(names)
    if told_of:
        rows = rows.dropDuplicates(["node", "job"])
        origin = f.concat_ws("/", "node", "job")
    else:
        # Equal rows are different jobs, and each must get the same origin in the next run.
        digest = f.sha2(f.to_json(f.struct(*rows.columns)), 256)
        rows = rows.withColumn("origin", f.substring(digest, 1, 32))
        rows = rows.withColumn(_COPY_COLUMN, f.expr("row_number() OVER (PARTITION BY origin ORDER BY origin)"))
        origin = f.concat_ws(".", "origin", _COPY_COLUMN)
    rows = rows.withColumn("origin", origin)
    rows = rows.withColumn("tube", f.col("tube") if tube is None else f.lit(tube))
    rows = _with_bodies(rows, told_of and lake_is_there)
    return rows.select("tube", "body", "body_kind", "origin", *(name for name in OPTIONS if name in names))


def _with_bodies(rows: DataFrame, known: bool) -> DataFrame:
    """Add the columns body and body_kind. A row without a body gets the body of its job in the lake."""
    from pyspark.sql import functions as f

    names = [name.lower() for name in rows.columns]
    own = "body" in names
    raw = not own or "body_kind" in names
    if not own and not known:
        raise PipelineError(
            "the rows need a column body (or value), or the columns node and job of jobs in a --lake; "
            f"they have {', '.join(name for name in rows.columns if name not in ('origin', _COPY_COLUMN))}"
        )
    if not raw:
        return _with_values(rows)
    if own:
        rows = rows.withColumn("body", f.col("body").cast("binary"))
    if not known:
        return rows
    rows = rows.join(rows.sparkSession.sql(_BODIES), ["node", "job"], "left")
    if not own:
        return rows.withColumnsRenamed({"lake_body": "body", "lake_kind": "body_kind"})
    # Only some events of a job have its body.
    kind = f.when(f.col("body").isNull(), f.col("lake_kind")).otherwise(f.col("body_kind"))
    return rows.withColumn("body_kind", kind).withColumn("body", f.coalesce("body", "lake_body"))


def _with_values(rows: DataFrame) -> DataFrame:
    """Convert bodies that a query computed: text and bytes stay, all other types become JSON."""
    from pyspark.sql import functions as f

    if rows.schema["body"].dataType.simpleString() in ("binary", "string"):
        return rows.withColumn("body_kind", f.lit(None).cast("int"))
    # Spark can convert only structs to JSON, so the body is wrapped in a struct and cut out of the result.
    before, after = '{"body":', "}"
    json = f.to_json(f.struct("body"), {"ignoreNullFields": "false"})
    value = json.substr(f.lit(len(before) + 1), f.length(json) - len(before) - len(after)).cast("binary")
    rows = rows.withColumn("body", f.when(f.col("body").isNotNull(), value))
    return rows.withColumn("body_kind", f.lit(BODY_JSON))


def plan(jobs: DataFrame) -> list[TubePlan]:
    """Return for each tube how many jobs and bytes would be put."""
    from pyspark.sql import functions as f

    planned = jobs.groupBy("tube").agg(
        f.count("body").alias("jobs"),
        f.coalesce(f.sum(f.octet_length("body")), f.lit(0)).alias("body_bytes"),
        f.count_if(f.col("body").isNull()).alias("bodiless"),
    )
    with as_pipeline_error():
        return [TubePlan(**row.asDict()) for row in planned.orderBy("tube").collect()]


def replay(
    jobs: DataFrame, queue: Queue, run: str, rate: float | None = None, progress: Progress = lambda done: None
) -> ReplayResult:
    """Put jobs, at most `rate` per second. If a replay with the name `run` was interrupted, continue it."""
    done = ReplayResult()
    tubes: dict[str, Tube] = {}
    for batch in _paced(_streamed(jobs), rate):
        pipeline = queue.pipeline()
        answers = []
        for row in batch:
            if row["body"] is None:
                done.bodiless += 1
                continue
            if row["tube"] is not None and row["tube"] not in tubes:
                # Do not create tubes, because an unknown name is probably misspelt.
                tubes[row["tube"]] = queue.find_tube(row["tube"])
            try:
                answers.append(pipeline.put(_tube(row, tubes), _body(row), **_options(row, run)))
            except CommandError as error:
                # The client refuses values that the server would refuse.
                done.refused[str(error)] += 1
        pipeline.send()
        for answer in answers:
            try:
                _ = answer.value
                done.put += 1
            except NameTaken:
                done.existing += 1
            except CommandError as error:
                done.refused[str(error)] += 1
        progress(done.put + done.existing + done.bodiless + done.refused.total())
    return done


def _streamed(jobs: DataFrame) -> Iterator[Row]:
    """Yield rows one by one, so that they are not all in memory."""
    with as_pipeline_error():
        yield from jobs.toLocalIterator(prefetchPartitions=True)


def _paced(rows: Iterable[Row], rate: float | None) -> Iterator[list[Row]]:
    """Yield rows in batches, at most `rate` rows per second."""
    size = BATCH_JOBS if rate is None else max(1, min(BATCH_JOBS, round(rate / BATCHES_A_SECOND)))
    rest = iter(rows)
    due = time.monotonic()
    while batch := list(islice(rest, size)):
        time.sleep(max(0.0, due - time.monotonic()))
        yield batch
        if rate is not None:
            # Counted from the due time, so that the rate is exact. After a stall, at most one second is caught up.
            due = max(due, time.monotonic() - 1) + len(batch) / rate


def _tube(row: Row, tubes: dict[str, Tube]) -> Tube:
    if row["tube"] is None:
        raise WrongType("a row has no tube; give it with --tube")
    return tubes[row["tube"]]


def _body(row: Row) -> Any:
    kind = row["body_kind"]
    if kind is None:
        return row["body"] if isinstance(row["body"], str) else bytes(row["body"])
    if kind not in _KINDS:
        raise WrongType(f"body_kind must be a number from 0 to {max(_KINDS)}, not {kind}")
    return EncodedBody(bytes(row["body"]), kind)


def _options(row: Row, run: str) -> dict[str, Any]:
    given = {name: _value(name, row[name]) for name in OPTIONS if name in row and row[name] is not None}
    return {**given, "name": f"replay of {row['origin']}", "dedup": f"{run} {row['origin']}"}


def _value(name: str, value: Any) -> Any:
    """Convert the value of an option column to the type that `put` accepts."""
    if isinstance(value, Decimal):
        # The SQL type of 1.5 and of large whole numbers.
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if name in _TIMES and isinstance(value, str):
        ms = read_duration(value.encode())
        if ms == NO_DURATION:
            raise WrongType(f"{name} must be a time like 30, 1.5, 250ms, 5m or 2h, not {value!r}")
        return math.inf if ms >= NEVER else ms / 1_000
    return value
