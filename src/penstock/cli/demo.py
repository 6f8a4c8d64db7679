"""`penstock demo`: a crawler, in one process or with everything there is: a server, Spark, the pipeline and its report."""

from __future__ import annotations

import dataclasses
import threading

from rich.console import Console

import penstock
from penstock.cli import crawl
from penstock.cli.crawl import Page
from penstock.embedded import Tube


def run_in_one_process(pages: int = crawl.PAGES) -> int:
    """The crawler in one process, nothing but Python; 0 if the promise held."""
    console = Console(width=None if Console().is_terminal else 110)
    console.print(
        f"A crawler: {pages:,} pages of {crawl.DOMAINS} domains, {crawl.WORKERS} workers, one process, nothing but "
        "Python.\nFirst through a fifo, then through a utube whose key is the domain.\n"
    )
    work_list = crawl.make_pages(pages)
    with penstock.open(":memory:") as queue:
        seen = []
        for tube in (queue.tube("pages-fifo", "fifo"), queue.tube("pages-utube", "utube")):
            producer = threading.Thread(target=produce, args=(tube, work_list), daemon=True)
            producer.start()
            seen.append(crawl.crawl(queue, tube, pages, console))
            producer.join()
    console.print(crawl.verdict(work_list, *seen))
    return 0 if crawl.promise_kept(*seen, console) else 1


def produce(tube: Tube, pages: list[Page]) -> None:
    for page in pages:
        body = dataclasses.asdict(page)
        if tube.type == "utube":
            tube.put(body, key=page.domain)
        else:
            tube.put(body)
