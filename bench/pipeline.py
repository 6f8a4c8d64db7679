"""Cost of the pipeline by the size of the history: `make bench-pipeline SIZES="1 10"`, in millions of events.

Spark generates the events, three or more per job, in turns of a million jobs. Each step is measured in CPU seconds of
all cores, which depend little on other load of the machine. The whole run is also measured in wall-clock seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.audit import audit
from penstock.pipeline.bronze import append
from penstock.pipeline.compact import compact
from penstock.pipeline.digest import digest
from penstock.pipeline.lake import Lake
from penstock.pipeline.tables import EVENTS, JOBS
from penstock.spark import session
from penstock.spark.events.schema import COLUMNS


def events(spark: SparkSession, start: int, count: int) -> DataFrame:
    """Return generated events in the schema of the source. One job in ten fails once."""
    numbers = spark.range(start, start + count)
    fails = numbers.id % 10 == 0
    steps = f.when(fails, f.expr("array('put', 'taken', 'nacked', 'taken', 'acked')")).otherwise(
        f.expr("array('put', 'taken', 'acked')")
    )
    told = numbers.select("id", f.posexplode(steps).alias("nth", "event"))
    state = f.expr(
        "CASE event WHEN 'put' THEN 'ready' WHEN 'taken' THEN 'taken' WHEN 'nacked' THEN 'ready' ELSE 'gone' END"
    )
    before = f.expr("CASE event WHEN 'put' THEN 'gone' WHEN 'taken' THEN 'ready' ELSE 'taken' END")
    values = {
        "node": f.lit("a" * 40),
        "position": f.col("id") * 8 + f.col("nth") + 1,
        "time": f.expr("timestamp_millis(1763251200000 + id * 4 + nth * 1000 + id % 7 * 10)"),
        "event": f.col("event"),
        "tube": f.concat(f.lit("tube "), (f.col("id") % 20).cast("string")),
        "job": f.col("id") + (1 << 43),
        "before": before,
        "after": state,
        "session": f.when(f.col("event") == "taken", f.col("id") % 50 + 1),
        "created": f.expr("timestamp_millis(1763251200000 + id * 4)"),
        "deliveries": f.least(f.col("nth"), f.lit(2)),
        "before_position": f.when(f.col("nth") == 0, 0).otherwise(f.col("id") * 8 + f.col("nth")),
        "body": f.when(f.col("event") == "put", f.expr("CAST(repeat(md5(CAST(id AS STRING)), 3) AS BINARY)")),
        "key": f.concat(f.lit("key "), (f.col("id") % 1000).cast("string")).cast("binary"),
        "reason": f.when(f.col("event") == "nacked", f.lit("no answer")),
        "once": f.lit(False),
    }
    return told.select(*(values.get(name, f.lit(0)).cast(kind).alias(name) for name, kind in COLUMNS))


def used() -> float:
    """Return the CPU seconds that this process and its Java process have used."""
    own = time.process_time()
    with open(f"/proc/{SparkContext._gateway.proc.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return own + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stages:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the CPU seconds of the block to a stage."""
        began = used()
        yield
        self.seconds[name] = self.seconds.get(name, 0) + used() - began


def measure(spark: SparkSession, root: Path, millions: float) -> list[str]:
    """Build a lake of the given millions of events. Return the row of the table."""
    lake, stages = Lake(root), Stages()
    jobs = int(millions * 1_000_000 / 3.2)
    began = time.monotonic()
    with lake.writing():
        for start in range(0, jobs, 1_000_000):
            with stages.stage("bronze"):
                append(lake, events(spark, start, min(1_000_000, jobs - start)))
            with stages.stage("silver and gold"):
                digest(spark, lake)
        took = time.monotonic() - began
        with stages.stage("compact"):
            compact(spark, lake)
    with stages.stage("audit"):
        assert not any(finding.broken for finding in audit(spark, lake).findings)
    rows = lake.rows(EVENTS)
    assert lake.rows(JOBS) == jobs
    return [
        f"{rows / 1e6:.1f} M",
        *(f"{seconds:.0f} s" for seconds in stages.seconds.values()),
        f"{took:.0f} s",
        f"{lake.bytes(EVENTS) / rows:.0f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millions", nargs="*", type=float, default=[1, 10])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g")
    given = parser.parse_args()
    spark = session(given.master, **{"spark.driver.memory": given.memory})
    place = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="."))
    print("| events | bronze | silver and gold | compact | audit | to gold, by the clock | bytes an event |")
    print("|---|---|---|---|---|---|---|")
    try:
        measure(spark, place / "warm", 0.1)
        for millions in given.millions:
            print("|", " | ".join(measure(spark, place / str(millions), millions)), "|", flush=True)
            shutil.rmtree(place / str(millions))
    finally:
        shutil.rmtree(place)
        spark.stop()


if __name__ == "__main__":
    main()
