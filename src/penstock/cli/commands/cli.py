"""`penstock cli`: send raw protocol commands to a server."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated

import typer

from penstock.cli.errors import ERROR, REFUSED, USAGE, fail
from penstock.cli.targets import Target, server_url


def cli(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND [WORD]...]", help="Command to send. Default: start a prompt, or read commands from stdin."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("-h", "--host", help="Host of the server. [127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", min=1, max=65_535, help="Port of the server. [7711]")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "-u", "--url", help="URL of the server: penstock://user:password@host:port?tls=1. [env: PENSTOCK_URL]"
        ),
    ] = None,
    password: Annotated[
        str,
        typer.Option(
            "-a",
            "--password",
            envvar="PENSTOCK_PASSWORD",
            show_envvar=True,
            help="Password. The process list shows this option to other users; the variable is not shown.",
        ),
    ] = "",
    user: Annotated[str, typer.Option("--user", help="User of the password. Default: the default user.")] = "",
    raw: Annotated[
        bool | None,
        typer.Option(
            "--raw/--no-raw", help="Print raw bytes, or values with their types. Default: --no-raw on a terminal."
        ),
    ] = None,
) -> None:
    """Send raw protocol commands to a server: one from the shell, many from stdin, or at a prompt with completion.

    Exit codes: 1 if a command was refused, 4 if authentication failed or is missing, 75 if the server is unreachable.
    """
    from penstock.cli.console.command_runner import CommandRunner
    from penstock.cli.console.reply_formats import format_raw, format_text
    from penstock.client.url import address, target

    if (host or port) and url:
        fail("use either -h and -p, or --url", USAGE)
    if host or port:
        url = f"penstock://{address((host or '127.0.0.1').strip('[]'), port or 7711)}"
    found = target(server_url(Target(url=url)))
    server = replace(
        found,
        seeds=found.seeds[:1],
        user=user or found.user,
        password=os.fsencode(password) or found.password,
    )
    is_raw = not sys.stdout.isatty() if raw is None else raw
    runner = CommandRunner(server, format_raw if is_raw else format_text)
    try:
        if words:
            runner.run(words)
        elif sys.stdin.isatty():
            # Imported here, because only the prompt needs readline and not every Python has it.
            from penstock.cli.console.prompt import Prompt

            Prompt(runner).run()
            return
        else:
            runner.run_lines(line.decode("utf-8", "surrogateescape") for line in sys.stdin.buffer)
    finally:
        runner.close()
    raise typer.Exit(REFUSED if runner.is_unauthenticated else ERROR if runner.failed else 0)
