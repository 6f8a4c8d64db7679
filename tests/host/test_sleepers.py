"""Sleepers of the host: one of them is the timekeeper for all, and the role is never lost.

Nothing really sleeps here. A `Dozer` only records that it was woken, so every order of events can be tested.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.core.waits import WAITING
from tests.conformance.interfaces import PATIENCE_S

from ..embedded.stopped_clock import no_time_passes


class Dozer:
    """A sleeper that does not really sleep."""

    keeps_time = True

    def __init__(self, queue: penstock.Queue, tube: penstock.Tube, timeout_ms: int = 60_000) -> None:
        self.host: Any = queue._host
        self.woken = 0
        session = queue._session
        with session.lock:
            engine = self.host.engine
            self.wait = engine.wait(session.connection, [tube._core], self.host.now(), timeout_ms, tag=self)

    def wake(self) -> None:
        self.woken += 1

    def ask(self) -> int | None:
        """Return how long it may sleep."""
        return self.host.sleep_ms(self.wait, self)

    def leave(self) -> None:
        """Stop sleeping."""
        assert self.ask() is None
        self.host.stop_sleeping(self)


@pytest.fixture
def queue() -> Iterator[penstock.Queue]:
    with penstock.open() as queue:
        yield queue


def test_the_first_sleeper_is_the_timekeeper_and_the_others_sleep_until_woken(queue: penstock.Queue) -> None:
    tube = queue.tube("x")
    keeper, other = Dozer(queue, tube, 60_000), Dozer(queue, tube, 30_000)
    asleep_ms = keeper.ask()
    assert asleep_ms is not None and 25_000 < asleep_ms <= 30_000, "it keeps the time of the other, too"
    assert other.ask() == -1


def test_an_earlier_deadline_wakes_only_the_timekeeper(queue: penstock.Queue) -> None:
    tube, quiet = queue.tube("x"), queue.tube("quiet")
    keeper, other = Dozer(queue, quiet), Dozer(queue, quiet)
    keeper.ask(), other.ask()
    tube.put("later", delay=3_000)
    assert (keeper.woken, other.woken) == (0, 0), "it wakes before that anyway"
    tube.put("sooner", delay=5)
    assert (keeper.woken, other.woken) == (1, 0)
    assert 0 <= keeper.ask() <= 5_000


def test_a_timekeeper_that_leaves_is_replaced(queue: penstock.Queue) -> None:
    first, second = queue.tube("first"), queue.tube("second")
    keeper, other = Dozer(queue, first), Dozer(queue, second, 30_000)
    keeper.ask(), other.ask()
    first.put("x")
    assert keeper.woken == 1
    keeper.leave()
    assert other.woken == 1
    asleep_ms = other.ask()
    assert asleep_ms is not None and 0 < asleep_ms <= 30_000


def test_a_timekeeper_is_replaced_even_if_its_successor_leaves_too(queue: penstock.Queue) -> None:
    busy, quiet = queue.tube("busy"), queue.tube("quiet")
    keeper, leaver, stayer = Dozer(queue, busy), Dozer(queue, busy), Dozer(queue, quiet)
    keeper.ask(), leaver.ask(), stayer.ask()
    busy.put_many([1, 2])  # Serves the timekeeper and its successor.
    keeper.leave()
    leaver.leave()
    assert stayer.woken > 0, "nobody keeps the time, and nobody will wake the one who still sleeps"


def test_a_sleeper_is_woken_by_a_put_while_there_is_no_timekeeper(queue: penstock.Queue) -> None:
    busy, quiet = queue.tube("busy"), queue.tube("quiet")
    keeper, leaver, stayer = Dozer(queue, busy), Dozer(queue, busy), Dozer(queue, quiet)
    keeper.ask(), leaver.ask(), stayer.ask()
    busy.put_many([1, 2])
    keeper.leave()
    leaver.leave()
    stayer.woken = 0
    quiet.put("x")
    assert stayer.woken == 1


def test_a_thread_is_the_timekeeper_for_sleepers_that_cannot_be(queue: penstock.Queue) -> None:
    tube = queue.tube("x")
    with no_time_passes(queue):
        tasks = [Dozer(queue, tube, 30) for _ in range(2)]
        for task in tasks:
            task.keeps_time = False
            assert task.ask() == -1
    end = time.monotonic() + PATIENCE_S
    while not all(task.woken for task in tasks):
        assert time.monotonic() < end, "nobody keeps the time"
        time.sleep(0.001)
    for task in tasks:
        task.leave()


def test_the_timekeeper_thread_ends_with_its_queue() -> None:
    for forget in (False, True):
        others = threading.enumerate()  # The timekeeper of the previous test may still be ending.
        queue = penstock.open()
        task = Dozer(queue, queue.tube("x"))
        task.keeps_time = False
        task.ask()
        [keeper] = [thread for thread in threading.enumerate() if thread not in others]
        assert keeper.name == "penstock-keeper"
        if forget:
            del queue, task
        else:
            queue.close()
        end = time.monotonic() + PATIENCE_S
        while keeper.is_alive():
            assert time.monotonic() < end, "it keeps the time for nobody"
            gc.collect()  # Several times, because the thread may have a reference to the queue at the moment.
            keeper.join(0.01)


def test_a_wait_that_ended_before_its_sleeper_slept_does_not_sleep(queue: penstock.Queue) -> None:
    tube = queue.tube("x")
    early = Dozer(queue, tube)
    tube.put("x")
    assert early.ask() is None
    early.host.stop_sleeping(early)
    assert early.wait.jobs[0].state != 0


def test_leaving_twice_is_harmless(queue: penstock.Queue) -> None:
    tube = queue.tube("x")
    keeper, other = Dozer(queue, tube), Dozer(queue, tube)
    keeper.ask(), other.ask()
    for _ in range(2):
        other.host.stop_sleeping(other)
    assert keeper.woken == 0
    for _ in range(2):
        keeper.host.stop_sleeping(keeper)


def test_a_job_whose_consumer_was_interrupted_was_not_delivered(queue: penstock.Queue) -> None:
    tube = queue.tube("x", max_deliveries=1)
    job = tube.put("x", delay=0)
    assert tube.take() == job
    interrupted, next_in_line = Dozer(queue, tube), Dozer(queue, tube)
    job.release()
    assert interrupted.wait.jobs and job.deliveries == 2
    interrupted.host.cancel_wait(interrupted.wait)
    assert next_in_line.wait.jobs == [job._core], "the next in line has it"
    assert job.deliveries == 2 and tube.events()["undelivered"] == 1
    next_in_line.host.cancel_wait(next_in_line.wait)
    assert (job.state, job.deliveries) == ("ready", 1)


def test_a_cancelled_wait_is_not_served_later(queue: penstock.Queue) -> None:
    tube = queue.tube("x")
    interrupted = Dozer(queue, tube)
    interrupted.host.cancel_wait(interrupted.wait)
    assert interrupted.wait.outcome != WAITING
    assert tube.put("x").state == "ready"
    interrupted.host.cancel_wait(interrupted.wait)


def test_a_late_cancel_does_not_take_a_job_from_its_present_holder(queue: penstock.Queue) -> None:
    tube = queue.tube("x")
    interrupted = Dozer(queue, tube)
    job = tube.put("x")
    job.snatch()
    other = queue.session()
    assert other.tube("x").take() == job
    interrupted.host.cancel_wait(interrupted.wait)
    assert job.state == "taken" and job.deliveries == 2
    other.job(job.id).ack()


def test_closing_wakes_all_sleepers(queue: penstock.Queue) -> None:
    other = queue.session()
    mine, theirs = Dozer(queue, queue.tube("x")), Dozer(other, other.tube("x"))
    mine.ask(), theirs.ask()
    other.close()
    assert theirs.woken >= 1 and theirs.ask() is None
    assert mine.wait.outcome == WAITING
    queue.close()
    assert mine.ask() is None
