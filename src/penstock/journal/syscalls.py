"""System calls of the journal that some platforms lack, and their replacements.

| need | Linux | macOS |
|---|---|---|
| written bytes are on the disk | fdatasync | F_FULLFSYNC, because fsync leaves them in the drive's own cache |
| file and its size are on the disk | fsync | F_FULLFSYNC |
| space for bytes that are written later | posix_fallocate | zeros are written |
| the system reads ahead | posix_fadvise | nothing: it is an optimization |

Each call checks which functions exist, so that tests can remove one.
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

# Errors of file systems without a full sync, such as network file systems.
_NO_FULL_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)


def sync_data(descriptor: int) -> None:
    """Return when the bytes of a file are on the disk. Its timestamps may be written later."""
    if _full_sync(descriptor):
        return
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_all(descriptor: int) -> None:
    """Return when a file, or the names in a directory, and all metadata are on the disk."""
    if not _full_sync(descriptor):
        os.fsync(descriptor)


def _full_sync(descriptor: int) -> bool:
    """Flush the drive's cache, too, on systems where fsync does not. Return whether that was done."""
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
    """Allocate `length` bytes of zeros at `offset`, which is the end of the file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, offset, length)
    else:
        write_zeros(descriptor, offset, length)


def write_zeros(descriptor: int, offset: int, length: int) -> None:
    end = offset + length
    while offset < end:
        # The system may write fewer bytes than requested.
        offset += os.pwrite(descriptor, _ZEROS[: end - offset], offset)


def will_read(descriptor: int, offset: int, length: int) -> None:
    """Ask the system to read a part of a file ahead, if it can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, _WILL_NEED)
