"""`penstock pipeline whatif`: estimate waiting times for other numbers of workers."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import fail
from penstock.cli.lake_options import LakeOptions, day_option
from penstock.cli.output import Column, Output, Record, column
from penstock.cli.progress import count_bar
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.pipeline.model_fit import HeldOut


def _wait(name: str) -> Column:
    return Column(f"wait {name}, ms", lambda record: record[f"wait_{name}_ms"])


def _estimated(name: str) -> Column:
    return Column(f"estimated {name}, ms", lambda record: record[f"estimated_{name}_ms"])


COLUMNS = (
    column("tube"),
    Column("", lambda record: record["kind"]),
    column("workers"),
    Column("per key", lambda record: record["per_key"] or "any"),
    column("jobs"),
    *(_wait("p50"), _wait("p95"), _wait("p99")),
    Column("busy, %", lambda record: round(100 * record["busy_share"])),
)

ERROR_COLUMNS = (
    *(column("tube"), column("day"), column("workers"), column("jobs")),
    *(_wait("p50"), _wait("p95"), _wait("p99")),
    *(_estimated("p50"), _estimated("p95"), _estimated("p99")),
)


def whatif(
    tube: Annotated[str | None, typer.Option("--tube", help="Use only this tube. Default: all tubes.")] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            "--workers", min=1, max=100_000, help="Number of workers. Repeatable. [default: half, the same, twice]"
        ),
    ] = None,
    per_key: Annotated[
        list[int] | None,
        typer.Option("--per-key", min=1, help="Maximum number of taken jobs per key. [default: as it was]"),
    ] = None,
    since: Annotated[datetime.date | None, day_option("--since", "Use jobs that ended on this day or later.")] = None,
    until: Annotated[datetime.date | None, day_option("--until", "Use jobs that ended on this day or before.")] = None,
    *,
    lake: LakeOptions,
    out: Output,
) -> None:
    """Estimate how long jobs would have waited with other numbers of workers, or other limits per key."""
    from penstock.pipeline.whatif import ASSUMPTIONS, estimates, held_out_days, histories

    records: list[Record] = []
    errors: list[HeldOut] = []
    misfits: list[str] = []
    for history in histories(lake.open(), tube, since, until):
        with count_bar(f"simulating {history.tube}") as progress:
            outcomes = [] if history.misfit else estimates(history, workers or [], per_key or [], progress)
            errors += [] if history.misfit else held_out_days(history)
        if history.misfit:
            misfits.append(history.misfit)
        for outcome in outcomes:
            fields = dataclasses.asdict(outcome)
            kind = "measured" if fields.pop("measured") else "estimate"
            records.append({**fields, "kind": kind, "busy_share": round(outcome.busy_share, 4)})
    for misfit in misfits[0 if records else 1 :]:
        typer.echo(printable(misfit), err=True)
    if misfits and not records:
        fail(misfits[0])
    out.table(records, COLUMNS, "There are no jobs.")
    if out.json:
        for error in errors:
            share = error.error_p95
            out.json_line(
                {
                    "kind": "held out",
                    **dataclasses.asdict(error),
                    "error_p95": None if share is None else round(share, 4),
                }
            )
        return
    if errors:
        typer.echo("\nError on held-out days, with the workers of the other days:")
        out.table(list(map(dataclasses.asdict, errors)), ERROR_COLUMNS, "")
    typer.echo(ASSUMPTIONS, err=True)
