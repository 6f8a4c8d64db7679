"""Where the log is synced: in the event loop while the disk is fast, otherwise in a thread.

A sync in the loop saves two thread switches. With 50 clients on a fast disk this is a third faster. On a slow disk, the
loop must not wait.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# A sync runs in the loop if syncs take no longer than this on average: a change of threads costs as much.
INLINE_MAX_S: Final = 0.0005

# A sync of more bytes than this takes longer than the average, so it runs in a thread.
INLINE_BYTES_MAX: Final = 256 * 1024

# The weight of the newest sync in the moving average.
_WEIGHT: Final = 0.2


class SyncPolicy:
    """Decides where to sync, by the average duration of a sync."""

    average_s: float  # A moving average.

    def __init__(self) -> None:
        self.average_s = 0.0

    def is_inline(self, unsynced_bytes: i64) -> bool:
        """Return whether a sync of this many bytes should run in the loop."""
        return self.average_s <= INLINE_MAX_S and unsynced_bytes <= INLINE_BYTES_MAX

    def record(self, seconds: float) -> None:
        """Update the average duration, because a sync has ended that took `seconds`."""
        self.average_s += _WEIGHT * (seconds - self.average_s)
