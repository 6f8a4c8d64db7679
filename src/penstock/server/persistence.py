"""BGREWRITEAOF, SHUTDOWN and LOADJOB: what Disque's clients say about the disk."""

from __future__ import annotations

from penstock.core.errors import CommandError
from penstock.server.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import SYNTAX, Refused


class Persistence:
    """The commands about the journal, which stands where Disque has its AOF."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def bgrewriteaof(self, caller: Connection, args: list[bytes], now: int) -> None:
        """BGREWRITEAOF: take a snapshot, so that what is behind it need not be kept."""
        if self._server.rewriting:
            raise Refused(b"ERR Background append only file rewriting already in progress")
        self._server.rewrite_in_background()
        caller.reply.simple(b"Background append only file rewriting started")

    def shutdown(self, caller: Connection, args: list[bytes], now: int) -> None:
        """SHUTDOWN [REWRITE-AOF]"""
        if len(args) > 2 or (len(args) == 2 and args[1].upper() != b"REWRITE-AOF"):
            raise Refused(SYNTAX)
        if len(args) == 2:
            try:
                self._server.keep_memory()
            except (CommandError, OSError) as error:
                # Whoever asked for it must not lose it: the server goes on.
                self._server.log.warning("what is in memory cannot be kept, so the server does not stop: %s", error)
                raise Refused(b"ERR Errors trying to SHUTDOWN. Check logs.") from None
        caller.busy = True
        self._server.log.info("SHUTDOWN from %s: stopping", caller.address)
        self._server.stop()

    def loadjob(self, caller: Connection, args: list[bytes], now: int) -> None:
        """LOADJOB is a line of Disque's AOF, not a command for clients."""
        raise Refused(b"ERR LOADJOB is a special command only processed from AOF")
