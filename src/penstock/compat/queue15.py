"""Tarantool's queue in Python, the 1.5 API, over a queue in this process: `Queue15(penstock.open("./jobs"))`.

    queue.put(0, "mail", 0, 60, 10, 127, "data")        queue.take(0, "mail", 5)        queue.ack(0, id)

A task is a list `[id, tube, status, field, …]`. A tube of space 0 is the tube of its name, of space 5 it is `5/name`;
it comes into being when it is first used. An empty take gives None. These are the functions that a server has: they
are called without a wire. (With a server, use a client of Tarantool's at its port.)
"""

from __future__ import annotations

from typing import Any, cast

from penstock.core.errors import CommandError
from penstock.dialects import tarantool15
from penstock.dialects.command import Caller
from penstock.dialects.site import Site
from penstock.embedded import Queue
from penstock.wire.errors import BoxError
from penstock.wire.iproto import CALL, Request
from penstock.wire.msgpack import pack, unpack

__all__ = ["Queue15", "Queue15Error"]

Task = list[Any]


class Queue15Error(CommandError):
    """What the 1.5 API refuses, in its own words."""


class Queue15:
    """All functions of the API."""

    def __init__(self, over: Queue, pri_mode: str = "absolute") -> None:
        """Take a queue; and whether pri is 0 to 255 as the document says, or an "offset" to 127 as its code has it."""
        host = over._host
        self._over = over
        site = Site(host.engine, host.ids, host.node.encode(), host.body_of, host.make_room_now)
        self._dialect = tarantool15.Queue15(site)
        self._dialect.pri_is_offset = pri_mode == "offset"
        self._functions = self._dialect.functions()
        self._caller = Caller(over._session.connection)

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
        """Add a task of none, one or several fields."""
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
        """Add a task before all others, unless it has a delay."""
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
        """Add a task, or find the one that waits with the same data."""
        return cast(Task, self._call(b"put_unique", space, tube, delay, ttl, ttr, pri, *data))

    def take(self, space: int, tube: str, timeout: float | None = None) -> Task | None:
        """Take the next task, or wait for one; for ever if no time is given, or a negative one."""
        seconds = None if timeout is None or timeout < 0 else timeout
        found = cast("Task | None", self._call(b"take", space, tube, 0))
        if found is not None or seconds == 0:
            return found
        name = self._dialect.name_of(space, tube)
        there = name in self._over._host.engine.tubes
        job = (self._over.tube(name) if there else self._over.tube(name, "queue15")).take(seconds)
        if job is None:
            return None
        session = self._over._session
        with session.durable, session.lock, session:
            return cast(Task, _result(self._dialect.task(job._core, space, "taken")))

    def ack(self, space: int, id: str) -> Task:
        """The work is done."""
        return cast(Task, self._call(b"ack", space, id))

    def release(self, space: int, id: str, delay: float = 0, ttl: float = 0) -> Task:
        """Give a task back."""
        return cast(Task, self._call(b"release", space, id, delay, ttl))

    def requeue(self, space: int, id: str) -> Task:
        """Give a task back to behind all others."""
        return cast(Task, self._call(b"requeue", space, id))

    def bury(self, space: int, id: str) -> Task:
        """Put a task aside."""
        return cast(Task, self._call(b"bury", space, id))

    def done(self, space: int, id: str, *data: Any) -> Task:
        """The work is done, and its result stays in place of the data."""
        return cast(Task, self._call(b"done", space, id, *data))

    def dig(self, space: int, id: str) -> Task:
        """Dig a buried task up."""
        return cast(Task, self._call(b"dig", space, id))

    unbury = dig

    def kick(self, space: int, tube: str, count: int | None = None) -> int:
        """Dig tasks up, one unless told; tell how many there were."""
        return cast(int, self._call(b"kick", space, tube, count))

    def touch(self, space: int, id: str) -> Task:
        """Ask for a whole ttr from now."""
        return cast(Task, self._call(b"touch", space, id))

    def delete(self, space: int, id: str) -> Task:
        """Remove a task, whatever its state."""
        return cast(Task, self._call(b"delete", space, id))

    def truncate(self, space: int, tube: str) -> int:
        """Remove all tasks of a tube; tell how many there were."""
        return cast(int, self._call(b"truncate", space, tube))

    def peek(self, space: int, id: str) -> Task:
        """Look at a task."""
        return cast(Task, self._call(b"peek", space, id))

    def meta(self, space: int, id: str) -> Task:
        """13 fields about a task."""
        return cast(Task, self._call(b"meta", space, id))

    def statistics(self, space: int | None = None, tube: str | None = None) -> list[str]:
        """Names and values in turn, all of them strings."""
        return cast("list[str]", self._call(b"statistics", space, tube))

    def _call(self, name: bytes, *args: Any) -> Any:
        call = Request(CALL, 0)
        call.name = b"queue." + name
        call.args = [pack(arg) for arg in args]
        session, caller = self._over._session, self._caller
        try:
            with session.durable, session.lock, session:
                results = self._functions[name].function(caller, call, b"", self._over._host.now())
        except BoxError as error:
            raise Queue15Error(str(error)) from None
        # Whoever takes in process has what it takes.
        caller.unsent.clear()
        caller.unsent_deliveries.clear()
        assert results is not None
        return _result(results)


def _result(results: bytes) -> Any:
    values = unpack(results)
    assert isinstance(values, list)
    return values[0] if values else None
