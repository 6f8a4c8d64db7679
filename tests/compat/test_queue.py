"""Tarantool's queue in process: what its users know, over a queue of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.compat.queue import Queue, QueueError, Task
from penstock.core.errors import ConnectionLost, NotAllowed


@pytest.fixture
def queue(below: Any) -> Queue:
    return Queue(below)


def refused(call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(QueueError) as caught:
        call(*args)
    return str(caught.value)


def test_arguments_that_make_no_sense_are_refused(queue: Queue) -> None:
    tube = queue.create_tube("q", "fifottl")
    for method, args, words in [
        ("put", (1, {"delya": 5}), "unknown option 'delya' of put"),
        ("take", ("x",), "timeout must be a number, not str"),
        ("take", (0, {"nope": 5}), "unknown option 'nope' of take"),
        ("release", (0, {"nope": 5}), "unknown option 'nope' of release"),
        ("touch", (0, "x"), "the time to add must be a number, not str"),
        ("kick", ("x",), "a count must be a number, not str"),
    ]:
        assert refused(getattr(tube, method), *args) == words
    assert refused(queue.create_tube, "x", None) == "Unknown tube type nil"
    assert queue.tube() == ["q"] and tube.take(-1) is None and tube.kick(-1) == 0


@pytest.mark.parametrize("type", ["fifo", "fifottl", "limfifottl", "utube", "utubettl", "stube"])
def test_a_task_goes_through_its_life(queue: Queue, type: str) -> None:
    tube = queue.create_tube("q", type)
    data = {"to": ["you", 1]}
    assert tube.put(data) == (0, "r", data)
    assert tube.take() == (0, "t", data)
    assert tube.release(0) == (0, "r", data)
    assert tube.take(0) == (0, "t", data)
    assert tube.bury(0) == (0, "!", data)
    assert tube.tasks_by_state("!") == [(0, "!", data)]
    assert tube.kick() == 1 and tube.kick(5) == 0 == tube.kick(0)
    assert tube.peek(0) == (0, "r", data)
    assert tube.take(1) == (0, "t", data)
    assert tube.ack(0) == (0, "-", data)
    assert tube.take(0) is None is tube.take(0.01)
    tube.put("x")
    assert tube.delete(1) == (1, "-", "x")
    tube.put("y")
    tube.truncate()
    assert tube.drop() is True
    assert queue.tube() == []


def test_tubes_are_found_by_their_names(queue: Queue) -> None:
    queue.schema.create_tube("mail", "fifottl", {"ttl": 60, "pri": 3}, engine="memtx", storage_mode="default")
    assert queue.tube.mail.name == queue.tube["mail"].name == "mail" and queue.tube.mail.type == "fifottl"
    assert queue.tube() == ["mail"] and queue.tube("mail") is True and queue.tube("nope") is False
    assert queue.create_tube("mail", "fifo", if_not_exists=True).type == "fifottl"
    assert refused(queue.create_tube, "mail", "fifottl") == "Space 'mail' already exists"
    assert refused(queue.create_tube, "x", "nope") == "Unknown tube type nope"
    assert not hasattr(queue.tube, "nope")
    assert "no tube" in refused(queue.statistics, "nope")
    with pytest.raises(penstock.CommandError):
        queue.create_tube("x", "fifo", nope=1)


def test_options_mean_what_they_mean_in_the_original(queue: Queue) -> None:
    tube = queue.create_tube("q", "utubettl", ttr=60)
    assert tube.put("later", {"delay": 100, "ttl": 10}) == (0, "~", "later")
    tube.put("second", pri=5, utube="a")
    tube.put("first", {"pri": 1, "utube": "a"})
    assert tube.take(0) == (2, "t", "first")
    assert tube.take(0) is None, "one of a micro-queue at a time"
    assert tube.touch(2, 5) == (2, "t", "first") and tube.touch(2) is None is tube.touch(2, -1)
    assert tube.release(2, delay=100) == (2, "~", "first")
    full = queue.create_tube("full", "limfifottl", capacity=1)
    full.put(1)
    assert full.put(2) is None is full.put(2, timeout=0.01)
    named = queue.create_tube("named", "stube")
    named.put("a", stube="a")
    assert named.take(0) is None and named.take(0, {"stube": "a"}) == (0, "t", "a")


def test_what_is_refused_is_refused_in_the_words_of_the_original(below: Any, queue: Queue) -> None:
    tube = queue.create_tube("q", "fifo")
    tube.put("x")
    tube.take()
    with below.session() as session:
        other = Queue(session).tube.q
        assert refused(other.ack, 0) == refused(other.release, 0) == refused(tube.ack, 99) == "Task was not taken"
        assert refused(other.peek, 99) == refused(other.bury, 99) == refused(other.delete, 99) == "Task 99 not found"
    assert refused(tube.touch, 0, 5) == "fifo queue does not support touch"
    assert refused(tube.drop) == "There are taken tasks in the tube"
    tube.release_all()
    assert tube.peek(0).state == "r"
    assert "a state is one of" in refused(tube.tasks_by_state, "x")


def test_statistics_sessions_and_settings(below: Any, queue: Queue) -> None:
    tube = queue.create_tube("q", "fifottl")
    tube.put(1)
    tube.put(2)
    tube.take()
    tube.ack(0)
    told = queue.statistics("q")
    assert told["tasks"] == {"ready": 1, "taken": 0, "buried": 0, "delayed": 0, "total": 1, "done": 1}
    assert (told["calls"]["put"], told["calls"]["take"], told["calls"]["ack"]) == (2, 1, 1)
    assert queue.stats() == {"q": told}
    queue.cfg({"ttr": 60 * 10**9})
    queue.cfg({"ttr": 60}, in_replicaset=True)
    assert refused(queue.cfg, {"ttr": -1}) == "Invalid value of ttr: -1"
    assert refused(queue.cfg, {"in_replicaset": 1}) == "Invalid value of in_replicaset: 1"
    assert refused(queue.cfg, {"x": 1}) == "Unknown option x"
    assert queue.state() == "RUNNING"
    token = queue.identify()
    tube.take()
    with below.session() as session:
        other = Queue(session)
        assert other.identify(token) == token
        assert other.tube.q.ack(1) == (1, "-", 2)
    assert refused(queue.identify, "00" * 16).endswith("is unknown.")
    assert refused(queue.identify, "short") == "Invalid UUID format."


def test_a_callback_is_told_of_every_change_with_the_task(queue: Queue) -> None:
    told: list[tuple[Task, str]] = []
    enough = threading.Event()

    def hear(task: Task, what: str) -> None:
        told.append((task, what))
        if len(told) == 7:
            enough.set()

    tube = queue.create_tube("q", "fifottl", on_task_change=hear)
    tube.put("x")
    tube.take()
    tube.release(0)
    tube.bury(0)
    tube.kick()
    tube.take()
    tube.ack(0)
    assert enough.wait(20)
    assert [(task.id, task.state, what) for task, what in told] == [
        (0, "r", "put"),
        (0, "t", "take"),
        (0, "r", "release"),
        (0, "!", "bury"),
        (0, "r", "kick"),
        (0, "t", "take"),
        (0, "-", "delete"),
    ]
    assert told[-1][0].data in ("x", None)
    assert tube.on_task_change(None) is hear
    tube.put("unheard")
    assert len(told) == 7


def test_what_a_callback_has_seen_is_forgotten_with_it_and_with_the_tasks(below: Any, queue: Queue) -> None:
    told: list[tuple[Any, str]] = []
    heard = threading.Condition()

    def hear(task: Task, what: str) -> None:
        with heard:
            told.append((task.data, what))
            heard.notify()

    def hears(count: int) -> None:
        with heard:
            assert heard.wait_for(lambda: len(told) >= count, 20)

    tube = queue.create_tube("q", "fifo", on_task_change=hear)
    for data in ("acked", "moved", "known"):
        tube.put(data)
    hears(3)
    tube.take()
    tube.ack(0)
    hears(5)
    below.job("q#1").move(below.tube("other", "fifo"))
    tube.bury(2)
    hears(6)
    assert [task.data for task in tube._seen.values()] == ["known"]
    tube.on_task_change(None)
    assert not tube._seen
    tube.on_task_change(hear)
    tube.delete(2)
    hears(7)
    assert told[5:] == [("known", "bury"), (None, "delete")], "this one had not seen it before"
    assert not tube._seen


def test_what_was_done_and_is_kept_is_not_kept_for_a_callback_too(below: Any, queue: Queue) -> None:
    below.tube("q", "fifo", keep=True)
    told = threading.Event()
    tube = queue.tube.q
    tube.on_task_change(lambda task, what: told.set() if what == "delete" else None)
    tube.put("x")
    tube.take()
    tube.ack(0)
    assert told.wait(20) and tube.peek(0) == (0, "-", "x")
    assert not tube._seen


@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionLost, NotAllowed])
def test_a_take_that_fails_on_its_way_to_the_caller_gives_its_task_back(
    below: Any, queue: Queue, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = queue.create_tube("q", "fifo")
    tube.put("x")
    job = below.tube("q").jobs("ready")[0]

    def fail(_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(type(job), "meta", fail)
        with pytest.raises(error):
            tube.take(0)
    assert below.tube("q").stats()["taken"] == 0
    assert not isinstance(below, penstock.Queue) or job.deliveries == 0, "in process it was no delivery at all"
    assert tube.take(0) == (0, "t", "x")


def test_drivers_can_be_registered(queue: Queue) -> None:
    with pytest.raises(penstock.CommandError, match="create_space"):
        queue.register_driver("mine", object())
