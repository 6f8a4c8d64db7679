"""Repair: a queue is made of whatever can be read of a damaged directory, and what could not be read is told.

Damaged files are kept aside under another name. The directory is read leniently, and a snapshot of the result takes the
place of the log. History is what can still be read of it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import DamagedJournal, NoJournal
from penstock.journal import frame as f
from penstock.journal.disk import Disk
from penstock.journal.identity import NODE_FILE, identity
from penstock.journal.recovery import examine, open_log
from penstock.journal.retention import rewrite
from penstock.journal.segment import LOG, PIECE_BYTES, FrameFile, segment_names, snapshot_names
from penstock.journal.snapshot import take_snapshot

# What a damaged file is called when it has been repaired.
DAMAGED: Final = ".damaged"


@dataclass(frozen=True)
class Repaired:
    """What was done."""

    problems: list[str]  # What could not be read.
    kept_aside: list[str]  # The files with the damage.
    jobs: int  # How many jobs there are now.


def repair(disk: Disk, wall: int, boot: str, progress: Callable[[int, int], None] | None = None) -> Repaired:
    """Salvage what can be read. A directory without damage is left as it is."""
    disk.lock()
    try:
        problems = _find_identity(disk)
        problems += examine(disk, boot, progress)
        if not problems:
            return Repaired([], [], 0)
        damaged = [name for name in (*segment_names(disk), *snapshot_names(disk)) if _is_damaged(disk, name)]
        kept_aside = [_set_aside(disk, name) for name in damaged]
        opened = open_log(disk, wall, boot, salvage=[])
        take_snapshot(disk, opened.log, opened.engine, opened.engine.now, wall)
        for name in segment_names(disk):
            if name in damaged:
                rewrite(disk, name, bodies=True)
        jobs = opened.engine.jobs.count
        opened.log.close(opened.engine.now, wall)
        return Repaired(problems, kept_aside, jobs)
    finally:
        disk.unlock()


def _find_identity(disk: Disk) -> list[str]:
    """Make a new identity if the old one is lost: the node's id is in every file, but the secret of its ids is not."""
    try:
        identity(disk)
    except (DamagedJournal, NoJournal) as error:
        for name in segment_names(disk):
            try:
                with FrameFile(disk, name) as file:
                    told = {"node": file.header.node, "key": secrets.token_hex(32)}
            except DamagedJournal:
                continue
            disk.replace(NODE_FILE, json.dumps(told).encode())
            return [f"{NODE_FILE} is lost: ids that were given out before will not be known any more"]
        raise NoJournal("there is nothing here that could be repaired") from error
    return []


def _is_damaged(disk: Disk, name: str) -> bool:
    try:
        with FrameFile(disk, name) as file:
            end = 0
            for _, frames, base in file.pieces():
                end = base + frames[-1].at + frames[-1].length
            return end > 0 and file.used(end) > end
    except (DamagedJournal, f.DamagedFrame):
        return True


def _set_aside(disk: Disk, name: str) -> str:
    """Keep a damaged file under another name, and leave it where it is only if something of it can be read."""
    aside = name + DAMAGED
    try:
        with FrameFile(disk, name) as file:
            readable = file.header.kind == LOG
    except DamagedJournal:
        readable = False
    if not readable:
        disk.rename(name, aside)
        return aside
    source, target = disk.open_to_read(name), disk.begin(aside)
    try:
        offset = 0
        while piece := source.read(offset, PIECE_BYTES):
            target.write(offset, piece)
            offset += len(piece)
    except BaseException:
        disk.abandon(aside, target)
        raise
    finally:
        source.close()
    disk.finish(aside, target)
    return aside
