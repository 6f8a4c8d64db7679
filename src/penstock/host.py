"""The engine in a process of yours: its clock, its lock, and those who sleep until it has something for them.

`embedded.py` and `embedded_async.py` are two faces of one host, and may be used on the same queue at once. Everything
happens under the host's lock. Those who wait sleep without polling: one of the sleepers keeps the time for all, and
hands that duty on when it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import secrets
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.committer import Committer
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.engine import Engine
from penstock.core.errors import BadId, Closed, CommandError, Forked, JournalFailed, NoJournal, UnknownJob, WrongType
from penstock.core.ids import HEX_ID_BYTES, LONG_ID_BYTES, NOT_AN_ID, IdForms
from penstock.core.job import BodyRef, Job
from penstock.core.limits import NEVER
from penstock.core.outbox import Outbox
from penstock.core.tube import Tube
from penstock.core.waits import Connection, Waiting
from penstock.journal.disk import Disk
from penstock.journal.log import ALWAYS, EVERYSEC, Log
from penstock.journal.reader import Event, Reader
from penstock.journal.recovery import Progress, open_log
from penstock.journal.retention import Retention
from penstock.options import to_text
from penstock.steward import Steward

# How many bodies are asked for ahead of their turn.
_AHEAD = 64


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


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a job, as subscribers are told."""

    id: str
    tube: str
    event: str
    before: str
    after: str
    time: float  # Seconds since 1970.


class Refusal:
    """What stands where a session's lock was, once the session may not be used any more."""

    def __init__(self, error: type[CommandError]) -> None:
        self._error = error

    def __enter__(self) -> None:
        raise self._error()

    def __exit__(self, *_: object) -> None: ...


class Guard(Protocol):
    """What a call holds while it uses the engine."""

    def __enter__(self) -> object: ...
    def __exit__(self, *_: Any) -> object: ...


class Committing:
    """The lock of a queue with a journal: what a call has done is in the log when it lets go."""

    def __init__(self, host: Host, log: Log) -> None:
        self._host = host
        self._log = log

    def __enter__(self) -> None:
        self._host.lock.acquire()
        if self._log.failed:
            self._host.lock.release()
            self._log.check()

    def __exit__(self, *_: object) -> None:
        try:
            if not self._host.closed:
                self._log.commit(self._host.now(), wall_ms())
                self._host.engine.room_bytes = self._log.room_ahead or self._log.room()
        except JournalFailed:
            self._host.wake_everybody()
            raise
        finally:
            self._host.lock.release()


class Durable(Committing):
    """The same, and it is durable before the call returns: an answer, a read or a refusal too."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._log.fsync == ALWAYS:
            try:
                self._log.make_durable(self._log.written)
            except JournalFailed:
                with self._host.lock:
                    self._host.wake_everybody()
                raise


class Gathering(Committing):
    """The lock for tasks where calls wait for the disk: what they do is committed at the end of their loop's turn."""

    def __exit__(self, *_: object) -> None:
        self._host.lock.release()


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
        except JournalFailed:
            return None  # Those who sleep were woken, and are told.


class Host:
    """One engine of this process."""

    now: Callable[[], int]  # Engine time, in ms.
    guard: Guard  # What a thread's call holds: it returns when what it did is as durable as the queue promises.
    quick_guard: Guard  # The same without waiting for the disk: what was done is in the log.
    task_guard: Guard  # What a task's call holds: it awaits `until_durable` afterwards.

    wall: Callable[[], int]
    outbox: Outbox

    def __init__(self, grace_ms: int, memory_max: int = NEVER, store: Store | None = None) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.wall = wall_ms
        self.journal: _Journal | None = None
        self.warnings: list[str] = []
        if store is None:
            self.now = clock_from(wall_ms())
            self.outbox = Outbox()
            self.engine = Engine(1, self.now(), self.outbox, secrets.randbits(32))
            self.engine.session_grace_ms = grace_ms
            self.ids = IdForms(secrets.token_hex(4).encode(), secrets.token_bytes(32))
            self.guard = self.quick_guard = self.task_guard = self.lock
        else:
            self._recover(store, grace_ms, memory_max)
        self.engine.memory_max = memory_max
        self.engine.waits_per_connection_max = NEVER  # Threads and tasks of one process bound themselves.
        self.watched = False  # Whether anybody sleeps; if not, a command has nobody to wake.
        self._keeper_until = -1
        self._keeper: Sleeper | None = None
        self._sleepers: dict[Sleeper, None] = {}
        self._sessions = 0
        self._teller: _Teller | None = None
        # Those who decide what tubes of theirs serve next: they look at every change before it is told.
        self.drivers: dict[Tube, Attendant] = {}

    def _recover(self, store: Store, grace_ms: int, memory_max: int) -> None:
        """Go on where the log of a directory ends."""
        disk = store.disk
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
        self.ids = IdForms(opened.node[:8].encode(), opened.key)
        self.engine.room_bytes = opened.log.room()
        if memory_max != NEVER:
            self.engine.spills, self.engine.memory_max = True, memory_max
            opened.log.writer.memory_left = self.engine.memory_left()
        self.guard = Durable(self, opened.log)
        self.quick_guard = Committing(self, opened.log)
        self.task_guard = Gathering(self, opened.log) if store.fsync == ALWAYS else self.quick_guard
        self.journal = _Journal(self, disk, opened.log, store.retention)

    async def until_durable(self) -> None:
        """Return when everything that was done so far is as durable as the queue promises."""
        if self.journal is not None:
            try:
                await self.journal.until_durable()
            except JournalFailed:
                with self.lock:
                    self.wake_everybody()
                raise

    def join(self) -> Connection:
        """Let another session in."""
        if self.closed:
            raise Closed()
        self._sessions += 1
        return self.engine.connect(secrets.token_bytes(16))

    def leave(self, connection: Connection) -> None:
        """Let a session go; with the last one the queue closes."""
        self.engine.disconnect(connection, self.now())
        self._sessions -= 1
        self.closed = self._sessions == 0
        try:
            if self.closed:
                self.close()
        finally:
            self.settle()
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

    def leave_to_parent(self) -> None:
        """In the child of a fork: nothing of this queue may be used, and its files least of all."""
        self.closed = True
        self.guard = self.quick_guard = self.task_guard = Refusal(Forked)
        if self.journal is not None:
            self.journal.disk.forget_lock()

    def flush(self) -> None:
        """Let what was done outside of a guard reach the log."""
        if not self.closed:
            with self.guard:
                pass

    def make_room(self, length: int) -> bool:
        """Try to have room in the log for so many bytes of bodies that did not fit."""
        if self.journal is None:
            return False
        with self.quick_guard:
            self.engine.room_bytes = self.journal.log.make_room(length)
            # Leaving the guard looks at the room again, and finds what was made.
            return self.engine.room_bytes >= length

    def settle(self) -> None:
        """Wake whoever a command has served, and the keeper if the next deadline came nearer."""
        for driver in self.drivers.values():
            driver.attend()
        if self.outbox.ended_waits:
            for wait in self.outbox.ended_waits:
                sleeper: Sleeper = wait.tag  # type: ignore[assignment]
                sleeper.wake()
            self.outbox.ended_waits.clear()
        if self._keeper is not None and self.engine.deadlines.next_due < self._keeper_until:
            self._keeper.wake()

    def how_long(self, wait: Waiting, sleeper: Sleeper) -> int | None:
        """How many ms a sleeper may sleep before it asks again: -1 for until it is woken, None if its wait is over."""
        with self.quick_guard if not self.closed else self.lock:
            self.engine.advance(self.now())
            self.settle()
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
            self.watched = bool(self._sleepers)
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
        with self.quick_guard:
            self.engine.advance(self.now())
            self.settle()
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
        with self.quick_guard if not self.closed else self.lock:
            self.engine.cancel(wait)
            self.settle()
        if isinstance(wait, w.Wait):
            self.give_back(wait.jobs, wait.deliveries)

    def give_back(self, jobs: list[Job], deliveries: list[int]) -> None:
        """Nobody saw these deliveries of these jobs, so there were none."""
        with self.quick_guard if not self.closed else self.lock:
            for job, delivery in zip(jobs, deliveries, strict=True):
                self.engine.undelivered(job, self.now(), delivery)
            self.settle()

    def not_seen(self, jobs: list[Job]) -> None:
        """Nobody saw what was just taken: the call was interrupted. Where the log failed, that is beyond help."""
        if jobs:
            with contextlib.suppress(CommandError):
                self.give_back(jobs, [job.deliveries for job in jobs])

    def catch_up(self) -> None:
        """Let happen what fell due, if anything did: for those who only look."""
        if self.engine.deadlines.next_due <= self.now() and not self.closed:
            with self.quick_guard:
                self.engine.advance(self.now())
                self.settle()

    def find(self, id: str) -> Job:
        """The job of an id in either form."""
        number = self.number_of(id)
        job = self.engine.find(number, self.now())
        # Looking may have let deadlines pass, and those who wait must hear of it.
        self.settle()
        if job is None:
            raise UnknownJob()
        return job

    def number_of(self, id: str) -> int:
        """The number of a job, whose id is given in either form."""
        if not isinstance(id, str):
            raise WrongType(f"a job's id is text, not {type(id).__name__}")
        raw = id.encode("utf-8", "replace")
        number = NOT_AN_ID
        if len(raw) == LONG_ID_BYTES:
            number = self.ids.parse_long(raw)
        elif len(raw) == HEX_ID_BYTES:
            number = self.ids.parse_hex(raw)
        if number == NOT_AN_ID:
            raise BadId()
        return number

    def body_of(self, job: Job) -> bytes:
        """The body of a job, read from disk if that is where it lives."""
        body = job.body
        if isinstance(body, bytes):
            return body
        assert self.journal is not None
        if job.state == s.GONE:
            raise UnknownJob("the job is gone, and its body was on disk only")
        return self.journal.fetch(self.engine.tube_of(job), job)

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

    def __init__(self, host: Host, disk: Disk, log: Log, retention: Retention) -> None:
        self.lock = host.lock
        self.engine = host.engine
        self.now = host.now
        self.wall = host.wall
        self.disk = disk
        self.log = log
        self._wake_everybody = host.wake_everybody
        self._quick_guard = host.quick_guard
        self._reader = Reader(disk)
        self._committers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Committer] = weakref.WeakKeyDictionary()
        self._fetched = 0
        self._steward = Steward(self, retention)
        self.closed = False
        self._grown = threading.Event()
        log.on_growth = self._on_growth
        if log.fsync != ALWAYS:
            # The thread ends with the journal, closed or forgotten.
            weak = weakref.ref(self, lambda _, grown=self._grown: grown.set())  # type: ignore[misc]
            syncing = threading.Thread(target=_sync_behind, args=(weak, self._grown), name="penstock-sync", daemon=True)
            syncing.start()

    def events(self, start: int) -> Iterator[Event]:
        """What happened from a position on, as far as it is durable."""
        return self._reader.events(start, self.log.durable)

    def history(self, number: int) -> list[Event]:
        """What happened to a job, as far as it is durable; whether it is there or gone. Without the lock."""
        with self.lock:
            job = self.engine.jobs.find(number)
            newest = None if job is None or job.position <= 0 else job.position
        return self._reader.history(number, newest, self.log.durable)

    async def until_durable(self) -> None:
        """Return when everything that was logged so far is as durable as the log promises."""
        log = self.log
        if log.fsync == ALWAYS and log.durable < log.writer.position:
            loop = asyncio.get_running_loop()
            committer = self._committers.get(loop)
            if committer is None:
                committer = self._committers[loop] = Committer(log, loop, self._commit)
            await committer.durable(log.writer.position)

    def _commit(self) -> None:
        """Write what was gathered."""
        with self._quick_guard:
            pass

    def fetch(self, tube: Tube, job: Job) -> bytes:
        """The body of a job that lives on disk; and those of the next jobs will be asked for soon."""
        self._fetched += 1
        if self._fetched % _AHEAD == 1:
            # The first of a heap are not in order, but whoever comes next is among them.
            upcoming = [next_job.body for next_job in tube.ready.items[: 2 * _AHEAD]]
            self.log.bodies.will_read([body for body in upcoming if isinstance(body, BodyRef)])
        while True:
            body = job.body
            try:
                read = self.log.writer.body_of(job)
            except FileNotFoundError:
                if job.body is body:
                    raise
                continue
            # Otherwise a snapshot has it now, and the file where it was may be gone or written anew.
            if job.body is body:
                return read

    def take_snapshot(self) -> None:
        """Take a snapshot now, and remove what need not be kept. Without the lock."""
        self._steward.take_snapshot()

    def close(self) -> None:
        """Close the log and give the directory free, whatever fails. Under the lock, or before anybody uses it."""
        self.closed = True
        self._grown.set()
        try:
            self._steward.stop()
            self.log.close(self.now(), self.wall())
        finally:
            self.disk.unlock()

    def _on_growth(self) -> None:
        self._steward.wake()
        self._grown.set()

    def sync_behind(self) -> float | None:
        """Sync what others have written; tell how long to wait before the next time, in seconds."""
        try:
            self.log.make_durable(self.log.written)
        except JournalFailed:
            if not self.closed:
                with self.lock:
                    self._wake_everybody()
            raise
        return 1.0 if self.log.fsync == EVERYSEC else None


def _sync_behind(weak: weakref.ref[_Journal], grown: threading.Event) -> None:
    """Sync what others do not wait for: every second, or little by little as the log grows."""
    wait: float | None = 0.0
    while True:
        grown.wait(wait)
        grown.clear()
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
    """One session on a host, and the lock that guards it: the host's, until the session is closed or forked.

    A session is a context: `with session:` holds the lock. Hot paths hold `guard` and look at `closed` themselves.
    """

    guard: Guard | Refusal

    def __init__(self, host: Host) -> None:
        self.host = host
        self.closed = False
        self.guard = self._lock = host.guard
        with host.guard:
            self.connection = host.join()
        self._twins: list[Session] = [self]
        _sessions.add(self)

    def for_tasks(self) -> Session:
        """The same session for asyncio: its calls return at once, and `until_durable` is awaited after them."""
        twin = Session.__new__(Session)
        twin.host, twin.connection, twin.closed, twin._twins = self.host, self.connection, self.closed, self._twins
        twin.guard = twin._lock = self.host.task_guard
        self._twins.append(twin)
        _sessions.add(twin)
        return twin

    def __enter__(self) -> None:
        self.guard.__enter__()
        if self.closed:
            # It was closed while we waited for the lock.
            self._lock.__exit__(None, None, None)
            raise Closed()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)

    def close(self) -> None:
        """End the session: what it has taken goes back to its tubes."""
        if isinstance(self.guard, Refusal):
            return
        with self.host.lock:
            if self.closed:
                return
            for twin in self._twins:
                twin.closed = True
                twin.guard = Refusal(Closed)
            self.host.leave(self.connection)
        self.host.flush()


# Sessions of this process, for the child of a fork to be told that they are not its own.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for session in list(_sessions):
        session.guard = Refusal(Forked)
        session.host.leave_to_parent()


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
