"""`penstock pipeline audit`: verify from the history that every guarantee was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.commands.pipeline_run import Master, SourceOptions, open_lake
from penstock.cli.errors import ERROR
from penstock.cli.lake_options import LakeDirectory
from penstock.cli.output import Column, Output, column
from penstock.cli.progress import stages_bar

if TYPE_CHECKING:
    from penstock.pipeline.audit import Verdict

_EXAMPLES = (column("tube"), column("job"), column("position"), column("time"), Column("what", lambda row: row["what"]))


def audit(
    lake: LakeDirectory,
    live: Annotated[
        bool, typer.Option("--live", help="Update the lake first, and compare it with the counters of the nodes.")
    ] = False,
    master: Master = "local[*]",
    *,
    nodes: SourceOptions,
    out: Output,
) -> None:
    """Verify from the history that every guarantee was kept, and show violations. Exit with 1 if there are any."""
    from penstock.pipeline.audit import audit as work

    source = nodes.source() if live or nodes.urls else None
    with open_lake(lake, master, makes=source is not None) as (spark, found), stages_bar() as on_progress:
        verdict = work(spark, found, source, on_progress)
    show(verdict, out)
    if not verdict.kept:
        raise typer.Exit(ERROR)


def show(verdict: Verdict, out: Output) -> None:
    """Print each guarantee, whether it was kept, and the first violations."""
    from penstock.pipeline.audit_section import STATES

    for finding in verdict.findings:
        out.report_done(
            f"{STATES[finding.kept]:<10} {finding.promise}" + (f" ({finding.unjudged})" if finding.unjudged else ""),
            promise=finding.name,
            kept=finding.kept,
            broken=finding.broken,
            unjudged=finding.unjudged,
            examples=finding.examples,
        )
        if finding.broken and not out.json:
            typer.echo(f"           {finding.broken:,} violations, of which the first are:")
            out.table(finding.examples, _EXAMPLES, "")
    if not out.json:
        typer.echo(f"Based on {verdict.events:,} events of {verdict.jobs:,} jobs.")
