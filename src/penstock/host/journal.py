"""What a queue in a directory has beside one in memory: its log, its history, and who looks after both."""

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
from penstock.host.bell import Bell
from penstock.host.committer import Committer
from penstock.host.steward import Steward
from penstock.journal import ballast
from penstock.journal.disk import Disk
from penstock.journal.log import ALWAYS, EVERYSEC, Log
from penstock.journal.reader import Event, Reader
from penstock.journal.retention import Retention
from penstock.journal.tap import Tap

# How many bodies are asked for ahead of their turn.
_AHEAD: Final = 64


class Owner(Protocol):
    """The host of a journal, and one turn of it."""

    lock: threading.Lock
    engine: Engine
    now: Callable[[], int]
    wall: Callable[[], int]

    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    def fail(self, error: CommandError) -> None:
        """Nothing more can be promised. Under the lock."""

    def commit_shared(self) -> None:
        """Let the log have what tasks have left to a frame that they share. Without the lock."""


class Journal:
    """What a queue in a directory has beside one in memory: its log, its history, and who looks after both."""

    def __init__(self, host: Owner, disk: Disk, log: Log, retention: Retention, snapshot_bytes: int) -> None:
        self.lock = host.lock
        self.engine = host.engine
        self.now = host.now
        self.wall = host.wall
        self.disk = disk
        self.log = log
        self._host = weakref.ref(host)
        self._reader = Reader(disk)
        self.tap = Tap(disk, self._reader)
        self._committers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Committer] = weakref.WeakKeyDictionary()
        self._fetched = 0
        self.closed = False
        self._steward = Steward(self, retention, snapshot_bytes)
        self._grown = Bell()
        self._syncing = False
        log.on_growth = _Growth(self._steward, self._grown)
        self._sync_behind_others()

    def set_fsync(self, fsync: str) -> None:
        """Promise more or less from now on, under the lock."""
        if fsync != self.log.fsync:
            self.log.promise(fsync, self.now(), self.wall())
            self._sync_behind_others()

    def _sync_behind_others(self) -> None:
        if self.log.fsync != ALWAYS and not self._syncing:
            self._syncing = True
            # The thread ends with the journal, closed or forgotten.
            weak = weakref.ref(self, lambda _, grown=self._grown: grown.ring())  # type: ignore[misc]
            syncing = threading.Thread(target=_sync_behind, args=(weak, self._grown), name="penstock-sync", daemon=True)
            syncing.start()

    def events(self, start: int) -> Iterator[Event]:
        """What happened from a position on, as far as it is durable."""
        return self._reader.events(start, self.log.durable)

    def history(self, number: int) -> list[Event]:
        """What happened to a job, as far as it is durable; whether it is there or gone. Without the lock."""
        host = self._host()
        assert host is not None
        # In a turn, so that its newest row is in a file.
        with self.lock, host:
            job = self.engine.jobs.find(number)
            newest = None if job is None or job.position <= 0 else job.position
        return self._reader.history(number, newest, self.log.durable)

    async def until_durable(self) -> None:
        """Return when everything that was done so far is as durable as the log promises."""
        log = self.log
        if log.fsync == ALWAYS and log.durable < log.writer.position:
            loop = asyncio.get_running_loop()
            committer = self._committers.get(loop)
            if committer is None:
                committer = self._committers[loop] = Committer(log, _Commit(self._host))
            await committer.durable(log.writer.position)

    def fetch(self, job: Job) -> bytes:
        """The body of a job that lives on disk; and those of the next jobs will be asked for soon."""
        tube = self.engine._tube_slots[job.tube]
        self._fetched += 1
        if self._fetched % _AHEAD == 1 and tube is not None:
            # The first of a heap are not in order, but whoever comes next is among them.
            upcoming = [next_job.body for next_job in tube.ready.items[: 2 * _AHEAD]]
            self.log.bodies.will_read([body for body in upcoming if isinstance(body, BodyRef)])
        while job.state != s.GONE:
            body = job.body
            try:
                return self.log.writer.body_of(job)
            except DamagedJournal:
                # If it is elsewhere by now, a snapshot has it, and the file where it was is gone or written anew.
                if job.body is body and job.state != s.GONE:
                    raise
        raise UnknownJob("the job is gone, and its body was on disk only")

    def take_snapshot(self) -> None:
        """Take a snapshot now, and remove what need not be kept. Without the lock."""
        self._steward.take_snapshot()

    def stop(self) -> None:
        """Close the log. Under the lock, or before anybody uses it."""
        self._rest()
        self._close_log()

    def close(self) -> None:
        """Close the log and give the directory free, whatever fails. Under the lock, or before anybody uses it."""
        # Interrupted here, the directory stays ours: the steward may still be at work in it.
        self._rest()
        try:
            self._close_log()
        finally:
            self.disk.unlock()

    def _rest(self) -> None:
        """Let nobody work in the directory any more."""
        self.closed = True
        self._grown.ring()
        self._steward.stop()

    def _close_log(self) -> None:
        ballast.throw_off(self.disk)
        self.log.close(self.now(), self.wall())

    def fail(self, error: CommandError) -> None:
        """Let everybody hear that nothing more can be promised. Under the lock."""
        host = self._host()
        if host is not None and not self.closed:
            host.fail(error)

    def look_for_room(self) -> None:
        """The disk was full: if it is no more, serve those who wait for that. Under the lock."""
        host = self._host()
        if host is not None and not self.closed:
            with host:
                pass

    def sync_behind(self) -> float | None:
        """Sync what others have written; tell how long to wait before the next time, in seconds."""
        try:
            self.log.make_durable(self.log.written)
        except JournalFailed as error:
            with self.lock:
                self.fail(error)
            raise
        return 1.0 if self.log.fsync == EVERYSEC else None


class _Growth:
    """Whom a log tells that it has grown. It knows nothing of the queue, which knows the log."""

    def __init__(self, steward: Steward, syncer: Bell) -> None:
        self._steward = steward
        self._syncer = syncer

    def __call__(self) -> None:
        self._steward.wake()
        self._syncer.ring()


class _Commit:
    """How a committer lets the log have what tasks did. It knows the queue, which knows the committer, weakly."""

    def __init__(self, host: weakref.ref[Owner]) -> None:
        self._host = host

    def __call__(self) -> None:
        host = self._host()
        if host is not None:
            host.commit_shared()


def _sync_behind(weak: weakref.ref[Journal], grown: Bell) -> None:
    """Sync what others do not wait for: every second, or little by little as the log grows."""
    wait: float | None = 0.0
    while True:
        grown.wait(wait)
        journal = weak()
        if journal is None or journal.closed:
            return
        try:
            wait = journal.sync_behind()
        except JournalFailed:
            return
        del journal
