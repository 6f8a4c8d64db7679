"""A driver written only from the last chapter of the Tarantool queue's documentation: last in, first out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest

import penstock
from penstock.core.errors import BadDriver, Unsupported
from penstock.drivers import unregister_driver
from penstock.testing import check

Task = tuple[Any, ...]
Space = MutableMapping[Any, Task]
OnChange = Callable[[Task, str], None]


class LifoTube:
    """The tube object. Tasks are (id, state, data), in the mapping that it gets."""

    def __init__(self, space: Space, on_task_change: OnChange) -> None:
        self.space = space
        self.on_task_change = on_task_change
        self.next_id = max(space, default=-1) + 1

    def normalize_task(self, task: Task) -> Task:
        return task[:3]

    def put(self, data: Any, options: dict[str, Any]) -> Task:
        task = (self.next_id, "r", data)
        self.next_id += 1
        self.space[task[0]] = task
        self.on_task_change(task, "put")
        return task

    def take(self) -> Task | None:
        ready = [id for id, task in self.space.items() if task[1] == "r"]
        return self._set(max(ready), "t", "take") if ready else None

    def delete(self, id: int) -> Task | None:
        task = self.space.pop(id, None)
        if task is None:
            return None
        gone = (id, "-", task[2])
        self.on_task_change(gone, "delete")
        return gone

    def release(self, id: int, options: dict[str, Any]) -> Task | None:
        return self._set(id, "r", "release")

    def bury(self, id: int) -> Task | None:
        return self._set(id, "!", "bury")

    def kick(self, count: int) -> int:
        buried = [id for id, task in self.space.items() if task[1] == "!"][:count]
        for id in buried:
            self._set(id, "r", "kick")
        return len(buried)

    def peek(self, id: int) -> Task | None:
        return self.space.get(id)

    def _set(self, id: int, state: str, event: str) -> Task | None:
        task = self.space.get(id)
        if task is None:
            return None
        changed = (id, state, *task[2:])
        self.space[id] = changed
        self.on_task_change(changed, event)
        return changed


class LifoDriver:
    @staticmethod
    def create_space(name: str, options: dict[str, Any]) -> Space:
        return {}

    @staticmethod
    def new(space: Space, on_task_change: OnChange, options: dict[str, Any]) -> LifoTube:
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


def test_only_the_session_that_took_a_job_may_ack_it_with_any_driver(queue: penstock.Queue) -> None:
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


def test_a_disconnect_returns_the_task_to_the_driver_and_serves_a_waiting_take(queue: penstock.Queue) -> None:
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


@pytest.mark.parametrize("finish", ["ack", "release", "nack", "bury", "delete"])
def test_a_job_that_was_finished_by_hand_is_left_alone_when_its_block_ends(queue: penstock.Queue, finish: str) -> None:
    tube = queue.tube("stack", "lifo")
    tube.put("x")
    job = tube.take()
    assert job is not None
    with job:
        getattr(job, finish)()
    assert tube.stats()["taken"] == 0


def test_a_call_with_a_state_that_does_not_exist_changes_nothing_and_the_tube_goes_on(queue: penstock.Queue) -> None:
    class Odd(LifoTube):
        def bury(self, id: int) -> Task | None:
            return (id, "?", None)

        def kick(self, count: int) -> int:
            for id in list(self.space):
                self._set(id, "r", "kick")
            self.on_task_change((0, "?", None), "kick")
            return count

    class OddDriver(LifoDriver):
        @staticmethod
        def new(space: Space, on_task_change: OnChange, options: dict[str, Any]) -> Odd:
            return Odd(space, on_task_change)

    penstock.register_driver("odd", OddDriver)
    try:
        tube = queue.tube("odd", "odd")  # type: ignore[arg-type]
        tube.put("a")
        job = tube.take()
        assert job is not None
        with pytest.raises(BadDriver, match="the states are"):
            job.bury()
        job.release()
        tube.put("b")
        taken = tube.take_many(2)
        with pytest.raises(BadDriver, match="the states are"):
            tube.kick(2)
        assert tube.stats()["taken"] == 2
        for each in taken:
            each.release()
        taken = tube.take_many(2)
        assert [each.body for each in taken] == ["b", "a"]
        for each in taken:
            each.ack()
        check(queue._host.engine)
    finally:
        unregister_driver("odd")


def test_a_driver_may_serve_a_delayed_task_but_not_a_taken_one(queue: penstock.Queue) -> None:
    class Careless(LifoTube):
        """The first task is the next one, in any state."""

        def release(self, id: int, options: dict[str, Any]) -> Task | None:
            return self._set(id, "~", "release")

        def take(self) -> Task | None:
            return self._set(max(self.space), "t", "take")

    class CarelessDriver(LifoDriver):
        @staticmethod
        def new(space: Space, on_task_change: OnChange, options: dict[str, Any]) -> Careless:
            return Careless(space, on_task_change)

    penstock.register_driver("careless", CarelessDriver)
    try:
        tube = queue.tube("careless", "careless")  # type: ignore[arg-type]
        tube.put("x")
        job = tube.take()
        assert job is not None
        job.release()
        assert tube.stats()["delayed"] == 1 and tube.take() == job
        with pytest.raises(BadDriver, match="is taken already"):
            tube.take()
        job.ack()
        check(queue._host.engine)
    finally:
        unregister_driver("careless")


def test_no_job_gets_in_or_out_past_its_driver(queue: penstock.Queue) -> None:
    tube, plain = queue.tube("stack", "lifo"), queue.tube("plain", "fifo")
    other, mine = plain.put("other"), tube.put("mine")
    for job, target in [(other, tube), (mine, plain), (tube.job(mine.id), plain)]:
        with pytest.raises(Unsupported):
            job.move(target)
    with pytest.raises(Unsupported, match="has no claims"):
        tube.claim("consumer", 1, 10)
    named = tube.named(mine._core.ensure_extra().name)
    assert tube.job(mine.id).body == named.body == "mine" and queue.job(other.id).body == "other"
    tube.job(mine.id).delete()
    assert tube.take() is None, "its driver knows of it"
    check(queue._host.engine)


def test_a_driven_tube_cannot_be_altered_and_is_found_as_it_is(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    with pytest.raises(Unsupported, match="has a driver"):
        tube.alter(max_deliveries=1)
    assert queue.tube("stack").policy == tube.policy


def test_a_dead_letter_for_a_driven_tube_is_buried_where_it_is(queue: penstock.Queue) -> None:
    tube, plain = queue.tube("stack", "lifo"), queue.tube("plain", "fifo", max_deliveries=1, dead_letter="stack")
    plain.put("x")
    job = plain.take()
    assert job is not None
    job.nack("broken")
    assert (job.state, job.tube, job.meta()["reason"]) == ("buried", "plain", "broken")
    assert tube.stats()["ready"] == 0
    check(queue._host.engine)


def test_a_tube_without_its_driver_is_refused_until_the_driver_is_registered(queue: penstock.Queue) -> None:
    tube = queue.tube("stack", "lifo")
    job = tube.put("x")
    unregister_driver("lifo")
    looks = [lambda: queue.tube("stack"), lambda: queue.find_tube("stack"), lambda: queue.job(job.id), queue.scan]
    for look in [*looks, tube.take]:
        with pytest.raises(Unsupported, match=r"'lifo'.*register_driver"):
            look()
    penstock.register_driver("lifo", LifoDriver)
    assert queue.job(job.id).body == "x" and tube.take() == job


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
