"""Entry point of the command line: assembles all subcommands into one application.

Each command imports its dependencies when it runs. This keeps `penstock --help` fast, and an installation without
optional packages can run every command that does not need them.
"""

import io
import os
import platform
import sys
from typing import Annotated

import typer

from penstock._build import is_compiled
from penstock._version import __version__
from penstock.cli.commands import (
    ack,
    api,
    backup,
    bench,
    check,
    cli,
    completion,
    config,
    context,
    cron,
    dashboard,
    dlq,
    doctor,
    import_jobs,
    job,
    journal,
    mcp,
    put,
    serve,
    sim,
    standby,
    stats,
    take,
    token,
    top,
    tube,
    worker,
)
from penstock.cli.commands.cluster.group import app as cluster
from penstock.cli.commands.pipeline.group import app as pipeline
from penstock.cli.errors import Program
from penstock.cli.options import CommandGroup

app = CommandGroup(name="penstock", cls=Program, add_completion=False)

JOBS = "Jobs"
QUEUE = "Tubes and cluster"
WATCH = "Monitoring and testing"
SERVER = "Servers and directories"
SHELL = "Tools"

for command in (
    *(put.put, take.take, ack.ack, ack.nack, ack.release, ack.requeue, ack.bury, ack.touch),
    *(take.peek, take.wait, ack.delete, ack.dig),
):
    app.command(rich_help_panel=JOBS)(command)
app.command(rich_help_panel=QUEUE)(tube.kick)
app.add_typer(job.app, name="job", rich_help_panel=JOBS)
app.add_typer(tube.app, name="tube", rich_help_panel=QUEUE)
app.add_typer(dlq.app, name="dlq", rich_help_panel=QUEUE)
app.add_typer(cluster, name="cluster", rich_help_panel=QUEUE)
app.command(rich_help_panel=WATCH)(stats.stats)
app.command(rich_help_panel=WATCH)(top.top)
app.add_typer(check.app, name="check", rich_help_panel=WATCH)
app.add_typer(bench.app, name="bench", rich_help_panel=WATCH)
app.add_typer(journal.app, name="journal", rich_help_panel=WATCH)
app.command(rich_help_panel=WATCH)(sim.sim)
app.command(rich_help_panel=SERVER, context_settings={"ignore_unknown_options": True})(serve.serve)
app.command(rich_help_panel=SERVER)(api.api)
app.command(rich_help_panel=SERVER)(dashboard.dashboard)
app.command(rich_help_panel=SERVER)(worker.worker)
app.add_typer(cron.app, name="cron", rich_help_panel=SERVER)
app.add_typer(config.app, name="config", rich_help_panel=SERVER)
app.add_typer(token.app, name="token", rich_help_panel=SERVER)
app.command(rich_help_panel=SERVER)(backup.backup)
app.command(rich_help_panel=SERVER)(backup.restore)
app.command(rich_help_panel=SERVER)(standby.standby)
app.add_typer(import_jobs.app, name="import", rich_help_panel=SERVER)
app.add_typer(pipeline, name="pipeline", rich_help_panel=SERVER)
# Everything after the command's name belongs to the command, even words that look like options.
app.command(rich_help_panel=SHELL, context_settings={"allow_interspersed_args": False})(cli.cli)
app.add_typer(context.app, name="context", rich_help_panel=SHELL)
app.command(rich_help_panel=SHELL)(completion.completion)
app.command(rich_help_panel=SHELL)(doctor.doctor)
app.command(rich_help_panel=SHELL)(mcp.mcp)


def version_line() -> str:
    """Return the version, and whether the core is compiled."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if is_compiled():
        return f"penstock {__version__} (compiled, {python})"
    return (
        f"penstock {__version__} (interpreted, {python}: installed without a C compiler or run from source; "
        "about ten times slower)"
    )


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and how it was built."),
    ] = False,
) -> None:
    """A durable job queue that also speaks the protocols of Disque and Tarantool's queues.

    Producers put jobs into tubes, which are named queues. A consumer takes a job, works on it and acks it. If it does
    not finish within the job's ttr (time to run), the job returns to the tube. A job expires after its ttl (time to
    live).

    Commands on jobs and tubes use the server on this machine. Select another queue with --url, --dir or --context.
    Write a TIME as seconds (30), or with a unit: 500ms, 5m, 2h or 7d.
    """


@app.command(rich_help_panel=SHELL)
def demo(
    shows_dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard/--no-dashboard", help="Keep the dashboard open until Ctrl-C at the end, on a terminal."
        ),
    ] = True,
) -> None:
    """Crawl made-up pages with twelve workers, and show that no domain is visited by two workers at a time."""
    from penstock.cli.demos.crawl_demo import run

    raise typer.Exit(run(shows_dashboard=shows_dashboard))


def main() -> None:
    # A body may contain characters that the terminal cannot show. They must not stop the output half-way.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if "_PENSTOCK_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    app(prog_name="penstock")
