"""Work for a queue that produces events for all tables, and readers of a lake without Spark."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.lake.lake import Lake
from penstock.lake.merging import merge_parts
from penstock.lake.tables import EVENTS, FLOWS, GOLD, JOBS, Table, gold_table
from penstock.report.levels import levels_of

if TYPE_CHECKING:
    from penstock.client.queue import Job, Queue

Rows = list[dict[str, Any]]

# Tubes of the work, and the number of its puts.
PUTS = {"mail": 21, "risky": 1, "tired": 1, "crawl": 6, "orders": 1, "held": 1}


def work(queue: Queue) -> Job:
    """Produce events for all tables. Return a job that is still taken."""
    mail = queue.tube("mail", "fifottl")
    for n in range(20):
        mail.put(f"letter {n}")
    for _ in range(10):
        mail.take().ack()
    mail.take().nack("no such street")
    mail.take().ack()
    mail.take().bury("torn")
    mail.put("later", delay=3600)
    risky = queue.tube("risky", "fifottl", max_deliveries=1, dead_letter="morgue")
    risky.put("try this")
    risky.take().nack("it blew up")
    tired = queue.tube("tired", "fifottl", max_deliveries=2)
    tired.put("try this twice")
    tired.take().nack("404")
    tired.take().nack("404")
    crawl = queue.tube("crawl", "utube")
    for n in range(6):
        crawl.put(f"page {n}", key=f"site {n % 2}")
    one, other = crawl.take(), crawl.take()
    time.sleep(0.03)
    one.ack()
    other.release()
    queue.execute("ADDJOB", "orders", "pay", "0", "RETRY", "0")
    queue.execute("GETJOB", "FROM", "orders")
    held = queue.tube("held", "fifo")
    held.put("half done")
    return held.take()


def rows_of(lake: Lake, table: Table) -> Rows:
    """Return all rows of a table as they are stored."""
    rows: Rows = lake.read(table).to_pylist()
    return rows


def sums(lake: Lake, name: str, *keys: str, **only: Any) -> dict[tuple[Any, ...], Counter[str]]:
    """Return the sums and maxima of a gold table over all days, by some of its keys. Rows of zeros are left out."""
    table = gold_table(name)
    found: dict[Any, Counter[str]] = {}
    for row in rows_of(lake, table):
        if all(row[key] == value for key, value in only.items()):
            into = found.setdefault(tuple(row[key] for key in keys), Counter())
            for measure in table.measures:
                is_max = measure.endswith("_max")
                into[measure] = max(into[measure], row[measure]) if is_max else into[measure] + row[measure]
    return {key: +counts for key, counts in found.items() if +counts}


def levels(lake: Lake) -> dict[str, dict[str, int]]:
    """Return the last level of each state, and the greatest peaks, by tube. Zeros are left out."""
    flows = lake.read(FLOWS)
    found = {}
    for tube, table in levels_of(flows, {}, set(flows["tube"].to_pylist())).items():
        rows = table.to_pylist()
        last = {state: rows[-1][state] for state in ("ready", "taken", "delayed", "buried", "kept")}
        peaks = {name: max(row[name] for row in rows) for name in ("ready_peak", "taken_peak")}
        found[tube] = {name: count for name, count in {**last, **peaks}.items() if count}
    return found


def jobs(lake: Lake, tube: str | None = None) -> Rows:
    """Return the merged jobs of a tube in order of their ids."""
    found = merge_parts(lake.read(JOBS)).sort_by([("node", "ascending"), ("job", "ascending")])
    return [row for row in found.to_pylist() if tube in (None, row["tube"])]


def contents(lake: Lake) -> dict[str, Any]:
    """Return everything that silver and gold say, however it is divided into files and rows."""
    found: dict[str, Any] = {table.name: sums(lake, table.name, *table.keys) for table in GOLD if table is not FLOWS}
    return {**found, "levels": levels(lake), JOBS.name: jobs(lake)}


def positions(lake: Lake) -> list[tuple[str, int]]:
    """Return the node and the position of each event of a lake, in order."""
    rows = lake.read(EVENTS).select(["node", "position"]).to_pylist()
    return sorted((row["node"], row["position"]) for row in rows)
