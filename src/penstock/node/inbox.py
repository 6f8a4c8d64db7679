"""The inbox of a RESP client: bytes that are not parsed yet and commands that are not run yet, in order of arrival."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.node.caller import ANSWERS_BYTES_MAX, Caller
from penstock.node.dispatch import Dispatcher
from penstock.wire.resp import RespParser

# Reasons why `Inbox.run` returned.
ALL_RUN: Final = 0  # Nothing is left.
PART_LEFT: Final = 1  # An incomplete command is left, or a protocol error.
MORE_LEFT: Final = 2  # The limit of one turn is reached.
STOPPED: Final = 3  # The client has to wait, or its connection is to be closed.

_NONE: Final[list[list[bytes]]] = []


class Inbox:
    """The commands of one client that are not run yet."""

    parser: RespParser
    ran: bool  # The last `run` found at least one complete command.
    _commands: list[list[bytes]]  # Parsed commands.
    _at: i64  # The index of the next command to run.

    def __init__(self, parser: RespParser) -> None:
        self.parser = parser
        self.ran = False
        self._commands = []
        self._at = 0

    def run(self, desk: Dispatcher, caller: Caller, budget: i64, now: i64) -> i64:
        """Run up to `budget` commands of the client. Return a code that says why it stopped."""
        parser = self.parser
        self.ran = False
        while caller.wait is None and not caller.busy and not caller.closing:
            is_through = self._at == len(self._commands)
            if is_through and self.ran and not parser.is_unfinished() and not parser.error:
                return ALL_RUN
            if budget <= 0 or caller.reply.length + caller.sending > ANSWERS_BYTES_MAX:
                return MORE_LEFT
            if is_through:
                # Limits rise after AUTH, so one command is parsed at a time until the client is authenticated.
                self._commands = parser.parse(budget if caller.is_authenticated else 1)
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
                # Free the words now, because a client that sent a long command may be idle for days.
                self._commands = _NONE
                self._at = 0
        return STOPPED
