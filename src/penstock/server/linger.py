"""The rounds of the event loop: when a turn ends, and whether the loop sleeps afterwards. Compiled.

A turn ends at the end of the round in which it began. Waking a sleeping process takes tens of microseconds, and up to a
hundred on a virtual machine. The process that wakes it spends as much. This is several times the cost of a command. So
after a turn the loop can poll for more work, without sleeping, for the time of the setting `linger`.

The loop polls if the last pause between two turns was shorter than `linger`. If it was longer, the loop sleeps
immediately, so an idle server uses no processor. KVM uses the same rule for halted processors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mypy_extensions import i64


class Linger:
    """Ends turns, and decides whether an idle loop goes to sleep."""

    linger_ns: i64  # The time to stay awake; 0 never stays awake.
    _loop: asyncio.AbstractEventLoop
    _end_turn: Callable[[], None]
    _clock_ns: Callable[[], int]  # A monotonic clock.
    _last_pause_was_short: bool  # The last pause was short.
    _awake: bool  # The loop polls instead of sleeping.
    _in_turn: bool
    _ended: i64  # The time at which the last turn ended.

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end_turn: Callable[[], None],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Create the object. `end_turn` ends a turn. It can begin another turn, which ends with the next round."""
        self.linger_ns = 0
        self._loop = loop
        self._end_turn = end_turn
        self._clock_ns = clock_ns
        self._last_pause_was_short = False
        self._awake = False
        self._in_turn = False
        self._ended = 0
        self._on_round = self._come_round  # Bound once, because it is scheduled very often.

    def turn_begins(self) -> None:
        """Record that a turn has begun, and schedule its end."""
        self._in_turn = True
        if not self._awake:
            self._awake = True
            self._last_pause_was_short = self._pause_ns() < self.linger_ns
            self._loop.call_soon(self._on_round)

    def _come_round(self) -> None:
        """End the turn after the loop has read all ready sockets. Then poll again, or let the loop sleep."""
        if self._in_turn:
            self._in_turn = False
            try:
                self._end_turn()
            finally:
                self._ended = self._clock_ns()
                self._go_on(self._in_turn or self._last_pause_was_short)
        else:
            self._go_on(self._pause_ns() < self.linger_ns)

    def _go_on(self, awake: bool) -> None:
        self._awake = awake
        if awake:
            self._loop.call_soon(self._on_round)

    def _pause_ns(self) -> i64:
        now: i64 = self._clock_ns()
        return now - self._ended
