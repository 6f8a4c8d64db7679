"""Which commands there are, for those who want to know without a server: the documentation, and a prompt's help."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.dialects.command import Command
from penstock.host import Host
from penstock.server.config import load
from penstock.server.server import Server
from penstock.server.table import install


def commands() -> list[Command]:
    """Every row of the table, as a server that is started with nothing would have it."""
    loop = asyncio.new_event_loop()
    try:
        server = Server(load(None, [], {}, Path()), Host(0), loop)
        install(server)
    finally:
        loop.close()
    return list(server.desk.commands.values())
