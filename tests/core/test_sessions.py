"""A session owns the jobs it takes until it ends. In tubes where anyone may ack, jobs have no owner."""

from __future__ import annotations

from penstock.core.policy import DISQUE, FIFO, UTUBE
from penstock.testing import check

from .engine_harness import EngineHarness


def test_a_disconnect_gives_all_jobs_back_immediately(desk: EngineHarness) -> None:
    fifo, utube, other = desk.tube(FIFO), desk.tube(UTUBE, b"utube"), desk.connect()
    jobs = [desk.put(fifo), desk.put(utube, key=b"a")]
    assert [desk.take(fifo, by=other), desk.take(utube, by=other)] == jobs
    wait = desk.wait(fifo)
    desk.wait(fifo, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    assert desk.served(wait) == [jobs[0]]
    assert desk.state(jobs[1]) == "ready" and fifo.take_line.length == 0
    check(desk.engine)


def test_within_its_grace_time_a_session_can_be_joined_with_all_its_jobs(desk: EngineHarness) -> None:
    desk.engine.session_grace_ms = 1_000
    tube, other, heir = desk.tube(FIFO), desk.connect(), desk.connect()
    job = desk.put(tube)
    desk.take(tube, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    desk.pass_ms(999)
    assert desk.state(job) == "taken"
    desk.engine.identify(heir, other.session.token, desk.clock.ms)
    desk.pass_ms(5_000)
    assert desk.do("ack", job, by=heir) == "OK"


def test_a_session_is_removed_after_its_grace_time(desk: EngineHarness) -> None:
    desk.engine.session_grace_ms = 1_000
    tube, other = desk.tube(FIFO), desk.connect()
    job = desk.put(tube)
    desk.take(tube, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    desk.pass_ms(1_000)
    assert desk.state(job) == "ready"
    with desk.refuses("NOSESSION"):
        desk.engine.identify(desk.me, other.session.token, desk.clock.ms)


def test_two_connections_of_one_session_share_its_jobs(desk: EngineHarness) -> None:
    tube, other = desk.tube(FIFO), desk.connect()
    job = desk.put(tube)
    desk.take(tube)
    desk.engine.identify(other, desk.me.session.token, desk.clock.ms)
    desk.engine.disconnect(desk.me, desk.clock.ms)
    assert desk.state(job) == "taken"
    assert desk.do("ack", job, by=other) == "OK"


def test_a_disque_job_stays_taken_after_a_disconnect_and_any_client_may_ack_it(desk: EngineHarness) -> None:
    tube, other = desk.tube(DISQUE), desk.connect()
    job = desk.put(tube)
    desk.take(tube, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    assert desk.state(job) == "taken"
    assert desk.do("ack", job) == "OK"


def test_if_acks_cancel_a_job_can_be_acked_in_any_state(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    ready, delayed, buried = desk.put(tube), desk.put(tube, delay_ms=50), desk.put(tube)
    desk.do("bury", buried)
    assert [desk.do("ack", job) for job in (ready, delayed, buried)] == ["OK"] * 3
    assert tube.total() == 0


def test_an_undelivered_job_does_not_count_as_a_delivery(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube)
    desk.engine.undelivered(desk.job(job), desk.clock.ms)
    assert desk.job(job).deliveries == 0
    assert desk.take(tube) == job
