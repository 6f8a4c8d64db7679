"""Which commands there are, for those who want to know without a server: the documentation, and a prompt's help."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.dialects.command import Command
from penstock.host import Host
from penstock.server.config import load
from penstock.server.native_table import native_rows
from penstock.server.server import Server
from penstock.server.table import install


def commands() -> list[Command]:
    """Every command, as a server that is started with nothing would have it; a family is one."""
    return list(_server().desk.commands.values())


def tables() -> tuple[list[Command], list[Command]]:
    """The commands of Disque and of the server; and our own, each member of a family by itself."""
    server = _server()
    known = server.desk.commands
    native = {name.partition(" ")[0].encode() for name, *_ in native_rows(server)}
    own = [member for name in known if name in native for member in known[name].members or [known[name]]]
    return [command for name, command in known.items() if name not in native], own


def _server() -> Server:
    loop = asyncio.new_event_loop()
    try:
        server = Server(load(None, [], {}, Path()), Host(0), loop)
        install(server)
    finally:
        loop.close()
    return server
