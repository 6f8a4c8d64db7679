"""The public types: what `open_async` and `connect_async` return.

A queue in this process (`embedded_async.py`) and a queue on a server (`client/async_queue.py`) implement these types.
Code that is written for `penstock.AsyncQueue` works with both. Every method is documented here and nowhere else. The
blocking types are generated from the asyncio types.

Times are numbers of seconds, or a `timedelta`. Where a `Duration` is accepted, None means no limit. Every call raises
`Closed` after `close`. On a server, every call can raise `NoServer` if no server answers, and `ConnectionLost` if the
connection broke before the reply and the call cannot be repeated safely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from types import EllipsisType, TracebackType
from typing import Any, Self, Unpack

from penstock import api
from penstock.changes import Change
from penstock.core.errors import Unsupported
from penstock.core.policy import TubePolicy
from penstock.durations import Durations
from penstock.journal.history.block import BlockDigest
from penstock.journal.history.reader import Event
from penstock.keywords import Interface, check_keywords
from penstock.options import (
    PUT_KEYWORDS,
    BatchInfo,
    Body,
    ClaimInfo,
    Duration,
    JobOutcome,
    JobProgress,
    NewJob,
    PutOptions,
    ReleaseOptions,
    Seconds,
    SessionEvents,
    StateName,
    TakeOptions,
    TubeOptions,
    TubeType,
)

# async only: begin
_NO_SYNC = "only a queue in this process has .sync; use penstock.connect() in synchronous code"
# async only: end


# Jobs that are put together with the end of another one: pairs of a tube, or its name, and a body.
AsyncFollowUps = Iterable[tuple["AsyncTube | str | bytes", Body | NewJob]]


class AsyncQueue(Interface, ABC):
    """A session on a queue. It gives access to the tubes and holds the jobs that it takes.

    A job that a session has taken belongs to it until the session finishes the job or ends, or the job's `ttr` passes.
    """

    # async only: begin
    @property
    def sync(self) -> api.Queue:
        """This session with blocking methods, for synchronous code. A queue on a server raises Unsupported."""
        raise Unsupported(_NO_SYNC)

    # async only: end
    @abstractmethod
    async def session(self) -> AsyncQueue:
        """Open another session on the same queue, for a consumer with jobs of its own.

        Close the session to return its jobs to their tubes.
        """

    @property
    @abstractmethod
    def token(self) -> str:
        """The password of this session: 32 hexadecimal digits. Pass it to `identify` to resume the session later."""

    @abstractmethod
    async def identify(self, token: str | None = None, *, grace: Seconds | None = None) -> None:
        """Resume the session that has this token, with the jobs that it holds. If `token` is None, keep this session.

        `grace` replaces the grace time of the session: for how many seconds its jobs stay taken after the connection is
        lost or the queue is closed, so that the session can be resumed. A queue in a directory keeps the grace time
        across restarts.

        Raises UnknownSession if that session has ended.
        """

    @abstractmethod
    async def tube(
        self,
        name: str | bytes,
        type: TubeType | TubePolicy | None = None,
        *,
        alter: bool = False,
        **options: Unpack[TubeOptions],
    ) -> AsyncTube:
        """Return the tube of this name. Create it if it does not exist.

        Without a type and options, an existing tube is returned unchanged. A new tube is a `fifottl`: a worker has 5
        minutes for a job, and a job that fails is tried 5 times and then buried. See TubeOptions for the options.

        Raises TubeExists if the tube exists with another type or other options. With `alter`, an existing tube gets the
        given options instead, as with `tube.alter`.
        """

    @abstractmethod
    async def find_tube(self, name: str | bytes) -> AsyncTube:
        """Return the tube of this name. Raises UnknownTube if it does not exist."""

    @abstractmethod
    async def tubes(self) -> list[str]:
        """Return the names of all tubes, in the order of their creation."""

    @abstractmethod
    async def stats(self) -> dict[str, dict[str, int]]:
        """Return for each tube the number of jobs in each state: `{"emails": {"ready": 3, "taken": 1, …}}`."""

    @abstractmethod
    async def overview(self) -> list[dict[str, Any]]:
        """Return the `info` of every tube, in the order of their creation."""

    @abstractmethod
    async def sessions(self) -> list[dict[str, Any]]:
        """Return all sessions that are open or hold jobs.

        `held` is the number of jobs that a session holds, `holds` their numbers by tube (of the first 1,000 jobs), and
        `waiting` the number of waiting takes by tube. A session without connections ends at the time `ends`. `clients`
        are its connections to a server: their addresses are shown to administrators only. Jobs that every session can
        ack belong to no session.
        """

    @abstractmethod
    async def scan(
        self,
        cursor: int = 0,
        *,
        tube: AsyncTube | None = None,
        states: Iterable[StateName] = (),
        count: int = 1_000,
        where: str | None = None,
    ) -> tuple[list[AsyncJob], int]:
        """Return a page of about `count` jobs, and the cursor of the next page, which is 0 after the last page.

        Start with cursor 0. With `tube` or `states`, a page has only matching jobs, and can be empty. A scan returns
        every job that exists during the whole scan. It can miss jobs that are added or removed during the scan.

        With `where`, a page has only jobs that meet this condition, for example `body.user == 42 and nacks > 3`. A call
        examines at most 100,000 jobs, so that it does not take long. docs/reference/search.md describes conditions.
        """

    @abstractmethod
    async def job(self, id: str) -> AsyncJob:
        """Return the job with this id. The id can also be a tube and the number of a job in it: `emails#7`.

        Raises UnknownJob if there is no such job, and BadId if `id` is not a valid id.
        """

    @abstractmethod
    async def take(self, tubes: Iterable[AsyncTube], count: int = 1, timeout: Duration = 0) -> list[AsyncJob]:
        """Take up to `count` jobs from several tubes, one from each tube in turn.

        If no job is ready, wait up to `timeout` seconds for the first one; None waits without limit. Return an empty
        list if there was still no job.
        """

    @abstractmethod
    async def ack(self, jobs: Iterable[AsyncJob]) -> int:
        """Finish several jobs successfully, with one command. Return how many of them this session still held.

        The other ones are skipped, because their ttr has passed or another call has finished them.
        """

    @abstractmethod
    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` with every change of every job, in order. Return a function that ends the subscription.

        The callback does not run in the caller's thread or task. If it raises, the error becomes a RuntimeWarning and
        the next change is delivered.
        """

    @abstractmethod
    async def events(self, start: int = 1) -> AsyncIterator[Event]:
        """Return an iterator over the durable history of this queue, starting at journal position `start`.

        Raises NoJournal if the queue has no journal, and Trimmed if the history at `start` was deleted.
        """

    @abstractmethod
    async def digests(self, start: int = 1, end: int | None = None) -> AsyncIterator[BlockDigest]:
        """Return an iterator over the digests of the durable history from journal position `start` up to `end`.

        Without `end`, it ends where the durable history ends. A copy of the history with the same digests has the same
        rows. Raises NoJournal if the queue has no journal, and Trimmed if the history at `start` was deleted.
        """

    @abstractmethod
    async def history(self, id: str) -> list[Event]:
        """Return the events of the job with this id, oldest first, even if the job no longer exists.

        The list has only events that are durable and that retention has not deleted. Raises NoJournal if the queue has
        no journal.
        """

    @abstractmethod
    async def checkpoint(self) -> None:
        """Write a snapshot and delete expired history now, without waiting for the background maintenance.

        Raises NoJournal if the queue has no journal.
        """

    @abstractmethod
    async def read_claim(self, consumer: str, number: int, shard: tuple[int, int] = (0, 1)) -> list[AsyncJob]:
        """Return the jobs of claim `number` of a consumer, or one shard of them.

        Shard `(i, n)` is every n-th job, starting with the job of index `i`. The first index is 0. Raises ClaimGone if
        the claim was acked, or ended because its lease has run out.
        """

    @abstractmethod
    async def ack_claims(self, consumer: str, upto: int, *, token: int = 0) -> int:
        """Ack all jobs of the consumer's claims up to number `upto`. Return the number of jobs.

        `token` is the fencing token of `tube.claim`. Raises Fenced if the consumer has used a greater one.
        """

    @abstractmethod
    async def renew_claims(self, consumer: str, *, lease: Seconds | None = None, token: int = 0) -> int:
        """Restart the leases of all claims of a consumer that have not ended. Return the number of claims.

        Without `lease`, the new lease is as long as the last one. `token` is the fencing token of `tube.claim`. Raises
        Fenced if the consumer has used a greater one.
        """

    @abstractmethod
    async def release_claims(self, consumer: str, *, token: int = 0) -> int:
        """End all claims of a consumer and return their unfinished jobs to the tubes. Return the number of claims.

        `token` is the fencing token of `tube.claim`. Raises Fenced if the consumer has used a greater one.
        """

    @abstractmethod
    async def claim_info(self, consumer: str) -> ClaimInfo:
        """Return the progress of a consumer: last acked claim, newest claim, fencing token, and claims not yet acked.

        For an unknown consumer, all numbers are 0.
        """

    @abstractmethod
    def stage(self, name: str | bytes, *, expire: Seconds | None = None) -> AsyncStage:
        """Return a stage. Its jobs appear in their tubes together when the stage is published, and not before.

        An unpublished stage is discarded `expire` seconds after the last put into it. The default is a day.
        """

    @abstractmethod
    async def publish(self, *stages: AsyncStage | str | bytes) -> int:
        """Publish all of these stages, or none of them. Return the number of published jobs.

        Publishing a stage again changes nothing and returns the same number. Raises UnknownStage if a stage is empty,
        expired or was discarded.
        """

    @abstractmethod
    async def discard(self, *stages: AsyncStage | str | bytes) -> int:
        """Remove the jobs of all of these stages. Return the number of removed jobs.

        Raises StageOver, and removes nothing, if one of the stages was published.
        """

    @abstractmethod
    async def create_batch(
        self, name: str | bytes, *, then: AsyncFollowUps = (), expire: Seconds | None = None
    ) -> None:
        """Create a batch. Jobs that are put with `batch=name` are its members.

        The jobs of `then` (pairs of a tube and a body) are put exactly once, when the batch is sealed and all members
        have ended: acked, buried, dead-lettered, dropped, deleted or expired. If the batch has not ended `expire`
        seconds after its last put (a week if None), they are discarded. Repeating the call has no effect while the
        batch has no members; otherwise it raises BatchOver.
        """

    @abstractmethod
    async def seal_batch(self, name: str | bytes) -> int:
        """State that all members of a batch were put. Return how many have not ended.

        Afterwards only members that run can put further ones, with `ack(then=…)`. Raises UnknownBatch if there is no
        such batch.
        """

    @abstractmethod
    async def batch_info(self, name: str | bytes) -> BatchInfo:
        """Return the state of a batch and the numbers of its members. A batch that has ended is known for a day."""

    @abstractmethod
    async def session_events(
        self, after: int = 0, timeout: Duration = 0, *, tube: AsyncTube | None = None
    ) -> SessionEvents:
        """Wait up to `timeout` seconds for signals about jobs of this session: a job was cancelled or lost.

        A job is lost if its `ttr` passed, or if another session deleted or snatched it. Continue with the field `after`
        of the result. Jobs that are cancelled and still held are returned again by a call with `after=0`. In a cluster,
        the call is about the jobs on the node of `tube`, or on the node of this connection.
        """

    @abstractmethod
    async def close(self) -> None:
        """End this session and return the jobs that it holds to their tubes. A second call does nothing.

        If `identify` has set a grace time, the jobs stay taken for that time, so that `identify` can resume the
        session.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncStage(Interface, ABC):
    """A stage: jobs that become visible in their tubes together, when the stage is published.

    As a context manager, the stage is published at the end of the block, or discarded if the block raised.
    """

    __slots__ = ()

    _queue: Any  # Each implementation has a queue of its own type.

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the stage."""

    def __repr__(self) -> str:
        return f"<penstock stage {self.name!r}>"

    async def put(self, tube: AsyncTube | str | bytes, body: Body, **options: Unpack[PutOptions]) -> AsyncJob:
        """Add a job for a tube to the stage and return it. The job appears in the tube when the stage is published.

        The delay and the ttl of the job start when the stage is published. Raises StageOver if the stage has been
        published or discarded.
        """
        check_keywords("put", options, PUT_KEYWORDS, "tube", "body")
        return (await self.put_many(tube, [body], **options))[0]

    @abstractmethod
    async def put_many(
        self, tube: AsyncTube | str | bytes, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]
    ) -> list[AsyncJob]:
        """Add a job for each body to the stage, or none at all. Return the jobs in the order of the bodies.

        A `NewJob` is a body with options of its own, such as its key. Raises StageOver if the stage has been published
        or discarded.
        """

    async def publish(self) -> int:
        """Move all jobs of the stage into their tubes. Return the number of jobs. Publishing again changes nothing."""
        queue: AsyncQueue = self._queue
        return await queue.publish(self)

    async def discard(self) -> int:
        """Remove the jobs of the stage. Return the number of removed jobs. Raises StageOver if it was published."""
        queue: AsyncQueue = self._queue
        return await queue.discard(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.publish()
        else:
            await self.discard()


class AsyncTube(Interface, ABC):
    """A tube. The jobs that are taken through this object belong to the session that returned this object."""

    __slots__ = ()

    # async only: begin
    @property
    def sync(self) -> api.Tube:
        """This tube with blocking methods, for synchronous code. A tube on a server raises Unsupported."""
        raise Unsupported(_NO_SYNC)

    # async only: end
    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the tube."""

    @property
    @abstractmethod
    def type(self) -> str:
        """The type of the tube, such as `fifottl`."""

    @property
    @abstractmethod
    def policy(self) -> TubePolicy:
        """The rules of the tube. For a tube on a server, these are the rules in the last reply that contained them."""

    def __repr__(self) -> str:
        return f"<penstock tube {self.name!r} ({self.type})>"

    @abstractmethod
    async def put(self, body: Body, *, timeout: Duration = 0, **options: Unpack[PutOptions]) -> AsyncJob:
        """Put a job into the tube and return it. See PutOptions for the options.

        Consumers receive bytes and text unchanged. Any other body is converted to JSON and back, so a tuple becomes a
        list. With `unique` or `dedup`, an existing job can be returned instead of a new one.

        If the tube is full, wait up to `timeout` seconds for room; None waits without limit. Raises Full if the tube is
        still full, Paused if puts are paused, BodyTooLarge if the body is too large, NoSpace if the disk is full, and
        NoMemory if the memory limit is reached. If the reply of a server was lost, a put with `dedup` is repeated. Any
        other put then raises ConnectionLost.
        """

    @abstractmethod
    async def put_many(self, bodies: Iterable[Body | NewJob], **options: Unpack[PutOptions]) -> list[AsyncJob]:
        """Put a job for each body, or none at all. Return the jobs in the order of the bodies.

        A `NewJob` is a body with options of its own, such as its key. `put_many` raises the errors of `put`. It does
        not wait if the tube is full.
        """

    @abstractmethod
    async def take(self, timeout: Duration = 0, **options: Unpack[TakeOptions]) -> AsyncJob | None:
        """Take the next job. Return None if no job became ready in time.

        If no job is ready, wait up to `timeout` seconds; None waits without limit. With `key`, only a job of this key
        is taken. `ttr` replaces the time in seconds that this session has for the job.
        """

    @abstractmethod
    async def take_many(self, count: int, timeout: Duration = 0, **options: Unpack[TakeOptions]) -> list[AsyncJob]:
        """Take up to `count` jobs. Return an empty list if no job became ready in time.

        If no job is ready, wait up to `timeout` seconds for the first one; None waits without limit. The options are
        those of `take`.
        """

    async def __aiter__(self) -> AsyncIterator[AsyncJob]:
        """Take jobs without end and wait for each one: `async for job in tube:`. Finish each with `async with job:`."""
        while True:
            job = await self.take(timeout=None)
            if job is not None:
                yield job

    async def take_each(self, timeout: Duration = None) -> AsyncIterator[AsyncJob]:
        """Take jobs one after the other: `async for job in tube.take_each(timeout=5):`.

        End when no job became ready within `timeout` seconds; None waits without limit.
        """
        while True:
            job = await self.take(timeout)
            if job is not None:
                yield job
            elif timeout is not None:
                return

    @abstractmethod
    async def job(self, id: str) -> AsyncJob:
        """Return the job with this id. Raises UnknownJob if it is not in this tube."""

    @abstractmethod
    async def named(self, name: str | bytes) -> AsyncJob:
        """Return the job that was put with this `name`. Raises UnknownJob if there is none."""

    @abstractmethod
    async def jobs(self, state: StateName, limit: int = 1_000) -> list[AsyncJob]:
        """Return up to `limit` jobs that are in this state, in the order in which they would be taken."""

    @abstractmethod
    async def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        """Move up to `count` buried jobs back into the tube, in the tube's order. Return their number.

        The jobs can be taken after `delay` seconds. `ttl` replaces their time to live in seconds; None keeps it.
        """

    @abstractmethod
    async def release_all(self) -> int:
        """Make every taken job ready again, no matter which session holds it. Return the number of jobs.

        Jobs of claims stay taken.
        """

    @abstractmethod
    async def pause(self, *, puts: bool = False, takes: bool = False) -> None:
        """Set whether puts and takes are paused. While they are, puts raise Paused, and takes get no job."""

    @abstractmethod
    async def alter(self, **options: Unpack[TubeOptions]) -> None:
        """Change the given options of the tube and keep the others. The tube can be in use."""

    @abstractmethod
    async def truncate(self) -> int:
        """Remove every job of the tube, in any state. Return the number of jobs."""

    @abstractmethod
    async def drop(self) -> None:
        """Remove the tube with its jobs.

        Raises TubeTaken while a job of the tube is taken, and TubeAwaited while a consumer waits for a job.
        """

    @abstractmethod
    async def info(self) -> dict[str, Any]:
        """Return the present state of the tube.

        The dict has `name`, `type`, the number of jobs in each state, `oldest` (seconds since the next ready job was
        put, or None), `waiting` (number of waiting takes), `keys` (number of keys), `paused_in` (puts are paused) and
        `paused_out` (takes are paused).
        """

    @abstractmethod
    async def stats(self) -> dict[str, int]:
        """Return the number of jobs in each state."""

    @abstractmethod
    async def keys(self, count: int = 100) -> list[dict[str, Any]]:
        """Return up to `count` keys of the tube, those with the most ready jobs first.

        Each has its `key` and its numbers of `ready` and `taken` jobs, and of `jobs` in any state. A tube without keys
        returns an empty list.
        """

    @abstractmethod
    async def causes(self, count: int = 100) -> list[dict[str, Any]]:
        """Return up to `count` causes of failure of the buried jobs, those with the most jobs first.

        The cause is the reason without ids and counts of attempts. Each `cause` has its number of `jobs`, the time
        at which the `oldest` of them was put, and its id as an `example`. At most 100,000 buried jobs are examined.
        """

    @abstractmethod
    async def events(self) -> dict[str, int]:
        """Return how often each event happened to jobs of this tube since it was created."""

    @abstractmethod
    async def transitions(self) -> dict[str, int]:
        """Return how often jobs of this tube changed from one state to another: `{"ready-taken": 5, …}`."""

    @abstractmethod
    async def durations(self) -> dict[str, Durations]:
        """Return how long jobs of this tube waited (`waits`) and how long work on them took (`runs`), as histograms.

        A wait is the time from ready to taken, and a run is the time from taken to acked. They are counted since the
        node or the queue was started.
        """

    @abstractmethod
    async def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` with every change of a job of this tube, in order.

        Return a function that ends the subscription. See `queue.subscribe`.
        """

    @abstractmethod
    async def claim(
        self, consumer: str, number: int, count: int, *, lease: Seconds = 60, token: int = 0
    ) -> list[AsyncJob] | None:
        """Claim up to `count` jobs as claim `number` of a consumer. Return None if no job is ready.

        The first claim has number 1. Until a claim is acked, claiming its number again returns the same jobs. A claim
        ends `lease` seconds after it was made or renewed, and its jobs return to the tube. `token` is a fencing token:
        a call raises Fenced if an earlier call for this consumer had a greater token. A process that replaces another
        one under the same consumer name uses a greater token.
        """


class AsyncJob(Interface, ABC):
    """A job. As a context manager, the job is acked at the end of the block, or nacked if the block raised."""

    __slots__ = ()

    # async only: begin
    @property
    def sync(self) -> api.Job:
        """This job with blocking methods, for synchronous code. A job on a server raises Unsupported."""
        raise Unsupported(_NO_SYNC)

    # async only: end
    @property
    @abstractmethod
    def id(self) -> str:
        """The id of the job: 40 characters. It never changes."""

    @property
    @abstractmethod
    def tube(self) -> str:
        """The name of the tube of the job."""

    @property
    @abstractmethod
    def state(self) -> str:
        """The state of the job: ready, taken, delayed, buried, done, zombie, staged, or gone.

        An asyncio job on a server has the state of the last reply, and `meta` updates it. All other jobs have their
        current state.
        """

    @property
    @abstractmethod
    def deliveries(self) -> int:
        """The number of deliveries of the job. For a job on a server, this is the number in the last reply."""

    @property
    @abstractmethod
    def nacks(self) -> int:
        """The number of failures of the job. For a job on a server, this is the number in the last reply."""

    @property
    @abstractmethod
    def body(self) -> Any:
        """The body of the job: bytes, text, or a value that was decoded from JSON or msgpack.

        After `done`, this is the result. If `put` on a server returned an existing job because of `unique` or `dedup`,
        an asyncio job nevertheless has the body that was given to `put`.
        """

    @property
    @abstractmethod
    def headers(self) -> dict[str, str]:
        """The headers of the job by name; empty if it has none. They never change.

        Values are decoded as UTF-8. If a value was not valid UTF-8, `value.encode("utf-8", "surrogateescape")` returns
        its bytes.
        """

    @abstractmethod
    async def ack(self, *, then: AsyncFollowUps = ()) -> list[AsyncJob]:
        """Finish the job successfully. It is removed, or kept if its tube keeps acked jobs.

        `then` has pairs of a tube and a body: jobs that are put in the same step, for example
        `[("mails", "to: ann"), ("pages", NewJob(url, key=host))]`. Tubes that do not exist are created. If one of the
        puts is refused, nothing changes, and the job stays taken. Return these jobs. `done`, `nack` and `bury` have the
        same option.

        Raises NotTaken if the job is no longer taken, NotOwner if another session holds it, and UnknownJob if the job
        no longer exists. `done`, `release`, `requeue`, `nack`, `bury` and `touch` raise the same errors.
        """

    @abstractmethod
    async def done(
        self, result: Body, *, ttl: Duration | EllipsisType = ..., then: AsyncFollowUps = ()
    ) -> list[AsyncJob]:
        """Finish the job successfully. `result` replaces its body and is kept for `ttl` seconds; None keeps it forever.

        If `ttl` is not given, the result is kept for a day, or forever if the tube keeps acked jobs.
        """

    @abstractmethod
    async def release(self, delay: Seconds = 0, **options: Unpack[ReleaseOptions]) -> None:
        """Return the unfinished job to its old place in the tube, immediately or after `delay` seconds.

        `ttl`, `priority` and `key` replace those of the job. `options` are for the driver of the tube, if it has one.
        Raises OnlyOnce if the job is delivered at most once.
        """

    @abstractmethod
    async def requeue(self) -> None:
        """Return the unfinished job to the end of the tube. Raises OnlyOnce if it is delivered at most once."""

    @abstractmethod
    async def nack(
        self, reason: str = "", *, delay: Seconds | None = None, then: AsyncFollowUps = ()
    ) -> list[AsyncJob]:
        """Report that the work on the job failed. The retry policy decides whether the job is tried again, and when.

        `delay` replaces the pause before the next attempt. It does not change how many attempts there are.
        Raises OnlyOnce if the job is delivered at most once.
        """

    @abstractmethod
    async def bury(self, reason: str = "", *, then: AsyncFollowUps = ()) -> list[AsyncJob]:
        """Set the job aside until `kick` or `dig` returns it to its tube. `reason` is stored with the job."""

    @abstractmethod
    async def touch(self, seconds: Seconds | None = None) -> None:
        """Extend the time that this session has for the job, and the ttl of the job, by `seconds`.

        If `seconds` is None, the whole `ttr` of the job starts again now.
        """

    @abstractmethod
    async def dig(self, delay: Seconds = 0, *, ttl: Duration | None = None, priority: int | None = None) -> None:
        """Return the buried job to its old place in the tube, immediately or after `delay` seconds.

        `ttl` and `priority` replace those of the job; None keeps them. Raises NotBuried if the job is not buried.
        """

    @abstractmethod
    async def delete(self) -> None:
        """Remove the job, in any state and no matter which session holds it.

        Raises UnknownJob if the job no longer exists.
        """

    @abstractmethod
    async def snatch(self, delay: Seconds = 0) -> None:
        """Take the job from the session that holds it. It returns to its place, immediately or after `delay` seconds.

        Raises NotTaken if the job is not taken.
        """

    @abstractmethod
    async def restart(self, delay: Seconds = 0) -> None:
        """Make a job ready that is delayed, or that was acked and kept: immediately, or after `delay` seconds.

        Raises NotKept if the job is in another state.
        """

    @abstractmethod
    async def set_priority(self, priority: int) -> None:
        """Change the priority of a job that is ready, delayed or buried. Jobs of equal priority keep their order.

        Raises IsTaken if the job is taken, and Unsupported if its tube has no priorities.
        """

    @abstractmethod
    async def run_now(self) -> None:
        """Make a delayed job ready now. Raises NotDelayed if the job is not delayed."""

    @abstractmethod
    async def edit(self, body: Body) -> None:
        """Replace the body of a job that is ready, delayed or buried. The job keeps its place and its times.

        Raises IsTaken if the job is taken, Full if the tube has no room for a longer body, and HasCopies if other nodes
        have copies of the job.
        """

    @abstractmethod
    async def switch(self, state: StateName, delay: Seconds = 0) -> None:
        """Change the state of the job to `state`. The states `delayed` and `zombie` need a `delay` in seconds.

        Raises IsTaken if the job is taken.
        """

    @abstractmethod
    async def move(self, tube: AsyncTube, delay: Seconds = 0) -> None:
        """Move the job to the end of another tube, where it can be taken after `delay` seconds.

        The job keeps its id, its body and its ttl. Raises NotOwner if another session has taken the job.
        """

    @abstractmethod
    async def wait(self, timeout: Duration = None) -> JobOutcome:
        """Wait until the job is acked, buried, dead-lettered, dropped, expired or deleted.

        Wait up to `timeout` seconds; None waits without limit. The returned object is true if the job was acked. Its
        field `outcome` names what happened (`timeout` if the time was over first), and `reason` is the reason, if
        known.
        """

    @abstractmethod
    async def cancel(self, reason: str = "") -> bool:
        """Cancel the job. Return whether it has ended.

        A job that nobody has taken is removed. If a session has taken it, the session is told
        (`queue.session_events`), and the job is removed when its delivery ends, unless the session acks or buries it.
        Raises Finished if the job was acked, and Unsupported if it is taken in a tube whose jobs belong to no session.
        """

    @abstractmethod
    async def report(self, value: Body) -> None:
        """Send a value that describes the progress of this taken job to the callers of `watch`.

        The last 256 values of a job are kept in memory, up to 256 KiB, and for a minute after its end. They are not
        in the journal.
        """

    @abstractmethod
    async def watch(self, after: int = 0, timeout: Duration = None) -> JobProgress:
        """Wait for values that were reported after the number `after`, or until the job ends as in `wait`.

        Return all kept values since then, and the outcome if the job has ended. Continue with the field `after` of the
        result. If `timeout` seconds pass, the result has no values and no outcome.
        """

    @abstractmethod
    async def history(self) -> list[Event]:
        """Return the events of the job, oldest first, even if the job no longer exists.

        Raises NoJournal if the queue has no journal.
        """

    @abstractmethod
    async def meta(self) -> dict[str, Any]:
        """Return all properties of the job. Times are in seconds since 1970.

        Raises UnknownJob if the job no longer exists.
        """

    async def __aenter__(self) -> Self:
        return self

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack the job, nack it if the block raised, or release it if the block was interrupted or cancelled.

        If the block fails, a job that is delivered at most once is buried instead. A job that was finished in the block
        stays unchanged.
        """
