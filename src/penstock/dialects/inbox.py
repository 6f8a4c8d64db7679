"""What one client has sent over RESP and was not run yet: bytes, then commands, in the order in which they came."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.dialects.command import ANSWERS_BYTES_MAX, Caller, Desk
from penstock.wire.resp import RespParser

# Why running what a client has sent came to its end.
ALL_RUN: Final = 0  # Nothing is left.
PART_LEFT: Final = 1  # A command that is not complete is left, or a mistake.
MORE_LEFT: Final = 2  # As much was run as one turn may.
STOPPED: Final = 3  # The client has to wait, or is to be closed.

_NONE: Final[list[list[bytes]]] = []


class Inbox:
    """The commands of one client that wait to be run."""

    parser: RespParser
    ran: bool  # Commands were complete when it was run last.
    _commands: list[list[bytes]]  # Those that were parsed,
    _at: i64  # and how many of them were run.

    def __init__(self, parser: RespParser) -> None:
        self.parser = parser
        self.ran = False
        self._commands = []
        self._at = 0

    def run(self, desk: Desk, caller: Caller, budget: i64, now: i64) -> i64:
        """Run what its client has sent, no more than so many commands; tell why that ended."""
        parser = self.parser
        self.ran = False
        while caller.wait is None and not caller.busy and not caller.closing:
            is_through = self._at == len(self._commands)
            if is_through and self.ran and not parser.is_unfinished() and not parser.error:
                return ALL_RUN
            if budget <= 0 or caller.reply.length + caller.sending > ANSWERS_BYTES_MAX:
                return MORE_LEFT
            if is_through:
                # What may stand behind a password depends on the password, so of one unknown it is read one by one.
                self._commands = parser.parse(budget if caller.known else 1)
                self._at = 0
                if not self._commands:
                    if parser.has_more:
                        return MORE_LEFT
                    return PART_LEFT if parser.is_unfinished() or parser.error else ALL_RUN
                self.ran = True
            before = self._at
            self._at = desk.run_all(caller, self._commands, before, now)
            budget -= self._at - before
            if self._at == len(self._commands):
                # Their words are not kept: who has sent something long may be silent for days.
                self._commands = _NONE
                self._at = 0
        return STOPPED
