"""`penstock pipeline whatif`: estimate waiting times for other numbers of workers."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Annotated

import typer

from penstock.cli.lake_options import LakeDirectory, day_option
from penstock.cli.output import Column, Output, Record, column
from penstock.cli.progress import count_bar


def _wait(name: str) -> Column:
    return Column(f"wait {name}, ms", lambda record: record[f"wait_{name}_ms"])


COLUMNS = (
    column("tube"),
    Column("", lambda record: record["kind"]),
    column("workers"),
    Column("per key", lambda record: record["per_key"] or "any"),
    column("jobs"),
    *(_wait("p50"), _wait("p95"), _wait("p99")),
    Column("busy, %", lambda record: round(100 * record["busy_share"])),
)


def whatif(
    lake: LakeDirectory,
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
    out: Output,
) -> None:
    """Estimate how long jobs would have waited with other numbers of workers, or other limits per key."""
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.whatif import ASSUMPTIONS, estimates, histories

    records: list[Record] = []
    for history in histories(Lake(lake), tube, since, until):
        with count_bar(f"simulating {history.tube}") as progress:
            outcomes = estimates(history, workers or [], per_key or [], progress)
        for outcome in outcomes:
            fields = dataclasses.asdict(outcome)
            kind = "measured" if fields.pop("measured") else "estimate"
            records.append({**fields, "kind": kind, "busy_share": round(outcome.busy_share, 4)})
    out.table(records, COLUMNS, "There are no jobs.")
    if not out.json:
        typer.echo(ASSUMPTIONS, err=True)
