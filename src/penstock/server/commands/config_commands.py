"""CONFIG: show and change the configuration at run time."""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.server.commands.info_command import Info
from penstock.server.config.configuration import BadValue, UnknownSetting
from penstock.server.config.words import to_bytes, to_text
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import Refused


class ConfigCommands:
    """The CONFIG commands."""

    def __init__(self, server: Server, info: Info) -> None:
        self._server = server
        self._info = info

    def config(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run CONFIG GET pattern | SET name value | RESETSTAT | REWRITE: show, change or save settings."""
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
            self._set(caller, args[2], args[3])
        elif word == b"RESETSTAT":
            self._server.reset_statistics()
            self._info.forget_rates()
        else:
            self._rewrite()
        caller.reply.ok()

    def _get(self, caller: Connection, pattern: str) -> None:
        shown = self._server.config.matching(pattern)
        caller.reply.map(len(shown))
        for name, value in shown:
            caller.reply.bulk(name.encode())
            caller.reply.bulk(to_bytes(value))

    def _set(self, caller: Connection, name: bytes, value: bytes) -> None:
        config = self._server.config
        undo = config.restorer(to_text(name))
        try:
            setting = config.change(to_text(name), to_text(value))
        except UnknownSetting:
            raise Refused(b"ERR Unsupported CONFIG parameter: " + name[:64]) from None
        except BadValue:
            raise Refused(b"ERR Invalid argument '%s' for CONFIG SET '%s'" % (value[:64], name[:64])) from None
        try:
            self._server.apply(setting.name, caller)
        except (PenstockError, OSError) as error:
            # A change that cannot be applied is undone.
            undo()
            if isinstance(error, OSError):
                raise Refused(b"ERR " + str(error).encode("utf-8", "backslashreplace")) from None
            raise

    def _rewrite(self) -> None:
        if self._server.config.file is None:
            raise Refused(b"ERR The server is running without a config file")
        self._server.rewrite_config()
