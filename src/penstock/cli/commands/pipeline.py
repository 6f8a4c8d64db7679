"""`penstock pipeline`: load the history of queues into a lake with Spark, and evaluate it."""

from __future__ import annotations

from penstock.cli.commands import (
    pipeline_audit,
    pipeline_erase,
    pipeline_replay,
    pipeline_report,
    pipeline_run,
    pipeline_whatif,
)
from penstock.cli.options import CommandGroup

app = CommandGroup(help="Load the history of queues into a lake (Delta tables) with Spark, and evaluate it.")

for command in (
    *(
        pipeline_run.once,
        pipeline_run.run,
        pipeline_run.backfill,
        pipeline_run.compact,
        pipeline_run.convert,
        pipeline_run.init,
    ),
    *(pipeline_erase.forget, pipeline_erase.vacuum),
    *(pipeline_report.report, pipeline_audit.audit, pipeline_replay.replay, pipeline_whatif.whatif),
):
    app.command()(command)
