"""The engine in a process of yours: one turn of it, inside of the lock.

`embedded.py`, `embedded_async.py` and the server are three faces of one host. Everything happens under its lock. Those
who wait sleep without polling: one of the sleepers keeps the time for all, and hands that duty on when it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import secrets
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.changes import Change
from penstock.core import waits as w
from penstock.core.engine import Engine
from penstock.core.errors import (
    BadId,
    Closed,
    CommandError,
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
from penstock.core.waits import Connection, Waiting
from penstock.drivers import HostDrivers
from penstock.host.boot import boot_id
from penstock.host.calls import NOTHING, Barred, Context, Durable, Refusal
from penstock.host.handed import Handed
from penstock.host.journal import Journal
from penstock.host.ledger import Clock, Ledger, wall_ms
from penstock.host.sleepers import Keeper, Sleeper
from penstock.host.steward import SNAPSHOT_BYTES
from penstock.host.teller import SeenChange, Teller
from penstock.journal import ballast
from penstock.journal.disk import Disk
from penstock.journal.identity import forsake, identity, next_opening
from penstock.journal.log import ALWAYS, Log
from penstock.journal.recovery import open_log
from penstock.journal.retention import Retention
from penstock.journal.room import RESERVE_BYTES
from penstock.journal.segment import Progress
from penstock.journal.snapshot import take_snapshot

# How many jobs are looked at at a time, where all are.
_SLICE_JOBS = 10_000

# A job's number within its tube.
_LOCAL = re.compile("[0-9]{1,18}", re.ASCII)

# Tasks share a frame up to about this length: a longer one is not faster, and on a full disk it has to fit in what is
# reserved for takes and acks.
_SHARED_BYTES = RESERVE_BYTES // 4


@dataclass(frozen=True)
class Store:
    """A directory, and how a queue is kept in it."""

    disk: Disk
    fsync: str = ALWAYS
    retention: Retention = field(default_factory=Retention)
    progress: Progress | None = None
    snapshot_bytes: int = SNAPSHOT_BYTES
    journal: bool = True  # Whether there is a log in it; who the node is, is there in any case.


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
    ledger: Ledger
    ids: IdForms
    node: str  # Its id: 40 hex digits.

    def __init__(self, grace_ms: int, memory_max: int = NEVER, store: Store | None = None) -> None:
        self.lock = threading.Lock()
        self.closed = False  # Nobody may come any more;
        self.shut = False  # and its files are closed, too.
        self.failure: Refusal | None = None  # Why nothing more can be promised.
        self.on_failure: Callable[[CommandError], object] | None = None  # Told that once, from any thread.
        # Told that waits have ended, under the lock, from any thread; without it, sleepers are woken.
        self.on_ended_waits: Callable[[], object] | None = None
        # Whether somebody has to hear of what a command did: the log, or one who sleeps.
        self.watched = False
        self.syncs = False  # Whether a thread's call returns when it is on disk; a task's awaits `until_durable`.
        self.tells = False  # Whether a call returns when watchers have been called with what it did.
        self.wall = wall_ms
        self.journal: Journal | None = None
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
        self.engine.drivers = HostDrivers()
        self.engine.waits_per_connection_max = NEVER  # Threads and tasks of one process bound themselves.
        self._keeper_until = -1
        self._keeper: Sleeper | None = None
        self._sleepers: dict[Sleeper, None] = {}
        # Those that are open. One that is forgotten keeps what it has taken, and does not keep the queue open.
        self.sessions: weakref.WeakSet[Barred] = weakref.WeakSet()
        self._teller: Teller | None = None

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
        clock = Clock(wall_ms())
        self.outbox = Outbox()
        self.engine = Engine(epoch, clock.now(), self.outbox, secrets.randbits(32))
        self.engine.session_grace_ms = grace_ms
        self.ids = ids
        self._go_by(clock)

    def _recover(self, store: Store, grace_ms: int, memory_max: int) -> None:
        """Go on where the log of a directory ends."""
        self.disk = disk = store.disk
        disk.lock()
        try:
            opened = open_log(
                disk,
                wall_ms,
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
        # Filling the engine took time, too.
        self._go_by(Clock(max(wall_ms(), self.engine.now)))
        self.node = opened.node
        self.ids = IdForms(opened.node[:8].encode(), opened.key)
        self.engine.memory_max = memory_max
        self._use(opened.log, store.retention, store.snapshot_bytes)

    def _go_by(self, clock: Clock) -> None:
        """Let the engine go by a clock."""
        self.now = clock.now
        self.ledger = Ledger(self.engine, clock)

    def start_journal(self, fsync: str, retention: Retention) -> None:
        """Begin to keep a log of what so far was in memory only, under the lock. What an old log held is history.

        Everybody waits until all there is has been written: a second for a million jobs.
        """
        assert self.disk is not None and self.journal is None
        log = open_log(self.disk, wall_ms, boot_id(), fsync=fsync).log
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
        self.journal = self.ledger.log = None
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
        # Before anybody puts: what a full disk needs cannot be had on one.
        ballast.take_on(self.disk, log.room.segment_bytes)
        log.prepare_again()
        log.room.look()
        log.tell_room()
        if self.engine.memory_max != NEVER:
            self.engine.spills = True
            log.writer.memory_left = self.engine.memory_left()
        self.syncs = log.fsync == ALWAYS
        self.watched = True
        self.ledger.log = log
        self.journal = Journal(self, self.disk, log, retention, snapshot_bytes)

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
        return Durable(self) if self.syncs or self.tells else NOTHING

    def make_durable(self) -> None:
        """Return when everything that was done so far is on disk, and watchers have been called. Without the lock."""
        if self.syncs:
            assert self.journal is not None
            log = self.journal.log
            try:
                log.make_durable(log.written)
            except JournalFailed as error:
                with self.lock:
                    self.fail(error)
                raise
        if self.tells and self._teller is not None:
            self._teller.wait()

    async def until_durable(self) -> None:
        """Return when everything that was done so far is as durable as the queue promises."""
        if self.journal is not None:
            try:
                await self.journal.until_durable()
            except JournalFailed as error:
                with self.lock:
                    self.fail(error)
                raise
        if self.tells and self._teller is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._teller.wait)

    def join(self) -> Connection:
        """Let another session in."""
        if self.closed:
            raise Closed()
        return self.engine.connect(secrets.token_bytes(16))

    def leave(self, connection: Connection) -> None:
        """Let a session go, which is open no more; with the last one the queue closes."""
        try:
            # It may have left already, and been interrupted after that.
            if self.failure is None and connection.number in connection.session.connections:
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
            self.ledger.failed = True
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
        self.ledger.log = None
        if self._teller is not None:
            self._teller.stop()
        if self.journal is not None:
            self.journal.close()
        elif self.disk is not None:
            self.disk.unlock()
        self.shut = True

    def start_drivers(self) -> list[str]:
        """Let the drivers of all tubes start that are registered now; return warnings about those that cannot."""
        warnings: list[str] = []
        with self.lock, self:
            for tube in [tube for tube in self.engine.tubes.values() if tube.driven]:
                try:
                    self.engine.attach(tube, self.now())
                except CommandError as error:
                    warnings.append(str(error))
        return warnings

    def leave_to_parent(self) -> None:
        """In the child of a fork: nothing of this queue may be used, and its files least of all."""
        self.closed = self.shut = True
        self.ledger.log = None
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
        try:
            self.ledger.commit()
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
        if not shares or not self._may_share():
            self.commit()
        if self.outbox.ended_waits:
            if self.on_ended_waits is not None:
                self.on_ended_waits()
            else:
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
        if not self.gives_up(error):
            self.settle()

    def gives_up(self, error: BaseException) -> bool:
        """Whether an error left a command half done; then nothing more can be promised. Under the lock."""
        if not _came_in_the_middle(error):
            return False
        if self.journal is not None:
            self.journal.log.give_up(InterruptedError(errno.EINTR, "a command was interrupted half-way"))
        self.fail(Interrupted())
        return True

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
        keeper = Keeper(self)
        self._keeper = keeper
        keeper.start()

    def take_back(self, wait: Waiting) -> None:
        """Somebody was interrupted in its wait: nobody saw what it was served with, so that was not delivered."""
        if self.failure is not None:
            return
        with self.lock, self:
            self.engine.cancel(wait)
        if isinstance(wait, w.Wait):
            self.give_back(Handed(wait.jobs, wait.deliveries))

    def give_back(self, handed: Handed) -> None:
        """Nobody saw these deliveries of these jobs, so there were none."""
        with self.lock, self:
            for job, delivery in zip(handed.jobs, handed.deliveries, strict=True):
                self.engine.undelivered(job, self.now(), delivery)

    def not_seen(self, handed: Handed) -> None:
        """Nobody saw what was just taken: the call was interrupted. Where the log failed, that is beyond help."""
        if handed.jobs:
            with contextlib.suppress(CommandError):
                self.give_back(handed)

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
        tube = self.engine.tubes.get(name.encode("utf-8", "replace")) if mark else None
        if tube is not None and tube.driven:
            job = self.engine.find_named(tube, digits.encode("utf-8", "surrogateescape"), self.now())
        elif mark and _LOCAL.fullmatch(digits):
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

    def has_journal(self) -> Journal:
        """The journal, or NoJournal."""
        if self.journal is None:
            raise NoJournal()
        return self.journal

    def subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        """Call back on every change of a job, in order, from a thread of its own; gives a function that ends it."""
        return self._telling(callback).subscribe(callback, tube)

    def watch(self, callback: Callable[[SeenChange], None], tube: bytes) -> Callable[[], None]:
        """Call back on every change of a job of a tube, in order; return a function that ends it.

        A change is committed when it is called, and the call that caused the change waits for it.
        """
        cancel = self._telling(callback).watch(callback, tube)
        self.tells = True
        for session in list(self.sessions):
            session.wait_for_watchers()
        return cancel

    def _telling(self, callback: object) -> Teller:
        if not callable(callback):
            raise WrongType(f"a subscriber is a function, not {type(callback).__name__}")
        if self._teller is None:
            self._teller = Teller(self, self.ids)
            self.engine.watch = self._teller.moved
        return self._teller

    def body_shown(self, job: Job) -> bytes:
        """Return the body of a job as users see it. The caller holds the lock."""
        body = job.shown_body()
        return body if isinstance(body, bytes) else self.outbox.body_of(job)

    def finish_telling(self) -> None:
        """If the queue is closed, return when watchers have been called with everything that happened."""
        if self.shut and self._teller is not None:
            self._teller.join()


# The engine and what it writes to: what they are in the middle of is whole at its end, or not at all.
_WHOLE: Final = ("penstock.core.", "penstock.journal.frame")

# What comes out of these in the middle of a change. They refuse before they change anything, and so does Python where
# an argument is of the wrong type or too large.
_SUDDEN: Final = (MemoryError, RecursionError, AssertionError, LookupError)


def _came_in_the_middle(error: BaseException) -> bool:
    """Whether an interrupt, or what is as sudden, came while the engine was changing.

    Compiled code is not interrupted, but for what it calls: subscribers, for example.
    """
    if isinstance(error, Exception) and not isinstance(error, _SUDDEN):
        return False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_WHOLE):
            return True
        trace = trace.tb_next
    return False
