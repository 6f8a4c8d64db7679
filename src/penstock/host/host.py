"""The host: one engine in this process, and its turns.

`embedded.py`, `embedded_async.py` and the server are three interfaces to one host. All work happens under its lock.
Waiting threads and asyncio tasks do not poll. One of them is the timekeeper: it wakes up for the next deadline and runs
the timers for all. Another one takes over when the timekeeper stops waiting.
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
from penstock.host.calls import NOTHING, Context, Durable, Refusal, Revocable
from penstock.host.change_feed import ChangeFeed, WatchedChange
from penstock.host.clock import MachineClock, wall_ms
from penstock.host.journal import Journal
from penstock.host.maintenance.snapshots import SNAPSHOT_BYTES
from penstock.host.pending_delivery import PendingDelivery
from penstock.host.sleepers import Sleeper, Timekeeper
from penstock.journal import reserve_file
from penstock.journal.disk import Disk
from penstock.journal.identity import abandon_log, identity, next_opening
from penstock.journal.log import ALWAYS, Log
from penstock.journal.maintenance.retention import Retention
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import open_log
from penstock.journal.room import RESERVE_BYTES
from penstock.journal.segment import Progress

# Number of jobs to visit at a time when all jobs are visited.
_SLICE_JOBS = 10_000

# The number of a job within its tube.
_LOCAL = re.compile("[0-9]{1,18}", re.ASCII)

# Tasks share a frame up to about this length. A longer frame is not faster, and on a full disk it must fit into the
# space that is reserved for takes and acks.
_SHARED_BYTES = RESERVE_BYTES // 4


@dataclass(frozen=True)
class Store:
    """A directory and the settings of the queue in it."""

    disk: Disk
    fsync: str = ALWAYS
    retention: Retention = field(default_factory=Retention)
    progress: Progress | None = None
    snapshot_bytes: int = SNAPSHOT_BYTES
    journal: bool = True  # Whether the directory has a log. It always contains the identity of the node.


class Host:
    """One engine in this process, with its clock, lock, journal and sessions.

    `with host:` is a turn: the part of a call that runs under the lock.

    At the end of a turn, its changes are in the log, and the threads and tasks whose waits it ended are woken. Asyncio
    tasks are an exception, because they share frames. Their changes are written to the log when one of them starts to
    wait for the disk, or when another caller ends a turn.

    The lock around a turn is always a bare `threading.Lock`: `with host.lock, host:`. An interrupt can occur between
    any two steps of Python code, so a lock that Python code acquires and releases could stay locked for ever. The next
    turn completes an interrupted turn.
    """

    now: Callable[[], int]  # Engine time, in ms.
    wall: Callable[[], int]
    outbox: Outbox
    engine: Engine
    clock: MachineClock
    log: Log | None  # None for a queue in memory, and after the queue was closed.
    ids: IdForms
    node: str  # The id of the node: 40 hex digits.

    def __init__(self, grace_ms: int, memory_max: int = NEVER, store: Store | None = None) -> None:
        self.lock = threading.Lock()
        self.closed = False  # Whether new sessions are refused.
        self.shut = False  # Whether the files of the queue are closed, too.
        self.failure: Refusal | None = None  # Set when the journal failed or a command was interrupted half-way.
        self.on_failure: Callable[[CommandError], object] | None = (
            None  # Called once with the error of `failure`, from any thread.
        )
        # Called under the lock, from any thread, when waits have ended. Without it, the sleepers are woken.
        self.on_ended_waits: Callable[[], object] | None = None
        # Whether a command must end its turn, because a log or a sleeper depends on it.
        self.watched = False
        # Whether a blocking call returns only when its changes are on disk. Tasks await `until_durable` instead.
        self.syncs = False
        self.has_watchers = False  # Whether a call returns only after watchers have received its changes.
        self.wall = wall_ms
        self.journal: Journal | None = None
        self.log = None
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
        self.engine.waits_per_connection_max = NEVER  # Threads and tasks of one process limit themselves.
        self._keeper_until = -1
        self._keeper: Sleeper | None = None
        self._sleepers: dict[Sleeper, None] = {}
        # Open sessions. A session that was garbage-collected without close keeps its taken jobs, but does not keep the
        # queue open.
        self.sessions: weakref.WeakSet[Revocable] = weakref.WeakSet()
        self._change_feed: ChangeFeed | None = None

    def _begin(self, store: Store, grace_ms: int) -> None:
        """Start with an empty queue, for a node that has a directory but no log."""
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
        clock = MachineClock(wall_ms())
        self.outbox = Outbox()
        self.engine = Engine(epoch, clock.now(), self.outbox, secrets.randbits(32))
        self.engine.session_grace_ms = grace_ms
        self.ids = ids
        self._set_clock(clock)

    def _recover(self, store: Store, grace_ms: int, memory_max: int) -> None:
        """Recover the queue from the log of a directory, and continue the log."""
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
        self._set_clock(MachineClock(max(wall_ms(), self.engine.now)))
        self.node = opened.node
        self.ids = IdForms(opened.node[:8].encode(), opened.key)
        self.engine.memory_max = memory_max
        self._attach_log(opened.log, store.retention, store.snapshot_bytes)

    def _set_clock(self, clock: MachineClock) -> None:
        self.clock = clock
        self.now = clock.now

    def start_journal(self, fsync: str, retention: Retention) -> None:
        """Start to log a queue that was in memory only.

        The caller holds the lock. An old log in the directory becomes history.

        All callers wait until a snapshot of the queue is written: one second for a million jobs.
        """
        assert self.disk is not None and self.journal is None
        log = open_log(self.disk, wall_ms, boot_id(), fsync=fsync).log
        for tube in self.engine.tubes.values():
            tube.defined_in_segment = -1
        start = 0
        while jobs := self.engine.jobs.scan(start, _SLICE_JOBS):
            for job in jobs:
                job.position = 0
            start = jobs[-1].id + 1
        log.attach(self.engine)
        self._replace_outbox(log.writer)
        try:
            take_snapshot(self.disk, log, self.engine, self.now(), wall_ms())
        except BaseException:
            self._replace_outbox(Outbox())
            log.close(self.now(), wall_ms())
            raise
        self._attach_log(log, retention, SNAPSHOT_BYTES)

    def stop_journal(self) -> None:
        """Stop logging, and keep the queue in memory only. The caller holds the lock."""
        assert self.disk is not None and self.journal is not None
        self._load_bodies()
        # Mark the log as incomplete before anything else, so that it is not trusted even if a later step fails.
        abandon_log(self.disk)
        try:
            self.journal.stop()
        except (CommandError, OSError) as error:
            failure = error if isinstance(error, JournalFailed) else JournalFailed(f"the log cannot be closed: {error}")
            self.fail(failure)
            raise failure from error
        self.journal = self.log = None
        self._replace_outbox(Outbox())
        self.engine.spills = False
        self.engine.room_bytes = self.engine.moves_left = NEVER
        self.syncs = self.watched = False

    def _load_bodies(self) -> None:
        """Read every body that is on disk only, if all bodies fit in memory."""
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
                    engine.tube_of(job).spilled -= 1
            start = jobs[-1].id + 1

    def _replace_outbox(self, outbox: Outbox) -> None:
        """Replace the outbox of the engine. The new one gets the ended waits that the old one has not reported."""
        outbox.ended_waits = self.outbox.ended_waits
        self.outbox = self.engine.outbox = outbox

    def _attach_log(self, log: Log, retention: Retention, snapshot_bytes: int) -> None:
        assert self.disk is not None
        # Create the reserve file before the first put, because it cannot be created on a full disk.
        reserve_file.create(self.disk, log.room.segment_bytes)
        log.prepare_again()
        log.room.refresh()
        log.update_room()
        if self.engine.memory_max != NEVER:
            self.engine.spills = True
            log.writer.memory_left = self.engine.memory_left()
        self.syncs = log.fsync == ALWAYS
        self.watched = True
        self.log = log
        self.journal = Journal(self, self.disk, log, retention, snapshot_bytes)

    def __enter__(self) -> None:
        self.check()
        # No session causes the changes of this turn. `Session.__enter__` is for those of a session.
        self.engine.outbox.actor = None

    def check(self) -> None:
        """Raise the stored error if the host has failed."""
        if self.failure is not None:
            self.failure.refuse()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.settle()
        else:
            self.settle_after(error)

    @property
    def durable(self) -> Context:
        """Return the context manager that makes a blocking call wait for the disk and for watchers."""
        return Durable(self) if self.syncs or self.has_watchers else NOTHING

    def make_durable(self) -> None:
        """Wait until all changes so far are on disk and watchers have got them. The caller does not hold the lock."""
        if self.syncs:
            assert self.journal is not None
            log = self.journal.log
            try:
                log.make_durable(log.written)
            except JournalFailed as error:
                with self.lock:
                    self.fail(error)
                raise
        if self.has_watchers and self._change_feed is not None:
            self._change_feed.wait()

    async def until_durable(self) -> None:
        """Wait until all changes so far are as durable as the fsync policy requires."""
        if self.journal is not None:
            try:
                await self.journal.until_durable()
            except JournalFailed as error:
                with self.lock:
                    self.fail(error)
                raise
        if self.has_watchers and self._change_feed is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._change_feed.wait)

    def join(self) -> Connection:
        """Open another session, and return its connection to the engine."""
        if self.closed:
            raise Closed()
        return self.engine.connect(secrets.token_bytes(16))

    def leave(self, connection: Connection) -> None:
        """Close a connection whose session was removed from `sessions`. The queue closes with its last session."""
        try:
            # An interrupted call may have disconnected it already.
            if self.failure is None and connection.number in connection.session.connections:
                with self:
                    self.engine.disconnect(connection, self.now())
        finally:
            self.closed = not self.sessions
            self.wake_all()
            if self.closed:
                self.close()

    def fail(self, error: CommandError) -> None:
        """Refuse all later calls and wake all waiting threads and tasks, because durability is no longer guaranteed.

        The caller holds the lock.
        """
        if self.failure is None:
            self.failure = Refusal(type(error), str(error))
            if self.on_failure is not None:
                self.on_failure(error)
            for session in list(self.sessions):
                session.revoke(self.failure)
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all waiting threads and tasks, because the queue was closed or has failed. The caller holds the lock."""
        for sleeper in self._sleepers:
            sleeper.wake()
        if self._keeper is not None:
            self._keeper.wake()

    def close(self) -> None:
        """Close the log and unlock the directory, even if closing fails.

        The caller holds the lock, or no other thread uses the queue yet.
        """
        self.closed = True
        self.log = None
        if self._change_feed is not None:
            self._change_feed.stop()
        if self.journal is not None:
            self.journal.close()
        elif self.disk is not None:
            self.disk.unlock()
        self.shut = True

    def start_drivers(self) -> list[str]:
        """Start the registered drivers of all tubes. Return a warning for each driver that cannot start."""
        warnings: list[str] = []
        with self.lock, self:
            for tube in [tube for tube in self.engine.tubes.values() if tube.driven]:
                try:
                    self.engine.attach(tube, self.now())
                except CommandError as error:
                    warnings.append(str(error))
        return warnings

    def abandon_after_fork(self) -> None:
        """Abandon the queue in the child of a fork: neither the queue nor its files may be used there."""
        self.closed = self.shut = True
        self.log = None
        if self.disk is not None:
            self.disk.forget_lock()

    def flush(self) -> None:
        """Write all pending changes to the log, and make them durable."""
        if not self.closed:
            with self.durable, self.lock, self:
                pass

    def make_room(self, length: int) -> bool:
        """Try to provide space in the log for `length` bytes of bodies that did not fit.

        Return whether there is space now.
        """
        if self.journal is None:
            return False
        with self.lock, self:
            # The end of the turn updates the engine's limits.
            return self.journal.log.make_room(length) >= length

    def make_room_now(self, length: int) -> None:
        """Try to provide space in the log for `length` bytes of bodies. The caller holds the lock."""
        if self.journal is not None:
            self.journal.log.make_room(length)

    def set_fsync(self, fsync: str) -> None:
        """Change the fsync policy. The caller holds the lock."""
        if self.journal is not None:
            self.journal.set_fsync(fsync)
            self.syncs = fsync == ALWAYS

    def is_leaving(self) -> bool:
        return self.disk is not None and identity(self.disk).leaving

    def set_leaving(self, leaving: bool) -> None:
        if self.disk is not None:
            replace(identity(self.disk), leaving=leaving).write(self.disk)

    def node_epoch(self) -> int:
        """Return the epoch of the node. It grows each time a standby replaces the node."""
        return 0 if self.disk is None else identity(self.disk).node_epoch

    def rename(self) -> None:
        """Give the node a new id. The caller holds the lock and has removed the jobs, or is about to."""
        self.node = secrets.token_hex(20)
        self.ids.rename(self.node[:8].encode())
        if self.disk is not None:
            who = identity(self.disk)
            replace(who, node=self.node, node_epoch=0, log=who.of_log).write(self.disk)

    def set_superseded(self, epoch: int) -> None:
        """Store that a standby has replaced this node, with the epoch `epoch`.

        The log is archived at the next start.
        """
        if self.disk is not None:
            replace(identity(self.disk), superseded=epoch).write(self.disk)

    def advance(self) -> None:
        """Run due timers and end the turn. Called before the present state is read. The caller holds the lock."""
        self.engine.advance(self.now())
        self.settle()

    def commit(self) -> None:
        """Write pending rows to the log. The caller holds the lock."""
        log = self.log
        if log is not None:
            try:
                log.commit_turn(self.now(), wall_ms())
            except JournalFailed as error:
                self.fail(error)
                raise

    def commit_shared(self) -> None:
        """Write the rows of asyncio tasks that were left for a shared frame. The caller does not hold the lock."""
        # In the child of a fork, the lock may be held for ever.
        if not self.closed:
            with self.lock, self:
                pass

    def _may_share(self) -> bool:
        """Return whether the rows of a task's turn can be written later, in a frame that several tasks share."""
        return self.syncs and self.journal is not None and self.journal.log.writer.frame_bytes() < _SHARED_BYTES

    def settle(self, shares: bool = False) -> None:
        """End a turn: commit it, and wake the threads and tasks whose waits it ended.

        If the next deadline is now earlier than before, also wake the timekeeper.

        With `shares`, the caller awaits `until_durable` next, so the changes can be committed later in a shared frame.
        Waiting threads and tasks can be woken before that commit, because each begins a turn of its own when it wakes.
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
        """End a turn that raised `error`. If the error left a command half done, fail the host and commit nothing."""
        if self.failure is not None:
            return
        if not self.gives_up(error):
            self.settle()

    def gives_up(self, error: BaseException) -> bool:
        """If `error` left a command half done, fail the host and return True. The caller holds the lock."""
        if not _interrupted_engine(error):
            return False
        if self.journal is not None:
            self.journal.log.give_up(InterruptedError(errno.EINTR, "a command was interrupted half-way"))
        self.fail(Interrupted())
        return True

    def sleep_ms(self, wait: Waiting, sleeper: Sleeper) -> int | None:
        """Return how many ms a waiting thread or task can sleep: -1 for no limit, None if `wait` has ended."""
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

    def stop_sleeping(self, sleeper: Sleeper) -> None:
        """Remove a thread or task that no longer sleeps.

        If no thread or task runs the timers now, wake another one, so that the timers are run.
        """
        with self.lock:
            self._sleepers.pop(sleeper, None)
            self.watched = bool(self._sleepers) or self.journal is not None
            if self._keeper is sleeper:
                self._keeper = None
                self._keeper_until = -1
            if self._keeper is None:
                # Do this even if the sleeper was not the timekeeper: it may have been woken to become it.
                for other in self._sleepers:
                    other.wake()
                    break

    def keep_time(self, keeper: Sleeper) -> int | None:
        """Run due timers. `keeper` is the thread that calls this.

        Return the ms until the next deadline, or -1 if there is none. Return None if another thread or task is the
        timekeeper, which runs the next timers.
        """
        with self.lock, self:
            self.advance()
            if self._keeper is not keeper:
                return None
            self._keeper_until = self.engine.deadlines.next_due
            return -1 if self._keeper_until == NEVER else max(0, self._keeper_until - self.now())

    def _start_keeper(self) -> None:
        """Start a thread that runs the timers, because only asyncio tasks are waiting.

        Their event loop may be busy, so timers must not depend on it.
        """
        keeper = Timekeeper(self)
        self._keeper = keeper
        keeper.start()

    def cancel_wait(self, wait: Waiting) -> None:
        """Cancel an interrupted wait, and undo its deliveries, because no consumer has seen them."""
        if self.failure is not None:
            return
        with self.lock, self:
            self.engine.cancel(wait)
        if isinstance(wait, w.TakeWait):
            self.undeliver(PendingDelivery(wait.jobs, wait.deliveries))

    def undeliver(self, handed: PendingDelivery) -> None:
        """Undo deliveries that no consumer has seen."""
        with self.lock, self:
            for job, delivery in zip(handed.jobs, handed.deliveries, strict=True):
                self.engine.undelivered(job, self.now(), delivery)

    def undeliver_quietly(self, handed: PendingDelivery) -> None:
        """Undo the deliveries of an interrupted call.

        Do nothing if the journal has failed, because the deliveries cannot be undone then.
        """
        if handed.jobs:
            with contextlib.suppress(CommandError):
                self.undeliver(handed)

    def bury_unreadable(self, session: CoreSession, job: Job, why: str) -> None:
        """Bury a job whose body its consumer cannot decode, if the type of the tube has bury.

        Otherwise leave the job taken.
        """
        with contextlib.suppress(CommandError), self.lock, self:
            self.engine.outbox.actor = session
            self.engine.bury(session, job, self.now(), why.encode()[:REASON_BYTES_MAX])

    def catch_up(self) -> None:
        """Run due timers, if there are any. Called before a read."""
        if self.engine.deadlines.next_due <= self.now() and not self.closed:
            with self.lock, self:
                self.engine.advance(self.now())

    def find(self, id: str) -> Job:
        """Return the job with this id: 40 characters, 32 hex digits, or a tube and a number, such as `tube#7`.

        Raise UnknownJob if there is none.
        """
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
        """Return the number in an id of 40 characters or 32 hex digits. Raise BadId if it is not a job id."""
        if not isinstance(id, str):
            raise WrongType(f"a job's id is text, not {type(id).__name__}")
        number = self.ids.parse(id.encode("utf-8", "replace"))
        if number == NOT_AN_ID:
            raise BadId()
        return number

    def body_of(self, job: Job) -> bytes:
        """Return the body of a job, from memory or from disk."""
        body = job.body
        if isinstance(body, bytes):
            return body
        assert self.journal is not None
        return self.journal.fetch(job)

    def require_journal(self) -> Journal:
        """Return the journal. Raise NoJournal if the queue is only in memory."""
        if self.journal is None:
            raise NoJournal()
        return self.journal

    def subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        """Call `callback` on every change of a job, in order, in another thread.

        Return a function that cancels the subscription.
        """
        return self._feed(callback).subscribe(callback, tube)

    def watch(self, callback: Callable[[WatchedChange], None], tube: bytes) -> Callable[[], None]:
        """Call `callback` on every change of a job in a tube, in order.

        Return a function that cancels the subscription.

        The change is committed before the callback runs. The call that made the change waits for the callback.
        """
        cancel = self._feed(callback).watch(callback, tube)
        self.has_watchers = True
        for session in list(self.sessions):
            session.wait_for_watchers()
        return cancel

    def _feed(self, callback: object) -> ChangeFeed:
        if not callable(callback):
            raise WrongType(f"a subscriber is a function, not {type(callback).__name__}")
        if self._change_feed is None:
            self._change_feed = ChangeFeed(self, self.ids)
            self.engine.watch = self._change_feed.moved
        return self._change_feed

    def visible_body(self, job: Job) -> bytes:
        """Return the body of a job as users see it. The caller holds the lock."""
        body = job.user_body()
        return body if isinstance(body, bytes) else self.outbox.body_of(job)

    def join_watchers(self) -> None:
        """If the queue is closed, wait until watchers have received every change."""
        if self.shut and self._change_feed is not None:
            self._change_feed.join()


# Modules whose changes are complete or did not happen. An exception in the middle of one leaves a half-done change.
_ATOMIC_MODULES: Final = ("penstock.core.", "penstock.journal.frame")

# Errors that can occur in the middle of a change. All other errors are raised before anything is changed, by the engine
# or by Python, for example because an argument has the wrong type or is too large.
_SUDDEN: Final = (MemoryError, RecursionError, AssertionError, LookupError)


def _interrupted_engine(error: BaseException) -> bool:
    """Return whether an interrupt or a sudden error like MemoryError occurred while the engine changed its state.

    Compiled code is interrupted only in the Python code that it calls, for example in subscribers.
    """
    if isinstance(error, Exception) and not isinstance(error, _SUDDEN):
        return False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_ATOMIC_MODULES):
            return True
        trace = trace.tb_next
    return False
