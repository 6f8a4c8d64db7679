"""The inbox of a client: bytes that are not parsed yet and commands that are not run yet, in order of arrival.

All that depends on the client's protocol is here: how its bytes are parsed, how its commands are run, and the form of
its errors. `RespInbox` is for RESP. The inbox of IPROTO is in `dialects/tarantool/calls.py`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster import messages as m
from penstock.core.errors import PenstockError
from penstock.core.waits import Waiting
from penstock.node.caller import ANSWERS_BYTES_MAX, Caller
from penstock.node.dispatch import Dispatcher
from penstock.wire.input_buffer import RequestBuffer
from penstock.wire.resp import RespParser

# Reasons why `Inbox.run` returned. With MORE_LEFT and STOPPED, complete commands can be left.
ALL_RUN: Final = 0  # Nothing is left.
PART_LEFT: Final = 1  # An incomplete command is left, or a protocol error.
MORE_LEFT: Final = 2  # The limit of one turn is reached.
STOPPED: Final = 3  # The client has to wait, or its connection is to be closed.

_NONE: Final[list[list[bytes]]] = []


class Inbox:
    """The commands of one client that are not run yet."""

    buffer: RequestBuffer  # The parser.
    ran: bool  # The last `run` found at least one complete command.
    _count: i64  # The number of parsed commands.
    _at: i64  # The index of the next one to run.

    def __init__(self, buffer: RequestBuffer) -> None:
        self.buffer = buffer
        self.ran = False
        self._count = 0
        self._at = 0

    def run(self, caller: Caller, budget: i64, now: i64) -> i64:
        """Run up to `budget` commands of the client. Return a code that says why it stopped."""
        buffer = self.buffer
        self.ran = False
        while caller.wait is None and not caller.busy and not caller.closing:
            is_through = self._at == self._count
            if is_through and self.ran and not buffer.is_unfinished() and not buffer.error:
                return ALL_RUN
            if budget <= 0 or caller.reply.length + caller.sending > ANSWERS_BYTES_MAX:
                return MORE_LEFT
            if is_through:
                # Limits rise after AUTH, so one command is parsed at a time until the client is authenticated.
                self._count = self.parse(budget if caller.is_authenticated else 1)
                self._at = 0
                if self._count == 0:
                    if buffer.has_more:
                        return MORE_LEFT
                    return PART_LEFT if buffer.is_unfinished() or buffer.error else ALL_RUN
                self.ran = True
            before = self._at
            self._at = self.run_parsed(caller, before, now)
            if self._at == before:
                return STOPPED
            budget -= self._at - before
            if self._at == self._count:
                self.free_parsed()
                self._count = 0
                self._at = 0
        return STOPPED

    def parse(self, most: i64) -> i64:
        """Parse up to `most` commands. Return how many were complete."""
        raise NotImplementedError

    def run_parsed(self, caller: Caller, start: i64, now: i64) -> i64:
        """Run parsed commands, starting at index `start`, until the caller waits. Return the index of the next one."""
        raise NotImplementedError

    def free_parsed(self) -> None:
        """Free the contents of the commands that ran, because a client that sent a long one may be idle for days."""
        raise NotImplementedError

    def end_wait(self, caller: Caller, wait: Waiting, now: i64, refusal: bytes) -> None:
        """Write the reply of a command whose wait has ended, or the RESP error line `refusal` if it is not empty."""
        raise NotImplementedError

    def protocol(self, caller: Caller) -> i64:
        """Return the protocol of the client: RESP_2, RESP_3, IPROTO or IPROTO_15 of cluster/messages.py."""
        raise NotImplementedError

    def refuse_call(self, caller: Caller, sync: i64, refusal: PenstockError) -> None:
        """Write an error as the reply of the call with the number `sync`. Only IPROTO has such numbers."""
        raise NotImplementedError

    def refuse_bytes(self, caller: Caller, why: bytes) -> None:
        """Write an error reply, because the client has sent malformed bytes. Its later bytes are not read."""
        raise NotImplementedError

    def refusal(self, line: bytes) -> bytes:
        """Return the reply to a client that is not allowed to stay connected. `line` is a RESP error line."""
        raise NotImplementedError


class RespInbox(Inbox):
    """The inbox of a RESP client."""

    _parser: RespParser
    _dispatcher: Dispatcher
    _commands: list[list[bytes]]

    def __init__(self, parser: RespParser, dispatcher: Dispatcher) -> None:
        super().__init__(parser)
        self._parser = parser
        self._dispatcher = dispatcher
        self._commands = _NONE

    def parse(self, most: i64) -> i64:
        self._commands = self._parser.parse(most)
        return len(self._commands)

    def run_parsed(self, caller: Caller, start: i64, now: i64) -> i64:
        return self._dispatcher.run_all(caller, self._commands, start, now)

    def free_parsed(self) -> None:
        self._commands = _NONE

    def end_wait(self, caller: Caller, wait: Waiting, now: i64, refusal: bytes) -> None:
        self._dispatcher.end_wait(caller, wait, now, refusal)

    def protocol(self, caller: Caller) -> i64:
        return m.RESP_3 if caller.reply.resp3 else m.RESP_2

    def refuse_bytes(self, caller: Caller, why: bytes) -> None:
        caller.reply.error(b"ERR " + why)

    def refusal(self, line: bytes) -> bytes:
        return line
