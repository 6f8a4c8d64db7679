"""`penstock job`: look at single jobs."""

from __future__ import annotations

import json as json_format
from typing import Annotated

import typer

from penstock.cli import timeline
from penstock.cli.output import fail, told
from penstock.host import wall_ms
from penstock.journal.disk import ReadOnlyDisk
from penstock.journal.reader import Event, Reader

app = typer.Typer(help="Look at single jobs.", no_args_is_help=True)


@app.callback()
def job() -> None:
    """Look at single jobs."""


@app.command()
def history(
    id: Annotated[str, typer.Argument(metavar="ID", help="The job's id, of 40 characters or 32 hexadecimal digits.")],
    directory: Annotated[str, typer.Option("-d", "--dir", help="The directory of the queue, which may be in use.")],
    json: Annotated[bool, typer.Option("--json", help="One line of JSON an event.")] = False,
) -> None:
    """Tell in words what happened to a job, whether it is there or gone, as far as history is kept."""
    events = _events_in(directory, id)
    if not events:
        fail(f"{directory}: nothing is known of this job, or its history is not kept any more", code=3)
    lines = timeline.tell(events, wall_ms())
    if json:
        for line in lines:
            if line.event is not None:
                typer.echo(json_format.dumps({**line.event.as_json(bodies=True), "words": line.words}))
        return
    typer.echo(f"Job {events[0].job}")
    for row in timeline.text(lines):
        typer.echo(row)


def _events_in(directory: str, id: str) -> list[Event]:
    """From the log itself: whoever uses the queue is not disturbed."""
    with told(directory):
        reader = Reader(ReadOnlyDisk(directory))
        return reader.history(reader.number_of(id))
