"""The id of this start of the operating system.

The journal stores it. If the stored id equals the present one, the system has kept everything that was written, so
missing bytes are damage. If it differs, there may have been a power cut, and bytes that were not synced may be missing.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

_LINUX: Final = Path("/proc/sys/kernel/random/boot_id")
_MACOS: Final = ("sysctl", "-n", "kern.bootsessionuuid")


@functools.cache
def boot_id() -> str:
    """Return the boot id. A system without one gets a random id per process, so every start assumes a power cut."""
    return _of_linux() or _of_macos() or _of_this_process()


def _of_linux() -> str:
    try:
        return _LINUX.read_text().strip()
    except OSError:
        return ""


def _of_macos() -> str:
    import subprocess

    try:
        return subprocess.run(_MACOS, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _of_this_process() -> str:
    import uuid

    return f"unknown {uuid.uuid4()}"
