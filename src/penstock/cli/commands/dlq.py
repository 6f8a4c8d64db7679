"""`penstock dlq`: dead letters, which are jobs that failed too often.

Dead letters are the buried jobs of a tube. If a retry policy moves failed jobs to a dead-letter tube, the dead letters
are the jobs of that tube. To retry them, `--to` names the tube that they are moved to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.commands.job import Where, checked_condition, matching
from penstock.cli.errors import NOTHING, OK, exit_code_of, fail, message_of, print_error
from penstock.cli.name_completion import complete_tubes, find_tube
from penstock.cli.option_values import Delay, DryRun, TubeName, Yes, rate_option
from penstock.cli.options import CommandGroup
from penstock.cli.output import Column, Output, Record, body_text, column, confirm, jobs_text, seconds_text
from penstock.cli.records import State
from penstock.cli.targets import Target
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.api import Job, Tube

app = CommandGroup(help="Show dead letters (jobs that failed too often) and retry them.")


@app.command("ls")
def list_(*, target: Target, out: Output) -> None:
    """List the tubes that have buried jobs or are dead-letter tubes."""
    from penstock.core.retry import THEN_MOVE, parse_retry
    from penstock.options import to_text

    with target.open() as queue:
        overview = {row["name"]: row for row in queue.overview()}
        gets: dict[str, list[str]] = {}
        for name in overview:
            retry = queue.find_tube(name).policy.retry
            if retry and (policy := parse_retry(retry)).then == THEN_MOVE:
                gets.setdefault(to_text(policy.target), []).append(name)
    rows = [
        {"tube": name, "buried": row["buried"], "ready": row["ready"], "dead_letters_of": gets.get(name, [])}
        for name, row in overview.items()
        if row["buried"] or name in gets
    ]
    of = Column("dead letters of", lambda row: ", ".join(row["dead_letters_of"]))
    out.table(rows, [column("tube"), column("buried"), column("ready"), of], "No tube has buried jobs.")


@app.command()
def show(
    tube: TubeName,
    where: Where = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="List every job, instead of one line per reason.")] = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Show why jobs of a tube are buried: each cause with its number of jobs, the oldest age and the oldest job.

    Reasons that differ only in ids and in numbers of attempts have one cause.
    """
    from penstock.host.clock import wall_ms
    from penstock.search.causes import cause_of

    wanted = checked_condition(where)
    groups: dict[str, Record] = {}
    with target.open() as queue:
        found = (record for record, _ in matching(queue, tube, [State.BURIED], wanted))
        if jobs:
            reason = Column("reason", lambda record: record["reason"], wide=True)
            columns = [column("id"), Column("tries", lambda record: record["deliveries"]), reason]
            out.table(found, [*columns, Column("body", body_text, wide=True)], _nothing_buried(tube, where))
            return
        if wanted is None:
            now = wall_ms() / 1_000
            for each in find_tube(queue, tube).causes(1_000):
                row = {"reason": each["cause"], "jobs": each["jobs"], "oldest": max(0.0, now - each["oldest"])}
                groups[each["cause"]] = {**row, "example": each["example"]}
        else:
            for record in found:
                why = cause_of(record["reason"])
                row = groups.setdefault(why, {"reason": why, "jobs": 0, "oldest": 0.0, "example": record["id"]})
                row["jobs"] += 1
                if record["age"] > row["oldest"]:
                    row |= {"oldest": record["age"], "example": record["id"]}
    rows = sorted(groups.values(), key=lambda row: -row["jobs"])
    oldest = Column("oldest", lambda row: seconds_text(row["oldest"]))
    columns = [column("jobs"), oldest, column("example"), Column("reason", lambda row: row["reason"], wide=True)]
    out.table(rows, columns, _nothing_buried(tube, where))


def _nothing_buried(tube: str, where: str | None) -> str:
    return f"No job of {tube} is buried." if where is None else f"No buried job of {tube} matches --where."


@app.command()
def redrive(
    tube: TubeName,
    where: Where = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TUBE",
            help="Move the jobs of a dead-letter tube to this one.",
            autocompletion=complete_tubes,
        ),
    ] = None,
    rate: Annotated[float | None, rate_option("Move at most this many jobs per second.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Redrive at most this many jobs. 0 means no limit.")
    ] = 0,
    delay: Delay = 0.0,
    yes: Yes = False,
    dry_run: DryRun = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Retry jobs that failed too often. Exit with 5 if there is none.

    Buried jobs return to their place in the tube. With --to, the buried and ready jobs of a dead-letter tube move to
    another tube.
    """
    from penstock.cli.progress import count_bar

    wanted = checked_condition(where)
    states = [State.BURIED] if to is None else [State.BURIED, State.READY]
    with target.open() as queue:
        place = None if to is None else find_tube(queue, to)
        found = [job for _, job in islice(matching(queue, tube, states, wanted), limit or None)]
        if dry_run:
            would = f"would redrive {jobs_text(len(found))} of {tube}{'' if to is None else f' to {to}'}"
            out.report_done(would, tube=tube, to=to or tube, would_redrive=len(found))
            return
        if not found:
            kind = "buried job" if to is None else "buried or ready job"
            fail(f"{tube} has no {kind}{'' if where is None else ' that matches --where'}", NOTHING)
        confirm(f"Redrive {jobs_text(len(found))} of {tube}{'' if to is None else f' to {to}'}?", yes)
        done, code = 0, OK
        try:
            with count_bar("redriving") as progress:
                for number, job in enumerate(_paced(found, rate), 1):
                    refused = _redrive(job, place, delay)
                    done += not refused
                    code = code or refused
                    progress(number, len(found))
        finally:
            # Also printed after an interruption, so that the user knows how many jobs were redriven.
            out.report_done(f"redrove {jobs_text(done)} of {tube}", tube=tube, to=to or tube, redriven=done)
    if code:
        raise typer.Exit(code)


def _redrive(job: Job, to: Tube | None, delay: float) -> int:
    """Return a job to its tube, or move it to the tube `to`. Return OK, or the exit code of a refusal."""
    try:
        if to is None:
            job.dig(delay)
        else:
            job.move(to, delay)
    except CommandError as error:
        print_error(f"{job.id}: {message_of(error)}")
        return exit_code_of(error)
    return OK


def _paced(jobs: list[Job], rate: float | None) -> Iterator[Job]:
    """Yield jobs at most `rate` per second."""
    start = time.monotonic()
    for number, job in enumerate(jobs):
        if rate is not None and (early := start + number / rate - time.monotonic()) > 0:
            time.sleep(early)
        yield job
