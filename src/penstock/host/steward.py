"""Background maintenance of a queue directory: segments, snapshots, retention, indexes, disk space.

A thread sleeps until the log has grown by a part of a segment, or history may be too old. Then it runs all due tasks:
it creates the next segment, indexes full segments, takes a snapshot if the log is long, and deletes history that need
not be kept.

A snapshot is taken in slices of a fraction of a millisecond under the queue's lock. The pauses between them are as long
as the slices, and much longer while there is foreground work. Only a snapshot that is long overdue, because no session
of the queue lasted long enough to take it, is taken in one go before the queue opens.
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

# A snapshot is due when the log since the last one is longer than this and than twice that snapshot. Snapshots
# therefore write at most half as much as the log, and recovery reads at most three times the size of the live data.
SNAPSHOT_BYTES: Final = 256 * 1024 * 1024

# If the log is this many times as long, a snapshot is taken before the queue opens.
_OVERDUE: Final = 2

# A snapshot that is taken only because history is too old needs at least this much log, and as much as the last
# snapshot, or as much time as passes between two checks of the history.
_WORTH_BYTES: Final = SEGMENT_BYTES

# Pauses, as a multiple of the work done before. The slices of a snapshot are short and many, and each costs foreground
# work more than its own time because of thread switches.
_PAUSE_BUSY: Final = 9  # While there is foreground work.
_PAUSE_SNAPSHOT: Final = 29  # While there is foreground work, between the slices of a snapshot.
_PAUSE_IDLE: Final = 1
_PAUSE_MIN_S: Final = 0.0005
# Assumed duration of a piece of work that is not measured.
_WORK_S: Final = 0.001

# Bytes of a segment to process at a time: about a millisecond of work.
_PIECE_BYTES: Final = 256 * 1024

# Seconds until the next attempt after a failure, for example on a full disk.
_TRY_AGAIN_S: Final = 60.0
# Seconds between two checks for history that is too old.
_LOOK_S: Final = 3_600.0

# Seconds between two checks for space on a full disk.
_FULL_S: Final = 1.0


class _Stopped(Exception):
    """Raised in the maintenance thread when the queue is being closed."""


class Served(Protocol):
    """The queue that is maintained."""

    lock: threading.Lock
    engine: Engine
    disk: Disk
    log: Log
    now: Callable[[], int]  # Engine time, in ms.
    wall: Callable[[], int]  # Wall clock, in ms.

    def fail(self, error: CommandError) -> None:
        """Fail all pending and future calls, because the journal failed. The caller holds the lock."""

    def look_for_room(self) -> None:
        """Serve calls that wait for disk space, if there is space again. The caller holds the lock."""


class Steward:
    """Maintains one directory while its queue exists."""

    def __init__(self, served: Served, retention: Retention, snapshot_bytes: int = SNAPSHOT_BYTES) -> None:
        """Start the thread. No other thread uses the queue yet."""
        self._retention = retention
        self._snapshot_bytes = snapshot_bytes
        self._stopping = threading.Event()
        self._due = Bell()
        self._due.ring()
        self._queue = weakref.ref(served, lambda _: self._due.ring())
        self._seen = 0  # The newest segment when all tasks were last complete.
        self._quiet_until = 0.0  # Failures before this time are not logged.
        self._is_full = False  # Whether a full disk was logged.
        self._written = 0  # Position of the log at the last pause.
        self._indexed: set[str] = set()  # Segments whose index is valid, or that cannot have one.
        self._turned = threading.Condition()
        self._asked = 0  # Number of requested snapshots.
        self._answered = 0  # Number of answered requests.
        self._ended = False
        self._failure: Exception | None = None
        if self._has_grown(served, _OVERDUE):
            self._snapshot_at_once(served)
        self._thread = threading.Thread(target=self._run, name="penstock-steward", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check for due tasks, because the log has grown."""
        self._due.ring()

    def stop(self) -> None:
        """Stop the thread and wait for its end. The caller may hold the lock."""
        self._stopping.set()
        self._due.ring()
        self._thread.join()

    def take_snapshot(self) -> None:
        """Take a snapshot and delete old history, and return when that is done. The caller does not hold the lock."""
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
                # Keep no reference while waiting, so that an unused queue can be garbage-collected.
                del served
                if not self._due.wait(wait):
                    self._seen = 0
        finally:
            with self._turned:
                self._ended = True
                self._turned.notify_all()

    def _turn(self, served: Served) -> float:
        """Run all due tasks. Return the seconds until the next one."""
        # A request from now on needs a snapshot that is newer than this one.
        asked = self._asked
        wanted = asked > self._answered
        failure: Exception | None = None
        try:
            due = wanted or self._snapshot_is_due(served)
            if due:
                # Delete history first: on a full disk, a segment and a snapshot may need its space.
                trim(served.disk, served.log, self._retention, served.wall())
            ballast.take_on(served.disk, served.log.room.segment_bytes)
            served.log.prepare()
            served.log.fill()
            # After files were created, because they use space.
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
        except Exception as error:
            # No error may end the thread. Callers that wait for a snapshot receive it.
            failure = error.with_traceback(None)
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + _TRY_AGAIN_S
                _tell(error)
        with self._turned:
            self._failure = failure
            self._answered = asked
            self._turned.notify_all()
        if served.log.is_full() or served.engine.moves_left <= 0:
            # Callers may wait for space, even if a task failed or the disk became full during a snapshot.
            return _FULL_S
        if failure is not None:
            return _TRY_AGAIN_S
        return _LOOK_S

    def _tell_whether_full(self, is_full: bool) -> None:
        """Log once when the disk becomes full and once when it has space again."""
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                _log.warning("puts refused: the log cannot grow, because the disk is full or no file can be opened")
            else:
                _log.info("puts accepted again: the log can grow")

    def _lacks_room(self, served: Served) -> bool:
        """Return whether the disk is full, or would stay full because there is no reserve file."""
        return served.log.is_full() or not ballast.is_there(served.disk)

    def _make_room(self, served: Served) -> bool:
        """Free space on a full disk: delete history, then shorten the log if little of it is needed.

        Return whether the log can grow again.
        """
        disk, log = served.disk, served.log
        # A next segment that was just used or replaced is not a full disk. Try again before history is deleted.
        self._be_ready(served)
        if not self._lacks_room(served):
            return True
        if not log.is_short() and disk.free() > log.room.segment_bytes + ballast.BALLAST_BYTES:
            # There is space, but files cannot be created, perhaps because too many are open. Less history is no help.
            return not log.is_full()
        freed = trim(disk, log, NO_HISTORY, served.wall())
        if freed:
            _log.warning("history deleted: reason=disk-full bytes=%d", freed)
        self._be_ready(served)
        if self._lacks_room(served) and self._is_little(served):
            freed = self._shorten(served)
            _log.warning("log shortened: reason=disk-full bytes=%d", freed)
        return not log.is_full()

    def _be_ready(self, served: Served) -> None:
        """Create the reserve file and the next segment, if the disk has room for them."""
        ballast.take_on(served.disk, served.log.room.segment_bytes)
        served.log.prepare_again()
        served.log.room.look()

    def _shorten(self, served: Served) -> int:
        """Take a snapshot in the space of the reserve file. Return the bytes that it freed."""
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
        """Return whether a snapshot fits on the disk beside the space that is owed to jobs."""
        return _snapshot_bytes(served) + served.log.owed_bytes() < served.disk.free()

    def _is_little(self, served: Served) -> bool:
        """Return whether a snapshot fits on a full disk in the space of the reserve file, and frees space there."""
        needed, log = _shortening_bytes(served), served.log
        return needed + log.owed_bytes() < ballast.room(served.disk) and 2 * needed < log.needed_bytes()

    def _tidy(self, served: Served) -> None:
        """Delete history that need not be kept, and index the rest."""
        segment = served.log.segment
        # An index must not refer to rows that can be lost.
        served.log.make_durable(served.log.written)
        trim(served.disk, served.log, self._retention, served.wall())
        while not self._retention.bodies and without_bodies(served.disk, served.log):
            self._pause(_WORK_S)
        self._index(served, segment)
        self._seen = segment

    def _has_grown(self, served: Served, times: int = 1) -> bool:
        """Return whether the log exceeds the snapshot threshold by a factor of `times`."""
        return served.log.needed_bytes() > times * max(self._snapshot_bytes, 2 * served.log.kept.snapshot_bytes)

    def _snapshot_is_due(self, served: Served) -> bool:
        return self._has_grown(served) or self._is_too_old(served)

    def _is_too_old(self, served: Served) -> bool:
        """Return whether the log contains rows that should be history and deleted by now."""
        log = served.log
        written = log.needed_bytes() - SEGMENT_HEADER_BYTES
        if self._retention.age_ms == NEVER or written == 0:
            return False
        age_ms = served.wall() - log.kept.since
        if age_ms < -_LOOK_S * 1_000:
            # The clock was ahead when the log was started, or is behind now, so its age is unknown.
            return True
        worth = written > max(_WORTH_BYTES, log.kept.snapshot_bytes) or age_ms > _LOOK_S * 1_000
        return worth and age_ms > self._retention.age_ms

    def _snapshot_at_once(self, served: Served) -> None:
        try:
            trim(served.disk, served.log, self._retention, served.wall())
            take_snapshot(served.disk, served.log, served.engine, served.now(), served.wall())
        except Exception as error:  # A queue can be used even if its log cannot be shortened.
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
            # Bodies are still read from older files, which must stay until a later snapshot succeeds.
            served.log.kept = kept
            raise

    def _prepare(self, served: Served) -> None:
        """Create the next segment between two slices, if the log has grown meanwhile."""
        if self._due.was_rung():
            served.log.prepare()

    def _use(self, served: Served, number: int) -> None:
        """Make jobs whose bodies are on disk read them from the new snapshot."""
        if served.engine.spills:
            began = time.thread_time()
            for _ in use_snapshot(served.disk, served.engine, number, lambda: self._locked(served)):
                self._prepare(served)
                self._pause(time.thread_time() - began)
                began = time.thread_time()

    def _index(self, served: Served, segment: int) -> None:
        """Create missing or damaged indexes of the segments before `segment`. Each index is checked once."""
        disk = served.disk
        there = set(disk.names())
        for name in segment_names(disk):
            number = number_of(name)
            if number < segment and not (name in self._indexed and index_name(number) in there):
                try:
                    self._index_one(disk, name, index_name(number) in there)
                except DamagedJournal as error:
                    if name not in self._indexed:
                        _log.warning("index not created, history lookups are slow: segment=%s error=%s", name, error)
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
        """Yield to foreground work. Yield longer if the journal grew since the last slice."""
        served = self._queue()
        before, self._written = self._written, 0 if served is None else served.log.written
        share = _PAUSE_IDLE if before == self._written else busy
        if self._stopping.wait(max(_PAUSE_MIN_S, spent * share)):
            raise _Stopped

    @contextlib.contextmanager
    def _locked(self, served: Served) -> Iterator[None]:
        """Acquire the queue's lock, unless `stop()` already holds it."""
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
    """Return the approximate size of a snapshot, including the keys and names of jobs."""
    bodies = sum(tube.body_bytes for tube in list(served.engine.tubes.values()))
    return served.engine.jobs.count * 2 * ROW_BYTES + served.engine.labels.total + bodies


def _shortening_bytes(served: Served) -> int:
    """Return the bytes that a snapshot needs on a full disk, with the small segment that it starts if none is spare."""
    return _snapshot_bytes(served) + (SMALL_SEGMENT_BYTES if served.log.room.spare is None else SEGMENT_HEADER_BYTES)


def _tell(error: Exception) -> None:
    _log.warning("maintenance failed, the log grows until it succeeds: error=%s", error)
