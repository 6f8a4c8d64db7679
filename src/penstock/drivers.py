"""Drivers: tubes whose order is decided by code of yours.

A driver is a class of your own with two functions: `create_space(name, options)` makes whatever it keeps its tasks in,
and `new(space, on_task_change, options)` makes the tube object, which has

    normalize_task(task)   the task as users see it: (id, state, data)
    put(data, options)     add a task and return it
    take()                 mark the next task as taken and return it, or None
    delete(id)             remove a task and return it
    release(id, options)   return a taken task to the queue
    bury(id)               put a task aside
    kick(count)            dig up so many; return how many there were
    peek(id)               find a task

A task is any tuple whose first field is its id and whose second is its state: `r` ready, `t` taken, `-` done, `!`
buried, `~` delayed. The driver calls `on_task_change(task, event)` whenever a task changes. It raises nothing for a
task that is not there; it returns None. Penstock does the rest: sessions and ownership, takes that wait, statistics and
history. The driver runs under the queue's lock, so it must not call the queue.

The engine keeps a job for each task and follows the driver's word; no decision of a driver is ever taken again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.core import states as s
from penstock.core.errors import CommandError, NotOwner, NotTaken, UnknownJob, Unsupported
from penstock.core.job import BODY_JSON, Draft
from penstock.core.job import Job as CoreJob
from penstock.core.limits import DURATION_MS_MAX
from penstock.core.policy import PRESETS, TubePolicy
from penstock.core.sessions import Session as CoreSession
from penstock.core.tube import Tube as CoreTube
from penstock.core.waits import Wait
from penstock.embedded import Job, Queue, Tube, driven_types
from penstock.host.host import Host
from penstock.host.session import Session
from penstock.options import Body, Duration, Seconds, encode_body, to_text

Task = tuple[Any, ...]

_STATES: Final = {"r": s.READY, "t": s.TAKEN, "~": s.DELAYED, "!": s.BURIED}
# How a taken job comes back without its driver's word.
_CAME_BACK: Final = (s.DISCONNECTED, s.UNDELIVERED, s.RELEASED)
_METHODS: Final = ("normalize_task", "put", "take", "delete", "release", "bury", "kick", "peek")


class DriverTube(Protocol):
    """What a driver's `new` returns."""

    def normalize_task(self, task: Task) -> Task: ...
    def put(self, data: Any, options: dict[str, Any]) -> Task: ...
    def take(self) -> Task | None: ...
    def delete(self, id: Any) -> Task | None: ...
    def release(self, id: Any, options: dict[str, Any]) -> Task | None: ...
    def bury(self, id: Any) -> Task | None: ...
    def kick(self, count: int) -> int: ...
    def peek(self, id: Any) -> Task | None: ...


class Driver(Protocol):
    """A type of tube as code."""

    def create_space(self, name: str, options: dict[str, Any]) -> Any: ...
    def new(self, space: Any, on_task_change: Callable[[Task, str], None], options: dict[str, Any]) -> DriverTube: ...


class BadDriver(CommandError):
    """A driver must have the methods that docs/tubes/drivers.md names."""

    code = "BADDRIVER"


def register_driver(name: str, driver: Any) -> None:
    """Make a type of tube out of a driver: `queue.tube("x", name)` uses it from now on."""
    if name in PRESETS or name in driven_types:
        raise BadDriver(f"there is a type of tube called {name!r} already")
    for function in ("create_space", "new"):
        if not callable(getattr(driver, function, None)):
            raise BadDriver(f'a driver must have functions "create_space" and "new"; {name!r} lacks "{function}"')

    def make(queue: Queue, raw: bytes, options: dict[str, Any]) -> Tube:
        return _open(queue, raw, name, driver, options)

    driven_types[name] = make


def unregister_driver(name: str) -> None:
    """Forget a driver; its tubes cannot be opened again until it is registered anew."""
    driven_types.pop(name, None)


def _open(queue: Queue, raw: bytes, type: str, driver: Driver, options: dict[str, Any]) -> Tube:
    """Find or make a driven tube; under the queue's lock."""
    host = queue._host
    if host.journal is not None:
        raise Unsupported(
            "a tube with a driver needs a queue in memory: its driver could not be brought back from a log"
        )
    policy = TubePolicy(type=type, driven=True)
    core = host.engine.tubes.get(raw)
    if core is None:
        running = _Running(host, to_text(raw), type, driver, options)
        core = running.core = host.engine.create_tube(raw, policy, host.now())
        host.drivers[core] = running
    else:
        host.engine.create_tube(raw, policy, host.now())  # Refused if it is a tube of another type.
    return DrivenTube(queue, core)


class _Running:
    """One tube object of a driver at work: it decides, and the engine's jobs follow."""

    core: CoreTube

    def __init__(self, host: Host, name: str, type: str, driver: Driver, options: dict[str, Any]) -> None:
        self._host = host
        self._type = type
        self._changes: list[Task] = []  # What the driver has told of, and the engine has not followed yet.
        self._out: dict[bytes, CoreJob] = {}  # Jobs that the driver holds for taken.
        self._returned = 0
        space = driver.create_space(name, options)
        self.tube = driver.new(space, self._changed, options)
        for method in _METHODS:
            if not callable(getattr(self.tube, method, None)):
                raise BadDriver(f'the {type!r} driver does not have an implementation of method "{method}"')

    def put(self, data: Body, options: dict[str, Any], owner: CoreSession) -> CoreJob:
        task = self.tube.put(data, options)
        self.follow(task, owner)
        return self._core_of(task[0])

    def next(self) -> CoreJob | None:
        """The job that the driver serves next, still ready in the engine: who takes it is not the driver's to know."""
        task = self.tube.take()
        self._changes.clear()
        if task is None:
            return None
        core = self._core_of(task[0])
        if core.state == s.TAKEN:
            raise BadDriver(f"the {self._type!r} driver gives out a task {task[0]!r} that is taken")
        if core.state != s.READY:
            # Its delay is over, say, and that only the driver knows.
            self._host.engine.switch(core, s.READY, self._host.now())
        self._out[core.rare().name] = core
        return core

    def attend(self) -> None:
        """Tell the driver of tasks that came back without it (a session ended), and serve those who wait."""
        counts = self.core.counts
        returned = sum(counts[s.rule_of(event, s.TAKEN)] for event in _CAME_BACK)
        if returned != self._returned:
            self._returned = returned
            for name, core in list(self._out.items()):
                if core.state == s.READY:
                    del self._out[name]
                    self.tube.release(_id(core), {})
                    self._changes.clear()
        while self.core.line.head is not None and not self.core.paused_out:
            following = self.next()
            if following is None:
                return
            wait = self.core.line.head.wait
            assert isinstance(wait, Wait)
            self._host.engine.hand(wait, following, self._host.now())

    def follow(self, task: Task | None, owner: CoreSession) -> None:
        """Bring the engine's jobs to where the driver says its tasks are."""
        changes, self._changes = self._changes, []
        if task is not None:
            changes.append(task)
        refusal: CommandError | None = None
        for change in changes:
            try:
                self._follow_one(change, owner)
            except CommandError as error:
                # It is told once. The other tasks did change, and are followed.
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def _follow_one(self, task: Task, owner: CoreSession) -> None:
        engine, now = self._host.engine, self._host.now()
        name, letter = _name(task[0]), task[1]
        core = self.core.names.get(name)
        if letter != "t":
            self._out.pop(name, None)
        if letter == "-":
            if core is not None and core.state == s.TAKEN and core.holder == owner.slot:
                engine.ack(owner, core, now)
            elif core is not None:
                engine.delete(core, now)
            return
        if letter not in _STATES:
            raise BadDriver(f"the {self._type!r} driver gave a task the state {letter!r}; the states are r t - ! ~")
        if core is None:
            raw, _ = encode_body(list(self.tube.normalize_task(task)))
            core = engine.put(self.core, Draft(raw, body_kind=BODY_JSON, name=name), now)
        state = _STATES[letter]
        if core.state == state or state == s.TAKEN:
            return
        if core.state == s.TAKEN:
            engine.snatch(core, now)
        if core.state != state:
            engine.switch(core, state, now, DURATION_MS_MAX if state == s.DELAYED else 0)

    def _changed(self, task: Task, event: str = "") -> None:
        self._changes.append(task)

    def _core_of(self, id: Any) -> CoreJob:
        core = self.core.names.get(_name(id))
        if core is None:
            raise BadDriver(f"the {self._type!r} driver names a task {id!r} that it never put")
        return core


class DrivenTube(Tube):
    """A tube whose driver decides which job is next."""

    __slots__ = ()

    def put(self, body: Body, *, timeout: Duration = 0, **options: Any) -> Job:
        """Add a job; the options are the driver's own."""
        with self._session.durable, self._session.lock, self._session:
            core = self._running.put(body, dict(options), self._session.connection.session)
        return self._job(core)

    def put_many(self, bodies: Any, **options: Any) -> list[Job]:
        """Refused: drivers put one at a time, so all or nothing is not theirs to promise."""
        raise Unsupported(f"a {self.type} tube has a driver, which puts one job at a time")

    def take(self, timeout: Duration = 0, *, key: str | bytes | None = None, ttr: Duration | None = None) -> Job | None:
        """Take the job that the driver chooses; wait for one up to `timeout` seconds (None: for ever)."""
        jobs = self.take_many(1, timeout, key=key, ttr=ttr)
        return jobs[0] if jobs else None

    def kick(self, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> int:
        """Dig up to `count` buried jobs up; tell how many there were."""
        with self._session.durable, self._session.lock, self._session:
            running = self._running
            kicked = running.tube.kick(count)
            running.follow(None, self._session.connection.session)
        return kicked

    def truncate(self) -> int:
        """Remove every job, whatever its state; tell how many there were."""
        with self._session.durable, self._session.lock, self._session:
            running = self._running
            ids = [_id(core) for state in range(1, s.STATES_COUNT) for core in self._core.jobs_in(state)]
            for id in ids:
                running.follow(running.tube.delete(id), self._session.connection.session)
        return len(ids)

    def alter(self, **options: Any) -> None:
        """Refused: what the tube does is its driver's to say."""
        raise Unsupported(f"a {self.type} tube has a driver, which says what it does; there is nothing to alter")

    def drop(self) -> None:
        """Remove the tube with its jobs; refused while jobs of it are taken or clients wait on it."""
        core = self._core
        super().drop()
        self._host.drivers.pop(core, None)

    def _job(self, core: CoreJob) -> Job:
        return DrivenJob(self, core)

    @property
    def _running(self) -> _Running:
        running = self._host.drivers[self._live()]
        assert isinstance(running, _Running)
        return running

    def _take_now(self, session: Session, count: int, key: bytes | None, ttr_ms: int) -> list[CoreJob]:
        found: list[CoreJob] = []
        host = self._host
        host.advance()
        while len(found) < count and not self._core.paused_out:
            core = self._running.next()
            if core is None:
                break
            host.engine.take_this(session.connection.session, core, host.now())
            found.append(core)
        return found


class DrivenJob(Job):
    """A job whose changes go through its driver."""

    __slots__ = ()

    @property
    def body(self) -> Any:
        """The data of the task."""
        raw = self._core.body
        assert isinstance(raw, bytes)
        return json.loads(raw)[2]

    def ack(self) -> None:
        """The work is done: the driver deletes the task."""
        self._ask(lambda driver, id: driver.delete(id), held=True)

    def release(self, delay: Seconds = 0, **options: Any) -> None:
        """Give the job back unfinished; the options are the driver's own."""
        given = dict(options) if delay == 0 else {"delay": delay, **options}
        self._ask(lambda driver, id: driver.release(id, given), held=True)

    def nack(self, reason: str = "") -> None:
        """Give the job back because it failed."""
        self.release()

    def bury(self, reason: str = "") -> None:
        """Put the job aside until somebody kicks it."""
        self._ask(lambda driver, id: driver.bury(id), held=False)

    def delete(self) -> None:
        """Remove the job, whatever its state and whoever holds it."""
        self._ask(lambda driver, id: driver.delete(id), held=False)

    def _ask(self, command: Callable[[DriverTube, Any], Task | None], held: bool) -> None:
        """Let the driver do something to the task, and follow it."""
        tube = self._tube
        assert isinstance(tube, DrivenTube)
        core = self._core
        owner = tube._session.connection.session
        with tube._session.durable, tube._session.lock, tube._session:
            if core.state == s.GONE:
                raise UnknownJob()
            if held and core.state != s.TAKEN:
                raise NotTaken()
            if held and core.holder != owner.slot:
                raise NotOwner()
            running = tube._running
            running.follow(command(running.tube, _id(core)), owner)
            self._finished = core.state != s.TAKEN

    def _do(self, command: Any) -> None:
        raise Unsupported("a job with a driver knows ack, release, bury and delete")


def _name(id: Any) -> bytes:
    """How the engine names a task: its id as JSON, which gives it back as it was."""
    return encode_body([id])[0]


def _id(core: CoreJob) -> Any:
    return json.loads(core.rare().name)[0]
