"""Tarantool's queue in Python, today's API, over any queue of Penstock's: `Queue(penstock.open("./jobs"))`.

    queue = require('queue')                                  queue = Queue(penstock.open("./jobs"))
    queue.create_tube('mail', 'fifottl', {ttl = 60})          queue.create_tube("mail", "fifottl", ttl=60)
    queue.tube.mail:put({to = 'you'}, {delay = 5})            queue.tube.mail.put({"to": "you"}, delay=5)
    local task = queue.tube.mail:take(10)                     task = queue.tube.mail.take(10)
    queue.tube.mail:ack(task[1])                              queue.tube.mail.ack(task[0])

On the left Lua, on the right Python. Options may be named or given as a dict. A task is `(id, state, data)`. It only
translates: whatever happens, happens in the queue below, which others may use in their own words meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, cast

from penstock.changes import Change
from penstock.client.queue import Job as ConnectedJob
from penstock.client.queue import Queue as ConnectedQueue
from penstock.client.queue import Tube as ConnectedTube
from penstock.core import states as s
from penstock.core.errors import (
    CommandError,
    Full,
    NotOwner,
    NotTaken,
    OnlyOnce,
    PenstockError,
    TubeAwaited,
    TubeExists,
    TubeTaken,
    UnknownJob,
    UnknownSession,
    UnknownType,
    Unsupported,
    WrongType,
)
from penstock.core.limits import DURATION_MS_MAX
from penstock.dialects.tarantool import CALLS, STATE_LETTERS
from penstock.drivers import register_driver
from penstock.embedded import Job as EmbeddedJob
from penstock.embedded import Queue as EmbeddedQueue
from penstock.embedded import Tube as EmbeddedTube
from penstock.host.handed import Handed
from penstock.options import PutOptions

__all__ = ["Queue", "QueueError", "Task", "Tube"]

_LETTERS: Final = dict(zip(s.STATE_NAMES, STATE_LETTERS, strict=True))
_STATES: Final = {"r": "ready", "t": "taken", "~": "delayed", "!": "buried", "-": "done"}
_RENAMED: Final = {"pri": "priority", "utube": "key", "stube": "key"}
_STORAGE: Final = ("engine", "storage_mode")
_CALL_OF_EVENT: Final = {s.EVENT_NAMES[event]: call for call, events in CALLS.items() for event in events}
# What is told of a task that ends, whatever ended it.
_WHAT: Final = {"ack": "delete"}

_PUT_OPTIONS: Final = frozenset(["timeout", *PutOptions.__annotations__])
_RELEASE_OPTIONS: Final = frozenset(["delay", "ttl", "priority", "key"])

# A queue in this process or on a server: they have the same methods.
AnyQueue = EmbeddedQueue | ConnectedQueue
AnyTube = EmbeddedTube | ConnectedTube
AnyJob = EmbeddedJob | ConnectedJob

OnChange = Callable[["Task", str], object]


class QueueError(CommandError):
    """What Tarantool's queue refuses, in its own words."""


class Task(NamedTuple):
    """A task as users of Tarantool's queue know it."""

    id: Any  # An integer within the tube, from 0; where a tube has other ids, its id there.
    state: str  # One of r t ~ ! -
    data: Any


class Queue:
    """The module: tubes by their names, and what is about all of them."""

    def __init__(self, over: AnyQueue) -> None:
        self._over = over
        self.tube = _Tubes(over)
        self.schema = self

    def create_tube(self, name: str, type: str, options: dict[str, Any] | None = None, **more: Any) -> Tube:
        """Make a tube; with `if_not_exists`, find the one there is, whatever its type."""
        given = {_RENAMED.get(key, key): value for key, value in {**(options or {}), **more}.items()}
        found, callback = given.pop("if_not_exists", False), given.pop("on_task_change", None)
        for key in _STORAGE:
            given.pop(key, None)
        if name in self._over.tubes():
            if not found:
                raise QueueError(f"Space '{name}' already exists")
        elif type is None:
            raise QueueError("Unknown tube type nil")
        else:
            try:
                self._over.tube(name, cast(Any, type), **cast(Any, given))
            except UnknownType:
                raise QueueError(f"Unknown tube type {type}") from None
            except TubeExists:
                raise QueueError(f"Space '{name}' already exists") from None
            except TypeError as error:
                raise WrongType(str(error)) from None
        tube = self.tube[name]
        if callback is not None:
            tube.on_task_change(callback)
        return tube

    def statistics(self, name: str | None = None) -> dict[str, Any]:
        """How many tasks are in each state and how often each thing happened, of a tube or by the names of all."""
        if name is None:
            return {each: self.tube[each]._statistics() for each in self._over.tubes()}
        return self.tube[name]._statistics()

    stats = statistics

    def identify(self, token: str | None = None) -> str:
        """Join the session of this token, if one is given; gives the token of the session."""
        try:
            self._over.identify(token)
        except UnknownSession:
            raise QueueError(f"The UUID {token} is unknown.") from None
        except WrongType:
            raise QueueError("Invalid UUID format.") from None
        return self._over.token

    def cfg(self, options: dict[str, Any] | None = None, **more: Any) -> None:
        """`ttr`: how long what this session has taken waits for it once it is gone; `in_replicaset` has no effect."""
        for name, value in {**(options or {}), **more}.items():
            if name == "ttr":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                    raise QueueError(f"Invalid value of ttr: {value}")
                # Some clients mean nanoseconds: that is as long as can be.
                self._over.identify(grace=min(value, DURATION_MS_MAX // 1_000))
            elif name != "in_replicaset":
                raise QueueError(f"Unknown option {name}")
            elif not isinstance(value, bool):
                raise QueueError(f"Invalid value of in_replicaset: {value}")

    def state(self) -> str:
        """A queue that can be called is running."""
        return "RUNNING"

    def register_driver(self, name: str, driver: Any) -> None:
        """Let tubes have a type of your own: see penstock/drivers.py."""
        register_driver(name, driver)


class _Tubes:
    """`queue.tube`: tubes by name; called, the names of all, or whether there is one."""

    def __init__(self, over: AnyQueue) -> None:
        self._over = over
        self._known: dict[str, Tube] = {}

    def __call__(self, name: str | None = None) -> list[str] | bool:
        if name is not None and not isinstance(name, str):
            raise QueueError("argument #1 should be string or nil")
        names = self._over.tubes()
        return names if name is None else name in names

    def __getitem__(self, name: str) -> Tube:
        # What is known of a tube is kept, for its callback's sake; a tube that was made anew is another.
        known = self._known.get(name)
        if known is None or not known._is_there():
            if name not in self._over.tubes():
                raise QueueError(f"there is no tube '{name}'; create it first")
            known = self._known[name] = Tube(self._over, self._over.tube(name))
        return known

    def __getattr__(self, name: str) -> Tube:
        try:
            return self[name]
        except QueueError as error:
            raise AttributeError(str(error)) from None


class Tube:
    """A tube."""

    def __init__(self, over: AnyQueue, tube: AnyTube) -> None:
        self._queue = over
        self._over = tube
        self._callback: OnChange | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._seen: dict[str, Task] = {}  # What the callback has seen of tasks that may change again, by the ids below.

    @property
    def name(self) -> str:
        """Its name."""
        return self._over.name

    @property
    def type(self) -> str:
        """The type that it was created with."""
        return self._over.type

    def put(self, data: Any, options: dict[str, Any] | None = None, **more: Any) -> Task | None:
        """Add a task; None if the tube is full, and stays so for `timeout`."""
        given = _options(options, more, _PUT_OPTIONS, "put")
        timeout = given.pop("timeout", 0)
        try:
            job = self._over.put(data, timeout=timeout, **given)
        except Full:
            return None
        return Task(_id(job), "~" if given.get("delay") else "r", data)

    def take(self, timeout: float | None = None, options: dict[str, Any] | None = None, **more: Any) -> Task | None:
        """Take the next task, or wait for one: for ever, if no time is given; None if there was none."""
        key = _options(options, more, ("key",), "take").pop("key", None)
        job = self._over.take(None if timeout is None else _at_least_zero(timeout, "timeout"), key=key)
        if job is None:
            return None
        deliveries = job.deliveries
        try:
            return Task(_id(job), "t", job.body)
        except BaseException:
            _give_back(job, deliveries)
            raise

    def ack(self, id: Any) -> Task:
        """The work is done."""
        return self._finish(id, lambda job: job.ack(), "-")

    def release(self, id: Any, options: dict[str, Any] | None = None, **more: Any) -> Task:
        """Give a task back, perhaps after a `delay`."""
        given = _options(options, more, _RELEASE_OPTIONS, "release")
        return self._finish(id, lambda job: job.release(**given), "~" if given.get("delay") else "r")

    def touch(self, id: Any, seconds: float | None = None) -> Task | None:
        """Ask for more time; no time is no touch."""
        if seconds is None or _at_least_zero(seconds, "the time to add") == 0:
            return None
        try:
            return self._finish(id, lambda job: job.touch(seconds), "t")
        except Unsupported:
            raise QueueError(f"{self.type} queue does not support touch") from None

    def peek(self, id: Any) -> Task:
        """Look at a task."""
        job = self._find(id)
        return Task(_id(job), _LETTERS[job.state], job.body)

    def bury(self, id: Any) -> Task:
        """Put a task aside."""
        job = self._find(id)
        task = Task(_id(job), "!", job.body)
        job.bury()
        return task

    def kick(self, count: int | None = None) -> int:
        """Dig tasks up, one unless told; tell how many there were."""
        wanted = 1 if count is None else _at_least_zero(count, "a count")
        return self._over.kick(cast(int, wanted)) if wanted else 0

    def delete(self, id: Any) -> Task:
        """Remove a task, whatever its state."""
        job = self._find(id)
        task = Task(_id(job), "-", job.body)
        job.delete()
        return task

    def truncate(self) -> None:
        """Remove all tasks."""
        self._over.truncate()

    def drop(self) -> bool:
        """Remove the tube."""
        try:
            self._over.drop()
        except TubeAwaited:
            raise QueueError("There are consumers connected the tube") from None
        except TubeTaken:
            raise QueueError("There are taken tasks in the tube") from None
        return True

    def release_all(self) -> None:
        """Give back every taken task, whoever holds it."""
        self._over.release_all()

    def tasks_by_state(self, state: str) -> list[Task]:
        """The first thousand tasks in a state, in the order they would be served."""
        if state not in _STATES:
            raise QueueError("a state is one of r, t, ~, ! and -")
        return [Task(_id(job), state, job.body) for job in self._over.jobs(cast(Any, _STATES[state]))]

    def on_task_change(self, callback: OnChange | None) -> OnChange | None:
        """Let a function be called with a task and what happened to it, in order; gives the one before.

        It is called from a thread of its own. Of a task that is gone, data is None if it had not seen it before,
        or saw it done.
        """
        before, self._callback = self._callback, callback
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._seen = {}
        self._unsubscribe = None
        if callback is not None:
            self._unsubscribe = self._over.subscribe(functools.partial(self._changed, callback, self._seen))
        return before

    def _changed(self, callback: OnChange, known: dict[str, Task], change: Change) -> None:
        if known is not self._seen:
            return  # The callback has gone, or another has come.
        call = _CALL_OF_EVENT.get(change.event)
        if call is None:
            if change.after == "gone":
                known.pop(change.id, None)
            return
        seen = known.pop(change.id, None)
        if seen is None:
            try:
                job = self._queue.job(change.id)
                seen = Task(_id(job), "", job.body)
            except UnknownJob:
                seen = Task(change.id if change.number is None else change.number, "", None)
        task = seen._replace(state=_LETTERS[change.after])
        if task.state != "-":
            known[change.id] = task
        callback(task, _WHAT.get(call, call))

    def _find(self, id: Any) -> AnyJob:
        try:
            return self._over.job(f"{self.name}#{id}" if isinstance(id, int) else id)
        except CommandError:
            raise QueueError(f"Task {id} not found") from None

    def _finish(self, id: Any, do: Callable[[AnyJob], object], state: str) -> Task:
        try:
            job = self._over.job(f"{self.name}#{id}" if isinstance(id, int) else id)
            task = Task(_id(job), state, job.body)
            do(job)
        except (UnknownJob, NotTaken, NotOwner):
            raise QueueError("Task was not taken") from None
        return task

    def _is_there(self) -> bool:
        try:
            self._over.stats()
        except CommandError:
            return False
        return True

    def _statistics(self) -> dict[str, dict[str, int]]:
        counts = dict.fromkeys(CALLS, 0)
        for event, count in self._over.events().items():
            if event in _CALL_OF_EVENT:
                counts[_CALL_OF_EVENT[event]] += count
        states = self._over.stats()
        tasks = {name: states[name] for name in ("ready", "taken", "buried", "delayed")}
        ended = counts["ack"] + counts["delete"] + counts["ttl"]
        return {"tasks": {**tasks, "total": sum(tasks.values()), "done": ended}, "calls": counts}


def _id(job: AnyJob) -> Any:
    """The id of a task. One that is put and gone at once, by somebody else's hand, is known by its long id only."""
    try:
        number = job.meta()["number"]
    except UnknownJob:
        number = None
    return job.id if number is None else number


def _give_back(job: AnyJob, deliveries: int) -> None:
    """Give back a job that was taken, and that the caller never got. Where that fails, its session's end does it."""
    with contextlib.suppress(PenstockError):
        if isinstance(job, EmbeddedJob):
            job._tube._host.give_back(Handed([job._core], [deliveries]))
            return
        try:
            job.release()
        except OnlyOnce:
            # A server cannot know that nobody saw it; buried, it can still be looked at.
            job.bury("its taker was interrupted")


def _options(
    options: dict[str, Any] | None, more: dict[str, Any], known: Collection[str], method: str
) -> dict[str, Any]:
    """The options of a method, by the names that they have below."""
    given = {}
    for name, value in {**(options or {}), **more}.items():
        below = _RENAMED.get(name, name)
        if below not in known:
            raise QueueError(f"unknown option {name!r} of {method}")
        if value is not None:
            given[below] = value
    return given


def _at_least_zero(number: Any, what: str) -> float:
    """A number as Lua has it, where less than zero is zero."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise QueueError(f"{what} must be a number, not {type(number).__name__}")
    return max(number, 0)
