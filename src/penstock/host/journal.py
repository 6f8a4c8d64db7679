"""The journal of a queue in a directory: its log, its history, background sync and maintenance."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.errors import CommandError, DamagedJournal, JournalFailed, UnknownJob
from penstock.core.job import BodyRef, Job
from penstock.host.committer import Committer
from penstock.host.maintenance.runner import Maintenance
from penstock.host.wake_flag import WakeFlag
from penstock.journal import reserve_file
from penstock.journal.disk import Disk
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.follower import BlockPage, LogFollower, check_range
from penstock.journal.history.reader import Event, Reader
from penstock.journal.log import ALWAYS, NEVER_SYNC, Log
from penstock.journal.maintenance.retention import Retention

# Number of bodies to prefetch.
_AHEAD: Final = 64

# Number of digests to read together.
_BLOCKS: Final = 100

# Seconds between two syncs in the background.
_SYNC_S: Final = 1.0

# Under the policy `never`, a log is synced if it has grown by fewer bytes since the last check. So readers of the log,
# which get only durable rows, see the last rows of an idle queue. A busier log is synced when it has grown by a quarter
# of a segment (4 MB), which takes at most a few seconds.
_QUIET_BYTES: Final = 1024 * 1024


class Owner(Protocol):
    """The host of a journal: an engine with its clock and lock. `with owner:` is a turn, which needs the lock."""

    lock: threading.Lock
    engine: Engine
    now: Callable[[], int]
    wall: Callable[[], int]

    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def fail(self, error: CommandError) -> None: ...
    def commit_shared(self) -> None: ...


class Journal:
    """The parts of a queue that only a queue in a directory has: log, history, background sync and maintenance."""

    def __init__(self, host: Owner, disk: Disk, log: Log, retention: Retention, snapshot_bytes: int) -> None:
        self.lock = host.lock
        self.engine = host.engine
        self.now = host.now
        self.wall = host.wall
        self.disk = disk
        self.log = log
        self._host = weakref.ref(host)
        self._reader = Reader(disk)
        self.follower = LogFollower(disk, self._reader)
        self._committers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Committer] = weakref.WeakKeyDictionary()
        self._fetched = 0
        self.closed = False
        self._maintenance = Maintenance(self, retention, snapshot_bytes)
        self._grown = WakeFlag()
        self._syncing = False
        self._unsynced_before = 0  # The unsynced bytes at the last check in the background.
        log.on_growth = _Growth(self._maintenance, self._grown)
        self._start_background_sync()

    def set_fsync(self, fsync: str) -> None:
        """Change the fsync policy. The caller holds the lock."""
        if fsync != self.log.fsync:
            self.log.change_fsync(fsync, self.now(), self.wall())
            self._start_background_sync()

    def _start_background_sync(self) -> None:
        if self.log.fsync != ALWAYS and not self._syncing:
            self._syncing = True
            # The thread ends when the journal is closed or garbage-collected.
            weak = weakref.ref(self, lambda _, grown=self._grown: grown.set())  # type: ignore[misc]
            syncing = threading.Thread(
                target=_background_sync, args=(weak, self._grown), name="penstock-sync", daemon=True
            )
            syncing.start()

    def events(self, start: int) -> Iterator[Event]:
        """Yield the events that are on disk, starting at position `start`."""
        return self._reader.events(start, self.log.durable)

    def digests(self, start: int, end: int) -> Iterator[BlockDigest]:
        """Return the digests of the rows on disk from position `start` up to `end`. The caller does not hold the lock.

        This call reads the first digests, and raises the error if it cannot.
        """
        check_range(start, end, self.log.written)
        end = min(end, self.log.durable)
        return self._digest_pages(self.follower.digests(start, end, _BLOCKS), end)

    def _digest_pages(self, page: BlockPage, end: int) -> Iterator[BlockDigest]:
        yield from page.blocks
        while page.next < end:
            page = self.follower.digests(page.next, end, _BLOCKS)
            yield from page.blocks

    def history(self, number: int) -> list[Event]:
        """Return the events of a job that are on disk, even if the job has ended. The caller does not hold the lock."""
        host = self._host()
        assert host is not None
        # The turn writes the newest row of the job to a file.
        with self.lock, host:
            job = self.engine.jobs.find(number)
            newest = None if job is None or job.position <= 0 else job.position
        return self._reader.history(number, newest, self.log.durable)

    async def until_durable(self) -> None:
        """Wait until all changes so far are as durable as the fsync policy requires."""
        log = self.log
        if log.fsync == ALWAYS and log.durable < log.writer.position:
            loop = asyncio.get_running_loop()
            committer = self._committers.get(loop)
            if committer is None:
                committer = self._committers[loop] = Committer(log, _Commit(self._host))
            await committer.durable(log.writer.position)

    def fetch(self, job: Job) -> bytes:
        """Read the body of a job from disk. Prefetch the bodies of the next jobs."""
        tube = self.engine.tube_slots[job.tube]
        self._fetched += 1
        if self._fetched % _AHEAD == 1 and tube is not None:
            # The beginning of a heap is not sorted, but the next jobs are among its first items.
            upcoming = [next_job.body for next_job in tube.ready.items[: 2 * _AHEAD]]
            self.log.bodies.will_read([body for body in upcoming if isinstance(body, BodyRef)])
        while job.state != s.GONE:
            body = job.body
            try:
                return self.log.writer.body_of(job)
            except DamagedJournal:
                # If the job's body has moved, a snapshot contains it now, and its old file was removed or rewritten.
                if job.body is body and job.state != s.GONE:
                    raise
        raise UnknownJob("the job is gone, and its body was on disk only")

    def take_snapshot(self) -> None:
        """Take a snapshot now, and delete history that need not be kept. The caller does not hold the lock."""
        self._maintenance.take_snapshot()

    def stop(self) -> None:
        """Close the log. The caller holds the lock, or no other thread uses the queue yet."""
        self._stop_threads()
        self._close_log()

    def close(self) -> None:
        """Close the log and unlock the directory, even if closing fails.

        The caller holds the lock, or no other thread uses the queue yet.
        """
        # If this is interrupted, the directory stays locked, because maintenance may still be working in it.
        self._stop_threads()
        try:
            self._close_log()
        finally:
            self.disk.unlock()

    def _stop_threads(self) -> None:
        self.closed = True
        self._grown.set()
        self._maintenance.stop()

    def _close_log(self) -> None:
        reserve_file.release(self.disk)
        self.log.close(self.now(), self.wall())

    def fail(self, error: CommandError) -> None:
        """Fail all pending and future calls, because the journal failed. The caller holds the lock."""
        host = self._host()
        if host is not None and not self.closed:
            host.fail(error)

    def retry_after_full_disk(self) -> None:
        """Serve calls that wait for disk space, if the disk has space again. The caller holds the lock."""
        host = self._host()
        if host is not None and not self.closed:
            with host:
                pass

    def sync_in_background(self, grown: bool) -> float | None:
        """Sync the rows that were written, if there are any. `grown` means that the log has grown by a certain amount.

        Return the seconds until the next sync, or None to wait until the log grows.
        """
        log = self.log
        is_quiet = log.unsynced_bytes - self._unsynced_before < _QUIET_BYTES
        if grown or is_quiet or log.fsync != NEVER_SYNC:
            try:
                log.make_durable(log.written)
            except JournalFailed as error:
                with self.lock:
                    self.fail(error)
                raise
        self._unsynced_before = log.unsynced_bytes
        return None if log.fsync == ALWAYS else _SYNC_S


class _Growth:
    """The callback that a log calls when it grows. It does not refer to the queue, to avoid a reference cycle."""

    def __init__(self, maintenance: Maintenance, syncer: WakeFlag) -> None:
        self._maintenance = maintenance
        self._syncer = syncer

    def __call__(self) -> None:
        self._maintenance.wake()
        self._syncer.set()


class _Commit:
    """The callback with which a committer writes the pending rows of the queue.

    Its reference to the queue is weak, to avoid a reference cycle.
    """

    def __init__(self, host: weakref.ref[Owner]) -> None:
        self._host = host

    def __call__(self) -> None:
        host = self._host()
        if host is not None:
            host.commit_shared()


def _background_sync(weak: weakref.ref[Journal], grown: WakeFlag) -> None:
    """Sync in the background.

    Under `everysec`, this happens every second. Under `never`, it happens when the log has grown, or while it is quiet.
    """
    wait: float | None = 0.0
    while True:
        has_grown = grown.wait(wait)
        journal = weak()
        if journal is None or journal.closed:
            return
        try:
            wait = journal.sync_in_background(has_grown)
        except JournalFailed:
            return
        del journal
