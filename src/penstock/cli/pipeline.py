"""`penstock pipeline`: load the history of queues into a lake with Spark, and evaluate it."""

from __future__ import annotations

import typer

from penstock.cli import audit, replay, report, turns, whatif

app = typer.Typer(help="Load the history of queues into a lake with Spark, and evaluate it.", no_args_is_help=True)

for command in (
    *(turns.once, turns.run, turns.backfill, turns.compact),
    *(report.report, audit.audit, replay.replay, whatif.whatif),
):
    app.command()(command)
