"""The ballast: a file of nothing that is thrown overboard when the disk is full.

What would make room on a full disk needs room itself: a snapshot, and the segment that it begins. A queue whose jobs
were all taken and acked would be full for ever. So some room is kept for that, by a file that can be removed.
"""

from __future__ import annotations

import contextlib
from typing import Final

from penstock.journal.disk import Disk

BALLAST_BYTES: Final = 4 * 1024 * 1024
_NAME: Final = "ballast"


def take_on(disk: Disk) -> None:
    """Have the ballast, if there is room for it."""
    with contextlib.suppress(OSError):
        if _NAME not in disk.names():
            disk.create(_NAME, BALLAST_BYTES, b"").close()


def room(disk: Disk) -> int:
    """How many bytes there are on the disk for what makes room, the ballast's among them."""
    return disk.free() + (BALLAST_BYTES if _NAME in disk.names() else 0)


def throw_off(disk: Disk) -> None:
    """Let its room be used."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(_NAME)
