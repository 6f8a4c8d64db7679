"""The 1.5 API in process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.compat.queue15 import Queue15, Queue15Error


@pytest.fixture
def below() -> Iterator[penstock.Queue]:
    with penstock.open(":memory:") as queue:
        yield queue


@pytest.fixture
def queue(below: penstock.Queue) -> Queue15:
    return Queue15(below)


def refused(call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(Queue15Error) as caught:
        call(*args)
    return str(caught.value)


def test_a_task_goes_through_its_life(queue: Queue15) -> None:
    id, *rest = queue.put(0, "q", 0, 60, 10, 200, "a", {"b": 1})
    data = ["a", {"b": 1}]
    assert len(id) == 32 and rest == ["q", "ready", *data]
    assert queue.take(0, "q", 0) == [id, "q", "taken", *data]
    assert queue.touch(0, id)[2] == "taken"
    assert queue.release(0, id)[2] == "ready"
    assert queue.take(0, "q") == [id, "q", "taken", *data]
    assert queue.requeue(0, id)[2] == "ready"
    queue.take(0, "q")
    assert queue.bury(0, id)[2] == "buried"
    assert queue.dig(0, id)[2] == "ready"
    queue.take(0, "q")
    queue.bury(0, id)
    assert queue.kick(0, "q", 5) == 1
    queue.take(0, "q")
    assert queue.done(0, id, "result") == [id, "q", "done", "result"]
    assert queue.peek(0, id) == [id, "q", "done", "result"]
    meta = queue.meta(0, id)
    assert len(meta) == 13 and meta[5] == "200" and meta[10:12] == [2, 5]
    assert queue.delete(0, id)[0] == id
    assert refused(queue.peek, 0, id) == "Task not found"
    assert queue.take(0, "q", 0) is None and queue.take(0, "q", 0.01) is None


def test_spaces_urgent_and_unique_tasks(below: penstock.Queue, queue: Queue15) -> None:
    queue.put(5, "q", 0, 0, 0, None, "x")
    first = queue.put_unique(5, "q", 0, 0, 0, None, "y")
    assert queue.put_unique(5, "q", 0, 0, 0, None, "y") == first
    queue.urgent(5, "q", 0, 0, 0, 0, "now")
    assert [queue.take(5, "q", 0)[3] for _ in range(3)] == ["now", "x", "y"]
    assert below.tubes() == ["5/q"]
    assert refused(queue.put_unique, 0, "q") == "Can not put unique task without data"
    assert refused(queue.put, 0, "q", 0, 0, 0, 256) == "pri must be 0 to 255, higher first"
    assert queue.put(0, "q")[1:] == ["q", "ready"]
    assert queue.truncate(0, "q") == 1
    told = queue.statistics(5, "q")
    assert dict(zip(told[::2], told[1::2], strict=True))["space5.q.tasks.taken"] == "3"


def test_a_take_waits_for_a_put_of_another_thread(below: penstock.Queue, queue: Queue15) -> None:
    with below.session() as session:
        other = Queue15(session)
        thread = threading.Timer(0.02, other.put, (0, "q", 0, 0, 0, None, "x"))
        thread.start()
        assert queue.take(0, "q", 20)[3] == "x"
        thread.join()
        assert "Only consumer" in refused(other.ack, 0, queue.statistics and _id_of(below))


def _id_of(below: penstock.Queue) -> str:
    (job,) = below.tube("q").jobs("taken")
    return job.id


def test_priorities_may_be_offsets(below: penstock.Queue) -> None:
    queue = Queue15(below, pri_mode="offset")
    for pri in (-10, 0, 10):
        queue.put(0, "q", 0, 0, 0, pri, pri)
    assert [queue.take(0, "q", 0)[3] for _ in range(3)] == [10, 0, -10]
