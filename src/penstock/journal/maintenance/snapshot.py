"""Snapshots: the state of the queue in a file of its own, written while work continues.

Snapshot n starts together with segment n of the log. It is the result of all earlier segments, and recovery continues
with segment n. Its frames have the same layout as those of the log. The file gets its name when two things are on disk:
the file itself, and the log up to the position at which the file was completed. Only both together are a consistent
state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from penstock.core.engine import Engine
from penstock.core.errors import DamagedJournal
from penstock.journal import layout, rows
from penstock.journal.disk import Disk
from penstock.journal.log import Log
from penstock.journal.maintenance.walk import SLICE_ROWS, EngineWalk, use_snapshot_bodies
from penstock.journal.recovery.replay import Replay
from penstock.journal.segment import SEGMENT_HEADER_BYTES, SNAPSHOT, FrameFile, Piece, SegmentHeader, snapshot_name

# Bytes between two syncs. One sync at the end would delay the syncs of the log.
_SYNC_BYTES: Final = 8 * 1024 * 1024

# Bytes to read at a time while other threads work.
_PIECE_BYTES: Final = 256 * 1024


class Snapshot:
    """A snapshot that is being taken, in slices.

    Methods that access the engine need the queue's lock. The others are slow and run without it.
    """

    def __init__(
        self,
        disk: Disk,
        log: Log,
        engine: Engine,
        now: int,
        wall: int,
        rows_max: int = SLICE_ROWS,
        small: bool = False,
    ) -> None:
        """Start a snapshot.

        With `small`, it starts a small segment, because the disk is full. The caller holds the lock.
        """
        self.number = log.begin_snapshot(now, wall, small)
        self._log_bytes = log.recovery_range.log_bytes
        self._disk = disk
        self._log = log
        self._header: SegmentHeader = log.header(self.number, SNAPSHOT)
        self._writer = rows.RowWriter(1)
        self._writer.bodies = log.writer.bodies
        self._walk = EngineWalk(engine, self._writer, now, rows_max)
        self._upto = 0
        self._offset = SEGMENT_HEADER_BYTES
        self._synced = 0
        self._file = disk.begin(self._header.name)
        try:
            self._file.write(0, self._header.encode())
        except BaseException:
            self.abandon()
            raise

    def slice(self, now: int, wall: int) -> bool:
        """Collect rows of the next part of the engine. Return whether there is more. The caller holds the lock."""
        self._log.commit(now, wall)
        self._upto = self._log.writer.position
        return self._walk.slice(self._upto, now)

    def write(self, now: int, wall: int, last: bool) -> None:
        """Write the rows of the last slice."""
        if self._writer.rows:
            kind = layout.SNAPSHOT_END_FRAME if last else layout.SNAPSHOT_FRAME
            self._writer.make_frame(now, wall, 0, self._header.frame_seed(self._offset), kind)
            self._file.write(self._offset, self._writer.frame)
            self._offset += len(self._writer.frame)
            if self._offset - self._synced > _SYNC_BYTES:
                self._file.sync()
                self._synced = self._offset

    def finish(self) -> None:
        """Complete the snapshot. From now on, recovery starts with it."""
        self._log.make_durable(self._upto)
        self._disk.finish(self._header.name, self._file)
        self._log.record_snapshot(self._header, self._offset, self._log_bytes)

    def abandon(self) -> None:
        """Remove the snapshot. The log continues without it."""
        self._disk.abandon(self._header.name, self._file)


def take_snapshot(disk: Disk, log: Log, engine: Engine, now: int, wall: int) -> None:
    """Take a complete snapshot in one call. No other thread may use the engine meanwhile."""
    snapshot = Snapshot(disk, log, engine, now, wall)
    try:
        more = True
        while more:
            more = snapshot.slice(now, wall)
            snapshot.write(now, wall, last=not more)
        snapshot.finish()
    except BaseException:
        snapshot.abandon()
        raise
    for _ in use_snapshot(disk, engine, snapshot.number):
        pass


def read_snapshot(file: FrameFile, replay: Replay, tell: Callable[[int], None]) -> None:
    """Apply a snapshot to `replay`, or raise DamagedJournal. `tell` is called with the number of bytes read."""
    for data, frames, base in snapshot_pieces(file):
        for frame in frames:
            replay.apply_snapshot_frame(data, frame, -file.header.segment, base)
        tell(frames[-1].at + frames[-1].length)
    # It was taken while the queue was open.
    replay.stopped = False
    replay.highest_id = max(replay.highest_id, replay.counters["next_id"] - 1)


def completed_at(file: FrameFile) -> int:
    """Return the position of the log at which a snapshot was complete. Recovery needs the log up to this position."""
    # Reading the whole file checks it.
    last = deque(snapshot_pieces(file), maxlen=1).pop()
    return last.frames[-1].position


def snapshot_pieces(file: FrameFile) -> Iterator[Piece]:
    """Yield the pieces of a snapshot. Raise DamagedJournal if it is incomplete."""
    if file.header.kind != SNAPSHOT:
        raise DamagedJournal(f"{file.name} is not a snapshot")
    kind, end = 0, SEGMENT_HEADER_BYTES
    for piece in file.pieces():
        yield piece
        last = piece.frames[-1]
        kind, end = last.kind, piece.base + last.at + last.length
    if kind != layout.SNAPSHOT_END_FRAME or end != file.size:
        raise DamagedJournal(f"{file.name} is incomplete: it ends at offset {end}")


def use_snapshot(
    disk: Disk, engine: Engine, number: int, locked: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Make jobs read their bodies from a snapshot, so that earlier files can be removed.

    The file is read without the engine's lock. `locked` acquires the lock for the changes. The caller can pause at each
    yield.
    """
    with FrameFile(disk, snapshot_name(number)) as file:
        for data, frames, base in file.pieces(piece_bytes=_PIECE_BYTES):
            for frame in frames:
                with locked():
                    use_snapshot_bodies(engine, data, frame, number, base)
                yield
