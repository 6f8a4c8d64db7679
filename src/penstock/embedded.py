"""A queue in this process: the implementation of the public types (`api.py`) for `penstock.open`.

Any number of threads can use a queue. Every call runs under the lock of the `Host`, which runs the engine, and returns
when its effect is as durable as `fsync` demands. Context managers do this for most calls. `put`, `take` and `ack` are
the hot path, so they lock and sync without a context manager.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import EllipsisType, TracebackType
from typing import Any, Final, Literal, NamedTuple, Unpack, cast

from penstock import api
from penstock.changes import Change
from penstock.core import claims, views
from penstock.core import stages as stage_commands
from penstock.core import states as s
from penstock.core.batches import Stage as CoreStage
from penstock.core.commands import edits
from penstock.core.commands.key_counts import KeyCounts, check_summary_count
from penstock.core.commands.scans import Emptying, Listing
from penstock.core.engine import Engine
from penstock.core.errors import (
    Closed,
    CommandError,
    DamagedJournal,
    Full,
    NoSpace,
    OutOfRange,
    UnknownJob,
    Unsupported,
    WrongType,
    refuse,
)
from penstock.core.ids import NOT_AN_ID
from penstock.core.job import BodyRef, Draft, plain_draft
from penstock.core.job import Job as CoreJob
from penstock.core.limits import (
    BATCH_JOBS_MAX,
    BODY_BYTES_HARD_MAX,
    BODY_BYTES_MAX,
    MEMORY_BYTES_MIN,
    NEVER,
    PRIORITY_UNSET,
    ROW_ROOM_BYTES,
    UNSET,
    check_count,
    check_priority,
)
from penstock.core.policy import PRESETS, TubePolicy
from penstock.core.states import OK
from penstock.core.statistics.histogram import Histogram
from penstock.core.tasks import attention, batch, follow_ups
from penstock.core.tasks.signals import SIGNAL_NAMES
from penstock.core.tube import Tube as CoreTube
from penstock.core.views import SessionView
from penstock.core.waits import (
    CANCELLED,
    END_NAMES,
    END_UNKNOWN,
    STILL_THERE,
    EndWait,
    PutWait,
    SignalWait,
    TakeWait,
    Waiting,
    WatchWait,
)
from penstock.drivers import driver_draft
from penstock.durations import Durations, durations_from
from penstock.host.change_feed import WatchedChange
from penstock.host.host import Host, Store
from penstock.host.pending_delivery import PendingDelivery
from penstock.host.session import Session
from penstock.host.sleepers import ThreadSleeper
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.reader import Event, plain_number
from penstock.journal.identity import check_directory
from penstock.journal.log import FSYNC_CHOICES
from penstock.journal.maintenance.retention import HISTORY_BYTES, HISTORY_MS, Retention
from penstock.keywords import check_keywords
from penstock.options import (
    PUT_KEYWORDS,
    RELEASE_KEYWORDS,
    TUBE_KEYWORDS,
    BatchInfo,
    BatchState,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    JobProgress,
    NewJob,
    Outcome,
    ProgressValue,
    PutOptions,
    ReleaseOptions,
    Seconds,
    SessionEvent,
    SessionEvents,
    SignalName,
    StateName,
    TakeOptions,
    TubeOptions,
    TubeType,
    altered,
    boolean,
    changed_policy,
    check_shard,
    check_tubes,
    decode_body,
    duration_ms,
    each_put,
    encode_body,
    follow_up_draft,
    headers_from_bytes,
    headers_to_bytes,
    integer,
    mapping,
    new_policy,
    outcome_in,
    put_draft,
    take_options,
    text,
    to_bytes,
    to_text,
)
from penstock.search.cause_groups import CauseGroups
from penstock.search.conditions import parse_condition
from penstock.search.job_search import JobSearch


def open(
    path: str | os.PathLike[str] = ":memory:",
    *,
    fsync: Literal["always", "everysec", "never"] = "always",
    grace: Seconds = 0,
    max_body: int = BODY_BYTES_MAX,
    memory_limit: int | None = None,
    history: Duration = HISTORY_MS // 1_000,
    history_bytes: int | None = HISTORY_BYTES,
    history_bodies: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Queue:
    """Open a queue in this process. See `opening.open` for the options."""
    if not 0 <= integer(max_body, "max_body") <= BODY_BYTES_HARD_MAX:
        raise OutOfRange(f"max_body must be 0 to {BODY_BYTES_HARD_MAX}")
    if memory_limit is not None and integer(memory_limit, "memory_limit") < MEMORY_BYTES_MIN:
        raise OutOfRange(f"memory_limit must be at least {MEMORY_BYTES_MIN} bytes, or None")
    if history_bytes is not None and integer(history_bytes, "history_bytes") < 0:
        raise OutOfRange("history_bytes must be 0 or more, or None")
    retention = Retention(
        NEVER if history_bytes is None else history_bytes,
        duration_ms(history, "history"),
        boolean(history_bodies, "history_bodies"),
    )
    grace_ms = duration_ms(grace, "grace")
    if not isinstance(path, (str, os.PathLike)):
        raise WrongType(f'a queue is opened by the path of a directory, or ":memory:", not {type(path).__name__}')
    if fsync not in FSYNC_CHOICES:
        raise OutOfRange(f"fsync is one of {', '.join(FSYNC_CHOICES)}, not {fsync!r}")
    store = None
    if os.fspath(path) != ":memory:":
        check_directory(os.fspath(path))
        from penstock.journal.real_disk import RealDisk  # It cannot be imported on every system.

        store = Store(RealDisk(os.fspath(path)), fsync, retention, progress)
    host = Host(grace_ms, NEVER if memory_limit is None else memory_limit, store)
    host.engine.body_bytes_max = max_body
    try:
        for warning in host.warnings:
            warnings.warn(warning, RuntimeWarning, stacklevel=_caller_level())
        return Queue(Session(host))
    except BaseException:
        host.close()
        raise


def _caller_level() -> int:
    """Return the stack level of the first caller outside this package, so that a warning names the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("penstock."):
        level, frame = level + 1, frame.f_back
    return level


# The number of jobs that a command on many jobs changes at a time, so that other threads get the lock in between.
_SLICE_JOBS: Final = 1_000
# The tubes of at most this many held jobs are counted per session.
_EXAMINED_MAX: Final = 1_000


def sleep_through(host: Host, wait: Waiting, sleeper: ThreadSleeper) -> None:
    """Sleep until a wait is over and the change that ended it is durable."""
    try:
        while (timeout_ms := host.sleep_ms(wait, sleeper)) is not None:
            sleeper.sleep(timeout_ms)
        host.flush()
    except BaseException:
        host.cancel_wait(wait)
        raise
    finally:
        host.stop_sleeping(sleeper)


class Queue(api.Queue):
    """A session on a queue in this process."""

    def __init__(self, session: Session, blocking: Queue | None = None) -> None:
        self._session = session
        self._host = session.host
        self._blocking = blocking  # The blocking queue of the same session, if this queue is part of an AsyncQueue.

    def session(self) -> Queue:
        with self._session.durable, self._session.lock, self._session:
            pass
        return Queue(Session(self._host))

    @property
    def token(self) -> str:
        return self._session.connection.session.token.hex()

    def identify(self, token: str | None = None, *, grace: Seconds | None = None) -> None:
        try:
            raw = b"" if token is None else bytes.fromhex(token)
        except (TypeError, ValueError):
            raise WrongType("a session's token is 32 hexadecimal digits") from None
        grace_ms = UNSET if grace is None else duration_ms(grace, "grace")
        with self._session.durable, self._session.lock, self._session:
            connection = self._session.connection
            named = connection.session.token if token is None else raw
            self._host.engine.identify(connection, named, self._host.now(), grace_ms)

    def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        alter: bool = False,
        **options: Unpack[TubeOptions],
    ) -> Tube:
        raw = to_bytes(name, "a tube's name")
        engine = self._host.engine
        if not isinstance(type, str) or type in PRESETS:
            # Another type may be a driver with options of its own.
            check_keywords("tube", options, TUBE_KEYWORDS, "name", "type", "alter")
        with self._session.durable, self._session.lock, self._session:
            core = engine.tubes.get(raw)
            driven = engine.drivers.policy(type, dict(options)) if isinstance(type, str) else None
            if core is not None and boolean(alter, "alter"):
                if driven is not None:
                    raise Unsupported("a tube with a driver cannot be altered")
                engine.alter(core, changed_policy(raw, core.policy, type, dict(options)), self._host.now())
            elif core is None or type is not None or options:
                policy = new_policy(type, dict(options)) if driven is None else driven
                core = engine.create_tube(raw, policy, self._host.now())
            return self._tube(core)

    def _tube(self, core: CoreTube) -> Tube:
        if not core.driven:
            return Tube(self, core)
        self._host.engine.attach(core, self._host.now())
        return DrivenTube(self, core)

    def find_tube(self, name: str | bytes) -> Tube:
        raw = to_bytes(name, "a tube's name")
        with self._session.durable, self._session.lock, self._session:
            return self._tube(self._host.engine.tube(raw))

    def tubes(self) -> list[str]:
        with self._session.durable, self._session.lock, self._session:
            return [to_text(name) for name in self._host.engine.tubes]

    def stats(self) -> dict[str, dict[str, int]]:
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            return {to_text(core.name): _states(core) for core in self._host.engine.tubes.values()}

    def overview(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = 0
        while True:
            with self._session.durable, self._session.lock, self._session:
                self._host.advance()
                cores, cursor = self._host.engine.scan_tubes(cursor, _SLICE_JOBS)
                found += [_info(core, self._host.engine.now) for core in cores]
            if cursor == 0:
                return found

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = 0
        while True:
            with self._session.durable, self._session.lock, self._session:
                self._host.advance()
                some, cursor = views.scan_sessions(self._host.engine, cursor, _SLICE_JOBS)
                found += [_session_info(SessionView(self._host.engine, each, _EXAMINED_MAX)) for each in some]
            if cursor == 0:
                return found

    def scan(
        self,
        cursor: int = 0,
        *,
        tube: api.Tube | None = None,
        states: Iterable[StateName] = (),
        count: int = 1_000,
        where: str | None = None,
    ) -> tuple[list[api.Job], int]:
        wanted = sum({1 << _state(state) for state in states}) or -1
        selected = None if tube is None else self._own([tube])[0]
        if where is not None:
            return self._search(integer(cursor, "cursor"), selected, wanted, integer(count, "count"), where)
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            place = None if selected is None else selected._live()
            engine = self._host.engine
            cores, following = engine.scan(integer(cursor, "cursor"), integer(count, "count"), place, wanted)
            return [self._tube(engine.tube_of(core))._job(core) for core in cores], following

    def _search(
        self, cursor: int, selected: Tube | None, wanted: int, count: int, where: str
    ) -> tuple[list[api.Job], int]:
        """Return a page of jobs that meet a condition. Other threads can use the queue between two slices."""
        condition = parse_condition(text(where, "where"))
        check_count(count, "count")
        host = self._host
        search: JobSearch | None = None
        found: list[CoreJob] = []
        while True:
            with self._session.durable, self._session.lock, self._session:
                host.advance()
                if search is None:
                    search = JobSearch(host.engine, condition, cursor, host.engine.now, self._id_of, host.visible_body)
                    search.tube = None if selected is None else selected._live()
                    search.states = wanted
                found += search.step(count - len(found), host.engine.now)
                if len(found) == count or search.is_over():
                    there = [core for core in found if core.state != s.GONE]
                    jobs = [self._tube(host.engine.tube_of(core))._job(core) for core in there]
                    return [*jobs], search.cursor

    def _id_of(self, core: CoreJob) -> bytes:
        return self._host.ids.long(core.id, core.ttl_minutes)

    def job(self, id: str) -> Job:
        with self._session.durable, self._session.lock, self._session:
            core = self._host.find(id)
            return self._tube(self._host.engine.tube_of(core))._job(core)

    def take(self, tubes: Iterable[api.Tube], count: int = 1, timeout: Duration = 0) -> list[api.Job]:
        return [*_take(self, self._own(tubes), count, timeout, None, UNSET)]

    def _own(self, tubes: Iterable[api.Tube]) -> list[Tube]:
        """Return the engine's objects for these tubes. Raise WrongType if one of them belongs to another queue."""
        places = check_tubes(tubes, Tube)
        for tube in places:
            if tube._host is not self._host:
                raise WrongType(f"tube {tube.name!r} belongs to another queue")
        return places

    def ack(self, jobs: Iterable[api.Job]) -> int:
        acked = 0
        handles = list(jobs)
        if not all(isinstance(job, Job) and job._tube._host is self._host for job in handles):
            raise WrongType("give jobs of this queue")
        engine = self._host.engine
        for start in range(0, len(handles), _SLICE_JOBS):
            with self._session.durable, self._session.lock, self._session:
                session, now = self._session.connection.session, self._host.now()
                for job in cast("list[Job]", handles[start : start + _SLICE_JOBS]):
                    engine.refresh(job._core, now)
                    acked += engine.ack(session, job._core, now) == OK
                    job._finished = True
        return acked

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        with self._session.durable, self._session.lock, self._session:
            return self._host.subscribe(callback, None)

    def events(self, start: int = 1) -> Iterator[Event]:
        with self._session.durable, self._session.lock, self._session:
            return self._host.require_journal().events(integer(start, "start"))

    def digests(self, start: int = 1, end: int | None = None) -> Iterator[BlockDigest]:
        with self._session.durable, self._session.lock, self._session:
            journal = self._host.require_journal()
        return journal.digests(integer(start, "start"), NEVER if end is None else integer(end, "end"))

    def history(self, id: str) -> list[Event]:
        with self._session.durable, self._session.lock, self._session:
            journal, number = self._host.require_journal(), plain_number(id)
            if number == NOT_AN_ID:
                number = self._host.number_of(id)
        return journal.history(number)

    def checkpoint(self) -> None:
        with self._session.durable, self._session.lock, self._session:
            journal = self._host.require_journal()
        journal.take_snapshot()

    def read_claim(self, consumer: str, number: int, shard: tuple[int, int] = (0, 1)) -> list[api.Job]:
        host, raw = self._host, to_bytes(consumer, "a consumer")
        index, count = check_shard(shard)
        with self._session.durable, self._session.lock, self._session:
            found = claims.read_claim(host.engine, raw, integer(number, "number"), host.now())
            return [self._tube(host.engine.tube_of(core))._job(core) for core in found.shard(index, count)]

    def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        host, raw = self._host, to_bytes(consumer, "a consumer")
        with self._session.durable, self._session.lock, self._session:
            acked = claims.ack_claims(host.engine, raw, integer(token, "token"), integer(upto, "upto"), host.now())
            more = claims.is_acking(host.engine, raw)
        while more:
            # Ack the jobs of one turn at a time, so that other threads get the lock in between.
            with self._session.durable, self._session.lock, self._session:
                host.advance()
                more = claims.is_acking(host.engine, raw)
        return acked

    def renew_claims(self, consumer: str, *, lease: Seconds | None = None, token: int = 0) -> int:
        host, raw = self._host, to_bytes(consumer, "a consumer")
        lease_ms = None if lease is None else duration_ms(lease, "lease")
        with self._session.durable, self._session.lock, self._session:
            if lease_ms is None:
                lease_ms = claims.last_lease(host.engine, raw)
            return claims.renew_claims(host.engine, raw, integer(token, "token"), lease_ms, host.now())

    def release_claims(self, consumer: str, *, token: int = 0) -> int:
        host, raw = self._host, to_bytes(consumer, "a consumer")
        with self._session.durable, self._session.lock, self._session:
            return claims.release_claims(host.engine, raw, integer(token, "token"), host.now())

    def claim_info(self, consumer: str) -> ClaimInfo:
        host, raw = self._host, to_bytes(consumer, "a consumer")
        with self._session.durable, self._session.lock, self._session:
            host.advance()
            known = host.engine.consumers.get(raw)
            if known is None:
                return ClaimInfo(0, 0, 0, [])
            return ClaimInfo(known.acked, known.newest, known.token, list(known.claims))

    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> Stage:
        return Stage(self, to_bytes(name, "the name of a stage"), expire)

    def publish(self, *stages: api.Stage | str | bytes) -> int:
        return self._finish_closing(self._close_stages(stage_commands.publish, stage_names(stages)))

    def discard(self, *stages: api.Stage | str | bytes) -> int:
        return self._finish_closing(self._close_stages(stage_commands.discard, stage_names(stages)))

    def _close_stages(self, close: Callable[[Engine, list[bytes], int], int], names: list[bytes]) -> Closing:
        """Publish or discard stages, up to a limit of jobs. `_go_on_closing` moves or removes the other jobs."""
        engine = self._host.engine
        with self._session.durable, self._session.lock, self._session:
            jobs = close(engine, names, self._host.now())
            return Closing(jobs, stage_commands.of_names(engine, names))

    def _go_on_closing(self, closing: Closing) -> bool:
        """Move or remove the next jobs of stages that are being closed. Return whether there are more."""
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            return stage_commands.are_closing(closing.left)

    def _finish_closing(self, closing: Closing) -> int:
        # Move the jobs of one turn at a time, so that other threads get the lock in between.
        while stage_commands.are_closing(closing.left) and self._go_on_closing(closing):
            pass
        return closing.jobs

    def create_batch(self, name: str | bytes, *, then: api.FollowUps = (), expire: Seconds | None = None) -> None:
        raw = to_bytes(name, "the name of a batch")
        expire_ms = UNSET if expire is None else duration_ms(expire, "expire")
        names, drafts = self._follow_ups(then)
        with self._session.durable, self._session.lock, self._session:
            batch.create_batch(self._host.engine, raw, names, drafts, expire_ms, self._host.now())

    def seal_batch(self, name: str | bytes) -> int:
        raw = to_bytes(name, "the name of a batch")
        with self._session.durable, self._session.lock, self._session:
            return batch.seal_batch(self._host.engine, raw, self._host.now())

    def batch_info(self, name: str | bytes) -> BatchInfo:
        raw = to_bytes(name, "the name of a batch")
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            stage = batch.find_batch(self._host.engine, raw, self._host.now())
            members = stage.members
            assert members is not None
            state = cast(BatchState, batch.state_of(stage))
            return BatchInfo(state, members.total, members.pending, members.failed, max(stage.count, stage.published))

    def _follow_ups(self, then: api.FollowUps) -> tuple[list[bytes], list[Draft]]:
        """Return the names of the tubes and the drafts of jobs that follow."""
        asked = [follow_up_draft(each) for each in then]
        names = [
            to_bytes(tube, "a tube's name") if isinstance(tube, (str, bytes)) else self._own([tube])[0]._core.name
            for tube, _ in asked
        ]
        return names, [draft for _, draft in asked]

    def session_events(self, after: int = 0, timeout: Duration = 0, *, tube: api.Tube | None = None) -> SessionEvents:
        sleeper = ThreadSleeper()
        wait = self._begin_session_events(after, timeout, tube, sleeper)
        sleep_through(self._host, wait, sleeper)
        return self._session_events(wait)

    def _begin_session_events(
        self, after: int, timeout: Duration, tube: api.Tube | None, sleeper: object
    ) -> SignalWait:
        if tube is not None:
            self._own([tube])
        number, timeout_ms = integer(after, "after"), duration_ms(timeout, "timeout")
        engine = self._host.engine
        with self._session.durable, self._session.lock, self._session:
            connection = self._session.connection
            return attention.wait_signals(engine, connection, number, self._host.now(), timeout_ms, sleeper)

    def _session_events(self, wait: SignalWait) -> SessionEvents:
        """Return the result of a wait for signals. Raise Closed if the session was closed meanwhile."""
        if wait.outcome == CANCELLED:
            raise Closed()
        ids = self._host.ids
        with self._host.lock:
            found = [
                SessionEvent(
                    cast(SignalName, SIGNAL_NAMES[each.kind]),
                    ids.long(each.job.id, each.job.ttl_minutes).decode(),
                    to_text(each.reason),
                )
                for each in wait.signals.since(wait.after)
            ]
            return SessionEvents(max(int(wait.after), int(wait.signals.newest)), found)

    def close(self) -> None:
        self._session.close()


class Closing(NamedTuple):
    """Stages that are being published or discarded."""

    jobs: int  # The number of jobs that they had.
    left: list[CoreStage]  # The stages that may still have jobs.


def stage_names(stages: Iterable[object]) -> list[bytes]:
    """Return the names of stages that are given as stages or as names."""
    names = (each._name if isinstance(each, Stage) else each for each in stages)
    return [to_bytes(name, "the name of a stage") for name in names]


class Stage(api.Stage):
    """A stage of a queue in this process."""

    __slots__ = ("_expire_ms", "_name", "_queue")

    def __init__(self, queue: Queue, name: bytes, expire: Seconds | None) -> None:
        self._queue: Queue = queue
        self._name = name
        self._expire_ms = UNSET if expire is None else duration_ms(expire, "expire")

    @property
    def name(self) -> str:
        return to_text(self._name)

    def put_many(
        self, tube: api.Tube | str | bytes, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[api.Job]:
        place = self._queue.tube(tube) if isinstance(tube, (str, bytes)) else self._queue._own([tube])[0]
        if not isinstance(place, DrivenTube):
            check_keywords("put_many", options, PUT_KEYWORDS, "tube", "bodies")
        asked = place._drafts(bodies, options)
        engine = self._queue._host.engine

        def stage(core: CoreTube, drafts: list[Draft], now: int) -> list[CoreJob]:
            return stage_commands.stage_jobs(engine, self._name, core, drafts, self._expire_ms, now)

        return place._put_all(asked, stage)


class Tube(api.Tube):
    """A tube of a queue in this process."""

    __slots__ = ("_core", "_host", "_queue", "_session")

    def __init__(self, queue: Queue, core: CoreTube) -> None:
        self._queue = queue
        self._session = queue._session
        self._host = queue._host
        self._core = core

    @property
    def name(self) -> str:
        return to_text(self._core.name)

    @property
    def type(self) -> str:
        return self._core.policy.type

    @property
    def policy(self) -> TubePolicy:
        return self._core.policy

    def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> Job:
        if not options and isinstance(body, bytes):
            asked = plain_draft(body)
        else:
            asked = self._draft("put", body, options)
        host = self._host
        session = self._session
        timeout_ms = 0 if timeout == 0 else duration_ms(timeout, "timeout")
        try:
            with session.lock:
                if session.revoked:
                    session.refuse()
                host.engine.outbox.actor = session.connection.session
                try:
                    core = host.engine.put(self._live() if self._core.dropped else self._core, asked, host.now())
                    if host.watched:
                        host.settle(session.shares_frames)
                except BaseException as error:
                    host.settle_after(error)
                    raise
        except Full:
            if timeout_ms == 0:
                raise
            core = self._put_later(asked, timeout_ms)
        except NoSpace:
            if not host.make_room(asked.log_bytes()):
                raise
            with session.lock, session:
                core = host.engine.put(self._live(), asked, host.now())
        finally:
            if session.syncs:
                host.make_durable()
        return self._job(core)

    def put_many(self, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]) -> list[api.Job]:
        return self._put_all(self._drafts(bodies, options), self._host.engine.put_many)

    def _drafts(self, bodies: Iterable[Body | NewJob], options: PutOptions) -> list[Draft]:
        return [self._draft("put_many", body, own) for body, own in each_put(bodies, options)]

    def _put_all(
        self, drafts: list[Draft], put: Callable[[CoreTube, list[Draft], int], list[CoreJob]]
    ) -> list[api.Job]:
        if not drafts:
            return []
        host = self._host
        try:
            with self._session.durable, self._session.lock, self._session:
                cores = put(self._live(), drafts, host.now())
        except NoSpace:
            if not host.make_room(sum(asked.log_bytes() + ROW_ROOM_BYTES for asked in drafts)):
                raise
            with self._session.durable, self._session.lock, self._session:
                cores = put(self._live(), drafts, host.now())
        return [Job(self, core) for core in cores]

    def take(self, timeout: Duration = 0, **options: Unpack[TakeOptions]) -> Job | None:
        if timeout != 0:
            duration_ms(timeout, "timeout")
        if not options:
            host = self._host
            session = self._session
            core: CoreJob | None = None
            delivery = UNSET
            try:
                with session.lock:
                    if session.revoked:
                        session.refuse()
                    try:
                        core = host.engine.take(
                            session.connection.session,
                            self._live() if self._core.dropped else self._core,
                            host.now(),
                        )
                        if core is not None:
                            delivery = core.deliveries
                        if host.watched:
                            host.settle(session.shares_frames)
                    except BaseException as error:
                        host.settle_after(error)
                        raise
                if session.syncs:
                    host.make_durable()
            except BaseException:
                if core is not None:
                    host.undeliver_quietly(PendingDelivery([core], [delivery]))
                raise
            if core is not None:
                if isinstance(core.user_body(), bytes):
                    return self._job(core)
                if found := as_jobs(self._queue, PendingDelivery([core], [delivery])):
                    return found[0]
            elif timeout == 0:
                return None
        jobs = _take(self._queue, [self], 1, timeout, *take_options("take", options))
        return jobs[0] if jobs else None

    def take_many(self, count: int, timeout: Duration = 0, **options: Unpack[TakeOptions]) -> list[api.Job]:
        return [*_take(self._queue, [self], count, timeout, *take_options("take_many", options, "count"))]

    def job(self, id: str) -> Job:
        with self._session.durable, self._session.lock, self._session:
            core = self._host.find(id)
            if core.tube != self._live().slot:
                raise UnknownJob()
        return self._job(core)

    def named(self, name: str | bytes) -> Job:
        with self._session.durable, self._session.lock, self._session:
            raw = to_bytes(name, "a job's name")
            core = self._host.engine.find_named(self._live(), raw, self._host.now())
            if core is None:
                raise UnknownJob()
        return self._job(core)

    def jobs(self, state: StateName, limit: int = 1_000) -> list[api.Job]:
        wanted = _state(state)
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            if not 0 <= integer(limit, "limit") <= BATCH_JOBS_MAX:
                raise OutOfRange(f"limit must be 0 to {BATCH_JOBS_MAX}")
            listing = Listing(self._host.engine, self._live(), wanted, limit, BATCH_JOBS_MAX)
        done = False
        while not done:
            with self._session.durable, self._session.lock, self._session:
                self._live()
                done = listing.step(_SLICE_JOBS)
                found = listing.jobs()
        return [self._job(core) for core in found]

    def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        delay_ms = duration_ms(delay, "delay")
        ttl_ms = UNSET if ttl is None else duration_ms(ttl, "ttl")
        number = check_count(integer(count, "count"), "the number of jobs to kick")
        kicked = 0
        while kicked < number:
            with self._session.durable, self._session.lock, self._session:
                some = min(number - kicked, _SLICE_JOBS)
                dug = self._host.engine.kick(self._live(), some, self._host.now(), delay_ms, ttl_ms)
            kicked += dug
            if dug < some:
                break
        return kicked

    def release_all(self) -> int:
        released = 0
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            taken = list(self._live().taken.items)
        for start in range(0, len(taken), _SLICE_JOBS):
            some = taken[start : start + _SLICE_JOBS]
            with self._session.durable, self._session.lock, self._session:
                released += self._host.engine.release_many(self._live(), some, self._host.now())
        return released

    def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        with self._session.durable, self._session.lock, self._session:
            inward, outward = boolean(puts, "puts"), boolean(takes, "takes")
            self._host.engine.pause(self._live(), inward, outward, self._host.now())

    def alter(self, **options: Unpack[TubeOptions]) -> None:
        check_keywords("alter", options, TUBE_KEYWORDS)
        with self._session.durable, self._session.lock, self._session:
            core = self._live()
            self._host.engine.alter(core, altered(core.policy, **options), self._host.now())

    def truncate(self) -> int:
        with self._session.durable, self._session.lock, self._session:
            emptying = Emptying(self._host.engine, self._live())
        done = False
        while not done:
            with self._session.durable, self._session.lock, self._session:
                self._live()
                done = emptying.step(_SLICE_JOBS, self._host.now())
        return emptying.removed

    def drop(self) -> None:
        with self._session.durable, self._session.lock, self._session:
            self._host.engine.check_drop(self._live(), self._host.now())
        self.truncate()
        with self._session.durable, self._session.lock, self._session:
            self._host.engine.drop(self._live(), self._host.now())

    def info(self) -> dict[str, Any]:
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            return _info(self._live(), self._host.engine.now)

    def stats(self) -> dict[str, int]:
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            return _states(self._live())

    def keys(self, count: int = 100) -> list[dict[str, Any]]:
        check_summary_count(integer(count, "count"))
        counts = KeyCounts(self._live(), count)
        while True:
            with self._session.durable, self._session.lock, self._session:
                self._host.advance()
                self._live()
                if counts.step(_SLICE_JOBS):
                    break
        with self._session.durable, self._session.lock, self._session:
            found = counts.found()
        return [
            {"key": to_text(each.name), "ready": each.ready, "taken": each.taken, "jobs": each.jobs} for each in found
        ]

    def causes(self, count: int = 100) -> list[dict[str, Any]]:
        check_summary_count(integer(count, "count"))
        groups: CauseGroups | None = None
        while True:
            with self._session.durable, self._session.lock, self._session:
                self._host.advance()
                if groups is None:
                    groups = CauseGroups(self._live())
                if groups.step(_SLICE_JOBS):
                    break
        ids = self._host.ids
        return [
            {
                "cause": each.cause,
                "jobs": each.jobs,
                "oldest": each.oldest / 1000,
                "example": ids.long(each.example.id, each.example.ttl_minutes).decode(),
            }
            for each in groups.found()[:count]
        ]

    def events(self) -> dict[str, int]:
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            counts = views.events(self._live(), life=True)
        return {name: count for name, count in zip(s.EVENT_NAMES, counts, strict=True) if count}

    def transitions(self) -> dict[str, int]:
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            counts = views.transitions(self._live(), life=True)
        names = views.TRANSITION_NAMES
        return {f"{names[source]}-{names[target]}": count for (source, target), count in counts.items()}

    def durations(self) -> dict[str, Durations]:
        with self._session.durable, self._session.lock, self._session:
            self._host.advance()
            core = self._live()
            return {"waits": _durations(core.waits), "runs": _durations(core.runs)}

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        with self._session.durable, self._session.lock, self._session:
            return self._host.subscribe(callback, self._live().name)

    def _watch(self, callback: Callable[[WatchedChange], None]) -> Callable[[], None]:
        """Call `callback` with every change of the tube's jobs. The call that makes a change waits for the callback."""
        with self._session.durable, self._session.lock, self._session:
            return self._host.watch(callback, self._live().name)

    def claim(
        self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0
    ) -> list[api.Job] | None:
        host = self._host
        lease_ms = duration_ms(lease, "lease")
        raw = to_bytes(consumer, "a consumer")
        with self._session.durable, self._session.lock, self._session:
            made = claims.claim(
                host.engine,
                raw,
                integer(token, "token"),
                integer(number, "number"),
                self._live(),
                integer(count, "count"),
                lease_ms,
                host.now(),
            )
            if made is None:
                return None
            # A claim that was made before may contain jobs of another tube.
            return [self._queue._tube(host.engine.tube_of(core))._job(core) for core in made.jobs]

    def _put_later(self, asked: Draft, timeout_ms: int) -> CoreJob:
        host = self._host
        sleeper = ThreadSleeper()
        with self._session.durable, self._session.lock, self._session:
            connection = self._session.connection
            wait = host.engine.wait_put(connection, self._live(), asked, host.now(), timeout_ms, sleeper)
        sleep_through(host, wait, sleeper)
        return self._put_at_last(wait)

    def _put_at_last(self, wait: PutWait) -> CoreJob:
        """Return the job of a put that waited for room. Raise Closed, Full, or another error if the put failed."""
        if wait.job is not None:
            return wait.job
        if wait.outcome == CANCELLED:
            raise Closed()
        raise wait.refusal or Full(f"tube {self.name!r} was full all the time; take from it, or wait longer")

    def _draft(self, method: str, body: Body, options: PutOptions) -> Draft:
        return put_draft(method, body, options)

    def _job(self, core: CoreJob) -> Job:
        return Job(self, core)

    def _live(self) -> CoreTube:
        """Return the engine's tube. If it was dropped, look up its name, because it may have been created again."""
        if self._core.dropped:
            self._core = self._host.engine.tube(self._core.name)
        return self._core


def _take(queue: Queue, tubes: list[Tube], count: int, timeout: Duration, key: bytes | None, ttr_ms: int) -> list[Job]:
    number = integer(count, "count")
    left = time_left(queue._host, duration_ms(timeout, "timeout"))
    while handed := _take_cores(queue, tubes, number, left(), key, ttr_ms):
        if jobs := as_jobs(queue, handed):
            return jobs
    return []


def time_left(host: Host, timeout_ms: int) -> Callable[[], int]:
    """Return a function that returns how many milliseconds of a timeout are left."""
    end = host.now() + timeout_ms
    return lambda: NEVER if timeout_ms == NEVER else max(0, end - host.now())


def _take_cores(
    queue: Queue, tubes: list[Tube], number: int, timeout_ms: int, key: bytes | None, ttr_ms: int
) -> PendingDelivery | None:
    host = queue._host
    session = queue._session
    handed = PendingDelivery([])
    wait: TakeWait | None = None
    try:
        with session.durable, session.lock, session:
            cores = [tube._live() for tube in tubes]
            handed = PendingDelivery(take_now(queue, tubes, number, key, ttr_ms))
            if not handed.jobs and timeout_ms > 0:
                sleeper = ThreadSleeper()
                wait = host.engine.wait(session.connection, cores, host.now(), timeout_ms, number, key, ttr_ms, sleeper)
    except BaseException:
        host.undeliver_quietly(handed)
        if wait is not None:
            host.cancel_wait(wait)
        raise
    if wait is not None:
        sleep_through(host, wait, sleeper)
        handed = PendingDelivery(wait.jobs, wait.deliveries)
        if not wait.jobs:
            # There was no job. Raise Closed if the session was closed meanwhile.
            with session.durable, session.lock, session:
                return None
    return handed if handed.jobs else None


def take_now(queue: Queue, tubes: list[Tube], count: int, key: bytes | None, ttr_ms: int) -> list[CoreJob]:
    """Take up to `count` jobs without waiting. The caller holds the lock."""
    host = queue._host
    cores = [tube._live() for tube in tubes]
    return host.engine.take_many(queue._session.connection.session, cores, count, host.now(), key, ttr_ms)


def as_jobs(queue: Queue, handed: PendingDelivery) -> list[Job]:
    """Return handles of jobs that a session has taken, with bodies that are read from disk if necessary.

    Jobs that were deleted meanwhile are left out.
    """
    host = queue._host
    try:
        with host.lock:
            jobs = [queue._tube(host.engine.tube_of(core))._job(core) for core in handed.jobs if core.state != s.GONE]
        return [job for job in jobs if isinstance(job._core.user_body(), bytes) or _fetched(queue, job)]
    except BaseException:
        host.undeliver_quietly(handed)
        raise


def _fetched(queue: Queue, job: Job) -> bool:
    """Read the body of a taken job. Return whether the job still exists."""
    try:
        job._fetch()
    except UnknownJob:
        return False
    except DamagedJournal as error:
        # Bury the job. Otherwise every take would fail on it, and the jobs behind it would not be delivered.
        queue._host.bury_unreadable(queue._session.connection.session, job._core, str(error))
        raise
    return True


class Job(api.Job):
    """A job of a queue in this process. Its properties are current."""

    # The engine never reuses a core job for another job, so it is safe to keep one. Its state is GONE at the end.
    __slots__ = ("_core", "_fetched", "_finished", "_tube")

    def __init__(self, tube: Tube, core: CoreJob) -> None:
        self._tube = tube
        self._core = core
        self._fetched: tuple[BodyRef, bytes] | None = None  # The body, if it was read from disk, and its place there.
        # Whether a call on this object has finished the job. Then the end of its `with` block does nothing.
        self._finished = False

    @property
    def id(self) -> str:
        return self._tube._host.ids.long(self._core.id, self._core.ttl_minutes).decode()

    @property
    def tube(self) -> str:
        if self._core.state == s.GONE:
            return self._tube.name
        return to_text(self._tube._host.engine.tube_of(self._core).name)

    @property
    def state(self) -> str:
        self._tube._host.catch_up()
        return s.STATE_NAMES[self._core.state]

    @property
    def deliveries(self) -> int:
        return self._core.deliveries

    @property
    def nacks(self) -> int:
        return self._core.nacks

    @property
    def body(self) -> Any:
        raw = self._core.user_body()
        if not isinstance(raw, bytes):
            # The body that was read is valid until the job gets another body.
            known = self._fetched
            same = known is not None and raw.is_copy_of(known[0])
            raw = known[1] if known is not None and same else self._tube._host.body_of(self._core)
        return decode_body(raw, self._core.user_body_kind())

    @property
    def headers(self) -> dict[str, str]:
        return headers_from_bytes(self._core.headers())

    def _fetch(self) -> None:
        """Read a body that is on disk, and keep it in this object. So it stays available if the job is deleted."""
        ref = self._core.body
        body = self._tube._host.body_of(self._core)
        if isinstance(ref, BodyRef):
            self._fetched = ref, body

    def __repr__(self) -> str:
        return f"<penstock job {self.id} in {self.tube!r}: {self.state}>"

    def __eq__(self, other: object) -> bool:
        return self._core is other._core if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._core.id)

    def ack(self, *, then: api.FollowUps = ()) -> list[api.Job]:
        if then:
            return self._settle_then(lambda engine, session, core, now: engine.ack(session, core, now), then)
        tube = self._tube
        host = tube._host
        session = tube._session
        try:
            with session.lock:
                if session.revoked:
                    session.refuse()
                host.engine.outbox.actor = session.connection.session
                try:
                    now = host.now()
                    host.engine.refresh(self._core, now)
                    outcome = host.engine.ack(session.connection.session, self._core, now)
                    if host.watched:
                        host.settle(session.shares_frames)
                except BaseException as error:
                    host.settle_after(error)
                    raise
        finally:
            if session.syncs:
                host.make_durable()
        if outcome != OK:
            refuse(outcome)
        self._finished = True
        return []

    def done(self, result: Body, *, ttl: Duration | EllipsisType = ..., then: api.FollowUps = ()) -> list[api.Job]:
        raw, kind = encode_body(result)
        ttl_ms = UNSET if ttl is ... else duration_ms(ttl, "ttl")
        return self._settle_then(
            lambda engine, session, core, now: engine.done(session, core, raw, kind, now, ttl_ms), then
        )

    def release(self, delay: Seconds = 0, **options: Unpack[ReleaseOptions]) -> None:
        check_keywords("release", options, RELEASE_KEYWORDS, "delay")
        driven, key = options.get("options"), options.get("key")
        if driven is not None:
            given = mapping(driven, "options")
            self._do(lambda engine, session, core, now: engine.release_driven(session, core, given, now))
            return
        delay_ms, ttl_ms, level = _return_options(delay, options.get("ttl"), options.get("priority"))
        raw = None if key is None else to_bytes(key, "a key")
        self._do(lambda engine, session, core, now: engine.release(session, core, now, delay_ms, ttl_ms, level, raw))

    def requeue(self) -> None:
        self._do(lambda engine, session, core, now: engine.requeue(session, core, now))

    def nack(self, reason: str = "", *, delay: Seconds | None = None, then: api.FollowUps = ()) -> list[api.Job]:
        raw = to_bytes(reason, "a reason")
        delay_ms = UNSET if delay is None else duration_ms(delay, "delay")
        return self._settle_then(
            lambda engine, session, core, now: engine.nack(session, core, now, raw, delay_ms), then
        )

    def bury(self, reason: str = "", *, then: api.FollowUps = ()) -> list[api.Job]:
        raw = to_bytes(reason, "a reason")
        return self._settle_then(lambda engine, session, core, now: engine.bury(session, core, now, raw), then)

    def touch(self, seconds: Seconds | None = None) -> None:
        more_ms = UNSET if seconds is None else duration_ms(seconds, "the time to add")
        self._do(lambda engine, session, core, now: engine.touch(session, core, now, more_ms))

    def dig(self, delay: Seconds = 0, *, ttl: Duration | None = None, priority: int | None = None) -> None:
        delay_ms, ttl_ms, level = _return_options(delay, ttl, priority)
        self._do(lambda engine, session, core, now: engine.dig(core, now, delay_ms, ttl_ms, level))

    def delete(self) -> None:
        self._do(lambda engine, session, core, now: engine.delete(core, now))

    def snatch(self, delay: Seconds = 0) -> None:
        delay_ms = duration_ms(delay, "delay")
        self._do(lambda engine, session, core, now: engine.snatch(core, now, delay_ms))

    def restart(self, delay: Seconds = 0) -> None:
        delay_ms = duration_ms(delay, "delay")
        self._do(lambda engine, session, core, now: engine.restart(core, now, delay_ms))

    def set_priority(self, priority: int) -> None:
        level = check_priority(integer(priority, "priority"))
        self._do(lambda engine, session, core, now: edits.set_priority(engine, core, now, level))

    def run_now(self) -> None:
        self._do(lambda engine, session, core, now: edits.end_delay(engine, core, now))

    def edit(self, body: Body) -> None:
        raw, kind = encode_body(body)
        self._do(lambda engine, session, core, now: edits.edit(engine, core, now, raw, kind))

    def switch(self, state: StateName, delay: Seconds = 0) -> None:
        target = _state(state)
        delay_ms = duration_ms(delay, "delay")
        self._do(lambda engine, session, core, now: engine.switch(core, target, now, delay_ms))

    def move(self, tube: api.Tube, delay: Seconds = 0) -> None:
        delay_ms = duration_ms(delay, "delay")
        (to,) = self._tube._queue._own([tube])
        self._do(lambda engine, session, core, now: engine.move(session, core, to._live(), now, delay_ms))

    def wait(self, timeout: Duration = None) -> JobOutcome:
        host = self._tube._host
        session = self._tube._session
        sleeper = ThreadSleeper()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.durable, session.lock, session:
            wait = self._wait(timeout_ms, sleeper)
        sleep_through(host, wait, sleeper)
        ended = outcome_of(wait)
        return self._in_history() if ended.outcome == "gone" else ended

    def _in_history(self) -> JobOutcome:
        journal = self._tube._host.journal
        found = [] if journal is None else journal.history(self._core.id)
        return outcome_in((each.event, each.before, each.reason) for each in found)

    def _wait(self, timeout_ms: int, sleeper: object) -> EndWait:
        """Register a wait for the end of the job. The caller holds the lock."""
        host, home = self._tube._host, self._tube._core
        connection = self._tube._session.connection
        return host.engine.wait_end(connection, self._core, host.now(), timeout_ms, sleeper, True, home)

    def cancel(self, reason: str = "") -> bool:
        raw = to_bytes(reason, "a reason")
        self._do(lambda engine, session, core, now: attention.cancel(engine, core, raw, now))
        return self._core.state != s.TAKEN

    def report(self, value: Body) -> None:
        raw, kind = encode_body(value)
        self._do(lambda engine, session, core, now: attention.report_progress(engine, session, core, raw, kind, now))

    def watch(self, after: int = 0, timeout: Duration = None) -> JobProgress:
        host = self._tube._host
        session = self._tube._session
        sleeper = ThreadSleeper()
        timeout_ms = duration_ms(timeout, "timeout")
        with session.durable, session.lock, session:
            wait = self._watch(integer(after, "after"), timeout_ms, sleeper)
        sleep_through(host, wait, sleeper)
        return self._watched(wait)

    def _watch(self, after: int, timeout_ms: int, sleeper: object) -> WatchWait:
        """Register a wait for progress of the job. The caller holds the lock."""
        host, home = self._tube._host, self._tube._core
        connection = self._tube._session.connection
        return attention.watch(host.engine, connection, self._core, after, host.now(), timeout_ms, sleeper, home)

    def _watched(self, wait: WatchWait) -> JobProgress:
        """Return the result of a wait for progress."""
        ended = outcome_of(wait)
        after, end = int(wait.after), int(wait.end)
        values: list[ProgressValue] = []
        with self._tube._host.lock:
            progress = self._tube._host.engine.progress.by_job.get(self._core.id)
            if progress is not None:
                values = [
                    ProgressValue(each.number, decode_body(each.value, each.kind)) for each in progress.since(after)
                ]
                after = max(after, int(progress.newest))
                if end == END_UNKNOWN and progress.end:
                    ended = JobOutcome(cast(Outcome, END_NAMES[progress.end]), to_text(progress.reason))
        if ended.outcome == "gone":
            ended = self._in_history()
        return JobProgress(after, values, None if end == STILL_THERE else ended)

    def history(self) -> list[Event]:
        with self._tube._session.durable, self._tube._session.lock, self._tube._session:
            journal = self._tube._host.require_journal()
        return journal.history(self._core.id)

    def meta(self) -> dict[str, Any]:
        host = self._tube._host
        with self._tube._session.durable, self._tube._session.lock, self._tube._session:
            host.advance()
            core = self._core
            if core.state == s.GONE:
                raise UnknownJob()
            told = views.meta(host.engine, core, host.ids.long(core.id, core.ttl_minutes))
        return {name: _public_property(name, value) for name, value in told.items()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        if kind is None:
            self.ack()
            return
        reason = f"{kind.__name__}: {error}"[:1_000].encode("utf-8", "backslashreplace").decode()
        try:
            if self._core.once:
                # It may be delivered only once, so it cannot return. A buried job can still be inspected.
                self.bury(reason)
            elif issubclass(kind, Exception):
                self.nack(reason)
            else:
                # An interrupt or a cancelled task does not mean that the job failed.
                self.release()
        except CommandError:
            # The session lost the job. The error of the block is more important.
            pass

    def _settle_then(self, settle: Callable[[Engine, Any, CoreJob, int], int], then: api.FollowUps) -> list[api.Job]:
        """Settle the job by a call of `settle`, and put the jobs of `then`. Return these jobs."""
        if not then:
            self._do(settle)
            return []
        queue, host = self._tube._queue, self._tube._host
        names, drafts = queue._follow_ups(then)
        try:
            return self._try_settle_then(settle, names, drafts)
        except NoSpace:
            if not host.make_room(sum(draft.log_bytes() + ROW_ROOM_BYTES for draft in drafts)):
                raise
        return self._try_settle_then(settle, names, drafts)

    def _try_settle_then(
        self, settle: Callable[[Engine, Any, CoreJob, int], int], names: list[bytes], drafts: list[Draft]
    ) -> list[api.Job]:
        queue, host, session = self._tube._queue, self._tube._host, self._tube._session
        engine, core = host.engine, self._core
        jobs: list[api.Job] = []
        with session.durable, session.lock, session:
            now = host.now()
            engine.refresh(core, now)
            owner = session.connection.session
            outcome = follow_ups.hold_refusal(engine, owner, core)
            if outcome == OK:
                tubes = follow_ups.open_tubes(engine, names, drafts, now)
                outcome, cores = follow_ups.settle_then(
                    engine, owner, core, lambda: settle(engine, owner, core, now), tubes, drafts, now
                )
                jobs = [queue._tube(engine.tube_of(each))._job(each) for each in cores]
        if outcome != OK:
            refuse(outcome)
        self._finished = True
        return jobs

    def _do(self, command: Callable[[Engine, Any, CoreJob, int], int]) -> None:
        host = self._tube._host
        session = self._tube._session
        with session.durable, session.lock, session:
            now = host.now()
            host.engine.refresh(self._core, now)
            outcome = command(host.engine, session.connection.session, self._core, now)
        if outcome != OK:
            refuse(outcome)
        self._finished = self._core.state != s.TAKEN


def _return_options(delay: Seconds, ttl: Duration | None, priority: int | None) -> tuple[int, int, int]:
    """Return the delay, the ttl and the priority with which a job returns to its tube, in the units of the engine."""
    return (
        duration_ms(delay, "delay"),
        UNSET if ttl is None else duration_ms(ttl, "ttl"),
        PRIORITY_UNSET if priority is None else check_priority(integer(priority, "priority")),
    )


def outcome_of(wait: EndWait) -> JobOutcome:
    """Return how a wait for the end of a job ended. Raise Closed if the session was closed meanwhile."""
    if wait.outcome == CANCELLED:
        raise Closed()
    return JobOutcome(cast(Outcome, END_NAMES[wait.end]), to_text(wait.reason))


class DrivenTube(Tube):
    """A tube with a driver, which decides the order of the jobs and receives the options of each put unchanged."""

    __slots__ = ()

    def _draft(self, method: str, body: Body, options: Any) -> Draft:
        named = dict(options)
        headers = named.pop("headers", None)
        asked = driver_draft(body, {**mapping(named.pop("options", {}), "options"), **named})
        if headers is not None:
            asked.headers = headers_to_bytes(headers)
        return asked


def _state(name: str) -> int:
    if name not in s.STATE_NAMES[1:]:
        raise OutOfRange(f"a state is one of {', '.join(s.STATE_NAMES[1:])}, not {name!r}")
    return s.STATE_NAMES.index(name)


def _info(core: CoreTube, now: int) -> dict[str, Any]:
    first = core.first_ready(None)
    return {
        "name": to_text(core.name),
        "type": core.policy.type,
        **_states(core),
        "oldest": None if first is None else (now - first.created) / 1000,
        "waiting": core.take_line.length + sum(line.length for line in core.key_lines.values()),
        "keys": 0 if core.keys is None else len(core.keys),
        "paused_in": core.paused_in,
        "paused_out": core.paused_out,
    }


def _session_info(view: SessionView) -> dict[str, Any]:
    return {
        "number": view.number,
        "name": to_text(view.name),
        "user": to_text(view.user),
        "clients": [],
        "held": view.held,
        "holds": {to_text(tube): count for tube, count in view.holds.items()},
        "waiting": {to_text(tube): count for tube, count in view.waiting.items()},
        "grace": view.grace_ms / 1000,
        "since": None,
        "ends": None if view.ends_ms == NEVER else view.ends_ms / 1000,
    }


def _states(core: CoreTube) -> dict[str, int]:
    counts = views.states(core)
    return {s.STATE_NAMES[state]: counts[state] for state in range(1, s.STATES_COUNT)}


def _durations(durations: Histogram | None) -> Durations:
    return durations_from([], 0) if durations is None else durations_from(durations.counts(), durations.total)


def _public_property(name: str, value: bytes | int | None) -> Any:
    """Return a property of a job in the form of `job.meta`: text instead of bytes, and times in seconds."""
    if isinstance(value, bytes):
        return to_text(value)
    return value / 1000 if value is not None and name in views.TIME_FIELDS else value
