"""`penstock demo`: a crawler, with a server, Spark, the pipeline and a report, or without Spark."""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console

import penstock
from penstock.api import Queue, Tube
from penstock.cli.demos import crawler
from penstock.cli.demos.crawler import Page, Visits
from penstock.cli.demos.demo_server import can_show_dashboard, server, show_dashboard
from penstock.cli.targets import connect
from penstock.core.errors import Closed, ConnectionLost
from penstock.options import NewJob

# A server syncs its journal once per batch of jobs.
_BATCH: Final = 100


def run(pages: int = crawler.PAGES, shows_dashboard: bool = False) -> int:
    """Run the demo. Return 0 if no domain of the utube was visited by two workers at a time."""
    from penstock.cli.demos import spark_demo

    console = Console(width=None if Console().is_terminal else 110)
    console.print(
        f"A crawler: {pages:,} pages of {crawler.DOMAINS} domains, {crawler.WORKERS} workers. Spark puts the pages "
        "into a queue. The workers crawl them\nthrough a fifo, then through a utube whose key is the domain. Then "
        "Spark reads the history.\n"
    )
    try:
        return spark_demo.run(console, pages, shows_dashboard=shows_dashboard)
    except spark_demo.SparkUnavailable as why:
        sentence = f"Spark is not available ({why}), so the demo runs without it.\n"
        console.print(sentence, soft_wrap=True, markup=False)
        if shows_dashboard and can_show_dashboard(console):
            return run_with_dashboard(console, pages)
        return run_in_one_process(console, pages)


def run_in_one_process(console: Console, pages: int = crawler.PAGES) -> int:
    """Run the crawler in one process, without Spark. Return the same exit code as `run`."""
    _introduce(console, pages, "one process, only Python")
    with penstock.open(":memory:") as queue:
        return _run_without_spark(queue, console, pages)


def run_with_dashboard(console: Console, pages: int = crawler.PAGES) -> int:
    """Run the crawler with a server, without Spark. Keep the dashboard open until Ctrl-C."""
    _introduce(console, pages, "a server")
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as home, server(Path(home)) as url:
        with connect(url) as queue:
            code = _run_without_spark(queue, console, pages)
        console.print()
        show_dashboard(console, url)
    return code


def _introduce(console: Console, pages: int, where: str) -> None:
    console.print(
        f"A crawler: {pages:,} pages of {crawler.DOMAINS} domains, {crawler.WORKERS} workers, {where}.\n"
        "First through a fifo, then through a utube whose key is the domain.\n"
    )


def _run_without_spark(queue: Queue, console: Console, pages: int) -> int:
    work_list = crawler.make_pages(pages)
    fifo, utube = crawler.tubes(queue)
    through_fifo = _crawl(queue, fifo, work_list, console)
    through_utube = _crawl(queue, utube, work_list, console)
    return 0 if crawler.conclude(work_list, through_fifo, through_utube, console) else 1


def _crawl(queue: Queue, tube: Tube, pages: list[Page], console: Console) -> Visits:
    producer = threading.Thread(target=produce, args=(tube, pages), daemon=True)
    producer.start()
    return crawler.crawl(queue, tube, len(pages), console)


def produce(tube: Tube, pages: list[Page]) -> None:
    """Put the pages into a tube, in batches, until the queue is closed."""
    with suppress(Closed, ConnectionLost):
        for batch in (pages[start : start + _BATCH] for start in range(0, len(pages), _BATCH)):
            tube.put_many([_job(tube, page) for page in batch])


def _job(tube: Tube, page: Page) -> NewJob:
    body = dataclasses.asdict(page)
    return NewJob(body, key=page.domain) if tube.type == "utube" else NewJob(body)
