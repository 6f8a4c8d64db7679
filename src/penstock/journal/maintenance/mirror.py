"""The directory of a standby: a copy of the files of a node's log, up to the position that is durable on the node.

A client that reads the node's files passes them to this module. Received bytes are checked before they are written:
every frame must belong to the node, the file and the offset, and must continue the previous frame. The bytes are on
disk before more are requested, so an interrupted standby continues where it ended.

The copy starts with the node's newest snapshot, or with the first segment if there is none. Once the snapshot is
complete, the standby can be promoted. If the node has deleted rows that the standby has not received yet, the copy is
rebuilt in a subdirectory. The old files stay until the rebuilt log is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.core.errors import CommandError, DamagedJournal, Trimmed
from penstock.journal import frame as f
from penstock.journal.disk import UNFINISHED, File, writing
from penstock.journal.identity import NODE_FILE, Identity, identity
from penstock.journal.maintenance.retention import rewrite
from penstock.journal.maintenance.snapshot import completed_at
from penstock.journal.real_disk import RealDisk
from penstock.journal.segment import (
    NOT_BEGUN,
    SEGMENT_HEADER_BYTES,
    FrameFile,
    SegmentHeader,
    number_of,
    read_header,
    remove_index,
    segment_name,
    segment_names,
    snapshot_names,
)

Fetch = Callable[[str, int, int], bytes]  # Reads a file of the node: name, offset, maximum length.

# Subdirectory in which a log is rebuilt.
_REBUILD_DIRECTORY: Final = "anew"

# Bytes of a snapshot to fetch and write at a time.
_PIECE_BYTES: Final = 4 * 1024 * 1024


class ListedFile(Protocol):
    """A file of the node's log, as the node lists it."""

    @property
    def name(self) -> str: ...
    @property
    def bodies(self) -> bool: ...


@dataclass
class _Tail:
    """The newest segment of the copy. Received frames are appended to it."""

    header: SegmentHeader
    end: int  # Offset of the next frame.
    file: File


@dataclass(frozen=True)
class FrameFacts:
    """The fields of a frame that do not depend on its file and offset.

    A standby compares its last frame with the same frame of the node, to check that both logs are the same.
    """

    position: int
    rows: int
    wall_ms: int
    durable: int

    @staticmethod
    def of(frame: f.Frame) -> FrameFacts:
        return FrameFacts(frame.position, frame.rows, frame.wall_ms, frame.durable)


class Mirror:
    """The directory of a standby. It is locked until `close`."""

    position: int  # Position of the next row.

    def __init__(self, disk: RealDisk) -> None:
        """Lock the directory. It must be empty or belong to a standby."""
        self._disk = disk
        self._log = disk  # Where the log grows: `_disk`, or a subdirectory during a rebuild.
        self._tail: _Tail | None = None
        self.last_frame: FrameFacts | None = None  # The last frame in the directory.
        disk.lock()
        try:
            names = set(disk.names()) - {"lock"}
            if NODE_FILE in names and not identity(disk).standby:
                raise CommandError("this directory belongs to a node; choose a new one for its standby")
            if NODE_FILE not in names and names:
                raise CommandError("this directory is neither empty nor a standby's; choose a new one")
            if disk.has_subdirectory(_REBUILD_DIRECTORY):
                self._log = disk.subdirectory(_REBUILD_DIRECTORY)
            for each in (disk, self._log):
                for name in each.names():
                    if name.endswith(UNFINISHED):
                        each.remove(name)
            if self._log is not disk and not self._log.names():
                # The rebuilt log was moved completely, or nothing was written yet.
                self._end_rebuild()
            elif self._log is not disk:
                self._install_rebuilt()
            self._find_end()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._close_tail()
        self._disk.unlock()

    @property
    def node(self) -> Identity | None:
        """Return the identity of the node that is followed, or None if it is not known yet."""
        return identity(self._disk) if NODE_FILE in self._disk.names() else None

    def follow(self, who: Identity) -> None:
        """Follow the node `who`. Raise an error if another node was followed before."""
        before, wanted = self.node, replace(who, standby=True)
        if before is not None and (before.node, before.key, before.log) != (wanted.node, wanted.key, wanted.log):
            raise CommandError(
                f"this directory follows node {before.node}, but the server is {who.node}; choose another directory"
            )
        if before is not None and before.node_epoch > wanted.node_epoch:
            raise CommandError(
                f"node {who.node} was replaced: this directory follows its successor in epoch {before.node_epoch}"
            )
        if before != wanted:
            wanted.write(self._disk)

    @property
    def segment(self) -> int:
        """Return the number of the newest segment, or 0 if the directory has none."""
        return 0 if self._tail is None else self._tail.header.segment

    @property
    def end(self) -> int:
        """Return the offset of the next frame in the newest segment."""
        return 0 if self._tail is None else self._tail.end

    def start_rebuild(self) -> None:
        """Start a rebuild in a subdirectory, because the node has deleted the rows after `position`.

        The old files stay until the rebuilt log is complete.
        """
        self._close_tail()
        self._log = self._disk.subdirectory(_REBUILD_DIRECTORY)
        for name in [*snapshot_names(self._log), *segment_names(self._log)]:
            self._log.remove(name)
        self._find_end()

    def begin_at(self, number: int, position: int, fetch: Fetch) -> None:
        """Start the copy with segment `number` of the node, whose first row has `position`."""
        self._open_tail(self._create_segment(number, fetch))
        self.position = position

    # The log

    def append(self, name: str, offset: int, data: bytes, fetch: Fetch) -> None:
        """Write frames to the file `name` at the same offset as on the node.

        If segments before this file are missing, create them without frames.
        """
        number = number_of(name)
        if number == self.segment and self.end == SEGMENT_HEADER_BYTES:
            # The node may have replaced an empty segment after a restart.
            self._open_tail(self._create_segment(number, fetch))
        tail = self._create_up_to(number, fetch)
        if (tail.header.name, tail.end) != (name, offset):
            raise DamagedJournal(f"{name} continues at offset {offset}, but {tail.header.name} ends at {tail.end} here")
        frames = f.read_frames(data, 0, offset, tail.header.file_seed, True)
        position = self.position
        for frame in frames:
            if frame.position != position:
                raise DamagedJournal(
                    f"{name} has position {frame.position} at offset {offset + frame.at}, not {position}"
                )
            position = frame.position + frame.rows
        if not frames or frames[-1].at + frames[-1].length != len(data):
            raise DamagedJournal(f"the bytes received for {name} at offset {offset} are not valid frames")
        tail.file.write(offset, data)
        tail.file.sync()
        tail.end = offset + len(data)
        self.position = position
        self.last_frame = FrameFacts.of(frames[-1])

    # Snapshots, and the files that they replace

    def needs_snapshot(self, snapshot: str) -> bool:
        """Return whether a snapshot of the node is newer than all snapshots in this directory."""
        have = self._snapshots()
        return not have or have[-1] < snapshot

    def fetch_snapshot(self, name: str, size: int, fetch: Fetch, tell: Callable[[int], None]) -> None:
        """Fetch a snapshot of the node. The log must already contain the rows that the snapshot depends on."""
        with writing(self._log, name) as file:
            offset = 0
            while offset < size:
                data = fetch(name, offset, min(_PIECE_BYTES, size - offset))
                if not data:
                    raise DamagedJournal(f"{name} ends at offset {offset} on the node, not at {size}")
                file.write(offset, data)
                offset += len(data)
                tell(len(data))
            # A snapshot needs its segment, which may be empty.
            self._create_up_to(number_of(name), fetch)
        try:
            with FrameFile(self._log, name) as whole:
                self._check_header(whole.header)
                upto = completed_at(whole)
            if upto > self.position:
                raise DamagedJournal(f"{name} was taken at position {upto}, but the log is at {self.position}")
        except DamagedJournal:
            self._log.remove(name)
            raise
        if self._log is not self._disk:
            self._close_tail()
            self._install_rebuilt()
            self._find_end()

    def _install_rebuilt(self) -> None:
        """If the rebuilt log is complete, replace the old log by it. The move can be interrupted at any point."""
        whole = self._snapshots()
        if not whole:
            return
        first = number_of(whole[-1])
        for name in [*snapshot_names(self._disk), *segment_names(self._disk)]:
            if number_of(name) < first:
                self._disk.remove(name)
        # Move the snapshot last: while it is in the subdirectory, the move is not complete.
        for name in [*segment_names(self._log), *whole]:
            self._log.move_to(name, self._disk)
        self._end_rebuild()

    def _end_rebuild(self) -> None:
        """End the rebuild. New frames are written to the directory itself again."""
        self._disk.remove_subdirectory(_REBUILD_DIRECTORY)
        self._log = self._disk

    def remove_obsolete(self, kept: Iterable[ListedFile]) -> None:
        """Remove the history that the node has removed: whole files, or only the bodies in them.

        Files that recovery of this copy needs are not changed.
        """
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
                remove_index(self._log, number_of(name))
                self._log.remove(name)
            elif not bodies[name]:
                with FrameFile(self._log, name) as file:
                    has_bodies = file.header.bodies
                if has_bodies:
                    rewrite(self._log, name, bodies=False)

    # Files

    def _snapshots(self) -> list[str]:
        return snapshot_names(self._log)

    def _find_end(self) -> None:
        """Find the end of the log, and truncate an incomplete frame."""
        self.position, self.last_frame = 1, None
        for name in reversed(segment_names(self._log)):
            with FrameFile(self._log, name) as file:
                run = file.run()
                for piece in run:
                    frame = piece.frames[-1]
                    self.last_frame = FrameFacts.of(frame)
                    self.position = frame.position + frame.rows
                header, size = file.header, file.size
            if self._tail is None:
                tail = self._open_tail(header)
                tail.end = run.end
                if size > run.end:
                    tail.file.truncate(run.end)
            if self.last_frame is not None:
                return
            if header.position != NOT_BEGUN:
                self.position = header.position
                return
        # No frame was written yet.
        for name in self._snapshots()[-1:]:
            with FrameFile(self._log, name) as file:
                self.position = file.header.position
            return
        self._close_tail()
        for name in segment_names(self._log):
            self._log.remove(name)

    def _create_up_to(self, number: int, fetch: Fetch) -> _Tail:
        """Create all missing segments up to `number`. Return the newest one."""
        assert self._tail is not None
        for missing in range(self.segment + 1, number + 1):
            self._open_tail(self._create_segment(missing, fetch))
        return self._tail

    def _create_segment(self, number: int, fetch: Fetch) -> SegmentHeader:
        """Create a segment without frames. Its header is fetched from the node."""
        name = segment_name(number)
        data = fetch(name, 0, SEGMENT_HEADER_BYTES)
        header = read_header(name, data)
        if header.name != name:
            raise DamagedJournal(f"{name} has the header of {header.name}")
        self._check_header(header)
        if not header.bodies or header.repaired:
            raise Trimmed(f"{name} was rewritten as history; a newer snapshot contains its result")
        self._log.replace(name, data)
        return header

    def _check_header(self, header: SegmentHeader) -> None:
        who = self.node
        assert who is not None
        if header.node != who.of_log:
            raise DamagedJournal(f"{header.name} belongs to node {header.node}, not to {who.of_log}")

    def _open_tail(self, header: SegmentHeader) -> _Tail:
        self._close_tail()
        tail = self._tail = _Tail(header, SEGMENT_HEADER_BYTES, self._log.open(header.name))
        return tail

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._tail.file.close()
            self._tail = None
