"""Cost of the pipeline by the size of the history: `make bench-pipeline SIZES="1 10"`, in millions of events.

A queue in a directory produces the events: jobs are put, taken and acked in 20 tubes, and one in ten fails once. Then a
server offers the directory, and the pipeline loads it in one session of Spark. Each step is measured in CPU time of all
processes per event, which depends little on other load of the machine. The last line is a turn of 1,000 events in a
lake with a million open jobs, 150,000 keys and 5,000 tubes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import penstock
from bench.cpu import CpuMeter
from bench.server.processes import wait_until_loaded
from penstock.lake.lake import Lake
from penstock.lake.tables import EVENTS
from penstock.pipeline.audit import audit
from penstock.pipeline.compact import compact
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source
from penstock.pipeline.turn import update_derived
from penstock.spark import session

BODY = b"x" * 96
AT_ONCE = 1_000


def fill(directory: Path, events: int) -> None:
    """Put, take and ack jobs until the log has this many events. One job in ten is nacked once."""
    with penstock.open(directory, fsync="never", history_bytes=None) as queue:
        tubes = [queue.tube(f"tube {number}", "fifo") for number in range(20)]
        done = 0
        while done < events:
            tube = tubes[done // AT_ONCE % len(tubes)]
            tube.put_many([BODY] * AT_ONCE)
            for number, job in enumerate(tube.take_many(AT_ONCE)):
                if number % 10:
                    job.ack()
                else:
                    job.nack("no answer")
            for job in tube.take_many(AT_ONCE // 10):
                job.ack()
            done += AT_ONCE * 32 // 10


def fill_open(directory: Path, jobs: int, keys: int, tubes: int) -> None:
    """Put jobs that stay open, with many keys and tubes."""
    with penstock.open(directory, fsync="never", history_bytes=None) as queue:
        keyed = queue.tube("keyed", "utube")
        for start in range(0, jobs // 2, AT_ONCE):
            for number in range(start, start + AT_ONCE):
                keyed.put(b"", key=f"key {number % keys}")
        for number in range(tubes):
            queue.tube(f"tube {number}").put_many([b""] * (jobs // 2 // tubes))


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Run a server on a directory. Yield its URL."""
    port = 17_000 + os.getpid() % 10_000
    words = ["serve", "--dir", str(directory), "--port", str(port), "--iproto-port", "0", "--appendfsync", "everysec"]
    words += ["--history-bytes", "100gb"]
    server = subprocess.Popen([sys.executable, "-m", "penstock", *words], stderr=subprocess.DEVNULL)
    url = f"penstock://127.0.0.1:{port}"
    try:
        wait_until_loaded(url)
        yield url
    finally:
        server.terminate()
        server.wait()


class Stages:
    """CPU seconds by stage."""

    def __init__(self, meter: CpuMeter) -> None:
        self.meter = meter
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the CPU seconds of the block to a stage."""
        began = self.meter.seconds()
        yield
        self.seconds[name] = self.seconds.get(name, 0) + self.meter.seconds() - began


def measure(spark: SparkSession, meter: CpuMeter, place: Path, millions: float) -> list[str]:
    """Load a history of the given millions of events. Return the row of the table."""
    fill(place / "queue", int(millions * 1_000_000))
    lake, stages = Lake(place / "lake"), Stages(meter)
    with serve(place / "queue") as url, lake.writing():
        source = Source((url,))
        lake.create()
        began = time.monotonic()
        with stages.stage("bronze"), source.connected() as logs:
            Pipeline(spark, lake, source).copy(logs.new_ranges(lake, logs.heads()))
        with stages.stage("silver and gold"):
            update_derived(spark, lake)
        took = time.monotonic() - began
    with lake.writing(), stages.stage("compact"):
        compact(spark, lake)
    with stages.stage("audit"):
        assert not audit(spark, lake).broken
    rows = lake.rows(EVENTS)
    return [
        f"{rows / 1e6:.1f} M",
        *(f"{seconds / rows * 1e6:.1f} µs" for seconds in stages.seconds.values()),
        f"{took:.0f} s",
        f"{lake.bytes(EVENTS) / rows:.0f}",
    ]


def measure_small_turn(spark: SparkSession, meter: CpuMeter, place: Path, open_jobs: int, keys: int, tubes: int) -> str:
    """Return the CPU seconds of a turn of 1,000 events in a lake with many open jobs. The session is warm."""
    fill_open(place / "queue", open_jobs, keys, tubes)
    lake = Lake(place / "lake")
    with serve(place / "queue") as url:
        source = Source((url,))
        Pipeline(spark, lake, source).once()
        costs = []
        for _ in range(6):
            with penstock.connect(url) as queue:
                tube = queue.tube("tube 1")
                for _ in range(250):
                    tube.put(b"")
                    tube.take().release()
                    tube.take().ack()
            time.sleep(2.5)  # With everysec, the log is durable within two seconds.
            began = meter.seconds()
            Pipeline(spark, lake, source).once()
            costs.append(meter.seconds() - began)
    return f"a turn of 1,250 events with {open_jobs:,} open jobs, {keys:,} keys and {tubes:,} tubes: {min(costs):.1f} s"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millions", nargs="*", type=float, default=[1, 10])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--open-jobs", type=int, default=1_000_000)
    given = parser.parse_args()
    meter = CpuMeter()
    spark = session(given.master, **{"spark.driver.memory": given.memory})
    place = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="."))
    print("CPU time per event:\n")
    print("| events | bronze | silver and gold | compact | audit | to gold, by the clock | bytes an event |")
    print("|---|---|---|---|---|---|---|")
    try:
        # Java compiles while it runs. Two runs before the table make its first row comparable.
        for number in range(2):
            measure(spark, meter, place / f"warm {number}", 0.5)
        for millions in given.millions:
            print("|", " | ".join(measure(spark, meter, place / str(millions), millions)), "|", flush=True)
            shutil.rmtree(place / str(millions))
        keys, tubes = given.open_jobs * 15 // 100, given.open_jobs // 200
        print("\n" + measure_small_turn(spark, meter, place / "open", given.open_jobs, keys, tubes))
    finally:
        shutil.rmtree(place)
        spark.stop()


if __name__ == "__main__":
    main()
