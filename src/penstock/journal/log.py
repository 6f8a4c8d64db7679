"""The log of one node: frames appended to its newest segment, and how far they are durable.

Every open begins a segment and an epoch of its own. Segments are made at their full size, so appending changes no
metadata. The next one is made before it is needed: if that fails, the disk is full while there is still room for acks.
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
from penstock.core.limits import NEVER
from penstock.journal.bodies import Bodies
from penstock.journal.disk import Disk, File
from penstock.journal.frame import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, ROW_BYTES, RowWriter, seed_at
from penstock.journal.segment import LOG, NOT_BEGUN, SEGMENT_HEADER_BYTES, SegmentHeader

SEGMENT_BYTES: Final = 16 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 64 * 1024

# What acks, takes and timers may still write when puts are refused, whatever jobs there are.
RESERVE_BYTES: Final = 1024 * 1024

# A row in a frame of its own: what a command writes if nothing else happens in its turn.
MOVE_BYTES: Final = FRAME_HEADER_BYTES + ROW_BYTES

# What a job that was put is owed, however full the disk becomes: that it is taken and acked, and can come back once.
OWED_BYTES: Final = 4 * MOVE_BYTES

# How often a disk that is nearly full is asked how full it is, wall ms.
_LOOK_MS: Final = 500

# A row and its share of a frame: what a put needs beside its body.
PUT_BYTES: Final = 1_024

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


@dataclass
class _Tail:
    """The segment that frames go to."""

    file: File
    header: SegmentHeader
    size: int
    seeds: int = 0  # Of the checksums of its frames.
    filled: int = SEGMENT_HEADER_BYTES  # Up to where its zeros were written, while it is the next segment.
    end: int = 0  # Where its frames end, once another segment is written to.
    before: _Tail | None = None  # The segment before it, as long as that is not on disk.

    def __post_init__(self) -> None:
        self.seeds = self.header.seeds

    @property
    def number(self) -> int:
        return self.header.segment


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
        self._wall = wall
        self._spare: _Tail | None = None  # The next segment, made ahead.
        self._spare_not_before = 0
        self.room_ahead = 0  # How many bytes of bodies can be put at least, if the next segment is ready; else 0.
        self._free = 0  # How many bytes more the disk has,
        self._look_not_before = 0  # and when to ask it again, if they are few.
        self._next_growth = 0
        self._sparing = threading.Lock()
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
        self._wall = wall
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

    def _sync_before(self, tail: _Tail) -> None:
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
        engine = self._engine
        left = self._left()
        # Somebody else should have prepared the next segment by now: in a thread, while there was time.
        if not self.room_ahead and left < self._segment_bytes // 8:
            self.prepare()
        unowed = self._unowed()
        engine.room_bytes = min(max(left, self.room_ahead), unowed)
        had_moves = engine.moves_left > 0
        engine.moves_left = NEVER if unowed > 0 else self._moves_left(unowed)
        has_moves = engine.moves_left > 0
        if had_moves and not has_moves:
            # Whoever is told looks again and again whether there is room: those who wait cannot.
            self.on_growth()
        elif has_moves and not had_moves:
            engine.takes_go_on()
            return True
        return False

    def _moves_left(self, unowed: int) -> int:
        """How many jobs can still be taken or the like, and those that are taken come to an end, on a full disk.

        More than jobs are owed has been used: by others on this disk, or by jobs that came back again and again.
        """
        written = unowed + self.owed_bytes() + RESERVE_BYTES + PUT_BYTES
        taken = sum(len(tube.taken.items) for tube in self._engine.tubes.values())
        return (written - RESERVE_BYTES // 4) // OWED_BYTES - taken

    def is_full(self) -> bool:
        """Whether the disk has no room for more jobs. Any thread may ask."""
        return not self.room_ahead or self._unowed() <= 0

    def look_at_disk(self) -> None:
        """See how much room the disk has. Any thread may."""
        self._free = self._disk.free()
        self._look_not_before = self._wall + _LOOK_MS

    def owed_bytes(self) -> int:
        """How much room on the disk is needed so that every job that is there can be taken, and can end."""
        return self._engine.jobs.count * OWED_BYTES

    def _left(self) -> int:
        """What puts may still write to this segment."""
        return self._tail.size - self.writer.offset - RESERVE_BYTES - PUT_BYTES

    def _unowed(self) -> int:
        """What puts may write to this segment, the next one and the disk beside what is owed to the jobs so far."""
        spare = self._spare
        unowed = self._left() + (0 if spare is None else spare.size) + self._free - self.owed_bytes()
        if unowed < self._segment_bytes and self._wall >= self._look_not_before:
            before = self._free
            self.look_at_disk()
            unowed += self._free - before
        return unowed

    def make_room(self, length: int) -> int:
        """Try to have room for so many bytes of bodies, more than a segment perhaps; tell how much room there is."""
        self.tell_room()
        if self._engine.room_bytes < length:
            with self._sparing:
                self._drop_spare()
                self._make_spare(length + SEGMENT_HEADER_BYTES + RESERVE_BYTES + PUT_BYTES)
            self.tell_room()
        return self._engine.room_bytes

    def prepare(self) -> None:
        """Have the next segment ready, if there is room for it on the disk. Any thread may."""
        # By another name: mypyc trusts that what was None is None, and another thread may change it.
        spare = self._spare
        if spare is None and self._wall >= self._spare_not_before:
            with self._sparing:
                if self._spare is None:
                    self._make_spare(self._segment_bytes)

    def fill(self) -> None:
        """Write the zeros of the next segment, as long as it is the next one. Any thread may, without the lock."""
        while True:
            # A slice at a time: whoever needs the segment takes it as it is.
            with self._sparing:
                spare = self._spare
                if spare is None or spare.filled >= spare.size:
                    return
                length = min(FILL_BYTES, spare.size - spare.filled)
                try:
                    spare.file.fill(spare.filled, length)
                except OSError:
                    self._drop_spare()
                    self._spare_not_before = self._wall + _LOOK_MS
                    return
                spare.filled += length

    def begin_snapshot(self, now: int, wall: int, small: bool = False) -> int:
        """Begin a segment, and tell its number: the log before it is what a snapshot will stand for.

        A small one, if the snapshot is to make room on a full disk.
        """
        self.commit(now, wall)
        self.check()
        self._wall = wall
        if small:
            with self._sparing:
                self._drop_spare()
                self._go_on_in(self._new_segment(SMALL_SEGMENT_BYTES))
            return self._tail.number
        self.prepare_again()
        if not self.room_ahead:
            # The reserve of the segment that is written to is for acks.
            raise NoSpace(_NO_ROOM)
        self._rotate(0)
        return self._tail.number

    def prepare_again(self) -> None:
        """Have the next segment ready, although there may have been no room for it just now."""
        self._spare_not_before = 0
        self.prepare()

    def _new_segment(self, size: int) -> _Tail:
        try:
            return self._make(self._tail.number + 1, size, size)
        except OSError as error:
            raise NoSpace(f"{_NO_ROOM}: {error}") from error

    def promise(self, fsync: str, now: int, wall: int) -> None:
        """Sync more or less often from now on, and begin a segment: each says what was promised when it was written."""
        self.commit(now, wall)
        # If rows before it were lost, the new segment would be too, and what it says.
        self.make_durable(self.written)
        self._wall = wall
        with self._sparing:
            # The one made ahead says what was promised before; and as long as it is empty, it counts for nothing.
            self._drop_spare()
            before, self.fsync = self.fsync, fsync
            try:
                tail = self._new_segment(self._segment_bytes)
            except NoSpace:
                self.fsync = before
                raise
            self._go_on_in(tail)

    def has_snapshot(self, header: SegmentHeader, size: int, log_bytes: int) -> None:
        """A snapshot of so many bytes stands for everything before its segment, which was so many bytes of log."""
        with self._sparing:
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
            created=self._wall,
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
            tail: _Tail | None = self._tail
            while tail is not None:
                tail.file.close()
                tail = tail.before
            self._leader.clear()
            self._wake_next()
            self.bodies.close()
            with self._sparing:
                self._drop_spare()

    @property
    def _tail(self) -> _Tail:
        tail = self.writer.tail
        assert isinstance(tail, _Tail)
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
        with self._sparing:
            self._go_on_in(self._following(self._tail.number + 1, length))

    def _go_on_in(self, tail: _Tail) -> None:
        before = self._tail
        before.end = self.writer.offset
        tail.before = before
        self.writer.begin_segment(tail, tail.number, SEGMENT_HEADER_BYTES)
        self.kept.log_bytes += before.end
        self._next_growth = 0

    def _following(self, number: int, length: int) -> _Tail:
        """The next segment: the one that was kept ready, if it is large enough."""
        needed = length + SEGMENT_HEADER_BYTES
        spare = self._spare
        if spare is not None and spare.size >= needed:
            self._spare, self.room_ahead = None, 0
            return spare
        self._drop_spare()
        return self._make(number, needed, max(self._segment_bytes, needed))

    def _make(self, number: int, needed: int, size: int) -> _Tail:
        """Make a segment; on a full disk a smaller one, so that what is there can be taken and acked."""
        header = self.header(number)
        while True:
            try:
                made = self._disk.create(header.name, size, header.encode())
                self.look_at_disk()
                return _Tail(made, header, size)
            except OSError as error:
                if error.errno != errno.ENOSPC or size <= needed:
                    raise
                size = max(needed, size // 2)

    def _make_spare(self, size: int) -> None:
        number = self._tail.number + 1
        # It cannot say yet where it begins: its first frame will.
        header = replace(self.header(number), position=NOT_BEGUN)
        try:
            self._spare = _Tail(self._disk.create(header.name, size, header.encode()), header, size)
            self.room_ahead = size - SEGMENT_HEADER_BYTES - RESERVE_BYTES - PUT_BYTES
            self.look_at_disk()
        except OSError:
            # A full disk need not be asked with every commit.
            self._spare_not_before = self._wall + _LOOK_MS

    def _drop_spare(self) -> None:
        spare = self._spare
        if spare is not None:
            self._spare, self.room_ahead = None, 0
            spare.file.close()
            self._disk.remove(spare.header.name)
            self.look_at_disk()


def suitable_segment_bytes(disk: Disk) -> int:
    """How large segments should be: on a small disk, small enough that some fit, and a ballast beside them."""
    return max(2 * SMALL_SEGMENT_BYTES, min(SEGMENT_BYTES, disk.free() // 8))


def _nothing() -> None: ...
