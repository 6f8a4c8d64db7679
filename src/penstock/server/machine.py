"""The memory of this machine, or of its container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def memory_bytes() -> int:
    """Return the bytes of memory that this process can use."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_cgroup_limits()])


def _cgroup_limits() -> Iterator[int]:
    """Yield the memory limits of all cgroups that contain this process.

    The limit at the root of the cgroup file system is read too, because in a container this can be its own cgroup.
    """
    for path in [*_own_groups(), _CGROUPS / "memory.max", _CGROUPS / "memory/memory.limit_in_bytes"]:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal() and int(text) > 0:  # "max" means no limit.
            yield int(text)


def _own_groups() -> Iterator[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):
            own = _CGROUPS / line.removeprefix("0::/")
            for group in (own, *own.parents):
                if group.is_relative_to(_CGROUPS):
                    yield group / "memory.max"
