"""The steward of a directory: a thread that keeps its log short, and nobody notices.

It sleeps until the log has grown by part of a segment, or history may have grown too old. Then it does what is due: it
makes the next segment, an index of each full one and a snapshot once the log is long, and removes what is not to be
kept. A snapshot is taken in slices of a fraction of a millisecond under the queue's lock, with pauses as long, and much
longer ones while others work; only one that is long overdue, because no open of the queue lasted until it was done, is
taken at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.core.engine import Engine
from penstock.core.errors import Closed, CommandError, DamagedJournal, JournalFailed, NoSpace
from penstock.core.limits import NEVER
from penstock.host.bell import Bell
from penstock.journal import ballast
from penstock.journal.disk import Disk
from penstock.journal.frame import ROW_BYTES
from penstock.journal.index import SegmentIndex
from penstock.journal.index import check as check_index
from penstock.journal.log import SEGMENT_BYTES, SMALL_SEGMENT_BYTES, Log
from penstock.journal.retention import NO_HISTORY, Retention, trim, without_bodies
from penstock.journal.segment import SEGMENT_HEADER_BYTES, FrameFile, index_name, number_of, segment_names
from penstock.journal.snapshot import Snapshot, take_snapshot, use_snapshot

_log = logging.getLogger("penstock")

# A snapshot is due when the log since the last one is longer than this, and than twice that one: so no more than half
# as much is written for snapshots as for the log, and a recovery reads no more than three times what there is.
SNAPSHOT_BYTES: Final = 256 * 1024 * 1024

# Twice as much log: then nobody is let in before there is a snapshot.
_OVERDUE: Final = 2

# A snapshot because history grows too old is worth it only after so much log, and as much as the last one; or as long
# after it as history is looked at anyway.
_WORTH_BYTES: Final = SEGMENT_BYTES

# How long to let others work, as a multiple of one's own work: while they do, and while nobody does. Slices of a
# snapshot are short and many, and each costs others more than its own time, since threads change places for it. And how
# long one's own work is about, at a time.
_PAUSE_BUSY: Final = 9
_PAUSE_SNAPSHOT: Final = 29
_PAUSE_IDLE: Final = 1
_PAUSE_MIN_S: Final = 0.0005
_WORK_S: Final = 0.001

# How much of a segment is looked at at a time: about a millisecond's work.
_PIECE_BYTES: Final = 256 * 1024

# How long to wait when something failed, a full disk for example; and how often to look for history that is too old.
_TRY_AGAIN_S: Final = 60.0
_LOOK_S: Final = 3_600.0

# How often to look whether there is room again on a full disk.
_FULL_S: Final = 1.0


class _Stopped(Exception):
    """The queue is being closed."""


class Served(Protocol):
    """The queue that a steward serves."""

    lock: threading.Lock
    engine: Engine
    disk: Disk
    log: Log
    now: Callable[[], int]  # Engine time, ms.
    wall: Callable[[], int]  # What the clock on the wall shows, ms.

    def fail(self, error: CommandError) -> None:
        """Let everybody hear that nothing more can be promised. Under the lock."""

    def look_for_room(self) -> None:
        """The disk was full: if it is no more, serve those who wait for that. Under the lock."""


class Steward:
    """Keeps one directory in order, as long as its queue is there."""

    def __init__(self, served: Served, retention: Retention, snapshot_bytes: int = SNAPSHOT_BYTES) -> None:
        """Begin, before anybody else uses the queue."""
        self._retention = retention
        self._snapshot_bytes = snapshot_bytes
        self._stopping = threading.Event()
        self._due = Bell()
        self._due.ring()
        self._queue = weakref.ref(served, lambda _: self._due.ring())
        self._seen = 0  # The segment that was written to when everything was last in order.
        self._quiet_until = 0.0  # When to say again that something failed.
        self._is_full = False  # Whether it was said that the disk is.
        self._written = 0  # How far the log was written when others were last let work.
        self._indexed: set[str] = set()  # Segments whose index is known to be good, or that can have none.
        self._turned = threading.Condition()
        self._asked = 0  # How often somebody asked for a snapshot, and how many of those were answered.
        self._answered = 0
        self._ended = False
        self._failure: Exception | None = None
        if self._has_grown(served, _OVERDUE):
            self._snapshot_at_once(served)
        self._thread = threading.Thread(target=self._run, name="penstock-steward", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look whether something is due: the log has grown."""
        self._due.ring()

    def stop(self) -> None:
        """Stop, and return when nothing in the directory is being changed any more. The lock may be held."""
        self._stopping.set()
        self._due.ring()
        self._thread.join()

    def take_snapshot(self) -> None:
        """Take a snapshot now, and return when it is there and what need not be kept is gone. Without the lock."""
        with self._turned:
            self._asked += 1
            ticket = self._asked
            self._due.ring()
            self._turned.wait_for(lambda: self._answered >= ticket or self._ended)
            if self._answered < ticket:
                raise Closed()
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and (served := self._queue()) is not None and not served.log.failed:
                self._due.silence()
                wait = self._turn(served)
                # Nothing here may keep alive a queue that everybody else has forgotten.
                del served
                if not self._due.wait(wait):
                    self._seen = 0
        finally:
            with self._turned:
                self._ended = True
                self._turned.notify_all()

    def _turn(self, served: Served) -> float:
        """Do what is due; tell how long to wait before looking again."""
        # Whoever asks from now on wants a snapshot that is newer than this one.
        asked = self._asked
        wanted = asked > self._answered
        failure: Exception | None = None
        try:
            due = wanted or self._snapshot_is_due(served)
            if due:
                # First: on a full disk, this may be the room that a segment and a snapshot need.
                trim(served.disk, served.log, self._retention, served.wall())
            ballast.take_on(served.disk, served.log.room.segment_bytes)
            served.log.prepare()
            served.log.fill()
            # Behind whatever was made: what it takes is not free.
            served.log.room.look()
            is_full = self._lacks_room(served) and not self._make_room(served)
            self._tell_whether_full(is_full)
            if served.engine.moves_left <= 0:
                with self._locked(served):
                    served.look_for_room()
            if due and not is_full and self._fits(served):
                self._snapshot(served)
            elif due:
                raise NoSpace("there is no room on the disk for a snapshot")
            if not is_full and (served.log.segment != self._seen or wanted):
                self._tidy(served)
        except _Stopped:
            return 0.0
        except JournalFailed as error:
            failure = error
            with contextlib.suppress(_Stopped), self._locked(served):
                served.fail(error)
        except Exception as error:  # Whatever it is, it must not end the thread, and those who wait must hear of it.
            failure = error.with_traceback(None)
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + _TRY_AGAIN_S
                _tell(error)
        with self._turned:
            self._failure = failure
            self._answered = asked
            self._turned.notify_all()
        if served.log.is_full() or served.engine.moves_left <= 0:
            # Whatever failed, and also if this was noticed in the middle of a snapshot: others may wait for room.
            return _FULL_S
        if failure is not None:
            return _TRY_AGAIN_S
        return _LOOK_S

    def _tell_whether_full(self, is_full: bool) -> None:
        """Say so once, and when it is over: those who are refused may keep it to themselves."""
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                _log.warning("the log cannot grow, so puts are refused: the disk is full, or no file can be opened")
            else:
                _log.info("the log can grow again")

    def _lacks_room(self, served: Served) -> bool:
        """Whether the disk is full; or will be for good, because somebody else has the room of the ballast."""
        return served.log.is_full() or not ballast.is_there(served.disk)

    def _make_room(self, served: Served) -> bool:
        """The disk is full: let go of history, then of the log, if what is left of it is little; tell if it helped."""
        disk, log = served.disk, served.log
        # The next segment may just have been begun, or dropped for another: that is no full disk, and history stays.
        self._be_ready(served)
        if not self._lacks_room(served):
            return True
        if not log.is_short() and disk.free() > log.room.segment_bytes + ballast.BALLAST_BYTES:
            # Files cannot be made, though there is room: no more can be open, perhaps. Less history is no help.
            return not log.is_full()
        freed = trim(disk, log, NO_HISTORY, served.wall())
        if freed:
            _log.warning("the disk is full: %d bytes of history were given up", freed)
        self._be_ready(served)
        if self._lacks_room(served) and self._is_little(served):
            freed = self._shorten(served)
            _log.warning("the disk is full: jobs that are done were removed from the log, %d bytes", freed)
        return not log.is_full()

    def _be_ready(self, served: Served) -> None:
        """Have what there has to be before a disk is full, if there is room for it."""
        ballast.take_on(served.disk, served.log.room.segment_bytes)
        served.log.prepare_again()
        served.log.room.look()

    def _shorten(self, served: Served) -> int:
        """Take a snapshot in the room of the ballast, which is kept for it; tell what it freed."""
        room = served.log.room
        room.kept = _shortening_bytes(served)
        room.look()
        try:
            ballast.throw_off(served.disk)
            self._snapshot(served, small=True)
            return trim(served.disk, served.log, NO_HISTORY, served.wall())
        finally:
            room.kept = 0
            self._be_ready(served)

    def _fits(self, served: Served) -> bool:
        """Whether a snapshot fits on the disk beside what jobs are owed."""
        return _snapshot_bytes(served) + served.log.owed_bytes() < served.disk.free()

    def _is_little(self, served: Served) -> bool:
        """Whether one does so on a full disk without its ballast, and makes room there."""
        needed, log = _shortening_bytes(served), served.log
        return needed + log.owed_bytes() < ballast.room(served.disk) and 2 * needed < log.needed_bytes()

    def _tidy(self, served: Served) -> None:
        """Remove what is not to be kept, and index what is."""
        segment = served.log.segment
        # What an index tells of must not be lost.
        served.log.make_durable(served.log.written)
        trim(served.disk, served.log, self._retention, served.wall())
        while not self._retention.bodies and without_bodies(served.disk, served.log):
            self._pause(_WORK_S)
        self._index(served, segment)
        self._seen = segment

    def _has_grown(self, served: Served, times: int = 1) -> bool:
        """Whether the log is as long as calls for a snapshot, or so many times as long."""
        return served.log.needed_bytes() > times * max(self._snapshot_bytes, 2 * served.log.kept.snapshot_bytes)

    def _snapshot_is_due(self, served: Served) -> bool:
        return self._has_grown(served) or self._is_too_old(served)

    def _is_too_old(self, served: Served) -> bool:
        """Whether the log that is needed should be history by now, and be gone."""
        log = served.log
        written = log.needed_bytes() - SEGMENT_HEADER_BYTES
        if self._retention.age_ms == NEVER or written == 0:
            return False
        age_ms = served.wall() - log.kept.since
        if age_ms < -_LOOK_S * 1_000:
            # The clock was ahead when it was begun, or is behind now: nobody knows how old it is.
            return True
        worth = written > max(_WORTH_BYTES, log.kept.snapshot_bytes) or age_ms > _LOOK_S * 1_000
        return worth and age_ms > self._retention.age_ms

    def _snapshot_at_once(self, served: Served) -> None:
        try:
            trim(served.disk, served.log, self._retention, served.wall())
            take_snapshot(served.disk, served.log, served.engine, served.now(), served.wall())
        except Exception as error:  # A queue that cannot be shortened can be used.
            _tell(error)

    def _snapshot(self, served: Served, small: bool = False) -> None:
        with self._locked(served):
            snapshot = Snapshot(served.disk, served.log, served.engine, served.now(), served.wall(), small=small)
        try:
            more = True
            while more:
                began = time.thread_time()
                with self._locked(served):
                    more = snapshot.slice(served.now(), served.wall())
                snapshot.write(served.now(), served.wall(), last=not more)
                self._prepare(served)
                self._pause(time.thread_time() - began, _PAUSE_SNAPSHOT)
            kept = served.log.kept
            snapshot.finish()
        except BaseException:
            snapshot.abandon()
            raise
        try:
            self._use(served, snapshot.number)
        except BaseException:
            # Bodies are still read from files before it, so these must stay until a later one succeeds.
            served.log.kept = kept
            raise

    def _prepare(self, served: Served) -> None:
        """Make the next segment in the middle of other work, if the log has grown meanwhile."""
        if self._due.was_rung():
            served.log.prepare()

    def _use(self, served: Served, number: int) -> None:
        """Let bodies that are on disk only be read from a snapshot."""
        if served.engine.spills:
            began = time.thread_time()
            for _ in use_snapshot(served.disk, served.engine, number, lambda: self._locked(served)):
                self._prepare(served)
                self._pause(time.thread_time() - began)
                began = time.thread_time()

    def _index(self, served: Served, segment: int) -> None:
        """Make the indexes that are missing or damaged, of segments before one; each is looked at once."""
        disk = served.disk
        there = set(disk.names())
        for name in segment_names(disk):
            number = number_of(name)
            if number < segment and not (name in self._indexed and index_name(number) in there):
                try:
                    self._index_one(disk, name, index_name(number) in there)
                except DamagedJournal as error:
                    if name not in self._indexed:
                        _log.warning("%s has no index, so its history is slow to look up: %s", name, error)
                self._indexed.add(name)

    def _index_one(self, disk: Disk, name: str, there: bool) -> None:
        index = index_name(number_of(name))
        if there:
            with contextlib.suppress(DamagedJournal):
                check_index(index, disk.read(index))
                self._pause(_WORK_S)
                return
        made = SegmentIndex()
        began = time.thread_time()
        with FrameFile(disk, name) as file:
            for piece in file.pieces(piece_bytes=_PIECE_BYTES):
                made.add(piece)
                self._pause(time.thread_time() - began)
                began = time.thread_time()
        disk.replace(index, made.encode(lambda: self._pause(_WORK_S)))

    def _pause(self, spent: float, busy: int = _PAUSE_BUSY) -> None:
        """Let others work; for longer if they do, which the log tells."""
        served = self._queue()
        before, self._written = self._written, 0 if served is None else served.log.written
        share = _PAUSE_IDLE if before == self._written else busy
        if self._stopping.wait(max(_PAUSE_MIN_S, spent * share)):
            raise _Stopped

    @contextlib.contextmanager
    def _locked(self, served: Served) -> Iterator[None]:
        """Hold the queue's lock; but whoever stops us may hold it already."""
        while not served.lock.acquire(timeout=0.05):
            if self._stopping.is_set():
                raise _Stopped
        try:
            if self._stopping.is_set():
                raise _Stopped
            yield
        finally:
            served.lock.release()


def _snapshot_bytes(served: Served) -> int:
    """How long a snapshot is about to be, with the keys and names of jobs."""
    bodies = sum(tube.body_bytes for tube in list(served.engine.tubes.values()))
    return served.engine.jobs.count * 2 * ROW_BYTES + served.engine.labels.total + bodies


def _shortening_bytes(served: Served) -> int:
    """What such a snapshot takes on a full disk, with the small segment that it begins where none was made ahead."""
    return _snapshot_bytes(served) + (SMALL_SEGMENT_BYTES if served.log.room.spare is None else SEGMENT_HEADER_BYTES)


def _tell(error: Exception) -> None:
    _log.warning("the log could not be shortened, and grows until it can: %s", error)
