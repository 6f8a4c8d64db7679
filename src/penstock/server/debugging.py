"""DEBUG: what testing needs. Only from this machine; what ends the process, only where the configuration allows it."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from penstock.server.connection import Connection
from penstock.server.flushing import flush
from penstock.server.server import Server
from penstock.wire.errors import Refused

# What stops the server, or parts of it.
_DANGEROUS: Final = frozenset([b"SEGFAULT", b"OOM", b"ASSERT", b"RESTART", b"CRASH-AND-RECOVER"])
_SLEEP_S_MAX: Final = 3_600.0


class Debugging:
    """DEBUG"""

    def __init__(self, server: Server) -> None:
        self._server = server

    def debug(self, caller: Connection, args: list[bytes], now: int) -> None:
        """DEBUG FLUSHALL | SLEEP seconds | ERROR text | STRUCTSIZE | LOADAOF | INVARIANTS …"""
        word = args[1].upper()
        allowed = self._server.config.debug_commands
        if not caller.is_local and not allowed:
            raise Refused(b"NOPERM DEBUG is for clients on the server's own machine; see debug-commands")
        if word in _DANGEROUS and not allowed:
            raise Refused(b"NOPERM DEBUG " + word + b" stops the server; start it with debug-commands yes to allow it")
        if word == b"FLUSHALL" and len(args) == 2:
            flush(self._server, caller)
        elif word == b"SLEEP" and len(args) == 3:
            time.sleep(_seconds(args[2]))
            caller.reply.ok()
        elif word == b"ERROR" and len(args) == 3:
            caller.reply.error(args[2])
        elif word == b"LOADAOF" and len(args) == 2:
            # Disque reads its file again, which changes nothing it did not forget; the journal forgets nothing.
            caller.reply.ok()
        elif word == b"STRUCTSIZE" and len(args) == 2:
            caller.reply.simple(b"job:400")
        elif word in (b"SEGFAULT", b"ASSERT", b"OOM"):
            os.kill(os.getpid(), signal.SIGABRT if word == b"ASSERT" else signal.SIGKILL)
        elif word in (b"RESTART", b"CRASH-AND-RECOVER") and len(args) <= 3:
            delay = _seconds(args[2]) / 1000 if len(args) == 3 else 0.0
            self._server.restart(crash=word != b"RESTART", delay_s=delay)
            caller.reply.ok()
        else:
            raise Refused(b"ERR Unknown DEBUG subcommand or wrong number of arguments for '" + args[1][:64] + b"'")


def _seconds(text: bytes) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _SLEEP_S_MAX:
        raise Refused(b"ERR value is not a valid float")
    return seconds
