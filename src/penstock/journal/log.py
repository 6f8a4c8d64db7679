"""The log of one node: appends frames to the newest segment and syncs them.

Every open starts a new segment and a new epoch. Segments are created at their full size, so appending changes no
metadata. The next segment is created before it is needed. If that fails, the disk is full, but there is still room for
acks (see `room.py`). The zeros of the next segment are written in advance, too, so that frames are written to existing
pages and blocks. On ext4, this makes a large frame twice as fast to write, and faster to sync.

Threads that wait for the disk share syncs. One of them is the leader and syncs everything that was written by then,
while the others sleep. Afterwards it wakes the threads whose rows are durable, and one more, which becomes the next
leader. (A lock around the sync was slower: each thread had to wake the next one, even if the rows of that thread were
already durable, and 50 threads needed 25 syncs.)
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.engine import Engine
from penstock.core.errors import JournalFailed, NoSpace
from penstock.core.statistics.histogram import Histogram
from penstock.journal.bodies import Bodies
from penstock.journal.disk import Disk
from penstock.journal.frame import FRAME_BYTES_MAX, seed_at
from penstock.journal.room import MOVE_BYTES, PUT_BYTES, REFRESH_MS, RESERVE_BYTES, OpenSegment, Room
from penstock.journal.rows import RowWriter
from penstock.journal.segment import LOG, NOT_BEGUN, SEGMENT_HEADER_BYTES, SegmentHeader

SEGMENT_BYTES: Final = 16 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 64 * 1024

# Number of transitions that space is reserved for at the put of a job, even on a full disk: the job can be taken and
# acked, and can return once.
OWED_MOVES: Final = 4
OWED_BYTES: Final = OWED_MOVES * MOVE_BYTES

# Size of a segment that is started because the disk is full. It has room for these transitions, but not for puts.
SMALL_SEGMENT_BYTES: Final = RESERVE_BYTES + SEGMENT_BYTES_MIN

# Bytes of zeros of the next segment that are written and synced at a time.
FILL_BYTES: Final = 512 * 1024

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NEVER_SYNC: Final = "never"
FSYNC_CHOICES: Final = (ALWAYS, EVERYSEC, NEVER_SYNC)


@dataclass
class RecoveryRange:
    """The part of the log that recovery needs."""

    segment: int = 1  # The first segment that is needed.
    since: int = 0  # Wall time in ms at which that segment was started.
    snapshot_bytes: int = 0  # Size of the snapshot that replaces the segments before.
    log_bytes: int = 0  # Bytes of the segments from there on, without the newest segment.


_NO_ROOM: Final = "there is no room on the disk for another segment"

# The only key of the dictionary that holds the leader.
_LEADS: Final = "leads"

# Seconds after which a sleeping thread checks whether there is a leader.
_SLEEP_S: Final = 0.1


class _Sleeper:
    """A thread that sleeps until a position is durable, or until it has to sync for all threads (the leader)."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._lock = threading.Lock()
        self._lock.acquire()

    def sleep(self) -> None:
        """Sleep until woken, at most `_SLEEP_S`, because the thread that has to wake this one may be interrupted."""
        self._lock.acquire(timeout=_SLEEP_S)

    def wake(self) -> None:
        self._lock.release()


class Log:
    """The log of one node, open for appending."""

    _engine: Engine

    def __init__(
        self,
        disk: Disk,
        node: str,
        boot: str,
        epoch: int,
        segment: int,
        position: int,
        fsync: str,
        wall: int,
        segment_bytes: int,
    ) -> None:
        self.writer = RowWriter(position)
        self.fsync = fsync
        self.durable = position  # Every position below this is on disk.
        self.unsynced_bytes = 0  # Bytes written since the last sync started.
        self.sync_us = Histogram()  # How long each sync took, in microseconds.
        self.recovery_range = RecoveryRange()
        self.bodies = Bodies(disk)
        # Called when a quarter of a segment was written, and when the disk is full.
        self.on_growth: Callable[[], None] = _do_nothing
        self.on_durable: Callable[[], None] = _do_nothing  # Called in any thread when more rows are durable.
        self.writer.bodies = self.bodies
        self._disk = disk
        self.node = node  # Node id in the files of the log. It stays when the node gets a new id.
        self._boot = boot
        self.epoch = epoch
        self._segment_bytes = segment_bytes
        self.room = Room(disk, segment_bytes, wall)
        self.writer.room = self.room
        self._takes_refused = False  # Whether takes are refused because there is no room.
        self._next_growth = 0
        self._leader: dict[str, object] = {}  # Has the ticket of the thread that is syncing, if there is one.
        self._asleep: deque[_Sleeper] = deque()  # Threads that wait for the leader.
        self._failed: OSError | None = None
        tail = self._create_segment(segment, SEGMENT_BYTES_MIN, segment_bytes)
        self.writer.begin_segment(tail, segment, SEGMENT_HEADER_BYTES)

    def attach(self, engine: Engine) -> None:
        """Log the changes of `engine`. Must be called before the first commit."""
        self._engine = engine
        self.writer.attach(engine.session_slots, engine.tube_slots)

    @property
    def written(self) -> int:
        """Return the position after the last row that is in a file."""
        return self.writer.written

    def commit(self, now: int, wall: int) -> None:
        """Write all rows since the last commit as one frame. An interrupted call can be repeated."""
        writer = self.writer
        if writer.rows == 0 and not writer.frame:
            return
        self.check()
        self.room.wall = wall
        try:
            if writer.frame:
                self._write_frame()
            if writer.rows:
                self._make_frame(now, wall)
                self._write_frame()
        except OSError as error:
            # The engine has already changed and cannot be changed back, so durability can no longer be promised.
            self._failed = error
            raise JournalFailed(f"the log could not be written: {error}") from error
        if writer.promised:
            self.make_durable(writer.promised)
            writer.promised = 0
            # The newest reservation must be synced soon.
            self._next_growth = writer.offset
        if writer.offset >= self._next_growth:
            self._next_growth = writer.offset + self._segment_bytes // 4
            self.on_growth()
        if self._engine.spills:
            writer.memory_left = self._engine.memory_left()

    def commit_turn(self, now: int, wall: int) -> None:
        """Commit the rows of a turn.

        If the engine has stopped work because the frame was full, let it continue after the commit. Do the same if it
        had no space for takes before and has space now.

        Raise JournalFailed if the log cannot be written. The engine has already changed, so its queue must be stopped.
        """
        while self.writer.full():
            # A full turn left work to the next turn, and no other code starts that turn.
            self.commit(now, wall)
            self._engine.advance(now)
        self.commit(now, wall)
        if self.update_room():
            self._engine.advance(now)
            self.commit(now, wall)

    def is_durable(self) -> bool:
        """Return whether all committed changes are as durable as the fsync policy requires."""
        return self.fsync != ALWAYS or self.durable >= self.written

    def make_durable(self, position: int) -> None:
        """Return when every position below `position` is on disk. Concurrent callers share one sync."""
        if self._is_durable(position):
            return
        assert position <= self.written
        # An interrupt can occur between any two steps, so the ticket in the dictionary shows whether this thread is the
        # leader.
        ticket = object()
        leader = self._leader
        try:
            while not self._is_durable(position):
                if leader.setdefault(_LEADS, ticket) is ticket:
                    self._sync()
                    leader.clear()
                else:
                    self._sleep(position)
        finally:
            if leader.get(_LEADS) is ticket:
                leader.clear()
            # After an interrupt, too: this thread may have been woken to become the leader.
            self._wake_next()

    def _is_durable(self, position: int) -> bool:
        return self.durable >= position and self._tail.before is None

    def _sync(self) -> None:
        self.check()
        self.unsynced_bytes = 0
        # In this order, because another thread may write meanwhile: `upto` must lie in the segments found afterwards.
        upto = self.written
        tail = self._tail
        began = time.perf_counter_ns()
        try:
            self._sync_before(tail)
            tail.file.sync()
        except OSError as error:
            self._failed = error
            raise JournalFailed(f"the log could not be synced: {error}") from error
        self.sync_us.add((time.perf_counter_ns() - began) // 1_000)
        self.durable = upto
        self.on_durable()

    def _sleep(self, position: int) -> None:
        sleeper = _Sleeper(position)
        self._asleep.append(sleeper)
        try:
            # A leader that has just finished may not have seen this sleeper.
            if self._leader:
                sleeper.sleep()
        except BaseException:
            self._remove_sleeper(sleeper)
            raise
        self._remove_sleeper(sleeper)

    def _remove_sleeper(self, sleeper: _Sleeper) -> None:
        """Remove a sleeper from the list, so that it is not woken any more."""
        with contextlib.suppress(ValueError):
            self._asleep.remove(sleeper)

    def _wake_next(self) -> None:
        """Wake the threads whose rows are durable, and one more to become the leader if there is none."""
        with contextlib.suppress(IndexError):
            leads = False
            while not leads:
                leads = self._asleep[0].position > self.durable
                if leads and self._leader:
                    return
                self._asleep.popleft().wake()

    def _sync_before(self, tail: OpenSegment) -> None:
        before = tail.before
        if before is not None:
            self._sync_before(before)
            if before.end + self._segment_bytes // 8 < before.size:
                # A snapshot started the next segment before this one was full.
                before.file.truncate(before.end)
            else:
                before.file.sync()
            tail.before = None
            before.file.close()

    def update_room(self) -> bool:
        """Set the number of bytes that the engine is allowed to write. Called after a commit.

        Return True if takes were refused before, and there is space for them again.
        """
        engine, room, writer = self._engine, self.room, self.writer
        # The length of the frame that is not written yet.
        pending = writer.frame_bytes()
        tail = self._tail
        here = tail.size - writer.offset
        left = here - pending - RESERVE_BYTES - PUT_BYTES
        # Normally, maintenance has created the next segment in its thread by now.
        if room.spare is None and left < self._segment_bytes // 8:
            self.prepare()
        spare = room.spare
        writer.names_sessions = spare is not None
        ahead = 0 if spare is None else spare.size
        if engine.moves_left <= 0 or here + ahead < room.recount_below:
            engine.count_moves()
        engine.room_bytes = min(room.bytes_for_puts(tail, left, pending, engine.moves_left), self._unreserved_bytes())
        was_stuck, self._takes_refused = self._takes_refused, engine.moves_left <= 0
        if self._takes_refused and not was_stuck:
            # Maintenance then checks for room periodically. Waiting consumers cannot.
            self.on_growth()
        elif was_stuck and not self._takes_refused:
            engine.wake_all_takes()
            return True
        return False

    def is_full(self) -> bool:
        """Return whether there is no space for more jobs, in existing or new files. Any thread can call this."""
        return self.room.spare is None or self.is_short()

    def is_short(self) -> bool:
        """Return whether all disk space is reserved for existing jobs. Any thread can call this."""
        return self._unreserved_bytes() <= 0

    def owed_bytes(self) -> int:
        """Return the disk space that is needed so that every existing job can be taken and end."""
        return self._engine.jobs.count * OWED_BYTES + OWED_MOVES * self._engine.labels.total

    def _unreserved_bytes(self) -> int:
        """Return how many bytes puts can write to the segments and the disk.

        The space that is reserved for existing jobs is subtracted.
        """
        room = self.room
        spare = room.spare
        # Not an i64, because a disk may report more bytes than fit into one together with these.
        files: int = self._tail.size - self.writer.offset + (0 if spare is None else spare.size)
        unowed = files + room.free - self.owed_bytes() - RESERVE_BYTES - PUT_BYTES
        if unowed < self._segment_bytes and room.wall >= room.refresh_not_before:
            before = room.free
            room.refresh()
            unowed += room.free - before
        return unowed

    def make_room(self, length: int) -> int:
        """Try to provide space for `length` bytes of bodies, which may be more than a segment.

        Return the available bytes.
        """
        engine, room = self._engine, self.room
        self.update_room()
        if engine.room_bytes < length:
            # First count the taken jobs again: there may be fewer now.
            engine.count_moves()
            self.update_room()
        if engine.room_bytes < length:
            held = room.bytes_for_taken(engine.moves_left)
            needed = length + held + self.writer.frame_bytes() + SEGMENT_HEADER_BYTES + RESERVE_BYTES + PUT_BYTES
            with room.lock:
                self._ensure_spare(needed)
            self.update_room()
        return engine.room_bytes

    def prepare(self) -> None:
        """Create the next segment, if the disk has room for it. Any thread can call this."""
        room = self.room
        # Use a local variable: mypyc assumes that an attribute that was None stays None, but another thread may change
        # it.
        spare = room.spare
        if spare is None and room.wall >= room.spare_not_before:
            with room.lock:
                if room.spare is None:
                    self._ensure_spare(self._segment_bytes)

    def fill(self) -> None:
        """Write the zeros of the next segment in advance. Stop when the segment is complete or in use.

        Any thread can call this, without the queue's lock.
        """
        while True:
            # Write a slice at a time, because a commit may need the segment meanwhile.
            with self.room.lock:
                spare = self.room.spare
                # A longer segment has room for more taken jobs, or for one large frame.
                end = 0 if spare is None else min(spare.size, self._segment_bytes)
                if spare is None or spare.filled >= end:
                    return
                length = min(FILL_BYTES, end - spare.filled)
                try:
                    spare.file.fill(spare.filled, length)
                except OSError:
                    self._remove_spare()
                    self.room.spare_not_before = self.room.wall + REFRESH_MS
                    return
                spare.filled += length

    def begin_snapshot(self, now: int, wall: int, small: bool = False) -> int:
        """Start a new segment and return its number. The snapshot will replace the segments before it.

        With `small`, a small segment is created if none was created in advance. It is used on a full disk, where the
        snapshot has to free space.
        """
        self.commit(now, wall)
        self.check()
        self.room.wall = wall
        if small and self.room.spare is None:
            with self.room.lock:
                self._switch_to(self._new_segment(SMALL_SEGMENT_BYTES))
            return self._tail.number
        self.prepare_again()
        if self.room.spare is None:
            # The reserve of the present segment is for acks.
            raise NoSpace(_NO_ROOM)
        self._rotate(0)
        return self._tail.number

    def prepare_again(self) -> None:
        """Try to create the next segment now, even if there was no space for it at the last attempt."""
        self.room.spare_not_before = 0
        self.prepare()

    def _new_segment(self, size: int) -> OpenSegment:
        """Create a segment of `size` bytes to be used instead of the prepared next segment.

        If there is no space, the prepared segment stays.
        """
        try:
            made = self._create_segment(self._tail.number + 1, size, size)
        except OSError as error:
            raise NoSpace(f"{_NO_ROOM}: {error}") from error
        self._close_spare()
        return made

    def change_fsync(self, fsync: str, now: int, wall: int) -> None:
        """Change the fsync policy and start a segment, because the header of each segment contains its policy."""
        self.commit(now, wall)
        # If earlier rows were lost, the new segment would be lost with its header, too.
        self.make_durable(self.written)
        self.room.wall = wall
        with self.room.lock:
            # The next segment has the old policy in its header. It is replaced, because it is still empty.
            before, self.fsync = self.fsync, fsync
            try:
                tail = self._new_segment(self._segment_bytes)
            except NoSpace:
                self.fsync = before
                raise
            self._switch_to(tail)

    def record_snapshot(self, header: SegmentHeader, size: int, log_bytes: int) -> None:
        """Record that a snapshot of `size` bytes was completed.

        Recovery no longer needs the segments before the snapshot. They have `log_bytes` bytes.
        """
        with self.room.lock:
            self.recovery_range = RecoveryRange(
                header.segment, header.created, size, self.recovery_range.log_bytes - log_bytes
            )

    def header(self, number: int, kind: str = LOG) -> SegmentHeader:
        """Return the header of a file that starts at the present position and time."""
        return SegmentHeader(
            node=self.node,
            segment=number,
            epoch=self.epoch,
            boot=self._boot,
            position=self.written,
            fsync=self.fsync,
            created=self.room.wall,
            durable=self.durable,
            kind=kind,
        )

    def needed_bytes(self) -> int:
        """Return how many bytes of the log recovery has to read after the snapshot."""
        return self.recovery_range.log_bytes + self.writer.offset

    @property
    def segment(self) -> int:
        return self._tail.number

    @property
    def failed(self) -> bool:
        return self._failed is not None

    def check(self) -> None:
        """Raise JournalFailed if the disk failed before.

        A failed sync is never repeated, because the second sync would falsely succeed.
        """
        if self._failed is not None:
            raise JournalFailed(f"the log failed before: {self._failed}") from self._failed

    def give_up(self, why: OSError) -> None:
        """Refuse all further writes, because the pending rows are not complete."""
        self._failed = why

    def close(self, now: int, wall: int) -> None:
        """Write the end row, which marks the log as complete, and close the log."""
        try:
            if self._failed is None:
                self.writer.add_stopped(now)
                self.commit(now, wall)
                self.make_durable(self.written)
                self._tail.file.truncate(self.writer.offset)
        finally:
            ticket = object()
            while self._leader.setdefault(_LEADS, ticket) is not ticket:
                self._sleep(self.written + 1)
            tail: OpenSegment | None = self._tail
            while tail is not None:
                tail.file.close()
                tail = tail.before
            self._leader.clear()
            self._wake_next()
            self.bodies.close()
            with self.room.lock:
                self._remove_spare()

    @property
    def _tail(self) -> OpenSegment:
        tail = self.writer.tail
        assert isinstance(tail, OpenSegment)
        return tail

    def _make_frame(self, now: int, wall: int) -> None:
        writer = self.writer
        fits = writer.offset + writer.frame_bytes() <= self._tail.size
        if not fits:
            writer.name_again(self._engine.tubes_by_number, self._tail.number + 1, now)
        length = writer.frame_bytes()
        if length > FRAME_BYTES_MAX:
            raise OSError(errno.EFBIG, f"a frame of {length} bytes could not be read back")
        if not fits:
            self._rotate(length)
        writer.make_frame(now, wall, self.durable, seed_at(self._tail.file_seed, writer.offset))

    def _write_frame(self) -> None:
        tail = self._tail
        tail.file.write(self.writer.offset, self.writer.frame)
        self.unsynced_bytes += len(self.writer.frame)
        let_go = self.writer.wrote_frame(tail.number)
        if let_go:
            self._engine.resident_bytes -= let_go

    def _rotate(self, length: int) -> None:
        """Continue in the next segment.

        The old segment is not synced here, under the queue's lock; `make_durable` syncs segments in order.
        """
        # The lock keeps other threads from creating the segment after this one too early.
        with self.room.lock:
            self._switch_to(self._next_segment(self._tail.number + 1, length))

    def _switch_to(self, tail: OpenSegment) -> None:
        before = self._tail
        before.end = self.writer.offset
        tail.before = before
        self.writer.begin_segment(tail, tail.number, SEGMENT_HEADER_BYTES)
        self.recovery_range.log_bytes += before.end
        self._next_growth = 0

    def _next_segment(self, number: int, length: int) -> OpenSegment:
        """Return the segment after the present one: the one created in advance, extended if it is too small."""
        needed, room = length + SEGMENT_HEADER_BYTES, self.room
        spare = room.spare
        if spare is None:
            return self._create_segment(number, needed, max(self._segment_bytes, needed))
        if spare.size < needed:
            spare.file.extend(needed)
            spare.size = needed
        room.set_spare(None)
        return spare

    def _create_segment(self, number: int, needed: int, size: int) -> OpenSegment:
        """Create a segment. On a full disk, create a smaller one, so that jobs can still be taken and acked."""
        header = self.header(number)
        while True:
            try:
                made = self._disk.create(header.name, size, header.encode())
                self.room.refresh()
                return OpenSegment(made, header, size)
            except OSError as error:
                if error.errno != errno.ENOSPC or size <= needed:
                    raise
                size = max(needed, size // 2)

    def _ensure_spare(self, size: int) -> None:
        """Create the next segment with `size` bytes if the disk has space. If the next segment exists, extend it.

        The caller holds the lock of `Room`.
        """
        room = self.room
        spare = room.spare
        if spare is not None:
            if spare.size < size:
                room.extend(spare, size)
            return
        # Its position is unknown until its first frame is written.
        header = replace(self.header(self._tail.number + 1), position=NOT_BEGUN)
        try:
            room.check(size)
            room.set_spare(OpenSegment(self._disk.create(header.name, size, header.encode()), header, size))
        except OSError:
            # Do not ask a full disk with every commit.
            room.spare_not_before = room.wall + REFRESH_MS
            room.refresh()

    def _remove_spare(self) -> None:
        spare = self.room.spare
        if spare is not None:
            self._disk.remove(spare.header.name)
            self._close_spare()

    def _close_spare(self) -> None:
        """Close the next segment, because its file was removed or replaced."""
        spare = self.room.spare
        if spare is not None:
            spare.file.close()
            self.room.set_spare(None)


def suitable_segment_bytes(disk: Disk) -> int:
    """Return the segment size for a disk. On a small disk, several segments and the reserve file must fit."""
    return max(2 * SMALL_SEGMENT_BYTES, min(SEGMENT_BYTES, disk.free() // 8))


def _do_nothing() -> None: ...
