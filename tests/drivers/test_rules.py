"""The guarantees for drivers, and the handling of a driver that breaks the rules."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.compat.queue import Queue
from penstock.core.errors import BadDriver, TubeExists, Unsupported, WrongType
from penstock.core.job import BodyRef
from penstock.core.limits import MEMORY_BYTES_MIN
from penstock.drivers import unregister_driver
from penstock.testing import check
from tests.drivers.five_fields import FiveFields, FiveTube
from tests.drivers.samples import registered


@pytest.fixture(autouse=True)
def _drivers() -> Iterator[None]:
    with registered():
        yield


def space_of(tube: Any) -> dict[Any, tuple[Any, ...]]:
    return dict(tube._host.engine.drivers.find(tube._core)._space)


def register(name: str, **methods: Callable[..., Any]) -> None:
    """Register a variant of the driver with five fields."""
    made = type("Changed", (FiveTube,), methods)

    class Driver(FiveFields):
        @staticmethod
        def new(space: Any, on_task_change: Any, options: dict[str, Any]) -> Any:
            return made(space, on_task_change, options)

    penstock.register_driver(name, Driver)


@pytest.fixture
def changed(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Register the driver `changed`, for this test."""
    yield lambda **methods: register("changed", **methods)
    unregister_driver("changed")


def test_the_mapping_has_every_field_after_a_restart_and_the_tube_its_options(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs", "five", default=4)  # type: ignore[arg-type,call-arg]
        tube.put({"bytes": b"\xff", "deep": [[1], {"2": None}]})
        tube.put("buried", pri=1)  # type: ignore[call-arg]
        job = tube.take()
        assert job is not None
        job.bury()
        before = space_of(tube)
        queue.checkpoint()
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs")
        assert space_of(tube) == before
        assert before["t2"] == ("t2", "!", 1, 1, "buried")
        assert tube.put("as created").meta()["name"] == "t3" and space_of(tube)["t3"][2] == 4
        first = tube.take()
        assert first is not None and first.body == {"bytes": b"\xff", "deep": [[1], {"2": None}]}
        check(queue._host.engine)


def test_a_job_that_was_taken_at_a_restart_is_released_through_its_driver(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs", "five")  # type: ignore[arg-type]
        tube.put("x")
        assert tube.take() is not None
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs")
        assert space_of(tube)["t1"] == ("t1", "r", 10, 1, "x"), "it was taken once"
        job = tube.take()
        assert job is not None and job.deliveries == 2


def test_a_taken_job_whose_session_may_return_stays_taken_over_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path, grace=3_600) as queue:
        tube = queue.tube("jobs", "five")  # type: ignore[arg-type]
        tube.put("x")
        assert tube.take() is not None
        token = queue.token
    with penstock.open(tmp_path, grace=3_600) as queue:
        tube = queue.tube("jobs")
        assert space_of(tube)["t1"][1] == "t" and tube.take() is None
        queue.identify(token)
        tube.named("t1").ack()
        assert "t1" not in space_of(tube)


def test_a_tube_whose_driver_is_registered_late_is_refused_until_then(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("jobs", "five").put("x")  # type: ignore[arg-type]
    unregister_driver("five")
    with penstock.open(tmp_path) as queue:
        with pytest.raises(Unsupported, match=r"'five', which is not registered; its jobs are kept"):
            queue.tube("jobs")
        assert queue.stats()["jobs"]["ready"] == 1
        penstock.register_driver("five", FiveFields)
        job = queue.tube("jobs").take()
        assert job is not None and job.body == "x"


@pytest.mark.parametrize("driver", ["the same", "another"])
def test_a_task_whose_session_ended_while_its_driver_was_not_registered_is_released_when_it_is(driver: str) -> None:
    with penstock.open() as queue:
        tube = queue.tube("jobs", "five")  # type: ignore[arg-type]
        tube.put("x")
        session = queue.session()
        assert session.tube("jobs").take() is not None
        unregister_driver("five")
        session.close()
        penstock.register_driver("five", FiveFields if driver == "the same" else type("Other", (FiveFields,), {}))
        job = tube.take()
        assert job is not None and job.body == "x"
        check(queue._host.engine)


def test_a_temporary_tube_has_no_tasks_after_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs", "five", temporary=True, default=2)  # type: ignore[arg-type,call-arg]
        tube.put("x")
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs", "five", temporary=True, default=2)  # type: ignore[arg-type,call-arg]
        assert space_of(tube) == {} and tube.put("y").meta()["name"] == "t1"
        assert space_of(tube)["t1"][2] == 2


def test_the_history_of_a_job_has_every_change_with_the_fields_of_the_task(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("jobs", "five")  # type: ignore[arg-type]
        put = tube.put("x")
        job = tube.take()
        assert job is not None
        job.bury("odd")
        assert tube.kick() == 1
        job = tube.take()
        assert job is not None
        job.ack()
        assert [event.event for event in queue.history(put.id)] == [
            "put",
            "taken",
            "buried",
            "kicked",
            "taken",
            "acked",
        ]


def test_a_driver_gets_bodies_that_were_moved_to_disk(tmp_path: Path) -> None:
    with penstock.open(tmp_path, memory_limit=MEMORY_BYTES_MIN) as queue:
        tube = queue.tube("jobs", "five")  # type: ignore[arg-type]
        for number in range(20):
            tube.put(str(number) * (MEMORY_BYTES_MIN // 10))
        assert any(isinstance(job.body, BodyRef) for job in tube._core.names.values())
        before = space_of(tube)
    with penstock.open(tmp_path, memory_limit=MEMORY_BYTES_MIN) as queue:
        tube = queue.tube("jobs")
        assert space_of(tube) == before
        job = tube.take()
        assert job is not None and job.body == before["t1"][4]
        job.release()
        check(queue._host.engine)


def test_an_existing_tube_with_other_driver_options_is_refused(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("jobs", "five", default=1)  # type: ignore[arg-type,call-arg]
        queue.tube("jobs", "five", default=1)  # type: ignore[arg-type,call-arg]
        with pytest.raises(TubeExists):
            queue.tube("jobs", "five", default=2)  # type: ignore[arg-type,call-arg]
        with pytest.raises(WrongType, match="JSON"):
            queue.tube("more", "five", default=object())  # type: ignore[arg-type,call-arg]
        with pytest.raises(BadDriver, match="default must be a whole number"):
            queue.tube("more", "five", default="x")  # type: ignore[arg-type,call-arg]
        assert queue.tubes() == ["jobs"]


def test_several_tubes_can_be_taken_from_with_one_that_has_a_driver() -> None:
    with penstock.open() as queue:
        driven, plain = queue.tube("jobs", "five"), queue.tube("plain", "fifo")  # type: ignore[arg-type]
        found: list[Any] = []
        waiter = threading.Thread(target=lambda: found.extend(queue.take([plain, driven], 1, timeout=20)))
        waiter.start()
        driven.put("x")
        waiter.join(20)
        assert [job.body for job in found] == ["x"]
        driven.put("y")
        plain.put("z")
        assert [job.body for job in queue.take([driven, plain], 5)] == ["y", "z"]
        check(queue._host.engine)


@pytest.mark.parametrize(
    ("id", "task", "why"),
    [
        (1.5, (1.5, "r", 0, 0, 0), "the id of a task is a whole number, or text or bytes"),
        (True, (True, "r"), "the id of a task is a whole number"),
        ("", ("", "r"), "the id of a task"),
        (1, (2, "r"), "stored under its id"),
        (1, "r", "a task is a tuple"),
        (1, (1, "x"), "the states are r t - ! ~"),
        (1, (1, "t", 0, 0, 0), "stored a task as taken outside of take"),
        (1, (1, "r", object()), "object cannot be written as msgpack"),
        (1, (1, "r", 1 << 70), "64 bits"),
        ("7", ("7", "r"), "are the same to clients"),
        (1, (1, "r", 0, 0, "x" * 2_000), "TOOBIG|1000"),
    ],
)
def test_a_call_with_a_value_that_cannot_be_stored_is_refused_without_effect(
    changed: Callable[..., None], id: Any, task: Any, why: str
) -> None:
    def put(self: FiveTube, data: Any, options: dict[str, Any]) -> Any:
        self.tasks[7] = (7, "r", 0, 0, data)  # type: ignore[attr-defined]
        if options:
            self.tasks[id] = task  # type: ignore[attr-defined]
        return self.tasks[7]  # type: ignore[attr-defined]

    changed(put=put)
    with penstock.open(max_body=1_000) as queue:
        tube = queue.tube("jobs", "changed")  # type: ignore[arg-type]
        with pytest.raises(penstock.CommandError, match=why):
            tube.put("x", bad=True)  # type: ignore[call-arg]
        assert space_of(tube) == {} and tube.stats()["ready"] == 0
        tube.put("x")
        assert space_of(tube) == {7: (7, "r", 0, 0, "x")}
        check(queue._host.engine)


@pytest.mark.parametrize(
    ("method", "answer", "why"),
    [
        ("put", None, "put returned None; return the task"),
        ("put", ("other", "r"), "did not store the task that its put returned"),
        ("put", 7, "put returned 7; return the task"),
        ("take", ("t1", "r"), "it did not store as taken"),
        ("release", None, "the release of the 'changed' driver did not change the state"),
        ("delete", None, "the delete of the 'changed' driver did not remove"),
        ("bury", None, "the bury of the 'changed' driver did not change the state"),
        ("kick", None, "kick returned None; return how many"),
        ("normalize_task", None, r"normalize_task returned None; return \(id, state, data\)"),
    ],
)
def test_a_method_that_does_not_do_its_work_is_named(
    changed: Callable[..., None], method: str, answer: Any, why: str
) -> None:
    broken = False

    def wrong(self: Any, *args: Any) -> Any:
        return answer if broken else getattr(FiveTube, method)(self, *args)

    changed(**{method: wrong})
    with penstock.open() as queue:
        tube = queue.tube("jobs", "changed")  # type: ignore[arg-type]
        tube.put("x")
        job = tube.put("y") if method == "take" else tube.take()
        assert job is not None
        before, broken = space_of(tube), True
        calls: dict[str, Callable[[], Any]] = {
            "put": lambda: tube.put("z"),
            "take": tube.take,
            "kick": tube.kick,
            "normalize_task": lambda: tube.put("z"),
        }
        call = calls[method] if method in calls else getattr(job, method)
        with pytest.raises(BadDriver, match=why):
            call()
        broken = False
        assert space_of(tube) == before
        check(queue._host.engine)


def test_a_driver_is_restarted_after_an_error_so_that_its_variables_are_correct(changed: Callable[..., None]) -> None:
    def put(self: Any, data: Any, options: dict[str, Any]) -> Any:
        self.count = getattr(self, "count", len(self.tasks)) + 1
        task = (self.count, "r", 0, 0, data)
        self.tasks[self.count] = task
        if data == "bad":
            raise LookupError("bad data")
        return task

    changed(put=put)
    with penstock.open() as queue:
        tube = queue.tube("jobs", "changed")  # type: ignore[arg-type]
        assert tube.put("a").meta()["number"] == 1
        with pytest.raises(BadDriver, match="failed in put: LookupError: bad data"):
            tube.put("bad")
        assert tube.put("b").meta()["number"] == 2
        assert queue._host.failure is None


@pytest.mark.parametrize("how", ["raises", "does nothing"])
def test_a_task_is_ready_when_its_session_ends_even_if_its_release_fails(
    changed: Callable[..., None], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def release(self: Any, id: Any, options: dict[str, Any]) -> Any:
        if how == "raises":
            raise RuntimeError("no release today")
        return None

    changed(release=release)
    with penstock.open() as queue, caplog.at_level(logging.ERROR, "penstock"):
        tube = queue.tube("jobs", "changed")  # type: ignore[arg-type]
        tube.put("x")
        with queue.session() as session:
            assert session.tube("jobs").take() is not None
        assert space_of(tube)["t1"] == ("t1", "r", 10, 1, "x")
        assert "driver failed outside of a command: driver=changed tube=jobs" in caplog.text
        assert tube.take() is not None
        check(queue._host.engine)


def test_an_error_while_serving_a_waiting_take_does_not_fail_the_put(changed: Callable[..., None]) -> None:
    def take(self: Any) -> Any:
        if any(task[1] == "r" and task[4] == "bad" for task in self.tasks.values()):
            raise RuntimeError("no take today")
        return FiveTube.take(self)  # type: ignore[no-untyped-call]

    changed(take=take)
    with penstock.open() as queue:
        tube = queue.tube("jobs", "changed")  # type: ignore[arg-type]
        found: list[Any] = []
        waiter = threading.Thread(target=lambda: found.append(tube.take(timeout=20)))
        waiter.start()
        bad = tube.put("bad")
        bad.delete()
        tube.put("good")
        waiter.join(20)
        assert [job.body for job in found] == ["good"]
        check(queue._host.engine)


def test_a_callback_gets_the_normalised_task_of_each_change(tmp_path: Path) -> None:
    told: list[Any] = []
    with penstock.open(tmp_path) as below:
        tube = Queue(below).create_tube("words", "stack", on_task_change=lambda *change: told.append(change))
        tube.put("x")
        assert told == [((1, "r", "x"), "put")]
        tube.take(0)
        tube.bury(1)
        tube.kick(1)
        tube.delete(1)
    states = [("r", "put"), ("t", "take"), ("!", "bury"), ("r", "kick"), ("-", "delete")]
    assert told == [((1, state, "x"), what) for state, what in states]


def test_a_tuple_is_the_same_before_and_after_a_restart() -> None:
    with penstock.open() as queue:
        tube = queue.tube("jobs", "five")  # type: ignore[arg-type]
        tube.put({"a": 1}, pri=(1, 2))  # type: ignore[call-arg]
        assert space_of(tube)["t1"][2] == [1, 2], "a nested tuple is a list, as it will be"
