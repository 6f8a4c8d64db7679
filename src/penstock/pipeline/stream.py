"""Runs the pipeline: a Spark stream adds events to bronze in batches, and then silver and gold are updated.

`once` processes the existing events and ends. `run` continues until it is stopped. Both start where the last run
stopped, according to the lake's checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from penstock.core.errors import PenstockError
from penstock.pipeline import bronze, nodes
from penstock.pipeline.compact import compact
from penstock.pipeline.digest import digest
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.lake import Lake
from penstock.pipeline.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Reports progress: name of the step, amount done, total.
ProgressCallback = Callable[[str, int, int], None]

# Interval at which a waiting caller checks the stream, so that it can be interrupted.
_POLL_S: Final = 1

# Interval at which the policies of tubes are requested from the nodes. It takes one request per tube.
_REFRESH_S: Final = 60


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress of a run."""


@dataclass
class Intake:
    """Adds batches of events to the lake. Spark may call it in another process, so it must be picklable."""

    root: str
    source: Source
    digests: bool  # Whether to update silver and gold after each batch.
    progress: ProgressCallback = field(default=no_progress)
    total: int = 0
    done: int = 0
    refresh_at: float = 0  # Monotonic time at which to request the policies of tubes again.
    error: Exception | None = None  # The error of a batch. Spark would report it inside a Java stack trace.

    def __call__(self, events: DataFrame, batch: int) -> None:
        try:
            self._take(events, batch)
        except Exception as error:
            self.error = error
            raise

    def _take(self, events: DataFrame, batch: int) -> None:
        lake = Lake(self.root)
        self.refresh_nodes(lake)
        self.done += bronze.append(lake, events, lambda: nodes.record_read(lake, self.source, _ends(lake, batch)))
        self.progress("reading events", self.done, self.total)
        if self.digests:
            digest(events.sparkSession, lake)
            compact(events.sparkSession, lake, only_many=True)

    def refresh_nodes(self, lake: Lake) -> None:
        """Check that the nodes' logs continue the lake's history. Once a minute, also request the policies of tubes."""
        now = time.monotonic()
        if now >= self.refresh_at:
            nodes.refresh(lake, self.source)
            self.refresh_at = now + _REFRESH_S
        else:
            nodes.check(lake, self.source)


def once(spark: SparkSession, lake: Lake, source: Source, on_progress: ProgressCallback = no_progress) -> int:
    """Add all events that the logs have now to the lake. Return how many were new."""
    intake = Intake(str(lake.root), source, False, on_progress, behind(lake, source))
    on_progress("reading events", 0, intake.total)
    with lake.writing(), as_pipeline_error():
        nodes.refresh(lake, source)
        intake.refresh_at = time.monotonic() + _REFRESH_S
        _wait(_writer(spark, lake, source, intake).trigger(availableNow=True).start(), intake)
        lake.reload()
        lake.begin()
        digest(spark, lake, lambda done, total: on_progress("silver and gold", done, total))
        compact(spark, lake, only_many=True)
    return intake.done


def run(
    spark: SparkSession, lake: Lake, source: Source, every_s: float, on_progress: ProgressCallback = no_progress
) -> None:
    """Add new events to the lake every `every_s` seconds until stopped. A longer batch delays the next one."""
    intake = Intake(str(lake.root), source, True, on_progress)
    with lake.writing(), as_pipeline_error():
        nodes.refresh(lake, source)
        lake.begin()
        # An earlier run may have been stopped after it added events to bronze and before it updated silver.
        digest(spark, lake, lambda done, total: on_progress("silver and gold", done, total))
        _wait(_writer(spark, lake, source, intake).trigger(processingTime=f"{every_s} seconds").start(), intake)


def behind(lake: Lake, source: Source) -> int:
    """Return how many positions of the logs the lake has not read yet."""
    heads = source.heads()
    reached = nodes.read_to(lake, heads)
    return sum(max(0, head.end - max(head.first, reached.get(node, 0))) for node, head in heads.items())


def _ends(lake: Lake, batch: int) -> dict[str, int]:
    """Return the end positions of a batch, by node. Spark writes them to its checkpoint before it runs the batch."""
    ends: dict[str, int] = json.loads((lake.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return ends


def _writer(spark: SparkSession, lake: Lake, source: Source, intake: Intake) -> DataStreamWriter:
    stream: Any = source.stream(spark, nodes.read_to(lake, source.heads())).writeStream
    writer: DataStreamWriter = stream.foreachBatch(intake).option("checkpointLocation", str(lake.checkpoint))
    return writer.queryName("penstock pipeline")


def _wait(query: StreamingQuery, intake: Intake) -> None:
    """Wait until a stream ends. If the caller is interrupted, stop the stream."""
    try:
        while not query.awaitTermination(_POLL_S):
            pass
    except PySparkException:
        if isinstance(intake.error, OSError | PenstockError):
            raise intake.error from None
        raise
    finally:
        query.stop()
