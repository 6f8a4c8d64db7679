"""`penstock put`: add jobs, one or a million."""

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

from penstock.cli.bundles import bundled
from penstock.cli.exits import ERROR, INTERRUPTED, NOTHING, USAGE, code_of, fail, sentence_of
from penstock.cli.output import Output, jobs_text
from penstock.cli.target import Target
from penstock.cli.values import BodyKind, TubeName, duration_option, json_object, moment, read_body
from penstock.core.errors import CommandError, Full, PenstockError

if TYPE_CHECKING:
    from penstock.api import Tube


class ArrivalState(StrEnum):
    """A state that a put can give to its job."""

    READY = "ready"
    BURIED = "buried"
    DONE = "done"


@dataclass(frozen=True)
class PutFlags:
    """What a put may say about its jobs. What it leaves out, the tube decides."""

    delay: Annotated[float | None, duration_option("--delay", help="Wait this long before the job can be taken.")] = (
        None
    )
    at: Annotated[
        datetime | None,
        typer.Option(
            "--at",
            parser=moment,
            metavar="WHEN",
            help="The job can be taken from this moment on, like 2026-12-24T18:00 (local time) or 2026-12-24T18:00Z.",
        ),
    ] = None
    ttl: Annotated[float | None, duration_option("--ttl", help="Not after so long, the delay not counted.")] = None
    ttr: Annotated[float | None, duration_option("--ttr", help="How long a taker may hold it.")] = None
    priority: Annotated[int | None, typer.Option("--priority", "-p", help="Lower is served first.")] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="In tubes with keys: whose job it is.")] = None
    urgent: Annotated[bool, typer.Option("--urgent", help="Before all others.")] = False
    once: Annotated[bool, typer.Option("--once", help="In disque tubes: deliver it at most once.")] = False
    retry: Annotated[
        str | None, typer.Option("--retry", help='What becomes of it when it fails: "5x exp(1s..10m) then bury".')
    ] = None
    name: Annotated[str | None, typer.Option("--name", help="A name of your own, unique in the tube.")] = None
    unique: Annotated[
        str | None, typer.Option("--unique", help="If an unfinished job of this value is there, that one is it.")
    ] = None
    dedup: Annotated[
        str | None, typer.Option("--dedup", help="If a put of this value was seen lately, its job is it.")
    ] = None
    nacks: Annotated[
        int | None, typer.Option("--nacks", help="Initial number of failures, for jobs from another system.")
    ] = None
    options: Annotated[
        dict[str, Any] | None,
        typer.Option("--options", parser=json_object, metavar="JSON", help="Options for the driver of the tube."),
    ] = None
    number: Annotated[
        int | None,
        typer.Option("--number", help="Integer of the job in the tube, below its first_integer, from another system."),
    ] = None
    state: Annotated[
        ArrivalState | None, typer.Option("--state", help="State in which the job arrives, from another system.")
    ] = None
    new: Annotated[
        bool, typer.Option("--new", help="Fail where --unique or --dedup would return a job that is there.")
    ] = False

    def given(self) -> dict[str, Any]:
        """What was said."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


# Jobs put at a time, if nothing else is said.
BATCH: Final = 1_000


class Lines(StrEnum):
    """What a line of a file of jobs is."""

    BODIES = "bodies"
    OPTIONS = "options"


@bundled
def put(
    tube: TubeName,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY]...", help="Bodies: as they are, @FILE, or - for standard input; @@ for an @."),
    ] = None,
    kind: Annotated[
        BodyKind | None, typer.Option("--as", help="What the bodies are. Without it: text if it is, else bytes.")
    ] = None,
    timeout: Annotated[float, duration_option("--timeout", "-t", help="Wait so long for room in a full tube.")] = 0.0,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Put every line of a file of JSON lines; - for stdin.")
    ] = None,
    lines: Annotated[
        Lines | None,
        typer.Option(
            "--lines",
            help="With --from: bodies: a line is a body. options: an object with a body, and options of this job.",
            show_default="bodies",
        ),
    ] = None,
    skip: Annotated[int, typer.Option("--skip", min=0, help="With --from: so many lines are there already.")] = 0,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, max=100_000, help="With --from: jobs put at a time.", show_default=f"{BATCH}"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read, check, and tell what would be put.")] = False,
    *,
    flags: PutFlags,
    target: Target,
    out: Output,
) -> None:
    """Add jobs to a tube, which is made if it is not there.

    With --from a file of JSON lines, each line becomes a job. Where it stopped is told, so that --skip can go on from
    there; each batch is put whole or not at all.
    """
    from penstock.options import draft

    if source is not None and bodies:
        fail("give bodies or --from, not both", USAGE)
    if source is not None:
        _refuse(" is for bodies, and goes without --from", {"--as": kind, "--timeout": timeout})
        # What the flags say is wrong by itself, and not in a line.
        draft(b"", **flags.given())
        load(tube, source, lines or Lines.BODIES, skip, batch or BATCH, flags.given(), dry_run, target, out)
        return
    _refuse(" goes with --from", {"--lines": lines, "--skip": skip, "--batch": batch})
    if not bodies:
        fail("give a body: as it is, @FILE, - for standard input, or jobs with --from FILE", USAGE)
    values = [read_body(word, kind) for word in bodies]
    if dry_run:
        for value in values:
            draft(value, **flags.given())
        out.done(f"would put {jobs_text(len(values))} into {tube}", tube=tube, put=0, would_put=len(values))
        return
    with target.open(makes=True) as queue:
        place = queue.tube(tube)
        for value in values:
            try:
                job = place.put(value, timeout=timeout, **flags.given())
            except Full as error:
                fail(str(error), NOTHING if timeout else code_of(error))
            # At once: if the next one is refused, this one is there nevertheless.
            out.done(job.id, id=job.id, tube=tube)


def _refuse(why: str, options: dict[str, object]) -> None:
    """Refuse options that would mean nothing: whoever gave one means something by it."""
    for name, value in options.items():
        if value:
            fail(f"{name}{why}", USAGE)


# ---- Many ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a file of jobs, understood."""

    number: int
    end: int  # How many bytes of the file are read with it.
    body: Any
    options: dict[str, Any]


def load(
    tube: str,
    source: str,
    lines: Lines,
    skip: int,
    batch: int,
    options: dict[str, Any],
    dry_run: bool,
    target: Target,
    out: Output,
) -> None:
    """Put every line of a file."""
    from penstock.cli.json_lines import BadLine

    loading = Loading(skip)
    with _opened(source) as (file, size):
        jobs = read_lines(file, tube, lines, skip, options)
        if dry_run:
            try:
                with _progress(size) as progress:
                    for some in batches(jobs, batch):
                        loading.did(some)
                        progress(some[-1].end, loading.lines)
            except BadLine as error:
                fail(str(error))
            would = f"would put {jobs_text(loading.put)} into {tube}"
            out.done(would, tube=tube, lines=loading.lines, put=0, would_put=loading.put)
            return
        with target.open(makes=True) as queue:
            _put_all(queue.tube(tube), jobs, batch, loading, size)
    out.done(f"put {jobs_text(loading.put)} into {tube}", tube=tube, lines=loading.lines, put=loading.put)


@dataclass
class Loading:
    """How far a file is done."""

    lines: int  # With those that were skipped.
    put: int = 0
    under_way: list[Line] = field(default_factory=list)  # What is being put: perhaps it is, perhaps not.

    def did(self, some: list[Line]) -> None:
        """These are done, too."""
        self.lines = some[-1].number
        self.put += len(some)
        self.under_way = []

    def batch(self) -> str:
        """What is being put, by its lines."""
        first, last = self.under_way[0].number, self.under_way[-1].number
        return f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"

    def end(self, why: str, code: int) -> NoReturn:
        """It stops here: say where, so that it can go on."""
        done = f"{jobs_text(self.put)} of the first {self.lines:,} lines are put" if self.put else "nothing is put"
        if self.under_way:
            more = len(self.under_way)
            done = f"{done}, and perhaps up to {more} more" if self.put else f"perhaps up to {jobs_text(more)} are put"
        on = f"; go on with --skip {self.lines}" if self.lines else ""
        fail(f"{why.rstrip('.')}; {done}{on}", code)


def _put_all(tube: Tube, jobs: Iterator[Line], batch: int, loading: Loading, size: int | None) -> None:
    """Put jobs in batches. Whatever ends it early says how far it was."""
    from penstock.cli.json_lines import BadLine

    try:
        # The bar ends before anything is said: when it goes, it takes with it what was said below it.
        with _progress(size) as progress:
            for some in batches(jobs, batch):
                loading.under_way = some
                tube.put_many([line.body for line in some], **some[0].options)
                loading.did(some)
                progress(some[-1].end, loading.lines)
    except BadLine as error:
        loading.end(str(error), ERROR)
    except KeyboardInterrupt:
        loading.end("interrupted", INTERRUPTED)
    except CommandError as error:
        # It was refused as a whole.
        which, loading.under_way = loading.batch(), []
        loading.end(f"{which}: {sentence_of(error)}", code_of(error))
    except (PenstockError, OSError) as error:
        # Its answer is lost, and with it whether the batch was put.
        loading.end(sentence_of(error), code_of(error))


def batches(jobs: Iterator[Line], count: int) -> Iterator[list[Line]]:
    """Jobs that can be put at once: neighbours whose options are the same. A bad line comes after those before it."""
    from penstock.cli.json_lines import BadLine

    some: list[Line] = []
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


def read_lines(file: BinaryIO, tube: str, lines: Lines, skip: int, options: dict[str, Any]) -> Iterator[Line]:
    """The jobs in a file of JSON lines. Empty lines count, and are no jobs."""
    from penstock.cli import json_lines

    end = 0
    for number in itertools.count(1):
        raw = file.readline(json_lines.LINE_BYTES_MAX)
        if not raw:
            return
        end += len(raw)
        if number <= skip or not raw.strip():
            continue
        try:
            line = json_lines.read_body(raw, tube) if lines is Lines.BODIES else json_lines.read_line(raw, tube)
            if line.tube != tube:
                raise json_lines.BadLine(f"it is for {line.tube}; see `penstock import jsonl`")
        except json_lines.BadLine as error:
            raise json_lines.BadLine(f"line {number:,}: {error}") from None
        yield Line(number, end, line.body, {**options, **line.options} if line.options else options)


@contextmanager
def _opened(source: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """A file and its length, or standard input, which has none."""
    if source == "-":
        yield sys.stdin.buffer, None
        return
    with Path(source).open("rb") as file:
        yield file, Path(source).stat().st_size


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error: it is told how many bytes were read, and how many lines."""
    if not sys.stderr.isatty():
        yield lambda read, lines: None
        return
    from penstock.cli.progress import lines_bar

    with lines_bar("putting", size) as progress:
        yield progress
