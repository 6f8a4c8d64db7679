"""CONFIG: what the server was told, and telling it otherwise while it runs."""

from __future__ import annotations

from penstock.core.errors import CommandError
from penstock.server.config import BadValue, UnknownSetting
from penstock.server.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import Refused


class ConfigCommands:
    """CONFIG"""

    def __init__(self, server: Server) -> None:
        self._server = server

    def config(self, caller: Connection, args: list[bytes], now: int) -> None:
        """CONFIG GET pattern | SET name value | RESETSTAT | REWRITE"""
        word = args[1].upper()
        wanted = {b"GET": 3, b"SET": 4, b"RESETSTAT": 2, b"REWRITE": 2}.get(word)
        if wanted is None:
            raise Refused(b"ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")
        if len(args) != wanted:
            raise Refused(b"ERR Wrong number of arguments for CONFIG " + args[1])
        if word == b"GET":
            self._get(caller, args[2].decode("utf-8", "replace").lower())
            return
        if word == b"SET":
            self._set(args[2].decode("utf-8", "replace"), args[3].decode("utf-8", "surrogateescape"))
        elif word == b"RESETSTAT":
            self._server.reset_statistics()
        else:
            self._rewrite()
        caller.reply.ok()

    def _get(self, caller: Connection, pattern: str) -> None:
        shown = self._server.config.shown(pattern)
        caller.reply.map(len(shown))
        for name, value in shown:
            caller.reply.bulk(name.encode())
            caller.reply.bulk(value.encode("utf-8", "surrogateescape"))

    def _set(self, name: str, value: str) -> None:
        config = self._server.config
        before = config.shown(name.lower())
        try:
            setting = config.change(name, value)
        except UnknownSetting:
            raise Refused(b"ERR Unsupported CONFIG parameter: " + name.encode()[:64]) from None
        except BadValue:
            raise Refused(f"ERR Invalid argument '{value[:64]}' for CONFIG SET '{name[:64]}'".encode()) from None
        try:
            self._server.apply(setting.name)
        except CommandError:
            # What cannot be done does not stand in the configuration.
            for directive, text in before:
                config.change(directive, text)
            raise

    def _rewrite(self) -> None:
        if self._server.config.file is None:
            raise Refused(b"ERR The server is running without a config file")
        self._server.rewrite_config()
