"""A standby's directory: the files of a node's log, as they are there, up to what is durable there.

It is fed by whoever can read the node's files. What arrives is checked before it is written: every frame is that of its
node, its file and its place, and follows the one before. It is on disk before more is asked for, so a mirror that was
interrupted anywhere goes on where it ended. What it has is always the beginning of what the node has: once it is whole,
it can be opened at any time, as soon as it is told to be the node. One that has fallen so far behind that the node has
not kept what comes next begins anew in a directory below, and keeps what it has until that is whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.core.errors import CommandError, DamagedJournal, Trimmed
from penstock.journal import frame as f
from penstock.journal.disk import UNFINISHED, File, RealDisk
from penstock.journal.identity import NODE_FILE, Identity, identity
from penstock.journal.retention import rewrite
from penstock.journal.segment import (
    NOT_BEGUN,
    SEGMENT_HEADER_BYTES,
    FrameFile,
    SegmentHeader,
    index_name,
    number_of,
    read_header,
    segment_name,
    segment_names,
    snapshot_names,
)
from penstock.journal.snapshot import whole_at

Fetch = Callable[[str, int, int], bytes]  # Reads a file of the node: its name, an offset, and so many bytes at most.

# Where a log grows that was begun anew.
_ANEW: Final = "anew"

# How much of a snapshot is fetched and written at a time.
_PIECE_BYTES: Final = 4 * 1024 * 1024


class Kept(Protocol):
    """A file that the node has."""

    @property
    def name(self) -> str: ...
    @property
    def bodies(self) -> bool: ...


@dataclass
class _Tail:
    """The segment that grows."""

    header: SegmentHeader
    end: int  # Where the next frame will be.
    file: File


@dataclass(frozen=True)
class Commit:
    """What of a frame stays the same wherever it is: by that of the last one a log is known again."""

    position: int
    rows: int
    wall_ms: int
    durable: int

    @staticmethod
    def of(frame: f.Frame) -> Commit:
        """That of a frame."""
        return Commit(frame.position, frame.rows, frame.wall_ms, frame.durable)


class Mirror:
    """The directory of a standby, which is its own until it is closed."""

    position: int  # The one that comes next.

    def __init__(self, disk: RealDisk) -> None:
        """Own a directory: that of a standby, or an empty one."""
        self._disk = disk
        self._log = disk  # Where the log grows: here, or below if it was begun anew.
        self._tail: _Tail | None = None
        self.last: Commit | None = None  # The one that is here last.
        disk.lock()
        try:
            names = set(disk.names()) - {"lock"}
            if NODE_FILE in names and not identity(disk).standby:
                raise CommandError("this directory is that of a node itself; name a new one for its standby")
            if NODE_FILE not in names and names:
                raise CommandError("this directory is neither empty nor that of a standby; name a new one")
            if disk.has_below(_ANEW):
                self._log = disk.below(_ANEW)
            for each in (disk, self._log):
                for name in each.names():
                    if name.endswith(UNFINISHED):
                        each.remove(name)
            if self._log is not disk and not self._log.names():
                # All of it has come up, or nothing was begun.
                self._end_anew()
            elif self._log is not disk:
                self._come_up()
            self._find_end()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others have the directory."""
        self._leave_tail()
        self._disk.unlock()

    @property
    def node(self) -> Identity | None:
        """Whom it follows; None until that is said."""
        return identity(self._disk) if NODE_FILE in self._disk.names() else None

    def follow(self, who: Identity) -> None:
        """Follow a node, the one before or the first one."""
        before, wanted = self.node, replace(who, standby=True)
        if before is not None and (before.node, before.key, before.log) != (wanted.node, wanted.key, wanted.log):
            raise CommandError(
                f"this directory follows node {before.node}, and there is {who.node}; name a new directory for that one"
            )
        if before is not None and before.node_epoch > wanted.node_epoch:
            raise CommandError(
                f"node {who.node} was replaced: this directory follows the one in epoch {before.node_epoch}"
            )
        if before != wanted:
            wanted.write(self._disk)

    @property
    def segment(self) -> int:
        """The number of the segment that grows; 0 if nothing is here to go on from."""
        return 0 if self._tail is None else self._tail.header.segment

    @property
    def end(self) -> int:
        """Where it ends by now."""
        return 0 if self._tail is None else self._tail.end

    def begin_anew(self) -> None:
        """Begin from nothing: what is here does not lead to what the node still has. It stays until that is whole."""
        self._leave_tail()
        self._log = self._disk.below(_ANEW)
        for name in [*snapshot_names(self._log), *segment_names(self._log)]:
            self._log.remove(name)
        self._find_end()

    def begin_at(self, number: int, position: int, fetch: Fetch) -> None:
        """Begin with a segment of the node's, the first row of which has a position."""
        self._open(self._made(number, fetch))
        self.position = position

    # The log

    def append(self, name: str, offset: int, data: bytes, fetch: Fetch) -> None:
        """Write frames where they are on the node. Segments before theirs may be empty, and are made, too."""
        number = number_of(name)
        if number == self.segment and self.end == SEGMENT_HEADER_BYTES:
            # As long as nothing was in it, a node that was opened again may have made another in its place.
            self._open(self._made(number, fetch))
        tail = self._reach(number, fetch)
        if (tail.header.name, tail.end) != (name, offset):
            raise DamagedJournal(f"{name} goes on at offset {offset}, and {tail.header.name} ends at {tail.end} here")
        frames = f.read_frames(data, 0, offset, tail.header.seeds, True)
        position = self.position
        for frame in frames:
            if frame.position != position:
                raise DamagedJournal(
                    f"{name} has position {frame.position} at offset {offset + frame.at}, not {position}"
                )
            position = frame.position + frame.rows
        if not frames or frames[-1].at + frames[-1].length != len(data):
            raise DamagedJournal(f"what came for {name} at offset {offset} is not what the node wrote there")
        tail.file.write(offset, data)
        tail.file.sync()
        tail.end = offset + len(data)
        self.position = position
        self.last = Commit.of(frames[-1])

    # Snapshots, and what they make superfluous

    def lacks(self, snapshot: str) -> bool:
        """Whether a snapshot of the node's is newer than those here."""
        have = self._snapshots()
        return not have or have[-1] < snapshot

    def take_snapshot(self, name: str, size: int, fetch: Fetch, tell: Callable[[int], None]) -> None:
        """Have a snapshot of the node's, whose log is here as far as it was durable when the snapshot was there."""
        file = self._log.begin(name)
        try:
            offset = 0
            while offset < size:
                data = fetch(name, offset, min(_PIECE_BYTES, size - offset))
                if not data:
                    raise DamagedJournal(f"{name} ends at offset {offset} on the node, and not at {size}")
                file.write(offset, data)
                offset += len(data)
                tell(len(data))
            # A snapshot does not stand alone: it needs its segment, which may be empty.
            self._reach(number_of(name), fetch)
        except BaseException:
            self._log.abandon(name, file)
            raise
        self._log.finish(name, file)
        try:
            with FrameFile(self._log, name) as whole:
                self._check_header(whole.header)
                upto = whole_at(whole)
            if upto > self.position:
                raise DamagedJournal(f"{name} was taken at position {upto}, and the log is at {self.position}")
        except DamagedJournal:
            self._log.remove(name)
            raise
        if self._log is not self._disk:
            self._leave_tail()
            self._come_up()
            self._find_end()

    def _come_up(self) -> None:
        """If what was begun anew is whole, let it take the place of what is here; it can be interrupted anywhere."""
        whole = self._snapshots()
        if not whole:
            return
        first = number_of(whole[-1])
        for name in [*snapshot_names(self._disk), *segment_names(self._disk)]:
            if number_of(name) < first:
                self._disk.remove(name)
        # The snapshot last: as long as it is there, this is not done.
        for name in [*segment_names(self._log), *whole]:
            self._log.hand(name, self._disk)
        self._end_anew()

    def _end_anew(self) -> None:
        """Let the log grow here again: nothing is below any more."""
        self._disk.drop_below(_ANEW)
        self._log = self._disk

    def tidy(self, kept: Iterable[Kept]) -> None:
        """Remove what the node has no more, and bodies that it has taken out, as far as nothing here needs them."""
        have = self._snapshots()
        if not have:
            return
        for name in have[:-1]:
            self._log.remove(name)
        bodies = {file.name: file.bodies for file in kept}
        for name in segment_names(self._log):
            if number_of(name) >= number_of(have[-1]):
                break
            if name not in bodies:
                with contextlib.suppress(FileNotFoundError):
                    self._log.remove(index_name(number_of(name)))
                self._log.remove(name)
            elif not bodies[name]:
                self._take_bodies_out(name)

    def _take_bodies_out(self, name: str) -> None:
        with FrameFile(self._log, name) as file:
            has_bodies = file.header.bodies
        if has_bodies:
            rewrite(self._log, name, bodies=False)

    # Files

    def _snapshots(self) -> list[str]:
        return snapshot_names(self._log)

    def _find_end(self) -> None:
        """Find where what is here ends, and cut what was half written."""
        self.position, self.last = 1, None
        for name in reversed(segment_names(self._log)):
            with FrameFile(self._log, name) as file:
                run = file.run()
                for piece in run:
                    frame = piece.frames[-1]
                    self.last = Commit.of(frame)
                    self.position = frame.position + frame.rows
                header, size = file.header, file.size
            if self._tail is None:
                tail = self._open(header)
                tail.end = run.end
                if size > run.end:
                    tail.file.truncate(run.end)
            if self.last is not None:
                return
            if header.position != NOT_BEGUN:
                self.position = header.position
                return
        # Nothing was written yet in what is here.
        for name in self._snapshots()[-1:]:
            with FrameFile(self._log, name) as file:
                self.position = file.header.position
            return
        self._leave_tail()
        for name in segment_names(self._log):
            self._log.remove(name)

    def _reach(self, number: int, fetch: Fetch) -> _Tail:
        """Have all segments up to one, which is the one that grows then if it is the last."""
        assert self._tail is not None
        for missing in range(self.segment + 1, number + 1):
            self._open(self._made(missing, fetch))
        return self._tail

    def _made(self, number: int, fetch: Fetch) -> SegmentHeader:
        """Make a segment as the node has it, without its frames."""
        name = segment_name(number)
        data = fetch(name, 0, SEGMENT_HEADER_BYTES)
        header = read_header(name, data)
        if header.name != name:
            raise DamagedJournal(f"{name} says that it is {header.name}")
        self._check_header(header)
        if not header.bodies or header.repaired:
            raise Trimmed(f"{name} is history by now, and not what it was: a newer snapshot has all that it led to")
        self._log.replace(name, data)
        return header

    def _check_header(self, header: SegmentHeader) -> None:
        who = self.node
        assert who is not None
        if header.node != who.of_log:
            raise DamagedJournal(f"{header.name} is of node {header.node}, and not of {who.of_log}")

    def _open(self, header: SegmentHeader) -> _Tail:
        """Let a segment be the one that grows."""
        self._leave_tail()
        tail = self._tail = _Tail(header, SEGMENT_HEADER_BYTES, self._log.open(header.name))
        return tail

    def _leave_tail(self) -> None:
        if self._tail is not None:
            self._tail.file.close()
            self._tail = None
