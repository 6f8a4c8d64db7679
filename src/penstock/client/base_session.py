"""The decisions of a session on a server: which node to connect to, when to retry, and which jobs to give back.

A session outlives its connections. If a connection is lost, another one is made, and the session is resumed with the
jobs that it holds, unless its grace time has passed. A call whose reply was lost is repeated if that is safe
(`commands.py`). If the reply to a take was lost, the session may hold jobs that no caller received. They go back
to their tubes before the next call (`_settle`).

The timeout of a call limits everything that the call does (`Deadline`). A take returns nothing if its time is over
while the server is away. It raises NoServer if the server has been away for longer than `retry_for`.

The decisions are coroutines. They await only the abstract methods below, which send, connect, sleep and lock. With
asyncio (`async_session.py`) these methods suspend, and the event loop runs the coroutine. In the blocking session
(`session.py`) they block and never suspend, so one `send(None)` runs the whole coroutine. An exception that a signal
handler raises passes through the coroutines as it would through ordinary functions.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from penstock.client import commands
from penstock.client.addresses import Address, Addresses
from penstock.client.backoff import MARGIN_S, Backoff, Deadline, Margin
from penstock.client.commands import NO_REPEAT, REPEAT, Call, ExecutionCheck
from penstock.client.facts import JobFacts
from penstock.client.handshake import LOST, no_answer
from penstock.client.held_jobs import HeldJobs
from penstock.client.job_origins import JobOrigins
from penstock.client.url import Target
from penstock.core.errors import (
    BadAnswer,
    Closed,
    CommandError,
    ConnectionLost,
    Leaving,
    NoServer,
    NotAllowed,
    OnlyOnce,
    UnknownJob,
    UnknownSession,
)
from penstock.core.limits import check_body

# How long takes that the server has ended may take to return. After that, their connections count as lost.
TAKES_END_S = 2.0

# The number of unused connections that are kept.
IDLE_MAX = 8

NO_DEADLINE = Deadline(math.inf)


class SessionConnection(Protocol):
    """A connection that has joined a session."""

    token: str
    max_body: int
    nodes: object


T = TypeVar("T")
C = TypeVar("C", bound=SessionConnection)


class BaseSession(ABC, Generic[C]):
    """A session, without its connections."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.grace_ms = target.grace_ms
        self.closed = False
        self.held_jobs = HeldJobs()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Reset everything that belongs to one session, in the constructor and in a child process after a fork."""
        self.token = ""
        self.max_body = 0
        self.has_grace = False  # Whether `identify` has set a grace time, so that the session stays after `close`.
        self.held_jobs.clear()
        self._in_doubt = False  # Whether the session may hold jobs that no caller received.
        self._margin = Margin()
        self._addresses = Addresses(self.target.seeds, learns=self.target.tls is None)
        # A user who names a single node wants that node.
        self._sources = JobOrigins() if len(self.target.seeds) > 1 else None

    # Methods of the blocking and of the asyncio session

    @abstractmethod
    async def _try(self, call: Call[T], deadline: Deadline) -> T:
        """Send a call and return its result. Raise one of the exceptions in LOST if the connection was lost."""

    @abstractmethod
    async def _try_take(self, call: Call[T], deadline: Deadline) -> T:
        """Wait until no thread or task is in `_settle`. Then send a call that takes jobs, and record the jobs."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait for this number of seconds."""

    @abstractmethod
    async def _connect(self, seed: Address, token: str, connect_s: float) -> C:
        """Connect within `connect_s`. Join the session that has this token, or begin one if the token is empty."""

    @abstractmethod
    def _drop(self, connection: C) -> None:
        """Close a connection immediately."""

    @abstractmethod
    async def _settle(self, deadline: Deadline) -> None:
        """Return jobs to their tubes if the reply to their take was lost. No take is in progress meanwhile."""

    @abstractmethod
    async def _takes_ended(self, deadline: Deadline) -> bool:
        """Wait up to TAKES_END_S seconds until no take is in progress. Return whether none is."""

    @abstractmethod
    def _interrupt_takes(self) -> None:
        """Break the connections of all takes that are in progress."""

    @abstractmethod
    async def _follow_jobs(self, sources: JobOrigins) -> None:
        """Move to the node that created most of the jobs in `sources`.

        Do nothing while the session holds a job or a take is in progress.
        """

    @abstractmethod
    async def _move(self, to: Address | None = None) -> None:
        """Begin a session on the node `to`. If `to` is None, the current node is leaving: use the next address."""

    # Calls

    def check_open(self) -> None:
        if self.closed:
            raise Closed()

    async def _call_settled(self, call: Call[T], deadline: Deadline) -> T:
        """Send a call and return its result.

        First return jobs to their tubes if the reply to their take was lost, and check the length of the body.
        """
        if self._in_doubt:
            await self._settle(deadline)
        if call.delivered is not None:
            await self._check_belongings(deadline)
            if self._sources is not None:
                await self._follow_jobs(self._sources)
        if call.largest > self.max_body:
            # A server closes the connection on a body that is too large, so ask for the limit and check it here.
            self.max_body = await self._call(commands.max_body(), deadline)
            check_body(call.largest, self.max_body)
        return await self._call(call, deadline)

    def _without_server(self, call: Call[T], error: NoServer | ConnectionLost, deadline: Deadline) -> T:
        """Return the empty result of a call whose timeout has passed. Otherwise raise `error`.

        Also raise `error` if the call has no empty result, or if no server has answered for longer than `retry_for`.
        """
        is_over = time.monotonic() >= deadline.until and not isinstance(error, BadAnswer)
        if not is_over or call.empty is None or self.target.reach.is_gone(self.target.retry_s):
            raise error
        return call.read(call.empty)

    async def _call(self, call: Call[T], deadline: Deadline = NO_DEADLINE, lost: bool = False) -> T:
        """Send a call and return its result. If `lost` is set, an earlier attempt may have been executed."""
        search: Backoff | None = None
        while True:
            token = self.token
            try:
                if lost and call.execution_check is not None and call.hold():
                    await self._check_hold(call.execution_check)
                return await (self._try(call, deadline) if call.delivered is None else self._try_take(call, deadline))
            except LOST as error:
                deadline.reconnecting()
                if self.closed:
                    raise Closed() from None
                if isinstance(error, (NoServer, BadAnswer)):
                    raise
                if call.repeat == NO_REPEAT:
                    raise ConnectionLost() from error
                if time.monotonic() >= deadline.until:
                    raise ConnectionLost("the connection was lost, and the time of the call is over") from error
                lost = True
                if search is None:
                    search = Backoff(self.target.retry_s, deadline.until)
                elif (pause_s := search.pause()) is None:
                    raise ConnectionLost("the connection was lost again and again, until time was over") from error
                else:
                    await self._sleep(pause_s)
            except Leaving:
                # The call was not executed. The session finishes its jobs here, and then moves to another node.
                search = search or Backoff(self.target.retry_s, deadline.until)
                pause_s = search.pause()
                if pause_s is None or not self._addresses.alternatives():
                    raise
                if self.token != token:
                    continue  # Another caller has moved it.
                if self.held_jobs.is_empty():
                    await self._move()
                else:
                    await self._sleep(pause_s)
            except CommandError as refused:
                if not lost or call.execution_check is None:
                    raise
                await self._check_execution(call.execution_check, refused)
                return call.read(commands.DONE)
            if call.delivered is not None:
                await self._settle(deadline)

    async def _check_hold(self, happened: ExecutionCheck) -> None:
        """Raise NotTaken or NotOwner if a call must not be repeated, because its delivery of the job has ended."""
        try:
            there = await self._call(Call(happened.ask, commands.job, REPEAT))
        except NotAllowed:
            return  # This user may not read jobs.
        over = happened.error_if_ended(there)
        if over is not None:
            raise over

    async def _check_execution(self, happened: ExecutionCheck, refused: CommandError) -> None:
        """Raise `refused`, the error of a repeated call, unless the job's state shows that the first attempt worked."""
        there: JobFacts | None = None
        if not isinstance(refused, UnknownJob):
            try:
                there = await self._call(Call(happened.ask, commands.job, REPEAT))
            except UnknownJob:
                pass
            except NotAllowed:
                # This user may not read jobs, so it is unknown whether the call was executed.
                raise ConnectionLost() from refused
        happened.judge(refused, there)

    # Jobs of lost takes

    async def _return_lost(self, deadline: Deadline) -> None:
        """Find the jobs that the session holds and no caller received, and return them to their tubes.

        The server ends all waiting takes of the session first, because the jobs of a take in progress look like lost
        ones. Afterwards these takes are sent again.
        """
        held = await self._call(commands.held(end_waits=True), deadline)
        if not await self._takes_ended(deadline):
            self._interrupt_takes()
            await self._takes_ended(deadline)
        await self._give_back(self.held_jobs.not_received(held), deadline)

    async def _give_back(self, ids: list[str], deadline: Deadline = NO_DEADLINE) -> None:
        for id in ids:
            try:
                await self._call(commands.release(id), deadline)
            except OnlyOnce:
                # It may not be delivered again, because it may have been seen. A buried job can still be inspected.
                await self._call(commands.bury(id, "its delivery was lost with a connection"), deadline)
            except CommandError:
                pass  # The session does not hold it any more.

    async def _check_belongings(self, deadline: Deadline) -> None:
        """If `held_jobs` has many jobs, remove from it those that the session no longer holds on the server."""
        asked = self.held_jobs.ids_to_verify()
        if asked is not None:
            held = await self._call(commands.held(end_waits=False), deadline)
            self.held_jobs.retain(asked, held)

    # Connections

    async def _try_seeds(self, deadline: Deadline) -> C | NoServer:
        """Return a connection to the first address that answers, or the error of the last one."""
        wrong = NoServer("the time of the call is over")
        for seed in self._addresses.all():
            self.check_open()
            connect_s = min(self.target.connect_s, deadline.until + MARGIN_S - time.monotonic())
            if connect_s <= 0:
                return wrong
            try:
                connection = await self._join(seed, connect_s)
                self._addresses.current = seed
                return connection
            except LOST as error:
                wrong = no_answer(self.target, seed, error)
        self._addresses.fail()
        return wrong

    async def _join(self, seed: Address, connect_s: float) -> C:
        """Return a connection that has joined this session. If the session has ended, begin a new one."""
        while True:
            token = self.token
            try:
                connection = await self._connect(seed, token, connect_s)
            except UnknownSession:
                if not token:
                    raise  # A new session was asked for.
                if self.token == token:
                    # The grace time has passed, and the jobs went back to their tubes.
                    self._in_doubt = False
                    self.held_jobs.clear()
                    self.token = ""
                continue
            if self.token == token:
                break
            self._drop(connection)  # The session was exchanged meanwhile.
        self.token = connection.token
        self.max_body = connection.max_body
        self._addresses.learn(connection.nodes)
        return connection

    def _record_jobs(self, call: Call[T], found: T) -> T:
        assert call.delivered is not None
        held = call.delivered(found)
        self.held_jobs.add(held)
        if self._sources is not None:
            self._sources.took(held)
        return found

    def _target_of_move(self, sources: JobOrigins) -> Address | None:
        """Return the address of the node that created most of the taken jobs, if the client should move to it now."""
        main = sources.main()
        to = self._addresses.of_node(main) if main else None
        return to if to is not None and sources.may_move(time.monotonic()) else None


def run_steps(steps: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine of a blocking session, which never suspends. Return its result.

    The coroutine is created here, because a signal between its creation and its start would cause a warning that it
    was never awaited.
    """
    try:
        steps().send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a coroutine of a blocking session was suspended")
