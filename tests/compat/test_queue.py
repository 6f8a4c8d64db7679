"""The present API of Tarantool's queue, for queues in this process and on a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import embedded
from penstock.compat import queue as compat
from penstock.compat.queue import Queue, QueueError, Task
from penstock.core.errors import ConnectionLost, NotAllowed
from penstock.node.ignored_options import IgnoredOptions


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
        ("take", ("x",), "timeout must be a number, not str"),
        ("touch", (0, "x"), "the time to add must be a number, not str"),
        ("kick", ("x",), "a count must be a number, not str"),
    ]:
        assert refused(getattr(tube, method), *args) == words
    assert refused(queue.create_tube, "x", None) == "Unknown tube type nil"
    assert queue.tube() == ["q"] and tube.take(-1) is None and tube.kick(-1) == tube.kick("-1") == -1
    for options in ({"ttl": "x"}, {"pri": "1"}, {"ttr": True}):
        with pytest.raises(penstock.CommandError):
            tube.put(1, options)
    assert tube.tasks_by_state("r") == []


def test_options_that_a_type_does_not_have_are_ignored_and_logged_once(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.compat.queue._ignored", IgnoredOptions(compat._ignored.warn))
    for number in range(2):
        fifo = queue.create_tube(f"fifo{number}", "fifo", {"capacity": 100, "if_not_exist": True}, ttl="x")
        assert fifo.put("x", {"pri": "1", "delay": [], "timeout": "1"}, utube="u", key="k") == (0, "r", "x")
        assert fifo.take(0, {"stube": "s"}) == (0, "t", "x")
        assert fifo.release(0, delay=5, nope=1) == (0, "r", "x")
        assert fifo.touch(0) is None
        utube = queue.create_tube(f"utube{number}", "utube")
        for data in range(2):
            utube.put(data, stube=data, utube="u")
        assert utube.take(0, stube="s") == (0, "t", 0) and utube.take(0) is None, "both are of one micro-queue"
        assert queue.create_tube(f"ttl{number}", "fifottl", if_not_exist=True).put(1, pri=-3) == (0, "r", 1)
    logged = [record.getMessage() for record in caplog.records if record.name == "penstock"]
    assert len(logged) == len(set(logged)) == 3 + 5 + 1 + 2 + 1 + 1 + 1
    assert "option ignored: function=put type=utube option='stube'" in logged
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_ttr_of_zero_returns_the_task_at_once(queue: Queue) -> None:
    for tube in (queue.create_tube("a", "fifottl"), queue.create_tube("b", "fifottl", ttr=0)):
        tube.put("x", {} if tube.name == "b" else {"ttr": 0})
        assert tube.take(10) == tube.take(10) == (0, "t", "x")
        assert tube._statistics()["calls"]["ttr"] >= 1


def test_kick_coerces_its_count_as_lua_does(queue: Queue) -> None:
    tube = queue.create_tube("q", "fifo")
    for number in range(5):
        tube.put(number)
        tube.bury(number)
    assert tube.kick("1") == tube.kick(1.5) == 1 and tube.kick(0.5) == 0
    assert tube.kick(float("inf")) == 3


def test_in_replicaset_refuses_temporary_tubes(queue: Queue) -> None:
    queue.cfg(in_replicaset=True)
    words = "Cannot create temporary tube in replicaset mode"
    assert refused(queue.create_tube, "t", "fifo", {"temporary": True}) == words
    assert queue.create_tube("u", "fifo", temporary=False)
    queue.cfg(in_replicaset=False)
    assert queue.create_tube("t", "fifo", temporary=True)


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
        queue.create_tube("x", "fifottl", ttl="nope")


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


def test_refusals_have_the_sentences_of_the_original(below: Any, queue: Queue) -> None:
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
    assert refused(queue.identify, "00" * 16) == "The UUID 00000000-0000-0000-0000-000000000000 is unknown."
    assert refused(queue.identify, "short") == "Invalid UUID format."


def test_a_callback_receives_every_change_with_the_task(queue: Queue) -> None:
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


@pytest.mark.parametrize("place", ["memory", "directory"])
def test_a_callback_in_process_has_run_when_the_command_returns(place: str, tmp_path: Path) -> None:
    told: list[tuple[Task, str, str]] = []
    with penstock.open(":memory:" if place == "memory" else tmp_path) as below:
        queue = Queue(below)

        def hear(task: Task, what: str) -> None:
            # The callback may use the queue, and sees committed changes.
            told.append((task, what, below.tube("q").stats()["ready"]))

        tube = queue.create_tube("q", "fifottl", on_task_change=hear)
        put = tube.put({"n": 1})
        assert told == [((0, "r", {"n": 1}), "put", 1)] and put == told[0][0]
        tube.take(0)
        assert told[-1] == ((0, "t", {"n": 1}), "take", 0)
        tube.release(0)
        assert told[-1] == ((0, "r", {"n": 1}), "release", 1)
        tube.delete(0)
        assert told[-1] == ((0, "-", {"n": 1}), "delete", 0) and len(told) == 4
        with below.session() as other:
            Queue(other).tube.q.put("by another")
            assert told[-1][0] == (1, "r", "by another")
            Queue(other).tube.q.take(0)
        assert told[-1][:2] == ((1, "r", "by another"), "release"), "its session ended"


def test_a_change_that_a_callback_causes_is_reported_after_the_present_one() -> None:
    told: list[tuple[Any, str]] = []
    with penstock.open(":memory:") as below:
        queue = Queue(below)

        def hear(task: Task, what: str) -> None:
            if task.data == "first" and what == "put":
                tube.put("second")
            told.append((task.data, what))

        tube = queue.create_tube("q", "fifo", on_task_change=hear)
        tube.put("first")
    assert told == [("first", "put"), ("second", "put")], "closing waits for both"


def test_a_callback_has_run_when_a_call_of_a_task_returns() -> None:
    told: list[tuple[Any, str]] = []

    async def main() -> None:
        async with penstock.open_async() as below:
            Queue(below.sync).create_tube("q", "fifo", on_task_change=lambda task, what: told.append((task.data, what)))
            tube = await below.tube("q")
            await tube.put("x")
            assert told == [("x", "put")]
            job = await tube.take()
            assert job is not None and told[-1] == ("x", "take")
            await job.ack()
            assert told[-1] == ("x", "delete")

    asyncio.run(main())


def test_closing_a_queue_waits_for_its_callbacks() -> None:
    entered, release, told = threading.Event(), threading.Event(), []
    below = penstock.open(":memory:")
    tube = Queue(below).create_tube("q", "fifo")
    tube.put("x")
    tube.take(0)

    def hear(task: Task, what: str) -> None:
        entered.set()
        assert release.wait(20)
        told.append((task, what))

    tube.on_task_change(hear)
    closing = threading.Thread(target=below.close)
    closing.start()
    assert entered.wait(20)
    assert closing.is_alive()
    release.set()
    closing.join(20)
    assert told == [((0, "r", "x"), "release")]


def test_callbacks_receive_the_changes_of_many_threads_in_the_order_of_commits() -> None:
    told: list[tuple[int, str]] = []
    with penstock.open(":memory:") as below:
        tube = Queue(below).create_tube("q", "fifo", on_task_change=lambda task, what: told.append((task.id, what)))

        def work() -> None:
            for _ in range(50):
                id = tube.put("x").id
                assert (id, "put") in told
                tube.delete(id)
                assert (id, "delete") in told

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [id for id, what in told if what == "put"] == list(range(200))
    assert all(told.index((id, "put")) < told.index((id, "delete")) for id in range(200))


def test_tasks_that_a_callback_has_seen_are_freed_with_it_and_with_the_tasks(below: Any, queue: Queue) -> None:
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
    in_process = isinstance(below, embedded.Queue)
    assert [task.data for task in tube._seen.values()] == ([] if in_process else ["known"])
    tube.on_task_change(None)
    assert not tube._seen
    tube.on_task_change(hear)
    tube.delete(2)
    hears(7)
    gone = "known" if in_process else None
    assert told[5:] == [("known", "bury"), (gone, "delete")], "on a server, this one had not seen it before"
    assert not tube._seen


def test_kept_tasks_are_not_stored_for_a_callback_as_well(below: Any, queue: Queue) -> None:
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
    assert not isinstance(below, embedded.Queue) or job.deliveries == 0, "in process it was no delivery at all"
    assert tube.take(0) == (0, "t", "x")


def test_drivers_can_be_registered(queue: Queue) -> None:
    with pytest.raises(penstock.CommandError, match="create_space"):
        queue.register_driver("mine", object())


def test_a_task_keeps_the_headers_of_its_put(queue: Queue) -> None:
    tube = queue.create_tube("q", "fifottl")
    assert tube.put("x", {"headers": {"tenant": "acme"}}) == (0, "r", "x")
    assert tube.put("y", headers={"n": b"\xff"}) == (1, "r", "y")
    assert tube.take(0) == (0, "t", "x") and tube.headers(0) == {"tenant": "acme"}
    assert tube.headers(1) == {"n": "\udcff"}
    with pytest.raises(penstock.CommandError):
        tube.put("z", headers={"": "v"})
    assert refused(tube.headers, 2) == "Task 2 not found"
