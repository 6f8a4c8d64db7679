"""Waits are served first come, first served, once, and with the requested jobs."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.core.policy import FIFO, STUBE, UTUBE
from penstock.core.waits import SERVED

from .engine_harness import EngineHarness


def test_waits_are_served_in_order_of_arrival_regardless_of_their_timeouts(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    waits = [desk.wait(tube, by=desk.connect(), timeout_ms=ms) for ms in (9_000, NEVER, 10, 500)]
    jobs = desk.puts(tube, 3)
    assert [desk.served(wait) for wait in waits] == [[jobs[0]], [jobs[1]], [jobs[2]], None]


def test_a_released_utube_key_goes_to_the_next_waiter(desk: EngineHarness) -> None:
    tube, other = desk.tube(UTUBE), desk.connect()
    first, second = desk.puts(tube, 2, key=b"a")
    assert desk.take(tube) == first
    wait, later = desk.wait(tube, by=other), desk.wait(tube, by=other)
    desk.do("release", first)
    assert desk.served(wait) == [first]
    desk.do("ack", first, by=other)
    assert desk.served(later) == [second]


def test_a_wait_on_several_tubes_is_served_once(desk: EngineHarness) -> None:
    one, two = desk.tube(FIFO), desk.tube(FIFO, b"two")
    wait = desk.wait(one, two, one)
    job = desk.put(two)
    left = desk.put(one)
    assert desk.served(wait) == [job]
    assert desk.state(left) == "ready"
    assert desk.outbox.ended_waits == [wait]
    assert one.take_line.length == two.take_line.length == 0


def test_a_wait_is_served_with_the_available_jobs_and_does_not_wait_for_more(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    wait = desk.wait(tube, count=3)
    jobs = [job.id for job in desk.engine.put_many(tube, [Draft(b"")] * 2, desk.clock.ms)]
    assert desk.served(wait) == jobs


def test_a_take_from_several_tubes_takes_from_each_in_turn(desk: EngineHarness) -> None:
    one, two, three = (desk.tube(FIFO, name) for name in (b"1", b"2", b"3"))
    a, b = desk.puts(one, 3), desk.puts(two, 1)
    taken = desk.engine.take_many(desk.me.session, [three, one, two], 10, desk.clock.ms)
    assert [job.id for job in taken] == [a[0], b[0], a[1], a[2]]


def test_a_wait_for_a_key_is_served_by_that_key_only(desk: EngineHarness) -> None:
    tube = desk.tube(STUBE)
    wait, nameless = desk.wait(tube, key=b"a"), desk.wait(tube)
    desk.put(tube, key=b"b")
    assert desk.served(wait) is None and desk.served(nameless) is None
    a, plain = desk.put(tube, key=b"a"), desk.put(tube)
    assert desk.served(wait) == [a] and desk.served(nameless) == [plain]


@pytest.mark.parametrize("key_waits_first", [True, False])
def test_a_wait_for_any_job_and_a_wait_for_its_key_are_served_in_order_of_arrival(
    desk: EngineHarness, key_waits_first: bool
) -> None:
    tube = desk.tube(UTUBE)
    waits = [desk.wait(tube, key=key) for key in ((b"a", None) if key_waits_first else (None, b"a"))]
    job = desk.put(tube, key=b"a")
    assert [desk.served(wait) for wait in waits] == [[job], None]


def test_a_wait_ends_when_its_timeout_passes(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    late, soon = desk.wait(tube, timeout_ms=100), desk.wait(tube, timeout_ms=50)
    desk.pass_ms(49)
    assert desk.outbox.ended_waits == []
    desk.pass_ms(1)
    assert desk.outbox.ended_waits == [soon] and desk.served(soon) == []
    job = desk.put(tube)
    assert desk.served(late) == [job]


def test_waits_with_equal_timeouts_end_in_order_of_arrival(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    waits = [desk.wait(tube, timeout_ms=50) for _ in range(5)]
    desk.pass_ms(50)
    assert desk.outbox.ended_waits == waits


def test_a_cancelled_wait_gets_no_job_and_is_not_reported(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    wait = desk.wait(tube, timeout_ms=50)
    desk.engine.cancel(wait)
    desk.engine.cancel(wait)
    job = desk.put(tube)
    desk.pass_ms(100)
    assert desk.state(job) == "ready" and desk.outbox.ended_waits == []


def test_a_paused_tube_delivers_no_job_until_it_is_resumed(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    desk.engine.pause(tube, False, True, desk.clock.ms)
    any_job, of_a = desk.wait(tube), desk.wait(tube, key=b"a")
    b, a = desk.put(tube, key=b"b"), desk.put(tube, key=b"a")
    assert desk.take(tube) is None
    assert desk.served(any_job) is None and desk.served(of_a) is None
    desk.engine.pause(tube, False, False, desk.clock.ms)
    assert desk.served(any_job) == [b] and desk.served(of_a) == [a]


@pytest.mark.parametrize("moves_left", [0, 2])
def test_a_job_that_is_given_back_on_a_full_disk_is_delivered_when_there_is_room(
    desk: EngineHarness, moves_left: int
) -> None:
    """Two takes wait for keys, and a later one for any job. Not all can be served, and the engine does not loop."""
    tube = desk.tube(UTUBE)
    jobs = [desk.put(tube, key=key) for key in (b"a", b"b")]
    assert [desk.take(tube), desk.take(tube)] == jobs
    waits = [desk.wait(tube, key=key) for key in (b"a", b"b", None)]
    desk.engine.moves_left = moves_left
    for job in jobs:
        desk.engine.release(desk.me.session, desk.job(job), desk.clock.ms)
    served = [[jobs[0]], None, None] if moves_left else [None, None, None]
    assert [desk.served(wait) for wait in waits] == served
    desk.engine.moves_left = NEVER
    desk.engine.wake_all_takes()
    desk.pass_ms(1)
    assert [desk.served(wait) for wait in waits] == [[jobs[0]], [jobs[1]], None]


@pytest.mark.parametrize("how", ["bury", "exhausted"])
def test_a_wait_for_the_end_of_a_job_ends_at_a_bury_only_if_requested(desk: EngineHarness, how: str) -> None:
    tube = desk.tube(dataclasses.replace(FIFO, retry="1x then bury"))
    number = desk.put(tube)
    job = desk.job(number)
    end = desk.engine.wait_end(desk.me, job, desk.clock.ms)
    until_buried = desk.engine.wait_end(desk.me, job, desk.clock.ms, failures=True)
    desk.take(tube)
    desk.do("bury" if how == "bury" else "nack", number)
    assert desk.outbox.ended_waits == [until_buried] and not until_buried.processed
    at_once = desk.engine.wait_end(desk.me, job, desk.clock.ms, failures=True)
    assert at_once.outcome == SERVED and not at_once.processed
    desk.engine.kick(tube, 1, desk.clock.ms)
    desk.take(tube)
    desk.do("ack", number)
    assert end.outcome == SERVED and end.processed
