"""The reserve file: an empty file whose space is released when the disk is full.

Freeing space on a full disk needs space itself: a snapshot, and the segment that it starts. Without a reserve, the disk
would stay full for ever, even after all jobs were taken and acked.
"""

from __future__ import annotations

import contextlib
from typing import Final

from penstock.journal.disk import Disk

RESERVE_FILE_BYTES: Final = 4 * 1024 * 1024

# On a small disk, the file is smaller. A small segment and a snapshot of a few jobs fit in the smallest size.
_SIZES: Final = (RESERVE_FILE_BYTES, RESERVE_FILE_BYTES // 2, RESERVE_FILE_BYTES * 5 // 16)

# Existing directories have a file with this name.
_NAME: Final = "ballast"


def create(disk: Disk, beside: int) -> None:
    """Create the reserve file, if the disk has space for it.

    Choose a size that leaves `beside` bytes of the disk free, if possible.
    """
    if exists(disk):
        return
    free = disk.free()
    for size in _SIZES:
        if free >= size + beside or size == _SIZES[-1]:
            with contextlib.suppress(OSError):
                disk.create(_NAME, size, b"").close()
            return


def exists(disk: Disk) -> bool:
    return _NAME in disk.names()


def available_bytes(disk: Disk) -> int:
    """Return the bytes that are available for freeing space: the free space and the reserve file."""
    return disk.free() + (disk.size(_NAME) if exists(disk) else 0)


def release(disk: Disk) -> None:
    """Remove the reserve file, so that its space can be used."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(_NAME)
