"""DEBUG: commands for tests.

Without the setting `debug-commands`, remote clients are refused, and so are commands that stop the server.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

from penstock.server.commands.flush import flush
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import Refused

# Every subcommand, and its arguments.
SUBCOMMANDS: Final[dict[bytes, str]] = {
    b"FLUSHALL": "",
    b"SLEEP": "seconds",
    b"ERROR": "text",
    b"STRUCTSIZE": "",
    b"LOADAOF": "",
    b"RESTART": "[ms]",
    b"CRASH-AND-RECOVER": "[ms]",
    b"ASSERT": "",
    b"SEGFAULT": "",
    b"OOM": "",
}
_COUNTS: Final = {"": (0,), "seconds": (1,), "text": (1,), "[ms]": (0, 1)}
GRAMMAR: Final = " | ".join(f"{name.decode()} {words}".strip() for name, words in SUBCOMMANDS.items())

# Subcommands that stop the server.
_DANGEROUS: Final = frozenset([b"SEGFAULT", b"OOM", b"ASSERT", b"RESTART", b"CRASH-AND-RECOVER"])
_SLEEP_S_MAX: Final = 3_600.0


class Debugging:
    """The DEBUG commands."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._handlers: dict[bytes, Callable[[Connection, list[bytes]], None]] = {
            b"FLUSHALL": lambda caller, _: flush(self._server, caller),
            b"SLEEP": self._sleep,
            b"ERROR": lambda caller, words: caller.reply.error(words[0]),
            b"STRUCTSIZE": lambda caller, _: caller.reply.simple(b"job:400"),
            # Disque reloads its AOF. Here memory and journal always agree, so there is nothing to reload.
            b"LOADAOF": lambda caller, _: caller.reply.ok(),
            b"RESTART": lambda caller, words: self._restart(caller, words, False),
            b"CRASH-AND-RECOVER": lambda caller, words: self._restart(caller, words, True),
            b"ASSERT": lambda _caller, _words: os.kill(os.getpid(), signal.SIGABRT),
            b"SEGFAULT": lambda _caller, _words: os.kill(os.getpid(), signal.SIGKILL),
            b"OOM": lambda _caller, _words: os.kill(os.getpid(), signal.SIGKILL),
        }
        assert self._handlers.keys() == SUBCOMMANDS.keys()

    def debug(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run DEBUG subcommand [words]. Raise Refused if it is not allowed."""
        word, words = args[1].upper(), args[2:]
        allowed = self._server.config.debug_commands
        if not caller.is_local and not allowed:
            raise Refused(b"NOPERM DEBUG is for clients on the server's own machine; see debug-commands")
        if word in _DANGEROUS and not allowed:
            raise Refused(b"NOPERM DEBUG " + word + b" stops the server; start it with debug-commands yes to allow it")
        if word not in SUBCOMMANDS or len(words) not in _COUNTS[SUBCOMMANDS[word]]:
            raise Refused(b"ERR Unknown DEBUG subcommand or wrong number of arguments for '" + args[1][:64] + b"'")
        self._handlers[word](caller, words)

    def _sleep(self, caller: Connection, words: list[bytes]) -> None:
        time.sleep(_seconds(words[0], 1))
        caller.reply.ok()

    def _restart(self, caller: Connection, words: list[bytes], crash: bool) -> None:
        self._server.restart(crash, _seconds(words[0], 1_000) if words else 0.0)
        caller.reply.ok()


def _seconds(text: bytes, per_second: int) -> float:
    try:
        seconds = float(text) / per_second
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _SLEEP_S_MAX:
        raise Refused(b"ERR value is not a valid float")
    return seconds
