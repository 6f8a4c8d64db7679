"""`penstock put`: add jobs, from the command line or from a file."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NoReturn

import typer

from penstock.cli.errors import ERROR, INTERRUPTED, NOTHING, USAGE, exit_code_of, fail, message_of
from penstock.cli.option_values import BodyKind, TubeName, duration_option, parse_datetime, parse_json_object, read_body
from penstock.cli.options import shared_options
from penstock.cli.output import Output, jobs_text
from penstock.cli.targets import Target
from penstock.core.errors import CommandError, Full, PenstockError

if TYPE_CHECKING:
    from penstock.api import Tube


class InitialState(StrEnum):
    """A state that a put can give to its job."""

    READY = "ready"
    BURIED = "buried"
    DONE = "done"


@dataclass(frozen=True)
class PutFlags:
    """The options of a put. Options that are not given take the tube's defaults."""

    delay: Annotated[float | None, duration_option("--delay", help="Wait this long before the job can be taken.")] = (
        None
    )
    at: Annotated[
        datetime | None,
        typer.Option(
            "--at",
            parser=parse_datetime,
            metavar="WHEN",
            help="Time from which the job can be taken, like 2026-12-24T18:00 (local time) or 2026-12-24T18:00Z.",
        ),
    ] = None
    ttl: Annotated[
        float | None, duration_option("--ttl", help="Expire the job after this long, not counting the delay.")
    ] = None
    ttr: Annotated[
        float | None, duration_option("--ttr", help="Time a consumer has before the job is returned to the tube.")
    ] = None
    priority: Annotated[
        int | None, typer.Option("--priority", "-p", help="Priority; lower numbers are served first.")
    ] = None
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Key of the job, for tubes that limit jobs per key.")
    ] = None
    urgent: Annotated[bool, typer.Option("--urgent", help="Put the job in front of all others.")] = False
    once: Annotated[bool, typer.Option("--once", help="Deliver the job at most once (disque tubes).")] = False
    retry: Annotated[
        str | None, typer.Option("--retry", help='Retry policy, for example "5x exp(1s..10m) then bury".')
    ] = None
    name: Annotated[str | None, typer.Option("--name", help="Name of the job, unique in the tube.")] = None
    unique: Annotated[
        str | None,
        typer.Option("--unique", help="If an unfinished job has this value, return it instead of adding one."),
    ] = None
    dedup: Annotated[
        str | None,
        typer.Option("--dedup", help="If a job was put with this value recently, return it instead of adding one."),
    ] = None
    nacks: Annotated[int | None, typer.Option("--nacks", help="Initial number of failures, for imported jobs.")] = None
    options: Annotated[
        dict[str, Any] | None,
        typer.Option("--options", parser=parse_json_object, metavar="JSON", help="Options for the driver of the tube."),
    ] = None
    number: Annotated[
        int | None,
        typer.Option("--number", help="Number of the job in the tube, below its first_integer, for imported jobs."),
    ] = None
    state: Annotated[
        InitialState | None, typer.Option("--state", help="Initial state of the job, for imported jobs.")
    ] = None
    new: Annotated[bool, typer.Option("--new", help="Fail if --unique or --dedup finds an existing job.")] = False

    def given(self) -> dict[str, Any]:
        """Return the options that were given."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


# Default number of jobs per batch.
BATCH: Final = 1_000


class LineMeaning(StrEnum):
    """The meaning of the lines in a file of jobs."""

    BODIES = "bodies"
    OPTIONS = "options"


@shared_options
def put(
    tube: TubeName,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY]...", help="Bodies: text, @FILE, or - for standard input. @@ stands for @."),
    ] = None,
    kind: Annotated[
        BodyKind | None, typer.Option("--as", help="Type of the bodies. Default: text if they are UTF-8, else bytes.")
    ] = None,
    timeout: Annotated[float, duration_option("--timeout", "-t", help="Wait this long for room in a full tube.")] = 0.0,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Put every line of a JSON lines file. - reads stdin.")
    ] = None,
    lines: Annotated[
        LineMeaning | None,
        typer.Option(
            "--lines",
            help="With --from. bodies: a line is a body. options: a line is an object with a body and job options.",
            show_default="bodies",
        ),
    ] = None,
    skip: Annotated[int, typer.Option("--skip", min=0, help="With --from: skip this many lines.")] = 0,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, max=100_000, help="With --from: jobs per batch.", show_default=f"{BATCH}"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the input, and show how many jobs would be put.")
    ] = False,
    *,
    flags: PutFlags,
    target: Target,
    out: Output,
) -> None:
    """Add jobs to a tube. The tube is created if it does not exist.

    With --from, each line of a JSON lines file becomes a job. Each batch is put completely or not at all. If loading
    stops, the message names the number of lines to continue with --skip.
    """
    from penstock.options import draft

    if source is not None and bodies:
        fail("use either bodies or --from, not both", USAGE)
    if source is not None:
        _refuse(" cannot be used with --from", {"--as": kind, "--timeout": timeout})
        # Check the options first, so that an error is not reported as an error of a line.
        draft(b"", **flags.given())
        load(tube, source, lines or LineMeaning.BODIES, skip, batch or BATCH, flags.given(), dry_run, target, out)
        return
    _refuse(" requires --from", {"--lines": lines, "--skip": skip, "--batch": batch})
    if not bodies:
        fail("no body is given; write it as text, @FILE or - for standard input, or use --from FILE", USAGE)
    values = [read_body(word, kind) for word in bodies]
    if dry_run:
        for value in values:
            draft(value, **flags.given())
        out.report_done(f"would put {jobs_text(len(values))} into {tube}", tube=tube, put=0, would_put=len(values))
        return
    with target.open(makes=True) as queue:
        place = queue.tube(tube)
        for value in values:
            try:
                job = place.put(value, timeout=timeout, **flags.given())
            except Full as error:
                fail(str(error), NOTHING if timeout else exit_code_of(error))
            # Print each id immediately, because the job exists even if the next put is refused.
            out.report_done(job.id, id=job.id, tube=tube)


def _refuse(why: str, options: dict[str, object]) -> None:
    """Refuse options that would have no effect."""
    for name, value in options.items():
        if value:
            fail(f"{name}{why}", USAGE)


# ---- Loading a file --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileLine:
    """A parsed line of a file of jobs."""

    number: int
    end: int  # Position in the file after this line.
    body: Any
    options: dict[str, Any]


def load(
    tube: str,
    source: str,
    lines: LineMeaning,
    skip: int,
    batch: int,
    options: dict[str, Any],
    dry_run: bool,
    target: Target,
    out: Output,
) -> None:
    """Put every line of a file, or only check the file if `dry_run` is set."""
    from penstock.cli.imports.json_lines import BadLine

    loading = LoadProgress(skip)
    with _opened(source) as (file, size):
        jobs = read_lines(file, tube, lines, skip, options)
        if dry_run:
            try:
                with _progress(size) as progress:
                    for some in batches(jobs, batch):
                        loading.finish_batch(some)
                        progress(some[-1].end, loading.lines)
            except BadLine as error:
                fail(str(error))
            would = f"would put {jobs_text(loading.put)} into {tube}"
            out.report_done(would, tube=tube, lines=loading.lines, put=0, would_put=loading.put)
            return
        with target.open(makes=True) as queue:
            _put_all(queue.tube(tube), jobs, batch, loading, size)
    out.report_done(f"put {jobs_text(loading.put)} into {tube}", tube=tube, lines=loading.lines, put=loading.put)


@dataclass
class LoadProgress:
    """The progress of loading a file."""

    lines: int  # Lines that are finished, including skipped ones.
    put: int = 0
    in_flight: list[FileLine] = field(default_factory=list)  # The batch in flight, which may or may not be put.

    def finish_batch(self, some: list[FileLine]) -> None:
        """Record that these lines are put."""
        self.lines = some[-1].number
        self.put += len(some)
        self.in_flight = []

    def batch(self) -> str:
        """Return the line numbers of the batch in flight."""
        first, last = self.in_flight[0].number, self.in_flight[-1].number
        return f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"

    def stop(self, why: str, code: int) -> NoReturn:
        """Exit with a message that says how far loading came and how to continue."""
        done = f"put {jobs_text(self.put)} of the first {self.lines:,} lines" if self.put else "nothing was put"
        if self.in_flight:
            more = len(self.in_flight)
            done = f"{done}, and perhaps up to {more} more" if self.put else f"perhaps up to {jobs_text(more)} were put"
        on = f"; continue with --skip {self.lines}" if self.lines else ""
        fail(f"{why.rstrip('.')}; {done}{on}", code)


def _put_all(tube: Tube, jobs: Iterator[FileLine], batch: int, loading: LoadProgress, size: int | None) -> None:
    """Put jobs in batches. On an error, exit with a message that says how far loading came."""
    from penstock.cli.imports.json_lines import BadLine

    try:
        # The progress bar ends before a message is printed, because removing the bar erases text below it.
        with _progress(size) as progress:
            for some in batches(jobs, batch):
                loading.in_flight = some
                tube.put_many([line.body for line in some], **some[0].options)
                loading.finish_batch(some)
                progress(some[-1].end, loading.lines)
    except BadLine as error:
        loading.stop(str(error), ERROR)
    except KeyboardInterrupt:
        loading.stop("interrupted", INTERRUPTED)
    except CommandError as error:
        # The server refused the whole batch.
        which, loading.in_flight = loading.batch(), []
        loading.stop(f"{which}: {message_of(error)}", exit_code_of(error))
    except (PenstockError, OSError) as error:
        # The answer is lost, so it is unknown whether the batch was put.
        loading.stop(message_of(error), exit_code_of(error))


def batches(jobs: Iterator[FileLine], count: int) -> Iterator[list[FileLine]]:
    """Group neighbouring lines that have equal options. If a line is bad, yield the lines before it, then raise."""
    from penstock.cli.imports.json_lines import BadLine

    some: list[FileLine] = []
    try:
        for line in jobs:
            if some and (len(some) == count or line.options != some[0].options):
                yield some
                some = []
            some.append(line)
    except BadLine:
        if some:
            yield some
        raise
    if some:
        yield some


def read_lines(file: BinaryIO, tube: str, lines: LineMeaning, skip: int, options: dict[str, Any]) -> Iterator[FileLine]:
    """Yield the jobs in a JSON lines file. Empty lines are counted but contain no job."""
    from penstock.cli.imports import json_lines

    end = 0
    for number in itertools.count(1):
        raw = file.readline(json_lines.LINE_BYTES_MAX)
        if not raw:
            return
        end += len(raw)
        if number <= skip or not raw.strip():
            continue
        try:
            line = json_lines.read_body(raw, tube) if lines is LineMeaning.BODIES else json_lines.read_line(raw, tube)
            if line.tube != tube:
                raise json_lines.BadLine(
                    f"the job is for tube {line.tube}; use `penstock import jsonl` to load several tubes"
                )
        except json_lines.BadLine as error:
            raise json_lines.BadLine(f"line {number:,}: {error}") from None
        yield FileLine(number, end, line.body, {**options, **line.options} if line.options else options)


@contextmanager
def _opened(source: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """Open a file and yield it with its size. The size of standard input is None."""
    if source == "-":
        yield sys.stdin.buffer, None
        return
    with Path(source).open("rb") as file:
        yield file, Path(source).stat().st_size


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if standard error is a terminal. Yield a function of (bytes, lines) done."""
    if not sys.stderr.isatty():
        yield lambda read, lines: None
        return
    from penstock.cli.progress import lines_bar

    with lines_bar("putting", size) as progress:
        yield progress
