"""Signals to a worker (cancelled, lost) and progress of a job: told once to all who wait, in order, within limits."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core import claims
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.errors import CommandError
from penstock.core.job import Draft
from penstock.core.states import FINISHED, OK
from penstock.core.tasks import attention
from penstock.core.tasks.progress import (
    JOB_BYTES_MAX,
    REMEMBERED_MS,
    TOTAL_BYTES_MAX,
    VALUE_BYTES_MAX,
    VALUES_MAX,
)
from penstock.core.tasks.signals import LOST, LOST_MAX, SIGNAL_NAMES
from penstock.core.waits import Connection, SignalWait, WatchWait
from penstock.testing import check

from .engine_harness import EngineHarness


@pytest.fixture
def desk() -> EngineHarness:
    return EngineHarness()


def cancel(desk: EngineHarness, job_id: int, reason: bytes = b"") -> int:
    desk.engine.outbox.actor = None
    outcome = attention.cancel(desk.engine, desk.job(job_id), reason, desk.clock.ms)
    check(desk.engine)
    return outcome


def report(desk: EngineHarness, job_id: int, value: bytes) -> int:
    outcome = attention.report_progress(desk.engine, desk.me.session, desk.job(job_id), value, 0, desk.clock.ms)
    check(desk.engine)
    return outcome


def watch(desk: EngineHarness, job_id: int, after: int = 0, timeout_ms: int = 1_000) -> WatchWait:
    wait = attention.watch(desk.engine, desk.me, desk.job(job_id), after, desk.clock.ms, timeout_ms)
    check(desk.engine)
    return wait


def seen(desk: EngineHarness, wait: WatchWait) -> list[bytes]:
    assert wait.outcome != w.WAITING
    progress = desk.engine.progress.by_job.get(wait.job.id)
    return [] if progress is None else [each.value for each in progress.since(wait.after)]


def listen(desk: EngineHarness, after: int = 0, by: Connection | None = None) -> SignalWait:
    wait = attention.wait_signals(desk.engine, by or desk.me, after, desk.clock.ms, 1_000)
    check(desk.engine)
    return wait


def told(wait: SignalWait) -> list[tuple[str, int, bytes]]:
    assert wait.outcome != w.WAITING
    return [(SIGNAL_NAMES[each.kind], each.job.id, each.reason) for each in wait.signals.since(wait.after)]


# Cancelling


def test_a_cancel_removes_a_job_that_nobody_has_taken(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    ready, delayed, buried = desk.put(tube), desk.put(tube, delay_ms=1_000), desk.put(tube, arrives=s.BURIED)
    for job_id in (ready, delayed, buried):
        assert cancel(desk, job_id) == OK and desk.state(job_id) == "gone"


@pytest.mark.parametrize("end", ["release", "nack", "requeue", "snatch"])
def test_a_cancelled_job_ends_with_its_delivery_instead_of_returning(desk: EngineHarness, end: str) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    desk.take(tube)
    assert cancel(desk, job, b"user left") == OK and desk.state(job) == "taken"
    ended = desk.engine.wait_end(desk.connect(), desk.job(job), desk.clock.ms, failures=True)
    assert desk.do(end, job) == "OK" and desk.state(job) == "gone"
    assert w.END_NAMES[ended.end] == "deleted" and ended.reason == b"user left"
    assert [name for name, _ in desk.outbox.happened][-1] == "deleted"


def test_a_cancelled_job_ends_with_its_ttr_and_with_its_session(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    late, orphan = desk.put(tube, ttr_ms=50), desk.put(tube)
    other = desk.connect()
    desk.take(tube)
    desk.take(tube, by=other)
    assert cancel(desk, late) == cancel(desk, orphan) == OK
    desk.pass_ms(50)
    assert desk.state(late) == "gone" and desk.state(orphan) == "taken"
    desk.engine.disconnect(other, desk.clock.ms)
    assert desk.state(orphan) == "gone"


def test_a_cancelled_job_is_not_retried(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(p.FIFOTTL, retry="5x exp(1s..10s) then bury"))
    job = desk.put(tube)
    desk.take(tube)
    cancel(desk, job)
    assert desk.do("nack", job) == "OK" and desk.state(job) == "gone"


def test_the_consumer_decides_if_it_finishes_a_cancelled_job(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    acked, buried = desk.puts(tube, 2)
    desk.take(tube), desk.take(tube)
    cancel(desk, acked), cancel(desk, buried)
    assert desk.do("ack", acked) == "OK" and ("acked", acked) in desk.outbox.happened
    assert desk.do("bury", buried) == "OK" and desk.state(buried) == "buried"
    assert desk.do("dig", buried) == "OK" and desk.take(tube) == buried, "a job that was dug up is not cancelled"
    assert desk.do("release", buried) == "OK" and desk.state(buried) == "ready"


def test_a_second_cancel_changes_nothing(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    desk.take(tube)
    assert [cancel(desk, job), cancel(desk, job)] == [OK, OK]
    assert [name for name, _ in desk.outbox.happened].count("cancelled") == 1


def test_a_finished_job_cannot_be_cancelled(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(p.FIFOTTL, after_ack=p.KEPT))
    job = desk.put(tube)
    desk.take(tube)
    desk.do("ack", job)
    assert cancel(desk, job) == FINISHED


def test_a_taken_job_that_belongs_to_no_session_cannot_be_cancelled(desk: EngineHarness) -> None:
    tube = desk.tube(p.DISQUE)
    job = desk.put(tube)
    desk.take(tube)
    with pytest.raises(CommandError, match="delete the job instead"):
        cancel(desk, job)


def test_a_cancel_of_a_claimed_job_takes_effect_with_the_claim(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    job = desk.put(tube)
    claims.claim(desk.engine, b"reader", 0, 1, tube, 1, 1_000, desk.clock.ms)
    assert cancel(desk, job) == OK and desk.state(job) == "taken"
    desk.pass_ms(1_000)
    assert desk.state(job) == "gone"


# Signals


def test_a_session_that_waits_is_told_of_a_cancel(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    desk.take(tube)
    wait, other = listen(desk), listen(desk, by=desk.connect())
    cancel(desk, job, b"no longer needed")
    assert told(wait) == [("cancelled", job, b"no longer needed")]
    assert other.outcome == w.WAITING, "another session is not told"
    assert listen(desk, after=wait.signals.newest).outcome == w.WAITING


def test_a_cancelled_job_is_signalled_until_it_leaves_the_session(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    jobs = desk.puts(tube, 3)
    for job in jobs:
        desk.take(tube)
        cancel(desk, job)
    assert [job for _, job, _ in told(listen(desk))] == jobs
    desk.outbox.actor = desk.me.session
    desk.do("ack", jobs[1])
    assert [job for _, job, _ in told(listen(desk))] == [jobs[0], jobs[2]]


@pytest.mark.parametrize(("cause", "event"), [("ttr", b"ttr passed"), ("delete", b"deleted"), ("snatch", b"snatched")])
def test_a_session_is_told_when_it_loses_a_job(desk: EngineHarness, cause: str, event: bytes) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube, ttr_ms=50)
    desk.take(tube)
    wait = listen(desk)
    desk.outbox.actor = desk.connect().session
    if cause == "ttr":
        desk.pass_ms(50)
    else:
        desk.do(cause, job)
    assert told(wait) == [("lost", job, event)]


def test_a_session_is_not_told_of_what_it_does_itself(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    wait = listen(desk)
    for end in ("ack", "release", "bury"):
        job = desk.put(tube)
        desk.outbox.actor = desk.me.session
        desk.take(tube)
        desk.do(end, job)
    assert wait.outcome == w.WAITING


def test_the_lost_jobs_that_a_session_did_not_read_are_limited(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    listen(desk)
    for job in desk.engine.put_many(tube, [Draft(b"work")] * 3 * LOST_MAX, desk.clock.ms):
        desk.engine.take(desk.me.session, tube, desk.clock.ms)
        desk.engine.delete(job, desk.clock.ms)
    signals = desk.me.session.signals
    assert signals is not None
    assert len(signals.lost) <= 2 * LOST_MAX and len(signals.since(0)) == LOST_MAX
    assert {each.kind for each in signals.since(0)} == {LOST}


def test_a_wait_for_signals_times_out_and_ends_with_its_connection(desk: EngineHarness) -> None:
    wait = listen(desk)
    desk.pass_ms(1_000)
    assert wait.outcome == w.TIMED_OUT and told(wait) == []
    other = desk.connect()
    left = listen(desk, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    assert left.outcome == w.CANCELLED


# Progress


def test_progress_reaches_every_client_that_watches_the_job_in_order(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    first, second = watch(desk, job), watch(desk, job)
    desk.take(tube)
    assert first.outcome == w.WAITING
    assert report(desk, job, b"10%") == OK
    assert seen(desk, first) == seen(desk, second) == [b"10%"]
    report(desk, job, b"20%"), report(desk, job, b"30%")
    newest = desk.engine.progress.by_job[job].newest
    assert seen(desk, watch(desk, job, after=newest - 2)) == [b"20%", b"30%"]
    assert watch(desk, job, after=newest).outcome == w.WAITING


def test_only_the_holder_reports_progress(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    assert report(desk, job, b"x") == s.NOT_TAKEN
    desk.take(tube, by=desk.connect())
    assert report(desk, job, b"x") == s.NOT_OWNER


def test_a_client_that_watches_learns_how_the_job_ended_also_a_minute_later(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job_id = desk.put(tube)
    desk.take(tube)
    report(desk, job_id, b"half")
    job = desk.job(job_id)
    newest = desk.engine.progress.by_job[job_id].newest
    wait = watch(desk, job_id, after=newest)
    report(desk, job_id, b"all")
    desk.do("ack", job_id)
    assert seen(desk, wait) == [b"all"] and wait.end == w.STILL_THERE
    remembered = desk.engine.progress.by_job[job_id]
    assert w.END_NAMES[remembered.end] == "acked"
    late = attention.watch(desk.engine, desk.me, job, newest, desk.clock.ms)
    assert seen(desk, late) == [b"all"]
    desk.pass_ms(REMEMBERED_MS)
    assert not desk.engine.progress.by_job and desk.engine.progress.used == 0


def test_a_client_that_watches_learns_of_a_bury(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    desk.take(tube)
    wait = watch(desk, job)
    desk.do("bury", job, b"broken")
    assert w.END_NAMES[wait.end] == "buried" and wait.reason == b"broken"


def test_progress_goes_on_after_the_job_was_delivered_again(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube)
    desk.take(tube)
    report(desk, job, b"first")
    desk.do("bury", job)
    desk.do("dig", job)
    desk.take(tube)
    report(desk, job, b"second")
    assert desk.engine.progress.by_job[job].end == w.STILL_THERE
    desk.pass_ms(REMEMBERED_MS)
    assert seen(desk, watch(desk, job)) == [b"first", b"second"]


def test_the_values_of_one_job_are_limited(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    job = desk.put(tube)
    desk.take(tube)
    for i in range(VALUES_MAX + 10):
        report(desk, job, b"%d" % i)
    progress = desk.engine.progress.by_job[job]
    assert [each.value for each in progress.since(0)] == [b"%d" % i for i in range(10, VALUES_MAX + 10)]
    numbers = [each.number for each in progress.since(0)]
    assert numbers == list(range(progress.newest - VALUES_MAX + 1, progress.newest + 1))
    for _ in range(8):
        report(desk, job, b"x" * VALUE_BYTES_MAX)
    assert progress.used <= JOB_BYTES_MAX
    with desk.refuses("RANGE"):
        report(desk, job, b"x" * (VALUE_BYTES_MAX + 1))


def test_the_values_of_all_jobs_are_limited(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    jobs = desk.puts(tube, 2 * TOTAL_BYTES_MAX // JOB_BYTES_MAX)
    for job in jobs:
        desk.engine.take(desk.me.session, tube, desk.clock.ms)
        for _ in range(4):
            found = desk.job(job)
            attention.report_progress(desk.engine, desk.me.session, found, b"x" * 60_000, 0, desk.clock.ms)
    board = desk.engine.progress
    assert board.used <= TOTAL_BYTES_MAX and jobs[-1] in board.by_job and jobs[0] not in board.by_job


def test_a_number_that_cannot_be_is_refused(desk: EngineHarness) -> None:
    job = desk.put(desk.tube(p.FIFO))
    for after in (-1, 1 << 62):
        with desk.refuses("RANGE"):
            attention.watch(desk.engine, desk.me, desk.job(job), after, desk.clock.ms)
