"""The only file that creates, writes and syncs. Everything above it speaks to a `Disk`; tests give it another one.

Names are those of files in one directory. What was done to them is there after a power cut once the call returns; what
`write` wrote is there once `sync` returns.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import warnings
from typing import Final, Protocol

from penstock.core.errors import DamagedJournal, InUse
from penstock.journal import syscalls

# What a file is called until it is whole.
UNFINISHED: Final = ".new"


class ReadableFile(Protocol):
    """One file, open to be read."""

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from a place, or as many as there are."""

    def size(self) -> int:
        """How many bytes it has."""

    def will_read(self, offset: int, length: int) -> None:
        """Say that this will be read soon, so that the system can fetch it meanwhile."""

    def close(self) -> None:
        """Close it."""


class File(ReadableFile, Protocol):
    """One file, open to be written."""

    def write(self, offset: int, data: bytes) -> None:
        """Write at a place."""

    def sync(self) -> None:
        """Return when everything written is on disk."""

    def fill(self, offset: int, length: int) -> None:
        """Write zeros, durably, where there are zeros: that changes nothing, but what comes there later is faster."""

    def extend(self, size: int) -> None:
        """Let it be longer by zeros that have their room on the disk, durably; or raise, and it is as it was."""

    def truncate(self, size: int) -> None:
        """Cut the file, and return when that is on disk."""


class ReadableDisk(Protocol):
    """As much of a directory as a reader needs."""

    def names(self) -> list[str]:
        """The names of its files, sorted."""

    def read(self, name: str) -> bytes:
        """A whole file, of those that are small."""

    def size(self, name: str) -> int:
        """How many bytes a file has."""

    def open_to_read(self, name: str) -> ReadableFile:
        """Open a file that is there."""


class Disk(ReadableDisk, Protocol):
    """One directory."""

    def lock(self) -> None:
        """Own the directory, or raise InUse."""

    def unlock(self) -> None:
        """Own it no longer."""

    def forget_lock(self) -> None:
        """In the child of a fork: leave the lock to the parent, also when that one ends."""

    def create(self, name: str, size: int, head: bytes) -> File:
        """Make a file of zeros of this size that begins with these bytes, durably."""

    def begin(self, name: str) -> File:
        """Make a file that grows as it is written, and is not there under its name until `finish`."""

    def finish(self, name: str, file: File) -> None:
        """Sync a file that was begun, close it, and give it its name, durably; one that had that name is gone."""

    def abandon(self, name: str, file: File) -> None:
        """Close and remove a file that was begun."""

    def open(self, name: str) -> File:
        """Open a file that is there."""

    def replace(self, name: str, data: bytes) -> None:
        """Make a small file have this content: the old one or the new one is there, never half of one."""

    def rename(self, name: str, target: str) -> None:
        """Give a file another name."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def free(self) -> int:
        """How many bytes more fit on it."""


class RealFile:
    """A file of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) < length:
            data += self._read_rest(offset + len(data), length - len(data))
        return data

    def _read_rest(self, offset: int, length: int) -> bytes:
        """The system may read less than it was asked to: at the end of the file, or because it is a lot."""
        parts = []
        while length > 0 and (part := os.pread(self._fd, length, offset)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def will_read(self, offset: int, length: int) -> None:
        syscalls.will_read(self._fd, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written < len(data):
            self._write_rest(offset + written, data[written:])

    def _write_rest(self, offset: int, data: bytes) -> None:
        """The system may write less than it was asked to, and says so."""
        while data:
            written = os.pwrite(self._fd, data, offset)
            offset += written
            data = data[written:]

    def fill(self, offset: int, length: int) -> None:
        syscalls.write_zeros(self._fd, offset, length)
        syscalls.sync_data(self._fd)

    def sync(self) -> None:
        syscalls.sync_data(self._fd)

    def extend(self, size: int) -> None:
        before = self.size()
        try:
            syscalls.allocate(self._fd, before, size - before)
            syscalls.sync_all(self._fd)
        except OSError:
            # Part of it may be there.
            os.ftruncate(self._fd, before)
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        syscalls.sync_all(self._fd)

    def close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # Of a queue that was forgotten: whoever has its directory says so.
        self.close()


class ReadOnlyDisk:
    """A directory of the operating system, to be read: nothing is made, locked or changed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str]:
        # Links too: whoever moves a file of the log elsewhere and leaves a link must not find the queue empty.
        entries = os.scandir(self.path)
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False) or entry.is_symlink())

    def read(self, name: str) -> bytes:
        file = self.open_to_read(name)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def size(self, name: str) -> int:
        return os.stat(self._at(name), follow_symlinks=False).st_size

    def open_to_read(self, name: str) -> RealFile:
        return RealFile(self._open(name, os.O_RDONLY))

    def _open(self, name: str, flags: int) -> int:
        """Open a file of this directory, and never one outside: a copy from elsewhere may have links in it."""
        try:
            return os.open(self._at(name), flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise DamagedJournal(f"{name} is a link; put the file that it leads to in its place") from None

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)


class RealDisk(ReadOnlyDisk):
    """A directory of the operating system: 0700, its files 0600."""

    def __init__(self, path: str) -> None:
        self._lock_fd = -1
        super().__init__(path)
        _make_directory(os.path.abspath(path), 0o700)

    def lock(self) -> None:
        descriptor = self._open("lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            if holder == str(os.getpid()):
                raise InUse(
                    f"{self.path} is already open in this process (pid {holder}); use that queue, or close it first"
                ) from None
            raise InUse(
                f"{self.path} is open in another process (pid {holder}); close it there first, or, if that is a "
                "server, use the queue through it"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._lock_fd = descriptor

    def __del__(self) -> None:
        if self._lock_fd >= 0:
            warnings.warn(f"the queue in {self.path} was not closed", ResourceWarning, source=self, stacklevel=2)
            self.unlock()

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            # The lock is of the open file, which a child of a fork shares: closing ours would leave it locked.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def forget_lock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def create(self, name: str, size: int, head: bytes) -> RealFile:
        # Under another name until it is whole: a crash in the middle must not leave half a file where one is expected.
        unfinished = self._at(name + UNFINISHED)
        descriptor = self._open(name + UNFINISHED, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        file = RealFile(descriptor)
        try:
            # Blocks that are there already make fdatasync twice as fast, and a full disk is known now, not later.
            syscalls.allocate(descriptor, 0, size)
            file.write(0, head)
            syscalls.sync_all(descriptor)
            os.rename(unfinished, self._at(name))
            self._sync_names()
        except BaseException:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
            raise
        return file

    def begin(self, name: str) -> RealFile:
        return RealFile(self._open(name + UNFINISHED, os.O_RDWR | os.O_CREAT | os.O_TRUNC))

    def finish(self, name: str, file: File) -> None:
        try:
            file.sync()
        finally:
            file.close()
        os.rename(self._at(name + UNFINISHED), self._at(name))
        self._sync_names()

    def abandon(self, name: str, file: File) -> None:
        file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name + UNFINISHED))

    def open(self, name: str) -> RealFile:
        return RealFile(self._open(name, os.O_RDWR))

    def replace(self, name: str, data: bytes) -> None:
        file = self.begin(name)
        try:
            file.write(0, data)
        except BaseException:
            self.abandon(name, file)
            raise
        self.finish(name, file)

    def rename(self, name: str, target: str) -> None:
        os.rename(self._at(name), self._at(target))
        self._sync_names()

    def remove(self, name: str) -> None:
        os.unlink(self._at(name))
        self._sync_names()

    def below(self, name: str) -> RealDisk:
        """A directory in this one; it is made if need be."""
        return RealDisk(self._at(name))

    def has_below(self, name: str) -> bool:
        """Whether there is such a directory in this one."""
        return os.path.isdir(self._at(name))

    def drop_below(self, name: str) -> None:
        """Remove a directory in this one, which has nothing in it."""
        os.rmdir(self._at(name))
        self._sync_names()

    def hand(self, name: str, other: RealDisk) -> None:
        """Let a file be in another directory, of the same file system."""
        os.rename(self._at(name), other._at(name))
        # First where it is, so that it is somewhere at any time.
        other._sync_names()
        self._sync_names()

    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def _sync_names(self) -> None:
        _sync_directory(self.path)


def _make_directory(path: str, mode: int) -> None:
    """Make a directory and those it is in, if they are not there; a power cut must not take them, and all in them."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        _make_directory(above, 0o777)
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            # Somebody else has just made it, or it is something else.
            if not os.path.isdir(path):
                raise
        _sync_directory(above)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syscalls.sync_all(descriptor)
    finally:
        os.close(descriptor)
