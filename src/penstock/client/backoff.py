"""How long to wait before a server that is gone is looked for again."""

from __future__ import annotations

import random
import time
from typing import Final

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 2.0


class Backoff:
    """The pauses of one search: longer each time, never longer in all than the patience, and different in each client,
    so that a server which comes back is not met by all of them at once."""

    def __init__(self, patience_s: float | None) -> None:
        self._until = None if patience_s is None else time.monotonic() + patience_s
        self._pause_s = _FIRST_S

    def pause(self) -> float | None:
        """How long to sleep before the next try; None if there is to be none."""
        pause_s = random.uniform(0.5, 1.0) * self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        if self._until is None:
            return pause_s
        left_s = self._until - time.monotonic()
        return min(pause_s, left_s) if left_s > 0 else None
