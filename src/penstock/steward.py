"""The steward of a directory: a thread that keeps its log short, and nobody notices.

It sleeps until the log has grown by part of a segment, or history may have grown too old. Then it does what is due: it
makes the next segment, an index of each full one and a snapshot once the log is long, and removes what is not to be
kept. A snapshot is taken in slices of a fraction of a millisecond under the queue's lock, with pauses three times as
long.
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
from penstock.core.errors import Closed
from penstock.core.limits import NEVER
from penstock.journal.disk import Disk
from penstock.journal.index import SegmentIndex
from penstock.journal.log import Log
from penstock.journal.retention import Retention, trim, without_bodies
from penstock.journal.segment import FrameFile, index_name, number_of, segment_names
from penstock.journal.snapshot import Snapshot, use_snapshot

_log = logging.getLogger("penstock")

# A snapshot is due when the log since the last one is longer than this, and than twice that one: so no more than half
# as much is written for snapshots as for the log, and a recovery reads no more than three times what there is.
SNAPSHOT_BYTES: Final = 256 * 1024 * 1024

# How long to let others work, as a multiple of one's own work; and how long that is about, at a time.
_PAUSE_SHARE: Final = 3
_PAUSE_MIN_S: Final = 0.0005
_WORK_S: Final = 0.001

# How much of a segment is looked at at a time: about a millisecond's work.
_PIECE_BYTES: Final = 256 * 1024

# How long to wait when something failed, a full disk for example; and how often to look for history that is too old.
_TRY_AGAIN_S: Final = 60.0
_LOOK_S: Final = 3_600.0


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


class Steward:
    """Keeps one directory in order, as long as its queue is there."""

    def __init__(self, served: Served, retention: Retention, snapshot_bytes: int = SNAPSHOT_BYTES) -> None:
        self._retention = retention
        self._snapshot_bytes = snapshot_bytes
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._due.set()
        self._queue = weakref.ref(served, lambda _: self._due.set())
        self._seen = 0  # The segment that was written to when everything was last in order.
        self._turned = threading.Condition()
        self._asked = 0  # How often somebody asked for a snapshot, and how many of those were answered.
        self._answered = 0
        self._ended = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-steward", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look whether something is due: the log has grown."""
        self._due.set()

    def stop(self) -> None:
        """Stop, and return when nothing in the directory is being changed any more. The lock may be held."""
        self._stopping.set()
        self._due.set()
        self._thread.join()

    def take_snapshot(self) -> None:
        """Take a snapshot now, and return when it is there and what need not be kept is gone. Without the lock."""
        with self._turned:
            self._asked += 1
            ticket = self._asked
            self._due.set()
            self._turned.wait_for(lambda: self._answered >= ticket or self._ended)
            if self._answered < ticket:
                raise Closed()
            if self._failure is not None:
                raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and (served := self._queue()) is not None and not served.log.failed:
                self._due.clear()
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
            served.log.prepare()
            served.log.fill()
            if wanted or self._snapshot_is_due(served):
                self._snapshot(served)
            if served.log.segment != self._seen or wanted:
                self._tidy(served)
        except _Stopped:
            return 0.0
        except Exception as error:  # Whatever it is, it must not end the thread, and those who wait must hear of it.
            failure = error.with_traceback(None)
            _log.warning("the log could not be shortened, and grows until it can: %s", error)
        with self._turned:
            self._failure = failure
            self._answered = asked
            self._turned.notify_all()
        return _LOOK_S if failure is None else _TRY_AGAIN_S

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

    def _snapshot_is_due(self, served: Served) -> bool:
        kept = served.log.kept
        grown = served.log.needed_bytes() > max(self._snapshot_bytes, 2 * kept.snapshot_bytes)
        age_ms = self._retention.age_ms
        return grown or (age_ms != NEVER and served.wall() - kept.since > age_ms)

    def _snapshot(self, served: Served) -> None:
        with self._locked(served):
            snapshot = Snapshot(served.disk, served.log, served.engine, served.now(), served.wall())
        try:
            more = True
            while more:
                began = time.thread_time()
                with self._locked(served):
                    more = snapshot.slice(served.now(), served.wall())
                snapshot.write(served.now(), served.wall(), last=not more)
                self._pause(time.thread_time() - began)
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

    def _use(self, served: Served, number: int) -> None:
        """Let bodies that are on disk only be read from a snapshot."""
        bodies = use_snapshot(served.disk, served.engine, number)
        more = served.engine.spills
        while more:
            began = time.thread_time()
            with self._locked(served):
                more = next(bodies, self) is not self
            self._pause(time.thread_time() - began)

    def _index(self, served: Served, segment: int) -> None:
        """Make the indexes that are missing, of segments before one."""
        disk = served.disk
        there = set(disk.names())
        for name in segment_names(disk):
            number = number_of(name)
            if number < segment and index_name(number) not in there:
                index = self._index_of(disk, name)
                disk.replace(index_name(number), index.encode(lambda: self._pause(_WORK_S)))

    def _index_of(self, disk: Disk, name: str) -> SegmentIndex:
        index = SegmentIndex()
        began = time.thread_time()
        with FrameFile(disk, name) as file:
            for piece in file.pieces(piece_bytes=_PIECE_BYTES):
                index.add(piece)
                self._pause(time.thread_time() - began)
                began = time.thread_time()
        return index

    def _pause(self, spent: float) -> None:
        """Let others work."""
        if self._stopping.wait(max(_PAUSE_MIN_S, spent * _PAUSE_SHARE)):
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
