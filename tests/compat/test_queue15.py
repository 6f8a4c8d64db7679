"""The 1.5 API in Python, for queues in this process and on a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import CommandError
from penstock.compat.queue15 import Queue15, Queue15Error
from penstock.host.host import Host
from tests.server.serving import Server


@pytest.fixture
def queue(below: Any) -> Queue15:
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


def test_spaces_urgent_and_unique_tasks(below: Any, queue: Queue15) -> None:
    queue.put(5, "q", 0, 0, 0, None, "x")
    first = queue.put_unique(5, "q", 0, 0, 0, None, "y")
    assert queue.put_unique(5, "q", 0, 0, 0, None, "y") == first
    queue.urgent(5, "q", 0, 0, 0, 0, "now")
    assert [queue.take(5, "q", 0)[3] for _ in range(3)] == ["now", "x", "y"]
    assert below.tubes() == ["5/q"]
    assert refused(queue.put_unique, 0, "q") == "Can not put unique task without data"
    assert refused(queue.put, 0, "q", 0, 0, 0, 256) == "pri must be 0 to 255; higher values are served first"
    assert queue.put(0, "q")[1:] == ["q", "ready"]
    assert queue.truncate(0, "q") == 1
    told = queue.statistics(5, "q")
    assert dict(zip(told[::2], told[1::2], strict=True))["space5.q.tasks.taken"] == "3"


def test_a_take_waits_for_a_put_of_another_session(
    below: Any, queue: Queue15, until_waiting: Callable[[int], None]
) -> None:
    with below.session() as session:
        other = Queue15(session)
        found: list[Any] = []

        def take(timeout: float | None) -> None:
            found.append(queue.take(0, "q", timeout))

        threads = [threading.Thread(target=take, args=(each,)) for each in (20, -1, None)]
        for number, thread in enumerate(threads):
            thread.start()
            until_waiting(number + 1)
        for body in "xyz":
            assert other.put(0, "q", 0, 0, 0, None, body)[2:] == ["ready", body]
        for thread in threads:
            thread.join(20)
        assert sorted(task[3] for task in found) == ["x", "y", "z"]
        assert refused(other.ack, 0, found[0][0]) == "Only consumer that took the task can it ack"
        for task in found:
            assert queue.ack(0, task[0]) == task
        assert queue.take(0, "q", 0.01) is None
        told = queue.statistics(0, "q")
        assert dict(zip(told[::2], told[1::2], strict=True))["space0.q.take_timeout"] == "1"


def test_the_queue_holds_the_tasks_that_are_taken(below: Any, queue: Queue15) -> None:
    """A job that was taken through one API is finished through the other."""
    bodies: list[Any] = ["text", b"\0\xff", {"a": [1, None]}, 7, None, 1.5]
    for body in bodies:
        queue.put(0, "q", 0, 0, 0, None, body)
    tube = below.tube("q")
    for body in bodies:
        task = queue.take(0, "q", 0)
        assert task is not None and task[3] == body
        (job,) = tube.jobs("taken")
        assert job.body == body
        job.ack()
    below.tube("q").put({"put": "here"})
    job = tube.take()
    assert queue.ack(0, queue.peek(0, job.id)[0])[3] == {"put": "here"}


@pytest.mark.parametrize("timeout", ["x", [], True, float("nan")])
def test_a_timeout_that_is_no_number_is_refused(queue: Queue15, timeout: Any) -> None:
    assert refused(queue.take, 0, "q", timeout) == "timeout must be a number"


def test_priorities_may_be_offsets(empty: Server) -> None:
    with penstock.open(":memory:") as below:
        queue = Queue15(below, pri_mode="offset")
        for pri in (-10, 0, 10):
            queue.put(0, "q", 0, 0, 0, pri, pri)
        assert [queue.take(0, "q", 0)[3] for _ in range(3)] == [10, 0, -10]
        with pytest.raises(CommandError, match="pri_mode is absolute or offset"):
            Queue15(below, pri_mode="ofset")  # type: ignore[arg-type]
    refusal = pytest.raises(CommandError, match="the server's setting queue15-pri-mode says what pri is")
    with penstock.connect(f"penstock://127.0.0.1:{empty.port}") as connected, refusal:
        Queue15(connected, pri_mode="offset")


@pytest.mark.parametrize(("timeout", "sync"), [(0, 1), (5, 1), (5, 2)])
def test_an_interrupted_take_does_not_count_as_a_delivery(
    tmp_path: Path, timeout: float, sync: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path) as over:
        queue = Queue15(over)
        id = queue.put(0, "q", 0, 0, 0, None, "x")[0]
        tube = over.tube("q")
        interrupt_after_taking(monkeypatch, tube, sync)
        with pytest.raises(KeyboardInterrupt):
            queue.take(0, "q", timeout)
        assert tube.stats()["ready"] == 1 and over.job(id).deliveries == 0
        assert queue.take(0, "q", timeout) == [id, "q", "taken", "x"]


def interrupt_after_taking(monkeypatch: pytest.MonkeyPatch, tube: penstock.Tube, sync: int) -> None:
    """Interrupt a call in the sync with this number after a job of the tube was taken."""
    make_durable = Host.make_durable
    syncs = 0

    def interrupted(host: Host) -> None:
        nonlocal syncs
        make_durable(host)
        syncs += len(tube._core.taken)
        if syncs == sync:
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(Host, "make_durable", interrupted)


def test_an_interrupted_take_does_not_return_the_task_of_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call is interrupted just after another one has taken a task. Only the first one gives its task back."""
    with penstock.open(tmp_path) as over:
        queue = Queue15(over)
        for body in ("a", "b"):
            queue.put(0, "q", 0, 0, 0, None, body)
        make_durable = Host.make_durable
        others: list[Any] = []

        def interrupted(host: Host) -> None:
            make_durable(host)
            monkeypatch.undo()
            thread = threading.Thread(target=lambda: others.append(queue.take(0, "q", 0)))
            thread.start()
            thread.join()
            raise KeyboardInterrupt

        monkeypatch.setattr(Host, "make_durable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.take(0, "q", 0)
        assert [task[3] for task in others] == ["b"] and queue.ack(0, others[0][0])[3] == "b"
        assert queue.take(0, "q", 0)[3] == "a"
