"""The crawler of `penstock demo`. It shows how a utube keeps two workers from visiting a domain at the same time.

The pages belong to a few hundred made-up domains, and most pages to a few popular ones. Each page is put into two
tubes. In the `fifo`, several of the twelve workers visit the same domain at the same time. In the `utube`, whose key is
the domain, they do not. A visit is a short sleep, so there is no network traffic. The workers count their visits
themselves, independently of the queue.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.api import Job, Queue, Tube

DOMAINS = 300
PAGES = 12_000
WORKERS = 12
VISIT_MS = (0.5, 3.0)
FAILING_SHARE = 0.01
FAILINGS = ("timed out", "connection reset", "503 Service Unavailable")
BROKEN_EVERY = 400  # One page in this many always fails.
TRIES = 3
POPULAR = 8  # Number of domains with their own row in the result.


@dataclass
class Page:
    """The body of a job: a page to visit."""

    domain: str
    path: int


@dataclass
class Visits:
    """Counters that the workers update: concurrent visits and all visits per domain."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    now: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)

    def enter(self, domain: str) -> None:
        with self.lock:
            self.now[domain] += 1
            self.total[domain] += 1
            self.most[domain] = max(self.most[domain], self.now[domain])

    def leave(self, domain: str) -> None:
        with self.lock:
            self.now[domain] -= 1


def make_pages(count: int, seed: int = 7) -> list[Page]:
    """Return pages whose domains follow Zipf's law: the n-th domain has about 1/n of the pages of the first."""
    chance = random.Random(seed)
    names = [f"site{number:03d}.example" for number in range(1, DOMAINS + 1)]
    weights = [1 / rank**0.9 for rank in range(1, DOMAINS + 1)]
    return [Page(domain, path) for path, domain in enumerate(chance.choices(names, weights, k=count))]


def work(queue: Queue, name: str, visits: Visits, done: threading.Event, seed: int) -> None:
    """Run one worker: take pages and visit them until `done` is set."""
    chance = random.Random(seed)
    with queue.session() as session:
        tube = session.tube(name)
        while not done.is_set():
            job = tube.take(timeout=0.2)
            if job is not None:
                visit(job, visits, chance)


def visit(job: Job, visits: Visits, chance: random.Random) -> None:
    page = Page(**job.body)
    visits.enter(page.domain)
    time.sleep(chance.uniform(*VISIT_MS) / 1000)
    visits.leave(page.domain)
    failing = "404 Not Found" if page.path % BROKEN_EVERY == 0 else None
    if failing is None and chance.random() < FAILING_SHARE:
        failing = chance.choice(FAILINGS)
    if failing is None:
        job.ack()
    elif job.nacks + 1 < TRIES:
        job.nack(failing)
    else:
        job.bury(f"failed {TRIES} times, at last: {failing}")


def tubes(queue: Queue) -> tuple[Tube, Tube]:
    """Create and return the two tubes of the demo: a fifo, and a utube."""
    return queue.tube("pages-fifo", "fifo"), queue.tube("pages-utube", "utube")


def crawl(queue: Queue, tube: Tube, pages: int, console: Console) -> Visits:
    """Crawl `pages` pages from a tube and show the progress. Pages can be put during the crawl."""
    visits = Visits()
    done = threading.Event()
    workers = [
        threading.Thread(target=work, args=(queue, tube.name, visits, done, seed), daemon=True)
        for seed in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    watch(tube, pages, console)
    done.set()
    for worker in workers:
        worker.join()
    return visits


def watch(tube: Tube, pages: int, console: Console) -> None:
    """Show counts and rates until every page was visited or buried."""
    started = time.monotonic()
    before, before_at = 0, started
    with Live(console=console, refresh_per_second=8, transient=False) as live:
        while True:
            counts, events = tube.stats(), tube.events()
            acked, at = events.get("acked", 0), time.monotonic()
            rate = (acked - before) / (at - before_at) if at > before_at else 0.0
            before, before_at = acked, at
            over = acked + counts["buried"] >= pages
            if over:
                rate = acked / (at - started)
            live.update(_progress(tube, counts, events, rate, over), refresh=True)
            if over:
                break
            time.sleep(0.1)
    console.print()


def _progress(tube: Tube, counts: dict[str, int], events: dict[str, int], rate: float, over: bool) -> Table:
    table = Table(title=f"{tube.name}: {WORKERS} workers on a {tube.type} tube", title_justify="left")
    for heading in ("put", "ready", "taken", "buried", "acked", "failed", "pages/s"):
        table.add_column(heading, justify="right", min_width=7)
    table.add_row(
        f"{events.get('put', 0) + events.get('published', 0):,}",
        f"{counts['ready']:,}",
        f"{counts['taken']:,}",
        f"{counts['buried']:,}",
        f"{events.get('acked', 0):,}",
        f"{events.get('nacked', 0) + events.get('buried', 0):,}",
        f"{rate:,.0f}" + (" on average" if over else ""),
    )
    return table


@dataclass(frozen=True)
class DomainResult:
    """The maximum number of concurrent workers on a domain, or on any domain of a group."""

    domain: str
    pages: int
    visits: int
    fifo: int
    utube: int


def domain_results(pages: list[Page], fifo: Visits, utube: Visits) -> list[DomainResult]:
    """Return the result of the demo: the most popular domains, then all others together."""
    queued = Counter(page.domain for page in pages)
    popular = [domain for domain, _ in queued.most_common(POPULAR)]
    rest = [domain for domain in queued if domain not in popular]
    groups = {domain: [domain] for domain in popular} | ({f"{len(rest)} others": rest} if rest else {})
    return [
        DomainResult(
            name,
            sum(queued[domain] for domain in domains),
            sum(utube.total[domain] for domain in domains),
            max(fifo.most[domain] for domain in domains),
            max(utube.most[domain] for domain in domains),
        )
        for name, domains in groups.items()
    ]


def conclusion(fifo: Visits, utube: Visits) -> str:
    worst = max(utube.most.values())
    if worst > 1:
        return f"A domain was visited by {worst} workers at a time. This is a bug, please report it."
    return (
        f"With the fifo, up to {max(fifo.most.values())} workers were on one domain at a time. "
        "With the utube, no domain was visited by two workers at a time."
    )


def conclude(pages: list[Page], fifo: Visits, utube: Visits, console: Console) -> bool:
    """Print the result of the demo. Return whether no domain of the utube had two workers at a time."""
    table = Table(title="Most workers on one domain at a time", title_justify="left")
    table.add_column("domain")
    for heading in ("pages", "visits", "fifo", "utube"):
        table.add_column(heading, justify="right")
    for row in domain_results(pages, fifo, utube):
        table.add_row(row.domain, f"{row.pages:,}", f"{row.visits:,}", str(row.fifo), str(row.utube))
    console.print(table)
    kept = max(utube.most.values()) <= 1
    console.print(conclusion(fifo, utube), style=None if kept else "red")
    return kept
