"""`penstock stats`: an overview of all tubes, printed once or repeatedly."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.option_values import parse_duration
from penstock.cli.output import Column, Output, Record, rich_table
from penstock.cli.records import TUBE_COLUMNS
from penstock.cli.targets import Target
from penstock.core.errors import UnknownTube

if TYPE_CHECKING:
    from penstock.api import Queue


# The column that tubes are sorted by: names ascending, all others descending.
Sort = StrEnum("Sort", "NAME READY TAKEN DELAYED BURIED OLDEST")


NO_TUBES_HINT: Final = 'There is no tube yet: penstock put emails \'{"to": "ann@example.org"}\''
# Events that count as incoming jobs, and as finished jobs.
_IN: Final = ("put", "put delayed", "put urgent", "published", "published delayed")
_OUT: Final = ("acked", "kept", "lingered")


def stats(
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            parser=parse_duration,
            metavar="TIME",
            help="Repeat at this interval, with rates. End with Ctrl-C.",
        ),
    ] = None,
    times: Annotated[
        int, typer.Option("--times", min=0, help="With --watch: repeat this many times. 0 means forever.")
    ] = 0,
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="Sort by this column. Default: order of creation.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Show only the first tubes. 0 shows all.")] = 0,
    *,
    target: Target,
    out: Output,
) -> None:
    """Show all tubes: jobs in each state, age of the next ready job, waiting consumers, pauses."""
    with target.open() as queue:
        if watch is None:
            out.table(_rows(queue, sort, top), TUBE_COLUMNS, NO_TUBES_HINT)
        else:
            _watch(queue, watch, times, sort, top, out)


def _rows(queue: Queue, sort: Sort | None, top: int) -> list[Record]:
    rows = queue.overview()
    if sort is Sort.NAME:
        rows.sort(key=lambda row: row["name"])
    elif sort is not None:
        rows.sort(key=lambda row: row[sort.value] or 0, reverse=True)
    return rows[:top] if top else rows


def _watch(queue: Queue, every: float, times: int, sort: Sort | None, top: int, out: Output) -> None:
    columns = [
        *TUBE_COLUMNS,
        Column("in/s", lambda row: row.get("in_rate")),
        Column("out/s", lambda row: row.get("out_rate")),
    ]
    before: dict[str, tuple[int, int]] = {}
    at = time.monotonic()
    shown = 0
    live = None
    if sys.stdout.isatty() and not out.json:
        from rich.live import Live

        live = Live(auto_refresh=False)
        live.start()
    try:
        while True:
            rows = _rows(queue, sort, top)
            now = time.monotonic()
            before = add_rates(queue, rows, before, now - at)
            at = now
            if live is not None:
                live.update(rich_table(rows, columns, live.console.width), refresh=True)
            else:
                out.table(rows, columns, NO_TUBES_HINT)
                sys.stdout.flush()
            shown += 1
            if shown == times:
                return
            time.sleep(every)
    finally:
        if live is not None:
            live.stop()


def add_rates(
    queue: Queue, rows: list[Record], before: dict[str, tuple[int, int]], seconds: float
) -> dict[str, tuple[int, int]]:
    """Add the rates of incoming and finished jobs to the rows. Return the totals of both by tube, for the next call."""
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        try:
            events = queue.find_tube(row["name"]).events()
        except UnknownTube:
            continue  # The tube was dropped a moment ago.
        came, went = (sum(events.get(name, 0) for name in names) for names in (_IN, _OUT))
        counts[row["name"]] = came, went
        if row["name"] in before and seconds > 0:
            came_before, went_before = before[row["name"]]
            row["in_rate"] = round((came - came_before) / seconds)
            row["out_rate"] = round((went - went_before) / seconds)
    return counts
