"""BGREWRITEAOF, SHUTDOWN and LOADJOB: Disque's commands about persistence."""

from __future__ import annotations

from penstock.core.errors import CommandError
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import SYNTAX, Refused


class Persistence:
    """The persistence commands. The journal takes the place of Disque's AOF."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def bgrewriteaof(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run BGREWRITEAOF: start a snapshot in the background, so that older rows of the log can be removed."""
        if self._server.rewriting:
            raise Refused(b"ERR Background append only file rewriting already in progress")
        self._server.rewrite_in_background()
        caller.reply.simple(b"Background append only file rewriting started")

    def shutdown(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run SHUTDOWN [REWRITE-AOF]: stop the server."""
        if len(args) > 2 or (len(args) == 2 and args[1].upper() != b"REWRITE-AOF"):
            raise Refused(SYNTAX)
        if len(args) == 2:
            try:
                self._server.keep_memory()
            except (CommandError, OSError) as error:
                # The caller asked to keep the jobs in memory, so the server goes on.
                self._server.log.warning("shutdown refused, because the jobs cannot be saved: error=%s", error)
                raise Refused(b"ERR Errors trying to SHUTDOWN. Check logs.") from None
        caller.busy = True
        self._server.log.info("shutdown started: command=SHUTDOWN address=%s", caller.address)
        self._server.stop()

    def loadjob(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Refuse LOADJOB: it is a line of Disque's AOF, not a command for clients."""
        raise Refused(b"ERR LOADJOB is a special command only processed from AOF")
