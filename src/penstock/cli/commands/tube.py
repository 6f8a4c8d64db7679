"""`penstock tube`: create, change and show tubes. Also `penstock kick`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from penstock.cli.errors import NOTHING, REFUSED, USAGE, fail
from penstock.cli.name_completion import find_tube
from penstock.cli.option_values import Delay, DryRun, TubeName, Yes, duration_option, parse_size
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output, Record, confirm, jobs_text, seconds_text
from penstock.cli.records import TUBE_COLUMNS
from penstock.cli.targets import Target

app = CommandGroup(help="Create, change and show tubes.")


class Type(StrEnum):
    """The types of tubes. docs/reference/tubes has a page for each."""

    FIFO = "fifo"
    FIFOTTL = "fifottl"
    LIMFIFOTTL = "limfifottl"
    UTUBE = "utube"
    UTUBETTL = "utubettl"
    STUBE = "stube"
    DISQUE = "disque"
    QUEUE15 = "queue15"
    XQUEUE = "xqueue"


# The effect of a ttl on a job that is taken.
WhileTaken = StrEnum("WhileTaken", "WAITS KILLS")


@dataclass(frozen=True)
class TubeFlags:
    """The options of a tube besides its type."""

    ttl: Annotated[float | None, duration_option("--ttl", help="Default ttl of jobs.")] = None
    ttr: Annotated[float | None, duration_option("--ttr", help="Default ttr of jobs.")] = None
    priority: Annotated[int | None, typer.Option("--priority", help="Default priority of jobs.")] = None
    ttl_while_taken: Annotated[
        WhileTaken | None,
        typer.Option("--ttl-while-taken", help="Let a ttl end a taken job (kills), or wait for it (waits)."),
    ] = None
    key_limit: Annotated[int | None, typer.Option("--key-limit", help="Maximum number of taken jobs per key.")] = None
    fair: Annotated[bool | None, typer.Option("--fair/--strict", help="Serve keys in turn, or jobs in order.")] = None
    capacity: Annotated[int | None, typer.Option("--capacity", help="Maximum number of jobs. 0 means no limit.")] = None
    capacity_bytes: Annotated[
        int | None,
        typer.Option(
            "--capacity-bytes", parser=parse_size, metavar="SIZE", help="Maximum total size of bodies, like 64mb."
        ),
    ] = None
    retry: Annotated[
        str | None, typer.Option("--retry", help='Retry policy of jobs, for example "5x exp(1s..10m) then bury".')
    ] = None
    max_deliveries: Annotated[
        int | None,
        typer.Option("--max-deliveries", help="Bury a job after this many deliveries. Short form of --retry."),
    ] = None
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", help="With --max-deliveries: move failed jobs to this tube instead.")
    ] = None
    keep: Annotated[bool | None, typer.Option("--keep/--no-keep", help="Keep acked jobs, in the state done.")] = None
    zombie: Annotated[
        float | None, duration_option("--zombie", help="Keep acked jobs this long, in the state zombie.")
    ] = None
    dedup_window: Annotated[
        float | None, duration_option("--dedup-window", help="Remember dedup values for this long.")
    ] = None
    dedup_count: Annotated[int | None, typer.Option("--dedup-count", help="Remember this many dedup values.")] = None
    temporary: Annotated[
        bool | None,
        typer.Option("--temporary/--durable", help="Keep jobs only in memory, without history, or in the log."),
    ] = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def policy_record(policy: Any) -> Record:
    """Return the policy of a tube as JSON: durations in seconds, null for "forever"."""
    from penstock.core.limits import NEVER

    record: Record = {}
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if field.name.endswith("_ms"):
            record[field.name.removesuffix("_ms")] = None if value in (NEVER, -1) else value / 1000
        else:
            record[field.name] = list(value) if isinstance(value, tuple) else value
    return record


def as_text_record(info: Record) -> Record:
    return {**info, "oldest": seconds_text(info["oldest"])}


@app.command("ls")
def list_(
    match: Annotated[
        str, typer.Option("--match", "-m", metavar="PATTERN", help="Only names that match, like emails-*")
    ] = "*",
    names: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """List tubes in the order of their creation, with the number of jobs in each state."""
    with target.open() as queue:
        if names and not out.json:
            for name in queue.tubes():
                if fnmatchcase(name, match):
                    out.report_done(name)
            return
        rows = [row for row in queue.overview() if fnmatchcase(row["name"], match)]
    out.table(rows, TUBE_COLUMNS, 'There is no tube yet: penstock put emails \'{"to": "ann@example.org"}\'')


@app.command()
def create(
    name: TubeName,
    type: Annotated[Type | None, typer.Option("--type", "-t", help="Type of the tube. [default: fifottl]")] = None,
    *,
    flags: TubeFlags,
    target: Target,
    out: Output,
) -> None:
    """Create a tube. If it exists, nothing changes. If its type or options are different, the command is refused.

    Without a type and options, the tube gets a ttr of 5m and the retry policy "5x exp(1s..10m) jitter then bury".
    If you give a type or an option, all options that you leave out are unset: without --retry, a failed job is retried
    immediately and without limit.
    """
    with target.open(makes=True) as queue:
        tube = queue.tube(name, type.value if type else None, **flags.given())
        out.report_done(
            f"{tube.name} is a {tube.type} tube", name=tube.name, type=tube.type, policy=policy_record(tube.policy)
        )


@app.command()
def alter(name: TubeName, *, flags: TubeFlags, target: Target, out: Output) -> None:
    """Change options of a tube while it is in use."""
    if not flags.given():
        fail("name at least one option to change, like --ttl 1h; see `penstock tube alter --help`", USAGE)
    with target.open() as queue:
        tube = find_tube(queue, name)
        tube.alter(**flags.given())
        tube = find_tube(queue, name)
        out.report_done(f"{tube.name} is changed", name=tube.name, type=tube.type, policy=policy_record(tube.policy))


@app.command()
def info(name: TubeName, *, target: Target, out: Output) -> None:
    """Show the current state and the policy of a tube."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        record, policy = tube.info(), policy_record(tube.policy)
    if out.json:
        out.json_line({**record, "policy": policy})
    else:
        out.record(as_text_record(record))
        typer.echo("\nPolicy (docs/reference/tubes/custom.md describes its fields):")
        out.record({field: value for field, value in policy.items() if field != "type"})


@app.command()
def stats(name: TubeName, *, target: Target, out: Output) -> None:
    """Show the number of jobs in each state, and how often each event happened since the tube was created."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        record, events, transitions = tube.info(), tube.events(), tube.transitions()
    if out.json:
        out.json_line({**record, "events": events, "transitions": transitions})
    else:
        out.record(as_text_record(record))
        typer.echo("\nEvents since its creation:")
        out.record(events or {"nothing": None})


# The calls that a pause of a tube stops: puts (in), takes (out), or both.
Way = StrEnum("Way", "IN OUT ALL")


@app.command()
def pause(
    name: TubeName,
    way: Annotated[
        Way, typer.Argument(metavar="[in|out|all]", help="in: refuse puts. out: deliver no jobs. all: both.")
    ] = Way.ALL,
    *,
    target: Target,
    out: Output,
) -> None:
    """Pause a tube: refuse puts, stop deliveries, or both."""
    with target.open() as queue:
        find_tube(queue, name).pause(puts=way is not Way.OUT, takes=way is not Way.IN)
    ways = {Way.IN: "puts", Way.OUT: "takes", Way.ALL: "puts and takes"}[way]
    out.report_done(
        f"{name} is paused for {ways}", name=name, paused_in=way is not Way.OUT, paused_out=way is not Way.IN
    )


@app.command()
def resume(name: TubeName, *, target: Target, out: Output) -> None:
    """Resume a paused tube."""
    with target.open() as queue:
        find_tube(queue, name).pause()
    out.report_done(f"{name} is resumed", name=name, paused_in=False, paused_out=False)


@app.command()
def truncate(name: TubeName, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Delete all jobs of a tube, in any state."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        jobs = sum(tube.stats().values())
        if dry_run:
            out.report_done(f"would remove {jobs_text(jobs)} of {name}", name=name, would_remove=jobs)
            return
        confirm(f"Remove {jobs_text(jobs)} of {name}?", yes)
        removed = tube.truncate()
    out.report_done(f"removed {jobs_text(removed)} of {name}", name=name, removed=removed)


@app.command()
def drop(name: TubeName, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Delete a tube with its jobs. Refused while jobs are taken or consumers wait for a job."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        states = tube.stats()
        jobs = sum(states.values())
        if dry_run:
            if states["taken"]:
                fail(f"{name} cannot be dropped now: {states['taken']:,} of its jobs are taken", REFUSED)
            out.report_done(f"would drop {name} with {jobs_text(jobs)}", name=name, would_remove=jobs)
            return
        confirm(f"Drop {name} with {jobs_text(jobs)}?", yes)
        tube.drop()
    out.report_done(f"dropped {name} with {jobs_text(jobs)}", name=name, removed=jobs)


@app.command()
def release(name: TubeName, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Return all taken jobs to their tube, no matter which consumer holds them."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        taken = tube.stats()["taken"]
        if dry_run:
            out.report_done(f"would release {jobs_text(taken)} of {name}", name=name, would_release=taken)
            return
        confirm(f"Take {jobs_text(taken)} of {name} away from their consumers?", yes)
        released = tube.release_all()
    out.report_done(f"released {jobs_text(released)} of {name}", name=name, released=released)


def kick(
    tube: TubeName,
    count: Annotated[int, typer.Argument(metavar="[COUNT]", min=1, max=100_000, help="Maximum number of jobs.")] = 1,
    delay: Delay = 0.0,
    ttl: Annotated[float | None, duration_option("--ttl", help="New ttl of the jobs, from now on.")] = None,
    dry_run: DryRun = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Return buried jobs to their tube, in the order in which they are served. Exit with 5 if there is none.

    `penstock dig` returns single jobs by their ids, and `penstock dlq redrive` returns jobs that match a condition.
    """
    with target.open() as queue:
        place = find_tube(queue, tube)
        if dry_run:
            would = min(count, place.stats()["buried"])
            out.report_done(f"would kick {jobs_text(would)} of {tube}", tube=tube, would_kick=would)
            return
        kicked = place.kick(count, delay=delay, ttl=ttl)
        if not kicked:
            if place.stats()["buried"]:
                fail(f"the buried jobs of {tube} allow no further delivery; delete them, or put them again", NOTHING)
            fail(f"no job of {tube} is buried", NOTHING)
        out.report_done(f"kicked {jobs_text(kicked)} of {tube}", tube=tube, kicked=kicked)
