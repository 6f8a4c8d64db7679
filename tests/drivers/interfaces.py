"""An adapter for each interface to a tube with a driver: tasks are (id, state, data)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

import redis
import tarantool

import penstock
from penstock.compat.queue import Queue as CompatQueue

Task = tuple[Any, str, Any]

LETTERS = {"ready": "r", "taken": "t", "delayed": "~", "buried": "!", "done": "-", "gone": "-"}


class Interface(Protocol):
    """A tube and the calls that every interface has."""

    def create(self, name: str, type: str, **options: Any) -> None: ...
    def put(self, data: Any, **options: Any) -> Task: ...
    def take(self) -> Task | None: ...
    def ack(self, id: Any) -> None: ...
    def release(self, id: Any, **options: Any) -> None: ...
    def bury(self, id: Any) -> None: ...
    def kick(self, count: int) -> int: ...
    def delete(self, id: Any) -> None: ...
    def peek(self, id: Any) -> Task | None: ...
    def counts(self) -> dict[str, int]: ...
    def headers(self, id: Any) -> dict[str, str]: ...


class Python:
    """Penstock's own API, in this process or over a server."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def create(self, name: str, type: str, **options: Any) -> None:
        self.tube = self.queue.tube(name, type, **options)

    def put(self, data: Any, **options: Any) -> Task:
        return self._task(self.tube.put(data, **options))

    def take(self) -> Task | None:
        job = self.tube.take()
        return None if job is None else self._task(job)

    def ack(self, id: Any) -> None:
        self._job(id).ack()

    def release(self, id: Any, **options: Any) -> None:
        self._job(id).release(options=options)

    def bury(self, id: Any) -> None:
        self._job(id).bury()

    def kick(self, count: int) -> int:
        return int(self.tube.kick(count))

    def delete(self, id: Any) -> None:
        self._job(id).delete()

    def peek(self, id: Any) -> Task | None:
        try:
            return self._task(self._job(id))
        except penstock.CommandError as error:
            assert error.code == "NOJOB"
            return None

    def counts(self) -> dict[str, int]:
        return {state: count for state, count in self.tube.stats().items() if count}

    def headers(self, id: Any) -> dict[str, str]:
        return dict(self._job(id).headers)

    def _job(self, id: Any) -> Any:
        return self.tube.named(str(id))

    def _task(self, job: Any) -> Task:
        known = job.meta()
        id = known["name"] if known["number"] is None else known["number"]
        return id, LETTERS[known["state"]], self.queue.job(job.id).body


class Compat:
    """`penstock.compat.queue`."""

    def __init__(self, queue: Any) -> None:
        self.queue = CompatQueue(queue)

    def create(self, name: str, type: str, **options: Any) -> None:
        self.tube = self.queue.create_tube(name, type, options)

    def put(self, data: Any, **options: Any) -> Task:
        return self.tube.put(data, options)  # type: ignore[return-value]

    def take(self) -> Task | None:
        return self.tube.take(0)

    def ack(self, id: Any) -> None:
        assert self.tube.ack(id)[:2] == (id, "-")

    def release(self, id: Any, **options: Any) -> None:
        assert self.tube.release(id, options)[:2] == (id, "r")

    def bury(self, id: Any) -> None:
        assert self.tube.bury(id)[:2] == (id, "!")

    def kick(self, count: int) -> int:
        return self.tube.kick(count)

    def delete(self, id: Any) -> None:
        assert self.tube.delete(id)[:2] == (id, "-")

    def peek(self, id: Any) -> Task | None:
        try:
            return self.tube.peek(id)
        except penstock.CommandError as error:
            assert "not found" in str(error)
            return None

    def counts(self) -> dict[str, int]:
        counts = {**self.tube._over.stats()}
        return {state: count for state, count in counts.items() if count}

    def headers(self, id: Any) -> dict[str, str]:
        return self.tube.headers(id)


class Iproto:
    """tarantool-python."""

    def __init__(self, port: int) -> None:
        self.connection = tarantool.Connection("127.0.0.1", port)

    def create(self, name: str, type: str, **options: Any) -> None:
        self.name = name
        told = self.connection.call("queue.create_tube", (name, type, options)).data[0]
        assert (told["name"], told["type"]) == (name, type)

    def _call(self, method: str, *args: Any) -> Any:
        data = self.connection.call(f"queue.tube.{self.name}:{method}", args).data
        return data[0] if data else None

    def put(self, data: Any, **options: Any) -> Task:
        return tuple(self._call("put", data, options))  # type: ignore[return-value]

    def take(self) -> Task | None:
        task = self._call("take", 0)
        return None if task is None else tuple(task)

    def ack(self, id: Any) -> None:
        assert self._call("ack", id)[:2] == [id, "-"]

    def release(self, id: Any, **options: Any) -> None:
        assert self._call("release", id, options)[:2] == [id, "r"]

    def bury(self, id: Any) -> None:
        assert self._call("bury", id)[:2] == [id, "!"]

    def kick(self, count: int) -> int:
        return int(self._call("kick", count))

    def delete(self, id: Any) -> None:
        assert self._call("delete", id)[:2] == [id, "-"]

    def peek(self, id: Any) -> Task | None:
        try:
            return tuple(self._call("peek", id))  # type: ignore[return-value]
        except tarantool.error.DatabaseError as error:
            assert "not found" in str(error)
            return None

    def counts(self) -> dict[str, int]:
        tasks = self.connection.call("queue.statistics", (self.name,)).data[0]["tasks"]
        done = len(self._call("tasks_by_state", "-"))
        states = {state: tasks[state] for state in ("ready", "taken", "buried", "delayed")}
        return {state: count for state, count in {**states, "done": done}.items() if count}

    def headers(self, id: Any) -> dict[str, str]:
        return dict(self._call("headers", id))


class Resp:
    """redis-py."""

    def __init__(self, port: int) -> None:
        self.client = redis.Redis(port=port)
        self.call: Callable[..., Any] = self.client.execute_command

    def create(self, name: str, type: str, **options: Any) -> None:
        self.name = name
        self.call("TUBE", "CREATE", name, "TYPE", type, "OPTIONS", json.dumps(options))

    def put(self, data: Any, **options: Any) -> Task:
        words = [word for pair in options.pop("headers", {}).items() for word in ("HEADER", *pair)]
        id = self.call("PUT", self.name, json.dumps(data), "AS", "json", "OPTIONS", json.dumps(options), *words)
        return self._task(self.call("JOB", "PEEK", id))

    def take(self) -> Task | None:
        jobs = self.call("TAKE", self.name)
        return self._task({**_pairs(jobs[0]), b"state": b"taken"}) if jobs else None

    def ack(self, id: Any) -> None:
        assert self.call("ACK", f"{self.name}#{id}") == 1

    def release(self, id: Any, **options: Any) -> None:
        assert self.call("RELEASE", f"{self.name}#{id}", "OPTIONS", json.dumps(options))

    def bury(self, id: Any) -> None:
        assert self.call("BURY", f"{self.name}#{id}")

    def kick(self, count: int) -> int:
        return int(self.call("KICK", self.name, count))

    def delete(self, id: Any) -> None:
        assert self.call("JOB", "DELETE", f"{self.name}#{id}") == 1

    def peek(self, id: Any) -> Task | None:
        try:
            return self._task(self.call("JOB", "NAMED", self.name, id))
        except redis.ResponseError as error:
            assert "NOJOB" in str(error)
            return None

    def counts(self) -> dict[str, int]:
        told = _pairs(self.call("TUBE", "STATS", self.name))
        return {state: told[state.encode()] for state in LETTERS if told.get(state.encode())}

    def headers(self, id: Any) -> dict[str, str]:
        headers = _pairs(_pairs(self.call("JOB", "NAMED", self.name, id)).get(b"headers", []))
        return {name.decode(): value.decode() for name, value in headers.items()}

    def _task(self, told: Any) -> Task:
        job = _pairs(told)
        body = job[b"body"].decode() if job[b"as"] == b"text" else json.loads(job[b"body"])
        name = _pairs(self.call("JOB", "META", job[b"id"]))[b"name"].decode()
        assert job[b"number"] in (None, int(name) if name.isdigit() else None)
        return name if job[b"number"] is None else job[b"number"], LETTERS[job[b"state"].decode()], body


def _pairs(told: Any) -> dict[bytes, Any]:
    return told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
