"""`penstock pipeline replay`: put the rows of a query or a saved table as new jobs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli.commands.pipeline.run import Master
from penstock.cli.errors import REFUSED, USAGE, fail, print_error
from penstock.cli.lake_options import LakeOptions, StorageOptions, require_spark
from penstock.cli.option_values import rate_option
from penstock.cli.output import Column, Output, column, jobs_text
from penstock.cli.progress import count_bar
from penstock.cli.targets import Target, server_url

if TYPE_CHECKING:
    from penstock.pipeline.replay import ReplayResult

_COLUMNS = (column("tube"), column("jobs"), Column("bytes", lambda record: record["body_bytes"]), column("bodiless"))


def replay(
    query: Annotated[
        str | None,
        typer.Argument(metavar="[SQL]", help="Query on the tables of the lake: events, jobs and so on."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Use a saved table instead of a query: its name or path."),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake", metavar="PLACE", help="Place of the lake: a directory, or a folder like s3://bucket/lake."
        ),
    ] = None,
    storage: StorageOptions = None,
    tube: Annotated[
        str | None, typer.Option("--tube", help="Tube for the new jobs. [default: the original tube]")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="Server for the new jobs. [same default as other commands]"),
    ] = None,
    rate: Annotated[float | None, rate_option("Put at most this many jobs per second.")] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the replay. It puts each row only once. [default: a hash of the query]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the jobs per tube.")] = False,
    master: Master = "local[*]",
    *,
    out: Output,
) -> None:
    """Put the rows of a query or a table as new jobs.

    The body of a new job is the column body (or value) of its row, or the body of the job in the lake that the columns
    node and job name. The columns key, priority, delay, ttl and ttr are options of the new job. Each new job gets a
    name that identifies its origin.
    """
    if (query is None) == (table is None):
        fail("use either a query or --table", USAGE)
    if query is not None and lake is None:
        fail("a query needs a lake; name it with --lake PLACE", USAGE)
    require_spark()
    from penstock.pipeline import replay as work
    from penstock.spark import session

    spark = session(master, quiet=True)
    rows = work.rows_of(spark, LakeOptions(lake, storage).open() if lake else None, query, table)
    jobs = work.as_jobs(rows, tube, lake is not None)
    if dry_run:
        planned = work.plan(jobs)
        out.table([vars(each) for each in planned], _COLUMNS, "There is nothing to replay.")
        return
    run = name or hashlib.sha256(f"{query} {table} {tube}".encode()).hexdigest()[:16]
    url = server_url(Target(url=to))
    with penstock.connect(url) as queue, count_bar("replaying") as progress:
        done = work.replay(jobs, queue, run, rate, lambda count: progress(count, None))
    _print_summary(done, out)


def _print_summary(done: ReplayResult, out: Output) -> None:
    words = f"{jobs_text(done.put)} put, in this run or in an earlier run of the same name"
    if done.existing:
        words += f"; {done.existing:,} of another replay still exist"
    if done.bodiless:
        words += f"; {done.bodiless:,} have no body in the lake"
    refused = done.refused.total()
    out.report_done(words, put=done.put, there=done.existing, bodiless=done.bodiless, refused=refused)
    for why, count in done.refused.most_common(5):
        print_error(f"{count:,} refused: {why}")
    if refused:
        raise typer.Exit(REFUSED)
