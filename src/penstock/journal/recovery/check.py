"""Checks whether a directory is intact: the files that recovery needs, and the history. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.errors import DamagedJournal
from penstock.journal.consistent_read import read_consistently
from penstock.journal.disk import ReadableDisk
from penstock.journal.history.reader import SegmentReport
from penstock.journal.identity import identity
from penstock.journal.maintenance.snapshot import completed_at
from penstock.journal.recovery.reading import Cut, RecoveryReader
from penstock.journal.segment import (
    NOT_BEGUN,
    FrameFile,
    Progress,
    SegmentHeader,
    number_of,
    segment_name,
    segment_names,
    snapshot_names,
)


@dataclass
class CheckReport:
    segments: list[SegmentReport] = field(default_factory=list)
    # Names, each with the position at which the snapshot was complete.
    snapshots: list[tuple[str, int]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)  # Torn tails that the next open will cut.
    refused: str = ""  # Why the queue cannot be opened. Empty if it can.
    problems: list[str] = field(default_factory=list)  # Other damage.

    @property
    def damaged(self) -> bool:
        return bool(self.refused or self.problems)


def check_log(disk: ReadableDisk, boot: str, progress: Progress | None = None, node: str | None = None) -> CheckReport:
    """Read all files. Report damage that prevents an open, torn tails that an open would cut, and damaged history."""
    return read_consistently(
        disk,
        lambda: _Check(disk, node or identity(disk).of_log, boot, progress).run(),
        lambda checked: checked.damaged,
    )


class _Check:
    def __init__(self, disk: ReadableDisk, node: str, boot: str, progress: Progress | None) -> None:
        self._disk = disk
        self._report = CheckReport()
        self._reading = RecoveryReader(disk, node, boot, progress=progress)
        self._number = 0  # Number of the previous segment, or 0.
        self._position = NOT_BEGUN  # Position of the next row, or NOT_BEGUN if it is unknown.

    def run(self) -> CheckReport:
        checked = self._report
        needed = self._check_needed()
        history = [name for name in segment_names(self._disk) if number_of(name) < self._reading.first_segment]
        for name in history:
            self._check_history(name)
        if self._reading.parts:
            self._check_continues(self._reading.parts[0].header)
        checked.segments += needed
        self._check_snapshots()
        return checked

    def _check_needed(self) -> list[SegmentReport]:
        reading = self._reading
        try:
            reading.read()
        except DamagedJournal as error:
            self._report.refused = str(error)
        self._report.cuts = reading.cuts
        begun = [part for part in reading.parts if part.header.position != NOT_BEGUN]
        return [SegmentReport(part.header.name, part.frames, part.rows, part.end) for part in begun]

    def _check_history(self, name: str) -> None:
        """Read a segment of history. Report missing rows in it or before it, unless a repair has marked the segment."""
        try:
            with FrameFile(self._disk, name) as file:
                self._check_continues(file.header)
                self._read(file)
        except DamagedJournal as error:
            self._report.problems.append(str(error))
            self._number, self._position = number_of(name), NOT_BEGUN

    def _check_continues(self, header: SegmentHeader) -> None:
        if self._number and not header.repaired:
            if header.segment != self._number + 1:
                self._report.problems.append(f"{segment_name(self._number + 1)} is missing")
            elif NOT_BEGUN not in (header.position, self._position) and header.position != self._position:
                self._report.problems.append(
                    f"{header.name} begins at position {header.position}, not {self._position}"
                )
        self._number = header.segment
        if header.position != NOT_BEGUN:
            self._position = header.position

    def _read(self, file: FrameFile) -> None:
        frames = rows = 0
        end = 0
        for piece in file.pieces():
            for frame in piece.frames:
                if frame.position != self._position and not file.header.repaired:
                    lost = f"the events at positions {self._position} to {frame.position - 1} are lost"
                    self._report.problems.append(
                        f"{file.name} is damaged before offset {piece.base + frame.at}: {lost}"
                    )
                self._position = frame.position + frame.rows
                rows += frame.rows
            frames += len(piece.frames)
            end = piece.base + piece.frames[-1].at + piece.frames[-1].length
        if frames:
            self._report.segments.append(SegmentReport(file.name, frames, rows, end))

    def _check_snapshots(self) -> None:
        for name in snapshot_names(self._disk):
            try:
                with FrameFile(self._disk, name) as file:
                    self._report.snapshots.append((name, completed_at(file)))
            except DamagedJournal as error:
                self._report.problems.append(f"{name} cannot be used: {error}")
