"""Limits the history of the log by size and age.

Segments before the newest snapshot are not needed for recovery, only for history. No job needs these segments, however
old the job is, because the snapshot contains its body. The segments can therefore be removed, oldest first, or
rewritten without the bodies of jobs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from penstock.core.errors import DamagedJournal
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal.disk import Disk, writing
from penstock.journal.log import Log
from penstock.journal.segment import (
    SEGMENT_HEADER_BYTES,
    FrameFile,
    SegmentHeader,
    number_of,
    remove_index,
    segment_name,
    segment_names,
    snapshot_name,
    snapshot_names,
)

HISTORY_BYTES: Final = 1024 * 1024 * 1024
HISTORY_MS: Final = 7 * 86_400_000


@dataclass(frozen=True)
class Retention:
    """The limits of history, and whether history keeps the bodies of jobs."""

    bytes_max: int = HISTORY_BYTES
    age_ms: int = HISTORY_MS
    bodies: bool = True


# The limits that are used when the disk is full.
NO_HISTORY: Final = Retention(bytes_max=0)


def trim(disk: Disk, log: Log, retention: Retention, wall: int) -> int:
    """Remove history that exceeds a limit, and all snapshots except the newest. Return the bytes of history removed."""
    needed = log.recovery_range.segment
    for name in snapshot_names(disk):
        if name < snapshot_name(needed):
            _remove(disk, log, name, -number_of(name))
    headers = list(_headers(disk, needed))
    sizes = [disk.size(header.name) for header in headers]
    total = sum(sizes)
    ends = _ends(headers, log.recovery_range.since)
    for index, header in enumerate(headers):
        ended = ends[index]
        if total <= retention.bytes_max and (retention.age_ms == NEVER or ended + retention.age_ms > wall):
            break
        remove_index(disk, header.segment)
        _remove(disk, log, header.name, header.segment)
        total -= sizes[index]
    return sum(sizes) - total


def _ends(headers: list[SegmentHeader], since: int) -> list[int]:
    """Return the latest time at which each segment can have ended.

    A segment ended before any later segment started. The earliest start of a later segment is used, because a clock
    that was once ahead must not keep history for ever.
    """
    later = [*(header.created for header in headers[1:]), since]
    return list(accumulate(reversed(later), min))[::-1]


def without_bodies(disk: Disk, log: Log) -> str | None:
    """Rewrite one segment of history without bodies. Return its name, or None if no segment has bodies."""
    for header in _headers(disk, log.recovery_range.segment):
        if header.bodies:
            remove_index(disk, header.segment)  # The offsets in it are about to change.
            log.bodies.close_file(header.segment)
            rewrite(disk, header.name, bodies=False)
            return header.name
    return None


def rewrite(disk: Disk, name: str, bodies: bool, repaired: bool = False) -> None:
    """Rewrite a segment from its readable frames, with or without the bodies of jobs."""
    with FrameFile(disk, name) as file:
        before = file.header
        header = replace(before, bodies=bodies and before.bodies, repaired=repaired or before.repaired)
        with writing(disk, name) as target:
            target.write(0, header.encode())
            offset = SEGMENT_HEADER_BYTES
            for data, frame, _ in file.frames_anywhere(SEGMENT_HEADER_BYTES):
                sealed = f.reseal_frame(data, frame, bodies, header.frame_seed(offset))
                target.write(offset, sealed)
                offset += len(sealed)


def _headers(disk: Disk, needed: int) -> list[SegmentHeader]:
    """Return the headers of the segments that are only history, oldest first."""
    found = []
    for name in segment_names(disk):
        # A segment that cannot be read is left for `penstock journal repair`.
        if name < segment_name(needed):
            with contextlib.suppress(DamagedJournal), FrameFile(disk, name) as file:
                found.append(file.header)
    return found


def _remove(disk: Disk, log: Log, name: str, number: int) -> None:
    log.bodies.close_file(number)
    disk.remove(name)
