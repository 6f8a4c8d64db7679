"""Text files such as config files: reading within limits, and atomic replacement."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.server.config.settings import ConfigError
from penstock.server.config.words import to_bytes, to_text

# Larger than any config file. A wrong file is refused before it fills the memory.
FILE_BYTES_MAX: Final = 1024 * 1024
LINE_BYTES_MAX: Final = 64 * 1024

STANDARD_INPUT: Final = "-"

_BOM: Final = b"\xef\xbb\xbf"


def read(path: Path, label: str) -> str:
    """Return the text of a file. `label` names the file in errors."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{label}: {getattr(error, 'strerror', None) or error}") from None
    return _checked(raw, label)


def read_standard_input(label: str) -> str:
    """Return the text of standard input. `label` names it in errors."""
    return _checked(sys.stdin.buffer.read(FILE_BYTES_MAX + 1), label)


def _checked(raw: bytes, label: str) -> str:
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError(f"{label}: has more than {FILE_BYTES_MAX:,} bytes, so it is probably not a config file")
    for number, line in enumerate(raw.split(b"\n"), 1):
        if len(line) > LINE_BYTES_MAX:
            raise ConfigError(f"{label} line {number}: is longer than {LINE_BYTES_MAX:,} bytes")
    return to_text(raw.removeprefix(_BOM))


def replace(path: Path, text: str) -> None:
    """Replace the text of a file, and keep its owner and permissions. A crash leaves the old text or the new one."""
    target = Path(os.path.realpath(path))  # A link stays a link.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(to_bytes(text))
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                _copy_owner_and_mode(descriptor, target.stat())
            os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_directory(target.parent)


def _copy_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # Only root may give files away.
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
