"""`penstock pipeline audit`: verify from the history that every guarantee was kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.commands.pipeline.run import Master, SourceOptions, all_events, new_events, open_lake
from penstock.cli.errors import ERROR, NOTHING, exit_code_of, fail, message_of
from penstock.cli.lake_options import LakeOptions, require_spark
from penstock.cli.output import Column, Output
from penstock.cli.progress import stages_bar
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.pipeline.audit import Verdict


def _field(name: str, row: dict[str, Any]) -> Any:
    return row.get(name)


_EXAMPLES = (
    *(Column(name, partial(_field, name)) for name in ("tube", "job", "position", "time")),
    Column("what", lambda row: row["what"]),
)


def audit(
    live: Annotated[
        bool, typer.Option("--live", help="Update the lake first, and compare it with the logs of the nodes.")
    ] = False,
    master: Master = "local[*]",
    *,
    lake: LakeOptions,
    nodes: SourceOptions,
    out: Output,
) -> None:
    """Verify from the history that every promise was kept, and show violations.

    Exit with 1 if a promise was broken, with 3 if there is no lake, and with 5 if a promise could not be judged at all
    or the audit failed.
    """
    require_spark()
    from penstock.pipeline.audit import audit as work

    with failures_as_cannot_tell():
        source = nodes.source() if live or nodes.urls else None

        def events(lake: Lake) -> int:
            return all_events(lake) + (new_events(source)(lake) if source else 0)

        with open_lake(lake, master, None, events, source is not None) as (spark, found), stages_bar() as on_progress:
            verdict = work(spark, found, source, on_progress)
    show(verdict, out)
    if verdict.broken:
        raise typer.Exit(ERROR)
    if verdict.cannot_tell:
        raise typer.Exit(NOTHING)


@contextmanager
def failures_as_cannot_tell() -> Iterator[None]:
    """Exit with NOTHING instead of ERROR if the audit fails, because ERROR means that a promise was broken."""
    try:
        yield
    except (PenstockError, OSError) as error:
        code = exit_code_of(error)
        fail(message_of(error), NOTHING if code == ERROR else code)


def show(verdict: Verdict, out: Output) -> None:
    """Print each promise, whether it was kept, and the first violations."""
    for finding in verdict.findings:
        out.report_done(
            f"{finding.verdict:<11} {finding.promise}" + (f" ({finding.unjudged})" if finding.unjudged else ""),
            promise=finding.name,
            kept=finding.kept,
            broken=finding.broken,
            unjudged=finding.unjudged,
            examples=finding.examples,
        )
        if finding.broken and not out.json:
            typer.echo(f"            {finding.broken:,} violations, of which the first are:")
            out.table(finding.examples, _EXAMPLES, "")
    for clock in verdict.clocks if len(verdict.clocks) > 1 else ():
        out.report_done(
            f"clock       node {clock.node[:8]}: {_skew(clock.ahead_ms)}", node=clock.node, ahead_ms=clock.ahead_ms
        )
    if not out.json:
        typer.echo(f"Based on {verdict.events:,} events.")


def _skew(ahead_ms: int | None) -> str:
    if ahead_ms is None:
        return "it received no jobs from other nodes, so its clock cannot be compared"
    return f"at most {abs(ahead_ms):,} ms {'ahead of' if ahead_ms >= 0 else 'behind'} the nodes that sent it jobs"
