"""xqueue in Python, in this process and on a server: waits, recovery, workers, and other APIs on the same queue."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import CommandError, embedded
from penstock.compat import xqueue
from penstock.compat.xqueue import Space, XqueueError

FORMAT: list[Any] = [
    {"name": "id", "type": "unsigned"},
    {"name": "status", "type": "string"},
    {"name": "runat", "type": "number"},
    {"name": "priority", "type": "integer", "is_nullable": True},
    {"name": "tube", "type": "string", "is_nullable": True},
    {"name": "data", "type": "any", "is_nullable": True},
]
OPTIONS: dict[str, Any] = {
    "format": FORMAT,
    "fields": {"status": "status", "runat": "runat", "priority": "priority", "tube": "tube"},
    "features": {"buried": True, "delayed": True, "keep": True, "ttl": True, "ttr": 60},
    "tube_stats": ["A"],
}
MEMORY_LIMIT = 1024 * 1024


@pytest.fixture
def queue(below: Any) -> Any:
    return below


Until = Callable[[int], None]


def switched(**features: Any) -> dict[str, Any]:
    return {**OPTIONS, "features": {**OPTIONS["features"], **features}}


def in_thread(call: Any, *args: Any) -> Any:
    """Run a call in a thread. Return a function that waits for its result."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call(*args))
        except CommandError as error:
            found.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()

    def answer() -> Any:
        thread.join(10)
        return found[0]

    return answer


def test_a_take_waits_for_a_put_of_another_session(queue: Any, until_waiting: Until) -> None:
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    worker = queue.session()
    taken = in_thread(xqueue.space(worker, "jobs").take, 10, {"tube": "A"})
    until_waiting(1)
    space.put({"data": "x", "tube": "B"})
    space.put({"data": "y", "tube": "A"})
    assert taken()["data"] == "y"
    with pytest.raises(XqueueError, match="taken by"):
        space.ack(2)
    worker.close()
    assert space.get(2)["status"] == "R"


def test_rows_are_selected_by_key_and_iterator(queue: Any) -> None:
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    for number in range(5):
        space.put({"data": {"n": number}})
    assert [row[0] for row in space.select()] == [1, 2, 3, 4, 5]
    assert [row[-1] for row in space.select(3, {"iterator": "LT", "limit": 1})] == [{"n": 1}]
    assert space.select([9]) == [] and space.get(9) is None
    with pytest.raises(Exception, match="part 1 does not match"):
        space.select("x")


def test_wait_ends_when_another_session_acks_the_task(queue: Any, until_waiting: Until) -> None:
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    space.put({"data": "x"})
    other = xqueue.space(queue.session(), "jobs")
    ended = in_thread(other.wait, 1, 10)
    put = in_thread(other.put, {"data": "y"}, {"wait": 10})
    until_waiting(2)
    for _ in range(2):
        space.ack(space.take())
    assert ended()[1] is True and ended()[0]["status"] == "D"
    assert put()[1] is True


def test_a_wait_raises_closed_when_the_queue_is_closed(queue: Any, until_waiting: Until) -> None:
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    space.put({"data": "x"}, {"delay": 60})
    answers = [in_thread(space.take, 60), in_thread(space.wait, 1)]
    until_waiting(2)
    queue.close()
    assert [answer() for answer in answers] == ["CLOSED", "CLOSED"]
    with pytest.raises(CommandError, match="closed"):
        space.put({})


def test_an_unused_queue_with_spaces_is_freed_at_once() -> None:
    queue = penstock.open(":memory:")
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    space.put({})
    host = weakref.ref(queue._host)
    del queue, space
    gc.collect()
    assert host() is None


def test_a_space_is_unchanged_after_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        space = xqueue.upgrade(queue, "jobs", OPTIONS)
        for number, tube in enumerate(["A", "B", "A", None]):
            space.put({"data": {"n": number, "raw": b"\xff"}, "tube": tube, "priority": -number})
        space.ack(space.take())
        space.bury(space.take(), {"update": [["=", "tube", "A"]]})
        space.take()
        space.put({"data": 5}, {"delay": 1_000, "ttl": 50})
        before = {key: space.get(key) for key in range(1, 6)}
        options, counts = space.options, space.stats()["counts"]
    with penstock.open(tmp_path) as queue:
        space = xqueue.space(queue, "jobs")
        assert space.options == options
        # The holder is gone, so the taken task is ready.
        assert {**before[2], "status": "R", "runat": 0} == space.get(2)
        assert [space.get(key) for key in (1, 3, 4, 5)] == [before[key] for key in (1, 3, 4, 5)]
        assert space.stats()["counts"] == {**counts, "R": counts["R"] + 1, "T": 0}
        assert space.put({"data": "x"})["id"] > 5
        xqueue.upgrade(queue, "jobs", OPTIONS)  # As a program does at every start.
        assert space.take()["id"] == 2


def test_changed_features_survive_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        space = xqueue.upgrade(queue, "jobs", OPTIONS)
        space.put({"data": 1})
        xqueue.upgrade(queue, "jobs", switched(keep=False, zombie=60, not_check_session=True))
        space.take()
        options = space.options
        queue.checkpoint()
    with penstock.open(tmp_path) as queue:
        space = xqueue.space(queue, "jobs")
        assert space.options == options
        assert space.get(1)["status"] == "T"  # No session holds the task, so no end of a session returns it.
        assert space.ack(1)["status"] == "Z"


def test_keys_of_every_type_survive_a_restart(tmp_path: Path) -> None:
    rows: dict[str, tuple[dict[str, Any], list[Any]]] = {
        "text": ({"format": [["id", "string"], "status"], "features": {"id": "required"}}, ["a", "é", "7"]),
        "number": ({"format": [["id", "number"], "status"], "features": {"id": "required"}}, [1, 2.5, -3]),
        "untyped": ({"features": {"id": "required"}}, [1, "1", 2.5]),
        "pair": (
            {"format": [["id", "any"], "status", ["n", "integer"]], "primary_key": ["id", "n"]},
            [["a", 1], [1, 1], ["1", 1]],
        ),
        "uuid": ({"format": [["id", "string"], "status"]}, [None, None]),
        "time": ({"format": [["id", "unsigned"], "status"], "features": {"id": "time64"}}, [None, None]),
    }
    keys: dict[str, list[Any]] = {}
    with penstock.open(tmp_path) as queue:
        for name, (options, given) in rows.items():
            space = xqueue.upgrade(queue, name, {"fields": {"status": 2}, **options})
            for key in given:
                space.put([key[0], None, key[1]] if isinstance(key, list) else [key])
            tasks = [space.take() for _ in given]
            keys[name] = [list(task.values()) if isinstance(task, dict) else task for task in tasks]
    with penstock.open(tmp_path) as queue:
        for name, found in keys.items():
            space = xqueue.space(queue, name)
            for row in found:
                again = space.get(row)
                assert (list(again.values()) if isinstance(again, dict) else again) == [row[0], "R", *row[2:]]


def test_a_function_that_made_ids_has_to_be_given_again(tmp_path: Path) -> None:
    ids = iter(range(100, 200))
    with penstock.open(tmp_path) as queue:
        space = xqueue.upgrade(queue, "jobs", switched(id=lambda: next(ids)))
        assert space.put({})["id"] == 100
    with penstock.open(tmp_path) as queue:
        space = xqueue.space(queue, "jobs")
        with pytest.raises(XqueueError, match="upgrade it again"):
            space.put({})
        xqueue.upgrade(queue, "jobs", switched(id=lambda: next(ids)))
        assert space.put({})["id"] == 101


def test_bodies_that_are_on_disk_only_are_read(tmp_path: Path) -> None:
    with penstock.open(tmp_path, memory_limit=MEMORY_LIMIT) as queue:
        space = xqueue.upgrade(queue, "jobs", OPTIONS)
        for number in range(40):
            space.put({"data": f"{number}" * 50_000})
        assert any(not isinstance(job.body, bytes) for job in queue._host.engine.jobs.scan(0, 99))
        for number in range(40):
            task = space.take()
            assert task["data"] == f"{number}" * 50_000
            assert space.get(task)["data"] == task["data"]
            assert space.ack(task, {"update": [["=", "data", "done"]]})["data"] == "done"


def test_a_job_that_is_put_through_one_api_is_taken_through_the_other(queue: Any) -> None:
    space, tube = xqueue.upgrade(queue, "jobs", OPTIONS), queue.tube("jobs")
    bodies: list[Any] = ["text", b"\0\xff", {"a": [1, None]}, 7, None]
    for body in bodies:
        space.put({"data": body, "tube": "A", "priority": 3})
        job = tube.take(key="A")
        assert job is not None and job.body == body and job.meta()["priority"] == 3
        tube.put(body, key="A", priority=1)
        task = space.take()
        assert (task["data"], task["tube"], task["priority"]) == (body, "A", 1)
        space.ack(task)
        assert job.meta()["number"] + 1 == task["id"]
        job.ack()
    assert space.stats()["counts"]["D"] == 2 * len(bodies)
    named = queue.tube("jobs").put("x", name="mine")
    assert space.take()["id"] == "mine"
    named.delete()


def test_options_that_one_api_changes_apply_to_the_other(queue: Any) -> None:
    space, tube = xqueue.upgrade(queue, "jobs", OPTIONS), queue.tube("jobs")
    tube.alter(keep=False, capacity=2, retry="3x then bury", ttr=5)
    assert (space.options["features"]["keep"], space.options["features"]["ttr"]) == (False, 5)
    space.put({})
    assert space.ack(space.take())["status"] == "T" and space.get(1) is None
    xqueue.upgrade(queue, "jobs", OPTIONS)
    policy = queue.tube("jobs").policy
    assert (policy.capacity, policy.retry, policy.default_ttr_ms) == (2, "3x then bury", 60_000)
    space.put({})
    space.put({})
    with pytest.raises(CommandError, match="full"):
        space.put({})


def test_a_second_upgrade_keeps_what_it_leaves_out_and_reports_what_it_changed(queue: Any) -> None:
    made = xqueue.upgrade(queue, "jobs", OPTIONS)
    assert made.changed == {} == xqueue.space(queue, "jobs").changed
    assert xqueue.upgrade(queue, "jobs", {"tube_stats": ["B"]}).changed == {"tube_stats": [["A"], ["B"]]}
    again = xqueue.upgrade(queue, "jobs", {"features": {"ttr": False}})
    assert again.changed == {"features.ttr": [60, False]}
    assert again.options == {**made.options, "tube_stats": ["B"]} and again.options["features"]["keep"] is True


def test_wait_ends_when_another_session_buries_the_task(queue: Any, until_waiting: Until) -> None:
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    key = space.put({"data": 1})["id"]
    waits = in_thread(space.wait, key, 20)
    until_waiting(1)
    with queue.session() as session:
        other = xqueue.space(session, "jobs")
        other.take()
        other.bury(key)
    task, processed = waits()
    assert (task["status"], processed) == ("B", False)
    assert space.wait(key, 20)[1] is False


def test_a_tuple_has_its_key_and_a_function_is_not_sent(queue: Any) -> None:
    made = xqueue.upgrade(queue, "made", OPTIONS)
    with pytest.raises(XqueueError, match=r"Can't use id generation with tuple\."):
        made.put((None, None, None, None, "A"))
    given = xqueue.upgrade(queue, "given", {"fields": {"status": 2}, "features": {"id": "required"}})
    assert given.put(("key", None, b"x")) == ["key", "R", b"x"]
    if not isinstance(queue, embedded.Queue):
        with pytest.raises(XqueueError, match="a function, which cannot be sent to a server"):
            xqueue.upgrade(queue, "jobs", switched(id=lambda: 1))


def test_a_staged_job_is_no_task_until_it_is_published(queue: Any) -> None:
    space = xqueue.upgrade(queue, "jobs", OPTIONS)
    with queue.stage("batch") as stage:
        stage.put("jobs", "x", key="A")
        assert len(space) == 0 and space.get(1) is None and space.take() is None
        assert set(space.stats()["counts"].values()) == {0}
    assert space.take()["data"] == "x"
    assert space.stats()["transition"] == {"X-R": 1, "R-T": 1}


def test_workers_ack_tasks_on_return_and_release_them_on_errors(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    done = threading.Event()

    def work(task: dict[str, Any]) -> None:
        seen.append(task["data"])
        if task["data"] == "bad" and seen.count("bad") < 3:
            raise ValueError("not yet")
        if len(seen) == 12:
            done.set()

    space = xqueue.upgrade(queue, "jobs", {**OPTIONS, "worker": work, "workers": 3})
    for data in [*range(9), "bad"]:
        space.put({"data": data})
    assert done.wait(10)
    space.stop()
    assert sorted(map(str, seen)) == sorted([*map(str, range(9)), "bad", "bad", "bad"])
    assert space.stats()["counts"] == {"R": 0, "T": 0, "W": 0, "B": 0, "D": 10, "Z": 0}
    assert space.stats()["transition"]["T-R"] == 2
    assert (
        caplog.text.count("worker failed, task released: space=jobs") == caplog.text.count("ValueError: not yet") == 2
    )


def test_workers_end_with_their_queue_and_may_finish_a_task_themselves(queue: Any) -> None:
    spaces: list[Space] = []
    buried = threading.Event()

    def work(task: dict[str, Any]) -> None:
        spaces[0].bury(task)
        buried.set()

    spaces.append(xqueue.upgrade(queue, "jobs", OPTIONS))
    workers = xqueue.upgrade(queue, "jobs", {**OPTIONS, "worker": work})
    spaces[0].put({"data": 1})
    assert buried.wait(10)
    threads = list(workers._threads)
    assert spaces[0].get(1)["status"] == "B"
    queue.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"worker": 5}, "worker must be a function"),
        ({"worker": print, "workers": 0}, "workers must be a number above 0"),
    ],
)
def test_invalid_workers_are_refused(queue: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(XqueueError, match=words):
        xqueue.upgrade(queue, "jobs", {**OPTIONS, **given})
    assert queue.tubes() == []


def test_the_error_of_a_missing_space_names_it(queue: Any) -> None:
    queue.tube("plain")
    for name in ("plain", "nowhere"):
        with pytest.raises(CommandError, match=f"there is no space '{name}'; make it by upgrade"):
            xqueue.space(queue, name)


def test_every_method_can_be_called(queue: Any) -> None:
    space = xqueue.upgrade(queue, "jobs", switched(keep=False, zombie=60))
    assert (space.name, repr(space), len(space)) == ("jobs", "<penstock space 'jobs'>", 0)
    key = space.put({"data": 1})["id"]
    assert space.touch(key, {"increment": 1})["status"] == "R"
    assert space.take({"timeout": 0})["id"] == key
    assert space.release(key)["status"] == "R"
    space.take()
    space.bury(key)
    assert space.dig(key)["status"] == "R"
    assert space.switch(key, "B")["status"] == "B"
    assert space.plow() == 1
    space.switch(key, "B")
    assert space.kick(1) == 1
    space.take()
    assert space.snatch(key)["status"] == "R"
    space.take()
    assert space.ack(key)["status"] == "Z"
    assert space.restart(key)["status"] == "R"
    assert space.queue_stats() == space.stats()
    assert space.wait(key, 0)[1] is False
    assert space.kill(key)["id"] == key
    space.put({"data": 2})
    assert space.len() == space.count() == len(space) == 1
    space.truncate()
    assert len(space) == 0 and space.get(key) is None and space.take() is None
