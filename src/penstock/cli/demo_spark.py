"""The demo with all there is: Spark fills a queue, workers empty it, the pipeline digests the history, a report tells.

It has a server of its own, on a free port of this machine. Its jobs, the lake and the report are in a new directory.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from penstock.cli import crawl
from penstock.cli.crawl import Page, Visits, conclusion, crowds
from penstock.cli.report import write_page
from penstock.cli.target import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.audit import Verdict
    from penstock.pipeline.sections import Section

# A demo is over before it pays to compile well.
_SHORT: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class NoSpark(Exception):
    """Spark cannot be had here; the message says why."""


def start_spark() -> SparkSession:
    """A session for a short while."""
    from penstock.spark import SourceError, session

    try:
        return session("local[2]", quiet=True, **_SHORT)
    except SourceError as error:
        raise NoSpark(str(error)) from None
    except Exception as error:
        # Java is there, and does not start: Spark has said why on standard error.
        raise NoSpark(f"Spark did not start: {' '.join(str(error).split())[:200]}") from None


def run(console: Console, pages: int = crawl.PAGES, directory: Path | None = None) -> int:
    """The whole way of a page; 0 if the promise held."""
    began = time.monotonic()
    with step(console, "Starting Spark", "Spark has started"):
        spark = start_spark()
    place = directory or Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    work_list = crawl.make_pages(pages)
    with server(place / "queue") as url, connect(url) as queue:
        fifo, utube = crawl.tubes(queue)
        with step(console, "Spark puts the pages", f"Spark has put {2 * pages:,} pages"):
            enqueue(spark, url, work_list, fifo.name, utube.name)
        console.print()
        through_fifo = crawl.crawl(queue, fifo, pages, console)
        through_utube = crawl.crawl(queue, utube, pages, console)
        with step(console, "The pipeline processes the history", "The pipeline has processed and audited the history"):
            verdict = digest(spark, url, place / "lake")
    with step(console, "Writing the report", "The report is written"):
        result = result_section(work_list, through_fifo, through_utube)
        report = tell(place / "lake", place / "report.html", result, verdict)
    console.print()
    kept = crawl.conclude(work_list, through_fifo, through_utube, console)
    broken = [finding.promise for finding in verdict.findings if finding.broken]
    console.print(f"Of {verdict.events:,} events, the audit says: {' '.join(broken) or 'every promise was kept.'}")
    seconds = time.monotonic() - began
    console.print(f"\nAll of it took {seconds:.0f} seconds. The report: {report}", soft_wrap=True, markup=False)
    if console.is_terminal and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(report.as_uri())
    return 0 if kept and verdict.kept else 1


@contextmanager
def step(console: Console, doing: str, done: str) -> Iterator[None]:
    """Show what takes a while and, when it is done, how long it took."""
    began = time.monotonic()
    with console.status(f"{doing} …"):
        yield
    console.print(f"{done}: {time.monotonic() - began:.1f} s")


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """Run a server for the demo, and return its URL. Other servers may run on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--port", str(port), "--iproto-port", "0", "--bind", "127.0.0.1", "--dir", str(directory)]
    command = [sys.executable, "-m", "penstock", "serve", *words]
    # The settings of another server, which may be running, are not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        for said in process.stdout:
            if " server started: " in said:
                break
        else:
            raise ConnectionError(f"the server did not start: {said.strip()}")
        try:
            yield f"penstock://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def enqueue(spark: SparkSession, url: str, pages: list[Page], fifo: str, utube: str) -> None:
    """Put every page into both tubes, in one write: all of them are there, or none."""
    from pyspark.sql import functions as f

    rows = spark.createDataFrame([dataclasses.asdict(page) for page in pages], "domain STRING, path BIGINT")
    body = f.to_json(f.struct("domain", "path")).alias("body")
    jobs = rows.select(f.lit(fifo).alias("tube"), f.lit(None).cast("string").alias("key"), body).union(
        rows.select(f.lit(utube), f.col("domain"), body)
    )
    jobs.write.format("penstock").option("url", url).option("kind", "json").mode("append").save()


def digest(spark: SparkSession, url: str, directory: Path) -> Verdict:
    """Bring what happened into a lake, which counts by the second, since there are few minutes; and have it judged."""
    from penstock.pipeline.audit import audit
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.source import Source

    lake = Lake(directory)
    with lake.writing():
        lake.count_by("second")
    return audit(spark, lake, Source((url,)))


def result_section(pages: list[Page], fifo: Visits, utube: Visits) -> Section:
    """Return the result of the demo as a section of the report: workers per domain, fifo next to utube."""
    from penstock.pipeline import charts
    from penstock.pipeline.sections import Section, column

    rows = [dataclasses.asdict(row) for row in crowds(pages, fifo, utube)]
    return Section(
        "result",
        "The demo's result",
        "How many workers were on one domain at a time, at most?",
        [column(name) for name in ("domain", "pages", "visits", "fifo", "utube")],
        rows,
        "No page was crawled.",
        charts.bars(rows, "domain", {"fifo": "fifo", "utube": "utube"}, "workers on one domain at a time, at most"),
        conclusion(fifo, utube),
    )


def tell(lake: Path, path: Path, result: Section, verdict: Verdict) -> Path:
    """Write the report. The result of the demo and the verdict of the audit come first."""
    from penstock.pipeline.audit_section import audit_section, kept_figure
    from penstock.pipeline.gold_reader import GoldReader
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.report import report_of

    report = report_of(GoldReader(Lake(lake)))
    report = dataclasses.replace(
        report,
        title="The demo: a crawler",
        figures=[*report.figures, kept_figure(verdict)],
        sections=[result, audit_section(verdict), *report.sections],
    )
    return write_page(report, path, f"The lake is {lake}.")
