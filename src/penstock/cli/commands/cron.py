"""`penstock cron`: schedules that put a job at each tick of a cron expression."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli.options import CommandGroup
from penstock.cli.output import Column, Output, Record, column
from penstock.cli.targets import Target

app = CommandGroup(help="Show and change cron schedules.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


def _moment(record: Record) -> str:
    if record["state"] == "paused":
        return ""
    return datetime.fromtimestamp(record["next"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@app.command("ls")
def list_(*, target: Target, out: Output) -> None:
    """List the schedules with their next ticks."""
    from penstock.cron.stored import as_record, schedules

    with target.open() as queue:
        rows = [as_record(each) for each in schedules(queue)]
    names = ("name", "cron", "zone", "tube", "task", "catch_up", "state")
    out.table(rows, [*map(column, names), Column("next", _moment)], "There are no schedules.")


@app.command()
def add(
    name: Name,
    expression: Annotated[str, typer.Argument(metavar="EXPRESSION", help="For example '*/5 * * * *'.")],
    tube: Annotated[str, typer.Option("--tube", "-t", help="Tube of the jobs.")] = "tasks",
    task: Annotated[str | None, typer.Option("--task", help="Name of the task that the jobs call.")] = None,
    arguments: Annotated[
        str, typer.Option("--args", metavar="JSON", help="The arguments of the task, or the body of the jobs.")
    ] = "{}",
    zone: Annotated[str, typer.Option("--tz", help="Time zone, for example Europe/Berlin.")] = "UTC",
    catch_up: Annotated[
        str,
        typer.Option("--catch-up", help="Missed ticks: put the last one, all of them, or none (last, all, none)."),
    ] = "last",
    *,
    target: Target,
    out: Output,
) -> None:
    """Add a schedule: each tick of the expression puts a job."""
    from penstock.core.errors import OutOfRange
    from penstock.core.job import BODY_JSON
    from penstock.cron.schedule import CatchUp, Schedule
    from penstock.cron.stored import add_schedule
    from penstock.options import EncodedBody

    try:
        body = EncodedBody(json.dumps(json.loads(arguments)).encode(), BODY_JSON)
    except ValueError as error:
        raise OutOfRange(f"--args is not JSON: {error}") from None
    policy: CatchUp = catch_up  # type: ignore[assignment]
    headers = {} if task is None else {"task": task}
    schedule = Schedule(name, expression, tube, body, zone, policy, headers)
    with target.open() as queue:
        if not add_schedule(queue, schedule, int(time.time())):
            raise OutOfRange(f"there is a schedule {name!r} already; remove it first: penstock cron rm {name}")
    out.report_done(f"Added {name}.", name=name)


@app.command()
def pause(name: Name, *, target: Target, out: Output) -> None:
    """Put no jobs of a schedule until it is resumed."""
    from penstock.cron.stored import pause_schedule

    with target.open() as queue:
        pause_schedule(queue, name)
    out.report_done(f"Paused {name}.", name=name)


@app.command()
def resume(name: Name, *, target: Target, out: Output) -> None:
    """Continue a paused schedule with its next tick."""
    from penstock.cron.stored import resume_schedule

    with target.open() as queue:
        resume_schedule(queue, name, int(time.time()))
    out.report_done(f"Resumed {name}.", name=name)


@app.command()
def run(name: Name, *, target: Target, out: Output) -> None:
    """Put a job of a schedule now, besides its ticks."""
    from penstock.cron.stored import run_schedule

    with target.open() as queue:
        job = run_schedule(queue, name)
    out.report_done(f"Put job {job.id}.", id=job.id)


@app.command("rm")
def remove(name: Name, *, target: Target, out: Output) -> None:
    """Remove a schedule. Jobs of earlier ticks stay."""
    from penstock.cron.stored import remove_schedule

    with target.open() as queue:
        remove_schedule(queue, name)
    out.report_done(f"Removed {name}.", name=name)
