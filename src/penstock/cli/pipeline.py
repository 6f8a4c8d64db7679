"""`penstock pipeline`: the history of a queue as a lake, and what can be done with it."""

from __future__ import annotations

import typer

from penstock.cli import replay, report, whatif

app = typer.Typer(help="Digest the history of a queue with Spark, and use it.", no_args_is_help=True)

app.command()(report.report)
app.command()(replay.replay)
app.command()(whatif.whatif)
