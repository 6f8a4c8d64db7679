"""A queue inside your own process: the engine, a clock, and a lock around them.

`penstock.open(":memory:")` gives a `Queue`. A queue may be used from any number of threads. Takes that wait sleep
without polling: one of the sleepers keeps the time for all, and hands that duty on when it leaves.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Literal, Self

from penstock.core import policy as policies
from penstock.core import states as s
from penstock.core import stats
from penstock.core import waits as w
from penstock.core.engine import Engine
from penstock.core.errors import OK, BadId, CommandError, UnknownJob, WrongType, refuse
from penstock.core.ids import HEX_ID_BYTES, LONG_ID_BYTES, NOT_AN_ID, IdForms
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_TEXT, Draft
from penstock.core.job import Job as CoreJob
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET, duration_ms
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube as CoreTube
from penstock.core.tube import key_of
from penstock.core.waits import Wait

Seconds = float | int | None
Body = bytes | bytearray | memoryview | str | int | float | bool | None | list[Any] | dict[str, Any]
TubeType = Literal["fifo", "fifottl", "utube", "disque"]


class _Default:
    """Stands for "not given" where None means "for ever"."""

    def __repr__(self) -> str:
        return "the tube's default"


DEFAULT: Final = _Default()


class Closed(CommandError):
    """The queue is closed; open it again."""

    code = "CLOSED"


class Forked(CommandError):
    """This queue was opened in the parent process; open it in the child, or start the child before opening it."""

    code = "FORKED"


class NoJournal(CommandError):
    """Queues on disk come with the journal, which this version does not have; open ":memory:" instead."""

    code = "NOJOURNAL"


def open(path: str | os.PathLike[str] = ":memory:", *, grace: Seconds = 0) -> Queue:
    """Open a queue in this process.

    `grace` is how long the jobs of a session that was closed wait for it to be taken over by `identify`, in seconds.
    """
    if os.fspath(path) != ":memory:":
        raise NoJournal()
    host = _Host(duration_ms(grace, "grace"))
    return Queue(host)


class _Sleeper:
    """One thread in a waiting take. A bare lock is the cheapest thing to sleep on."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def sleep(self, timeout_ms: int) -> None:
        self._lock.acquire(timeout=-1 if timeout_ms < 0 else min(timeout_ms / 1000, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        if self._lock.locked():
            self._lock.release()


class _Refusal:
    """What stands where a queue's lock was, once the queue may not be used any more."""

    def __init__(self, error: type[CommandError]) -> None:
        self._error = error

    def __enter__(self) -> None:
        raise self._error()

    def __exit__(self, *_: object) -> None: ...


# Queues of this process, for the child of a fork to be told that they are not its own.
_open_queues: weakref.WeakSet[Queue] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for queue in list(_open_queues):
        queue._guard = _Refusal(Forked)


os.register_at_fork(after_in_child=_refuse_in_child)


class _Host:
    """The engine and what surrounds it, shared by all sessions of one process. Everything happens under its lock."""

    def __init__(self, grace_ms: int) -> None:
        self.lock = threading.Lock()
        self.closed = False
        # Wall clock at open plus monotonic time since: deadlines do not move when somebody sets the clock.
        self._offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
        self.outbox = Outbox()
        self.engine = Engine(1, self.now(), self.outbox)
        self.engine.session_grace_ms = grace_ms
        self.ids = IdForms(secrets.token_hex(4).encode(), secrets.token_bytes(32))
        self._sleepers: dict[_Sleeper, None] = {}
        self._keeper: _Sleeper | None = None
        # Until when the keeper sleeps, or -1 when nobody sleeps: then a command has nobody to wake.
        self.keeper_until = -1
        self._sessions = 0

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def settle(self) -> None:
        """Wake whoever a command has served, and the keeper if the next deadline came nearer."""
        if self.outbox.ended_waits:
            for wait in self.outbox.ended_waits:
                sleeper = wait.tag
                assert isinstance(sleeper, _Sleeper)
                sleeper.wake()
            self.outbox.ended_waits.clear()
        if self.engine.deadlines.next_due < self.keeper_until:
            self._wake_keeper()

    def sleep_until_ended(self, wait: Wait, sleeper: _Sleeper) -> None:
        """Sleep until a waiting take ends; keep the time for all while nobody else does."""
        try:
            while True:
                with self.lock:
                    self.engine.advance(self.now())
                    self.settle()
                    if wait.outcome != w.WAITING or self.closed:
                        return
                    self._sleepers[sleeper] = None
                    timeout_ms = self._keep_time(sleeper)
                sleeper.sleep(timeout_ms)
        finally:
            with self.lock:
                self._sleepers.pop(sleeper, None)
                if self._keeper is sleeper:
                    self._keeper = None
                    self.keeper_until = -1
                    for other in self._sleepers:
                        other.wake()
                        break

    def _keep_time(self, sleeper: _Sleeper) -> int:
        """How long this sleeper may sleep: to the next deadline if it keeps the time, else until it is woken."""
        if self._keeper is None:
            self._keeper = sleeper
        if self._keeper is not sleeper:
            return -1
        self.keeper_until = self.engine.deadlines.next_due
        return -1 if self.keeper_until == NEVER else max(0, self.keeper_until - self.now())

    def _wake_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.wake()

    def join(self) -> w.Connection:
        """Let another session in."""
        self._sessions += 1
        return self.engine.connect(secrets.token_bytes(16))

    def leave(self, connection: w.Connection) -> None:
        """Let a session go; with the last one the queue closes."""
        self.engine.disconnect(connection, self.now())
        self._sessions -= 1
        if self._sessions == 0:
            self.closed = True
        self.settle()
        for sleeper in self._sleepers:
            sleeper.wake()


class Queue:
    """A session on a queue: its tubes, and the jobs that this session has taken."""

    _guard: threading.Lock | _Refusal

    def __init__(self, host: _Host) -> None:
        self._host = host
        self._guard = host.lock
        with host.lock:
            self._connection = host.join()
        _open_queues.add(self)

    def session(self) -> Queue:
        """Another session on the same queue: a consumer with jobs of its own. Close it to give them back."""
        with self._guard:
            pass
        return Queue(self._host)

    @property
    def token(self) -> str:
        """The session's name: whoever knows it may take the session over with `identify`."""
        return self._connection.session.token.hex()

    def identify(self, token: str) -> None:
        """Take over the session of this token, with the jobs it holds."""
        try:
            raw = bytes.fromhex(token)
        except ValueError:
            raise WrongType("a session's token is 32 hexadecimal digits") from None
        with self._guard:
            self._host.engine.identify(self._connection, raw, self._host.now())
            self._host.settle()

    def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        ttl: Seconds | _Default = DEFAULT,
        ttr: Seconds | _Default = DEFAULT,
        priority: int | _Default = DEFAULT,
    ) -> Tube:
        """The tube of this name, made if it is not there.

        Without a type, a tube that exists is found as it is, and a new one is a `fifottl`: arrival order, priorities,
        delay, ttl and ttr. `ttl`, `ttr` (seconds) and `priority` are the defaults of its jobs.
        """
        raw = _name(name)
        given = not (ttl is DEFAULT and ttr is DEFAULT and priority is DEFAULT)
        with self._guard:
            engine = self._host.engine
            core = engine.tubes.get(raw)
            if core is None or type is not None or given:
                policy = type if isinstance(type, TubePolicy) else policies.preset(type or "fifottl")
                policy = policies.with_defaults(
                    policy,
                    policy.default_ttl_ms if isinstance(ttl, _Default) else duration_ms(ttl, "ttl"),
                    policy.default_ttr_ms if isinstance(ttr, _Default) else duration_ms(ttr, "ttr"),
                    policy.default_priority if isinstance(priority, _Default) else _integer(priority, "priority"),
                )
                core = engine.create_tube(raw, policy, self._host.now())
                self._host.settle()
        return Tube(self, core)

    def tubes(self) -> list[str]:
        """The names of all tubes, in the order they were made."""
        with self._guard:
            return [_text(name) for name in self._host.engine.tubes]

    def stats(self) -> dict[str, dict[str, int]]:
        """For each tube, how many jobs are in each state."""
        return {name: self.tube(name).stats() for name in self.tubes()}

    def job(self, id: str) -> Job:
        """The job of this id, in either form."""
        with self._guard:
            core = self._find(id)
            tube = Tube(self, self._host.engine.tube_of(core))
            return Job(tube, core)

    def close(self) -> None:
        """End this session: the jobs it has taken go back to their tubes."""
        if isinstance(self._guard, _Refusal):
            return
        with self._guard:
            self._guard = _Refusal(Closed)
            self._host.leave(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, id: str) -> CoreJob:
        if not isinstance(id, str):
            raise WrongType(f"a job's id is a string, not {type(id).__name__}")
        raw = id.encode()
        ids = self._host.ids
        if len(raw) == LONG_ID_BYTES:
            number = ids.parse_long(raw)
        elif len(raw) == HEX_ID_BYTES:
            number = ids.parse_hex(raw)
        else:
            number = NOT_AN_ID
        if number == NOT_AN_ID:
            raise BadId()
        core = self._host.engine.find(number, self._host.now())
        # Looking may have let deadlines pass, and those who wait must hear of it.
        self._host.settle()
        if core is None:
            raise UnknownJob()
        return core


class Tube:
    """One tube, as one session sees it."""

    __slots__ = ("_core", "_host", "_queue")

    def __init__(self, queue: Queue, core: CoreTube) -> None:
        self._queue = queue
        self._host = queue._host
        self._core = core

    @property
    def name(self) -> str:
        """The tube's name."""
        return _text(self._core.name)

    @property
    def type(self) -> str:
        """The type of the tube."""
        return self._core.policy.type

    @property
    def policy(self) -> TubePolicy:
        """What the tube promises."""
        return self._core.policy

    def __repr__(self) -> str:
        return f"<penstock tube {self.name!r} ({self.type})>"

    def put(
        self,
        body: Body,
        *,
        delay: float | int = 0,
        ttl: Seconds | _Default = DEFAULT,
        ttr: Seconds | _Default = DEFAULT,
        priority: int | _Default = DEFAULT,
        key: str | bytes | None = None,
    ) -> Job:
        """Add a job. Bytes and text come back as they are, any other value by way of JSON.

        Times are seconds. `delay`: not before then. `ttl`: not after then, the delay not counted. `ttr`: how long a
        taker may hold it. `priority`: lower is served first. `key`: jobs of one key, in tubes that have keys.
        """
        if ttl is DEFAULT and ttr is DEFAULT and priority is DEFAULT and delay == 0 and key is None:
            draft = Draft(body) if isinstance(body, bytes) else _plain_draft(body)
        else:
            draft = _draft(body, delay, ttl, ttr, priority, key)
        host = self._host
        with self._queue._guard:
            core = host.engine.put(self._live() if self._core.dropped else self._core, draft, host.now())
            if host.keeper_until >= 0:
                host.settle()
        return Job(self, core)

    def put_many(
        self,
        bodies: Iterable[Body],
        *,
        delay: float | int = 0,
        ttl: Seconds | _Default = DEFAULT,
        ttr: Seconds | _Default = DEFAULT,
        priority: int | _Default = DEFAULT,
        key: str | bytes | None = None,
    ) -> list[Job]:
        """Add a job for each body, or none at all."""
        drafts = [_draft(body, delay, ttl, ttr, priority, key) for body in bodies]
        if not drafts:
            return []
        host = self._host
        with self._queue._guard:
            jobs = [Job(self, core) for core in host.engine.put_many(self._live(), drafts, host.now())]
            host.settle()
        return jobs

    def take(
        self,
        timeout: Seconds = 0,
        *,
        key: str | bytes | None = None,
        ttr: Seconds | _Default = DEFAULT,
    ) -> Job | None:
        """Take the next job; wait for one up to `timeout` seconds (None: for ever). None if there was none."""
        if key is None and ttr is DEFAULT:
            queue = self._queue
            host = self._host
            with queue._guard:
                core = host.engine.take(
                    queue._connection.session,
                    self._live() if self._core.dropped else self._core,
                    host.now(),
                )
                if host.keeper_until >= 0:
                    host.settle()
            if core is not None:
                return Job(self, core)
            if timeout == 0:
                return None
        jobs = self.take_many(1, timeout, key=key, ttr=ttr)
        return jobs[0] if jobs else None

    def take_many(
        self,
        count: int,
        timeout: Seconds = 0,
        *,
        key: str | bytes | None = None,
        ttr: Seconds | _Default = DEFAULT,
    ) -> list[Job]:
        """Take up to `count` jobs; wait for the first up to `timeout` seconds (None: for ever)."""
        host = self._host
        queue = self._queue
        timeout_ms = 0 if timeout == 0 else duration_ms(timeout, "timeout")
        ttr_ms = UNSET if isinstance(ttr, _Default) else duration_ms(ttr, "ttr")
        raw_key = None if key is None else _key(key)
        sleeper: _Sleeper | None = None
        with queue._guard:
            core = self._live()
            session = queue._connection.session
            found = host.engine.take_many(session, [core], count, host.now(), raw_key, ttr_ms)
            host.settle()
            if found or timeout_ms == 0:
                return [Job(self, job) for job in found]
            sleeper = _Sleeper()
            wait = host.engine.wait(
                queue._connection, [core], host.now(), timeout_ms, count, raw_key, ttr_ms, sleeper
            )
            host.settle()
        try:
            host.sleep_until_ended(wait, sleeper)
        except BaseException:
            # Interrupted before anybody saw the jobs: they were not delivered.
            with host.lock:
                host.engine.cancel(wait)
                for job in wait.jobs:
                    host.engine.undelivered(job, host.now())
                host.settle()
            raise
        with queue._guard:
            return [Job(self, job) for job in wait.jobs]

    def __iter__(self) -> Iterator[Job]:
        """Take jobs for ever, waiting for each: `for job in tube:`. Finish each one, best by `with job:`."""
        while True:
            job = self.take(timeout=None)
            if job is not None:
                yield job

    def kick(self, count: int = 1) -> int:
        """Dig up to `count` buried jobs up; tell how many there were."""
        with self._queue._guard:
            kicked = self._host.engine.kick(self._live(), _integer(count, "count"), self._host.now())
            self._host.settle()
        return kicked

    def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        """Refuse puts, hold takes back, or both; `pause()` with neither resumes."""
        with self._queue._guard:
            self._host.engine.pause(self._live(), puts, takes, self._host.now())
            self._host.settle()

    def truncate(self) -> int:
        """Remove every job, whatever its state; tell how many there were."""
        removed = 0
        with self._queue._guard:
            left = self._live().total()
        while left > 0:
            # In slices, so that other threads get their turn.
            with self._queue._guard:
                gone = self._host.engine.truncate(self._live(), self._host.now(), min(left, 1_000))
                self._host.settle()
            removed += gone
            left = left - gone if gone else 0
        return removed

    def drop(self) -> None:
        """Remove the tube with its jobs; refused while jobs of it are taken or consumers wait on it."""
        with self._queue._guard:
            self._host.engine.drop(self._live(), self._host.now())
            self._host.settle()

    def stats(self) -> dict[str, int]:
        """How many jobs are in each state now."""
        with self._queue._guard:
            self._host.engine.advance(self._host.now())
            self._host.settle()
            counts = stats.states(self._live())
        return {s.STATE_NAMES[state]: counts[state] for state in range(1, s.STATES_COUNT)}

    def events(self) -> dict[str, int]:
        """How often each thing happened to jobs of this tube since it was opened."""
        with self._queue._guard:
            counts = stats.events(self._live())
        return {name: count for name, count in zip(s.EVENT_NAMES, counts, strict=True) if count}

    def _live(self) -> CoreTube:
        """The tube, looked up again if it was dropped meanwhile: perhaps it was made anew."""
        if self._core.dropped:
            self._core = self._host.engine.tube(self._core.name)
        return self._core


class Job:
    """A job of this queue. Its state and counters are live: they tell how it is now."""

    # A core job is never used for another job, so holding on to one is safe; when it is gone, it says so.
    __slots__ = ("_core", "_tube")

    def __init__(self, tube: Tube, core: CoreJob) -> None:
        self._tube = tube
        self._core = core

    @property
    def id(self) -> str:
        """Its id: 40 characters, the same for ever."""
        return self._tube._host.ids.long(self._core.id, self._core.ttl_minutes).decode()

    @property
    def tube(self) -> str:
        """The name of its tube."""
        return self._tube.name

    @property
    def state(self) -> str:
        """What the job is now: ready, taken, delayed, buried or gone."""
        return s.STATE_NAMES[self._core.state]

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        return self._core.deliveries

    @property
    def nacks(self) -> int:
        """How often a taker said that it failed."""
        return self._core.nacks

    @property
    def body(self) -> Any:
        """What was put: bytes as bytes, text as text, any other value as it came out of JSON."""
        raw = self._core.body
        kind = self._core.body_kind
        assert isinstance(raw, bytes)
        if kind == BODY_BYTES:
            return raw
        return raw.decode() if kind == BODY_TEXT else json.loads(raw)

    def __repr__(self) -> str:
        return f"<penstock job {self.id} in {self.tube!r}: {self.state}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return self._core is other._core

    def __hash__(self) -> int:
        return hash(self._core.id)

    def ack(self) -> None:
        """The work is done: the job goes."""
        tube = self._tube
        host = tube._host
        queue = tube._queue
        with queue._guard:
            now = host.now()
            host.engine.advance(now)
            outcome = host.engine.ack(queue._connection.session, self._core, now)
            if host.keeper_until >= 0:
                host.settle()
        if outcome != OK:
            refuse(outcome)

    def release(
        self,
        delay: float | int = 0,
        *,
        ttl: Seconds | _Default = DEFAULT,
        priority: int | _Default = DEFAULT,
    ) -> None:
        """Give the job back unfinished: to its old place, or after `delay` seconds."""
        delay_ms = duration_ms(delay, "delay")
        ttl_ms = UNSET if isinstance(ttl, _Default) else duration_ms(ttl, "ttl")
        level = PRIORITY_UNSET if isinstance(priority, _Default) else _integer(priority, "priority")
        self._do(lambda engine, session, core, now: engine.release(session, core, now, delay_ms, ttl_ms, level))

    def nack(self) -> None:
        """Give the job back because it failed; that is counted in `nacks`."""
        self._do(lambda engine, session, core, now: engine.nack(session, core, now))

    def bury(self, reason: str = "") -> None:
        """Put the job aside until somebody kicks it, and say why."""
        raw = reason.encode()
        self._do(lambda engine, session, core, now: engine.bury(session, core, now, raw))

    def touch(self, seconds: float | int | None = None) -> None:
        """Ask for more time: so many seconds more, or without a number a whole ttr from now."""
        more_ms = UNSET if seconds is None else duration_ms(seconds, "the time to add")
        self._do(lambda engine, session, core, now: engine.touch(session, core, now, more_ms))

    def dig(self, delay: float | int = 0) -> None:
        """Dig the buried job up: to its old place, or after `delay` seconds."""
        delay_ms = duration_ms(delay, "delay")
        self._do(lambda engine, session, core, now: engine.dig(core, now, delay_ms))

    def delete(self) -> None:
        """Remove the job, whatever its state and whoever holds it."""
        self._do(lambda engine, session, core, now: engine.delete(core, now))

    def meta(self) -> dict[str, Any]:
        """Everything the queue knows about the job, times in seconds since 1970."""
        host = self._tube._host
        with self._tube._queue._guard:
            host.engine.advance(host.now())
            host.settle()
            core = self._core
            if core.state == s.GONE:
                raise UnknownJob()
            tube = host.engine.tube_of(core)
            extra = core.extra
            found: dict[str, Any] = {
                "id": self.id,
                "tube": _text(tube.name),
                "state": s.STATE_NAMES[core.state],
                "priority": core.priority,
                "key": _text(key_of(tube, core)) or None,
                "created": core.created / 1000,
                "expires": None if core.expiry == NEVER else core.expiry / 1000,
                "wakes": None if core.wake == NEVER else core.wake / 1000,
                "ttr": None if core.ttr == NEVER else core.ttr / 1000,
                "deliveries": core.deliveries,
                "nacks": core.nacks,
                "returns": core.returns,
                "buries": 0 if extra is None else extra.buries,
                "reason": None if extra is None or not extra.reason else _text(extra.reason),
                "now": host.engine.now / 1000,
            }
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack when the work is done, nack when it raised; leave alone what was finished by hand."""
        if self.state != "taken":
            return
        if kind is None:
            self.ack()
        else:
            self.nack()

    def _do(self, command: Callable[[Engine, Any, CoreJob, int], int]) -> None:
        """Do something to the job as it is now."""
        host = self._tube._host
        queue = self._tube._queue
        with queue._guard:
            now = host.now()
            host.engine.advance(now)
            try:
                if self._core.state == s.GONE:
                    raise UnknownJob()
                outcome = command(host.engine, queue._connection.session, self._core, now)
            finally:
                host.settle()
        if outcome != OK:
            refuse(outcome)


def _plain_draft(body: Body) -> Draft:
    raw, kind = _encode(body)
    return Draft(raw, body_kind=kind)


def _draft(
    body: Body,
    delay: float | int,
    ttl: Seconds | _Default,
    ttr: Seconds | _Default,
    priority: int | _Default,
    key: str | bytes | None,
) -> Draft:
    raw, kind = _encode(body)
    return Draft(
        raw,
        UNSET if ttl is DEFAULT else duration_ms(ttl, "ttl"),
        UNSET if ttr is DEFAULT else duration_ms(ttr, "ttr"),
        0 if delay == 0 else duration_ms(delay, "delay"),
        PRIORITY_UNSET if isinstance(priority, _Default) else _integer(priority, "priority"),
        None if key is None else _key(key),
        False,
        kind,
    )


def _encode(body: Body) -> tuple[bytes, int]:
    if isinstance(body, bytes):
        return body, BODY_BYTES
    if isinstance(body, str):
        return body.encode(), BODY_TEXT
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body), BODY_BYTES
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode(), BODY_JSON
    except (TypeError, ValueError) as error:
        raise WrongType(f"a body is bytes, text, or a value that JSON can hold: {error}") from None


def _name(name: str | bytes) -> bytes:
    if isinstance(name, str):
        return name.encode()
    if isinstance(name, bytes):
        return name
    raise WrongType(f"a tube's name is text or bytes, not {type(name).__name__}")


def _key(key: str | bytes) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise WrongType(f"a key is text or bytes, not {type(key).__name__}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _integer(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{what} must be a whole number, not {type(value).__name__}")
    return value
