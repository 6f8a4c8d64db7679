"""The interface of a disk: a directory with files. `real_disk.py` implements it, and so do disks of tests.

Names refer to files in one directory. When a call that creates, renames or removes a file returns, the change
survives a power cut. Bytes that `write` has written survive once `sync` returns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, Protocol

# Suffix of a file that is not complete yet.
UNFINISHED: Final = ".new"


class ReadableFile(Protocol):
    """A file that is open for reading."""

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes starting at `offset`, or fewer at the end of the file."""

    def size(self) -> int:
        """Return the size of the file in bytes."""

    def will_read(self, offset: int, length: int) -> None:
        """Announce a read, so that the system can prefetch the bytes."""

    def close(self) -> None:
        """Close the file."""


class File(ReadableFile, Protocol):
    """A file that is open for writing."""

    def write(self, offset: int, data: bytes) -> None:
        """Write `data` at `offset`."""

    def sync(self) -> None:
        """Return when everything written is on disk."""

    def fill(self, offset: int, length: int) -> None:
        """Overwrite zeros of the file with zeros, durably.

        The content stays the same, but later writes to this part of the file are faster.
        """

    def extend(self, size: int) -> None:
        """Extend the file to `size` with allocated zeros, durably. On an error, the file is unchanged."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes. Return when that is on disk."""


class ReadableDisk(Protocol):
    """A directory that is open for reading."""

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""

    def open_to_read(self, name: str) -> ReadableFile:
        """Open an existing file for reading."""


class Disk(ReadableDisk, Protocol):
    """A directory that is open for reading and writing."""

    def lock(self) -> None:
        """Lock the directory. Raise InUse if another process has locked it."""

    def unlock(self) -> None:
        """Unlock the directory."""

    def forget_lock(self) -> None:
        """Close the lock in the child of a fork. The lock then belongs to the parent alone and ends with the parent."""

    def create(self, name: str, size: int, head: bytes) -> File:
        """Create a file of `size` allocated bytes, durably. It starts with `head`, followed by zeros."""

    def begin(self, name: str) -> File:
        """Create a file that grows as it is written. The file has a temporary name until `finish` is called."""

    def finish(self, name: str, file: File) -> None:
        """Sync and close a file from `begin`, and rename it to `name`, durably. An existing file is replaced."""

    def abandon(self, name: str, file: File) -> None:
        """Close and remove a file from `begin`."""

    def open(self, name: str) -> File:
        """Open an existing file for writing."""

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of a small file atomically."""

    def rename(self, name: str, target: str) -> None:
        """Rename a file."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def free(self) -> int:
        """Return the free space of the disk in bytes."""


@contextlib.contextmanager
def writing(disk: Disk, name: str) -> Iterator[File]:
    """Create a file for a `with` block. At the end of the block, the file is synced and gets its name.

    If the block raises, the file is removed.
    """
    file = disk.begin(name)
    try:
        yield file
    except BaseException:
        disk.abandon(name, file)
        raise
    disk.finish(name, file)
