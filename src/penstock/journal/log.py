"""The log of one node: frames appended to its newest segment, and how far they are durable.

Every open begins a segment and an epoch of its own. Segments are made at their full size, so appending changes no
metadata. The next one is made before it is needed: if that fails, the disk is full while there is still room for acks
(see `room.py`).
Its zeros are written then, too, so that a frame meets pages and blocks that are there: on ext4 that makes a large frame
twice as fast to write, and faster to sync.

Threads that wait for the disk share syncs. One of them leads, and syncs whatever was written by then; the others sleep.
When it is done it wakes those who have what they waited for, and one more, who leads next. (With a lock instead, each
woke the next one only to find that there was nothing to do: 50 threads made a sync for every two of them.)
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.engine import Engine
from penstock.core.errors import JournalFailed, NoSpace
from penstock.journal.bodies import Bodies
from penstock.journal.disk import Disk
from penstock.journal.frame import FRAME_BYTES_MAX, RowWriter, seed_at
from penstock.journal.room import LOOK_MS, MOVE_BYTES, PUT_BYTES, RESERVE_BYTES, Room, Tail
from penstock.journal.segment import LOG, NOT_BEGUN, SEGMENT_HEADER_BYTES, SegmentHeader

SEGMENT_BYTES: Final = 16 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 64 * 1024

# What a job that was put is owed, however full the disk becomes: that it is taken and acked, and can come back once.
OWED_MOVES: Final = 4
OWED_BYTES: Final = OWED_MOVES * MOVE_BYTES

# A segment that is begun because the disk is full has room for those only.
SMALL_SEGMENT_BYTES: Final = RESERVE_BYTES + SEGMENT_BYTES_MIN

# How many zeros of the next segment are written and synced at a time.
FILL_BYTES: Final = 512 * 1024

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NEVER_SYNC: Final = "never"
FSYNC_CHOICES: Final = (ALWAYS, EVERYSEC, NEVER_SYNC)


@dataclass
class Kept:
    """From where on the log is needed to recover, and how much that is."""

    segment: int = 1  # The first one that is needed.
    since: int = 0  # When that one was begun, wall ms.
    snapshot_bytes: int = 0  # Of the snapshot that stands for those before.
    log_bytes: int = 0  # Of the segments from there on, without the one that is written to.


_NO_ROOM: Final = "there is no room on the disk for another segment"

# The one key of the dictionary that says who leads.
_LEADS: Final = "leads"

# How long to sleep at most before one looks again whether somebody leads, seconds.
_SLEEP_S: Final = 0.1


class _Sleeper:
    """A thread that sleeps until a position is durable, or until it has to see to that itself."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._lock = threading.Lock()
        self._lock.acquire()

    def sleep(self) -> None:
        """Sleep until woken; or a while, since whoever should wake us may have been interrupted."""
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
        self.durable = position  # Every position below it is on disk.
        self.unsynced_bytes = 0  # How much was written since the last sync began.
        self.kept = Kept()
        self.bodies = Bodies(disk)
        # Told that a fair part of a segment was written, or that the disk is full.
        self.on_growth: Callable[[], None] = _nothing
        self.on_durable: Callable[[], None] = _nothing  # Whom to tell, in whichever thread, that more of it is on disk.
        self.writer.bodies = self.bodies
        self._disk = disk
        self.node = node  # Whom its files call theirs; a node that is reset gets another id, and its log keeps this.
        self._boot = boot
        self.epoch = epoch
        self._segment_bytes = segment_bytes
        self.room = Room(disk, segment_bytes, wall)
        self.writer.room = self.room
        self._stuck = False  # Whether takes are refused for want of room.
        self._next_growth = 0
        self._leader: dict[str, object] = {}  # Whose turn it is to sync: the ticket of one, or of nobody.
        self._asleep: deque[_Sleeper] = deque()  # Those who wait for it.
        self._failed: OSError | None = None
        tail = self._make(segment, SEGMENT_BYTES_MIN, segment_bytes)
        self.writer.begin_segment(tail, segment, SEGMENT_HEADER_BYTES)

    def attach(self, engine: Engine) -> None:
        """Log what happens in this engine. It comes before the first commit."""
        self._engine = engine
        self.writer.attach(engine._session_slots)

    @property
    def written(self) -> int:
        """Every position below it is in a file."""
        return self.writer.written

    def commit(self, now: int, wall: int) -> None:
        """Write what happened since the last commit as one frame. Interrupted, it can be called again."""
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
            # The engine has already changed, and cannot be changed back: nothing more may be promised.
            self._failed = error
            raise JournalFailed(f"the log could not be written: {error}") from error
        if writer.promised:
            self.make_durable(writer.promised)
            writer.promised = 0
            # The newest promise is needed soon.
            self._next_growth = writer.offset
        if writer.offset >= self._next_growth:
            self._next_growth = writer.offset + self._segment_bytes // 4
            self.on_growth()
        if self._engine.spills:
            writer.memory_left = self._engine.memory_left()

    def make_durable(self, position: int) -> None:
        """Return when every position below this one is on disk; callers who come together share one sync."""
        if self._is_durable(position):
            return
        assert position <= self.written
        # An interrupt may come between any two steps, so that we lead is not known from what a call answered.
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
            # Also where we were interrupted: we may be the one who was woken to lead.
            self._wake_next()

    def _is_durable(self, position: int) -> bool:
        return self.durable >= position and self._tail.before is None

    def _sync(self) -> None:
        self.check()
        self.unsynced_bytes = 0
        # In this order: whatever another thread writes meanwhile, `upto` is in the segments that we find.
        upto = self.written
        tail = self._tail
        try:
            self._sync_before(tail)
            tail.file.sync()
        except OSError as error:
            self._failed = error
            raise JournalFailed(f"the log could not be synced: {error}") from error
        self.durable = upto
        self.on_durable()

    def _sleep(self, position: int) -> None:
        """Sleep while another thread leads."""
        sleeper = _Sleeper(position)
        self._asleep.append(sleeper)
        try:
            # If it has just gone, it may not have seen us.
            if self._leader:
                sleeper.sleep()
        except BaseException:
            self._get_up(sleeper)
            raise
        self._get_up(sleeper)

    def _get_up(self, sleeper: _Sleeper) -> None:
        """Do not be woken any more."""
        with contextlib.suppress(ValueError):
            self._asleep.remove(sleeper)

    def _wake_next(self) -> None:
        """Wake those who have what they wait for; and one more, to lead, unless somebody leads."""
        with contextlib.suppress(IndexError):
            leads = False
            while not leads:
                leads = self._asleep[0].position > self.durable
                if leads and self._leader:
                    return
                self._asleep.popleft().wake()

    def _sync_before(self, tail: Tail) -> None:
        """Let the segments before one be on disk."""
        before = tail.before
        if before is not None:
            self._sync_before(before)
            if before.end + self._segment_bytes // 8 < before.size:
                # A snapshot was begun before it was full.
                before.file.truncate(before.end)
            else:
                before.file.sync()
            tail.before = None
            before.file.close()

    def tell_room(self) -> bool:
        """Let the engine know how much room there is, after a commit. Tell whether takes go on that could not."""
        engine, room, writer = self._engine, self.room, self.writer
        # A frame that is not written yet is going to be that long.
        pending = writer.frame_bytes()
        tail = self._tail
        here = tail.size - writer.offset
        left = here - pending - RESERVE_BYTES - PUT_BYTES
        # Somebody else should have prepared the next segment by now: in a thread, while there was time.
        if room.spare is None and left < self._segment_bytes // 8:
            self.prepare()
        spare = room.spare
        ahead = 0 if spare is None else spare.size
        if engine.moves_left <= 0 or here + ahead < room.sure_min:
            engine.count_moves()
        engine.room_bytes = min(room.for_puts(tail, left, pending, engine.moves_left), self._unowed())
        was_stuck, self._stuck = self._stuck, engine.moves_left <= 0
        if self._stuck and not was_stuck:
            # Whoever is told looks again and again whether there is room: those who wait cannot.
            self.on_growth()
        elif was_stuck and not self._stuck:
            engine.takes_go_on()
            return True
        return False

    def is_full(self) -> bool:
        """Whether there is no room for more jobs, in files that are made or to be made. Any thread may ask."""
        return self.room.spare is None or self.is_short()

    def is_short(self) -> bool:
        """Whether all that the disk has is owed to the jobs there are. Any thread may ask."""
        return self._unowed() <= 0

    def owed_bytes(self) -> int:
        """How much room on the disk is needed so that every job that is there can be taken, and can end."""
        return self._engine.jobs.count * OWED_BYTES + OWED_MOVES * self._engine.labels.total

    def _unowed(self) -> int:
        """What puts may write to this segment, the next one and the disk beside what is owed to the jobs so far."""
        room = self.room
        spare = room.spare
        # No i64: a disk may say that it has more bytes than fit in one beside these.
        files: int = self._tail.size - self.writer.offset + (0 if spare is None else spare.size)
        unowed = files + room.free - self.owed_bytes() - RESERVE_BYTES - PUT_BYTES
        if unowed < self._segment_bytes and room.wall >= room.look_not_before:
            before = room.free
            room.look()
            unowed += room.free - before
        return unowed

    def make_room(self, length: int) -> int:
        """Try to have room for so many bytes of bodies, more than a segment perhaps; tell how much room there is."""
        engine, room = self._engine, self.room
        self.tell_room()
        if engine.room_bytes < length:
            # First, how many are taken by now: many that were may not be.
            engine.count_moves()
            self.tell_room()
        if engine.room_bytes < length:
            held = room.held(engine.moves_left)
            needed = length + held + self.writer.frame_bytes() + SEGMENT_HEADER_BYTES + RESERVE_BYTES + PUT_BYTES
            with room.lock:
                self._have_spare(needed)
            self.tell_room()
        return engine.room_bytes

    def prepare(self) -> None:
        """Have the next segment ready, if there is room for it on the disk. Any thread may."""
        room = self.room
        # By another name: mypyc trusts that what was None is None, and another thread may change it.
        spare = room.spare
        if spare is None and room.wall >= room.spare_not_before:
            with room.lock:
                if room.spare is None:
                    self._have_spare(self._segment_bytes)

    def fill(self) -> None:
        """Write the zeros of the next segment, as long as it is the next one. Any thread may, without the lock."""
        while True:
            # A slice at a time: whoever needs the segment takes it as it is.
            with self.room.lock:
                spare = self.room.spare
                # One that is longer has room for more that are taken, or for one large frame.
                end = 0 if spare is None else min(spare.size, self._segment_bytes)
                if spare is None or spare.filled >= end:
                    return
                length = min(FILL_BYTES, end - spare.filled)
                try:
                    spare.file.fill(spare.filled, length)
                except OSError:
                    self._drop_spare()
                    self.room.spare_not_before = self.room.wall + LOOK_MS
                    return
                spare.filled += length

    def begin_snapshot(self, now: int, wall: int, small: bool = False) -> int:
        """Begin a segment, and tell its number: the log before it is what a snapshot will stand for.

        A small one if there is none ahead, and the snapshot is to make room on a full disk.
        """
        self.commit(now, wall)
        self.check()
        self.room.wall = wall
        if small and self.room.spare is None:
            with self.room.lock:
                self._go_on_in(self._new_segment(SMALL_SEGMENT_BYTES))
            return self._tail.number
        self.prepare_again()
        if self.room.spare is None:
            # The reserve of the segment that is written to is for acks.
            raise NoSpace(_NO_ROOM)
        self._rotate(0)
        return self._tail.number

    def prepare_again(self) -> None:
        """Have the next segment ready, although there may have been no room for it just now."""
        self.room.spare_not_before = 0
        self.prepare()

    def _new_segment(self, size: int) -> Tail:
        """Another segment in the place of the one that was made ahead, which stays if there is no room for it."""
        try:
            made = self._make(self._tail.number + 1, size, size)
        except OSError as error:
            raise NoSpace(f"{_NO_ROOM}: {error}") from error
        self._forget_spare()
        return made

    def promise(self, fsync: str, now: int, wall: int) -> None:
        """Sync more or less often from now on, and begin a segment: each says what was promised when it was written."""
        self.commit(now, wall)
        # If rows before it were lost, the new segment would be too, and what it says.
        self.make_durable(self.written)
        self.room.wall = wall
        with self.room.lock:
            # The one made ahead says what was promised before; and as long as it is empty, it counts for nothing.
            before, self.fsync = self.fsync, fsync
            try:
                tail = self._new_segment(self._segment_bytes)
            except NoSpace:
                self.fsync = before
                raise
            self._go_on_in(tail)

    def has_snapshot(self, header: SegmentHeader, size: int, log_bytes: int) -> None:
        """A snapshot of so many bytes stands for everything before its segment, which was so many bytes of log."""
        with self.room.lock:
            self.kept = Kept(header.segment, header.created, size, self.kept.log_bytes - log_bytes)

    def header(self, number: int, kind: str = LOG) -> SegmentHeader:
        """What a file that begins here and now says about itself."""
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
        """How much of the log a recovery has to read, beside the snapshot."""
        return self.kept.log_bytes + self.writer.offset

    @property
    def segment(self) -> int:
        """The number of the segment that is written to."""
        return self._tail.number

    @property
    def failed(self) -> bool:
        """Whether the disk failed: nothing more can be promised."""
        return self._failed is not None

    def check(self) -> None:
        """Refuse to go on after the disk failed. A sync that failed is never tried again: it would say it worked."""
        if self._failed is not None:
            raise JournalFailed(f"the log failed before: {self._failed}") from self._failed

    def give_up(self, why: OSError) -> None:
        """Write nothing more: what was to be written next is not whole."""
        self._failed = why

    def close(self, now: int, wall: int) -> None:
        """Write that nothing is missing, and close."""
        try:
            if self._failed is None:
                self.writer.stopped(now)
                self.commit(now, wall)
                self.make_durable(self.written)
                self._tail.file.truncate(self.writer.offset)
        finally:
            ticket = object()
            while self._leader.setdefault(_LEADS, ticket) is not ticket:
                self._sleep(self.written + 1)
            tail: Tail | None = self._tail
            while tail is not None:
                tail.file.close()
                tail = tail.before
            self._leader.clear()
            self._wake_next()
            self.bodies.close()
            with self.room.lock:
                self._drop_spare()

    @property
    def _tail(self) -> Tail:
        tail = self.writer.tail
        assert isinstance(tail, Tail)
        return tail

    def _make_frame(self, now: int, wall: int) -> None:
        writer = self.writer
        fits = writer.offset + writer.frame_bytes() <= self._tail.size
        if not fits:
            writer.name_tubes(self._engine._tubes_by_number, self._tail.number + 1, now)
        length = writer.frame_bytes()
        if length > FRAME_BYTES_MAX:
            raise OSError(errno.EFBIG, f"a frame of {length} bytes could not be read back")
        if not fits:
            self._rotate(length)
        writer.make_frame(now, wall, self.durable, seed_at(self._tail.seeds, writer.offset))

    def _write_frame(self) -> None:
        tail = self._tail
        tail.file.write(self.writer.offset, self.writer.frame)
        self.unsynced_bytes += len(self.writer.frame)
        let_go = self.writer.wrote_frame(tail.number)
        if let_go:
            self._engine.resident_bytes -= let_go

    def _rotate(self, length: int) -> None:
        """Go on in the next segment. Nothing is synced here, under somebody's lock: `make_durable` does it in order."""
        # Nobody may make the segment after this one before it is clear which that is.
        with self.room.lock:
            self._go_on_in(self._following(self._tail.number + 1, length))

    def _go_on_in(self, tail: Tail) -> None:
        before = self._tail
        before.end = self.writer.offset
        tail.before = before
        self.writer.begin_segment(tail, tail.number, SEGMENT_HEADER_BYTES)
        self.kept.log_bytes += before.end
        self._next_growth = 0

    def _following(self, number: int, length: int) -> Tail:
        """The next segment: the one that was kept ready, if it is large enough."""
        needed, room = length + SEGMENT_HEADER_BYTES, self.room
        spare = room.spare
        if spare is None:
            return self._make(number, needed, max(self._segment_bytes, needed))
        if spare.size < needed:
            spare.file.extend(needed)
            spare.size = needed
        room.has_spare(None)
        return spare

    def _make(self, number: int, needed: int, size: int) -> Tail:
        """Make a segment; on a full disk a smaller one, so that what is there can be taken and acked."""
        header = self.header(number)
        while True:
            try:
                made = self._disk.create(header.name, size, header.encode())
                self.room.look()
                return Tail(made, header, size)
            except OSError as error:
                if error.errno != errno.ENOSPC or size <= needed:
                    raise
                size = max(needed, size // 2)

    def _have_spare(self, size: int) -> None:
        """Let the next segment be so long, if there is room for that. With the lock of the room."""
        room = self.room
        spare = room.spare
        if spare is not None:
            if spare.size < size:
                room.extend(spare, size)
            return
        # It cannot say yet where it begins: its first frame will.
        header = replace(self.header(self._tail.number + 1), position=NOT_BEGUN)
        try:
            room.check(size)
            room.has_spare(Tail(self._disk.create(header.name, size, header.encode()), header, size))
        except OSError:
            # A full disk need not be asked with every commit.
            room.spare_not_before = room.wall + LOOK_MS
            room.look()

    def _drop_spare(self) -> None:
        spare = self.room.spare
        if spare is not None:
            self._disk.remove(spare.header.name)
            self._forget_spare()

    def _forget_spare(self) -> None:
        """The next segment is gone, or another one has its name."""
        spare = self.room.spare
        if spare is not None:
            spare.file.close()
            self.room.has_spare(None)


def suitable_segment_bytes(disk: Disk) -> int:
    """How large segments should be: on a small disk, small enough that some fit, and a ballast beside them."""
    return max(2 * SMALL_SEGMENT_BYTES, min(SEGMENT_BYTES, disk.free() // 8))


def _nothing() -> None: ...
