"""The 1.5 API of Tarantool's queue in Python, for any Penstock queue: `Queue15(penstock.open("./jobs"))`.

    queue.put(0, "mail", 0, 60, 10, 127, "data")        queue.take(0, "mail", 5)        queue.ack(0, id)

A task is a list `[id, tube, status, field, …]`. The tube `mail` of space 0 is the Penstock tube `mail`. The tube `mail`
of space 5 is the Penstock tube `5/mail`. A tube is created when it is used first. A take returns None if there is no
task. For a queue on a server, the server runs the functions; for an embedded queue, they run in this process.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from penstock import api
from penstock.client.functions import Functions
from penstock.core.errors import CommandError, Unsupported, WrongType
from penstock.core.limits import NEVER
from penstock.dialects.tarantool import queue15_functions
from penstock.embedded import Queue as EmbeddedQueue
from penstock.host.pending_delivery import PendingDelivery
from penstock.node.caller import Caller
from penstock.node.context import CommandContext
from penstock.wire.errors import BoxError
from penstock.wire.iproto import CALL, Request
from penstock.wire.msgpack import pack, unpack

__all__ = ["Queue15", "Queue15Error"]

Task = list[Any]

_READING: Final = (b"peek", b"meta", b"statistics")


class Queue15Error(CommandError):
    """A call was refused. The message is that of the 1.5 API."""


class Queue15:
    """The functions of the 1.5 API."""

    def __init__(self, over: api.Queue, pri_mode: Literal["absolute", "offset"] | None = None) -> None:
        """Wrap a queue.

        `pri_mode` is the meaning of the argument `pri` of a put. With "absolute", `pri` is a priority from 0 to 255, as
        the original documents. With "offset", `pri` is added to 127, as the original implements. For a queue on a
        server, leave `pri_mode` out, because the server has the setting `queue15-pri-mode`.
        """
        if pri_mode not in (None, "absolute", "offset"):
            raise WrongType(f"pri_mode is absolute or offset, not {pri_mode!r}")
        self._functions: _InProcess | _OnServer
        if isinstance(over, EmbeddedQueue):
            self._functions = _InProcess(over, pri_mode == "offset")
        elif pri_mode is None:
            self._functions = _OnServer(over)
        else:
            raise Unsupported("the server's setting queue15-pri-mode says what pri is; leave pri_mode out")

    def put(
        self,
        space: int,
        tube: str,
        delay: float = 0,
        ttl: float = 0,
        ttr: float = 0,
        pri: int | None = None,
        *data: Any,
    ) -> Task:
        """Put a task with any number of fields."""
        return cast(Task, self._call(b"put", space, tube, delay, ttl, ttr, pri, *data))

    def urgent(
        self,
        space: int,
        tube: str,
        delay: float = 0,
        ttl: float = 0,
        ttr: float = 0,
        pri: int | None = None,
        *data: Any,
    ) -> Task:
        """Put a task in front of all others, unless it has a delay."""
        return cast(Task, self._call(b"urgent", space, tube, delay, ttl, ttr, pri, *data))

    def put_unique(
        self,
        space: int,
        tube: str,
        delay: float = 0,
        ttl: float = 0,
        ttr: float = 0,
        pri: int | None = None,
        *data: Any,
    ) -> Task:
        """Put a task, or return a waiting task with the same data."""
        return cast(Task, self._call(b"put_unique", space, tube, delay, ttl, ttr, pri, *data))

    def take(self, space: int, tube: str, timeout: float | None = None) -> Task | None:
        """Take the next task, or wait for one. Without a timeout, or with a negative one, wait without limit."""
        try:
            wait_ms = queue15_functions.wait_ms(timeout)
        except BoxError as error:
            raise Queue15Error(str(error)) from None
        return cast("Task | None", _first(self._functions.take(space, tube, wait_ms)))

    def ack(self, space: int, id: str) -> Task:
        """Finish a task successfully."""
        return cast(Task, self._call(b"ack", space, id))

    def release(self, space: int, id: str, delay: float = 0, ttl: float = 0) -> Task:
        """Return a task to its tube."""
        return cast(Task, self._call(b"release", space, id, delay, ttl))

    def requeue(self, space: int, id: str) -> Task:
        """Return a task to the end of its tube."""
        return cast(Task, self._call(b"requeue", space, id))

    def bury(self, space: int, id: str) -> Task:
        """Bury a task."""
        return cast(Task, self._call(b"bury", space, id))

    def done(self, space: int, id: str, *data: Any) -> Task:
        """Finish a task successfully. The result replaces its data."""
        return cast(Task, self._call(b"done", space, id, *data))

    def dig(self, space: int, id: str) -> Task:
        """Make one buried task ready."""
        return cast(Task, self._call(b"dig", space, id))

    unbury = dig

    def kick(self, space: int, tube: str, count: int | None = None) -> int:
        """Make buried tasks ready, by default one. Return their number."""
        return cast(int, self._call(b"kick", space, tube, count))

    def touch(self, space: int, id: str) -> Task:
        """Restart the ttr of a task."""
        return cast(Task, self._call(b"touch", space, id))

    def delete(self, space: int, id: str) -> Task:
        """Remove a task in any state."""
        return cast(Task, self._call(b"delete", space, id))

    def truncate(self, space: int, tube: str) -> int:
        """Remove all tasks of a tube. Return their number."""
        return cast(int, self._call(b"truncate", space, tube))

    def peek(self, space: int, id: str) -> Task:
        """Return a task without taking it."""
        return cast(Task, self._call(b"peek", space, id))

    def meta(self, space: int, id: str) -> Task:
        """Return the 13 fields of the metadata of a task."""
        return cast(Task, self._call(b"meta", space, id))

    def statistics(self, space: int | None = None, tube: str | None = None) -> list[str]:
        """Return the statistics as alternating names and values, all of them strings."""
        return cast("list[str]", self._call(b"statistics", space, tube))

    def _call(self, name: bytes, *args: Any) -> Any:
        return _first(self._functions.call(name, *args))


class _InProcess:
    """The functions of the 1.5 API, for a queue in this process."""

    def __init__(self, over: EmbeddedQueue, pri_is_offset: bool) -> None:
        host = over._host
        self._over = over
        context = CommandContext(host.engine, host.ids, host.node.encode(), host.body_of, host.make_room_now)
        self._dialect = queue15_functions.Queue15Functions(context)
        self._dialect.pri_is_offset = pri_is_offset
        self._functions = self._dialect.functions()

    def call(self, name: bytes, *args: Any) -> list[Any]:
        """Call a function that does not wait. Return its results."""
        call = Request(CALL, 0)
        call.name = b"queue." + name
        call.args = [pack(arg) for arg in args]
        session = self._over._session
        caller = Caller(session.connection)
        try:
            with session.durable, session.lock, session:
                results = self._functions[name].function(caller, call, b"", self._over._host.now())
            assert results is not None
            return _values(results)
        except BoxError as error:
            raise Queue15Error(str(error)) from None
        except BaseException:
            self._over._host.undeliver_quietly(PendingDelivery(caller.unsent, caller.unsent_deliveries))
            raise

    def take(self, space: int, tube: str, wait_ms: int) -> list[Any]:
        if wait_ms == 0:
            return self.call(b"take", space, tube, 0)
        try:
            name = self._dialect.name_of(space, tube)
        except BoxError as error:
            raise Queue15Error(str(error)) from None
        there = name in self._over._host.engine.tubes
        seconds = None if wait_ms == NEVER else wait_ms / 1000
        waited_on = self._over.tube(name) if there else self._over.tube(name, "queue15")
        job = waited_on.take(seconds)
        session = self._over._session
        if job is None:
            with session.durable, session.lock, session:
                self._dialect.count(waited_on._core, "take_timeout")
            return []
        core, fetched = job._core, job._fetched
        handed = PendingDelivery([core])
        try:
            with session.durable, session.lock, session:
                body = self._over._host.body_of(core) if fetched is None else fetched[1]
                return _values(self._dialect.with_body(core, space, "taken", body, core.body_kind))
        except BaseException:
            self._over._host.undeliver_quietly(handed)
            raise


class _OnServer:
    """The functions of the 1.5 API, called on a server."""

    def __init__(self, over: api.Queue) -> None:
        self._functions = Functions(over)

    def call(self, name: bytes, *args: Any) -> list[Any]:
        try:
            return self._functions.call(b"queue15." + name, *args, only_reads=name in _READING)
        except CommandError as error:
            raise _refusal(error) from None

    def take(self, space: int, tube: str, wait_ms: int) -> list[Any]:
        timeout = None if wait_ms == NEVER else wait_ms / 1000
        try:
            return self._functions.take(b"queue15.take", space, tube, timeout, timeout_at=2, wait_ms=wait_ms)
        except CommandError as error:
            raise _refusal(error) from None


def _refusal(error: CommandError) -> CommandError:
    """Convert an error of a server to a Queue15Error. Return it unchanged if it has one of Penstock's error codes."""
    return Queue15Error(str(error)) if error.code == CommandError.code else error


def _values(results: bytes) -> list[Any]:
    values = unpack(results)
    assert isinstance(values, list)
    return values


def _first(results: list[Any]) -> Any:
    return results[0] if results else None
