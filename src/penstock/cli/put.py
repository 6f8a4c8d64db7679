"""`penstock put`: add jobs, one or a million."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NoReturn

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import ERROR, INTERRUPTED, NOTHING, USAGE, code_of, fail, sentence_of
from penstock.cli.output import Output, jobs_text
from penstock.cli.target import Target
from penstock.cli.values import BodyKind, TubeName, duration, duration_option, json_trouble, read_body
from penstock.core.errors import CommandError, Full, PenstockError

if TYPE_CHECKING:
    from penstock.embedded import Tube

# A longer line is hardly a job: the largest body that a queue can allow has 512 MiB.
LINE_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True)
class PutFlags:
    """What a put may say about its jobs. What it leaves out, the tube decides."""

    delay: Annotated[float | None, duration_option("--delay", help="Not before so long.")] = None
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
    nacks: Annotated[int | None, typer.Option("--nacks", help="How often it has failed already, elsewhere.")] = None

    def given(self) -> dict[str, Any]:
        """What was said."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


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
        Lines,
        typer.Option(
            "--lines", help="bodies: a line is a body. options: an object with a body, and options of this job."
        ),
    ] = Lines.BODIES,
    skip: Annotated[int, typer.Option("--skip", min=0, help="With --from: so many lines are there already.")] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, max=100_000, help="With --from: jobs put at a time.")] = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --from: only read, and check every line.")] = False,
    *,
    flags: PutFlags,
    target: Target,
    out: Output,
) -> None:
    """Add jobs to a tube, which is made if it is not there.

    With --from a file of JSON lines, each line becomes a job. Where it stopped is told, so that --skip can go on from
    there; each batch is put whole or not at all.
    """
    if source is not None and bodies:
        fail("give bodies or --from, not both", USAGE)
    if source is not None:
        load(tube, source, lines, skip, batch, flags.given(), dry_run, target, out)
        return
    if not bodies:
        fail("give a body: as it is, @FILE, - for standard input, or jobs with --from FILE", USAGE)
    values = [read_body(word, kind) for word in bodies]
    with target.open(makes=True) as queue:
        place = queue.tube(tube)
        try:
            jobs = [place.put(value, timeout=timeout, **flags.given()) for value in values]
        except Full as error:
            fail(str(error), NOTHING if timeout else code_of(error))
        for job in jobs:
            out.done(job.id, id=job.id, tube=tube)


# ---- Many ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a file of jobs, understood."""

    number: int
    end: int  # How many bytes of the file are read with it.
    body: Any
    options: dict[str, Any]


class BadLine(Exception):
    """A line is no job."""


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
    loading = Loading(skip)
    with _opened(source) as (file, size):
        jobs = read_lines(file, lines, skip, options)
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

    def did(self, some: list[Line]) -> None:
        """These are done, too."""
        self.lines = some[-1].number
        self.put += len(some)

    def end(self, why: str, code: int, doubt: str = "") -> NoReturn:
        """It stops here: say where, so that it can go on."""
        done = f"{jobs_text(self.put)} of the first {self.lines:,} lines are put" if self.put else "nothing is put"
        on = f"; go on with --skip {self.lines}" if self.lines else ""
        fail(f"{why.rstrip('.')}; {done}{doubt}{on}", code)


def _put_all(tube: Tube, jobs: Iterator[Line], batch: int, loading: Loading, size: int | None) -> None:
    """Put jobs in batches. Whatever ends it early says how far it was."""
    try:
        # The bar ends before anything is said: when it goes, it takes with it what was said below it.
        with _progress(size) as progress:
            for some in batches(jobs, batch):
                tube.put_many([line.body for line in some], **some[0].options)
                loading.did(some)
                progress(some[-1].end, loading.lines)
    except BadLine as error:
        loading.end(str(error), ERROR)
    except KeyboardInterrupt:
        loading.end("interrupted", INTERRUPTED)
    except CommandError as error:
        loading.end(sentence_of(error), code_of(error))
    except (PenstockError, OSError) as error:
        # Its answer is lost, and with it whether the batch was put.
        loading.end(sentence_of(error), code_of(error), f", and perhaps up to {batch} more")


def batches(jobs: Iterator[Line], count: int) -> Iterator[list[Line]]:
    """Jobs that can be put at once: neighbours whose options are the same. A bad line comes after those before it."""
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


def read_lines(file: BinaryIO, lines: Lines, skip: int, options: dict[str, Any]) -> Iterator[Line]:
    """The jobs in a file of JSON lines. Empty lines count, and are no jobs."""
    end = 0
    for number in itertools.count(1):
        raw = file.readline(LINE_BYTES_MAX)
        if not raw:
            return
        end += len(raw)
        if number <= skip or not raw.strip():
            continue
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BadLine(f"line {number} is not JSON ({json_trouble(error)})") from None
        body, more = (value, {}) if lines is Lines.BODIES else _with_options(value, number)
        yield Line(number, end, body, {**options, **more} if more else options)


_TIMES: Final = ("delay", "ttl", "ttr")
_OPTIONS: Final = frozenset(PutFlags.__dataclass_fields__)


def _with_options(value: Any, number: int) -> tuple[Any, dict[str, Any]]:
    """The body and the options of a line that is an object."""
    if not isinstance(value, dict) or "body" not in value:
        raise BadLine(f'line {number} is no object with a "body"')
    body = value.pop("body")
    if unknown := sorted(value.keys() - _OPTIONS):
        raise BadLine(f"line {number} has an option {unknown[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    try:
        return body, {name: _time(each) if name in _TIMES else each for name, each in value.items()}
    except typer.BadParameter as error:
        raise BadLine(f"line {number}: {error.message}") from None


def _time(value: Any) -> Any:
    """A time in a file: seconds, or text as on the command line; null for ever."""
    return duration(value) if isinstance(value, str) else value


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
