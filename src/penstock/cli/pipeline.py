"""`penstock pipeline`: the history of a queue as a lake, and what can be done with it."""

from __future__ import annotations

import typer

from penstock.cli import audit, replay, report, turns, whatif

app = typer.Typer(help="Digest the history of a queue with Spark, and use it.", no_args_is_help=True)

for command in (
    *(turns.once, turns.run, turns.backfill, turns.compact),
    *(report.report, audit.audit, replay.replay, whatif.whatif),
):
    app.command()(command)
