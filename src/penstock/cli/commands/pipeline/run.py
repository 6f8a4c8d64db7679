"""`penstock pipeline once`, `run`, `backfill`, `compact`, `convert` and `init`: create and maintain a lake."""

from __future__ import annotations

import datetime
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.lake_options import LakeOptions, day_option, require_spark, translated_errors
from penstock.cli.option_values import parse_duration
from penstock.cli.output import Output
from penstock.cli.progress import stages_bar
from penstock.cli.targets import Target, server_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake
    from penstock.pipeline.source import Source
    from penstock.pipeline.user_tables import UserTable

Master = Annotated[str, typer.Option("--master", help="Spark master: local[*], spark://host:7077 and so on.")]


# The time unit of the gold tables.
Grain = StrEnum("Grain", "MINUTE SECOND")


By = Annotated[
    Grain | None,
    typer.Option("--by", help="Time unit of the gold tables, set when the lake is created. [default: minute]"),
]


Tables = Annotated[
    str | None,
    typer.Option("--tables", metavar="DIR", help="Folder with the SQL files of your own tables. See `init`."),
]


def user_tables(folder: str | None) -> list[UserTable]:
    """Read the definitions of the user's tables before Spark starts."""
    from penstock.pipeline.user_tables import load_tables

    return [] if folder is None else load_tables(folder)


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


def once(
    by: By = None,
    tables: Tables = None,
    master: Master = "local[*]",
    *,
    lake: LakeOptions,
    nodes: SourceOptions,
    out: Output,
) -> None:
    """Load all new events of the nodes' logs into the lake, and exit.

    Loading continues where the last run stopped. Each event is loaded exactly once, even if a process is killed.
    """
    require_spark()
    from penstock.pipeline.run import Pipeline

    users = user_tables(tables)
    source = nodes.source()
    with open_lake(lake, master, by, new_events(source)) as (spark, found), stages_bar() as on_progress:
        began = time.monotonic()
        pipeline = Pipeline(spark, found, source, on_progress, users=users)
        with stopping_on_signals(pipeline.stopping.set):
            count = pipeline.once()
    _print_summary(found, count, time.monotonic() - began, out)


def _pause(text: str | float) -> float:
    seconds = parse_duration(text)
    if not math.isfinite(seconds):
        raise typer.BadParameter("the pipeline would run only once; write a duration like 10s or 5m, or use `once`")
    return seconds


def run(
    every: Annotated[
        float, typer.Option("--every", parser=_pause, metavar="TIME", help="Interval between two loads.")
    ] = 10,
    by: By = None,
    tables: Tables = None,
    master: Master = "local[*]",
    *,
    lake: LakeOptions,
    nodes: SourceOptions,
) -> None:
    """Load new events of the nodes' logs at an interval, until Ctrl-C or SIGTERM.

    The command ends after the next commit. It can also be killed at any time.
    """
    require_spark()
    from penstock.pipeline.audit import audit_new
    from penstock.pipeline.run import Pipeline

    users = user_tables(tables)
    source = nodes.source()
    with open_lake(lake, master, by) as (spark, found), stages_bar() as on_progress:
        pipeline = Pipeline(spark, found, source, on_progress, audit_new, users)
        with stopping_on_signals(pipeline.stopping.set):
            pipeline.run(every)


def backfill(
    again: Annotated[
        bool, typer.Option("--again", help="Read no node. Only compute the silver and gold tables again from bronze.")
    ] = False,
    since: Annotated[datetime.date | None, day_option("--since", "First day to load and to compute again.")] = None,
    until: Annotated[datetime.date | None, day_option("--until", "Last day to load and to compute again.")] = None,
    by: By = None,
    tables: Tables = None,
    master: Master = "local[*]",
    *,
    lake: LakeOptions,
    nodes: SourceOptions,
    out: Output,
) -> None:
    """Load events that the lake lacks and the nodes still have, and compute the silver and gold tables again."""
    require_spark()
    from penstock.pipeline.backfill import backfill as work

    users = user_tables(tables)
    source = None if again else nodes.source()
    with open_lake(lake, master, by) as (spark, found), stages_bar() as on_progress:
        began = time.monotonic()
        count = work(spark, found, source, on_progress, since, until, users)
    _print_summary(found, count, time.monotonic() - began, out)


def compact(master: Master = "local[*]", *, lake: LakeOptions, out: Output) -> None:
    """Merge the small files of each day. A running pipeline does this automatically, but less often."""
    require_spark()
    from penstock.pipeline.compact import compact as work

    with open_lake(lake, master, events=all_events, makes=False) as (spark, found), found.writing():
        before, after = work(spark, found)
    out.report_done(f"{before:,} files became {after:,}", before=before, after=after)


def convert(master: Master = "local[*]", *, lake: LakeOptions, out: Output) -> None:
    """Convert a lake of an older version in place.

    The events are kept, and the other tables are computed again. If the command is killed, run it again. Afterwards,
    older versions cannot read the lake.
    """
    require_spark()
    from penstock.pipeline.convert import convert as work

    with open_lake(lake, master, converting=True) as (spark, found), stages_bar() as on_progress:
        events = work(spark, found, on_progress)
    out.report_done(f"The lake has {events:,} events", events=events)


def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="New or empty folder for the project.")],
    lake: Annotated[
        str, typer.Option("--lake", metavar="PLACE", help="Place of the lake that the project reads.")
    ] = "./lake",
    *,
    out: Output,
) -> None:
    """Write a project that you own: tables of your own, a Spark declarative pipeline, and Airflow and dbt examples.

    Use the tables with `penstock pipeline once --tables DIR/tables`. Check the declarative pipeline with
    `spark-pipelines dry-run` in the folder.
    """
    from penstock.pipeline.project import write_project

    written = write_project(folder, lake)
    out.report_done(
        f"{len(written)} files were written to {folder}", folder=folder, files=[str(path) for path in written]
    )


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at Ctrl-C and SIGTERM during the block. A second Ctrl-C interrupts at once."""

    def on_signal(number: int, frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# With fewer events, a session is started as a brief one.
_EVENTS_BRIEF: Final = 500_000


def new_events(source: Source) -> Callable[[Lake], int]:
    """Return a function that counts the rows of the logs that a lake has not read yet."""
    from penstock.pipeline.source import unread

    return lambda lake: sum(count or 0 for count in unread(lake, source).values())


def all_events(lake: Lake) -> int:
    from penstock.lake.tables import EVENTS

    return lake.rows(EVENTS)


@contextmanager
def open_lake(
    options: LakeOptions,
    master: str,
    by: Grain | None = None,
    events: Callable[[Lake], int] | None = None,
    makes: bool = True,
    converting: bool = False,
) -> Iterator[tuple[SparkSession, Lake]]:
    """Start Spark and open a lake. Refuse a place without a lake, unless `makes` is set.

    `events` counts the events that the command will process. None: they are unknown or many.
    """
    from penstock.spark import session

    lake = options.open(converting)
    if not makes:
        lake.require_exists()
    if by is not None:
        with lake.writing():
            lake.create(by.value)
    spark = session(master, quiet=True, brief=events is not None and events(lake) < _EVENTS_BRIEF)
    try:
        with translated_errors():
            yield spark, lake
    finally:
        spark.stop()


def _print_summary(lake: Lake, count: int, seconds: float, out: Output) -> None:
    events = all_events(lake)
    out.report_done(
        f"{count:,} new events in {seconds:.1f} s; the lake has {events:,} events",
        new=count,
        events=events,
        seconds=round(seconds, 3),
    )
