"""What the pipeline costs by the size of a history: `make bench-pipeline SIZES="1 10"`, in millions of events.

Events are made up by Spark, three or more a job, and come in turns of a million jobs. Each step is timed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from penstock.pipeline.audit import audit
from penstock.pipeline.bronze import append
from penstock.pipeline.compact import compact
from penstock.pipeline.digest import digest
from penstock.pipeline.lake import Lake
from penstock.pipeline.tables import EVENTS, JOBS
from penstock.spark import session
from penstock.spark.events_schema import COLUMNS


def events(spark, start: int, count: int):  # type: ignore[no-untyped-def]
    """Events of some jobs, as the source gives them. One job in ten fails once."""
    from pyspark.sql import functions as f

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


def measure(spark, root: Path, millions: float) -> list[str]:  # type: ignore[no-untyped-def]
    """A lake of so many millions of events, step by step."""
    lake = Lake(root)
    jobs = int(millions * 1_000_000 / 3.2)
    times = {"bronze": 0.0, "silver and gold": 0.0}
    with lake.writing():
        for start in range(0, jobs, 1_000_000):
            began = time.monotonic()
            append(lake, events(spark, start, min(1_000_000, jobs - start)))
            between = time.monotonic()
            digest(spark, lake)
            times["bronze"] += between - began
            times["silver and gold"] += time.monotonic() - between
        began = time.monotonic()
        compact(spark, lake)
        times["compact"] = time.monotonic() - began
    began = time.monotonic()
    assert not any(finding.broken for finding in audit(spark, lake).findings)
    times["audit"] = time.monotonic() - began
    rows = lake.rows(EVENTS)
    assert lake.rows(JOBS) == jobs
    return [
        f"{rows / 1e6:.1f} M",
        *(f"{seconds:.1f} s" for seconds in times.values()),
        f"{rows / (times['bronze'] + times['silver and gold']):,.0f}",
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
    print("| events | bronze | silver and gold | compact | audit | events/s to gold | bytes an event |")
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
