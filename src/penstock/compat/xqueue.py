"""xqueue in Python, for any Penstock queue: `upgrade(queue, "space", {...})` returns a space with xqueue's methods.

Lua's maps, arrays and tuples are dicts, lists and tuples here. `wait` returns two values. A method that returns nothing
in Lua returns None. A refused call raises an `XqueueError` with xqueue's own message.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from penstock import api
from penstock.client.backoff import Backoff
from penstock.client.functions import Functions
from penstock.core.errors import Closed, CommandError, UnknownTube, Unreachable
from penstock.core.job import Job
from penstock.core.limits import DURATION_MS_MAX, NEVER
from penstock.core.waits import CANCELLED
from penstock.dialects.xqueue.calls import READING_METHODS as _READING
from penstock.dialects.xqueue.options import REQUIRED, BadFormat, XqueueError, options_of
from penstock.dialects.xqueue.options import as_upgrade_options as _told
from penstock.dialects.xqueue.space import Space as CoreSpace
from penstock.dialects.xqueue.space import Steps, Waits, tuple_refused
from penstock.dialects.xqueue.spaces import XqueueSpaces
from penstock.embedded import Queue as EmbeddedQueue
from penstock.embedded import sleep_through
from penstock.host.host import Host
from penstock.host.pending_delivery import PendingDelivery
from penstock.host.sleepers import ThreadSleeper
from penstock.node.caller import Caller
from penstock.node.context import CommandContext
from penstock.options import to_bytes

__all__ = ["BadFormat", "Space", "XqueueError", "space", "upgrade"]

_log = logging.getLogger("penstock")

# The first and the longest pause of a worker after a task has failed.
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0

# The spaces of each queue in this process. All its sessions share them.
_spaces: weakref.WeakKeyDictionary[Host, XqueueSpaces] = weakref.WeakKeyDictionary()


def upgrade(queue: api.Queue, space: str, options: dict[str, Any]) -> Space:
    """Create a space, or change the options of an existing one: see docs/reference/xqueue.md.

    Options that are left out keep their values. The attribute `changed` of the space has the changed ones.

    `worker` is a function that `workers` threads call with tasks. If the function returns, its task is acked. If it
    raises, the task returns to the space, and the logger `penstock` logs the error. The threads end with the queue or
    by `space.stop()`.

    If `features.id` is a function, it is called under the queue's lock to make ids, so it must not call the queue.
    """
    name = to_bytes(space, "the name of a space")
    worker, workers = _read_workers(options)
    if worker is not None:
        options = {name: value for name, value in options.items() if name not in ("worker", "workers")}
    rows = _rows(queue, name)
    made = Space(rows, rows.upgrade(options))
    if worker is not None:
        made._start(worker, workers)
    return made


def space(queue: api.Queue, name: str) -> Space:
    """Return an existing space without changing it."""
    rows = _rows(queue, to_bytes(name, "the name of a space"))
    rows.options()
    return Space(rows)


def _rows(queue: api.Queue, name: bytes) -> _InProcess | _OnServer:
    return _InProcess(queue, name) if isinstance(queue, EmbeddedQueue) else _OnServer(queue, name)


def _spaces_of(host: Host) -> XqueueSpaces:
    known = _spaces.get(host)
    if known is None:
        weak = _WeakHost(host)
        context = CommandContext(host.engine, host.ids, host.node.encode(), weak.body_of, weak.make_room)
        known = _spaces[host] = XqueueSpaces(context)
    return known


class _WeakHost:
    """The methods of a queue's host that spaces use. The reference is weak, so that an unused queue can be freed."""

    def __init__(self, host: Host) -> None:
        self._host = weakref.ref(host)

    def body_of(self, job: Job) -> bytes:
        return self._live().body_of(job)

    def make_room(self, length: int) -> None:
        self._live().make_room_now(length)

    def _live(self) -> Host:
        host = self._host()
        assert host is not None
        return host


class _InProcess:
    """A space of a queue in this process."""

    def __init__(self, queue: EmbeddedQueue, name: bytes) -> None:
        self.name = name
        self._queue = queue  # This reference keeps the queue open while a space of it is in use.
        self._host, self._session = queue._host, queue._session

    def upgrade(self, options: object) -> dict[str, list[Any]]:
        with self._session.durable, self._session.lock, self._session:
            return _spaces_of(self._host).upgrade(self.name, options, self._host.now()).changed

    def options(self) -> dict[str, Any]:
        with self._session.durable, self._session.lock, self._session:
            return _told(self._find().options)

    def call(self, method: str, *args: Any) -> list[Any]:
        host, session = self._host, self._session
        caller = Caller(session.connection)
        sleeper = ThreadSleeper()
        try:
            with session.durable, session.lock, session:
                function = self._find().method(method)
                assert function is not None
                outcome = function(caller, list(args), host.now(), sleeper)
            while isinstance(outcome, Steps):
                with session.durable, session.lock, session:
                    results = outcome.step(host.now())
                outcome = outcome if results is None else results
            if isinstance(outcome, Waits):
                sleep_through(host, outcome.wait, sleeper)
                with session.durable, session.lock, session:
                    if outcome.wait.outcome == CANCELLED:
                        raise Closed()
                    outcome = outcome.finish(outcome.wait, host.now())
            return outcome
        except BaseException:
            host.undeliver_quietly(PendingDelivery(caller.unsent, caller.unsent_deliveries))
            raise

    def _find(self) -> CoreSpace:
        found = _spaces_of(self._host).find(self.name)
        if found is None:
            raise _unknown(self.name)
        return found


class _OnServer:
    """A space of a server."""

    def __init__(self, queue: api.Queue, name: bytes) -> None:
        self.name = name
        self._queue = queue
        self._functions = Functions(queue)

    def upgrade(self, options: Any) -> dict[str, list[Any]]:
        features = options.get("features") if isinstance(options, dict) else None
        if isinstance(features, dict) and callable(features.get("id")):
            raise XqueueError("features.id is a function, which cannot be sent to a server; name a kind of id")
        try:
            changed: dict[str, list[Any]] = self._functions.call(b"xqueue.upgrade", self.name, options)[1]
        except CommandError as error:
            raise self._refusal(error) from None
        return changed

    def options(self) -> dict[str, Any]:
        try:
            found = options_of(self._queue.find_tube(self.name).policy)
        except UnknownTube:
            found = None
        if found is None:
            raise _unknown(self.name)
        return _told(found)

    def call(self, method: str, *args: Any) -> list[Any]:
        function = b"box.space.%b:%b" % (self.name, method.encode())
        try:
            if method == "take":
                args = _timeout_first(*args)
                return self._functions.take(function, *args, timeout_at=0, wait_ms=_wait_ms(args[0]))
            wait: object = 0
            if method == "put" and isinstance(args[0], tuple) and self.options()["features"]["id"] != REQUIRED:
                raise tuple_refused()  # On the wire it would be an array.
            if method == "wait":
                wait = math.inf if args[1] is None else args[1]
            elif method == "put" and isinstance(args[1], dict):
                wait = args[1].get("wait")
            return self._functions.call(function, *args, only_reads=method in _READING, wait_ms=_wait_ms(wait))
        except CommandError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: CommandError) -> CommandError:
        """Return the error that a space in this process would raise for this refusal of a server."""
        if error.code == BadFormat.code:
            return BadFormat(str(error))
        if error.code == XqueueError.code:
            return XqueueError(str(error))
        return _unknown(self.name) if str(error).endswith("is not defined") else error


def _timeout_first(timeout: Any, attr: Any) -> tuple[Any, Any]:
    """Return the timeout and the options of a take. The timeout can be the first argument or one of the options."""
    if not isinstance(timeout, dict) or isinstance(timeout.get("timeout"), (dict, list)):
        return timeout, attr
    return timeout.get("timeout"), {name: value for name, value in timeout.items() if name != "timeout"}


def _wait_ms(timeout: object) -> int:
    """Return how many milliseconds a server waits with this timeout, or 0 if it refuses the timeout."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        return 0
    return NEVER if timeout * 1000 > DURATION_MS_MAX else int(timeout * 1000)


def _unknown(name: bytes) -> UnknownTube:
    return UnknownTube(f"there is no space {name.decode('utf-8', 'backslashreplace')!r}; make it by upgrade")


class Space:
    """One space. The tasks that are taken through this object belong to the session of the queue."""

    changed: dict[str, list[Any]]  # The options that the upgrade changed: name to old and new value.

    def __init__(self, rows: _InProcess | _OnServer, changed: dict[str, list[Any]] | None = None) -> None:
        self.changed = changed or {}
        self._rows = rows
        self._call = rows.call
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"<penstock space {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of the space, and of its tube."""
        return self._rows.name.decode("utf-8", "backslashreplace")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the space, in the form that `upgrade` accepts."""
        return self._rows.options()

    def put(self, task: Any, attr: dict[str, Any] | None = None) -> Any:
        """Put a task and return it. With `wait`, wait for its end and also return whether it was acked."""
        results = self._call("put", task, attr)
        return results[0] if len(results) == 1 else tuple(results)

    def take(self, timeout: float | dict[str, Any] | None = None, attr: dict[str, Any] | None = None) -> Any:
        """Take the next task of one `tube` or of any. Wait up to `timeout` seconds. Return None if none came."""
        return _one(self._call("take", timeout, attr))

    def ack(self, key: Any, attr: dict[str, Any] | None = None) -> Any:
        """Finish a task successfully. It is removed, or kept if the option `features` of the space says so."""
        return _one(self._call("ack", key, attr))

    def release(self, key: Any, attr: dict[str, Any] | None = None) -> Any:
        """Return a task to the space."""
        return _one(self._call("release", key, attr))

    def bury(self, key: Any, attr: dict[str, Any] | None = None) -> None:
        """Bury a task."""
        self._call("bury", key, attr)

    def dig(self, key: Any = None, attr: dict[str, Any] | None = None) -> Any:
        """Make the buried task with the primary key `key` ready.

        If primary keys are strings and `key` is a number N, make the first N buried tasks ready.
        """
        return _one(self._call("dig", key, attr))

    def plow(self, count: float | None = None, attr: dict[str, Any] | None = None) -> int:
        """Make the first N buried tasks ready, or all if N is not given. Return their number."""
        return int(_one(self._call("plow", count, attr)))

    def kick(self, what: Any = None, attr: dict[str, Any] | None = None) -> Any:
        """Make buried tasks ready: the first N if `what` is a number N, otherwise the task with this primary key."""
        return _one(self._call("kick", what, attr))

    def kill(self, key: Any) -> Any:
        """Remove a task, no matter which session holds it."""
        return _one(self._call("kill", key))

    def touch(self, key: Any, attr: dict[str, Any] | None = None) -> Any:
        """Extend the time for a task by `increment` seconds."""
        return _one(self._call("touch", key, attr))

    def wait(self, key: Any, timeout: float | None = None) -> tuple[Any, bool]:
        """Wait for the end of a task. Return the task and whether it was acked."""
        task, processed = self._call("wait", key, timeout)
        return task, bool(processed)

    def switch(self, key: Any, status: str, attr: dict[str, Any] | None = None) -> Any:
        """Put a task that is not taken into another status."""
        return _one(self._call("switch", key, status, attr))

    def snatch(self, key: Any, attr: dict[str, Any] | None = None) -> Any:
        """Take a task away from the session that holds it."""
        return _one(self._call("snatch", key, attr))

    def restart(self, key: Any, attr: dict[str, Any] | None = None) -> Any:
        """Make a task ready that is delayed, or that was acked and kept."""
        return _one(self._call("restart", key, attr))

    def get(self, key: Any) -> Any:
        """Return the task with a primary key, or None."""
        return _one(self._call("get", key))

    def select(self, key: Any = None, options: dict[str, Any] | None = None) -> list[Any]:
        """Return tasks as lists, in the order of the primary key. The options are iterator, limit and offset."""
        rows: list[Any] = _one(self._call("select", key, options))
        return rows

    def stats(self, pretty: bool = False) -> dict[str, Any]:
        """Return the number of tasks in each status.

        The result also has the number of transitions between each two statuses since the start.
        """
        stats: dict[str, Any] = _one(self._call("stats", pretty))
        return stats

    def queue_stats(self) -> dict[str, Any]:
        """Return the same as `stats`. xqueue has both names."""
        return self.stats()

    def truncate(self) -> None:
        """Remove every task."""
        self._call("truncate")

    def len(self) -> int:
        """Return the number of tasks."""
        return int(_one(self._call("len")))

    def count(self) -> int:
        """Return the number of tasks."""
        return int(_one(self._call("count")))

    def __len__(self) -> int:
        return self.len()

    def stop(self) -> None:
        """Stop the workers after their current tasks."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads = []

    def _start(self, worker: Callable[[Any], object], count: int) -> None:
        for number in range(count):
            name = f"penstock-{self.name}-{number + 1}"
            thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self, worker: Callable[[Any], object]) -> None:
        """Take tasks until the queue is closed or the workers are stopped."""
        pauses = _pauses()
        while not self._stopping.is_set():
            try:
                task = self.take(_LONGEST_PAUSE_S)
            except Unreachable as error:
                _log.warning("worker cannot take: space=%s error=%s", self.name, error)
                self._stopping.wait(pauses.pause())
                continue
            except CommandError as error:
                if not isinstance(error, Closed):
                    _log.error("worker ended: space=%s error=%s", self.name, error)
                return
            if task is not None and self._run(worker, task):
                pauses = _pauses()
            elif task is not None:
                self._stopping.wait(pauses.pause())

    def _run(self, worker: Callable[[Any], object], task: Any) -> bool:
        """Call a worker with a task. Return whether it succeeded."""
        try:
            worker(task)
        except Exception:
            _log.exception("worker failed, task released: space=%s", self.name)
            finish, done = self.release, False
        else:
            finish, done = self.ack, True
        try:
            finish(task)
        except CommandError:
            pass  # The worker finished the task itself, or lost it.
        except Unreachable as error:
            _log.warning("worker could not finish its task: space=%s error=%s", self.name, error)
        return done


def _pauses() -> Backoff:
    """Return the pauses of a worker after consecutive failures. Each pause is longer than the one before."""
    return Backoff(None, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)


def _one(results: list[Any]) -> Any:
    return results[0] if results else None


def _read_workers(options: dict[str, Any]) -> tuple[Callable[[Any], object] | None, int]:
    worker = options.get("worker") if isinstance(options, dict) else None
    if worker is None:
        return None, 0
    workers = options.get("workers", 1)
    if not callable(worker):
        raise XqueueError("worker must be a function")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise XqueueError("workers must be a number above 0")
    return worker, workers
