"""Settings for Spark in tests, and a way to run a stream to its end that works with every version of Spark.

Short queries take longer to compile than to run, and a Java process runs briefly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

QUERIES = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TUNED = {**QUERIES, "spark.driver.extraJavaOptions": SHORT_LIVED}


def short_spark(directory: Path) -> dict[str, str]:
    """Return environment variables with which commands that start Spark have these settings.

    Spark reads them from a file in `directory`. Settings of the command itself take precedence.
    """
    directory.mkdir()
    lines = [f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in QUERIES.items()]
    (directory / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return {
        "SPARK_CONF_DIR": str(directory),
        "SPARK_SUBMIT_OPTS": SHORT_LIVED,
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
    }


def until_done(start: Callable[[], StreamingQuery]) -> list[Any]:
    """Run a query with the trigger availableNow until it has read everything. Return the progress of batches with rows.

    Without the feature AVAILABLE_NOW, the trigger runs one batch. Then the query is started until a run has no batch.
    """
    from penstock.spark.versions import AVAILABLE_NOW, has

    progress: list[Any] = []
    while True:
        query = start()
        assert query.awaitTermination(180)
        progress += [each for each in query.recentProgress if each.numInputRows]
        batches = [each for each in query.recentProgress if each.sources[0].startOffset != each.sources[0].endOffset]
        if has(AVAILABLE_NOW) or not batches:
            return progress
