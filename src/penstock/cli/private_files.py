"""Files that a server writes for other programs: its log and its process id.

Independently of the umask, other users can neither write to them nor redirect them. In a world-writable directory, a
symbolic link is followed only if it belongs to this user or to the directory's owner. This is the rule of Linux
(fs.protected_symlinks), which is not enabled on every machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

_CREATED: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def restrict_umask() -> None:
    """Set the umask so that no file, directory or socket of this process is writable by others."""
    os.umask(os.umask(0o077) | stat.S_IWOTH)


def open_private(path: str, flags: int) -> int:
    """Open a file for writing and return its descriptor. The file is created if it does not exist."""
    try:
        descriptor = os.open(path, _CREATED | flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        _check_link(path)
        descriptor = os.open(path, _CREATED | flags, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        # The file existed before. Only its owner can change its mode.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IMODE(mode) & ~stat.S_IWOTH)
    return descriptor


def _check_link(path: str) -> None:
    """Refuse a symbolic link that another user may have placed."""
    directory = os.stat(os.path.dirname(path) or ".")
    if directory.st_mode & stat.S_IWOTH and os.lstat(path).st_uid not in (os.geteuid(), directory.st_uid):
        raise PermissionError(errno.EPERM, "this is a symbolic link of another user; remove it", path)
