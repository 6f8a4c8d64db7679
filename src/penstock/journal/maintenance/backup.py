"""Backup of a directory that may be in use, and restore to an earlier position.

Both copy three things: the newest snapshot that is old enough, the segments after it up to a position, and the history
before it. Nothing is locked, and the original is not changed. Checksums and positions of all frames are checked on the
way, so the copy can be opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.errors import CommandError, DamagedJournal, OutOfRange
from penstock.core.limits import NEVER
from penstock.journal import frame as f
from penstock.journal.consistent_read import read_consistently
from penstock.journal.disk import Disk, File, ReadableDisk, writing
from penstock.journal.identity import identity
from penstock.journal.maintenance.snapshot import completed_at, snapshot_pieces
from penstock.journal.segment import (
    NOT_BEGUN,
    SEGMENT_HEADER_BYTES,
    SNAPSHOT,
    FrameFile,
    Piece,
    Progress,
    SegmentHeader,
    all_headers,
    number_of,
    segment_name,
    snapshot_names,
)

# Number of files to open in advance. An open file can be read even if it is removed meanwhile.
_FILES_AHEAD: Final = 100

# The original can be opened this many times before it issues an id that the opened copy could issue, too.
_EPOCHS_APART: Final = 1_000


@dataclass(frozen=True)
class CopyReport:
    first: int  # Oldest position of its history.
    last: int  # The copy has the state after this position.
    files: int
    bytes: int


def copy_log(
    source: ReadableDisk, target: Disk, to_position: int | None = None, progress: Progress | None = None
) -> CopyReport:
    """Copy a log to an empty directory: all of it, or its frames up to position `to_position`."""
    identity(source)
    if target.names():
        raise CommandError("the target is not empty; name a new directory")

    def copy() -> CopyReport:
        try:
            return _Copy(source, target, to_position, progress).run()
        except BaseException:
            for name in target.names():
                target.remove(name)
            raise

    return read_consistently(source, copy)


class _Copy:
    def __init__(self, source: ReadableDisk, target: Disk, to_position: int | None, progress: Progress | None) -> None:
        self._source = source
        self._target = target
        self._end = NEVER if to_position is None else to_position + 1
        self._ended = False  # Whether the end was reached.
        self._first = 0
        self._files = 0
        self._progress = progress
        self._done = 0
        self._total = 0

    def run(self) -> CopyReport:
        """Copy the files that recovery needs, and then the history before them, as far as it still exists."""
        who = identity(self._source)
        snapshot = self._newest_before_end()
        headers = all_headers(self._source)
        if snapshot is None:
            self._check_complete(headers)
        first = 1 if snapshot is None else number_of(snapshot)
        history = [header for header in headers if header.segment < first]
        needed = headers[len(history) :]
        # Segments made ahead are not needed. But a snapshot needs at least one segment after it.
        while len(needed) > (snapshot is not None) and needed[-1].position == NOT_BEGUN:
            self._check_empty(needed.pop().name)
        if snapshot is not None:
            self._check_number(needed[0].segment if needed else 0, first)
        names = [*([] if snapshot is None else [snapshot]), *(header.name for header in needed)]
        self._total = sum(map(self._source.size, [*names, *(header.name for header in history)]))
        last = self._copy_needed(names, first)
        if last < self._end != NEVER and not self._ended:
            raise OutOfRange(f"position {self._end - 1} is after the end of the log, which is {last - 1}")
        self._copy_history(history, first, repaired=bool(needed) and needed[0].repaired)
        newest = max((header.epoch for header in headers), default=0)
        # Write the identity last, because a directory without it is not a queue.
        replace(who, epoch=max(who.epoch, newest) + _EPOCHS_APART).write(self._target)
        return CopyReport(self._first, last - 1, self._files + 1, self._done)

    def _newest_before_end(self) -> str | None:
        """Return the newest snapshot that was completed before the end of the copy, or None."""
        for name in reversed(snapshot_names(self._source)):
            if self._end == NEVER:
                return name
            with FrameFile(self._source, name) as file:
                if completed_at(file) <= self._end:
                    return name
        return None

    def _check_complete(self, headers: list[SegmentHeader]) -> None:
        """Check that the log is complete starting at its first row, because there is no snapshot to start from."""
        oldest = next(iter(snapshot_names(self._source)), None)
        if oldest is not None and any(
            header.segment != number or not header.bodies or header.repaired for number, header in enumerate(headers, 1)
        ):
            with FrameFile(self._source, oldest) as file:
                first = completed_at(file) - 1
            raise OutOfRange(
                f"the log does not reach back that far; the first position that can be restored is {first}"
            )

    def _copy_needed(self, names: list[str], number: int) -> int:
        """Copy a snapshot, if there is one, and segment `number` and all later ones. Return the next position."""
        position = upto = self._first = 1
        for file in self._open_all(names):
            if file.header.kind == SNAPSHOT:
                upto = self._copy_snapshot(file)
                position = self._first = file.header.position
                continue
            self._check_number(file.header.segment, number)
            number += 1
            self._ended = self._ended or file.header.position > self._end
            if not self._ended:
                position = self._copy_segment(file, position, file.name == names[-1], gaps=False)
        if position < upto:
            raise DamagedJournal(f"the log ends at position {position}, but the snapshot was taken at {upto}")
        return position

    def _copy_history(self, headers: list[SegmentHeader], number: int, repaired: bool) -> None:
        """Copy the segments before `number`, newest first, because the node may remove the oldest meanwhile."""
        for header in reversed(headers):
            if not repaired:
                self._check_number(header.segment, number - 1)
            begins = self._first if header.position == NOT_BEGUN else header.position
            try:
                with FrameFile(self._source, header.name) as file:
                    ends = self._copy_segment(file, begins, last=False, gaps=header.repaired)
            except FileNotFoundError:
                # It was removed by the retention limit.
                return
            if ends != self._first and not repaired:
                raise DamagedJournal(f"{header.name} ends at position {ends}, not {self._first}; nothing was copied")
            number, self._first, repaired = header.segment, begins, header.repaired

    def _check_empty(self, name: str) -> None:
        """Check that a segment which was created in advance has at most an incomplete first frame.

        Raise DamagedJournal otherwise, because the first frame of a segment must not be lost.
        """
        with FrameFile(self._source, name) as file:
            next(file.run().whole(last=True), None)

    def _check_number(self, found: int, expected: int) -> None:
        if found != expected:
            raise DamagedJournal(f"{segment_name(expected)} is missing; nothing was copied")

    def _open_all(self, names: list[str]) -> Iterator[FrameFile]:
        ahead: deque[FrameFile] = deque()
        try:
            for name in names:
                ahead.append(FrameFile(self._source, name))
                if len(ahead) > _FILES_AHEAD:
                    with ahead.popleft() as file:
                        yield file
            while ahead:
                with ahead.popleft() as file:
                    yield file
        finally:
            for file in ahead:
                file.close()

    def _copy_snapshot(self, file: FrameFile) -> int:
        """Copy a snapshot. Return the position of the log up to which it is complete."""
        upto = 0
        with self._new_file(file) as target:
            for piece in snapshot_pieces(file):
                self._write(target, piece, piece.frames)
                upto = piece.frames[-1].position
        return upto

    def _copy_segment(self, file: FrameFile, position: int, last: bool, gaps: bool) -> int:
        """Copy the frames of a segment up to the end of the copy. Return the next position."""
        with self._new_file(file) as target:
            for piece in file.run().whole(last):
                wanted = []
                for frame in piece.frames:
                    if frame.position != position and not gaps:
                        raise DamagedJournal(
                            f"{file.name} has position {frame.position} at offset {piece.base + frame.at}, "
                            f"not {position}; nothing was copied"
                        )
                    if frame.position + frame.rows > self._end:
                        self._ended = True
                        break
                    position = frame.position + frame.rows
                    wanted.append(frame)
                self._write(target, piece, wanted)
                if self._ended:
                    break
        return position

    @contextmanager
    def _new_file(self, file: FrameFile) -> Iterator[File]:
        """Create a file of the copy. The file gets its final name when it is complete."""
        with writing(self._target, file.name) as target:
            target.write(0, file.file.read(0, SEGMENT_HEADER_BYTES))
            yield target
        self._files += 1

    def _write(self, target: File, piece: Piece, frames: list[f.Frame]) -> None:
        if frames:
            length = frames[-1].at + frames[-1].length
            target.write(piece.base, piece.data[:length])
            self._done += length
        if self._progress is not None:
            self._progress(self._done, self._total)
