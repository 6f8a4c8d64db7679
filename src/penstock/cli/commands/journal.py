"""`penstock journal`: read, check, compare, export and repair the log of a queue directory.

Only `repair` requires that no process uses the directory.
"""

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

from penstock.cli.errors import NOT_FOUND, USAGE, fail, printable_json
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output, column, naming_directory
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.journal.history.block import BlockDigest
    from penstock.journal.history.reader import Event

app = CommandGroup(
    help="Read, check, export and repair the journal of a queue directory: the log of its changes.",
)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="Queue directory.")]


@app.command()
def check(directory: Directory) -> None:
    """Read the whole log and report damage. Exit with 1 if it is damaged. Nothing is changed."""
    from penstock.cli.progress import bytes_bar
    from penstock.host.boot import boot_id
    from penstock.journal.real_disk import ReadOnlyDisk
    from penstock.journal.recovery.check import check_log

    disk = ReadOnlyDisk(directory)
    with naming_directory(directory), bytes_bar("checking") as progress:
        checked = check_log(disk, boot_id(), progress)
    for report in checked.segments:
        typer.echo(f"{report.name}: {report.frames:,} frames, {report.rows:,} rows, {report.used_bytes:,} bytes")
    for name, position in checked.snapshots:
        typer.echo(f"{name}: intact at position {position:,}")
    for cut in checked.cuts:
        typer.echo(printable(f"{cut.as_warning()}, unless a process is writing it now"))
    for problem in checked.problems:
        typer.echo(printable(problem))
    if checked.refused:
        fail(checked.refused)
    if checked.problems:
        fail(f"{directory}: the queue can be opened, but its log is damaged; see `penstock journal repair`")
    typer.echo("The log is intact except for its torn tail." if checked.cuts else "The log is intact.")


@app.command()
def repair(
    directory: Directory,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what cannot be read.")] = False,
) -> None:
    """Recover the readable part of a damaged directory, and report the damage.

    Data before and after the damage is recovered. Damaged files are kept as *.damaged. The queue must not be in use.
    If the damage contained the end of a job, the job exists again. Jobs that are delivered at most once are buried.
    """
    from penstock.cli.progress import bytes_bar
    from penstock.host.boot import boot_id
    from penstock.host.clock import wall_ms
    from penstock.journal.real_disk import ReadOnlyDisk, RealDisk
    from penstock.journal.recovery.repair import examine
    from penstock.journal.recovery.repair import repair as journal_repair

    if not os.path.exists(directory):
        fail(f"{directory} does not exist; check the path", NOT_FOUND)
    with naming_directory(directory), bytes_bar("reading") as progress:
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
        typer.echo(f"Repaired: {done.jobs:,} jobs were recovered. Kept files: {', '.join(done.kept_aside) or 'none'}.")


@app.command()
def stat(directory: Directory) -> None:
    """Show the size of the log: segments, positions, times, and the number of events of each kind."""
    from rich.console import Console
    from rich.table import Table

    from penstock.cli.progress import bytes_bar
    from penstock.journal.history.reader import Reader
    from penstock.journal.real_disk import ReadOnlyDisk

    counts: Counter[str] = Counter()
    first: Event | None = None
    last: Event | None = None
    with naming_directory(directory), bytes_bar("reading") as progress:
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
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of events to show first.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue to show new events.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one event per line.")] = False,
) -> None:
    """Show the last events of the log."""
    from penstock.journal.history.reader import Reader
    from penstock.journal.real_disk import ReadOnlyDisk

    with naming_directory(directory):
        reader = Reader(ReadOnlyDisk(directory))
        first, last = reader.positions()
        # The newest event gives the position to continue from, even if no event is shown.
        newest = deque(reader.events(max(first, last - lines)), maxlen=max(1, lines))
        _show(newest if lines else [], json)
        position = newest[-1].position + 1 if newest else last
        while follow:
            time.sleep(0.5)
            found = list(reader.events(position))
            _show(found, json)
            position = found[-1].position + 1 if found else position


# The formats of an export.
Format = StrEnum("Format", "JSONL PARQUET")


@app.command()
def export(
    directory: Directory,
    start: Annotated[int, typer.Option("--from", min=1, help="Position to start at.")] = 1,
    format: Annotated[
        Format,
        typer.Option("--format", help="jsonl: one JSON object per event. parquet: events of jobs, for Spark."),
    ] = Format.JSONL,
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="Include the bodies of jobs.")] = True,
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="Output file. - means standard output.")] = "-",
) -> None:
    """Export all events of the log to standard output or to a file.

    A Parquet file has the columns that docs/reference/spark.md lists. A file appears when it is complete.
    """
    from penstock.cli.journal_export import write_json_lines, write_parquet
    from penstock.cli.progress import bytes_bar
    from penstock.journal.real_disk import ReadOnlyDisk

    if to == "-" and format is Format.PARQUET and sys.stdout.isatty():
        fail("Parquet cannot be shown on a terminal; use --to FILE, or redirect the output", USAGE)
    write = write_parquet if format is Format.PARQUET else write_json_lines
    with (
        naming_directory(directory),
        bytes_bar("exporting", quiet=to == "-" and sys.stdout.isatty()) as progress,
        written(to) as output,
    ):
        write(ReadOnlyDisk(directory), output, start, bodies, progress)


@app.command()
def digest(
    place: Annotated[str, typer.Argument(metavar="DIR|URL", help="Queue directory, or server.")],
    start: Annotated[
        int | None, typer.Option("--from", min=1, help="Position to start at. The default is the first one.")
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", min=1, help="Position to end before. The default is the end of the log.")
    ] = None,
    *,
    out: Output,
) -> None:
    """Show SHA-256 digests of the rows of the log, to compare it with a copy of its history.

    A block has up to 4,096 positions. Its digests are those of its rows about jobs, and of their bodies. A copy with
    the same digests has the same rows. docs/explanation/journal.md defines the digests.
    """
    from penstock.cli.targets import parse_address

    address = parse_address(place)
    if address.directory is None:
        blocks = _server_blocks(address.url, start, to)
    else:
        blocks = _directory_blocks(str(address.directory), start, to)
    columns = [column(name) for name in ("first", "end", "rows", "rows_sha256", "bodies_sha256")]
    out.table((block.as_json() for block in blocks), columns, "The log has no rows there.")


def _server_blocks(url: str, start: int | None, to: int | None) -> Iterator[BlockDigest]:
    from penstock.cli.targets import connect

    with connect(url) as queue:
        first = queue.execute("JOURNAL", "HEAD")[b"first"] if start is None else start  # type: ignore[attr-defined]
        yield from queue.digests(first, to)


def _directory_blocks(directory: str, start: int | None, to: int | None) -> Iterator[BlockDigest]:
    from penstock.core.errors import Trimmed
    from penstock.core.limits import NEVER
    from penstock.journal.history.reader import Reader
    from penstock.journal.real_disk import ReadOnlyDisk

    with naming_directory(directory):
        reader = Reader(ReadOnlyDisk(directory))
        first = reader.first()
        if first is not None and start is not None and start < first:
            raise Trimmed(f"position {start} is not kept any more; the first that is kept is {first}")
        yield from reader.blocks(start or first or 1, NEVER if to is None else to)


@contextmanager
def written(path: str) -> Iterator[BinaryIO]:
    """Open the output. A file gets its name when it is complete."""
    if path == "-":
        yield sys.stdout.buffer
        return
    half = f"{path}.part"
    with naming_directory(path):
        Path(half).unlink(missing_ok=True)
        # The file contains bodies, so it is as private as the log. O_EXCL refuses a link that another user has placed.
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as output:
            yield output
        os.replace(half, path)
    finally:
        Path(half).unlink(missing_ok=True)


def _show(events: deque[Event] | list[Event], json: bool) -> None:
    from penstock.journal.history.reader import to_json_line

    for event in events:
        typer.echo(printable_json(to_json_line(event, bodies=False)) if json else printable(_line(event)))


def _line(event: Event) -> str:
    from penstock.report.job_history import actor_text

    parts = [f"{event.position:>8}", _moment(event), f"{event.event:<17}", event.tube or "", event.job or ""]
    if event.before is not None and event.before != event.after:
        parts.append(f"{event.before} → {event.after}")
    if event.reason is not None:
        parts.append(f"({event.reason})")
    if actor := actor_text(event):
        parts.append(f"by {actor}")
    return "  ".join(part for part in parts if part)


def _moment(event: Event) -> str:
    return datetime.datetime.fromtimestamp(event.time_ms / 1000).isoformat(" ", "milliseconds")
