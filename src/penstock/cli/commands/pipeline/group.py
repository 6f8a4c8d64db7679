"""`penstock pipeline`: load the history of queues into a lake with Spark, and evaluate it."""

from __future__ import annotations

from penstock.cli.commands.pipeline import audit, erase, replay, report, run, whatif
from penstock.cli.options import CommandGroup

app = CommandGroup(help="Load the history of queues into a lake (Delta tables) with Spark, and evaluate it.")

for command in (
    *(run.once, run.run, run.backfill, run.compact, run.convert, run.init),
    *(erase.forget, erase.vacuum),
    *(report.report, audit.audit, replay.replay, whatif.whatif),
):
    app.command()(command)
