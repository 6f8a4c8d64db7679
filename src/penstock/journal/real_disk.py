"""Directories and files of the operating system. The only module that creates, writes and syncs files.

Other modules use the interface `Disk`, so that tests can replace it. Linux and macOS only: Windows has no `pwrite`, and
no way to sync the name of a file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import warnings

from penstock.core.errors import DamagedJournal, InUse
from penstock.journal import syscalls
from penstock.journal.disk import UNFINISHED, File, writing


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
        """Continue a short read. The system may return fewer bytes at the end of the file, or for a large read."""
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
            # A part may have been allocated.
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
        # The queue was garbage-collected without close. The owner of the directory's lock warns about it.
        self.close()


class ReadOnlyDisk:
    """A directory of the operating system, read-only. Nothing is created, locked or changed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str]:
        # Include symbolic links: if a file of the log was moved and a link left in its place, the queue must not seem
        # empty.
        entries = os.scandir(self.path)
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False) or entry.is_symlink())

    def read(self, name: str) -> bytes:
        with contextlib.closing(self.open_to_read(name)) as file:
            return file.read(0, file.size())

    def size(self, name: str) -> int:
        return os.stat(self._path_of(name), follow_symlinks=False).st_size

    def open_to_read(self, name: str) -> RealFile:
        return RealFile(self._open(name, os.O_RDONLY))

    def _open(self, name: str, flags: int) -> int:
        """Open a file of this directory. Raise DamagedJournal for a symbolic link.

        If the directory was copied from elsewhere, a link could point to any file of this machine.
        """
        try:
            return os.open(self._path_of(name), flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise DamagedJournal(f"{name} is a symbolic link; replace it by the file that it points to") from None

    def _path_of(self, name: str) -> str:
        return os.path.join(self.path, name)


class RealDisk(ReadOnlyDisk):
    """A directory of the operating system with mode 0700. Its files have mode 0600."""

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
            # A child of a fork shares the open file and with it the lock. Closing our descriptor alone would leave it
            # locked.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def forget_lock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def create(self, name: str, size: int, head: bytes) -> RealFile:
        # The file gets its name when it is complete, so a crash cannot leave half a file under that name.
        unfinished = self._path_of(name + UNFINISHED)
        descriptor = self._open(name + UNFINISHED, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        file = RealFile(descriptor)
        try:
            # Allocated blocks make fdatasync twice as fast, and a full disk is detected now and not later.
            syscalls.allocate(descriptor, 0, size)
            file.write(0, head)
            syscalls.sync_all(descriptor)
            os.rename(unfinished, self._path_of(name))
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
        os.rename(self._path_of(name + UNFINISHED), self._path_of(name))
        self._sync_names()

    def abandon(self, name: str, file: File) -> None:
        file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path_of(name + UNFINISHED))

    def open(self, name: str) -> RealFile:
        return RealFile(self._open(name, os.O_RDWR))

    def replace(self, name: str, data: bytes) -> None:
        with writing(self, name) as file:
            file.write(0, data)

    def rename(self, name: str, target: str) -> None:
        os.rename(self._path_of(name), self._path_of(target))
        self._sync_names()

    def remove(self, name: str) -> None:
        os.unlink(self._path_of(name))
        self._sync_names()

    def subdirectory(self, name: str) -> RealDisk:
        """Return a subdirectory. Create it if it does not exist."""
        return RealDisk(self._path_of(name))

    def has_subdirectory(self, name: str) -> bool:
        return os.path.isdir(self._path_of(name))

    def remove_subdirectory(self, name: str) -> None:
        """Remove a subdirectory, which must be empty."""
        os.rmdir(self._path_of(name))
        self._sync_names()

    def move_to(self, name: str, other: RealDisk) -> None:
        """Move a file to another directory of the same file system."""
        os.rename(self._path_of(name), other._path_of(name))
        # Sync the target directory first, so that the file exists at any time.
        other._sync_names()
        self._sync_names()

    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def _sync_names(self) -> None:
        _sync_directory(self.path)


def _make_directory(path: str, mode: int) -> None:
    """Create a directory and its missing parents, durably: a power cut must not remove them with their content."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        _make_directory(above, 0o777)
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            # Another process has just created it, or the path is not a directory.
            if not os.path.isdir(path):
                raise
        _sync_directory(above)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syscalls.sync_all(descriptor)
    finally:
        os.close(descriptor)
