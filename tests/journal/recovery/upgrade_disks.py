"""The directory of version 1 that `write_v1_directory.py` wrote, as a directory and as a disk in memory."""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from penstock.core.limits import NEVER
from penstock.core.states import RULES_COUNT
from penstock.journal.recovery.opening import Opened, open_log
from penstock.testing.disk import MemoryDisk

ARCHIVE = Path(__file__).parents[2] / "data" / "log" / "upgrade-v1.tar.xz"
OPENED = 1_790_001_000_000  # When version 1 opened its copy.
SEGMENT = 48 * 1024


@cache
def _files() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def v1_engine() -> dict[str, Any]:
    """Return the engine that version 1 got from the directory, as `engine_fields` describes it."""
    fields: dict[str, Any] = json.loads(_files()["engine.json"], object_hook=_with_new_rules)
    return fields


def _with_new_rules(fields: dict[str, Any]) -> dict[str, Any]:
    """Add zeros to the counters of a tube or key for rules that were added to the end of the table since then."""
    for name in ("counts", "counts_before"):
        if name in fields:
            fields[name] += [0] * (RULES_COUNT - len(fields[name]))
    return fields


def v1_disk() -> MemoryDisk:
    """Return a disk with the directory of version 1."""
    disk = MemoryDisk()
    for name, data in _files().items():
        if name != "engine.json":
            disk.replace(name, data)
    return disk.copy()


def write_v1(directory: Path) -> Path:
    """Write the directory of version 1."""
    directory.mkdir(mode=0o700)
    for name, data in v1_disk().files.items():
        (directory / name).write_bytes(data)
        (directory / name).chmod(0o600)
    return directory


def open_v1(disk: MemoryDisk, boot: str = "another boot", clock: int = OPENED, memory_max: int = NEVER) -> Opened:
    """Open a disk as version 1 opened its copy."""
    return open_log(disk, lambda: clock, boot, segment_bytes=SEGMENT, memory_max=memory_max)
