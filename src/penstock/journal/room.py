"""The room of a log: the file that frames go to, the next one, which is made ahead, and what more the disk has.

Others write to the disk, too, and what was free a moment ago may not be. So what is free counts for puts only, which
can be refused. Whatever else the engine does has its room before it happens, in files that are made: it counts its
moves, and asks when those that it was told of are used up; then one of the files is made longer, or takes are refused.
Jobs that are taken keep the room to end.
"""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass
from typing import Final

from mypy_extensions import i64

from penstock.journal.disk import Disk, File
from penstock.journal.frame import FRAME_HEADER_BYTES, ROW_BYTES, MoveSource
from penstock.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader

# What acks, takes and timers may still write when puts are refused, whatever jobs there are.
RESERVE_BYTES: Final = 1024 * 1024

# Of that, what is left when takes are refused: for those who cannot be, sessions that end for example.
LAST_BYTES: Final = RESERVE_BYTES // 4

# A row in a frame of its own: what a command writes if nothing else happens in its turn.
MOVE_BYTES: Final = FRAME_HEADER_BYTES + ROW_BYTES

# A row and its share of a frame: what a put needs beside its body.
PUT_BYTES: Final = 1_024

# What names and keys add to a move at most, as a mean. It is taken over the jobs there are, and dedup ids may be of
# many more.
_LABEL_BYTES_MAX: Final = 4_096

# How often a disk that is nearly full is asked how full it is, or for more, wall ms.
LOOK_MS: Final = 500

# A file is not made longer by less; and where there was no room for moves, less is none.
_LONGER_BYTES_MIN: Final = 64 * 1024


@dataclass
class Tail:
    """A segment that frames go to, or will."""

    file: File
    header: SegmentHeader
    size: int
    kept: int = 0  # How much of that was added for moves, and is not for puts.
    seeds: int = 0  # Of the checksums of its frames.
    filled: int = SEGMENT_HEADER_BYTES  # Up to where its zeros were written, while it is the next segment.
    end: int = 0  # Where its frames end, once another segment is written to.
    before: Tail | None = None  # The segment before it, as long as that is not on disk.

    def __post_init__(self) -> None:
        self.seeds = self.header.seeds

    @property
    def number(self) -> int:
        return self.header.segment


class Room(MoveSource):
    """The room of one log. Any thread may look; who changes the next segment has the lock."""

    def __init__(self, disk: Disk, segment_bytes: int, wall: int) -> None:
        self.lock = threading.Lock()
        self.segment_bytes = segment_bytes
        self.wall = wall  # Of the newest commit, ms.
        self.spare: Tail | None = None  # The next segment, made ahead.
        self.ahead = 0  # How many bytes of bodies it can take at least, if it is there; else 0.
        self.free = 0  # How many bytes more the disk has for us,
        self.look_not_before = 0  # and when to ask it again, if they are few.
        self.spare_not_before = 0  # When to try again to make the next segment,
        self._longer_not_before = 0  # or one of the two longer.
        self.kept = 0  # How much of what is free is for a snapshot that makes room, and for nothing else.
        # How many moves the engine was told of, which were counted; good as long as there are so many bytes in files
        # that are made. And how many jobs were taken then, and how much a move of one takes.
        self.moves = 0
        self.sure_min = 1 << 60
        self._used_up = False  # Whether there were none.
        self._taken = 0
        self._move_bytes = MOVE_BYTES
        self._disk = disk

    def look(self) -> None:
        """See how much room the disk has."""
        before, self.free = self.free, self._disk.free() - self.kept
        if self.free > before:
            # What there was no room for, there may be now.
            self._longer_not_before = 0
        self.look_not_before = self.wall + LOOK_MS

    def check(self, size: int) -> None:
        """Refuse what would take of the room that is kept for something else."""
        if self.kept and self._disk.free() < self.kept + size:
            raise OSError(errno.ENOSPC, "the room that is left is kept for a snapshot")

    def has_spare(self, spare: Tail | None) -> None:
        """Know another next segment, or another length of it, or none; and see what that leaves of the disk."""
        self.spare = spare
        reserve = SEGMENT_HEADER_BYTES + RESERVE_BYTES + PUT_BYTES
        self.ahead = 0 if spare is None else spare.size - spare.kept - reserve
        self.look()

    def held(self, moves_left: int) -> int:
        """What those need at most to end that are taken, when so many moves are left of those that were told."""
        return (self._taken + self.moves - moves_left) * self._move_bytes

    def for_puts(self, tail: Tail, left: int, pending: int, moves_left: int) -> int:
        """What puts may write to one of the files, where so much is left of the first, for all that is taken to end."""
        held = self.held(moves_left)
        spare = self.spare
        if spare is None:
            return left - max(held, tail.kept)
        ahead = self.ahead + spare.kept - max(held, spare.kept) - pending
        # Those that are taken can end in the next one, if it is long enough and puts stay here.
        left -= tail.kept if spare.size > held + LAST_BYTES + SEGMENT_HEADER_BYTES else max(held, tail.kept)
        return max(left, ahead)

    def more_moves(self, tail: object, offset: i64, pending: i64, taken: i64, label_bytes: i64) -> i64:
        """How many moves there is surely room for, beside a frame that is pending, while all that is taken can end.

        A quarter of them is told: a move is written, and what it takes has to end; and as many bytes again may be
        written beside before they have to be counted anew.
        """
        assert isinstance(tail, Tail)
        self._taken, self._move_bytes = taken, MOVE_BYTES + min(label_bytes, _LABEL_BYTES_MAX)
        held, few = LAST_BYTES + taken * self._move_bytes, self.segment_bytes // 8
        beside = self._sure(tail, offset, pending) - held
        if beside < few:
            self._lengthen(tail, 2 * few - beside)
            beside = self._sure(tail, offset, pending) - held
        self.moves = beside // (4 * self._move_bytes)
        if self._used_up and beside < _LONGER_BYTES_MIN:
            # One that ends is no room for many.
            self.moves = min(0, self.moves)
        self._used_up = self.moves <= 0
        spare = self.spare
        self.sure_min = tail.size - offset + (0 if spare is None else spare.size) - max(0, beside // 2)
        return self.moves

    def _sure(self, tail: Tail, offset: int, pending: int) -> int:
        """What can be written to files that are made, beside a frame that is pending, at once or bit by bit."""
        spare = self.spare
        here, ahead = tail.size - offset, 0 if spare is None else spare.size - SEGMENT_HEADER_BYTES
        # A frame goes to one of the two, and what follows it does, too.
        return max(here - pending, ahead - pending)

    def _lengthen(self, tail: Tail, more: int) -> None:
        """Make the next segment longer by so much, or as much as there is room for; if there is none, this one."""
        if self.wall < self._longer_not_before:
            return
        with self.lock:
            spare = self.spare
            file = tail if spare is None else spare
            self.look()
            more = min(more, self.free)
            while more >= _LONGER_BYTES_MIN:
                if self.extend(file, file.size + more, more):
                    return
                more //= 2
            self._longer_not_before = self.wall + LOOK_MS

    def extend(self, file: Tail, size: int, kept: int = 0) -> bool:
        """Make a file longer, if there is room for that, and keep so much of it for moves. With the lock."""
        try:
            self.check(size - file.size)
            file.file.extend(size)
        except OSError:
            self.look()
            return False
        file.size = size
        file.kept += kept
        self.has_spare(self.spare)
        return True
