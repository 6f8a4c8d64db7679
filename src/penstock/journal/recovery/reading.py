"""Reads a directory, as the start of a queue does: the newest snapshot, then the log after it.

The last row of each job wins.

A frame that cannot be read is either the *torn tail* of a log whose last write was interrupted, or *damage*. It is
damage if later data proves that the frame had been durable. There are two proofs: the position `durable` of a later
frame or header, and a later frame that was written since the last boot. The second one is a proof because only a power
cut can lose a write and keep a later one. A torn tail is truncated. For damage, DamagedJournal is raised with file and
offset. A repair passes the list `salvage` instead, which receives a description of the damage.

Reading takes no lock, so a node may be appending to the log. The frame at its end may be incomplete at first and
complete later. Therefore an unreadable frame is read once more before damage is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from penstock.core.errors import DamagedJournal, NewerJournal
from penstock.journal.disk import Disk, ReadableDisk
from penstock.journal.maintenance.snapshot import read_snapshot
from penstock.journal.recovery.replay import Replay
from penstock.journal.segment import (
    NOT_BEGUN,
    SEGMENT_HEADER_BYTES,
    FrameFile,
    FrameRun,
    LocatedFrame,
    Piece,
    Progress,
    SegmentHeader,
    index_name,
    number_of,
    segment_name,
    segment_names,
    snapshot_names,
)


@dataclass(frozen=True)
class Cut:
    """A torn tail of a segment. It is truncated when the queue is opened."""

    where: str  # The file, or why it does not continue the log.
    what: str  # The bytes or files that are lost.

    def __str__(self) -> str:
        return f"{self.where}: cut {self.what}"

    def as_warning(self) -> str:
        """Return a sentence for a torn tail that has not been truncated yet."""
        return f"{self.where}: the next open will cut {self.what}"


@dataclass
class Part:
    """A segment that recovery needs, and the offset up to which it was read."""

    header: SegmentHeader
    end: int = SEGMENT_HEADER_BYTES  # End of its frames.
    size: int = SEGMENT_HEADER_BYTES
    frames: int = 0
    rows: int = 0


class RecoveryReader:
    """One pass over the files of a directory that recovery needs."""

    def __init__(
        self,
        disk: ReadableDisk,
        node: str,
        boot: str,
        *,
        leave_bodies: bool = True,
        progress: Progress | None = None,
        salvage: list[str] | None = None,
    ) -> None:
        self.cuts: list[Cut] = []
        self.unusable: list[str] = []  # Snapshots that cannot be used, with reasons.
        self.parts: list[Part] = []
        self.first_segment = 1  # The first segment that is read.
        self.snapshot: SegmentHeader | None = None
        self.snapshot_bytes = 0
        self._disk = disk
        self._node = node
        self._boot = boot
        self._leave_bodies = leave_bodies
        self._progress = progress
        self._salvage = salvage
        self._done = 0
        self._total = 0
        self._lost: list[str] = []  # Segments without frames at the end of the log, and segments after a torn tail.
        self._epoch = 0  # Epoch of the file that was read last.
        self._durable = 0  # Every position below this was on disk, according to the log.

    def read(self) -> Replay:
        """Read all files that recovery needs, and return the result."""
        replay = self._read_snapshot()
        self._read_headers()
        self.report()
        for index, part in enumerate(self.parts):
            if part.header.position == NOT_BEGUN:
                self._check_empty_segment(part.header, replay)
            elif self._follows(index, replay):
                self._read_segment(index, replay)
            else:
                self._drop_from(index)
                break
        while self.parts and self.parts[-1].header.position == NOT_BEGUN:
            self._drop_from(len(self.parts) - 1)
        self._check(replay)
        self.report(self._total - self._done)  # The rest is empty or lost.
        if self._salvage:
            # Rows may be missing, even if the end row is there.
            replay.stopped = False
        return replay

    @property
    def newest(self) -> SegmentHeader | None:
        """Return the header of the file that was written last."""
        return self.parts[-1].header if self.parts else self.snapshot

    @property
    def next_segment(self) -> int:
        """Return the number of the next segment, in which the log continues."""
        return self.parts[-1].header.segment + 1 if self.parts else self.first_segment

    @property
    def log_bytes(self) -> int:
        return sum(part.end for part in self.parts)

    def cut(self, disk: Disk) -> None:
        """Truncate the torn tails that were found. Called only if there was no damage."""
        for name in reversed(self._lost):
            # The first of them stays until the next segment replaces it, because a snapshot needs a segment.
            if number_of(name) != self.next_segment:
                disk.remove(name)
        cut = [part for part in self.parts if part.size > part.end or part is self.parts[-1]]
        for part in cut:
            _cut(disk, part)
        changed = [*map(number_of, self._lost), *(part.header.segment for part in cut)]
        for index in {index_name(number) for number in changed} & set(disk.names()):
            # It may contain rows that are lost.
            disk.remove(index)

    def rewrite_doubtful(self, disk: Disk) -> None:
        """Write all rows again, except those that later frames of the log prove to be durable.

        The other rows may be in the page cache only. After a failed sync, the system regards pages as clean that it
        could not write, and no later sync writes them. If the machine was rebooted since the rows were written, nothing
        is rewritten, because all bytes that were read came from the disk.
        """
        if self.newest is None or self.newest.boot != self._boot:
            return
        for part in reversed(self.parts):
            _rewrite_doubtful(disk, part, self._durable)
            if NOT_BEGUN != part.header.position <= self._durable:
                break

    def _read_snapshot(self) -> Replay:
        """Return the replay of the newest complete snapshot.

        If there is none, return an empty replay. The log must then start with the first segment.
        """
        for name in reversed(snapshot_names(self._disk)):
            replay = Replay(self._leave_bodies)
            self._done = 0
            is_readable = False  # Whether it has a header of a known version, which no checksum covers.
            try:
                with self._open(name) as file:
                    is_readable = True
                    self._total = file.size + self._bytes_from(file.header.segment)
                    self.report()
                    read_snapshot(file, replay, self.report)
                    self.snapshot, self.snapshot_bytes = file.header, file.size
                    self.first_segment, self._epoch = file.header.segment, file.header.epoch
                    replay.position = file.header.position
                    return replay
            except DamagedJournal as error:
                if is_readable and isinstance(error, NewerJournal):
                    raise
                self.unusable.append(f"{name} cannot be used: {error}")
                if self._salvage is not None:
                    self._salvage.append(self.unusable[-1])
        self._done, self._total = 0, self._bytes_from(1)
        names = segment_names(self._disk)
        if names and number_of(names[0]) != 1:
            why = [f"{segment_name(1)} is missing, and no snapshot can be used in its place", *self.unusable]
            self._refuse("; ".join(why))
            self.first_segment = number_of(names[0])
        return Replay(self._leave_bodies)

    def _read_headers(self) -> None:
        """Read the headers of all needed segments. Earlier segments are history and not checked."""
        names = [name for name in segment_names(self._disk) if number_of(name) >= self.first_segment]
        # Newest first: if a segment has frames, the earlier ones have frames, too, and are complete.
        for name in reversed(names):
            try:
                with self._open(name) as file:
                    self.parts.insert(0, Part(file.header))
            except NewerJournal:
                raise
            except DamagedJournal as error:
                if self._salvage is None:
                    raise
                self._salvage.append(str(error))
        numbers = [self.first_segment - 1, *(part.header.segment for part in self.parts)]
        for before, after in pairwise(numbers):
            if after != before + 1:
                self._refuse(f"{segment_name(before + 1)} is missing")
        if self.snapshot is not None and not self.parts:
            self._refuse(f"{segment_name(self.first_segment)} is missing")

    def _check_empty_segment(self, header: SegmentHeader, replay: Replay) -> None:
        """Report damage if later data proves that a segment without a first frame once had durable frames."""
        if self._proves_durable(None, [header], replay):
            with self._open(header.name) as again:
                # If it has a frame now, the log is in use. All rows from before this reading are in earlier
                # segments.
                if again.header.position == NOT_BEGUN:
                    self._refuse(f"{header.name} is damaged at offset {SEGMENT_HEADER_BYTES}")

    def _follows(self, index: int, replay: Replay) -> bool:
        """Return whether the segment at `index` continues the log.

        If it does not, the log is regarded as ended before this segment: a power cut can lose the older of two
        segments.
        """
        later = [part.header for part in self.parts[index:]]
        header = later[0]
        if header.position != replay.position:
            wrong = f"{header.name} begins at position {header.position}, not {replay.position}"
            if (
                header.position > replay.position
                and self._salvage is None
                and not self._proves_durable(None, later, replay)
            ):
                self.cuts.append(Cut(wrong, ", ".join(lost.name for lost in later)))
                return False
            self._refuse(wrong)
        return True

    def _drop_from(self, index: int) -> None:
        self._lost = [*(part.header.name for part in self.parts[index:]), *self._lost]
        del self.parts[index:]

    def _read_segment(self, index: int, replay: Replay) -> None:
        """Apply the rows of one segment. If it ends early, decide whether that is damage."""
        part = self.parts[index]
        header, later = part.header, [other.header for other in self.parts[index + 1 :]]
        self._durable = max(self._durable, header.durable)
        if header.epoch != self._epoch and not replay.stopped:
            replay.use_up_integers()
        self._epoch = header.epoch
        replay.position = header.position
        replay.stopped = False
        with self._open(header.name) as file:
            reported = 0
            run: FrameRun | None = file.run()
            while run is not None:
                for piece in run:
                    self._apply(file, piece, part, replay)
                    self.report(run.end - reported)
                    reported = run.end
                part.end = run.end
                run = self._handle_unreadable(file, run, part, later, replay) if run.torn_reason() else None
            part.size = file.size
            self.report(file.size - reported)

    def _handle_unreadable(
        self, file: FrameFile, run: FrameRun, part: Part, later: list[SegmentHeader], replay: Replay
    ) -> FrameRun | None:
        """Handle a frame that cannot be read.

        If later data proves that the frame was durable, the journal is damaged: raise DamagedJournal, or during a
        salvage, record the damage. Otherwise it is the torn tail of an interrupted write, which is recorded in `cuts`.

        Return the frames at which reading continues, or None if the segment ends here.
        """
        # In this order: an incomplete frame is complete by the time that something follows it.
        proven = self._proves_durable((file, run.end + 8), later, replay)
        for piece in run:
            self._apply(file, piece, part, replay)
        if run.end > part.end:
            part.end = run.end
            return run
        why = run.torn_reason()
        behind = None if self._salvage is None else next(file.frames_anywhere(run.end + 8), None)
        if proven or behind is not None:
            durable = "and later data shows that it was durable"
            self._refuse(f"{file.name} is damaged at offset {run.end} ({why}), {durable}")
        elif why:
            size = file.used_end(run.end) - run.end
            self.cuts.append(Cut(file.name, f"a torn tail of {size} bytes at offset {run.end} ({why})"))
        return None if behind is None else file.run(behind.base)

    def _apply(self, file: FrameFile, piece: Piece, part: Part, replay: Replay) -> None:
        data, frames, base = piece
        part.frames += len(frames)
        part.rows += sum(frame.rows for frame in frames)
        self._durable = max(self._durable, frames[-1].durable)
        while (stranger := replay.apply_frames(data, frames, file.header.segment, base)) is not None:
            lost = f"the events at positions {replay.position} to {stranger.position - 1} are lost"
            self._refuse(f"{file.name} is damaged before offset {base + stranger.at}: {lost}")
            replay.position = stranger.position
            frames = frames[frames.index(stranger) :]

    def _proves_durable(self, rest: tuple[FrameFile, int] | None, later: list[SegmentHeader], replay: Replay) -> bool:
        """Return whether later bytes of a segment, or later segments, prove that the missing bytes had been on disk."""
        position = replay.position
        if any(header.durable > position for header in later):
            return True
        return any(
            found.frame.durable > position or header.boot == self._boot
            for header, found in self._later_frames(rest, later)
        )

    def _later_frames(
        self, rest: tuple[FrameFile, int] | None, later: list[SegmentHeader]
    ) -> Iterator[tuple[SegmentHeader, LocatedFrame]]:
        """Yield every valid frame in the damaged part of a file and in the segments `later`.

        `rest` is that file and the offset at which the damage begins. Frames are searched at every offset after it.
        """
        if rest is not None:
            file, start = rest
            for found in file.frames_anywhere(start):
                yield file.header, found
        for header in later:
            with self._open(header.name) as other:
                for found in other.frames_anywhere(SEGMENT_HEADER_BYTES):
                    yield header, found

    def _check(self, replay: Replay) -> None:
        upto = replay.counters.get("upto", 0)
        if upto > replay.position:
            self._refuse(f"the log ends at position {replay.position}, but the snapshot was taken at {upto}")
        if replay.bodiless:
            self._refuse(f"the bodies of {len(replay.bodiless)} jobs are missing")
            replay.drop_bodiless()

    def _refuse(self, why: str) -> None:
        """Raise DamagedJournal, or collect the reason during a salvage."""
        if self._salvage is None:
            raise DamagedJournal(f"{why}; restore a backup, or see `penstock journal repair`. Nothing was changed")
        self._salvage.append(why)

    def _open(self, name: str) -> FrameFile:
        file = FrameFile(self._disk, name)
        if file.header.node != self._node:
            file.close()
            raise DamagedJournal(f"{name} belongs to another node ({file.header.node}); it was copied here by mistake")
        return file

    def _bytes_from(self, segment: int) -> int:
        return sum(self._disk.size(name) for name in segment_names(self._disk) if number_of(name) >= segment)

    def report(self, count: int = 0) -> None:
        """Report progress after `count` more bytes.

        Long work that reads nothing calls this with 0 from time to time.
        """
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def _cut(disk: Disk, part: Part) -> None:
    """Truncate a segment of an earlier start at the end of its frames, and sync it."""
    with closing(disk.open(part.header.name)) as file:
        if file.size() > part.end:
            file.truncate(part.end)
        else:
            file.sync()


def _rewrite_doubtful(disk: Disk, part: Part, durable: int) -> None:
    """Write the frames with rows at or after the position `durable` again, and sync them."""
    with closing(disk.open(part.header.name)) as file, FrameFile(disk, part.header.name) as source:
        for data, frames, base in source.run():
            doubtful = [frame for frame in frames if frame.position + frame.rows > durable]
            if doubtful:
                start, end = doubtful[0].at, doubtful[-1].at + doubtful[-1].length
                file.write(base + start, data[start:end])
        file.sync()
