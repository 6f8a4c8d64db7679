"""System calls of the journal that not every platform has, and what replaces them.

| need | Linux | macOS |
|---|---|---|
| written bytes are on the disk | fdatasync | F_FULLFSYNC, because fsync leaves them in the drive's own cache |
| file and its size are on the disk | fsync | F_FULLFSYNC |
| room for bytes that are written later | posix_fallocate | zeros are written |
| the system reads ahead | posix_fadvise | nothing: it is an optimization |

Each call looks for what the platform has when it is made, so that tests can take it away.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

# Zeros are written in pieces of this size, so that a segment does not need its own size in memory.
_ZEROS: Final = bytes(1 << 20)

# A platform without posix_fadvise has no such constant.
_WILL_NEED: Final[int] = getattr(os, "POSIX_FADV_WILLNEED", 0)

# A file system that has no full sync, such as one of another machine, answers with one of these.
_NO_FULL_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)


def sync_data(descriptor: int) -> None:
    """Return when the bytes of a file are on the disk. Its times may not be there."""
    if _full_sync(descriptor):
        return
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_all(descriptor: int) -> None:
    """Return when a file, or the names in a directory, and all facts about it are on the disk."""
    if not _full_sync(descriptor):
        os.fsync(descriptor)


def _full_sync(descriptor: int) -> bool:
    """Empty the drive's cache, too, where the system does not do so on fsync. Return whether that was done."""
    if not hasattr(fcntl, "F_FULLFSYNC"):
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        return False
    return True


def allocate(descriptor: int, offset: int, length: int) -> None:
    """Give the next `length` bytes of a file room on the disk, as zeros. `offset` is the end of the file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, offset, length)
    else:
        write_zeros(descriptor, offset, length)


def write_zeros(descriptor: int, offset: int, length: int) -> None:
    """Write `length` zeros at `offset`."""
    end = offset + length
    while offset < end:
        # The system may write less than it was asked to.
        offset += os.pwrite(descriptor, _ZEROS[: end - offset], offset)


def will_read(descriptor: int, offset: int, length: int) -> None:
    """Let the system read a part of a file ahead, if it can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, _WILL_NEED)
