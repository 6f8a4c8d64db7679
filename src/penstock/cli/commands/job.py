"""`penstock job`: show, find and change single jobs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import shared_session
from penstock.cli.commands.ack import delete, for_each_job, for_each_job_in
from penstock.cli.commands.take import Bodies, print_bodies, refuse_json_bodies
from penstock.cli.errors import NOT_FOUND, USAGE, fail, message_of
from penstock.cli.name_completion import complete_tubes, find_tube
from penstock.cli.option_values import BodyKind, Delay, JobId, JobIds, PastJobId, TubeName, duration_option, read_body
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output, Record, body_text, headers_text, naming_directory, seconds_text
from penstock.cli.records import JOB_COLUMNS, State, job_record, job_records
from penstock.cli.targets import Target
from penstock.core.errors import BadCondition
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.api import Job, Queue
    from penstock.journal.history.reader import Event

app = CommandGroup(help="Show, find and change single jobs.")
app.command("rm")(delete)


@app.command()
def show(id: JobId, body: Bodies = False, *, target: Target, out: Output) -> None:
    """Show all fields of a job."""
    refuse_json_bodies(body, out)
    with target.open() as queue:
        _show(queue.job(id), body, out)


@app.command()
def named(
    tube: TubeName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name that the job was put with (--name).")],
    body: Bodies = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Show the job that was put with this name."""
    refuse_json_bodies(body, out)
    with target.open() as queue:
        _show(find_tube(queue, tube).named(name), body, out)


def _show(job: Job, body: bool, out: Output) -> None:
    if body:
        print_bodies([job])
        return
    record = job_record(job)
    out.record(record if out.json else _as_text_record(record))


def _as_text_record(record: Record) -> Record:
    """Return a job's record with times as text, and with the body as its last field."""
    import datetime

    shown = {name: value for name, value in record.items() if name not in ("body", "body_base64")}
    for name in ("created", "expires", "wakes", "next_event"):
        if shown[name] is not None:
            moment = datetime.datetime.fromtimestamp(shown[name])
            shown[name] = moment.isoformat(" ", "milliseconds")
    for name in ("age", "ttl", "ttr"):
        shown[name] = seconds_text(shown[name])
    if "headers" in shown:
        shown["headers"] = headers_text(shown["headers"])
    return {**shown, "body": body_text(record)}


@app.command()
def history(id: PastJobId, *, target: Target, out: Output) -> None:
    """Show the history of a job, also after it has ended, as far as history is kept."""
    from penstock.host.clock import wall_ms
    from penstock.report import job_history

    place = target.address()
    if place.directory is not None:
        events = _events_in(str(place.directory), id)
    else:
        with target.open() as queue:
            events = queue.history(id)
    if not events:
        fail(f"{place.without_password()}: the job is unknown, or its history is no longer kept", NOT_FOUND)
    lines = job_history.describe(events, wall_ms())
    if out.json:
        for line in lines:
            if line.event is not None:
                out.json_line({**line.event.as_json(bodies=True), "words": line.words})
        return
    typer.echo(printable(f"Job {events[0].job}"))
    for row in job_history.text_lines(lines):
        typer.echo(row)


def _events_in(directory: str, id: str) -> list[Event]:
    """Read the history of a job from the log. Another process can have the queue open at the same time."""
    from penstock.journal.history.reader import Reader
    from penstock.journal.real_disk import ReadOnlyDisk

    with naming_directory(directory):
        reader = Reader(ReadOnlyDisk(directory))
        tube, mark, digits = id.rpartition("#")
        if mark and digits.isdecimal():
            # The log has no index of these ids, so it is read from its beginning.
            number = int(digits)
            id = next((each.job for each in reader.events() if (each.tube, each.number) == (tube, number)), None) or id
        return reader.history(reader.number_of(id))


# ---- Finding ---------------------------------------------------------------------------------------------------------


Where = Annotated[
    str | None,
    typer.Option(
        "--where", "-w", metavar="CONDITION", help="Only jobs that match, like: body.user == 42 and deliveries > 3"
    ),
]


@app.command()
def find(
    tube: Annotated[
        str | None, typer.Option("--tube", "-t", help="Only jobs of this tube.", autocompletion=complete_tubes)
    ] = None,
    states: Annotated[
        list[State] | None, typer.Option("--state", "-s", help="Only jobs in this state. Repeatable.")
    ] = None,
    where: Where = None,
    older: Annotated[
        float | None, duration_option("--older", help="Only jobs that were put at least this long ago.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Stop after this many jobs. 0 means no limit.")
    ] = 100,
    *,
    target: Target,
    out: Output,
) -> None:
    """Find jobs by tube, state, age or a condition. They are listed in the order of their creation."""
    wanted = checked_condition(where)
    if older is not None:
        wanted = f"age >= {older!r}" + ("" if wanted is None else f" and ({wanted})")
    with target.open() as queue:
        found = matching(queue, tube, states or [], wanted)
        out.table((record for record, _ in islice(found, limit or None)), JOB_COLUMNS, "No job was found.")


def checked_condition(where: str | None) -> str | None:
    """Return the condition of --where. End the program if it is not valid."""
    from penstock.search.conditions import parse_condition

    if where is not None:
        try:
            parse_condition(where)
        except BadCondition as error:
            fail(f"--where is invalid: {message_of(error)}", USAGE)
    return where


def matching(queue: Queue, tube: str | None, states: list[State], where: str | None) -> Iterator[tuple[Record, Job]]:
    """Yield the jobs that match a condition, with their records, page by page."""
    place = None if tube is None else find_tube(queue, tube)
    cursor = 0
    while True:
        jobs, cursor = queue.scan(cursor, tube=place, states=[state.value for state in states], where=where)
        yield from job_records(queue, jobs)
        if cursor == 0:
            return


# ---- Changes that do not need a take ---------------------------------------------------------------------------------


@app.command()
def snatch(ids: JobIds, delay: Delay = 0.0, *, target: Target, out: Output) -> None:
    """Take jobs away from their consumers. They return to their place in the tube, now or after a delay."""
    for_each_job(ids, "snatched", target, out, lambda job: job.snatch(delay))


@app.command()
def restart(ids: JobIds, delay: Delay = 0.0, *, target: Target, out: Output) -> None:
    """Make jobs ready that are delayed, or that were acked and kept."""
    for_each_job(ids, "restarted", target, out, lambda job: job.restart(delay))


@app.command()
def promote(ids: JobIds, *, target: Target, out: Output) -> None:
    """Make delayed jobs ready now."""
    for_each_job(ids, "promoted", target, out, lambda job: job.run_now())


@app.command()
def priority(
    id: JobId,
    level: Annotated[int, typer.Argument(metavar="PRIORITY", help="New priority; lower numbers are served first.")],
    *,
    target: Target,
    out: Output,
) -> None:
    """Change the priority of a job that is not taken."""
    for_each_job([id], f"priority set to {level}:", target, out, lambda job: job.set_priority(level))


@app.command()
def edit(
    id: JobId,
    body: Annotated[str, typer.Argument(metavar="BODY", help="New body: text, @FILE, or - for standard input.")],
    kind: Annotated[BodyKind | None, typer.Option("--as", help="Type of the body.")] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Replace the body of a job that is not taken. The job keeps its place and its times."""
    value = read_body(body, kind)
    for_each_job([id], "edited", target, out, lambda job: job.edit(value))


@app.command()
def switch(
    id: JobId,
    state: Annotated[State, typer.Argument(metavar="STATE", help="New state; delayed and zombie need --delay.")],
    delay: Delay = 0.0,
    *,
    target: Target,
    out: Output,
) -> None:
    """Change the state of a job that is not taken."""
    for_each_job([id], f"made {state.value}:", target, out, lambda job: job.switch(state.value, delay))


@app.command()
def move(
    ids: JobIds,
    to: Annotated[
        str, typer.Option("--to", metavar="TUBE", help="Tube to move the jobs to.", autocompletion=complete_tubes)
    ],
    delay: Delay = 0.0,
    *,
    target: Target,
    out: Output,
) -> None:
    """Move jobs to the end of another tube. They keep their ids, bodies and ttl."""
    with shared_session.open_session(target) as queue:
        place = find_tube(queue, to)
        for_each_job_in(queue, ids, f"moved to {to}:", out, lambda job: job.move(place, delay))


@app.command()
def done(
    id: JobId,
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Result: text, @FILE, or - for standard input.")],
    kind: Annotated[BodyKind | None, typer.Option("--as", help="Type of the result.")] = None,
    ttl: Annotated[float | None, duration_option("--ttl", help="Keep the result this long.", default="1d")] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Finish a job and keep its result for a day, or for --ttl. The result replaces the body."""
    value = read_body(result, kind)
    for_each_job([id], "done", target, out, lambda job: job.done(value, ttl=... if ttl is None else ttl))
