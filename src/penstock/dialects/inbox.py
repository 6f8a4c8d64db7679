"""What one client has sent over RESP and was not run yet: bytes, then commands, in the order in which they came."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.dialects.command import ANSWERS_BYTES_MAX, Caller, Desk
from penstock.wire.resp import RespParser

# Why running what a client has sent came to its end.
ALL_RUN: Final = 0  # Nothing is left.
PART_LEFT: Final = 1  # A command that is not complete is left, or a mistake; and nothing was run before it.
NEW_PART_LEFT: Final = 2  # The same, behind commands that were run.
MORE_LEFT: Final = 3  # As many commands were run as may be.
STOPPED: Final = 4  # The client has to wait, or is to be closed.


class Inbox:
    """The commands of one client that wait to be run."""

    parser: RespParser
    _commands: list[list[bytes]]  # Those that were parsed,
    _at: i64  # and how many of them were run.

    def __init__(self, parser: RespParser) -> None:
        self.parser = parser
        self._commands = []
        self._at = 0

    def run(self, desk: Desk, caller: Caller, budget: i64, now: i64) -> i64:
        """Run what its client has sent, no more than so many commands; tell why that ended."""
        parser = self.parser
        ran = False
        while caller.wait is None and not caller.busy and not caller.closing:
            if self._at == len(self._commands) and ran and parser.pending() == 0 and not parser.error:
                return ALL_RUN
            if budget <= 0 or caller.reply.length + caller.sending > ANSWERS_BYTES_MAX:
                return MORE_LEFT
            if self._at == len(self._commands):
                self._commands = parser.parse(budget)
                self._at = 0
                if not self._commands:
                    if parser.pending() == 0 and not parser.error:
                        return ALL_RUN
                    return NEW_PART_LEFT if ran else PART_LEFT
            before = self._at
            self._at = desk.run_all(caller, self._commands, before, now)
            budget -= self._at - before
            ran = True
        return STOPPED
