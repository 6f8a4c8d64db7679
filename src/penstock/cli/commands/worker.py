"""`penstock worker`: run the tasks of an app."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from penstock.cli.errors import USAGE, fail
from penstock.cli.option_values import duration_option, parse_size
from penstock.tasks.workers.supervisor import SupervisorSettings


def worker(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, for example shop.tasks:app.")],
    tubes: Annotated[
        list[str] | None,
        typer.Option("--tubes", "-t", help="Take jobs only from this tube. Can be given several times."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, help="Run up to this many tasks at the same time per process.")
    ] = 10,
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, help="Start this many processes, for tasks that use the CPU.")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a Python file below the current directory changes.")
    ] = False,
    max_memory: Annotated[
        int,
        typer.Option(
            "--max-memory",
            parser=parse_size,
            metavar="SIZE",
            help="Replace a process that uses more memory, like 500mb.",
        ),
    ] = 0,
    drain: Annotated[
        float, duration_option("--drain", help="On SIGTERM, wait this long for running tasks, then release their jobs.")
    ] = 30,
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port", min=0, max=65_535, help="Serve /livez and /readyz over HTTP on this port. Default: off."
        ),
    ] = None,
    health_host: Annotated[str, typer.Option("--health-host", help="Address for --health-port.")] = "127.0.0.1",
) -> None:
    """Run the tasks of an app as worker processes.

    MODULE:APP is a penstock.App in a Python module, which is also found in the current directory. Plain functions run
    in threads, and async functions in an event loop. SIGTERM and Ctrl-C stop the worker after its running tasks. A
    second signal stops it at once.
    """
    settings = SupervisorSettings(
        worker={
            "app": app,
            "tubes": tubes or None,
            "concurrency": concurrency,
            "processes": processes,
            "drain_s": drain,
            "max_memory": max_memory,
        },
        processes=processes,
        reload=reload,
        health_host=health_host,
        health_port=-1 if health_port is None else health_port,
    )
    if not app.strip():
        fail("name the app as module:app", USAGE)
    sys.stdout.flush()
    # A new program instead of a call, because the modules of the command line would stay in memory.
    os.execv(sys.executable, [sys.executable, "-m", "penstock.tasks.workers.supervisor", settings.to_json()])
