"""`penstock journal`: look into the log of a directory, whether the queue is open or not. It changes nothing."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections import Counter, deque
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from penstock.core.errors import DamagedJournal, NoJournal
from penstock.journal.disk import ReadOnlyDisk
from penstock.journal.reader import Event, Reader, to_json_line

app = typer.Typer(help="Look into the log of a queue's directory. Nothing is changed.", no_args_is_help=True)

Directory = Annotated[str, typer.Argument(help="The directory that the queue was opened with.")]


def _reader(directory: str) -> Reader:
    try:
        return Reader(ReadOnlyDisk(directory))
    except (NoJournal, DamagedJournal, OSError) as error:
        _fail(f"{directory}: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(1)


@app.command()
def check(directory: Directory) -> None:
    """Read every frame, and say whether the log is whole. Exit code 1 if it is damaged."""
    console = Console()
    torn = 0
    try:
        reports = list(_reader(directory).segments())
    except DamagedJournal as error:
        _fail(str(error))
    for number, report in enumerate(reports, 1):
        console.print(f"{report.name}: {report.frames:,} frames, {report.rows:,} rows, {report.used_bytes:,} bytes")
        if report.tail is not None:
            if number < len(reports):
                _fail(f"{report.name} is damaged {report.tail}")
            torn += 1
            console.print(f"  it ends {report.tail}: a torn tail, which the next open cuts")
    console.print("The log is whole." if not torn else "The log is whole but for its torn tail.")


@app.command()
def stat(directory: Directory) -> None:
    """Show how much is in the log: segments, positions, times, and how often each thing happened."""
    reader = _reader(directory)
    counts: Counter[str] = Counter()
    first: Event | None = None
    last: Event | None = None
    for event in reader.events():
        first = first or event
        last = event
        counts[event.event] += 1
    table = Table(show_header=False)
    segments = list(reader.segments())
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
    reader = _reader(directory)
    newest = deque(reader.events(), maxlen=lines)
    _show(newest, json)
    position = newest[-1].position + 1 if newest else 1
    while follow:
        time.sleep(0.5)
        found = list(reader.events(position))
        _show(found, json)
        position = found[-1].position + 1 if found else position


@app.command()
def export(
    directory: Directory,
    start: Annotated[int, typer.Option("--from", min=1, help="The position to begin at.")] = 1,
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="With the bodies of jobs.")] = True,
) -> None:
    """Write every event as a line of JSON to standard output."""
    reader = _reader(directory)
    total = sum(report.rows for report in reader.segments())
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal or sys.stdout.isatty()) as progress:
        task = progress.add_task("exporting", total=max(0, total - start + 1))
        try:
            for event in reader.events(start):
                sys.stdout.write(to_json_line(event, bodies) + "\n")
                progress.advance(task)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read it has read enough; the interpreter must not complain about it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(events: deque[Event] | list[Event], json: bool) -> None:
    for event in events:
        typer.echo(to_json_line(event, bodies=False) if json else _line(event))


def _line(event: Event) -> str:
    parts = [f"{event.position:>8}", _moment(event), f"{event.event:<14}", event.tube or "", event.job or ""]
    if event.before is not None and event.before != event.after:
        parts.append(f"{event.before} → {event.after}")
    if event.reason is not None:
        parts.append(f"({event.reason})")
    return "  ".join(part for part in parts if part)


def _moment(event: Event) -> str:
    return datetime.datetime.fromtimestamp(event.time_ms / 1000).isoformat(" ", "milliseconds")
