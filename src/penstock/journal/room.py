"""The space of a log: which commands are allowed to use it, and which space is reserved on a full disk.

**The promise.** Every taken job can end, even on a full disk: by an ack, a release, a nack, a bury, its ttr or the end
of its session. Otherwise a worker would finish its work, and the job would run again.

**Where space is certain.** Other programs write to the disk, too, so free space can vanish at any time, also between a
check and a write. Only the bytes of existing files are certain, because segments are created in their full size:

    present segment (tail)   | frames … offset | unused                    |
    next segment (spare)     | header | unused                             |   created ahead, if the disk has space

A frame is not divided between two files. Once a frame is written to the next segment, the rest of the present segment
stays unused. So the certain space is the larger of the two unused parts, not their sum (`_writable_bytes`). Free space
of the disk counts only for puts, which can be refused.

**What is refused, in this order.**

    puts                                 Engine.room_bytes, set by `Log.update_room` with `bytes_for_puts`
    takes, and other transitions that    Engine.moves_left, granted by `more_moves`
    do not end a taken job
    ends of taken jobs                   never refused: one row for each taken job is reserved (`bytes_for_taken`)
    sessions, tubes, notes, reasons      never refused: UNREFUSABLE_BYTES are reserved

`Log.update_room` also subtracts OWED_BYTES for each existing job from the space of puts. This second promise (each
accepted job can be taken, return once and be acked) includes free space, so other programs can break it.

**The grant.** The engine counts transitions and not bytes, because that costs one subtraction per transition. A
transition of a job with long labels counts as several (`Moves._report`).

    beside = certain space - UNREFUSABLE_BYTES - taken jobs * MOVE_BYTES - labels of the taken jobs
    moves  = beside / 4 / MOVE_BYTES

One quarter of `beside` is for the rows of the granted transitions. The second quarter is for the rows that end the jobs
which these transitions take. The other half is for rows that are not counted as transitions.

Invariant: the certain space is at least the bytes of the jobs that were taken at the grant, plus a row with short
labels for each transition that was used since then (`bytes_for_taken`). A transition adds at most one taken job, so
this is sufficient. Two rules keep the invariant: a transition that does not end a taken job needs a grant, and a grant
ends when it is used up (`Moves._refill_moves`) or when half of `beside` was written (`recount_below`).

**The states of the space.**

    ample ── beside < an eighth of a segment ──▶ short ── no file can be extended, grant used up ──▶ used up
      ▲                                            │ ▲                                                  │
      └──── next segment created or extended ──────┘ └──── an extension succeeds, or jobs have ended ───┘

In the state *short*, each grant tries to extend a file (`_extend_by`), but not within REFRESH_MS after a failure. In
the state *used up*, takes are refused and timers of jobs that are not taken wait. This state ends only when
_EXTEND_BYTES_MIN are available. Otherwise each ack would let one consumer take one job. When it ends, `Log.update_room`
wakes the waiting takes.

**Freeing space.** A snapshot frees space, but needs space itself. It uses the space of the reserve file
(reserve_file.py). While a snapshot runs, `kept` keeps the log from using this space (`refresh`, `check`).

docs/explanation/full-disk.md describes the same for operators, with the limits of the promise.
"""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass
from typing import Final

from mypy_extensions import i64

from penstock.core.moves import LABEL_BYTES_PER_MOVE
from penstock.journal.disk import Disk, File
from penstock.journal.layout import FRAME_HEADER_BYTES, ROW_BYTES
from penstock.journal.rows import MoveSource
from penstock.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader

# Space for acks, takes and timers after puts are refused, independent of the number of jobs.
RESERVE_BYTES: Final = 1024 * 1024

# The part of RESERVE_BYTES that is left when takes are refused. It is for changes that cannot be refused, such as the
# end of sessions.
UNREFUSABLE_BYTES: Final = RESERVE_BYTES // 4

# A row in a frame of its own: the bytes of a command if nothing else happens in its turn.
MOVE_BYTES: Final = FRAME_HEADER_BYTES + ROW_BYTES

# A row and its share of a frame: the bytes that a put needs beside its body.
PUT_BYTES: Final = 1_024

# Milliseconds between two requests for free space to a disk that is nearly full.
REFRESH_MS: Final = 500

# A file is extended by at least this much. After transitions were refused, less space than this counts as none.
_EXTEND_BYTES_MIN: Final = 64 * 1024


@dataclass
class OpenSegment:
    """A segment that frames are written to now or later."""

    file: File
    header: SegmentHeader
    size: int
    reserved_bytes: int = 0  # Bytes that were added for transitions and are not available for puts.
    file_seed: int = 0  # Seed of the checksums of its frames.
    filled: int = SEGMENT_HEADER_BYTES  # End of the zeros that were written in advance, while it is the next segment.
    end: int = 0  # End of its frames, after another segment became the newest.
    before: OpenSegment | None = None  # The previous segment, until its frames are synced.

    def __post_init__(self) -> None:
        self.file_seed = self.header.file_seed

    @property
    def number(self) -> int:
        return self.header.segment


class Room(MoveSource):
    """The space of one log.

    Any thread can read it. The next segment may be changed only under the lock of this object.
    """

    def __init__(self, disk: Disk, segment_bytes: int, wall: int) -> None:
        self.lock = threading.Lock()
        self.segment_bytes = segment_bytes
        self.wall = wall  # Wall time of the newest commit, in ms.
        self.spare: OpenSegment | None = None  # The next segment, created ahead.
        self.spare_body_bytes = 0  # Bytes of bodies that the next segment has room for, or 0 if there is none.
        self.free = 0  # Free bytes of the disk that the log may use.
        self.refresh_not_before = 0  # Time of the next request for free space, if it is short.
        self.spare_not_before = 0  # Time of the next attempt to create the next segment.
        self._extend_not_before = 0  # Time of the next attempt to extend a segment.
        self.kept = 0  # Free bytes that are reserved for a snapshot that frees space.
        self.moves = 0  # Granted transitions.
        self.recount_below = 1 << 60  # The grant is valid while existing files have at least this many free bytes.
        self._used_up = False  # Whether the last grant was zero.
        self._taken_bytes = 0  # Bytes that the jobs which were taken at the last grant need to end.
        self._disk = disk

    def refresh(self) -> None:
        """Update the free space of the disk."""
        before, self.free = self.free, self._disk.free() - self.kept
        if self.free > before:
            # Extending a segment may succeed now.
            self._extend_not_before = 0
        self.refresh_not_before = self.wall + REFRESH_MS

    def check(self, size: int) -> None:
        """Raise OSError if creating `size` bytes would use space that is reserved for a snapshot."""
        if self.kept and self._disk.free() < self.kept + size:
            raise OSError(errno.ENOSPC, "the remaining space is reserved for a snapshot")

    def set_spare(self, spare: OpenSegment | None) -> None:
        """Set the next segment, or None if there is none, and update the free space.

        Also called when the size of the next segment changed.
        """
        self.spare = spare
        reserve = SEGMENT_HEADER_BYTES + RESERVE_BYTES + PUT_BYTES
        self.spare_body_bytes = 0 if spare is None else spare.size - spare.reserved_bytes - reserve
        self.refresh()

    def bytes_for_taken(self, moves_left: int) -> int:
        """Return how many bytes taken jobs need at most to end, if `moves_left` granted transitions are unused."""
        return self._taken_bytes + (self.moves - moves_left) * (MOVE_BYTES + LABEL_BYTES_PER_MOVE)

    def bytes_for_puts(self, tail: OpenSegment, left: int, pending: int, moves_left: int) -> int:
        """Return how many bytes puts can write to the present or the next segment, so that taken jobs can still end.

        `left` is the number of unused bytes in the present segment.
        """
        held = self.bytes_for_taken(moves_left)
        spare = self.spare
        if spare is None:
            return left - max(held, tail.reserved_bytes)
        ahead = self.spare_body_bytes + spare.reserved_bytes - max(held, spare.reserved_bytes) - pending
        # Taken jobs can end in the next segment, if it is long enough and puts stay in the present one.
        left -= (
            tail.reserved_bytes
            if spare.size > held + UNREFUSABLE_BYTES + SEGMENT_HEADER_BYTES
            else max(held, tail.reserved_bytes)
        )
        return max(left, ahead)

    def more_moves(self, tail: object, offset: i64, pending: i64, taken: i64, label_bytes: i64) -> i64:
        """Return how many transitions there is space for, so that all taken jobs can still end.

        `pending` is the number of bytes that are not written yet. `label_bytes` is the total length of the labels of
        the `taken` jobs. Only a quarter of the free space is granted for the rows of these transitions. A second
        quarter is for the rows that end their jobs. The other half is for rows that are written for other reasons
        before this is called again.
        """
        assert isinstance(tail, OpenSegment)
        self._taken_bytes = taken * MOVE_BYTES + label_bytes
        held, few = UNREFUSABLE_BYTES + self._taken_bytes, self.segment_bytes // 8
        beside = self._writable_bytes(tail, offset, pending) - held
        if beside < few:
            self._extend_by(tail, 2 * few - beside)
            beside = self._writable_bytes(tail, offset, pending) - held
        self.moves = beside // (4 * MOVE_BYTES)
        if self._used_up and beside < _EXTEND_BYTES_MIN:
            # The end of one job does not make room for many.
            self.moves = min(0, self.moves)
        self._used_up = self.moves <= 0
        spare = self.spare
        self.recount_below = tail.size - offset + (0 if spare is None else spare.size) - max(0, beside // 2)
        return self.moves

    def _writable_bytes(self, tail: OpenSegment, offset: int, pending: int) -> int:
        """Return how many bytes can be written to an existing file after a pending frame."""
        spare = self.spare
        here, ahead = tail.size - offset, 0 if spare is None else spare.size - SEGMENT_HEADER_BYTES
        # A frame goes to one of the two files, and all later frames follow it.
        return max(here - pending, ahead - pending)

    def _extend_by(self, tail: OpenSegment, more: int) -> None:
        """Extend the next segment by `more` bytes, or by less if the disk has less space.

        If there is no next segment, extend the present one.
        """
        if self.wall < self._extend_not_before:
            return
        with self.lock:
            spare = self.spare
            file = tail if spare is None else spare
            self.refresh()
            more = min(more, self.free)
            while more >= _EXTEND_BYTES_MIN:
                if self.extend(file, file.size + more, more):
                    return
                more //= 2
            self._extend_not_before = self.wall + REFRESH_MS

    def extend(self, file: OpenSegment, size: int, kept: int = 0) -> bool:
        """Extend a segment to `size` bytes, if the disk has space. Return whether it was extended.

        `kept` of the new bytes are reserved for transitions. The caller holds the lock.
        """
        try:
            self.check(size - file.size)
            file.file.extend(size)
        except OSError:
            self.refresh()
            return False
        file.size = size
        file.reserved_bytes += kept
        self.set_spare(self.spare)
        return True
