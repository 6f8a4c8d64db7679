"""A pipeline that kills itself: `python -m tests.spark.killed_pipeline STEP LAKE URL`, or `… STEP LAKE` for compaction.

It uses the Java process of the test that starts it, because starting another one takes longer than a turn. So only the
driver's Python process is killed, which is the one that commits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.lake.lake import Lake
from penstock.lake.tables import DERIVED
from penstock.pipeline.compact import COMPACTED, compact
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source
from penstock.pipeline.steps import on_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent

# A turn takes some seconds, and much longer on a machine with other work.
KILL_TIMEOUT_S = 600

# The steps of a turn, in order.
STEPS = (
    *("before bronze/coverage", "before bronze/tubes", "before bronze/sessions"),
    *("before bronze/events", "after bronze/events"),
    *(f"{when} {table.path}" for table in DERIVED for when in ("before", "after")),
    *("before _turns", "after _turns"),
)

# The steps of a compaction, in order. A table that is compacted has no such step in the next attempt.
COMPACTION_STEPS = (*(f"before compaction of {table.path}" for table in COMPACTED), "before _turns")


def kill_at(spark: SparkSession, step: str, *words: str) -> None:
    """Run a pipeline in another process, which is killed at a step."""
    gateway: Any = spark.sparkContext._gateway
    paths = [str(Path(penstock.__file__).parent.parent), str(ROOT)]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    command = [sys.executable, "-m", "tests.spark.killed_pipeline", step, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=KILL_TIMEOUT_S, check=False)
    assert done.returncode == -signal.SIGKILL, (step, done.returncode, done.stderr[-2000:])


def attached() -> SparkSession:
    """Return a session in the Java process of the test."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    java = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get().newSession()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(java.sparkContext())
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf), java)


def main(step: str, place: str, *urls: str) -> None:
    """Run a turn, or compaction without a URL."""

    def kill(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    on_step(kill)
    spark, lake = attached(), Lake(place)
    if urls:
        Pipeline(spark, lake, Source(urls)).once()
    else:
        with lake.writing():
            compact(spark, lake)


if __name__ == "__main__":
    main(*sys.argv[1:])
