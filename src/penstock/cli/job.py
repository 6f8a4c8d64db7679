"""`penstock job`: single jobs, by their ids, or found by what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import NOT_FOUND, fail, printable
from penstock.cli.finish import delete, each
from penstock.cli.names import complete_tubes, find_tube
from penstock.cli.output import Output, Record, body_text, seconds_text, told
from penstock.cli.records import JOB_COLUMNS, State, job_record, job_records
from penstock.cli.take import Bodies, print_bodies, refuse_json_bodies
from penstock.cli.target import Target
from penstock.cli.values import BodyKind, Delay, JobId, JobIds, TubeName, duration_option, read_body
from penstock.cli.where import Condition, condition

if TYPE_CHECKING:
    from penstock.api import Job, Queue
    from penstock.journal.reader import Event

app = typer.Typer(help="Look at single jobs, find them, and do to them what anyone may.", no_args_is_help=True)
app.command("rm")(delete)


@app.command()
@bundled
def show(id: JobId, body: Bodies = False, *, target: Target, out: Output) -> None:
    """Show everything that is known of a job."""
    refuse_json_bodies(body, out)
    with target.open() as queue:
        _show(queue.job(id), body, out)


@app.command()
@bundled
def named(
    tube: TubeName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that the job was put under.")],
    body: Bodies = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Show the job that was put under a name of its producer's."""
    refuse_json_bodies(body, out)
    with target.open() as queue:
        _show(find_tube(queue, tube).named(name), body, out)


def _show(job: Job, body: bool, out: Output) -> None:
    if body:
        print_bodies([job])
        return
    record = job_record(job)
    out.record(record if out.json else _for_people(record))


def _for_people(record: Record) -> Record:
    """A job's record with times as people read them, and the body at its end."""
    import datetime

    told = {name: value for name, value in record.items() if name not in ("body", "body_base64")}
    for name in ("created", "expires", "wakes", "next_event"):
        if told[name] is not None:
            moment = datetime.datetime.fromtimestamp(told[name])
            told[name] = moment.isoformat(" ", "milliseconds")
    for name in ("age", "ttl", "ttr"):
        told[name] = seconds_text(told[name])
    return {**told, "body": body_text(record)}


@app.command()
@bundled
def history(id: JobId, *, target: Target, out: Output) -> None:
    """Tell in words what happened to a job, whether it is there or gone, as far as history is kept."""
    from penstock.cli import timeline
    from penstock.host.ledger import wall_ms

    place = target.place()
    if place.directory is not None:
        events = _events_in(str(place.directory), id)
    else:
        with target.open() as queue:
            events = queue.history(id)
    if not events:
        fail(f"{place.shown()}: nothing is known of this job, or its history is not kept any more", NOT_FOUND)
    lines = timeline.tell(events, wall_ms())
    if out.json:
        for line in lines:
            if line.event is not None:
                out.line_of_json({**line.event.as_json(bodies=True), "words": line.words})
        return
    typer.echo(printable(f"Job {events[0].job}"))
    for row in timeline.text(lines):
        typer.echo(row)


def _events_in(directory: str, id: str) -> list[Event]:
    """From the log itself: whoever uses the queue is not disturbed."""
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.reader import Reader

    with told(directory):
        reader = Reader(ReadOnlyDisk(directory))
        tube, mark, digits = id.rpartition("#")
        if mark and digits.isdecimal():
            # The log has no index of these, so it is read from its beginning.
            number = int(digits)
            id = next((each.job for each in reader.events() if (each.tube, each.number) == (tube, number)), None) or id
        return reader.history(reader.number_of(id))


# ---- Finding ---------------------------------------------------------------------------------------------------------


Where = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="CONDITION", help="Only jobs like: body.user == 42 and deliveries > 3"),
]


@app.command()
@bundled
def find(
    tube: Annotated[
        str | None, typer.Option("--tube", "-t", help="Only of this tube.", autocompletion=complete_tubes)
    ] = None,
    states: Annotated[list[State] | None, typer.Option("--state", "-s", help="Only in this state, or these.")] = None,
    where: Where = None,
    older: Annotated[float | None, duration_option("--older", help="Only those put at least so long ago.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Stop after so many; 0 for no limit.")] = 100,
    *,
    target: Target,
    out: Output,
) -> None:
    """Find jobs by what they are, in the order they were made."""
    wanted = condition(where)
    with target.open() as queue:
        found = matching(queue, tube, states or [], lambda record: wanted(record) and record["age"] >= (older or 0))
        out.table((record for record, _ in _first(found, limit)), JOB_COLUMNS, "No job was found.")


def matching(queue: Queue, tube: str | None, states: list[State], wanted: Condition) -> Iterator[tuple[Record, Job]]:
    """Jobs that a condition holds for, page by page."""
    place = None if tube is None else find_tube(queue, tube)
    cursor = 0
    while True:
        jobs, cursor = queue.scan(cursor, tube=place, states=[state.value for state in states])
        yield from ((record, job) for record, job in job_records(queue, jobs) if wanted(record))
        if cursor == 0:
            return


def _first(found: Iterator[Any], limit: int) -> Iterator[Any]:
    for number, item in enumerate(found, 1):
        yield item
        if number == limit:
            return


# ---- What anyone may do ----------------------------------------------------------------------------------------------


@app.command()
@bundled
def snatch(ids: JobIds, delay: Delay = 0.0, *, target: Target, out: Output) -> None:
    """Take jobs away from those who hold them: back to their place, or after a delay."""
    each(ids, "snatched", target, out, lambda job: job.snatch(delay))


@app.command()
@bundled
def restart(ids: JobIds, delay: Delay = 0.0, *, target: Target, out: Output) -> None:
    """Bring jobs back that are delayed, or were acked and kept."""
    each(ids, "restarted", target, out, lambda job: job.restart(delay))


@app.command()
@bundled
def switch(
    id: JobId,
    state: Annotated[State, typer.Argument(metavar="STATE", help="What it becomes; delayed and zombie need --delay.")],
    delay: Delay = 0.0,
    *,
    target: Target,
    out: Output,
) -> None:
    """Turn a job that is not taken into another state."""
    each([id], f"made {state.value}:", target, out, lambda job: job.switch(state.value, delay))


@app.command()
@bundled
def move(
    ids: JobIds,
    to: Annotated[
        str, typer.Option("--to", metavar="TUBE", help="The tube to move them to.", autocompletion=complete_tubes)
    ],
    delay: Delay = 0.0,
    *,
    target: Target,
    out: Output,
) -> None:
    """Move jobs to the end of another tube; they keep their ids, bodies and ttl."""
    from penstock.cli import session
    from penstock.cli.finish import do_each

    with session.open_session(target) as queue:
        place = find_tube(queue, to)
        do_each(queue, ids, f"moved to {to}:", out, lambda job: job.move(place, delay))


@app.command()
@bundled
def done(
    id: JobId,
    result: Annotated[str, typer.Argument(metavar="RESULT", help="As it is, @FILE, or - for standard input.")],
    kind: Annotated[BodyKind | None, typer.Option("--as", help="What the result is.")] = None,
    ttl: Annotated[float | None, duration_option("--ttl", help="Keep the result this long.", default="1d")] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Finish a job and keep its result, which takes the place of the body, for a day or as long as --ttl says."""
    value = read_body(result, kind)
    each([id], "done", target, out, lambda job: job.done(value, ttl=... if ttl is None else ttl))
