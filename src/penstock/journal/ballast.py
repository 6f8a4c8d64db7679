"""The ballast: a file of nothing that is thrown overboard when the disk is full.

What would make room on a full disk needs room itself: a snapshot, and the segment that it begins. A queue whose jobs
were all taken and acked would be full for ever. So some room is kept for that, by a file that can be removed.
"""

from __future__ import annotations

import contextlib
from typing import Final

from penstock.journal.disk import Disk

BALLAST_BYTES: Final = 4 * 1024 * 1024

# Where there is little room, it is smaller: a small segment and a snapshot of a few jobs fit in the least of them.
_SIZES: Final = (BALLAST_BYTES, BALLAST_BYTES // 2, BALLAST_BYTES * 5 // 16)

_NAME: Final = "ballast"


def take_on(disk: Disk, beside: int) -> None:
    """Have the ballast, if there is room for it; as large as leaves room for so many bytes beside, if it can."""
    if is_there(disk):
        return
    free = disk.free()
    for size in _SIZES:
        if free >= size + beside or size == _SIZES[-1]:
            with contextlib.suppress(OSError):
                disk.create(_NAME, size, b"").close()
            return


def is_there(disk: Disk) -> bool:
    """Whether there is one."""
    return _NAME in disk.names()


def room(disk: Disk) -> int:
    """How many bytes there are on the disk for what makes room, the ballast's among them."""
    return disk.free() + (disk.size(_NAME) if is_there(disk) else 0)


def throw_off(disk: Disk) -> None:
    """Let its room be used."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(_NAME)
