"""Lists all commands without a running server, for the documentation and the help of `penstock cli`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.host.host import Host
from penstock.node.dispatch import Command
from penstock.server.commands.command_table import install
from penstock.server.commands.function_table import function_rows
from penstock.server.commands.native_table import native_rows
from penstock.server.commands.pipeline_table import pipeline_rows
from penstock.server.commands.token_table import token_rows
from penstock.server.config.configuration import load
from penstock.server.server import Server


def tables() -> tuple[list[Command], list[Command]]:
    """Return all RESP commands in two lists: those of Disque and the server, and Penstock's own.

    A family of commands, such as TUBE, is expanded to its subcommands.
    """
    loop = asyncio.new_event_loop()
    try:
        server = Server(load(None, [], {}, Path()), Host(0), loop)
        install(server)
        rows = [*native_rows(server), *pipeline_rows(server), *token_rows(server), *function_rows(server)]
        native = {row.name.partition(b" ")[0] for row in rows}
    finally:
        loop.close()
    known = server.dispatcher.commands
    own = [member for name in known if name in native for member in known[name].members or [known[name]]]
    return [command for name, command in known.items() if name not in native], own
