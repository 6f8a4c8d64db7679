"""The rounds of the loop: a turn ends with the round that it began in, and another round may follow at once. Compiled.

To be woken takes a process tens of microseconds, on a virtual machine up to a hundred, and whoever wakes it pays as
much again: several times what a command costs. So after a turn the loop looks for more without sleeping, for as long as
is set, where that lately paid: as KVM does for processors, it learns that from the last pause. One that was shorter
than the moment would have been slept through in vain; after a longer one the loop goes to sleep at once, so a server
with nothing to do does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mypy_extensions import i64


class Linger:
    """When a turn ends, and whether a loop that has nothing to do goes to sleep."""

    moment_ns: i64  # For how long it stays awake; 0 for not at all.
    _loop: asyncio.AbstractEventLoop
    _end_turn: Callable[[], None]
    _clock_ns: Callable[[], int]  # Any clock that goes on.
    _pays: bool  # The last pause was short.
    _awake: bool  # The loop is not let sleep.
    _in_turn: bool
    _ended: i64  # When the last turn did.

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end_turn: Callable[[], None],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Take what ends a turn; it may begin the next one, which then ends with the next round."""
        self.moment_ns = 0
        self._loop = loop
        self._end_turn = end_turn
        self._clock_ns = clock_ns
        self._pays = False
        self._awake = False
        self._in_turn = False
        self._ended = 0
        self._on_round = self._come_round  # Made once: the loop is handed it again and again.

    def turn_begins(self) -> None:
        """Something came."""
        self._in_turn = True
        if not self._awake:
            self._awake = True
            self._pays = self._pause_ns() < self.moment_ns
            self._loop.call_soon(self._on_round)

    def _come_round(self) -> None:
        """The loop has looked for more: end the turn, and let it look again, or sleep."""
        if self._in_turn:
            self._in_turn = False
            try:
                self._end_turn()
            finally:
                self._ended = self._clock_ns()
                self._go_on(self._in_turn or self._pays)
        else:
            self._go_on(self._pause_ns() < self.moment_ns)

    def _go_on(self, awake: bool) -> None:
        self._awake = awake
        if awake:
            self._loop.call_soon(self._on_round)

    def _pause_ns(self) -> i64:
        now: i64 = self._clock_ns()
        return now - self._ended
