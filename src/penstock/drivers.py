"""Drivers: types of tubes whose order is decided by code of the user.

A driver is a class with two functions. `create_space(name, options)` is called when a tube is created. `new(space,
on_task_change, options)` is called then and each time the queue is opened. It returns the tube object, which has these
methods:

    normalize_task(task)   return the task as users see it: (id, state, data)
    put(data, options)     add a task and return it
    take()                 mark the next task as taken and return it, or return None
    delete(id)             remove a task and return it
    release(id, options)   return a taken task to the queue
    bury(id)               set a task aside
    kick(count)            make up to `count` buried tasks ready, and return their number
    peek(id)               return a task, or None

A task is a tuple. Its first field is its id and its second its state: `r` ready, `t` taken, `-` done, `!` buried, `~`
delayed. The driver stores its tasks only in `space`, a mapping from id to task. After a crash the mapping has every
task as of the last commit.

Every call is a transaction (core/driving.py). If the driver raises, or stores an invalid task, the mapping is restored
and a new tube object is created from it. The engine updates its jobs from the mapping.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any, Final, Protocol, TypeVar

from penstock.core import states as s
from penstock.core.driving import DriverCall, Drivers, TaskChange, TubeDriver, driver_options, missing_driver
from penstock.core.errors import BadDriver, CommandError, WrongType
from penstock.core.job import BODY_JSON, BODY_MSGPACK, NO_SLOT, Draft
from penstock.core.limits import NAME_BYTES_MAX, NEVER, PRIORITY_UNSET, UNSET
from penstock.core.policy import ID_NAME, PRESETS, TubePolicy
from penstock.core.tube import Tube
from penstock.options import EncodedBody, boolean, decode_body, encode_body, to_text
from penstock.wire.bodies import name_value
from penstock.wire.msgpack import pack, unpack

_log = logging.getLogger("penstock")

# A driver runs under the lock of the queue. A call that takes longer than this is logged, because all clients wait.
SLOW_CALL_S: Final = 0.1

T = TypeVar("T")

Task = tuple[Any, ...]

_STATES: Final = {"r": s.READY, "t": s.TAKEN, "~": s.DELAYED, "!": s.BURIED, "-": s.DONE}
_METHODS: Final = ("normalize_task", "put", "take", "delete", "release", "bury", "kick", "peek")


class DriverTube(Protocol):
    """The tube object that a driver's `new` returns."""

    def normalize_task(self, task: Task) -> Task: ...
    def put(self, data: Any, options: dict[str, Any]) -> Task: ...
    def take(self) -> Task | None: ...
    def delete(self, id: Any) -> Task | None: ...
    def release(self, id: Any, options: dict[str, Any]) -> Task | None: ...
    def bury(self, id: Any) -> Task | None: ...
    def kick(self, count: int) -> int: ...
    def peek(self, id: Any) -> Task | None: ...


class Driver(Protocol):
    """A type of tube that is defined by code of the user."""

    def create_space(self, name: str, options: dict[str, Any]) -> Any: ...
    def new(self, space: Any, on_task_change: Callable[[Task, str], None], options: dict[str, Any]) -> DriverTube: ...


_registered: dict[str, Any] = {}


def register_driver(name: str, driver: Any) -> None:
    """Register a driver as a type of tube: `queue.tube("x", name)` creates a tube with it.

    `driver` has the functions `create_space` and `new`. Raises BadDriver if one is missing, or if the name is in use.
    """
    if name in PRESETS or name in _registered:
        raise BadDriver(f"there is a type of tube called {name!r} already")
    for function in ("create_space", "new"):
        if not callable(getattr(driver, function, None)):
            raise BadDriver(f'a driver must have functions "create_space" and "new"; {name!r} lacks "{function}"')
    _registered[name] = driver


def registered_driver(name: str) -> Any:
    """Return the driver that is registered under a name, or None."""
    return _registered.get(name)


def unregister_driver(name: str) -> None:
    """Remove a driver. Commands on its tubes are refused until it is registered again. The jobs are kept."""
    _registered.pop(name, None)


class DriverSpace(MutableMapping[Any, Task]):
    """The tasks of one tube by their ids, and the changes of the current transaction.

    A task is stored in the form of the journal: a nested tuple becomes a list, a subclass of tuple becomes a tuple. A
    driver then reads the same values before and after a restart.
    """

    def __init__(self) -> None:
        self._tasks: dict[Any, Task] = {}
        self._ids: dict[bytes, Any] = {}  # The ids of tasks by the names of their jobs.
        self._before: dict[Any, Task | None] = {}  # The tasks that the current transaction changed, before the change.

    def __getitem__(self, id: Any) -> Task:
        return self._tasks[id]

    def __setitem__(self, id: Any, task: Task) -> None:
        name = task_name(id)
        if not isinstance(task, (tuple, list)) or len(task) < 2 or task[0] != id:
            raise ValueError(f"a task is a tuple (id, state, …), stored under its id {id!r}, not {task!r}"[:300])
        if not isinstance(task[1], str) or task[1] not in _STATES:
            raise ValueError(f"task {id!r} has the state {task[1]!r}; the states are r t - ! ~")
        if self._ids.get(name, id) != id:
            raise ValueError(f"the ids {id!r} and {self._ids[name]!r} are the same to clients")
        stored = unpack(pack(list(task)))
        assert isinstance(stored, list)
        self._before.setdefault(id, self._tasks.get(id))
        self._tasks[id] = tuple(stored)
        self._ids[name] = id

    def __delitem__(self, id: Any) -> None:
        task = self._tasks.pop(id)
        self._before.setdefault(id, task)
        del self._ids[task_name(id)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, id: object) -> bool:
        return id in self._tasks

    def get(self, id: Any, default: Any = None) -> Any:
        return self._tasks.get(id, default)

    def keys(self) -> KeysView[Any]:
        return self._tasks.keys()

    def values(self) -> ValuesView[Task]:
        return self._tasks.values()

    def items(self) -> ItemsView[Any, Task]:
        return self._tasks.items()

    def __repr__(self) -> str:
        return f"<penstock driver space of {len(self)} tasks>"

    # For the tube that runs the driver

    def restore(self, body: bytes) -> Task:
        """Store a task that recovery has read from the journal."""
        fields = unpack(body)
        assert isinstance(fields, list)
        task = tuple(fields)
        self._tasks[task[0]] = task
        self._ids[task_name(task[0])] = task[0]
        return task

    def id_of(self, name: bytes) -> Any:
        return self._ids.get(name, name_value(name))

    def begin(self) -> None:
        """Begin a transaction. The changes of the previous transaction can no longer be undone."""
        self._before = {}

    def changed(self) -> list[tuple[Any, Task | None]]:
        """Return the tasks that the current transaction has changed so far, by id. A removed task is None."""
        now = [(id, before, self._tasks.get(id)) for id, before in self._before.items()]
        return [(id, task) for id, before, task in now if task != before]

    def undo(self) -> None:
        """Undo the changes of the current transaction."""
        before, self._before = self._before, {}
        for id, task in before.items():
            if task is None:
                self._tasks.pop(id, None)
                self._ids.pop(task_name(id), None)
            else:
                self._tasks[id] = task
                self._ids[task_name(id)] = id


def task_name(id: Any) -> bytes:
    """Return the name of the job of a task. The number 7 and the text "7" are the same name."""
    if isinstance(id, int) and not isinstance(id, bool) and -(1 << 63) <= id < 1 << 63:
        return b"%d" % id
    name = id.encode("utf-8", "surrogateescape") if isinstance(id, str) else id
    if not isinstance(name, bytes) or not 1 <= len(name) <= NAME_BYTES_MAX:
        raise ValueError(f"the id of a task is a whole number, or text or bytes of 1 to {NAME_BYTES_MAX} bytes")
    return name


class RunningDriver(TubeDriver):
    """The driver of one tube, with the tasks of the tube (a `DriverSpace`) and the tube object."""

    def __init__(self, driver: Driver, type: str, name: str, options: dict[str, Any]) -> None:
        self.driver = driver
        self._type = type
        self._name = name
        self._options = options
        self._space = DriverSpace()
        self._tube: DriverTube | None = None  # None: it has to be created.

    def create_space(self) -> None:
        """Call the driver's `create_space`, which can refuse the options. Then call `new` and check its result."""
        try:
            space = self._timed("create_space", lambda: self.driver.create_space(self._name, self._copied_options()))
            if space is not None and (not isinstance(space, Mapping) or len(space)):
                raise TypeError(f"it returned {space!r}; return an empty mapping"[:300])
        except (Exception, SystemExit) as error:
            raise self._failure("create_space", error) from error
        self._run("new", lambda tube: None)

    def open(self, bodies: list[bytes]) -> list[TaskChange]:
        """Restore the tasks from `bodies`, which are in the order of their puts, and start the driver."""
        tasks = [self._space.restore(body) for body in bodies]
        return self._run("normalize_task", lambda tube: [self._change(tube, task[0], task) for task in tasks])

    def opened(self) -> DriverCall:
        return DriverCall(b"", 0, self._run("normalize_task", self._changes, begins=False))

    def put(self, draft: Draft) -> DriverCall:
        data, options = decode_body(draft.body, draft.body_kind), _put_options(draft)
        return self._call("put", lambda tube: tube.put(data, options), must=True)

    def take(self) -> DriverCall:
        return self._call("take", lambda tube: tube.take())

    def delete(self, name: bytes) -> DriverCall:
        id = self._space.id_of(name)
        return self._call("delete", lambda tube: tube.delete(id))

    def release(self, name: bytes, options: dict[str, object]) -> DriverCall:
        id, given = self._space.id_of(name), dict(options)
        return self._call("release", lambda tube: tube.release(id, given))

    def bury(self, name: bytes) -> DriverCall:
        id = self._space.id_of(name)
        return self._call("bury", lambda tube: tube.bury(id))

    def kick(self, count: int) -> DriverCall:
        """Return up to `count` buried tasks to the queue."""

        def kick(tube: DriverTube) -> DriverCall:
            kicked = tube.kick(count)
            if isinstance(kicked, bool) or not isinstance(kicked, int):
                raise TypeError(f"kick returned {kicked!r}; return how many tasks it kicked"[:300])
            return DriverCall(b"", kicked, self._changes(tube))

        return self._run("kick", kick)

    def make_ready(self, name: bytes) -> DriverCall:
        """Store a task as ready without calling the driver. Then start the driver again, so that it reads the task."""
        id = self._space.id_of(name)
        task = self._space[id]
        self._tube = None
        self._space.begin()
        self._space[id] = (task[0], "r", *task[2:])
        shown, kind = encode_shown(task[2] if len(task) > 2 else None)
        try:
            return self._call("new", lambda tube: None, begins=False)
        except BadDriver:
            # The driver cannot start. Store the task as ready, with its data in the field that most drivers use.
            self._space[id] = (task[0], "r", *task[2:])
            change = TaskChange(name, _number(id), s.READY, pack(list(self._space[id])), shown, kind)
            return DriverCall(b"", 0, [change])

    def undo(self) -> None:
        """Undo the changes of the current transaction. The next call creates a new tube object."""
        self._space.undo()
        self._tube = None

    def failed(self, error: CommandError) -> None:
        _log.error("driver failed outside of a command: driver=%s tube=%s error=%s", self._type, self._name, error)

    def _call(
        self, method: str, call: Callable[[DriverTube], Task | None], must: bool = False, begins: bool = True
    ) -> DriverCall:
        """Call a method of the tube object, which must return a task. It may also return None, unless `must` is set."""

        def run(tube: DriverTube) -> DriverCall:
            task = call(tube)
            if task is None:
                if must:
                    raise TypeError(f"{method} returned None; return the task")
                return DriverCall(b"", 0, self._changes(tube))
            if not isinstance(task, (tuple, list)) or len(task) < 2:
                raise TypeError(f"{method} returned {task!r}; return the task"[:300])
            self._check_state(task)
            return DriverCall(task_name(task[0]), 0, self._changes(tube))

        return self._run(method, run, begins)

    def _run(self, method: str, run: Callable[[DriverTube], T], begins: bool = True) -> T:
        """Run code of the driver as a transaction. If the code raises, all its changes are undone."""
        if begins:
            self._space.begin()
        try:
            return self._timed(method, lambda: run(self._started()))
        except (Exception, SystemExit) as error:
            self.undo()
            raise self._failure(method, error) from error
        except BaseException:
            self.undo()
            raise

    def _started(self) -> DriverTube:
        """Return the tube object. Create it if necessary."""
        if self._tube is None:
            tube = self.driver.new(self._space, self._changed, self._copied_options())
            for method in _METHODS:
                if not callable(getattr(tube, method, None)):
                    raise TypeError(f'it does not have an implementation of method "{method}"')
            self._tube = tube
        return self._tube

    def _timed(self, method: str, run: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return run()
        finally:
            took = time.perf_counter() - began
            if took > SLOW_CALL_S:
                _log.warning(
                    "slow driver call: driver=%s tube=%s method=%s ms=%d; all clients wait while a driver runs",
                    *(self._type, self._name, method, took * 1000),
                )

    def _failure(self, method: str, error: BaseException) -> BadDriver:
        text = str(error)[:300]
        _log.warning(
            "driver failed: driver=%s tube=%s method=%s error=%s: %s",
            *(self._type, self._name, method, type(error).__name__, text),
            exc_info=error if _log.isEnabledFor(logging.DEBUG) else None,
        )
        return BadDriver(f"the {self._type!r} driver failed in {method}: {type(error).__name__}: {text}")

    def _copied_options(self) -> dict[str, Any]:
        options = json.loads(json.dumps(self._options))
        assert isinstance(options, dict)
        return options

    def _changed(self, task: Task, event: str = "") -> None:
        """Check the state of a changed task. The driver calls this method, which `new` gets as `on_task_change`."""
        self._check_state(task)

    def _check_state(self, task: Task) -> None:
        if task[1] not in _STATES:
            raise ValueError(f"task {task[0]!r} has the state {task[1]!r}; the states are r t - ! ~")

    def _changes(self, tube: DriverTube) -> list[TaskChange]:
        return [self._change(tube, id, task) for id, task in self._space.changed()]

    def _change(self, tube: DriverTube, id: Any, task: Task | None) -> TaskChange:
        if task is None:
            return TaskChange(task_name(id), _number(id), s.GONE, b"", b"", BODY_JSON)
        shown, kind = encode_shown(_data(tube.normalize_task(task)))
        return TaskChange(task_name(id), _number(id), _STATES[task[1]], pack(list(task)), shown, kind)


def _data(normalized: Task) -> Any:
    if not isinstance(normalized, (tuple, list)):
        raise TypeError(f"normalize_task returned {normalized!r}; return (id, state, data)"[:300])
    return normalized[2] if len(normalized) > 2 else None


def _number(id: Any) -> int:
    return id if isinstance(id, int) and id >= 0 else NO_SLOT


def encode_shown(data: Any) -> tuple[bytes, int]:
    """Return the data of a task as a body: JSON if JSON can represent the data exactly, otherwise msgpack."""
    try:
        raw, kind = encode_body(data)
        if kind != BODY_JSON or json.loads(raw) == data:
            return raw, kind
    except WrongType:
        pass
    return pack([data]), BODY_MSGPACK


def driver_draft(body: Any, options: dict[str, Any]) -> Draft:
    """Return the draft of a new job for a tube that has a driver. The driver receives the options unchanged."""
    raw, kind = body if isinstance(body, EncodedBody) else encode_shown(body)
    return Draft(raw, body_kind=kind, options=options)


def _put_options(draft: Draft) -> dict[str, Any]:
    """Return the options of a put, by the names that they have in Python."""
    given: dict[str, Any] = {}
    if draft.delay_ms != 0:
        given["delay"] = draft.delay_ms / 1000
    for name, ms in (("ttl", draft.ttl_ms), ("ttr", draft.ttr_ms)):
        if ms != UNSET:
            given[name] = None if ms == NEVER else ms / 1000
    if draft.priority != PRIORITY_UNSET:
        given["priority"] = draft.priority
    for name, value in (("key", draft.key), ("name", draft.name), ("unique", draft.unique), ("dedup", draft.dedup)):
        if value is not None:
            given[name] = name_value(value)
    for name, flag in (("urgent", draft.urgent), ("once", draft.once)):
        if flag:
            given[name] = True
    if draft.retry is not None:
        given["retry"] = draft.retry.text
    if draft.nacks != 0:
        given["nacks"] = draft.nacks
    if draft.options is not None:
        given.update(draft.options)
    return given


class HostDrivers(Drivers):
    """The registered drivers, and the running drivers of the tubes of one queue."""

    def __init__(self) -> None:
        self._running: dict[Tube, RunningDriver] = {}
        self._created: dict[bytes, RunningDriver] = {}  # The drivers of tubes that are being created.

    def policy(self, type: str, options: dict[str, object]) -> TubePolicy | None:
        if type not in _registered:
            return None
        try:
            notes = json.dumps({"driver": options}, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise WrongType(f"the options of a tube with a driver are values that JSON can hold: {error}") from None
        temporary = boolean(options.get("temporary") or False, "temporary")  # type: ignore[arg-type]
        return TubePolicy(type=type, ids=ID_NAME, driven=True, temporary=temporary, notes=notes)

    def create(self, name: bytes, policy: TubePolicy) -> None:
        running = self._make(name, policy)
        running.create_space()
        self._created[name] = running

    def find(self, tube: Tube) -> TubeDriver | None:
        driver = _registered.get(tube.policy.type)
        if driver is None:
            raise missing_driver(tube.name, tube.policy)
        running = self._running.get(tube)
        return running if running is not None and running.driver is driver else None

    def open(self, tube: Tube, bodies: list[bytes]) -> list[TaskChange]:
        running = self._created.pop(tube.name, None) or self._make(tube.name, tube.policy)
        changes = running.open(bodies)
        self._running[tube] = running
        return changes

    def drop(self, tube: Tube) -> None:
        self._running.pop(tube, None)

    def _make(self, name: bytes, policy: TubePolicy) -> RunningDriver:
        driver = _registered.get(policy.type)
        if driver is None:
            raise missing_driver(name, policy)
        return RunningDriver(driver, policy.type, to_text(name), driver_options(policy))
