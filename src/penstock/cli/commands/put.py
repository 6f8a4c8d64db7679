"""`penstock put`: add jobs, from the command line or from a file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from penstock.cli.errors import NOTHING, USAGE, exit_code_of, fail
from penstock.cli.option_values import (
    BodyKind,
    TubeName,
    duration_option,
    parse_datetime,
    parse_header,
    parse_json_object,
    read_body,
    unique_headers,
)
from penstock.cli.output import Output, jobs_text
from penstock.cli.targets import Target
from penstock.core.errors import Full

# A state that a put can give to its job.
InitialState = StrEnum("InitialState", "READY BURIED DONE")


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
        typer.Option(
            "--options",
            parser=parse_json_object,
            metavar="JSON",
            help="Options for a tube with a driver (an order written in Python).",
        ),
    ] = None
    number: Annotated[
        int | None,
        typer.Option("--number", help="Number of the job in the tube, below its first_integer, for imported jobs."),
    ] = None
    state: Annotated[
        InitialState | None, typer.Option("--state", help="Initial state of the job, for imported jobs.")
    ] = None
    new: Annotated[bool, typer.Option("--new", help="Fail if --unique or --dedup finds an existing job.")] = False
    headers: Annotated[
        list[Any] | None,
        typer.Option(
            "--header",
            "-H",
            parser=parse_header,
            metavar="NAME=VALUE",
            help="Header of the job, for example a trace context. Repeatable.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        given = {name: value for name, value in vars(self).items() if value not in (None, False, [])}
        if "headers" in given:
            given["headers"] = unique_headers(given["headers"])
        return given


# Default number of jobs per batch.
BATCH: Final = 1_000


# The content of each line in a file of jobs: only a body, or an object with a body and options.
LineMeaning = StrEnum("LineMeaning", "BODIES OPTIONS")


def put(
    tube: TubeName,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BODY]...", help="Bodies: text, @FILE, or - for standard input. @@ begins a body with @."
        ),
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
    stops, the error shows the value of --skip to continue with. `penstock import jsonl` also reads the format of
    `--lines options`. It can put jobs into several tubes, and stores its progress, so it needs no --skip.
    """
    from penstock.options import draft, headers_to_bytes

    options = flags.given()
    # Check the headers before the tube is created.
    headers_to_bytes(options.get("headers", {}))
    if source is not None and bodies:
        fail("use either bodies or --from, not both", USAGE)
    if source is not None:
        from penstock.cli.imports.json_lines import read_body_line, read_line
        from penstock.cli.imports.line_loader import load

        _refuse(" cannot be used with --from", {"--as": kind, "--timeout": timeout})
        # Check the options first, so that an error is not reported as an error of a line.
        draft(b"", **options)
        parse = read_line if lines is LineMeaning.OPTIONS else read_body_line
        load(tube, source, parse, skip, batch or BATCH, options, dry_run, target, out)
        return
    _refuse(" requires --from", {"--lines": lines, "--skip": skip, "--batch": batch})
    if not bodies:
        fail("no body is given; write it as text, @FILE or - for standard input, or use --from FILE", USAGE)
    values = [read_body(word, kind) for word in bodies]
    if dry_run:
        for value in values:
            draft(value, **options)
        out.report_done(f"would put {jobs_text(len(values))} into {tube}", tube=tube, put=0, would_put=len(values))
        return
    with target.open(makes=True) as queue:
        place = queue.tube(tube)
        for value in values:
            try:
                job = place.put(value, timeout=timeout, **options)
            except Full as error:
                fail(str(error), NOTHING if timeout else exit_code_of(error))
            # Print each id immediately, because the job exists even if the next put is refused.
            out.report_done(job.id, id=job.id, tube=tube)


def _refuse(why: str, options: dict[str, object]) -> None:
    for name, value in options.items():
        if value:
            fail(f"{name}{why}", USAGE)
