"""Files that a server writes for other programs: its log and its process id.

Other users of the machine cannot write to them, whatever the umask is. They cannot redirect them either: in a directory
that everybody may write to, a symbolic link is followed only if it belongs to this user or to the directory's owner.
That is the rule of Linux (fs.protected_symlinks), which not every machine has switched on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

_CREATED: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def keep_others_from_writing() -> None:
    """Let no file, directory or socket that this process makes be writable by others, whatever umask it inherited."""
    os.umask(os.umask(0o077) | stat.S_IWOTH)


def open_own(path: str, flags: int) -> int:
    """Open a file to write to it, and return its descriptor. The file is made if it is not there."""
    try:
        descriptor = os.open(path, _CREATED | flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        _check_link(path)
        descriptor = os.open(path, _CREATED | flags, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        # It was made earlier. Only its owner can change that.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, stat.S_IMODE(mode) & ~stat.S_IWOTH)
    return descriptor


def _check_link(path: str) -> None:
    """Refuse a symbolic link that another user may have placed."""
    directory = os.stat(os.path.dirname(path) or ".")
    if directory.st_mode & stat.S_IWOTH and os.lstat(path).st_uid not in (os.geteuid(), directory.st_uid):
        raise PermissionError(errno.EPERM, "it is a symbolic link of another user; remove it", path)
