"""A queue on a server, for threads: `penstock.connect()` gives a `Queue` of the same interface as the embedded one.

Any number of threads may share it. A Queue is a session: what it takes is its own, also when its connections are lost
and made again, until it finishes it, is closed, or stays away longer than its grace.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import EllipsisType, TracebackType
from typing import Any, Self, Unpack

from penstock.changes import Change
from penstock.client import commands
from penstock.client.backoff import Backoff
from penstock.client.commands import Call
from penstock.client.facts import JobFacts
from penstock.client.pipeline import Pipeline
from penstock.client.session import Session
from penstock.client.url import Target, target
from penstock.core.errors import (
    CommandError,
    NotOwner,
    NotTaken,
    PenstockError,
    UnknownJob,
    UnknownTube,
    WrongType,
)
from penstock.core.limits import NEVER, UNSET, check_count
from penstock.core.policy import TubePolicy
from penstock.journal.reader import Event
from penstock.options import (
    PUT_KEYWORDS,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    NewJob,
    PutOptions,
    Seconds,
    StateName,
    TubeOptions,
    TubeType,
    boolean,
    check_keywords,
    check_tubes,
    duration_ms,
    encode_body,
    integer,
    to_bytes,
    to_text,
)


def connect(
    url: str | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
    tls: bool | ssl.SSLContext | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    name: str | None = None,
    grace: Seconds | None = None,
    connect_timeout: Seconds | None = None,
    timeout: Duration | None = None,
    retry_for: Duration | None = None,
) -> Queue:
    """Connect to a server: `penstock://[user:password@]host[:port][,host…][?tls=1&…]`, or what PENSTOCK_URL says.

    `tls`, `ca`, `cert`, `key`: speak TLS, who has to certify the server, and our own certificate. `name`: of this
    client. `grace`: how long our jobs wait for us when we are cut off (10 s). `connect_timeout`: how long making a
    connection may take (5 s); `timeout`: how long an answer may (60 s); `retry_for`: how long to try a server that is
    gone (20 s), and also one that is not there yet, if it is given. All of these may also stand in the URL, and for
    ever is `math.inf`.
    """
    return Queue(
        Session(
            target(
                url,
                user=user,
                password=password,
                tls=tls,
                ca=ca,
                cert=cert,
                key=key,
                name=name,
                grace=grace,
                connect_timeout=connect_timeout,
                timeout=timeout,
                retry_for=retry_for,
            )
        )
    )


class Queue:
    """A session on a server: its tubes, and the jobs that this session has taken."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._call = session.call

    @property
    def _target(self) -> Target:
        return self._session.target

    def session(self) -> Queue:
        """Another session on the same server: a consumer with jobs of its own. Close it to give them back."""
        self._session.check_open()
        return Queue(Session(self._target))

    @property
    def token(self) -> str:
        """The session's name: whoever knows it may take the session over with `identify`."""
        return self._session.token

    def identify(self, token: str | None = None, *, grace: Seconds | None = None) -> None:
        """Take over the session of this token, with the jobs it holds; None: stay in this one.

        `grace`: how long the jobs of the session wait for us when we are cut off, in seconds, instead of as `connect`
        says; then they do so also when we close.
        """
        self._session.identify(token, grace)

    def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        alter: bool = False,
        **options: Unpack[TubeOptions],
    ) -> Tube:
        """The tube of this name, made if it is not there.

        Without a type and options, a tube that exists is found as it is. A new one is a `fifottl` in which a worker has
        5 minutes for a job, and a job that fails is tried 5 times and then buried. With a type or options, a tube that
        exists with others is refused (TUBEEXISTS); with `alter`, it gets the given options, as by `tube.alter`.
        """
        raw = to_bytes(name, "a tube's name")
        if boolean(alter, "alter") and (type is not None or options):
            with contextlib.suppress(UnknownTube):
                return Tube(self, raw, self._call(commands.alter_to(raw, type, dict(options))))
        return Tube(self, raw, self._call(commands.tube(raw, type, dict(options))))

    def find_tube(self, name: str | bytes) -> Tube:
        """The tube of this name, if it is there; it is not made."""
        raw = to_bytes(name, "a tube's name")
        return Tube(self, raw, self._call(commands.find_tube(raw)))

    def tubes(self) -> list[str]:
        """The names of all tubes, in the order they were made."""
        return self._call(commands.tubes())

    def stats(self) -> dict[str, dict[str, int]]:
        """For each tube, how many jobs are in each state."""
        found: dict[str, dict[str, int]] = {}
        cursor = b"0"
        while True:
            cursor, some = self._call(commands.scan_tubes(cursor))
            found |= some
            if cursor == b"0":
                return found

    def overview(self) -> list[dict[str, Any]]:
        """Every tube as its `info` tells it, in the order they were made."""
        found: list[dict[str, Any]] = []
        cursor = b"0"
        while True:
            cursor, some = self._call(commands.overview(cursor))
            found += some
            if cursor == b"0":
                return found

    def scan(
        self, cursor: int = 0, *, tube: Tube | None = None, states: Iterable[StateName] = (), count: int = 1_000
    ) -> tuple[list[Job], int]:
        """About `count` jobs from a cursor on, and the cursor to go on from; 0 begins, and 0 is the end.

        Of one tube and in some states, if these are given: then a page may be short, or even empty. A job that is there
        from beginning to end is found; what comes or goes meanwhile may be.
        """
        if tube is not None:
            check_tubes([tube], Tube)
            tube._check_queue(self)
        found, following = self._call(commands.scan(cursor, None if tube is None else tube._raw, states, count))
        return [Job(self, facts) for facts in found], following

    def job(self, id: str) -> Job:
        """The job of this id, in either form, or of a number within a tube: `emails#7`."""
        return Job(self, self._call(commands.peek(id)))

    def take(self, tubes: Iterable[Tube], count: int = 1, timeout: Duration = 0) -> list[Job]:
        """Take up to `count` jobs from several tubes, one of each in turn; wait for the first up to `timeout`."""
        places = check_tubes(tubes, Tube)
        for tube in places:
            tube._check_queue(self)
        return self._take([tube._raw for tube in places], count, timeout, None, UNSET)

    def _take(self, names: list[bytes], count: int, timeout: Duration, key: bytes | None, ttr_ms: int) -> list[Job]:
        wanted = check_count(integer(count, "count"), "the number of jobs to take")
        timeout_ms = duration_ms(timeout, "timeout")
        found = self._wait_for_jobs(names, wanted, timeout_ms, key, ttr_ms)
        jobs = [Job(self, facts) for facts in found]
        try:
            while len(jobs) < wanted and commands.may_be_more(found):
                found = self._call(commands.take(names, wanted - len(jobs), 0, key, ttr_ms))
                jobs += [Job(self, facts) for facts in found]
        except PenstockError:
            pass  # What there is so far is the caller's; what is wrong, the next call will say.
        except BaseException:
            self._session.disown([job.id for job in jobs])
            raise
        return jobs

    def _wait_for_jobs(
        self, names: list[bytes], wanted: int, timeout_ms: int, key: bytes | None, ttr_ms: int
    ) -> list[JobFacts]:
        end = time.monotonic() + timeout_ms / 1000
        while True:
            found = self._call(commands.take(names, wanted, timeout_ms, key, ttr_ms))
            if found or timeout_ms == 0:
                return found
            # A take may be ended before its time: somebody wants to know what this session holds.
            if timeout_ms != NEVER:
                timeout_ms = max(0, int((end - time.monotonic()) * 1000))
                if timeout_ms == 0:
                    return []

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back, from a thread of its own, on every change of every job; call what this returns to end it."""
        return self._subscribe(callback, None)

    def _subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        if not callable(callback):
            raise WrongType(f"a subscriber is a function, not {type(callback).__name__}")
        if tube is not None:
            self._call(commands.find_tube(tube))
        return _Subscription(self._session, callback, tube, self._call(commands.journal_head())).cancel

    def events(self, start: int = 1) -> Iterator[Event]:
        """Everything that happened on this server from a position on, as far as it is durable. It needs a journal."""
        first = self._call(commands.journal_events(start, None))
        return self._events(*first)

    def _events(self, position: int, found: list[Event]) -> Iterator[Event]:
        while found:
            yield from found
            position, found = self._call(commands.journal_events(position, None))

    def history(self, id: str) -> list[Event]:
        """What happened to the job of this id, whether it is there or gone, as far as it is kept and durable."""
        return self._call(commands.history(id))

    def checkpoint(self) -> None:
        """Let the server take a snapshot now, and remove history that is not to be kept."""
        self._call(commands.checkpoint())

    def read_claim(self, consumer: str, number: int, shard: tuple[int, int] = (0, 1)) -> list[Job]:
        """The jobs of a claim as it was given out; of shard `(i, n)`, every n-th of them from the i-th on."""
        return [Job(self, facts) for facts in self._call(commands.read_claim(consumer, number, shard))]

    def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        """Ack all jobs of all claims of a consumer up to this number; tell how many jobs."""
        return self._call(commands.ack_claims(consumer, upto, token))

    def execute(self, *words: str | bytes | int) -> Any:
        """Send any command, and give its answer as it came. If that is lost, nobody knows whether it was done."""
        return self._call(commands.execute(words))

    def renew_claims(self, consumer: str, *, lease: Seconds | None = None, token: int = 0) -> int:
        """Let the leases of all claims of a consumer begin anew, as long as the last one if it is not said."""
        return self._call(commands.renew_claims(consumer, lease, token))

    def release_claims(self, consumer: str, *, token: int = 0) -> int:
        """End all claims of a consumer, whose jobs go back to their tubes; tell how many claims."""
        return self._call(commands.release_claims(consumer, token))

    def claim_info(self, consumer: str) -> ClaimInfo:
        """How far a consumer is: the last number it acked, its newest, its token, and which are open."""
        return self._call(commands.claim_info(consumer))

    def pipeline(self) -> Pipeline:
        """Commands that are sent together, in one round trip: `with queue.pipeline() as p:`."""
        return Pipeline(self._session)

    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> Stage:
        """A stage: jobs that are put into it are seen when it is published, all at once, or never.

        `expire`: how long it waits for another put, or to be published, in seconds; a day if it is not said.
        """
        return Stage(self, to_bytes(name, "the name of a stage"), expire)

    def publish(self, *stages: Stage | str | bytes) -> int:
        """Publish all of these stages, or none; tell how many jobs. Doing so again does nothing, and tells the same."""
        return self._close_stages(b"PUBLISH", stages)

    def discard(self, *stages: Stage | str | bytes) -> int:
        """Remove the jobs of stages that were not published; tell how many."""
        return self._close_stages(b"DISCARD", stages)

    def _close_stages(self, word: bytes, stages: Iterable[Stage | str | bytes]) -> int:
        names = [each._name if isinstance(each, Stage) else each for each in stages]
        return self._call(commands.close_stages(word, names))

    def close(self) -> None:
        """End this session: the jobs it has taken go back to their tubes."""
        self._session.close()

    def __repr__(self) -> str:
        return f"<penstock queue at {self._target}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Subscription:
    """A thread that asks for what happened, and tells it."""

    def __init__(self, session: Session, callback: Callable[[Change], None], tube: bytes | None, position: int) -> None:
        self._session = session
        self._callback = callback
        self._tube = tube
        self._position = position
        self._cancelled = False
        threading.Thread(target=self._run, name="penstock-subscription", daemon=True).start()

    def cancel(self) -> None:
        """Tell no more."""
        self._cancelled = True

    def _run(self) -> None:
        search = Backoff(None)
        while not self._cancelled:
            call = commands.journal_events(self._position, self._tube, commands.EVENTS_WAIT_MS)
            try:
                self._position, found = self._session.call(call)
            except CommandError:
                return  # The session is closed, or what was to be told is trimmed.
            except PenstockError:
                # The server is gone; it was looked for, and is looked for again.
                time.sleep(search.pause() or 0)
                continue
            search = Backoff(None)
            for event in found:
                change = commands.change(event)
                if change is not None and not self._cancelled:
                    self._tell(change)

    def _tell(self, change: Change) -> None:
        try:
            self._callback(change)
        except Exception as error:
            # A subscriber that fails harms nobody else, not even where warnings raise.
            try:
                warnings.warn(f"a subscriber of the queue raised {error!r}", RuntimeWarning, stacklevel=1)
            except Warning:
                pass


class Stage:
    """Jobs to be published together. As a context it is published at its end, or discarded where that is an error."""

    __slots__ = ("_expire_ms", "_name", "_queue")

    def __init__(self, queue: Queue, name: bytes, expire: Seconds | None) -> None:
        self._queue = queue
        self._name = name
        self._expire_ms = UNSET if expire is None else duration_ms(expire, "expire")

    @property
    def name(self) -> str:
        """The stage's name."""
        return to_text(self._name)

    def __repr__(self) -> str:
        return f"<penstock stage {self.name!r}>"

    def put(self, tube: Tube | str | bytes, body: Body, **options: Unpack[PutOptions]) -> Job:
        """Put a job for a tube, to be seen when the stage is published: its delay and its ttl begin then."""
        check_keywords("put", options, PUT_KEYWORDS)
        return (self.put_many(tube, [body], **options))[0]

    def put_many(
        self, tube: Tube | str | bytes, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[Job]:
        """Put a job for each body, or none at all. A `NewJob` is a body with options of its own, such as its key."""
        if isinstance(tube, Tube):
            tube._check_queue(self._queue)
        place = tube._raw if isinstance(tube, Tube) else to_bytes(tube, "a tube's name")
        call = commands.stage(self._name, place, self._expire_ms, bodies, options)
        return [] if call is None else [Job(self._queue, facts) for facts in self._queue._call(call)]

    def publish(self) -> int:
        """Let its jobs be in their tubes, all at once; tell how many. Doing so again does nothing."""
        return self._queue.publish(self)

    def discard(self) -> int:
        """Remove its jobs; tell how many."""
        return self._queue.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.publish()
        else:
            self.discard()


class Tube:
    """One tube, as one session sees it."""

    __slots__ = ("_call", "_policy", "_queue", "_raw")

    def __init__(self, queue: Queue, raw: bytes, policy: TubePolicy) -> None:
        self._queue = queue
        self._call = queue._call
        self._raw = raw
        self._policy = policy

    @property
    def name(self) -> str:
        """The tube's name."""
        return to_text(self._raw)

    @property
    def type(self) -> str:
        """The type of the tube."""
        return self._policy.type

    @property
    def policy(self) -> TubePolicy:
        """What the tube promised when this client heard of it last."""
        return self._policy

    def __repr__(self) -> str:
        return f"<penstock tube {self.name!r} ({self.type})>"

    def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> Job:
        """Add a job: see PutOptions for what it may be given.

        Bytes and text come back as they are, any other value by way of JSON. If the tube is full, wait for room up to
        `timeout` seconds (None: for ever). With `unique` or `dedup`, the job that is there already is returned. With
        `dedup`, a put whose answer is lost is repeated; any other raises ConnectionLost then.
        """
        given = commands.put_options(self._policy, options)
        return Job(self._queue, self._call(commands.put(self._raw, body, timeout, given)))

    def put_many(self, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]) -> list[Job]:
        """Add a job for each body, or none at all. A `NewJob` is a body with options of its own, such as its key."""
        call = commands.put_many(self._raw, bodies, options)
        return [] if call is None else [Job(self._queue, facts) for facts in self._call(call)]

    def take(self, timeout: Duration = 0, *, key: str | bytes | None = None, ttr: Duration | None = None) -> Job | None:
        """Take the next job; wait for one up to `timeout` seconds (None: for ever). None if there was none.

        `key`: only of this key. `ttr`: hold it this long instead of its own time.
        """
        if timeout == 0 and key is None and ttr is None:
            found = self._call(commands.take_one(self._raw))
            return Job(self._queue, found[0]) if found else None
        jobs = self.take_many(1, timeout, key=key, ttr=ttr)
        return jobs[0] if jobs else None

    def take_many(
        self,
        count: int,
        timeout: Duration = 0,
        *,
        key: str | bytes | None = None,
        ttr: Duration | None = None,
    ) -> list[Job]:
        """Take up to `count` jobs; wait for the first up to `timeout` seconds (None: for ever)."""
        ttr_ms = UNSET if ttr is None else duration_ms(ttr, "ttr")
        raw_key = None if key is None else to_bytes(key, "a key")
        return self._queue._take([self._raw], count, timeout, raw_key, ttr_ms)

    def __iter__(self) -> Iterator[Job]:
        """Take jobs for ever, waiting for each: `for job in tube:`. Finish each one, best by `with job:`."""
        while True:
            job = self.take(timeout=None)
            if job is not None:
                yield job

    def job(self, id: str) -> Job:
        """The job of this id, if it is in this tube."""
        facts = self._call(commands.peek(id))
        if facts.raw_tube != self._raw:
            raise UnknownJob()
        return Job(self._queue, facts)

    def named(self, name: str | bytes) -> Job:
        """The job that was put under this name."""
        return Job(self._queue, self._call(commands.named(self._raw, name)))

    def jobs(self, state: StateName, limit: int = 1_000) -> list[Job]:
        """Up to `limit` jobs that are in a state, in the order they would be served."""
        return [Job(self._queue, facts) for facts in self._call(commands.list_jobs(self._raw, state, limit))]

    def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        """Dig up to `count` buried jobs up, with a delay or another ttl if given; tell how many there were."""
        return self._call(commands.kick(self._raw, count, delay, ttl))

    def release_all(self) -> int:
        """Give every taken job back, whoever holds it; tell how many there were."""
        return self._call(commands.release_all(self._raw))

    def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        """Refuse puts, hold takes back, or both; `pause()` with neither resumes."""
        self._call(commands.pause(self._raw, puts, takes))

    def alter(self, **options: Unpack[TubeOptions]) -> None:
        """Change what the tube promises while it runs."""
        self._policy = self._call(commands.alter(self._raw, dict(options)))

    def truncate(self) -> int:
        """Remove every job, whatever its state; tell how many there were."""
        return self._call(commands.truncate(self._raw))

    def drop(self) -> None:
        """Remove the tube with its jobs; refused while jobs of it are taken or clients wait on it."""
        self._call(commands.drop(self._raw))

    def info(self) -> dict[str, Any]:
        """How the tube is now: jobs in each state, the age of the next job in seconds, who waits, what is paused."""
        return self._call(commands.tube_stats(self._raw, commands.info))

    def stats(self) -> dict[str, int]:
        """How many jobs are in each state now."""
        return self._call(commands.tube_stats(self._raw, commands.states))

    def events(self) -> dict[str, int]:
        """How often each thing happened to jobs of this tube."""
        return self._call(commands.tube_stats(self._raw, lambda answer: commands.counts(answer[b"events"])))

    def transitions(self) -> dict[str, int]:
        """How often jobs of this tube went from one state to another, as "ready-taken"."""
        return self._call(commands.tube_stats(self._raw, lambda answer: commands.counts(answer[b"transitions"])))

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back, from a thread of its own, on every change of a job here; call what this returns to end it."""
        return self._queue._subscribe(callback, self._raw)

    def claim(self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0) -> list[Job] | None:
        """Claim number n of a consumer: the same jobs on every call until it is acked; None if there is nothing.

        The first claim is number 1. A consumer that comes with a greater token takes over from the one before.
        """
        found = self._call(commands.claim(self._raw, consumer, number, count, lease, token))
        return None if found is None else [Job(self._queue, facts) for facts in found]

    def _check_queue(self, queue: Queue) -> None:
        """Refuse to be used with another server than the tube is on."""
        if self._queue._target is not queue._target:
            raise WrongType(f"tube {self.name!r} belongs to another queue")


class Job:
    """A job on a server. `state` asks how it is now; the rest is as it was when this client heard of it last."""

    __slots__ = ("_facts", "_finished", "_queue")

    def __init__(self, queue: Queue, facts: JobFacts) -> None:
        self._queue = queue
        self._facts = facts
        self._finished = False  # By hand, through this object: then leaving its `with` block does nothing more.

    @property
    def id(self) -> str:
        """Its id: 40 characters, the same for ever."""
        return self._facts.id

    @property
    def tube(self) -> str:
        """The name of its tube."""
        return to_text(self._facts.raw_tube)

    @property
    def state(self) -> str:
        """What the job is now: ready, taken, delayed, buried, done, zombie or gone. This asks the server."""
        try:
            return self._queue._call(commands.state_of(self.id))
        except UnknownJob:
            return "gone"

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        return self._facts.deliveries

    @property
    def nacks(self) -> int:
        """How often a taker said that it failed."""
        return self._facts.nacks

    @property
    def body(self) -> Any:
        """What was put: bytes as bytes, text as text, any other value as it came out of JSON."""
        if self._facts.is_guess:
            # A put with unique or dedup gives the job that was there before, and that may have had another body.
            try:
                self._facts = self._queue._call(commands.peek(self.id))
            except UnknownJob:
                self._facts.is_guess = False
        return self._facts.body()

    def __repr__(self) -> str:
        return f"<penstock job {self.id} in {self.tube!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def ack(self) -> None:
        """The work is done: the job goes, or is kept if its tube keeps acked jobs."""
        self._finish(commands.ack(self.id))

    def done(self, result: Body, *, ttl: Duration | EllipsisType = ...) -> None:
        """The work is done, and its result takes the place of the body for `ttl` seconds (None: for ever).

        Without a ttl, the result is kept for a day, or for ever if the tube keeps acked jobs.
        """
        call = commands.done(self.id, result, ttl)
        self._finish(call)
        self._facts.is_guess = False
        self._facts.raw_body, self._facts.body_kind = encode_body(result)

    def release(
        self,
        delay: Seconds = 0,
        *,
        ttl: Duration | None = None,
        priority: int | None = None,
        key: str | bytes | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Give the job back unfinished: to its old place, or after `delay` seconds, with what else is given changed.

        `options`: in a tube with a driver, what the driver gets, as it is.
        """
        self._finish(commands.release(self.id, delay, ttl, priority, key, options, self._hold()))

    def requeue(self) -> None:
        """Give the job back to behind all others."""
        self._finish(commands.requeue(self.id, self._hold()))

    def nack(self, reason: str = "") -> None:
        """Give the job back because it failed: its retry policy says what becomes of it."""
        self._finish(commands.nack(self.id, reason, self._hold()))
        self._facts.nacks += 1

    def bury(self, reason: str = "") -> None:
        """Put the job aside until somebody kicks it, and say why."""
        self._finish(commands.bury(self.id, reason, self._hold()))

    def touch(self, seconds: Seconds | None = None) -> None:
        """Ask for more time: so many seconds more, or without a number a whole ttr from now."""
        self._queue._call(commands.touch(self.id, seconds))

    def dig(self, delay: Seconds = 0, *, ttl: Duration | None = None, priority: int | None = None) -> None:
        """Dig the buried job up: to its old place, or after `delay` seconds, with what else is given changed."""
        self._finish(commands.dig(self.id, delay, ttl, priority))

    def delete(self) -> None:
        """Remove the job, whatever its state and whoever holds it."""
        self._finish(commands.delete(self.id))

    def snatch(self, delay: Seconds = 0) -> None:
        """Take the job away from whoever holds it: back to its place, or after `delay` seconds."""
        self._finish(commands.snatch(self.id, delay))

    def restart(self, delay: Seconds = 0) -> None:
        """Bring the job back that is delayed, or was acked and kept."""
        self._finish(commands.restart(self.id, delay))

    def switch(self, state: StateName, delay: Seconds = 0) -> None:
        """Turn the job, if it is not taken, into another state; delayed and zombie need a delay."""
        self._finish(commands.switch(self.id, state, delay))

    def move(self, tube: Tube, delay: Seconds = 0) -> None:
        """Move the job to the end of another tube; it keeps its id, its body and its ttl."""
        check_tubes([tube], Tube)
        tube._check_queue(self._queue)
        self._finish(commands.move(self.id, tube._raw, delay))
        self._facts.raw_tube = tube._raw

    def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job is acked, buried, dead-lettered, dropped, expired or deleted, or the time is over.

        The outcome is true if the job was acked. Otherwise it has the reason, if there is one.
        """
        ended = self._queue._call(commands.wait(self.id, self._facts.raw_tube, timeout))
        if ended.outcome != "gone":
            return ended
        try:
            return self._queue._call(commands.ended_before(self.id))
        except CommandError:
            return ended  # The server keeps no history of it, or does not show it to this user.

    def history(self) -> list[Event]:
        """Everything that happened to the job, also when it is gone. It needs a server with a journal."""
        return self._queue._call(commands.history(self.id))

    def meta(self) -> dict[str, Any]:
        """Everything the server knows about the job, times in seconds since 1970."""
        return self._queue._call(commands.job_meta(self.id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack when the work is done, nack when it raised, release when interrupted; leave alone what was finished."""
        if self._finished:
            return
        try:
            self._finish(commands.leave(self._facts, kind, error))
        except PenstockError:
            # The job is not ours any more, or the server is gone. What went wrong first is what the caller has to hear.
            if kind is None:
                raise

    def _hold(self) -> int:
        """Which delivery of the job this object stands for; 0 if it was not taken when it was heard of, or is over."""
        return 0 if self._finished else self._facts.hold()

    def _finish(self, call: Call[None]) -> None:
        """Do something after which the job is not held any more."""
        try:
            self._queue._call(call)
        except (UnknownJob, NotTaken, NotOwner):
            self._queue._session.belongings.remove(self.id, call.hold())
            raise
        self._queue._session.belongings.remove(self.id, call.hold())
        self._finished = True
