"""Repairs a damaged directory: builds a queue from all readable data, and reports what is lost.

Damaged files are kept under another name. The directory is read leniently, and a snapshot of the result replaces the
log. Readable history stays. If rows are missing in a segment or before it, its header is marked, so that the segment is
not reported as damaged again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import DamagedJournal, NewerJournal, NoJournal
from penstock.journal.consistent_read import read_consistently
from penstock.journal.disk import Disk, ReadableDisk, writing
from penstock.journal.identity import NODE_FILE, Identity, identity, new_identity
from penstock.journal.maintenance.retention import rewrite
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.check import check_log
from penstock.journal.recovery.opening import open_log
from penstock.journal.recovery.reading import RecoveryReader
from penstock.journal.segment import (
    LOG,
    NOT_BEGUN,
    PIECE_BYTES,
    SEGMENT_HEADER_BYTES,
    FrameFile,
    Progress,
    is_segment,
    remove_index,
    segment_name,
    segment_names,
    snapshot_names,
)

# Suffix of a damaged file after a repair.
DAMAGED: Final = ".damaged"


@dataclass(frozen=True)
class RepairReport:
    problems: list[str]  # Data that could not be read.
    kept_aside: list[str]  # The damaged files, under their new names.
    jobs: int  # Number of jobs after the repair.


def examine(disk: ReadableDisk, boot: str, progress: Progress | None = None) -> list[str]:
    """Return the problems that a repair would report. Nothing is changed."""
    who, lost = _identity_or_new(disk)
    return [*lost, *read_consistently(disk, lambda: _problems(disk, who.of_log, boot, progress), bool)]


def repair(disk: Disk, wall: int, boot: str, progress: Progress | None = None) -> RepairReport:
    """Salvage all readable data. A directory without damage is left unchanged."""
    # Check this before anything is created, because this may be the wrong directory.
    who, problems = _identity_or_new(disk)
    disk.lock()
    try:
        lost = bool(problems)
        problems += _problems(disk, who.of_log, boot, progress)
        if not problems:
            return RepairReport([], [], 0)
        damaged = [name for name in (*segment_names(disk), *snapshot_names(disk)) if _is_damaged(disk, name)]
        kept_aside = [_set_aside(disk, name) for name in damaged]
        if lost:
            with contextlib.suppress(FileNotFoundError):
                disk.rename(NODE_FILE, NODE_FILE + DAMAGED)
                kept_aside.append(NODE_FILE + DAMAGED)
            who.write(disk)
        opened = open_log(disk, lambda: wall, boot, salvage=[])
        take_snapshot(disk, opened.log, opened.engine, opened.engine.now, wall)
        jobs = opened.engine.jobs.count
        opened.log.close(opened.engine.now, wall)
        # The rows before the new snapshot no longer lead to its state.
        _rewrite_segments_with_gaps(disk, [*damaged, segment_name(opened.log.recovery_range.segment)])
        return RepairReport(problems, kept_aside, jobs)
    finally:
        disk.unlock()


def _problems(disk: ReadableDisk, node: str, boot: str, progress: Progress | None) -> list[str]:
    checked = check_log(disk, boot, progress, node)
    problems: list[str] = []
    if checked.refused:
        RecoveryReader(disk, node, boot, progress=progress, salvage=problems).read()
    # Both checks find a snapshot that cannot be used.
    return list(dict.fromkeys([*problems, *checked.problems]))


def _identity_or_new(disk: ReadableDisk) -> tuple[Identity, list[str]]:
    """Return the identity of a directory, and the problems with it.

    If the identity is lost, create one with the node's id, which every file contains, and a new secret.
    """
    try:
        return identity(disk), []
    except (DamagedJournal, NoJournal) as error:
        for name in segment_names(disk):
            with contextlib.suppress(DamagedJournal), FrameFile(disk, name) as file:
                lost = f"{NODE_FILE} is lost: job ids that were issued before will no longer be valid"
                return new_identity(file.header.node), [lost]
        raise NoJournal("this directory contains nothing that can be repaired") from error


def _is_damaged(disk: Disk, name: str) -> bool:
    try:
        with FrameFile(disk, name) as file:
            run = file.run()
            for _ in run:
                pass
            return bool(run.torn_reason())
    except NewerJournal:
        # If a snapshot only has the version of a newer one in its header, recovery has found all its segments readable.
        if is_segment(name) or _has_readable_header(disk, name):
            raise
        return True
    except DamagedJournal:
        return True


def _has_readable_header(disk: Disk, name: str) -> bool:
    with contextlib.suppress(DamagedJournal), FrameFile(disk, name):
        return True
    return False


def _set_aside(disk: Disk, name: str) -> str:
    """Keep a damaged file under another name. If a part of it can be read, leave a copy under the old name."""
    aside = name + DAMAGED
    try:
        with FrameFile(disk, name) as file:
            readable = file.header.kind == LOG
    except DamagedJournal:
        readable = False
    if not readable:
        disk.rename(name, aside)
        return aside
    with contextlib.closing(disk.open_to_read(name)) as source, writing(disk, aside) as target:
        offset = 0
        while piece := source.read(offset, PIECE_BYTES):
            target.write(offset, piece)
            offset += len(piece)
    return aside


def _rewrite_segments_with_gaps(disk: Disk, changed: list[str]) -> None:
    """Rewrite each segment with missing rows in it or before it from its readable frames, and mark it as repaired."""
    number, position = 0, NOT_BEGUN
    for name in segment_names(disk):
        with FrameFile(disk, name) as file:
            header = file.header
            gap = number not in (0, header.segment - 1)
            if header.position != NOT_BEGUN:
                gap = gap or position not in (NOT_BEGUN, header.position)
                position = header.position
            for _, frame, _ in file.frames_anywhere(SEGMENT_HEADER_BYTES):
                gap = gap or position not in (NOT_BEGUN, frame.position)
                position = frame.position + frame.rows
            number = header.segment
        if name in changed or (gap and not header.repaired):
            remove_index(disk, number)  # The offsets in it are about to change.
            rewrite(disk, name, bodies=True, repaired=True)
