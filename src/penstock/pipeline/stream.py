"""The pipeline at work: events come by a stream, batch by batch, and silver and gold are brought up to them.

`once` takes what there is and ends; `run` goes on. Both go on where the last one stopped, by the lake's checkpoint.
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
from penstock.pipeline.errors import spoken
from penstock.pipeline.lake import Lake
from penstock.pipeline.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What is done, how much of it, of how much.
Told = Callable[[str, int, int], None]

# How often somebody who waits for a stream looks at it.
_LOOK_S: Final = 1

# How often the nodes are asked what their tubes promise: that is a question for each tube.
_LEARN_S: Final = 60


def quiet(what: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass
class Intake:
    """What Spark calls with each batch, maybe in a process of its own: it is little more than names."""

    root: str
    source: Source
    digests: bool  # Whether silver and gold follow each batch.
    told: Told = field(default=quiet)
    total: int = 0
    done: int = 0
    learn_at: float = 0  # When to ask the nodes again what their tubes promise, on the monotonic clock.
    error: Exception | None = None  # What it failed with: Spark would tell of it in a stack of Java.

    def __call__(self, events: DataFrame, batch: int) -> None:
        """Take a batch in."""
        try:
            self._take(events, batch)
        except Exception as error:
            self.error = error
            raise

    def _take(self, events: DataFrame, batch: int) -> None:
        lake = Lake(self.root)
        self.ask(lake)
        self.done += bronze.append(lake, events, lambda: nodes.were_read(lake, self.source, _ends(lake, batch)))
        self.told("reading events", self.done, self.total)
        if self.digests:
            digest(events.sparkSession, lake)
            compact(events.sparkSession, lake, only_many=True)

    def ask(self, lake: Lake) -> None:
        """Hear of tubes that are new; and of a node that is not what it was, before any of its events is taken."""
        now = time.monotonic()
        if now >= self.learn_at:
            nodes.learn(lake, self.source)
            self.learn_at = now + _LEARN_S
        else:
            nodes.check(lake, self.source)


def once(spark: SparkSession, lake: Lake, source: Source, told: Told = quiet) -> int:
    """Bring the lake up to what the logs hold now, and tell how many events were new."""
    intake = Intake(str(lake.root), source, False, told, behind(lake, source))
    told("reading events", 0, intake.total)
    with lake.writing(), spoken():
        nodes.learn(lake, source)
        intake.learn_at = time.monotonic() + _LEARN_S
        _wait(_writer(spark, lake, source, intake).trigger(availableNow=True).start(), intake)
        lake.reload()
        lake.begin()
        digest(spark, lake, lambda done, total: told("silver and gold", done, total))
        compact(spark, lake, only_many=True)
    return intake.done


def run(spark: SparkSession, lake: Lake, source: Source, every_s: float, told: Told = quiet) -> None:
    """Follow the logs until it is stopped. A turn begins every so many seconds, or when the last one has ended."""
    intake = Intake(str(lake.root), source, True, told)
    with lake.writing(), spoken():
        nodes.learn(lake, source)
        lake.begin()
        # What an earlier run had read, and was stopped before it became silver.
        digest(spark, lake, lambda done, total: told("silver and gold", done, total))
        _wait(_writer(spark, lake, source, intake).trigger(processingTime=f"{every_s} seconds").start(), intake)


def behind(lake: Lake, source: Source) -> int:
    """How many positions of the logs are not in the lake yet."""
    heads = source.heads()
    reached = nodes.read_to(lake, heads)
    return sum(max(0, head.end - max(head.first, reached.get(node, 0))) for node, head in heads.items())


def _ends(lake: Lake, batch: int) -> dict[str, int]:
    """Where a batch of the stream ends, by node. Spark notes that before it begins; the offsets are the last line."""
    ends: dict[str, int] = json.loads((lake.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return ends


def _writer(spark: SparkSession, lake: Lake, source: Source, intake: Intake) -> DataStreamWriter:
    stream: Any = source.stream(spark, nodes.read_to(lake, source.heads())).writeStream
    writer: DataStreamWriter = stream.foreachBatch(intake).option("checkpointLocation", str(lake.checkpoint))
    return writer.queryName("penstock pipeline")


def _wait(query: StreamingQuery, intake: Intake) -> None:
    """Wait for a stream to end; end it if we are to."""
    try:
        while not query.awaitTermination(_LOOK_S):
            pass
    except PySparkException:
        if isinstance(intake.error, OSError | PenstockError):
            raise intake.error from None
        raise
    finally:
        query.stop()
