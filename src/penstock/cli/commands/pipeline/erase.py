"""`penstock pipeline forget` and `vacuum`: erase data from a lake, and delete files that are no longer used."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.commands.pipeline.run import Master, Tables, open_lake, user_tables
from penstock.cli.errors import USAGE, fail
from penstock.cli.lake_options import LakeOptions, day_option, require_spark
from penstock.cli.option_values import parse_duration
from penstock.cli.output import Output
from penstock.cli.progress import stages_bar
from penstock.report.units import bytes_text

if TYPE_CHECKING:
    from penstock.pipeline.forget import Plan, Selection


def _job(text: str) -> tuple[str, int]:
    node, separator, number = text.rpartition(":")
    if not separator or not node or not number.isdigit():
        raise typer.BadParameter(f"{text!r} is not a job of a node; write it as NODE:NUMBER, for example 4f1d09aa:17")
    return node, int(number)


def _older_than(text: str | float) -> float:
    seconds = parse_duration(text)
    if not math.isfinite(seconds):
        raise typer.BadParameter("nothing is older than forever; write a duration like 7d or 12h")
    return seconds


def forget(
    before: Annotated[datetime.date | None, day_option("--before", "Erase all days before this one.")] = None,
    tube: Annotated[str | None, typer.Option("--tube", help="Erase all jobs that were in this tube.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="With --tube: erase only jobs with this key. Write 0x… for a key that is not text."),
    ] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="NODE:NUMBER", help="Erase this job of a node. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    tables: Tables = None,
    master: Master = "local[*]",
    *,
    lake: LakeOptions,
    out: Output,
) -> None:
    """Erase days, a tube, a key or jobs from all tables of the lake.

    A job is erased with all its events, also those in other tubes. The data stays in unused files until
    `penstock pipeline vacuum` deletes them. In a cluster, a job has another number on each node.
    """
    require_spark()
    from penstock.pipeline import forget as work

    selection = _selection(before, tube, key, jobs or [])
    users = user_tables(tables)
    with open_lake(lake, master, makes=False) as (spark, found), stages_bar() as on_progress:
        if dry_run:
            plan = work.plan(spark, found, selection)
        else:
            plan = work.forget(spark, found, selection, on_progress, users)
    _show(plan, dry_run, out)


def _selection(before: datetime.date | None, tube: str | None, key: str | None, jobs: list[str]) -> Selection:
    from penstock.pipeline.forget import Selection

    if sum((before is not None, tube is not None, bool(jobs))) != 1:
        fail("use one of --before, --tube and --job", USAGE)
    if key is not None and tube is None:
        fail("--key needs the tube of the jobs; add --tube", USAGE)
    keys = () if key is None else tuple({key.encode(), *_from_hex(key)})
    return Selection(before, tube, keys, tuple(_job(text) for text in jobs))


def _from_hex(key: str) -> list[bytes]:
    try:
        return [bytes.fromhex(key[2:])] if key.startswith("0x") else []
    except ValueError:
        return []


def _show(plan: Plan, dry_run: bool, out: Output) -> None:
    jobs = "" if plan.jobs is None else f" of {plan.jobs:,} jobs"
    days = f"{plan.days[0]} to {plan.days[-1]}" if plan.days else "no day"
    words = f"{plan.events:,} events{jobs} in {len(plan.files):,} files ({days}) "
    words += "would be erased" if dry_run else "were erased; `penstock pipeline vacuum` deletes their old files"
    out.report_done(
        words, events=plan.events, jobs=plan.jobs, files=len(plan.files), days=plan.days, erased=not dry_run
    )


def vacuum(
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            parser=_older_than,
            metavar="TIME",
            help="Delete files that have been unused for this long. 0 deletes all unused files.",
        ),
    ] = 7 * 24 * 3600,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    *,
    lake: LakeOptions,
    out: Output,
) -> None:
    """Delete files that the tables no longer use: replaced and erased ones, and those of interrupted runs.

    A file that the last turn uses is never deleted. In a directory, the command is refused while another process
    writes. An object store has no lock: while a pipeline writes there, use a TIME of at least an hour.
    """
    from penstock.lake import vacuum as work

    found = lake.open().require_exists()
    if dry_run:
        unused = work.unused_files(found, older_than)
    else:
        with found.writing():
            unused = work.vacuum(found, older_than)
    size = sum(each.size for each in unused)
    done = "would be deleted" if dry_run else "deleted"
    out.report_done(
        f"{len(unused):,} unused files with {bytes_text(size)} {done}",
        files=len(unused),
        bytes=size,
        deleted=not dry_run,
    )
