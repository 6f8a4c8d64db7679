"""The engine in a process of yours: its clock, its lock, and those who sleep until it has something for them.

`embedded.py` and `embedded_async.py` are two faces of one host, and may be used on the same queue at once. Everything
happens under the host's lock. Those who wait sleep without polling: one of the sleepers keeps the time for all, and
hands that duty on when it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import re
import secrets
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from penstock.bell import Bell
from penstock.changes import Change
from penstock.committer import Committer
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.engine import Engine
from penstock.core.errors import (
    BadId,
    Closed,
    CommandError,
    DamagedJournal,
    Forked,
    Interrupted,
    JournalFailed,
    NoJournal,
    NoMemory,
    UnknownJob,
    WrongType,
)
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.job import BodyRef, Job
from penstock.core.limits import JOB_MEMORY_BYTES, NEVER, REASON_BYTES_MAX
from penstock.core.outbox import Outbox
from penstock.core.sessions import Session as CoreSession
from penstock.core.tube import Tube
from penstock.core.waits import Connection, Waiting
from penstock.journal import ballast
from penstock.journal.disk import Disk
from penstock.journal.identity import forsake, identity, next_opening
from penstock.journal.log import ALWAYS, EVERYSEC, RESERVE_BYTES, Log
from penstock.journal.reader import Event, Reader
from penstock.journal.recovery import open_log
from penstock.journal.retention import Retention
from penstock.journal.segment import Progress
from penstock.journal.snapshot import take_snapshot
from penstock.journal.tap import Tap
from penstock.options import to_text
from penstock.steward import SNAPSHOT_BYTES, Steward

# How many jobs are looked at at a time, where all are.
_SLICE_JOBS = 10_000

# A job's number within its tube.
_LOCAL = re.compile("[0-9]{1,18}", re.ASCII)

# How many bodies are asked for ahead of their turn.
_AHEAD = 64

# Tasks share a frame up to about this length: a longer one is not faster, and on a full disk it has to fit in what is
# reserved for takes and acks.
_SHARED_BYTES = RESERVE_BYTES // 4


class Sleeper(Protocol):
    """Somebody who sleeps until something it waits for has happened."""

    @property
    def keeps_time(self) -> bool:
        """Whether it may keep the time for others."""

    def wake(self) -> None:
        """Wake it, from any thread; waking somebody who is awake does no harm."""


class Attendant(Protocol):
    """Somebody who looks after a tube from outside the engine: see drivers.py."""

    def attend(self) -> None:
        """Look at what happened to the tube, under the lock."""


@dataclass(frozen=True)
class Store:
    """A directory, and how a queue is kept in it."""

    disk: Disk
    fsync: str = ALWAYS
    retention: Retention = field(default_factory=Retention)
    progress: Progress | None = None
    snapshot_bytes: int = SNAPSHOT_BYTES
    journal: bool = True  # Whether there is a log in it; who the node is, is there in any case.


class Refusal:
    """What stands where a session's lock was, once the session may not be used any more."""

    def __init__(self, error: type[CommandError], why: str | None = None) -> None:
        self._error = error
        self._why = why

    def refuse(self) -> NoReturn:
        """Say why."""
        raise self._error(self._why)

    def __enter__(self) -> None:
        self.refuse()

    def __exit__(self, *_: object) -> None: ...


class Context(Protocol):
    """Something that surrounds part of a call."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> object: ...


class Durable:
    """Around the lock: what was done is durable before the call returns; an answer, a read or a refusal too."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._host.make_durable()


# What surrounds the lock where nobody waits for the disk.
NOTHING: Final[Context] = contextlib.nullcontext()


class ThreadSleeper:
    """A thread that sleeps. A bare lock is the cheapest thing to sleep on."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    @property
    def keeps_time(self) -> bool:
        return True

    def sleep(self, timeout_ms: int) -> None:
        """Sleep until woken, or so long; -1 for no limit."""
        self._lock.acquire(timeout=-1 if timeout_ms < 0 else min(timeout_ms / 1000, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        # Under the host's lock, so nobody else releases it in between.
        if self._lock.locked():
            self._lock.release()


class _Keeper(ThreadSleeper):
    """A thread that does nothing but keep the time. It ends with its host, closed or forgotten."""

    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = weakref.ref(host, lambda _: self.wake())

    def start(self) -> None:
        threading.Thread(target=self._run, name="penstock-keeper", daemon=True).start()

    def _run(self) -> None:
        while (timeout_ms := self._turn()) is not None:
            self.sleep(timeout_ms)

    def _turn(self) -> int | None:
        host = self._host()
        try:
            return None if host is None or host.closed else host.keep_time(self)
        except CommandError:
            return None  # Nothing more can be promised; those who sleep were woken, and are told.


class Host:
    """One engine of this process, and one turn of it: what a call does with it, inside of the lock.

    At the end of a turn what it did is in the log, and whoever it served is woken. (Tasks that wait for the disk share
    frames: what a turn of theirs did is in the log when it waits, or when a turn of anybody else ends.) The lock around
    it is always the system's own: `with host.lock, host:`. An interrupt may come between any two steps of Python code,
    so a lock that Python code takes and gives back can be left locked for ever. An interrupted turn is ended by the
    next one.
    """

    now: Callable[[], int]  # Engine time, in ms.
    wall: Callable[[], int]
    outbox: Outbox
    engine: Engine
    ids: IdForms
    node: str  # Its id: 40 hex digits.

    def __init__(self, grace_ms: int, memory_max: int = NEVER, store: Store | None = None) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.failure: Refusal | None = None  # Why nothing more can be promised.
        self.on_failure: Callable[[CommandError], object] | None = None  # Told that once, from any thread.
        # Whether somebody has to hear of what a command did: the log, or one who sleeps.
        self.watched = False
        self.syncs = False  # Whether a thread's call returns when it is on disk; a task's awaits `until_durable`.
        self.wall = wall_ms
        self.journal: _Journal | None = None
        self.disk: Disk | None = None
        self.warnings: list[str] = []
        if store is None:
            self.node = secrets.token_hex(20)
            self._be_in_memory(1, grace_ms, IdForms(self.node[:8].encode(), secrets.token_bytes(32)))
        elif store.journal:
            self._recover(store, grace_ms, memory_max)
        else:
            self._begin(store, grace_ms)
        self.engine.memory_max = memory_max
        self.engine.waits_per_connection_max = NEVER  # Threads and tasks of one process bound themselves.
        self._keeper_until = -1
        self._keeper: Sleeper | None = None
        self._sleepers: dict[Sleeper, None] = {}
        # Those that are open. One that is forgotten keeps what it has taken, and does not keep the queue open.
        self.sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._teller: _Teller | None = None
        # Those who decide what tubes of theirs serve next: they look at every change before it is told.
        self.drivers: dict[Tube, Attendant] = {}

    def _begin(self, store: Store, grace_ms: int) -> None:
        """Start empty, as a node that has a directory and no log in it."""
        self.disk = store.disk
        self.disk.lock()
        try:
            opening = next_opening(self.disk)
        except BaseException:
            self.disk.unlock()
            raise
        self.node = opening.node
        self._be_in_memory(opening.epoch, grace_ms, IdForms(self.node[:8].encode(), opening.key))

    def _be_in_memory(self, epoch: int, grace_ms: int, ids: IdForms) -> None:
        self.now = clock_from(wall_ms())
        self.outbox = Outbox()
        self.engine = Engine(epoch, self.now(), self.outbox, secrets.randbits(32))
        self.engine.session_grace_ms = grace_ms
        self.ids = ids

    def _recover(self, store: Store, grace_ms: int, memory_max: int) -> None:
        """Go on where the log of a directory ends."""
        self.disk = disk = store.disk
        disk.lock()
        try:
            opened = open_log(
                disk,
                wall_ms(),
                boot_id(),
                fsync=store.fsync,
                entropy=secrets.randbits(32),
                grace_ms=grace_ms,
                memory_max=memory_max,
                progress=store.progress,
            )
        except BaseException:
            disk.unlock()
            raise
        self.engine, self.outbox = opened.engine, opened.log.writer
        self.warnings = opened.warnings
        self.now = clock_from(self.engine.now)
        self.node = opened.node
        self.ids = IdForms(opened.node[:8].encode(), opened.key)
        self.engine.memory_max = memory_max
        self._use(opened.log, store.retention, store.snapshot_bytes)

    def start_journal(self, fsync: str, retention: Retention) -> None:
        """Begin to keep a log of what so far was in memory only, under the lock. What an old log held is history.

        Everybody waits until all there is has been written: a second for a million jobs.
        """
        assert self.disk is not None and self.journal is None
        log = open_log(self.disk, wall_ms(), boot_id(), fsync=fsync).log
        for tube in self.engine.tubes.values():
            tube.announced = -1
        start = 0
        while jobs := self.engine.jobs.scan(start, _SLICE_JOBS):
            for job in jobs:
                job.position = 0
            start = jobs[-1].id + 1
        log.attach(self.engine)
        self._tell(log.writer)
        try:
            take_snapshot(self.disk, log, self.engine, self.now(), wall_ms())
        except BaseException:
            self._tell(Outbox())
            log.close(self.now(), wall_ms())
            raise
        self._use(log, retention, SNAPSHOT_BYTES)

    def stop_journal(self) -> None:
        """Keep what there is in memory only from now on, under the lock."""
        assert self.disk is not None and self.journal is not None
        self._load_bodies()
        # First of all, so that whatever happens next, nobody takes this log for what is so.
        forsake(self.disk)
        try:
            self.journal.stop()
        except (CommandError, OSError) as error:
            failure = error if isinstance(error, JournalFailed) else JournalFailed(f"the log cannot be closed: {error}")
            self.fail(failure)
            raise failure from error
        self.journal = None
        self._tell(Outbox())
        self.engine.spills = False
        self.engine.room_bytes = self.engine.moves_left = NEVER
        self.syncs = self.watched = False

    def _load_bodies(self) -> None:
        """Read every body that lives on disk only, if there is memory for all of them."""
        engine = self.engine
        everything = sum(tube.body_bytes for tube in engine.tubes.values()) + engine.jobs.count * JOB_MEMORY_BYTES
        if everything > engine.memory_max:
            raise NoMemory(f"{everything} bytes of jobs do not fit in memory without a journal; raise the limit first")
        start = 0
        while jobs := engine.jobs.scan(start, _SLICE_JOBS):
            for job in jobs:
                if isinstance(job.body, BodyRef):
                    job.body = self.outbox.body_of(job)
                    engine.resident_bytes += len(job.body)
            start = jobs[-1].id + 1

    def _tell(self, outbox: Outbox) -> None:
        """Let the engine tell another outbox, which goes on where the last one was."""
        outbox.ended_waits = self.outbox.ended_waits
        self.outbox = self.engine.outbox = outbox

    def _use(self, log: Log, retention: Retention, snapshot_bytes: int) -> None:
        """Let what happens be logged."""
        assert self.disk is not None
        log.tell_room()
        if self.engine.memory_max != NEVER:
            self.engine.spills = True
            log.writer.memory_left = self.engine.memory_left()
        self.syncs = log.fsync == ALWAYS
        self.watched = True
        self.journal = _Journal(self, self.disk, log, retention, snapshot_bytes)

    def __enter__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse to go on where nothing more can be promised."""
        if self.failure is not None:
            self.failure.refuse()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.settle()
        else:
            self.settle_after(error)

    @property
    def durable(self) -> Context:
        """What surrounds the lock in a thread's call."""
        return Durable(self) if self.syncs else NOTHING

    def make_durable(self) -> None:
        """Return when everything that was done so far is on disk. Without the lock."""
        assert self.journal is not None
        log = self.journal.log
        try:
            log.make_durable(log.written)
        except JournalFailed as error:
            with self.lock:
                self.fail(error)
            raise

    async def until_durable(self) -> None:
        """Return when everything that was done so far is as durable as the queue promises."""
        if self.journal is not None:
            try:
                await self.journal.until_durable()
            except JournalFailed as error:
                with self.lock:
                    self.fail(error)
                raise

    def join(self) -> Connection:
        """Let another session in."""
        if self.closed:
            raise Closed()
        return self.engine.connect(secrets.token_bytes(16))

    def leave(self, connection: Connection) -> None:
        """Let a session go, which is open no more; with the last one the queue closes."""
        try:
            if self.failure is None:
                with self:
                    self.engine.disconnect(connection, self.now())
        finally:
            self.closed = not self.sessions
            self.wake_everybody()
            if self.closed:
                self.close()

    def fail(self, error: CommandError) -> None:
        """Nothing more can be promised: refuse every call, and wake all who sleep, to be told. Under the lock."""
        if self.failure is None:
            self.failure = Refusal(type(error), str(error))
            if self.on_failure is not None:
                self.on_failure(error)
            for session in list(self.sessions):
                session.bar(self.failure)
        self.wake_everybody()

    def wake_everybody(self) -> None:
        """Wake all who sleep, under the lock: the queue was closed or its journal failed, and each must hear of it."""
        for sleeper in self._sleepers:
            sleeper.wake()
        if self._keeper is not None:
            self._keeper.wake()

    def close(self) -> None:
        """Close the log and give the directory free, whatever fails. Under the lock, or before anybody uses it."""
        self.closed = True
        if self._teller is not None:
            self._teller.stop()
        if self.journal is not None:
            self.journal.close()
        elif self.disk is not None:
            self.disk.unlock()

    def leave_to_parent(self) -> None:
        """In the child of a fork: nothing of this queue may be used, and its files least of all."""
        self.closed = True
        if self.disk is not None:
            self.disk.forget_lock()

    def flush(self) -> None:
        """Let what was done by others reach the log, and be durable."""
        if not self.closed:
            with self.durable, self.lock, self:
                pass

    def make_room(self, length: int) -> bool:
        """Try to have room in the log for so many bytes of bodies that did not fit."""
        if self.journal is None:
            return False
        with self.lock, self:
            # The end of the turn looks at the room again, and finds what was made.
            return self.journal.log.make_room(length) >= length

    def is_durable(self) -> bool:
        """Whether everything that was committed is as durable as the queue promises."""
        journal = self.journal
        return journal is None or journal.log.fsync != ALWAYS or journal.log.durable >= journal.log.written

    def make_room_now(self, length: int) -> None:
        """Try to have room in the log for so many bytes of bodies, under the lock."""
        if self.journal is not None:
            self.journal.log.make_room(length)

    def set_fsync(self, fsync: str) -> None:
        """Promise more or less from now on, under the lock."""
        if self.journal is not None:
            self.journal.set_fsync(fsync)
            self.syncs = fsync == ALWAYS

    def is_leaving(self) -> bool:
        """Whether the node was told to leave its cluster."""
        return self.disk is not None and identity(self.disk).leaving

    def set_leaving(self, leaving: bool) -> None:
        """Remember that the node was told to leave its cluster, or to stay."""
        if self.disk is not None:
            replace(identity(self.disk), leaving=leaving).write(self.disk)

    def node_epoch(self) -> int:
        """Greater each time that a standby becomes this node."""
        return 0 if self.disk is None else identity(self.disk).node_epoch

    def rename(self) -> None:
        """Be another node from now on, under the lock; its jobs were removed, or are about to be."""
        self.node = secrets.token_hex(20)
        self.ids.rename(self.node[:8].encode())
        if self.disk is not None:
            who = identity(self.disk)
            replace(who, node=self.node, node_epoch=0, log=who.of_log).write(self.disk)

    def be_superseded(self, epoch: int) -> None:
        """Remember that another is this node, in an epoch: what is here is put aside at the next start."""
        if self.disk is not None:
            replace(identity(self.disk), superseded=epoch).write(self.disk)

    def advance(self) -> None:
        """Let happen what fell due, and what follows from that; under the lock, for those who look at how it is now."""
        self.engine.advance(self.now())
        self.settle()

    def commit(self) -> None:
        """Let the log have what was done, under the lock."""
        if self.journal is not None and not self.closed:
            log = self.journal.log
            try:
                while self.outbox.full():
                    # What was left to the next turn has nobody else to begin it.
                    log.commit(self.now(), wall_ms())
                    self.engine.advance(self.now())
                log.commit(self.now(), wall_ms())
                log.tell_room()
            except JournalFailed as error:
                self.fail(error)
                raise

    def commit_shared(self) -> None:
        """Let the log have what tasks have left to a frame that they share. Without the lock."""
        # Not in the child of a fork, where the lock may be held for ever.
        if not self.closed:
            with self.lock, self:
                pass

    def _may_share(self) -> bool:
        """Whether a task's turn may leave its rows to a frame that is written when it waits for the disk."""
        return self.syncs and self.journal is not None and self.journal.log.writer.frame_bytes() < _SHARED_BYTES

    def settle(self, shares: bool = False) -> None:
        """End a turn: let the log have what it did, and wake whoever it served, or whose deadline came nearer.

        Whoever shares waits `until_durable` next. Those it woke need no frame before: they begin with a turn of theirs.
        """
        for driver in self.drivers.values():
            driver.attend()
        if not shares or not self._may_share():
            self.commit()
        if self.outbox.ended_waits:
            for wait in self.outbox.ended_waits:
                sleeper: Sleeper = wait.tag  # type: ignore[assignment]
                sleeper.wake()
            self.outbox.ended_waits.clear()
        if self._keeper is not None and self.engine.deadlines.next_due < self._keeper_until:
            self._keeper.wake()

    def settle_after(self, error: BaseException) -> None:
        """End a turn that an error ended. What a command left half done must not reach the log, nor be built upon."""
        if self.failure is not None:
            return
        if _came_in_the_middle(error):
            if self.journal is not None:
                self.journal.log.give_up(InterruptedError(errno.EINTR, "a command was interrupted half-way"))
            self.fail(Interrupted())
        else:
            self.settle()

    def how_long(self, wait: Waiting, sleeper: Sleeper) -> int | None:
        """How many ms a sleeper may sleep before it asks again: -1 for until it is woken, None if its wait is over."""
        with self.lock, self:
            self.advance()
            if wait.outcome != w.WAITING:
                return None
            self._sleepers[sleeper] = None
            self.watched = True
            if self._keeper is None:
                if not sleeper.keeps_time:
                    self._start_keeper()
                    return -1
                self._keeper = sleeper
            if self._keeper is not sleeper:
                return -1
            self._keeper_until = self.engine.deadlines.next_due
            return -1 if self._keeper_until == NEVER else max(0, self._keeper_until - self.now())

    def wake_up(self, sleeper: Sleeper) -> None:
        """A sleeper sleeps no more; if nobody keeps the time now, another one has to."""
        with self.lock:
            self._sleepers.pop(sleeper, None)
            self.watched = bool(self._sleepers) or self.journal is not None
            if self._keeper is sleeper:
                self._keeper = None
                self._keeper_until = -1
            if self._keeper is None:
                # Also where it was not the keeper: it may be the one whom the keeper woke to take over.
                for other in self._sleepers:
                    other.wake()
                    break

    def keep_time(self, keeper: Sleeper) -> int | None:
        """How long the keeper may sleep before it looks at the time again; None if it need not."""
        with self.lock, self:
            self.advance()
            if self._keeper is not keeper:
                return None
            self._keeper_until = self.engine.deadlines.next_due
            return -1 if self._keeper_until == NEVER else max(0, self._keeper_until - self.now())

    def _start_keeper(self) -> None:
        """Let a thread keep the time for tasks: their loop may be busy, and others must not wait for it."""
        keeper = _Keeper(self)
        self._keeper = keeper
        keeper.start()

    def take_back(self, wait: Waiting) -> None:
        """Somebody was interrupted in its wait: nobody saw what it was served with, so that was not delivered."""
        if self.failure is not None:
            return
        with self.lock, self:
            self.engine.cancel(wait)
        if isinstance(wait, w.Wait):
            self.give_back(wait.jobs, wait.deliveries)

    def give_back(self, jobs: list[Job], deliveries: list[int]) -> None:
        """Nobody saw these deliveries of these jobs, so there were none."""
        with self.lock, self:
            for job, delivery in zip(jobs, deliveries, strict=True):
                self.engine.undelivered(job, self.now(), delivery)

    def not_seen(self, jobs: list[Job]) -> None:
        """Nobody saw what was just taken: the call was interrupted. Where the log failed, that is beyond help."""
        if jobs:
            with contextlib.suppress(CommandError):
                self.give_back(jobs, [job.deliveries for job in jobs])

    def set_aside(self, session: CoreSession, job: Job, why: str) -> None:
        """Bury a job that its taker cannot work on, if its tube can; otherwise it is as it was."""
        with contextlib.suppress(CommandError), self.lock, self:
            self.engine.bury(session, job, self.now(), why.encode()[:REASON_BYTES_MAX])

    def catch_up(self) -> None:
        """Let happen what fell due, if anything did: for those who only look."""
        if self.engine.deadlines.next_due <= self.now() and not self.closed:
            with self.lock, self:
                self.engine.advance(self.now())

    def find(self, id: str) -> Job:
        """The job of an id in either form, or of a number within a tube: `tube#7`."""
        name, mark, digits = id.rpartition("#") if isinstance(id, str) else ("", "", "")
        if mark and _LOCAL.fullmatch(digits):
            tube = self.engine.tubes.get(name.encode("utf-8", "replace"))
            job = None if tube is None else self.engine.find_local(tube, int(digits), self.now())
        else:
            job = self.engine.find(self.number_of(id), self.now())
        if job is None:
            raise UnknownJob()
        return job

    def number_of(self, id: str) -> int:
        """The number of a job, whose id is given in either form."""
        if not isinstance(id, str):
            raise WrongType(f"a job's id is text, not {type(id).__name__}")
        number = self.ids.parse(id.encode("utf-8", "replace"))
        if number == NOT_AN_ID:
            raise BadId()
        return number

    def body_of(self, job: Job) -> bytes:
        """The body of a job, read from disk if that is where it lives."""
        body = job.body
        if isinstance(body, bytes):
            return body
        assert self.journal is not None
        return self.journal.fetch(job)

    def has_journal(self) -> _Journal:
        """The journal, or NoJournal."""
        if self.journal is None:
            raise NoJournal()
        return self.journal

    def subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        """Call back on every change of a job, in order, from a thread of its own; gives a function that ends it."""
        if not callable(callback):
            raise WrongType(f"a subscriber is a function, not {type(callback).__name__}")
        if self._teller is None:
            self._teller = _Teller(self.ids)
            self.engine.watch = self._teller.moved
        return self._teller.subscribe(callback, tube)


class _Journal:
    """What a queue in a directory has beside one in memory: its log, its history, and who looks after both."""

    def __init__(self, host: Host, disk: Disk, log: Log, retention: Retention, snapshot_bytes: int) -> None:
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
            except (FileNotFoundError, DamagedJournal):
                # If it is elsewhere by now, a snapshot has it, and the file where it was is gone or written anew.
                if job.body is body and job.state != s.GONE:
                    raise
        raise UnknownJob("the job is gone, and its body was on disk only")

    def take_snapshot(self) -> None:
        """Take a snapshot now, and remove what need not be kept. Without the lock."""
        self._steward.take_snapshot()

    def stop(self) -> None:
        """Close the log. Under the lock, or before anybody uses it."""
        self.closed = True
        self._grown.ring()
        self._steward.stop()
        ballast.throw_off(self.disk)
        self.log.close(self.now(), self.wall())

    def close(self) -> None:
        """Close the log and give the directory free, whatever fails. Under the lock, or before anybody uses it."""
        try:
            self.stop()
        finally:
            self.disk.unlock()

    def fail(self, error: CommandError) -> None:
        """Let everybody hear that nothing more can be promised. Under the lock."""
        host = self._host()
        if host is not None and not self.closed:
            host.fail(error)

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

    def __init__(self, host: weakref.ref[Host]) -> None:
        self._host = host

    def __call__(self) -> None:
        host = self._host()
        if host is not None:
            host.commit_shared()


def _sync_behind(weak: weakref.ref[_Journal], grown: Bell) -> None:
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


class _Teller:
    """Tells subscribers what happens. They run in one thread of their own, so they may use the queue."""

    def __init__(self, ids: IdForms) -> None:
        self._ids = ids
        self._subscribers: dict[object, tuple[Callable[[Change], None], bytes | None]] = {}
        self._changes: queue.SimpleQueue[tuple[bytes, Change] | None] = queue.SimpleQueue()
        threading.Thread(target=self._tell, name="penstock-subscribers", daemon=True).start()

    def moved(self, job: Job, tube: Tube, rule: int, now: int) -> None:
        """Something happened to a job: pass it on."""
        event, before, after = s.TRANSITIONS[rule]
        change = Change(
            self._ids.long(job.id, job.ttl_minutes).decode(),
            to_text(tube.name),
            s.EVENT_NAMES[event],
            s.STATE_NAMES[before],
            s.STATE_NAMES[after],
            now / 1000,
            int(job.local) if job.local >= 0 else None,
        )
        self._changes.put((tube.name, change))

    def subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        ticket = object()
        self._subscribers[ticket] = (callback, tube)

        def cancel() -> None:
            self._subscribers.pop(ticket, None)

        return cancel

    def stop(self) -> None:
        self._changes.put(None)

    def _tell(self) -> None:
        while (item := self._changes.get()) is not None:
            name, change = item
            for callback, tube in list(self._subscribers.values()):
                if tube is None or tube == name:
                    try:
                        callback(change)
                    except Exception as error:
                        # A subscriber that fails harms neither the queue nor the others, not even where warnings raise.
                        with contextlib.suppress(Warning):
                            warnings.warn(f"a subscriber of the queue raised {error!r}", RuntimeWarning, stacklevel=1)


class Session:
    """One session on a host, and one turn of it; with the lock around that, and what is around the lock.

    A call is `with session.durable, session.lock, session:`. The lock is the host's, until the session is closed or
    forked or its queue failed. Hot paths do by hand what these do, and no more.
    """

    lock: threading.Lock | Refusal

    def __init__(self, host: Host) -> None:
        self.host = host
        self.closed = False
        self.barred = False  # Whether its lock is a refusal.
        self.lock = host.lock
        self.durable = host.durable
        self.syncs = host.syncs
        self.shares = False  # Whether its turns may share a frame: see Host.settle.
        with host.durable, host.lock, host:
            self.connection = host.join()
            host.sessions.add(self)
        # No strong references: a queue that is forgotten goes at once, and not when the garbage collector comes.
        self._twins = [weakref.ref(self)]
        _sessions.add(self)

    def for_tasks(self) -> Session:
        """The same session for asyncio: its calls return at once, and `until_durable` is awaited after them."""
        twin = Session.__new__(Session)
        twin.host, twin.connection, twin._twins = self.host, self.connection, self._twins
        twin.closed, twin.barred, twin.lock = self.closed, self.barred, self.lock
        twin.durable, twin.syncs, twin.shares = NOTHING, False, True
        self._twins.append(weakref.ref(twin))
        if not self.closed:
            self.host.sessions.add(twin)
        _sessions.add(twin)
        return twin

    def __enter__(self) -> None:
        # It may have been closed while we waited for the lock.
        if self.barred:
            self.refuse()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.host.settle(self.shares)
        else:
            self.host.settle_after(error)

    def refuse(self) -> NoReturn:
        """Say why this session may not be used any more."""
        assert isinstance(self.lock, Refusal)
        self.lock.refuse()

    def bar(self, refusal: Refusal) -> None:
        """Let nobody use this session any more."""
        self.lock = refusal
        self.barred = True

    def close(self) -> None:
        """End the session: what it has taken goes back to its tubes."""
        if self.host.closed:
            # Also in the child of a fork, where the lock may be held for ever.
            return
        with self.host.lock:
            if self.closed:
                return
            for twin in filter(None, (weak() for weak in self._twins)):
                twin.closed = True
                twin.bar(Refusal(Closed))
                self.host.sessions.discard(twin)
            self.host.leave(self.connection)
        if self.host.failure is None:
            self.host.flush()


# Sessions of this process, for the child of a fork to be told that they are not its own.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for session in list(_sessions):
        session.closed = True
        session.bar(Refusal(Forked))
        session.host.leave_to_parent()


# The engine and what it writes to: if an exception other than a refusal comes out of these, something is half done.
_WHOLE: Final = ("penstock.core.", "penstock.journal.frame")


def _came_in_the_middle(error: BaseException) -> bool:
    """Whether an interrupt, or what is as sudden, came while the engine was changing.

    Compiled code is not interrupted, but for what it calls: subscribers, for example.
    """
    if isinstance(error, Exception) and not isinstance(error, (MemoryError, RecursionError, AssertionError)):
        return False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_WHOLE):
            return True
        trace = trace.tb_next
    return False


os.register_at_fork(after_in_child=_refuse_in_child)


def clock_from(start_ms: int) -> Callable[[], int]:
    """A clock that shows this moment now: deadlines do not move when somebody sets the clock on the wall."""
    offset_ns = start_ms * 1_000_000 - time.monotonic_ns()

    def now(monotonic_ns: Callable[[], int] = time.monotonic_ns, offset_ns: int = offset_ns) -> int:
        return (monotonic_ns() + offset_ns) // 1_000_000

    return now


def wall_ms() -> int:
    """What the clock on the wall shows."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Which start of the kernel this is: a power cut can only have happened between two of them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
