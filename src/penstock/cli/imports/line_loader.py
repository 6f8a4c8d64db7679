"""Loads a JSON lines file into one tube, for `penstock put --from`.

Each batch is put completely or not at all. No state is stored: if loading stops, the message names the number of lines
to skip in the next run. `importer.py` reads the same format, fills several tubes, and stores its progress.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from penstock.api import Tube
from penstock.cli.errors import ERROR, INTERRUPTED, exit_code_of, fail, message_of
from penstock.cli.imports.json_lines import BadLine, JobLine, line_label, numbered_lines
from penstock.cli.output import Output, jobs_text
from penstock.cli.progress import lines_bar
from penstock.cli.targets import Target
from penstock.core.errors import CommandError, PenstockError
from penstock.options import NewJob

Parse = Callable[[bytes, str], JobLine]


@dataclass(frozen=True)
class FileLine:
    """A parsed line of a file of jobs."""

    number: int
    end: int  # Position in the file after this line.
    body: Any
    options: dict[str, Any]  # Without the headers, so that lines with other headers can be in the same batch.
    headers: dict[str, Any] | None

    def job(self) -> Any:
        return self.body if self.headers is None else NewJob(self.body, headers=self.headers)


def load(
    tube: str,
    source: str,
    parse: Parse,
    skip: int,
    batch: int,
    options: dict[str, Any],
    dry_run: bool,
    target: Target,
    out: Output,
) -> None:
    """Put a job for every line of a file, or only check the lines if `dry_run` is set. `parse` reads a line."""
    loading = LoadProgress(skip)
    is_stdin = source == "-"
    with nullcontext(sys.stdin.buffer) if is_stdin else Path(source).open("rb") as file:
        size = None if is_stdin else os.fstat(file.fileno()).st_size
        jobs = read_lines(file, tube, parse, skip, options)
        if dry_run:
            try:
                with lines_bar("putting", size) as progress:
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
        self.lines = some[-1].number
        self.put += len(some)
        self.in_flight = []

    def batch(self) -> str:
        """Return the line numbers of the batch that is being put, as text."""
        first, last = self.in_flight[0].number, self.in_flight[-1].number
        return line_label(first) if first == last else f"lines {first:,} to {last:,}"

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
    try:
        # The progress bar ends before a message is printed, because removing the bar erases text below it.
        with lines_bar("putting", size) as progress:
            for some in batches(jobs, batch):
                loading.in_flight = some
                tube.put_many([line.job() for line in some], **some[0].options)
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


def read_lines(file: BinaryIO, tube: str, parse: Parse, skip: int, options: dict[str, Any]) -> Iterator[FileLine]:
    """Yield the jobs in a JSON lines file. Empty lines are counted but contain no job.

    `options` are for all jobs. A line has its own headers in addition to those in `options`.
    """
    headers = options.get("headers", {})
    for number, end, raw in islice(numbered_lines(file), skip, None):
        if not raw.strip():
            continue
        try:
            line = parse(raw, tube)
            if line.tube != tube:
                raise BadLine(f"the job is for tube {line.tube}; use `penstock import jsonl` to load several tubes")
        except BadLine as error:
            raise BadLine(f"{line_label(number)}: {error}") from None
        if not line.options and not headers:
            yield FileLine(number, end, line.body, options, None)
            continue
        merged = {**options, **line.options}
        own = {**headers, **merged.pop("headers", {})}
        yield FileLine(number, end, line.body, merged, own or None)
