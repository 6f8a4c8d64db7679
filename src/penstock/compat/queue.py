"""The API of the present tarantool/queue in Python, for any Penstock queue: `Queue(penstock.open("./jobs"))`.

    queue = require('queue')                                  queue = Queue(penstock.open("./jobs"))
    queue.create_tube('mail', 'fifottl', {ttl = 60})          queue.create_tube("mail", "fifottl", ttl=60)
    queue.tube.mail:put({to = 'you'}, {delay = 5})            queue.tube.mail.put({"to": "you"}, delay=5)
    local task = queue.tube.mail:take(10)                     task = queue.tube.mail.take(10)
    queue.tube.mail:ack(task[1])                              queue.tube.mail.ack(task[0])

The left column is Lua, the right column is Python. Options are keywords or a dict. Options that the type of a tube does
not have are ignored, as in the original; the logger `penstock` gets one warning for each of them. A task is `(id,
state, data)`. This module only translates calls. Other clients can use the same queue through other APIs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from penstock import api
from penstock.changes import Change
from penstock.client.queue import Job as ConnectedJob
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
from penstock.core.limits import BATCH_JOBS_MAX, DURATION_MS_MAX
from penstock.core.policy import KEYS_NONE, PRESETS, TubePolicy
from penstock.dialects.tarantool.queue_functions import (
    CALLS,
    STATE_LETTERS,
    TEMPORARY_REFUSED,
    TTR_MS_MIN,
    lua_number,
    whole_count,
)
from penstock.dialects.tarantool.tube_options import (
    has_put_option,
    has_release_option,
    has_take_option,
    has_tube_option,
)
from penstock.drivers import register_driver
from penstock.embedded import Job as EmbeddedJob
from penstock.embedded import Tube as EmbeddedTube
from penstock.host.change_feed import WatchedChange
from penstock.host.pending_delivery import PendingDelivery
from penstock.node.ignored_options import HasOption, IgnoredOptions
from penstock.options import PutOptions, decode_body, to_text

__all__ = ["Queue", "QueueError", "Task", "Tube"]

_LETTERS: Final = dict(zip(s.STATE_NAMES, STATE_LETTERS, strict=True))
_STATES: Final = {"r": "ready", "t": "taken", "~": "delayed", "!": "buried", "-": "done"}
_RENAMED: Final = {"pri": "priority", "utube": "key", "stube": "key"}
_STORAGE: Final = ("engine", "storage_mode")
_CALL_OF_EVENT: Final = {s.EVENT_NAMES[event]: call for call, events in CALLS.items() for event in events}
# The state in which every ended task is reported.
_WHAT: Final = {"ack": "delete"}

# Options of Penstock that a put passes on.
_OWN_PUT: Final = frozenset(PutOptions.__annotations__) - {"delay", "ttl", "ttr", "priority", "key"}

# The policy of types that are not presets. Their drivers interpret the options themselves.
_DRIVEN: Final = TubePolicy(type="driver", driven=True)

_log = logging.getLogger("penstock")
_ignored = IgnoredOptions(lambda text: _log.warning("%s", text))


OnChange = Callable[["Task", str], object]


class QueueError(CommandError):
    """A call was refused. The message is that of Tarantool's queue."""


class Task(NamedTuple):
    """A task of Tarantool's queue."""

    id: Any  # A number in the tube, starting with 0, or the id that the type of the tube uses.
    state: str  # One of r, t, ~, ! and -.
    data: Any


class Queue:
    """The counterpart of the Lua module `queue`: its functions, and the tubes by their names."""

    def __init__(self, over: api.Queue) -> None:
        self._over = over
        self._in_replicaset = False
        self.tube = _Tubes(over)
        self.schema = self

    def create_tube(self, name: str, type: str, options: dict[str, Any] | None = None, **more: Any) -> Tube:
        """Create a tube and return it. With `if_not_exists`, return an existing tube of any type."""
        given = {**(options or {}), **more}
        found, callback = given.pop("if_not_exists", False), given.pop("on_task_change", None)
        if type in PRESETS:
            given = {_RENAMED.get(key, key): value for key, value in given.items() if key not in _STORAGE}
        if name in self._over.tubes():
            if not found:
                raise QueueError(f"Space '{name}' already exists")
        elif type is None:
            raise QueueError("Unknown tube type nil")
        else:
            preset = PRESETS.get(type, _DRIVEN) if isinstance(type, str) else _DRIVEN
            known = _known("create_tube", preset, given, has_tube_option)
            if known.get("temporary") and self._in_replicaset:
                raise QueueError(TEMPORARY_REFUSED)
            try:
                self._over.tube(name, cast(Any, type), **known)
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
        """Return the statistics of one tube, or a dict with those of every tube by its name.

        They are the number of tasks in each state, and the number of calls of each function.
        """
        if name is None:
            return {each: self.tube[each]._statistics() for each in self._over.tubes()}
        return self.tube[name]._statistics()

    stats = statistics

    def identify(self, token: str | None = None) -> str:
        """Join the session of a token, if one is given. Return the token of the session."""
        try:
            self._over.identify(token)
        except UnknownSession:
            raise QueueError(f"The UUID {uuid.UUID(token)} is unknown.") from None
        except WrongType:
            raise QueueError("Invalid UUID format.") from None
        return self._over.token

    def cfg(self, options: dict[str, Any] | None = None, **more: Any) -> None:
        """Set options of the queue.

        `ttr` is the grace time in seconds: how long the tasks of this session stay taken after its last connection
        closed. With `in_replicaset`, this object refuses to create temporary tubes.
        """
        for name, value in {**(options or {}), **more}.items():
            if name == "ttr":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                    raise QueueError(f"Invalid value of ttr: {value}")
                # Some clients send nanoseconds. The value is limited to the longest duration.
                self._over.identify(grace=min(value, DURATION_MS_MAX // 1_000))
            elif name != "in_replicaset":
                raise QueueError(f"Unknown option {name}")
            elif not isinstance(value, bool):
                raise QueueError(f"Invalid value of in_replicaset: {value}")
            else:
                self._in_replicaset = value

    def state(self) -> str:
        """Return "RUNNING", because a queue that can be called is running."""
        return "RUNNING"

    def register_driver(self, name: str, driver: Any) -> None:
        """Register a driver as a type of tube: see docs/reference/tubes/drivers.md."""
        register_driver(name, driver)


class _Tubes:
    """The object `queue.tube`, which has the tubes as attributes.

    `queue.tube()` returns all names, and `queue.tube(name)` whether the tube exists.
    """

    def __init__(self, over: api.Queue) -> None:
        self._over = over
        self._known: dict[str, Tube] = {}

    def __call__(self, name: str | None = None) -> list[str] | bool:
        if name is not None and not isinstance(name, str):
            raise QueueError("argument #1 should be string or nil")
        names = self._over.tubes()
        return names if name is None else name in names

    def __getitem__(self, name: str) -> Tube:
        # The object of a tube is kept, because it has the callback. A tube that was created again gets a new object.
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
    """A tube, with the methods of tarantool/queue."""

    def __init__(self, over: api.Queue, tube: api.Tube) -> None:
        self._queue = over
        self._over = tube
        self._callback: OnChange | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._seen: dict[str, Task] = {}  # Tasks that the callback has received and that may change again, by job id.

    @property
    def name(self) -> str:
        return self._over.name

    @property
    def type(self) -> str:
        return self._over.type

    def put(self, data: Any, options: dict[str, Any] | None = None, **more: Any) -> Task | None:
        """Put a task and return it. Return None if the tube is full for `timeout` seconds."""
        if self._over.policy.driven:
            return self._put_driven(data, {**(options or {}), **more})
        given = _known("put", self._over.policy, {**(options or {}), **more}, _has_put_option)
        timeout = given.pop("timeout", 0)
        try:
            job = self._over.put(data, timeout=timeout, **given)
        except Full:
            return None
        return Task(self._id(job), "~" if given.get("delay") else "r", data)

    def _put_driven(self, data: Any, options: dict[str, Any]) -> Task:
        """Put a task into a tube with a driver, which receives the options unchanged."""
        given: PutOptions = {"options": options}
        if "headers" in options:
            given["headers"] = options.pop("headers")
        job = self._over.put(data, **given)
        if isinstance(job, ConnectedJob):
            # The driver has chosen the id, and may have changed the data.
            with contextlib.suppress(UnknownJob):
                job = self._over.job(job.id)
        return Task(self._id(job), _returned_letter(job), job.body)

    def take(self, timeout: float | None = None, options: dict[str, Any] | None = None, **more: Any) -> Task | None:
        """Take the next task, or return None if none is ready within `timeout` seconds. The default is no limit."""
        key = _known("take", self._over.policy, {**(options or {}), **more}, _has_take_option).pop("key", None)
        job = self._over.take(None if timeout is None else _at_least_zero(timeout, "timeout"), key=key)
        if job is None:
            return None
        deliveries = job.deliveries
        try:
            return Task(self._id(job), "t", job.body)
        except BaseException:
            _give_back(job, deliveries)
            raise

    def ack(self, id: Any) -> Task:
        """Finish a task successfully."""
        return self._finish(id, lambda job: job.ack(), "-")

    def release(self, id: Any, options: dict[str, Any] | None = None, **more: Any) -> Task:
        """Return a task to the tube, after a `delay` if one is given."""
        if self._over.policy.driven:
            for_driver = {**(options or {}), **more}
            task = self._finish(id, lambda job: job.release(options=for_driver), "r")
            with contextlib.suppress(QueueError):
                task = self.peek(id)
            return task if task.state != "t" else task._replace(state="r")
        given = _known("release", self._over.policy, {**(options or {}), **more}, _has_release_option)
        return self._finish(id, lambda job: job.release(**given), "~" if given.get("delay") else "r")

    def touch(self, id: Any, seconds: float | None = None) -> Task | None:
        """Extend the time for a task. An increment of 0 has no effect."""
        if seconds is None or _at_least_zero(seconds, "the time to add") == 0:
            return None
        try:
            return self._finish(id, lambda job: job.touch(seconds), "t")
        except Unsupported:
            raise QueueError(f"{self.type} queue does not support touch") from None

    def peek(self, id: Any) -> Task:
        """Return a task without taking it."""
        job = self._find(id)
        return Task(self._id(job), _LETTERS[job.state], job.body)

    def headers(self, id: Any) -> dict[str, str]:
        """Return the headers of a task, which its put gave as the option `headers`."""
        return self._find(id).headers

    def bury(self, id: Any) -> Task:
        """Bury a task."""
        job = self._find(id)
        task = Task(self._id(job), "!", job.body)
        job.bury()
        return task

    def kick(self, count: float | str | None = None) -> float:
        """Make up to `count` buried tasks ready, by default one. Return their number.

        As in Lua, the text of a number is accepted, and a negative count is returned unchanged.
        """
        number = 1 if count is None else lua_number(count)
        if number is None:
            raise QueueError(f"a count must be a number, not {type(count).__name__}")
        left = whole_count(number)
        kicked = 0
        while left > 0:
            wanted = min(left, BATCH_JOBS_MAX)
            found = self._over.kick(wanted)
            kicked += found
            left = left - found if found == wanted else 0
        return number if number < 0 else kicked

    def delete(self, id: Any) -> Task:
        """Remove a task in any state."""
        job = self._find(id)
        task = Task(self._id(job), "-", job.body)
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
        """Return every taken task to the tube, no matter which session holds it."""
        self._over.release_all()

    def tasks_by_state(self, state: str) -> list[Task]:
        """Return the first thousand tasks that are in a state, in the order in which they would be taken."""
        if state not in _STATES:
            raise QueueError("a state is one of r, t, ~, ! and -")
        return [Task(self._id(job), state, job.body) for job in self._over.jobs(cast(Any, _STATES[state]))]

    def on_task_change(self, callback: OnChange | None) -> OnChange | None:
        """Call a function with every task that changes and with the event. Return the function that was set before.

        The function receives the task with its state after the change. It receives the changes in their order, in a
        thread of its own. It is called after the commit and before the command that caused the change returns. If the
        queue is on a server, the function is called later, and the data of a task that is gone can be None.
        """
        before, self._callback = self._callback, callback
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._seen = {}
        self._unsubscribe = None
        if callback is not None and isinstance(self._over, EmbeddedTube):
            self._unsubscribe = self._over._watch(functools.partial(self._committed, callback))
        elif callback is not None:
            self._unsubscribe = self._over.subscribe(functools.partial(self._changed, callback, self._seen))
        return before

    def _committed(self, callback: OnChange, seen: WatchedChange) -> None:
        """Call `callback` with the task and the event of a change, for a queue in this process."""
        change = seen.change
        call = _CALL_OF_EVENT.get(change.event)
        if call is None or callback is not self._callback:
            return
        id: Any = change.number
        if id is None:
            id = to_text(seen.name) if self._over.policy.driven else change.id
        data = None if seen.body is None else decode_body(seen.body, seen.body_kind)
        callback(Task(id, _LETTERS[change.after], data), _WHAT.get(call, call))

    def _changed(self, callback: OnChange, known: dict[str, Task], change: Change) -> None:
        """Call `callback` with the task and the event of a change, for a queue on a server.

        The server sends the change without the task.
        """
        if known is not self._seen:
            return  # The function was removed or replaced.
        call = _CALL_OF_EVENT.get(change.event)
        if call is None:
            if change.after == "gone":
                known.pop(change.id, None)
            return
        seen = known.pop(change.id, None)
        if seen is None:
            try:
                job = self._queue.job(change.id)
                seen = Task(self._id(job), "", job.body)
            except UnknownJob:
                seen = Task(change.id if change.number is None else change.number, "", None)
        task = seen._replace(state=_LETTERS[change.after])
        if task.state != "-":
            known[change.id] = task
        callback(task, _WHAT.get(call, call))

    def _id(self, job: api.Job) -> Any:
        """Return the id of a task for the caller. If the task no longer exists, return the id of the Penstock job."""
        try:
            known = job.meta()
        except UnknownJob:
            return job.id
        if known["number"] is not None:
            return known["number"]
        return known["name"] if self._over.policy.driven else job.id

    def _look_up(self, id: Any) -> api.Job:
        if self._over.policy.driven:
            return self._over.named(str(id) if isinstance(id, int) else id)
        return self._over.job(f"{self.name}#{id}" if isinstance(id, int) else id)

    def _find(self, id: Any) -> api.Job:
        try:
            return self._look_up(id)
        except CommandError:
            raise QueueError(f"Task {id} not found") from None

    def _finish(self, id: Any, do: Callable[[api.Job], object], state: str) -> Task:
        try:
            job = self._look_up(id)
            task = Task(self._id(job), state, job.body)
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


def _returned_letter(job: api.Job) -> str:
    """Return the letter of the state of a new task. If another client has already taken it, return "r" for ready."""
    letter = _LETTERS[job.state]
    return "r" if letter == "t" else letter


def _give_back(job: api.Job, deliveries: int) -> None:
    """Return a job to its tube, because the caller did not receive it.

    If this fails, the job returns when the session ends.
    """
    with contextlib.suppress(PenstockError):
        if isinstance(job, EmbeddedJob):
            job._tube._host.undeliver(PendingDelivery([job._core], [deliveries]))
            return
        try:
            job.release()
        except OnlyOnce:
            # A job that may be delivered only once cannot return. A buried job can still be inspected.
            job.bury("its taker was interrupted")


def _known(function: str, policy: TubePolicy, options: dict[str, Any], has: HasOption) -> dict[str, Any]:
    """Return the options of a call under their Penstock names, without options that the tube does not have."""
    known = _ignored.supported(function, policy, cast("dict[object, object]", options), has)
    given: dict[str, Any] = {_RENAMED.get(name, name): value for name, value in known.items()}
    if given.get("ttr") == 0 and not isinstance(given["ttr"], bool):
        given["ttr"] = TTR_MS_MIN / 1000
    return given


def _has_put_option(policy: TubePolicy, name: str) -> bool:
    return name in _OWN_PUT or _has_own(policy, name) or has_put_option(policy, name)


def _has_take_option(policy: TubePolicy, name: str) -> bool:
    return (name == "key" and _has_own(policy, name)) or has_take_option(policy, name)


def _has_release_option(policy: TubePolicy, name: str) -> bool:
    return _has_own(policy, name) or has_release_option(policy, name)


def _has_own(policy: TubePolicy, name: str) -> bool:
    """Return whether a tube has an option with this Penstock name (`priority` or `key`)."""
    if name == "priority":
        return has_put_option(policy, "pri")
    return name == "key" and policy.keys != KEYS_NONE


def _at_least_zero(number: Any, what: str) -> float:
    """Return a number, or 0 if it is negative, as the Lua functions do. Raise QueueError if it is not a number."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise QueueError(f"{what} must be a number, not {type(number).__name__}")
    return max(number, 0)
