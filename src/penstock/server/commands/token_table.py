"""The rows of the command table for tokens."""

from __future__ import annotations

from penstock.node.dispatch import Command
from penstock.server.commands.native_table import command
from penstock.server.commands.token_commands import TokenCommands
from penstock.server.server import Server


def token_rows(server: Server) -> list[Command]:
    tokens = TokenCommands(server)
    return [
        command(
            *("token create -2 rF all", "[TTL d] [COMMANDS class,...] [TUBES pattern,...] [NAME text]"),
            *("Create a token that logs clients in as this user. Return it.", tokens.create),
        ),
        command(
            *("token info -2 rF all", "[token]"),
            *("Describe a token, or the rights of this connection.", tokens.info),
        ),
    ]
