"""The reachability of the servers that one URL names. This records and logs when none of them answers.

All sessions that come from one `connect` share a `Reachability`, so the loss of a server is logged once. A server
counts as lost when it does not answer in time, or when a client that was connected can reach no address of the URL.
A connection that is lost and made again immediately is not logged.
"""

from __future__ import annotations

import logging
import time
from typing import Final

_log = logging.getLogger("penstock")

# This many losses are logged, and then one in every interval.
_LOGGED_MAX: Final = 10
_LOG_INTERVAL_S: Final = 10.0


class Reachability:
    """The reachability of the servers of one target."""

    __slots__ = ("_address", "_is_logged", "_may_log", "_may_log_at", "_not_logged", "_was_found", "lost_at")

    def __init__(self, address: str) -> None:
        self._address = address
        self.lost_at: float | None = None  # Since when no server answers; None: one does.
        self._may_log = float(_LOGGED_MAX)  # How many losses could be logged at `_may_log_at`.
        self._may_log_at = 0.0  # The time at which `_may_log` was computed.
        self._is_logged = False  # Whether the present loss was logged. If so, its end is logged, too.
        self._not_logged = 0
        self._was_found = False

    def lost(self, why: Exception) -> None:
        """Record that no server answers."""
        if self.lost_at is not None:
            return
        now = self.lost_at = time.monotonic()
        self._may_log = min(_LOGGED_MAX, self._may_log + (now - self._may_log_at) / _LOG_INTERVAL_S)
        self._may_log_at = now
        self._is_logged = self._may_log >= 1
        if not self._is_logged:
            self._not_logged += 1
            return
        event = "server lost" if self._was_found else "server not reachable yet"
        more = f" not_logged={self._not_logged}" if self._not_logged else ""
        _log.warning("%s: address=%s error=%r%s", event, self._address, str(why), more)
        self._may_log -= 1
        self._not_logged = 0

    def found(self, address: str) -> None:
        """Record that the server at an address answers."""
        lost_at, self.lost_at = self.lost_at, None
        if lost_at is not None and self._is_logged:
            event = "server back" if self._was_found else "server reached"
            _log.info("%s: address=%s after_s=%.1f", event, address, time.monotonic() - lost_at)
        self._was_found = True

    def is_gone(self, retry_s: float | None) -> bool:
        """Return whether no server has answered for longer than `retry_s`. If `retry_s` is None, return False."""
        lost_at = self.lost_at
        return retry_s is not None and lost_at is not None and time.monotonic() >= lost_at + retry_s
