"""Spark with a server on this machine: `make bench-spark`. Measures rates, and CPU time per row.

Spark's Java processes, its Python processes and the server share the cores. The table therefore has the CPU time of
each of the three, which depends little on other load of the machine. It also has a scan of the same rows from Parquet,
to compare with Spark alone. Each row is the best of several rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench.child import environment
from bench.journal.directory import BATCH, worked
from bench.server import processes
from bench.server.processes import Server
from penstock import connect
from penstock._build import is_compiled
from penstock.host.clock import wall_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TICKS_S = os.sysconf("SC_CLK_TCK")
_ROWS_OF_A_JOB = 3  # Put, taken, acked.
_FEW = ["time", "event", "tube", "job"]  # The columns that most queries use.


@dataclass
class Figures:
    """A row of the table."""

    name: str
    rows: int
    wall_s: float
    cores: dict[str, float]  # CPU seconds by process group.
    goal: float | None = None

    @property
    def rate(self) -> float:
        return self.rows / self.wall_s

    @property
    def cpu_s(self) -> float:
        return sum(self.cores.values())


class Bench:
    """A Spark session and its measurements."""

    def __init__(self, rounds: int) -> None:
        from penstock.spark import session

        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]
        self._rounds = rounds
        self.spark: SparkSession = session("local[2]", **{"spark.driver.memory": "4g"})
        self.figures: list[Figures] = []

    def measure(
        self, name: str, rows: int, server: Server | None, work: Callable[[], Any], goal: float | None = None
    ) -> Figures:
        """Return the best of several rounds, after one round to warm up."""
        work()
        found = []
        for _ in range(self._rounds):
            before, began = _cores(server), time.perf_counter()
            work()
            wall_s = time.perf_counter() - began
            after = _cores(server)
            found.append(Figures(name, rows, wall_s, {who: after[who] - before[who] for who in after}, goal))
        best = min(found, key=lambda each: each.wall_s)
        self.figures.append(best)
        return best

    def events(self, name: str, jobs: int, rows: int, goal: float, few_goal: float | None = None) -> None:
        """Measure reading events from the log of a server, and the same rows from Parquet."""
        directory, _ = worked(jobs, rows)
        server = _serve(directory.name)
        read = self.spark.read.format("penstock_events").option("url", url(server)).option("tube", "bench")
        count = jobs * _ROWS_OF_A_JOB
        assert read.load().count() == count
        ours = self.measure(f"events/{name}", count, server, _to_nothing(read.load), goal)
        few = _to_nothing(read.option("columns", ",".join(_FEW)).load)  # The reader keeps the option.
        some = self.measure(f"events/{name}, {len(_FEW)} columns", count, server, few, few_goal)
        copy = tempfile.mkdtemp(prefix="penstock-bench-")
        try:
            read.option("columns", "").load().write.mode("overwrite").parquet(copy)
            for each, columns in ((ours, ["*"]), (some, _FEW)):
                self.compare(each, self.spark.read.parquet(copy).select(*columns))
        finally:
            shutil.rmtree(copy)

    def compare(self, ours: Figures, same: DataFrame) -> None:
        """Measure reading the same rows and columns from Parquet."""
        spark = self.measure(ours.name.replace("events", "parquet"), ours.rows, None, _to_nothing(lambda: same))
        print(f"{ours.name} is {ours.rate / spark.rate:.2f} of Spark's own Parquet scan", file=sys.stderr)

    def hour(self, jobs: int, hours: int) -> None:
        """Measure a filter on the last hour of a log of many hours, and compare it with reading the whole log."""
        directory, _ = worked(jobs, BATCH, hours)
        server = _serve(directory.name)
        read = self.spark.read.format("penstock_events").options(url=url(server), columns=",".join(_FEW))
        since = f"time >= timestamp_millis({wall_ms() - 3_600_000})"
        rows = read.load().where(since).count()
        whole = self.measure(f"events/{hours} hours", jobs * _ROWS_OF_A_JOB, server, _to_nothing(read.load))
        last = self.measure("events/the last hour", rows, server, _to_nothing(lambda: read.load().where(since)))
        nothing = _to_nothing(lambda: read.load().where("time < timestamp_millis(0)"))
        empty = self.measure("events/none", 1, server, nothing)
        more = (last.cpu_s - empty.cpu_s) / (whole.cpu_s - empty.cpu_s)
        print(
            f"the last hour of {hours} costs {last.cpu_s / whole.cpu_s:.1%} of a full read; "
            f"without the cost of a query that reads nothing ({empty.cpu_s:.2f} s) {more:.1%}",
            file=sys.stderr,
        )

    def put(self, jobs: int, goal: float) -> None:
        """Measure writing rows as jobs."""
        server = processes.penstock("--appendfsync", "everysec")
        with connect(url(server)) as queue:
            queue.tube("bench", "fifo")
        rows = self.spark.range(0, jobs, 1, 4).selectExpr("cast(repeat('x', 100) as binary) as body").cache()
        rows.count()
        write = rows.write.format("penstock").mode("append").options(url=url(server), tube="bench")

        def put() -> None:
            server.ask("TUBE", "TRUNCATE", "bench")
            write.save()

        self.measure("jobs/put", jobs, server, put, goal)
        rows.unpersist()

    def scan(self, jobs: int) -> None:
        """Measure reading the jobs of a tube by one task and by several tasks."""
        server = processes.penstock("--appendfsync", "everysec")
        with connect(url(server)) as queue:
            tube = queue.tube("bench", "fifo")
            for _ in range(jobs // 10_000):
                tube.put_many([b"x" * 100] * 10_000)
        read = self.spark.read.format("penstock").options(url=url(server), tube="bench")
        one, *others = [
            self.measure(f"jobs/scan, {tasks} tasks", jobs, server, _to_nothing(_scan(read, jobs, tasks)))
            for tasks in (1, 2, 8)
        ]
        for each in others:
            print(f"{each.name}: {each.cores['node'] / one.cores['node']:.2f} of the node's CPU time", file=sys.stderr)

    def stream(self, jobs: int, goal: float, judged: bool = False) -> None:
        """Measure a stream that claims, processes and acks jobs, or one that buries every hundredth job."""
        server = processes.penstock("--appendfsync", "everysec")
        with connect(url(server)) as queue:
            tube = queue.tube("bench", "fifo")
            self.measure_stream(server, tube, jobs, goal, judged)

    def measure_stream(self, server: Server, tube: Any, jobs: int, goal: float, judged: bool) -> None:
        """Measure the query, without the time to fill the tube."""
        best: Figures | None = None
        for _ in range(self._rounds + 1):
            for _ in range(jobs // 10_000):
                tube.put_many([b"x" * 100] * 10_000)
            read = self.spark.readStream.format("penstock").options(url=url(server), tube="bench").load()
            if judged:
                read = read.selectExpr("id", "claim", "if(hash(id) % 100 = 0, 'bury', 'ack') as verdict")
            checkpoint = tempfile.mkdtemp(prefix="penstock-bench-")
            before, began = _cores(server), time.perf_counter()
            sink = {"url": url(server)} if judged else {}
            write = read.writeStream.format("penstock" if judged else "noop").options(**sink)
            write = write.option("checkpointLocation", checkpoint)
            write.trigger(availableNow=True).start().awaitTermination()
            wall_s = time.perf_counter() - began
            after = _cores(server)
            shutil.rmtree(checkpoint)
            assert tube.stats()["ready"] + tube.stats()["taken"] == 0
            now = Figures(
                "jobs/stream, verdicts" if judged else "jobs/stream",
                jobs,
                wall_s,
                {who: after[who] - before[who] for who in after},
                goal,
            )
            best = now if best is None or now.wall_s < best.wall_s else best
        assert best is not None
        self.figures.append(best)

    def show(self) -> None:
        """Print the table."""
        table = Table(header_style="bold", title=None if is_compiled() else "INTERPRETED")
        for heading in ("row", "rows", "a second", "goal", "", "node µs", "Python µs", "Java µs"):
            table.add_column(heading, justify="left" if heading == "row" else "right")
        for each in self.figures:
            goal = "" if each.goal is None else f"{each.goal:,.0f}"
            met = "" if each.goal is None else "met" if each.rate >= each.goal else "missed"
            costs = [f"{each.cores[who] / each.rows * 1e6:.2f}" for who in ("node", "python", "java")]
            table.add_row(each.name, f"{each.rows:,}", f"{each.rate:,.0f}", goal, met, *costs)
        Console(width=120).print(table)


def url(server: Server) -> str:
    """Return the URL of a server."""
    return f"penstock://{server.host}:{server.port}"


def _serve(directory: str) -> Server:
    """Start a server that keeps the history of a directory. Wait until it has loaded the directory."""
    server = processes.penstock("--dir", directory, "--history-bytes", "1tb", "--history", "365d")
    processes.wait_until_loaded(url(server))
    return server


def _scan(read: Any, jobs: int, tasks: int) -> Callable[[], Any]:
    return lambda: read.option("rowsPerPartition", -(-jobs // tasks)).load()


def _to_nothing(made: Callable[[], Any]) -> Callable[[], None]:
    return lambda: made().write.format("noop").mode("overwrite").save()


def _cores(server: Server | None) -> dict[str, float]:
    """Return the CPU seconds that each process group has used so far."""
    java = _children(os.getpid(), "java")
    return {
        "node": 0.0 if server is None else server.cpu_s(),
        "java": sum(_cpu_s(pid, False) for pid in java),
        "python": sum(_tree_s(pid) for pid in java) - sum(_cpu_s(pid, False) for pid in java),
    }


def _children(parent: int, name: str) -> list[int]:
    return [pid for pid, (up, called) in _processes().items() if up == parent and called == name]


def _tree_s(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, including those that have ended."""
    below = [child for child, (parent, _) in _processes().items() if parent == pid]
    return _cpu_s(pid, True) + sum(map(_tree_s, below))


def _processes() -> dict[int, tuple[int, str]]:
    found = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                text = (each / "stat").read_text()
                found[int(each.name)] = (int(text.rpartition(")")[2].split()[1]), text.partition("(")[2].split(")")[0])
    return found


def _cpu_s(pid: int, with_children: bool) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(each) for each in fields[11 : 15 if with_children else 13]) / _TICKS_S
    return 0.0


def main(arguments: list[str]) -> int:
    """Measure and print the table. A missed goal is not a failure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description="Measure the Spark connector with a running server."
    )
    parser.add_argument("--quick", action="store_true", help="run the short form with a tenth of the rows")
    names = "events, events-1, hour, put, scan, stream, verdicts"
    parser.add_argument("--only", metavar="NAME", action="append", help=names)
    options = parser.parse_args(arguments)
    size = 1 if options.quick else 10
    bench = Bench(rounds=2 if options.quick else 3)
    parts: dict[str, Callable[[], None]] = {
        # A query has a fixed cost of about a second of CPU, so the log is large enough that it matters little.
        "events": lambda: bench.events(f"{BATCH:,} a frame", 200_000 * size, BATCH, 900_000, 1_800_000),
        "events-1": lambda: bench.events("1 a frame", 100_000 * size // 2, 1, 400_000),
        "hour": lambda: bench.hour(200_000 * size, 50),
        "put": lambda: bench.put(50_000 * size, 100_000),
        "scan": lambda: bench.scan(100_000 * size),
        "stream": lambda: bench.stream(30_000 * size, 60_000),
        "verdicts": lambda: bench.stream(30_000 * size, 60_000, judged=True),
    }
    for name, part in parts.items():
        if not options.only or name in options.only:
            part()
    bench.show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
