"""`penstock pipeline once`, `run`, `backfill` and `compact`: create and maintain a lake."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.lake_options import LakeDirectory, translated_errors
from penstock.cli.option_values import parse_duration
from penstock.cli.output import Output
from penstock.cli.progress import stages_bar
from penstock.cli.targets import Target, server_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.lake import Lake
    from penstock.pipeline.source import Source

Master = Annotated[str, typer.Option("--master", help="Spark master: local[*], spark://host:7077 and so on.")]


# The time unit of the gold tables.
Grain = StrEnum("Grain", "MINUTE SECOND")


By = Annotated[
    Grain | None,
    typer.Option("--by", help="Time unit of the gold tables, set when the lake is created. [default: minute]"),
]


@dataclass(frozen=True)
class SourceOptions:
    """The options that select the nodes whose logs are read."""

    urls: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="URL", help="URL of a node. Repeat it for each node. [same default as other commands]"
        ),
    ] = None
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="Include the bodies of jobs.")] = True
    gaps: Annotated[
        bool,
        typer.Option("--allow-gaps", help="Continue if history was deleted too early, or a node is gone."),
    ] = False

    def source(self) -> Source:
        """Return the source for the pipeline. An unreachable node is reported before Spark starts."""
        from penstock.pipeline.source import Source

        source = Source(tuple(server_url(Target(url=url)) for url in self.urls or (None,)), self.bodies, self.gaps)
        source.heads()
        return source


def once(lake: LakeDirectory, by: By = None, master: Master = "local[*]", *, nodes: SourceOptions, out: Output) -> None:
    """Load all new events of the nodes' logs into the lake, and exit.

    Loading continues where the last run stopped. Each event is loaded exactly once, even if a process is killed.
    """
    from penstock.pipeline import stream

    source = nodes.source()
    with open_lake(lake, master, by) as (spark, found), stages_bar() as on_progress:
        began = time.monotonic()
        count = stream.once(spark, found, source, on_progress)
    _print_summary(found, count, time.monotonic() - began, out)


def _pause(text: str | float) -> float:
    seconds = parse_duration(text)
    if not math.isfinite(seconds):
        raise typer.BadParameter("the pipeline would run only once; write a duration like 10s or 5m, or use `once`")
    return seconds


def run(
    lake: LakeDirectory,
    every: Annotated[
        float, typer.Option("--every", parser=_pause, metavar="TIME", help="Interval between two loads.")
    ] = 10,
    by: By = None,
    master: Master = "local[*]",
    *,
    nodes: SourceOptions,
) -> None:
    """Load new events of the nodes' logs at an interval. The command can be stopped or killed at any time."""
    from penstock.pipeline import stream

    source = nodes.source()
    with open_lake(lake, master, by) as (spark, found), stages_bar() as on_progress:
        stream.run(spark, found, source, every, on_progress)


def backfill(
    lake: LakeDirectory,
    again: Annotated[
        bool, typer.Option("--again", help="Read no node. Only rebuild the silver and gold tables from bronze.")
    ] = False,
    by: By = None,
    master: Master = "local[*]",
    *,
    nodes: SourceOptions,
    out: Output,
) -> None:
    """Load events that the lake lacks and the nodes still have, and rebuild the silver and gold tables."""
    from penstock.pipeline.backfill import backfill as work

    source = None if again else nodes.source()
    with open_lake(lake, master, by) as (spark, found), stages_bar() as on_progress:
        began = time.monotonic()
        count = work(spark, found, source, on_progress)
    _print_summary(found, count, time.monotonic() - began, out)


def compact(lake: LakeDirectory, master: Master = "local[*]", *, out: Output) -> None:
    """Merge the small files of each day. A running pipeline does this automatically, but less often."""
    from penstock.pipeline.compact import compact as work

    with open_lake(lake, master, makes=False) as (spark, found), found.writing():
        before, after = work(spark, found)
    out.report_done(f"{before:,} files became {after:,}", before=before, after=after)


@contextmanager
def open_lake(
    directory: str, master: str, by: Grain | None = None, makes: bool = True
) -> Iterator[tuple[SparkSession, Lake]]:
    """Start Spark and open a lake. Refuse a directory without a lake, unless `makes` is set."""
    from penstock.pipeline.lake import Lake
    from penstock.spark import session

    lake = Lake(directory)
    if not makes:
        lake.require_exists()
    if by is not None:
        with lake.writing():
            lake.count_by(by.value)
    spark = session(master, quiet=True)
    try:
        with translated_errors():
            yield spark, lake
    finally:
        spark.stop()


def _print_summary(lake: Any, count: int, seconds: float, out: Output) -> None:
    from penstock.pipeline.tables import EVENTS, JOBS

    events, jobs = lake.rows(EVENTS), lake.rows(JOBS)
    out.report_done(
        f"{count:,} new events in {seconds:.1f} s; the lake has {events:,} events of {jobs:,} jobs",
        new=count,
        events=events,
        jobs=jobs,
        seconds=round(seconds, 3),
    )
