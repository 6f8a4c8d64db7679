"""`penstock journal`: look into the log of a directory, whether the queue is in use or not; and repair it."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli.exits import NOT_FOUND, USAGE, fail, printable, printable_json
from penstock.cli.output import told

if TYPE_CHECKING:
    from penstock.journal.reader import Event

app = typer.Typer(help="Look into the log of a queue's directory, or repair it.", no_args_is_help=True)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The directory that the queue was opened with.")]


@app.command()
def check(directory: Directory) -> None:
    """Read every frame, and say whether the log is whole. Exit code 1 if it is damaged. Nothing is changed."""
    from penstock.cli.progress import bytes_bar
    from penstock.host.boot import boot_id
    from penstock.journal.check import check_log
    from penstock.journal.disk import ReadOnlyDisk

    disk = ReadOnlyDisk(directory)
    with told(directory), bytes_bar("checking") as progress:
        checked = check_log(disk, boot_id(), progress)
    for report in checked.segments:
        typer.echo(f"{report.name}: {report.frames:,} frames, {report.rows:,} rows, {report.used_bytes:,} bytes")
    for name, position in checked.snapshots:
        typer.echo(f"{name}: whole at position {position:,}")
    for cut in checked.cuts:
        typer.echo(printable(f"{cut.ahead()}, if nobody is writing it just now"))
    for problem in checked.problems:
        typer.echo(printable(problem))
    if checked.refused:
        fail(checked.refused)
    if checked.problems:
        fail(f"{directory}: the queue can be opened, but its log is damaged; see `penstock journal repair`")
    typer.echo("The log is whole but for its torn tail." if checked.cuts else "The log is whole.")


@app.command()
def repair(
    directory: Directory,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what cannot be read.")] = False,
) -> None:
    """Salvage what can be read of a damaged directory, and say what could not be.

    What precedes the damage and what follows it is used. Damaged files are kept beside the new ones, as *.damaged. The
    queue must not be in use. Jobs whose end was lost are there again; jobs that may be delivered only once are buried.
    """
    from penstock.cli.progress import bytes_bar
    from penstock.host.boot import boot_id
    from penstock.host.ledger import wall_ms
    from penstock.journal.disk import ReadOnlyDisk, RealDisk
    from penstock.journal.repair import examine
    from penstock.journal.repair import repair as journal_repair

    if not os.path.exists(directory):
        fail(f"{directory} is not there; see whether the path is right, and try again", NOT_FOUND)
    with told(directory), bytes_bar("reading") as progress:
        if dry_run:
            problems = examine(ReadOnlyDisk(directory), boot_id(), progress)
        else:
            done = journal_repair(RealDisk(directory), wall_ms(), boot_id(), progress)
            problems = done.problems
    for problem in problems:
        typer.echo(printable(problem))
    if not problems:
        typer.echo("There is nothing to repair.")
    elif not dry_run:
        typer.echo(f"Repaired: {done.jobs:,} jobs are there. Kept aside: {', '.join(done.kept_aside) or 'nothing'}.")


@app.command()
def stat(directory: Directory) -> None:
    """Show how much is in the log: segments, positions, times, and how often each thing happened."""
    from rich.console import Console
    from rich.table import Table

    from penstock.cli.progress import bytes_bar
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.reader import Reader

    counts: Counter[str] = Counter()
    first: Event | None = None
    last: Event | None = None
    with told(directory), bytes_bar("reading") as progress:
        reader = Reader(ReadOnlyDisk(directory))
        segments = list(reader.segments())
        total = sum(report.rows for report in segments)
        for event in reader.events():
            first = first or event
            last = event
            counts[event.event] += 1
            if event.position % 1_000 == 0:
                progress(event.position - first.position, total)
    table = Table(show_header=False)
    table.add_row("segments", f"{len(segments):,}, {sum(report.used_bytes for report in segments):,} bytes")
    if first is not None and last is not None:
        table.add_row("positions", f"{first.position:,} to {last.position:,}")
        table.add_row("times", f"{_moment(first)} to {_moment(last)}")
    for name, count in counts.most_common():
        table.add_row(name, f"{count:,}")
    Console().print(table)


@app.command()
def tail(
    directory: Directory,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many events to begin with.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as events come.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON an event.")] = False,
) -> None:
    """Show the last events."""
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.reader import Reader

    with told(directory):
        reader = Reader(ReadOnlyDisk(directory))
        first, last = reader.positions()
        # The newest one says where to go on from, also if none is to be shown.
        newest = deque(reader.events(max(first, last - lines)), maxlen=max(1, lines))
        _show(newest if lines else [], json)
        position = newest[-1].position + 1 if newest else last
        while follow:
            time.sleep(0.5)
            found = list(reader.events(position))
            _show(found, json)
            position = found[-1].position + 1 if found else position


class Format(StrEnum):
    """What events can be written as."""

    JSONL = "jsonl"
    PARQUET = "parquet"


@app.command()
def export(
    directory: Directory,
    start: Annotated[int, typer.Option("--from", min=1, help="The position to begin at.")] = 1,
    format: Annotated[
        Format,
        typer.Option("--format", help="jsonl: one line of JSON an event. parquet: the events of jobs, for Spark."),
    ] = Format.JSONL,
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="With the bodies of jobs.")] = True,
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="Write there; - for standard output.")] = "-",
) -> None:
    """Write every event that is kept to standard output, or to a file.

    As Parquet, the events have the columns of docs/reference/spark.md. A file is there when all of it is.
    """
    from penstock.cli.export import write_json_lines, write_parquet
    from penstock.cli.progress import bytes_bar
    from penstock.journal.disk import ReadOnlyDisk

    if to == "-" and format is Format.PARQUET and sys.stdout.isatty():
        fail("Parquet is nothing for a terminal; say --to FILE, or redirect it", USAGE)
    write = write_parquet if format is Format.PARQUET else write_json_lines
    with (
        told(directory),
        bytes_bar("exporting", quiet=to == "-" and sys.stdout.isatty()) as progress,
        written(to) as output,
    ):
        write(ReadOnlyDisk(directory), output, start, bodies, progress)


@contextmanager
def written(path: str) -> Iterator[BinaryIO]:
    """Where to write to. A file gets its name when it is whole."""
    if path == "-":
        yield sys.stdout.buffer
        return
    half = f"{path}.part"
    with told(path):
        Path(half).unlink(missing_ok=True)
        # As private as the log itself: bodies are in it. And never through a link that somebody has put there.
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as output:
            yield output
        os.replace(half, path)
    finally:
        Path(half).unlink(missing_ok=True)


def _show(events: deque[Event] | list[Event], json: bool) -> None:
    from penstock.journal.reader import to_json_line

    for event in events:
        typer.echo(printable_json(to_json_line(event, bodies=False)) if json else printable(_line(event)))


def _line(event: Event) -> str:
    parts = [f"{event.position:>8}", _moment(event), f"{event.event:<14}", event.tube or "", event.job or ""]
    if event.before is not None and event.before != event.after:
        parts.append(f"{event.before} → {event.after}")
    if event.reason is not None:
        parts.append(f"({event.reason})")
    return "  ".join(part for part in parts if part)


def _moment(event: Event) -> str:
    return datetime.datetime.fromtimestamp(event.time_ms / 1000).isoformat(" ", "milliseconds")
