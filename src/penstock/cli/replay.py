"""`penstock pipeline replay`: rows of a query, or of a saved table, back into a tube."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import typer

import penstock
from penstock.cli.bundles import bundled
from penstock.cli.exits import REFUSED, USAGE, complain, fail
from penstock.cli.output import Column, Output, column, jobs_text
from penstock.cli.progress import count_bar
from penstock.cli.target import Target
from penstock.cli.turns import Master
from penstock.cli.values import rate_option

_COLUMNS = (column("tube"), column("jobs"), Column("bytes", lambda record: record["body_bytes"]), column("bodiless"))


@bundled
def replay(
    query: Annotated[
        str | None,
        typer.Argument(metavar="[SQL]", help="Which jobs, of the tables of the lake: events, jobs and so on."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="A saved table instead: its name, or its path."),
    ] = None,
    lake: Annotated[str | None, typer.Option("--lake", metavar="DIR", help="The directory of the lake.")] = None,
    tube: Annotated[str | None, typer.Option("--tube", help="Where to put them. [their own tube]")] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="The server to put them to. [as elsewhere]"),
    ] = None,
    rate: Annotated[float | None, rate_option("Put at most this many jobs per second.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Of this replay: what it has put already is not put again. [the query]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be put where.")] = False,
    master: Master = "local[*]",
    *,
    out: Output,
) -> None:
    """Put jobs of the past again: what a query finds, or what a table has, as new jobs.

    A row is a job that the lake knows, by its node and job, or has a body (or value) of its own; the columns key,
    priority, delay, ttl and ttr are its options. Every new job has a name that says where it came from.
    """
    if (query is None) == (table is None):
        fail("give a query, or a --table", USAGE)
    if query is not None and lake is None:
        fail("a query is about a lake; say --lake DIR", USAGE)
    from penstock.pipeline import replay as work
    from penstock.pipeline.lake import Lake
    from penstock.spark import session

    spark = session(master, quiet=True)
    rows = work.rows_of(spark, Lake(lake) if lake else None, query, table)
    jobs = work.as_jobs(rows, tube, lake is not None)
    if dry_run:
        planned = work.plan(jobs)
        out.table([vars(each) for each in planned], _COLUMNS, "There is nothing to replay.")
        return
    run = name or hashlib.sha256(f"{query} {table} {tube}".encode()).hexdigest()[:16]
    place = Target(url=to).place()
    if place.directory is not None:
        fail(
            f"jobs are replayed to a server; `penstock serve --dir {place.directory}` makes one of this directory",
            USAGE,
        )
    with penstock.connect(place.url) as queue, count_bar("replaying") as progress:
        done = work.replay(jobs, queue, run, rate, lambda count: progress(count, None))
    _tell(done, out)


def _tell(done: Any, out: Output) -> None:
    words = f"{jobs_text(done.put)} put, in this run or an earlier one of the same name"
    if done.there:
        words += f"; {done.there:,} of another replay are still there"
    if done.bodiless:
        words += f"; {done.bodiless:,} have no body in the lake"
    refused = done.refused.total()
    out.done(words, put=done.put, there=done.there, bodiless=done.bodiless, refused=refused)
    for why, count in done.refused.most_common(5):
        complain(f"{count:,} refused: {why}")
    if refused:
        raise typer.Exit(REFUSED)
