"""A driver written only against the last chapter of the Tarantool queue's description: last in, first out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.drivers import BadDriver, unregister_driver

Task = tuple[Any, ...]


class LifoTube:
    """The tube object: tasks are (id, state, data), kept in a list."""

    def __init__(self, space: list[Task], on_task_change: Callable[[Task, str], None]) -> None:
        self.space = space
        self.on_task_change = on_task_change
        self.next_id = 0

    def normalize_task(self, task: Task) -> Task:
        return task[:3]

    def put(self, data: Any, options: dict[str, Any]) -> Task:
        task = (self.next_id, "r", data)
        self.next_id += 1
        self.space.append(task)
        self.on_task_change(task, "put")
        return task

    def take(self) -> Task | None:
        for task in reversed(self.space):
            if task[1] == "r":
                return self._set(task, "t", "take")
        return None

    def delete(self, id: int) -> Task | None:
        task = self.peek(id)
        if task is None:
            return None
        self.space.remove(task)
        gone = (id, "-", task[2])
        self.on_task_change(gone, "delete")
        return gone

    def release(self, id: int, options: dict[str, Any]) -> Task | None:
        return self._set(self.peek(id), "r", "release")

    def bury(self, id: int) -> Task | None:
        return self._set(self.peek(id), "!", "bury")

    def kick(self, count: int) -> int:
        buried = [task for task in self.space if task[1] == "!"][:count]
        for task in buried:
            self._set(task, "r", "kick")
        return len(buried)

    def peek(self, id: int) -> Task | None:
        return next((task for task in self.space if task[0] == id), None)

    def _set(self, task: Task | None, state: str, event: str) -> Task | None:
        if task is None:
            return None
        changed = (task[0], state, task[2])
        self.space[self.space.index(task)] = changed
        self.on_task_change(changed, event)
        return changed


class LifoDriver:
    @staticmethod
    def create_space(name: str, options: dict[str, Any]) -> list[Task]:
        return []

    @staticmethod
    def new(space: list[Task], on_task_change: Callable[[Task, str], None], options: dict[str, Any]) -> LifoTube:
        return LifoTube(space, on_task_change)


@pytest.fixture
def queue() -> Iterator[penstock.Queue]:
    penstock.register_driver("lifo", LifoDriver)
    with penstock.open() as opened:
        yield opened
    unregister_driver("lifo")


def test_a_driver_decides_the_order(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    for body in ("first", "second", {"third": 3}):
        tube.put(body)
    taken = tube.take_many(3)
    assert [job.body for job in taken] == [{"third": 3}, "second", "first"]
    assert tube.stats()["taken"] == 3
    for job in taken:
        job.ack()
    assert tube.take() is None
    assert tube.events() == {"put": 3, "taken": 3, "acked": 3}


def test_released_buried_and_kicked_jobs_go_where_the_driver_puts_them(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    tube.put("old")
    tube.put("new")
    new = tube.take()
    assert new is not None and new.body == "new"
    new.release()
    again = tube.take()
    assert again == new
    new.bury("odd")
    assert tube.stats()["buried"] == 1
    old = tube.take()
    assert old is not None and old.body == "old"
    assert tube.take() is None
    assert tube.kick(5) == 1
    assert tube.take() == new


def test_only_the_session_that_took_a_job_may_ack_it_whatever_the_driver(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    tube.put("x")
    job = tube.take()
    assert job is not None
    with queue.session() as stranger, pytest.raises(penstock.CommandError) as refused:
        stranger.job(job.id).ack()
    assert refused.value.code == "NOTOWNER"
    job.ack()
    with pytest.raises(penstock.CommandError) as twice:
        job.ack()
    assert twice.value.code == "NOJOB"


def test_a_disconnect_gives_the_task_back_to_the_driver_and_to_who_waits(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    tube.put("x")
    worker = queue.session()
    assert worker.tube("stack").take() is not None
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(tube.take(timeout=10)))
    waiter.start()
    worker.close()
    waiter.join(10)
    assert [job.body for job in found] == ["x"]
    found[0].ack()


def test_a_waiting_take_is_served_by_a_put(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(tube.take(timeout=10)))
    waiter.start()
    tube.put("x")
    waiter.join(10)
    assert [job.body for job in found] == ["x"]


def test_truncate_and_drop_empty_the_driver_too(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    for number in range(5):
        tube.put(number)
    assert tube.truncate() == 5
    assert tube.take() is None
    tube.drop()
    assert queue.tubes() == []


def test_a_driver_that_lacks_a_method_is_refused_by_name() -> None:
    with pytest.raises(BadDriver, match='"create_space" and "new"'):
        penstock.register_driver("broken", object())

    class Half:
        create_space = staticmethod(lambda name, options: None)
        new = staticmethod(lambda space, on_task_change, options: object())

    penstock.register_driver("half", Half)
    try:
        with penstock.open() as queue, pytest.raises(BadDriver, match='method "normalize_task"'):
            queue.tube("x", "half")  # type: ignore[arg-type]
    finally:
        unregister_driver("half")
    with pytest.raises(BadDriver, match="already"):
        penstock.register_driver("fifo", Half)
