"""How long to wait before a server that is gone is tried again, and how long a call may take."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.core.limits import NEVER

if TYPE_CHECKING:
    from penstock.client.commands import Call

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 2.0

# A call that waits has this much time beyond its timeout, for the server's answer, and to make a connection. If that is
# not enough for the answer, because the server is slow and not gone, the next call has twice as much.
MARGIN_S: Final = 1.0


class Backoff:
    """The pauses of one search. Each is longer than the one before, and all of them end after `patience_s`, and at
    `until`. Clients pause differently long, so that not all of them meet a server at the moment when it is back."""

    def __init__(self, patience_s: float | None, until: float = math.inf) -> None:
        self._until = until if patience_s is None else min(until, time.monotonic() + patience_s)
        self._pause_s = _FIRST_S

    def pause(self) -> float | None:
        """Return how long to sleep before the next try; None if there is to be none."""
        pause_s = random.uniform(0.5, 1.0) * self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        left_s = self._until - time.monotonic()
        return min(pause_s, left_s) if left_s > 0 else None


class Margin:
    """How long the answer to a call that waits may come after its timeout."""

    def __init__(self) -> None:
        self.seconds = MARGIN_S

    def missed(self) -> None:
        """The answer did not come. Perhaps the server is slow: then jobs would go back and forth for ever."""
        self.seconds *= 2

    def met(self) -> None:
        """The answer came in time."""
        self.seconds = MARGIN_S


class Deadline:
    """The end of a call on the monotonic clock; infinity if the call has no timeout."""

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until = until

    def reconnecting(self) -> None:
        """Record that the connection was lost."""


def end_of(call: Call[Any]) -> float:
    """Return when the timeout of a call is over, on the monotonic clock; infinity if it has none."""
    if not call.timeout_at or call.wait_ms in (0, NEVER):
        return math.inf
    return time.monotonic() + call.wait_ms / 1000
