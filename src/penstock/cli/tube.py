"""`penstock tube`: the tubes of a queue, and `penstock kick`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import NOTHING, REFUSED, USAGE, fail
from penstock.cli.names import find_tube
from penstock.cli.output import Output, Record, confirm, jobs_text, seconds_text
from penstock.cli.records import TUBE_COLUMNS
from penstock.cli.target import Target
from penstock.cli.values import Delay, DryRun, TubeName, Yes, duration_option, size

app = typer.Typer(help="Make, change and look at tubes.", no_args_is_help=True)


class Type(StrEnum):
    """The types of tube; docs/reference/tubes has a page for each."""

    FIFO = "fifo"
    FIFOTTL = "fifottl"
    LIMFIFOTTL = "limfifottl"
    UTUBE = "utube"
    UTUBETTL = "utubettl"
    STUBE = "stube"
    DISQUE = "disque"
    QUEUE15 = "queue15"
    XQUEUE = "xqueue"


class WhileTaken(StrEnum):
    """What a ttl does to a job that is being worked on."""

    WAITS = "waits"
    KILLS = "kills"


@dataclass(frozen=True)
class TubeFlags:
    """What a tube may be given beside its type."""

    ttl: Annotated[float | None, duration_option("--ttl", help="Default ttl of its jobs.")] = None
    ttr: Annotated[float | None, duration_option("--ttr", help="Default ttr of its jobs.")] = None
    priority: Annotated[int | None, typer.Option("--priority", help="Default priority of its jobs.")] = None
    ttl_while_taken: Annotated[
        WhileTaken | None, typer.Option("--ttl-while-taken", help="Whether a ttl ends a job that is being worked on.")
    ] = None
    key_limit: Annotated[int | None, typer.Option("--key-limit", help="Jobs of one key taken at a time.")] = None
    fair: Annotated[bool | None, typer.Option("--fair/--strict", help="Serve keys in turn, or by their jobs.")] = None
    capacity: Annotated[int | None, typer.Option("--capacity", help="How many jobs fit; 0 for any number.")] = None
    capacity_bytes: Annotated[
        int | None,
        typer.Option("--capacity-bytes", parser=size, metavar="SIZE", help="How many bytes of bodies fit, like 64mb."),
    ] = None
    retry: Annotated[
        str | None, typer.Option("--retry", help='What becomes of jobs that fail: "5x exp(1s..10m) then bury".')
    ] = None
    max_deliveries: Annotated[
        int | None, typer.Option("--max-deliveries", help="Short for a retry: so many tries, then bury.")
    ] = None
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", help="With --max-deliveries: the tube that gets what failed.")
    ] = None
    keep: Annotated[bool | None, typer.Option("--keep/--no-keep", help="Keep acked jobs as done.")] = None
    zombie: Annotated[float | None, duration_option("--zombie", help="Keep acked jobs so long as zombies.")] = None
    dedup_window: Annotated[
        float | None, duration_option("--dedup-window", help="How long a dedup id is remembered.")
    ] = None
    dedup_count: Annotated[int | None, typer.Option("--dedup-count", help="How many dedup ids are.")] = None
    temporary: Annotated[
        bool | None, typer.Option("--temporary/--durable", help="Whether it is kept out of the log, and of history.")
    ] = None

    def given(self) -> dict[str, Any]:
        """What was said."""
        return {name: value for name, value in vars(self).items() if value is not None}


def policy_record(policy: Any) -> Record:
    """What a tube promises, as JSON has it: times in seconds, null for ever."""
    from penstock.core.limits import NEVER

    told: Record = {}
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if field.name.endswith("_ms"):
            told[field.name.removesuffix("_ms")] = None if value in (NEVER, -1) else value / 1000
        else:
            told[field.name] = list(value) if isinstance(value, tuple) else value
    return told


def for_people(info: Record) -> Record:
    """How a tube is, with its times as people read them."""
    return {**info, "oldest": seconds_text(info["oldest"])}


@app.command("ls")
@bundled
def list_(
    match: Annotated[
        str, typer.Option("--match", "-m", metavar="PATTERN", help="Only names like this: emails-*")
    ] = "*",
    names: Annotated[bool, typer.Option("--names", help="Only the names, a line each.")] = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """List the tubes, in the order they were made, and how many jobs are in each state."""
    with target.open() as queue:
        if names and not out.json:
            for name in queue.tubes():
                if fnmatchcase(name, match):
                    out.done(name)
            return
        rows = [row for row in queue.overview() if fnmatchcase(row["name"], match)]
    out.table(rows, TUBE_COLUMNS, 'There is no tube yet: penstock put emails \'{"to": "ann@example.org"}\'')


@app.command()
@bundled
def create(
    name: TubeName,
    type: Annotated[Type | None, typer.Option("--type", "-t", help="Type of the tube. [default: fifottl]")] = None,
    *,
    flags: TubeFlags,
    target: Target,
    out: Output,
) -> None:
    """Make a tube. One that exists with the same type and options is left as it is; with others, this is refused.

    Without a type and options, a new tube has a ttr of 5m and the retry policy "5x exp(1s..10m) jitter then bury".
    """
    with target.open(makes=True) as queue:
        tube = queue.tube(name, type.value if type else None, **flags.given())
        out.done(
            f"{tube.name} is a {tube.type} tube", name=tube.name, type=tube.type, policy=policy_record(tube.policy)
        )


@app.command()
@bundled
def alter(name: TubeName, *, flags: TubeFlags, target: Target, out: Output) -> None:
    """Change what a tube promises, while it runs."""
    if not flags.given():
        fail("say what is to change, like --ttl 1h; see `penstock tube alter --help`", USAGE)
    with target.open() as queue:
        tube = find_tube(queue, name)
        tube.alter(**flags.given())
        tube = find_tube(queue, name)
        out.done(f"{tube.name} is changed", name=tube.name, type=tube.type, policy=policy_record(tube.policy))


@app.command()
@bundled
def info(name: TubeName, *, target: Target, out: Output) -> None:
    """Show what a tube promises, and how it is."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        told, policy = tube.info(), policy_record(tube.policy)
    if out.json:
        out.line_of_json({**told, "policy": policy})
    else:
        out.record(for_people(told))
        typer.echo("\nIt promises:")
        out.record({field: value for field, value in policy.items() if field != "type"})


@app.command()
@bundled
def stats(name: TubeName, *, target: Target, out: Output) -> None:
    """Show how many jobs are in each state, and how often each thing happened in the life of a tube."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        told, events, transitions = tube.info(), tube.events(), tube.transitions()
    if out.json:
        out.line_of_json({**told, "events": events, "transitions": transitions})
    else:
        out.record(for_people(told))
        typer.echo("\nIn its life:")
        out.record(events or {"nothing": None})


class Way(StrEnum):
    """Which way a tube is paused."""

    IN = "in"
    OUT = "out"
    ALL = "all"


@app.command()
@bundled
def pause(
    name: TubeName,
    way: Annotated[
        Way, typer.Argument(metavar="[in|out|all]", help="in: refuse puts. out: hold takes back. all: both.")
    ] = Way.ALL,
    *,
    target: Target,
    out: Output,
) -> None:
    """Refuse puts, hold takes back, or both."""
    with target.open() as queue:
        find_tube(queue, name).pause(puts=way is not Way.OUT, takes=way is not Way.IN)
    ways = {Way.IN: "puts", Way.OUT: "takes", Way.ALL: "puts and takes"}[way]
    out.done(f"{name} is paused for {ways}", name=name, paused_in=way is not Way.OUT, paused_out=way is not Way.IN)


@app.command()
@bundled
def resume(name: TubeName, *, target: Target, out: Output) -> None:
    """Let a tube that was paused go on."""
    with target.open() as queue:
        find_tube(queue, name).pause()
    out.done(f"{name} goes on", name=name, paused_in=False, paused_out=False)


@app.command()
@bundled
def truncate(name: TubeName, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Remove every job of a tube, whatever its state."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        jobs = sum(tube.stats().values())
        if dry_run:
            out.done(f"would remove {jobs_text(jobs)} of {name}", name=name, would_remove=jobs)
            return
        confirm(f"Remove {jobs_text(jobs)} of {name}?", yes)
        removed = tube.truncate()
    out.done(f"removed {jobs_text(removed)} of {name}", name=name, removed=removed)


@app.command()
@bundled
def drop(name: TubeName, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Remove a tube with its jobs. Refused while jobs of it are taken, or somebody waits for one."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        states = tube.stats()
        jobs = sum(states.values())
        if dry_run:
            if states["taken"]:
                fail(f"{name} cannot be dropped now: {states['taken']:,} of its jobs are taken", REFUSED)
            out.done(f"would drop {name} with {jobs_text(jobs)}", name=name, would_remove=jobs)
            return
        confirm(f"Drop {name} with {jobs_text(jobs)}?", yes)
        tube.drop()
    out.done(f"dropped {name} with {jobs_text(jobs)}", name=name, removed=jobs)


@app.command()
@bundled
def release(name: TubeName, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Give every taken job of a tube back, whoever holds it."""
    with target.open() as queue:
        tube = find_tube(queue, name)
        taken = tube.stats()["taken"]
        if dry_run:
            out.done(f"would release {jobs_text(taken)} of {name}", name=name, would_release=taken)
            return
        confirm(f"Take {jobs_text(taken)} of {name} away from those who work on them?", yes)
        released = tube.release_all()
    out.done(f"released {jobs_text(released)} of {name}", name=name, released=released)


@bundled
def kick(
    tube: TubeName,
    count: Annotated[int, typer.Argument(metavar="[COUNT]", min=1, max=100_000, help="Up to so many.")] = 1,
    delay: Delay = 0.0,
    ttl: Annotated[float | None, duration_option("--ttl", help="From now on they live so long.")] = None,
    dry_run: DryRun = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Bring buried jobs of a tube back, the first buried first. Exit code 5 if none was there."""
    with target.open() as queue:
        place = find_tube(queue, tube)
        if dry_run:
            would = min(count, place.stats()["buried"])
            out.done(f"would kick {jobs_text(would)} of {tube}", tube=tube, would_kick=would)
            return
        kicked = place.kick(count, delay=delay, ttl=ttl)
        if not kicked:
            fail(f"no job of {tube} is buried, or none that may be delivered again", NOTHING)
        out.done(f"kicked {jobs_text(kicked)} of {tube}", tube=tube, kicked=kicked)
