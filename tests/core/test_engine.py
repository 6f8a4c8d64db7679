"""The order of jobs, at-most-once delivery, and commands on tubes."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.limits import PRIORITY_MAX
from penstock.core.policy import DISQUE, FIFO, FIFOTTL
from penstock.testing import check

from .engine_harness import EngineHarness

# Order


@pytest.mark.parametrize("how", ["release", "nack", "ttr", "disconnect", "undelivered", "bury and kick"])
def test_a_job_that_is_given_back_returns_to_its_old_place(desk: EngineHarness, how: str) -> None:
    tube, other = desk.tube(FIFOTTL), desk.connect()
    first, second, third = desk.puts(tube, 3, ttr_ms=100)
    assert desk.take(tube, by=other) == first
    assert desk.take(tube) == second
    if how == "ttr":
        desk.pass_ms(100)
    elif how == "disconnect":
        desk.engine.disconnect(other, desk.clock.ms)
    elif how == "undelivered":
        desk.engine.undelivered(desk.job(first), desk.clock.ms)
    elif how == "bury and kick":
        desk.do("bury", first)
        assert desk.engine.kick(tube, 1, desk.clock.ms) == 1
    else:
        desk.do(how, first, by=other)
    assert desk.take(tube) == first
    assert desk.take(tube) == (second if how == "ttr" else third)


def test_lower_priorities_are_served_first_and_equal_ones_in_order_of_arrival(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    jobs = {n: desk.put(tube, priority=n) for n in (5, -1, 3, PRIORITY_MAX, -PRIORITY_MAX)}
    twin = desk.put(tube, priority=3)
    served = [desk.take(tube) for _ in range(7)]
    assert served == [jobs[-PRIORITY_MAX], jobs[-1], jobs[3], twin, jobs[5], jobs[PRIORITY_MAX], None]


def test_a_kick_digs_the_jobs_first_that_are_served_first(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    late, early, middle = desk.put(tube, priority=9), desk.put(tube, priority=1), desk.put(tube, priority=5)
    for job in (middle, late, early):
        desk.do("bury", job)
    assert desk.engine.kick(tube, 2, desk.clock.ms) == 2
    assert [desk.state(job) for job in (early, middle, late)] == ["ready", "ready", "buried"]


def test_jobs_created_in_one_millisecond_are_served_in_order_of_creation(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    jobs = desk.puts(tube, 5)
    assert [desk.take(tube) for _ in range(5)] == jobs


def test_a_priority_given_with_a_release_applies(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    first, second = desk.puts(tube, 2)
    assert desk.take(tube) == first
    desk.do("release", first, priority=7)
    assert desk.take(tube) == second
    desk.do("bury", second)
    desk.do("dig", second, priority=8)
    assert [desk.take(tube), desk.take(tube)] == [first, second]


# At most once


@pytest.mark.parametrize("command", ["nack", "release"])
def test_an_at_most_once_job_is_not_given_back(desk: EngineHarness, command: str) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube, ttr_ms=10)
    assert desk.do(command, job) == "ONLYONCE"
    desk.pass_ms(3_600_000)
    assert desk.state(job) == "taken" and desk.take(tube) is None


def test_an_at_most_once_job_that_was_delivered_and_buried_stays_buried(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube)
    assert desk.do("bury", job) == "OK"
    assert desk.do("dig", job) == "ONLYONCE"
    assert desk.engine.kick(tube, 5, desk.clock.ms) == 0
    assert desk.state(job) == "buried"


def test_an_at_most_once_job_that_was_buried_before_its_delivery_can_be_kicked(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.do("bury", job)
    assert desk.engine.kick(tube, 5, desk.clock.ms) == 1
    assert desk.take(tube) == job


def test_an_at_most_once_job_cannot_move_to_a_tube_in_which_sessions_own_jobs(desk: EngineHarness) -> None:
    """A put there would be refused, because the job would be given back when its consumer disconnects."""
    disque, fifo = desk.tube(DISQUE), desk.tube(FIFO, b"fifo")
    job = desk.put(disque, once=True)
    with desk.refuses("UNSUPPORTED"):
        desk.do("move", job, fifo)


# Tubes


def test_a_tube_that_is_created_again_assigns_integers_from_the_first(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    assert [desk.job(job).local for job in desk.puts(tube, 3)] == [0, 1, 2]
    desk.engine.drop(tube, desk.clock.ms)
    assert desk.job(desk.put(desk.tube(FIFO))).local == 0


def test_truncate_removes_all_jobs_including_taken_ones_and_can_run_in_slices(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(FIFOTTL, keys=p.KEYS_LIMITED))
    for n in range(6):
        desk.put(tube, key=b"%d" % n, delay_ms=50 if n > 3 else 0)
    desk.take(tube)
    desk.do("bury", desk.put(tube))
    removed = [desk.engine.truncate(tube, desk.clock.ms, 3) for _ in range(4)]
    assert removed == [3, 3, 1, 0] and tube.total() == 0 and desk.me.session.held == []
    check(desk.engine)


def test_a_scan_of_tubes_sees_each_once(desk: EngineHarness) -> None:
    tubes = [desk.tube(FIFO, b"%d" % n) for n in range(7)]
    desk.engine.drop(tubes.pop(3), desk.clock.ms)
    seen, cursor = desk.engine.scan_tubes(0, 2)
    while cursor:
        more, cursor = desk.engine.scan_tubes(cursor, 2)
        seen += more
    assert seen == tubes


def test_a_kick_gives_each_job_the_delay_ttl_and_body_of_the_call(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    jobs = desk.puts(tube, 3)
    for job in jobs:
        desk.do("bury", job)
    now = desk.clock.ms
    assert desk.engine.kick(tube, 2, now, delay_ms=10, ttl_ms=500, body=b"another", body_kind=1) == 2
    told = (b"another", 1, now + 10, now + 510)
    kicked = [desk.job(job) for job in jobs[:2]]
    assert [(job.body, job.body_kind, job.wake, job.expiry) for job in kicked] == [told, told]
    assert desk.job(jobs[2]).body != b"another" and desk.state(jobs[2]) == "buried"
    desk.engine.body_bytes_max = 3
    with desk.refuses("TOOBIG"):
        desk.engine.kick(tube, 1, now, body=b"long")
    desk.engine.body_bytes_max, desk.engine.room_bytes = 100, 3
    with desk.refuses("NOSPACE"):
        desk.engine.kick(tube, 1, now, body=b"long")
    check(desk.engine)


def test_drop_if_empty_keeps_a_tube_that_gets_a_dead_letter_at_that_moment(desk: EngineHarness) -> None:
    dead = desk.tube(FIFO, b"dead")
    tube = desk.tube(dataclasses.replace(FIFOTTL, retry="1x then move dead"))
    job = desk.put(tube, ttr_ms=1_000)
    desk.take(tube)
    assert not desk.engine.drop_if_empty(dead, desk.clock.advance(1_000))
    assert dead.first_jobs(s.READY, 9) == [desk.job(job)]
    wait = desk.wait(tube)
    assert not desk.engine.drop_if_empty(tube, desk.clock.ms)
    desk.engine.cancel(wait)
    assert desk.engine.drop_if_empty(tube, desk.clock.ms) and tube.dropped
    assert list(desk.engine.tubes) == [b"dead"]
    check(desk.engine)
