"""What of the log is kept as history, and for how long.

Segments before the newest snapshot are not needed to recover: they are history only. No job, however old, keeps one of
them alive, because the snapshot has its body. So they can be removed from the oldest on, or be rewritten without the
bodies of jobs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from penstock.core.errors import DamagedJournal
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal.disk import Disk
from penstock.journal.log import Log
from penstock.journal.segment import (
    SEGMENT_HEADER_BYTES,
    FrameFile,
    SegmentHeader,
    index_name,
    number_of,
    segment_name,
    segment_names,
    snapshot_name,
    snapshot_names,
)

HISTORY_BYTES: Final = 1024 * 1024 * 1024
HISTORY_MS: Final = 7 * 86_400_000


@dataclass(frozen=True)
class Retention:
    """How much history is kept."""

    bytes_max: int = HISTORY_BYTES
    age_ms: int = HISTORY_MS
    bodies: bool = True


# When the disk is full.
NO_HISTORY: Final = Retention(bytes_max=0)


def trim(disk: Disk, log: Log, retention: Retention, wall: int) -> int:
    """Remove the history that is too much or too old, and every snapshot but the newest; tell how much history."""
    needed = log.kept.segment
    for name in snapshot_names(disk):
        if name < snapshot_name(needed):
            _remove(disk, log, name, -number_of(name))
    headers = list(_headers(disk, needed))
    sizes = [disk.size(header.name) for header in headers]
    total = sum(sizes)
    ends = _ends(headers, log.kept.since)
    for index, header in enumerate(headers):
        ended = ends[index]
        if total <= retention.bytes_max and (retention.age_ms == NEVER or ended + retention.age_ms > wall):
            break
        with contextlib.suppress(FileNotFoundError):
            disk.remove(index_name(header.segment))
        _remove(disk, log, header.name, header.segment)
        total -= sizes[index]
    return sum(sizes) - total


def _ends(headers: list[SegmentHeader], since: int) -> list[int]:
    """When each segment ended at the latest: everything in it happened before any later one began.

    Before the earliest of them, as their headers say: a clock that was once ahead must not keep history for ever.
    """
    later = [*(header.created for header in headers[1:]), since]
    return list(accumulate(reversed(later), min))[::-1]


def without_bodies(disk: Disk, log: Log) -> str | None:
    """Rewrite one segment of history that has bodies in it without them, and tell its name; None if there is none."""
    for header in _headers(disk, log.kept.segment):
        if header.bodies:
            with contextlib.suppress(FileNotFoundError):
                # The places it tells of are about to be others.
                disk.remove(index_name(header.segment))
            log.bodies.forget(header.segment)
            rewrite(disk, header.name, bodies=False)
            return header.name
    return None


def rewrite(disk: Disk, name: str, bodies: bool, repaired: bool = False) -> None:
    """Write a segment anew from the frames in it that can be read, with or without the bodies of jobs."""
    with FrameFile(disk, name) as file:
        before = file.header
        header = replace(before, bodies=bodies and before.bodies, repaired=repaired or before.repaired)
        target = disk.begin(name)
        try:
            target.write(0, header.encode())
            offset = SEGMENT_HEADER_BYTES
            for data, frame, _ in file.frames_anywhere(SEGMENT_HEADER_BYTES):
                sealed = f.sealed_again(data, frame, bodies, header.seed(offset))
                target.write(offset, sealed)
                offset += len(sealed)
        except BaseException:
            disk.abandon(name, target)
            raise
        disk.finish(name, target)


def _headers(disk: Disk, needed: int) -> list[SegmentHeader]:
    """The segments that are history only, oldest first."""
    found = []
    for name in segment_names(disk):
        # One that cannot be read is left to `penstock journal repair`.
        if name < segment_name(needed):
            with contextlib.suppress(DamagedJournal), FrameFile(disk, name) as file:
                found.append(file.header)
    return found


def _remove(disk: Disk, log: Log, name: str, number: int) -> None:
    log.bodies.forget(number)
    disk.remove(name)
