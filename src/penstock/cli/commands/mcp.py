"""`penstock mcp`: lets an assistant look at a queue, over the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.targets import Target


def mcp(
    allow_redrive: Annotated[
        bool, typer.Option("--allow-redrive", help="Also let the assistant return buried jobs to their tubes.")
    ] = False,
    hide_bodies: Annotated[
        bool, typer.Option("--hide-bodies", help="Do not show bodies and headers of jobs to the assistant.")
    ] = False,
    *,
    target: Target,
) -> None:
    """Let an assistant list tubes, find failed jobs and explain the history of a job.

    It speaks the Model Context Protocol on standard input and output: configure your assistant to start the command
    `penstock mcp`. It only reads, unless --allow-redrive is given. For a server with users, use a user who has only the
    class read.
    """
    from penstock.cli.assistant.tools import server

    with target.open() as queue:
        server(queue, allow_redrive, hide_bodies).run()
