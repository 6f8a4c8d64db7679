"""Time limits of a client: pauses between attempts to connect, and the deadlines of calls."""

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

# A call that waits has this much time beyond its timeout, for the reply and to make a connection. If the reply does not
# come in time, the next call has twice as much, because the server may be slow.
MARGIN_S: Final = 1.0


class Backoff:
    """The pauses between attempts to connect. Each is twice as long as the one before, with jitter.

    The attempts end after `patience_s` (None: never), or at the time `until`. Because of the jitter, many clients do
    not connect to a restarted server at the same moment.
    """

    def __init__(
        self,
        patience_s: float | None,
        until: float = math.inf,
        first_s: float = _FIRST_S,
        longest_s: float = _LONGEST_S,
    ) -> None:
        self._until = until if patience_s is None else min(until, time.monotonic() + patience_s)
        self._pause_s = first_s
        self._longest_s = longest_s

    def pause(self) -> float | None:
        """Return the seconds to wait before the next attempt, or None if no attempt is left."""
        pause_s = random.uniform(0.5, 1.0) * self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        left_s = self._until - time.monotonic()
        return min(pause_s, left_s) if left_s > 0 else None


class Margin:
    """The extra time that the reply to a waiting call may take after the timeout of the call."""

    def __init__(self) -> None:
        self.seconds = MARGIN_S

    def missed(self) -> None:
        """Double the margin, because a reply came too late.

        With a slow server and a fixed margin, every reply to a take could be too late, and its jobs would always be
        returned to their tubes.
        """
        self.seconds *= 2

    def met(self) -> None:
        """Reset the margin, because a reply came in time."""
        self.seconds = MARGIN_S


class Deadline:
    """The end of a call on the monotonic clock; infinity if the call has no timeout."""

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until = until

    def reconnecting(self) -> None:
        """Called when the connection of a call was lost and the call connects again. This base class does nothing."""


def end_of(call: Call[Any]) -> float:
    """Return the time on the monotonic clock at which the timeout of a call is over; infinity if it has none."""
    if not call.timeout_at or call.wait_ms in (0, NEVER):
        return math.inf
    return time.monotonic() + call.wait_ms / 1000
