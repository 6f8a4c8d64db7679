"""`penstock demo`: a crawler, with a server, Spark, the pipeline and a report, or in one process without Spark."""

from __future__ import annotations

import dataclasses
import threading

from rich.console import Console

import penstock
from penstock.api import Queue, Tube
from penstock.cli.demos import crawler
from penstock.cli.demos.crawler import Page, Visits


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
        return run_in_one_process(console, pages)


def run_in_one_process(console: Console, pages: int = crawler.PAGES) -> int:
    """Run the crawler in one process, without Spark. Return the same exit code as `run`."""
    console.print(
        f"A crawler: {pages:,} pages of {crawler.DOMAINS} domains, {crawler.WORKERS} workers, one process, only "
        "Python.\nFirst through a fifo, then through a utube whose key is the domain.\n"
    )
    work_list = crawler.make_pages(pages)
    with penstock.open(":memory:") as queue:
        fifo, utube = crawler.tubes(queue)
        through_fifo = _crawl(queue, fifo, work_list, console)
        through_utube = _crawl(queue, utube, work_list, console)
    return 0 if crawler.conclude(work_list, through_fifo, through_utube, console) else 1


def _crawl(queue: Queue, tube: Tube, pages: list[Page], console: Console) -> Visits:
    producer = threading.Thread(target=produce, args=(tube, pages), daemon=True)
    producer.start()
    return crawler.crawl(queue, tube, len(pages), console)


def produce(tube: Tube, pages: list[Page]) -> None:
    for page in pages:
        body = dataclasses.asdict(page)
        if tube.type == "utube":
            tube.put(body, key=page.domain)
        else:
            tube.put(body)
