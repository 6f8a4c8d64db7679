"""The full demo: Spark puts pages, workers crawl them, the pipeline processes the history and writes a report.

The demo starts its own server on a free port. The queue, the lake and the report are in a new directory.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.commands.pipeline.report import write_page
from penstock.cli.demos import crawler
from penstock.cli.demos.crawler import Page, Visits, conclusion, domain_results
from penstock.cli.demos.demo_server import can_show_dashboard, server, show_dashboard
from penstock.cli.targets import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.audit import Verdict
    from penstock.report.section import Section


class SparkUnavailable(Exception):
    """Spark is not available. The message gives the reason."""


def start_spark() -> SparkSession:
    from penstock.spark import SourceError, session

    try:
        return session("local[2]", quiet=True, brief=True)
    except SourceError as error:
        raise SparkUnavailable(str(error)) from None
    except Exception as error:
        # Java is installed but does not start. Spark has printed the reason on standard error.
        raise SparkUnavailable(f"Spark did not start: {' '.join(str(error).split())[:200]}") from None


def run(console: Console, pages: int = crawler.PAGES, shows_dashboard: bool = False) -> int:
    """Run the full demo in a new directory. The lake and the report stay there, unless the demo is interrupted.

    With `shows_dashboard`, and at a terminal, the dashboard stays open until Ctrl-C. Return 0 if the demo and the audit
    found no violation.
    """
    place = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        code = run_in(place, console, pages, shows_dashboard)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place / "queue", ignore_errors=True)
    return code


def run_in(place: Path, console: Console, pages: int, shows_dashboard: bool = False) -> int:
    """Run the full demo in this directory."""
    began = time.monotonic()
    with step(console, "Starting Spark", "Spark has started"):
        spark = start_spark()
    work_list = crawler.make_pages(pages)
    with server(place / "queue") as url, connect(url) as queue:
        fifo, utube = crawler.tubes(queue)
        with step(console, "Spark puts the pages", f"Spark has put {2 * pages:,} pages"):
            enqueue(spark, url, work_list, fifo.name, utube.name)
        console.print()
        through_fifo = crawler.crawl(queue, fifo, pages, console)
        through_utube = crawler.crawl(queue, utube, pages, console)
        with step(console, "The pipeline processes the history", "The pipeline has processed and audited the history"):
            verdict = process_history(spark, url, place / "lake")
        with step(console, "Writing the report", "The report is written"):
            result = result_section(work_list, through_fifo, through_utube)
            report = write_report(place / "lake", place / "report.html", result)
        console.print()
        kept = crawler.conclude(work_list, through_fifo, through_utube, console)
        broken = [finding.promise for finding in verdict.findings if finding.broken]
        console.print(f"Audit of {verdict.events:,} events: {' '.join(broken) or 'every guarantee was kept.'}")
        seconds = time.monotonic() - began
        console.print(f"\nThe demo took {seconds:.0f} seconds. Report: {report}", soft_wrap=True, markup=False)
        if console.is_terminal and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(report.as_uri())
        if shows_dashboard and can_show_dashboard(console):
            show_dashboard(console, url, "--lake", str(place / "lake"))
    return 0 if kept and not verdict.broken else 1


@contextmanager
def step(console: Console, doing: str, done: str) -> Iterator[None]:
    """Show a status line during the block, and its duration afterwards."""
    began = time.monotonic()
    with console.status(f"{doing} …"):
        yield
    console.print(f"{done}: {time.monotonic() - began:.1f} s")


def enqueue(spark: SparkSession, url: str, pages: list[Page], fifo: str, utube: str) -> None:
    """Put every page into both tubes, in one atomic write."""
    from pyspark.sql import functions as f

    rows = spark.createDataFrame([dataclasses.asdict(page) for page in pages], "domain STRING, path BIGINT")
    body = f.to_json(f.struct("domain", "path")).alias("body")
    jobs = rows.select(f.lit(fifo).alias("tube"), f.lit(None).cast("string").alias("key"), body).union(
        rows.select(f.lit(utube), f.col("domain"), body)
    )
    jobs.write.format("penstock").option("url", url).option("kind", "json").mode("append").save()


def process_history(spark: SparkSession, url: str, directory: Path) -> Verdict:
    """Load the history into a lake and audit it. Gold has statistics per second, because the demo is short."""
    from penstock.lake.lake import Lake
    from penstock.pipeline.audit import audit
    from penstock.pipeline.source import Source

    lake = Lake(directory)
    with lake.writing():
        lake.create("second")
    return audit(spark, lake, Source((url,)))


def result_section(pages: list[Page], fifo: Visits, utube: Visits) -> Section:
    """Return the result of the demo as a section of the report: workers per domain, fifo next to utube."""
    from penstock.report.charts.bars import BarGroup, bars_chart
    from penstock.report.section import Figure, Section, column, count_column

    rows = [dataclasses.asdict(row) for row in domain_results(pages, fifo, utube)]
    title = "workers on one domain at a time, at most"
    groups = [BarGroup(row["domain"], [row["fifo"], row["utube"]]) for row in rows]
    return Section(
        "result",
        "The demo's result",
        "How many workers were on one domain at a time, at most?",
        [column("domain"), *map(count_column, ("pages", "visits", "fifo", "utube"))],
        rows,
        "No page was crawled.",
        figures=[[Figure(title, bars_chart("result-workers", title, ["fifo", "utube"], groups))]],
        legend=["fifo", "utube"],
        note=conclusion(fifo, utube),
    )


def write_report(lake: Path, path: Path, result: Section) -> Path:
    """Write the report. The result of the demo comes first."""
    from penstock.lake.lake import Lake
    from penstock.lake.report_source import LakeSource
    from penstock.report.build import build_report

    report = build_report(LakeSource(Lake(lake)), datetime.now(UTC))
    report = dataclasses.replace(report, title="The demo: a crawler", sections=[result, *report.sections])
    return write_page(report, path, f"The lake is {lake}.")
