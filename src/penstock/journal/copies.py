"""Copies of a directory: a backup of one that is in use, and a restore to any position that the copy knows.

Both are one thing: the newest snapshot that is old enough, the segments from there on up to a position, and the history
before. Nothing is locked and nothing of the original is changed. Every frame's checksum is checked on its way; that
no frame is missing between two files is not.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import CommandError, DamagedJournal, OutOfRange
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal.disk import Disk, File, ReadableDisk
from penstock.journal.identity import NODE_FILE, epoch_floor, identity
from penstock.journal.segment import (
    LOG,
    NOT_BEGUN,
    SEGMENT_HEADER_BYTES,
    FrameFile,
    segment_names,
    snapshot_names,
)
from penstock.journal.snapshot import whole_at

Progress = Callable[[int, int], None]  # Bytes copied, bytes in all.

# Files may be removed between their being listed and opened. They are held open from then on, so a few tries will do.
_TRIES: Final = 10

# The original may be opened so often again without giving out an id that the copy, once opened, gives out too.
_EPOCHS_APART: Final = 1_000


@dataclass(frozen=True)
class Copied:
    """What a copy holds."""

    first: int  # The oldest position of its history.
    last: int  # The state is that after this position.
    files: int
    bytes: int


def copy_log(
    source: ReadableDisk, target: Disk, to_position: int | None = None, progress: Progress | None = None
) -> Copied:
    """Copy a log to an empty directory, with the state it led to, at its end or after an earlier position."""
    node, key = identity(source)
    if target.names():
        raise CommandError("the target is not empty; name a new directory")
    end = NEVER if to_position is None else to_position + 1
    with ExitStack() as stack:
        files = _open_files(source, stack, end)
        copying = _Copying(target, end, progress, sum(file.size for file in files))
        try:
            for file in files:
                copying.copy(file)
            if to_position is not None and copying.position <= to_position and not copying.ended:
                last = copying.position - 1
                raise OutOfRange(f"position {to_position} is behind the end of the log, which is {last}")
        except BaseException:
            for name in target.names():
                target.remove(name)
            raise
        epoch = max([epoch_floor(source), *(file.header.epoch for file in files)]) + _EPOCHS_APART
        # Last, because without it the copy is none.
        target.replace(NODE_FILE, json.dumps({"node": node, "key": key.hex(), "epoch": epoch}).encode())
        return Copied(copying.first, copying.position - 1, len(files) + 1, copying.done)


def _open_files(source: ReadableDisk, stack: ExitStack, end: int) -> list[FrameFile]:
    """The snapshot that a copy needs, if it needs one, and then the segments in order."""
    for _ in range(_TRIES):
        with ExitStack() as tried, contextlib.suppress(FileNotFoundError):
            snapshots = [tried.enter_context(FrameFile(source, name)) for name in snapshot_names(source)]
            segments = [tried.enter_context(FrameFile(source, name)) for name in segment_names(source)]
            # One that has nothing in it yet is needed only if a snapshot goes on with it.
            numbers = {file.header.segment for file in snapshots}
            segments = [
                file for file in segments if file.header.position != NOT_BEGUN or file.header.segment in numbers
            ]
            files = _needed(snapshots, segments, end)
            stack.push(tried.pop_all())
            return files
    raise CommandError("the files change faster than they can be copied; try again")


def _needed(snapshots: list[FrameFile], segments: list[FrameFile], end: int) -> list[FrameFile]:
    oldest = 0
    for snapshot in reversed(snapshots):
        upto = whole_at(snapshot)
        if upto <= end:
            return [snapshot, *segments]
        oldest = upto
    whole = bool(segments) and segments[0].header.position == 1 and all(file.header.bodies for file in segments)
    if snapshots and not whole:
        raise OutOfRange(f"the log does not reach back so far: the first position to restore to is {oldest - 1}")
    return segments


class _Copying:
    """One copy in the making."""

    def __init__(self, target: Disk, end: int, progress: Progress | None, total: int) -> None:
        self.done = 0
        self.first = 0
        self.position = 1  # Of the next row.
        self.ended = False  # The end was reached.
        self._target = target
        self._end = end
        self._progress = progress
        self._total = total

    def copy(self, file: FrameFile) -> None:
        """Copy a file, frame by frame, as far as it is wanted."""
        if self.ended or file.header.position > self._end:
            self.ended = True
            return
        target = self._target.begin(file.name)
        try:
            target.write(0, file.file.read(0, SEGMENT_HEADER_BYTES))
            self._copy_frames(file, target)
        except BaseException:
            self._target.abandon(file.name, target)
            raise
        self._target.finish(file.name, target)

    def _copy_frames(self, file: FrameFile, target: File) -> None:
        end = SEGMENT_HEADER_BYTES
        try:
            for data, frames, base in file.pieces():
                wanted = self._wanted(frames)
                if wanted:
                    end = base + wanted[-1].at + wanted[-1].length
                    target.write(base, data[: end - base])
                self._tell(end - base)
                if self.ended:
                    return
        except f.DamagedFrame as why:
            # The newest frame of a log in use may be in the writing.
            if file.used(end) > end and self._is_damage(file, end):
                raise DamagedJournal(f"{file.name} is damaged at offset {end} ({why}); it was not copied") from None

    def _is_damage(self, file: FrameFile, end: int) -> bool:
        return file.header.kind != LOG or next(file.frames_anywhere(end + 8), None) is not None

    def _wanted(self, frames: list[f.Frame]) -> list[f.Frame]:
        """The frames of a piece that are not behind the end."""
        if frames[0].kind != f.LIVE:
            self.position = frames[-1].position
            return frames
        wanted = []
        for frame in frames:
            if frame.position + frame.rows > self._end:
                self.ended = True
                break
            self.first = self.first or frame.position
            self.position = frame.position + frame.rows
            wanted.append(frame)
        return wanted

    def _tell(self, count: int) -> None:
        self.done += count
        if self._progress is not None:
            self._progress(self.done, self._total)
