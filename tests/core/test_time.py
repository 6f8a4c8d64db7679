"""Delay, ttl and ttr end exactly and in order. Many deadlines at the same time are spread over turns."""

from __future__ import annotations

import pytest

from penstock.core.job import Draft
from penstock.core.limits import DURATION_MS_MAX, FIRED_PER_TURN_MAX, NEVER, PRIORITY_MAX
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, UTUBETTL, TubePolicy
from penstock.testing import check

from .engine_harness import EngineHarness

# Time


def test_deadlines_of_one_millisecond_fire_in_the_order_in_which_they_were_set(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    delays = [desk.put(tube, delay_ms=100) for _ in range(3)]
    desk.pass_ms(40)
    taken = desk.put(tube, ttr_ms=60)
    assert desk.take(tube) == taken
    expires = desk.put(tube, ttl_ms=60)
    desk.outbox.happened.clear()
    desk.pass_ms(60)
    assert desk.outbox.happened == [
        *(("delay passed", job) for job in delays),
        ("ttr passed", taken),
        ("expired", expires),
    ]


def test_earlier_deadlines_fire_first_even_if_the_shell_is_late(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    jobs = {ms: desk.put(tube, delay_ms=ms) for ms in (300, 100, 200)}
    desk.outbox.happened.clear()
    desk.pass_ms(10_000)
    assert [job for _, job in desk.outbox.happened] == [jobs[100], jobs[200], jobs[300]]


def test_a_delay_extends_the_ttl(desk: EngineHarness) -> None:
    """With a ttl of 60.1 s and a delay of 80 s, a job lives 140.1 s."""
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=60_100, delay_ms=80_000)
    desk.pass_ms(79_999)
    assert desk.state(job) == "delayed"
    desk.pass_ms(1)
    assert desk.state(job) == "ready"
    desk.pass_ms(60_099)
    assert desk.state(job) == "ready"
    desk.pass_ms(1)
    assert desk.state(job) == "gone"


def test_the_delay_of_a_release_extends_the_ttl(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100)
    desk.take(tube)
    desk.do("release", job, delay_ms=1_000)
    desk.pass_ms(1_099)
    assert desk.state(job) == "ready"
    desk.pass_ms(1)
    assert desk.state(job) == "gone"


def test_in_fifottl_the_ttl_waits_while_the_job_is_taken(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job, other = desk.put(tube, ttl_ms=100, ttr_ms=500), desk.put(tube, ttl_ms=100, ttr_ms=500)
    assert [desk.take(tube), desk.take(tube)] == [job, other]
    desk.pass_ms(400)
    assert desk.state(job) == "taken"
    assert desk.do("ack", job) == "OK"
    assert desk.do("release", other) == "OK"
    assert desk.take(tube) is None  # It expired when it was given back.
    assert desk.state(other) == "gone"


def test_in_disque_tubes_taken_jobs_expire_too(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, ttl_ms=100, ttr_ms=500)
    desk.take(tube)
    desk.pass_ms(99)
    assert desk.state(job) == "taken"
    desk.pass_ms(1)
    assert desk.do("ack", job) == "NOJOB"


def test_the_ttr_counts_from_the_delivery_and_ends_exactly(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttr_ms=100)
    desk.pass_ms(1_000)
    desk.take(tube)
    desk.pass_ms(99)
    assert desk.state(job) == "taken"
    desk.pass_ms(1)
    assert desk.state(job) == "ready" and desk.job(job).returns == 1


def test_the_default_ttr_is_the_ttl(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    assert desk.job(desk.put(tube, ttl_ms=700)).ttr == 700
    assert desk.job(desk.put(tube, ttl_ms=700, ttr_ms=30)).ttr == 30
    assert desk.job(desk.put(tube)).ttr == NEVER


@pytest.mark.parametrize(
    ("ttl_ms", "ttr_ms"),
    [(86_400_000, 300_000), (3_000_000, 300_000), (60_000, 6_000), (15_000, 1_000), (1, 1_000), (NEVER, NEVER)],
)
def test_the_retry_time_of_disque_is_a_tenth_of_the_ttl_from_one_second_to_five_minutes(
    desk: EngineHarness, ttl_ms: int, ttr_ms: int
) -> None:
    assert desk.job(desk.put(desk.tube(DISQUE), ttl_ms=ttl_ms)).ttr == ttr_ms


def test_a_touch_restarts_the_ttr_or_adds_the_given_time(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=1_000, ttr_ms=100)
    desk.take(tube)
    start = desk.clock.ms
    desk.pass_ms(60)
    assert desk.do("touch", job) == "OK"
    assert desk.job(job).wake == start + 160 and desk.job(job).expiry == start + 1_000
    assert desk.do("touch", job, 50) == "OK"
    assert desk.job(job).wake == start + 210 and desk.job(job).expiry == start + 1_050


def test_a_job_with_a_ttl_of_zero_expires_immediately(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    wait = desk.wait(tube)
    job = desk.put(tube, ttl_ms=0)
    assert desk.served(wait) is None
    assert desk.state(job) == "gone" and desk.take(tube) is None


def test_buried_jobs_expire_too(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100)
    desk.do("bury", job)
    desk.pass_ms(100)
    assert desk.state(job) == "gone"


def test_the_largest_numbers_do_not_overflow(desk: EngineHarness) -> None:
    """A thousand years, 53 bits of priority, and a clock far in the future."""
    desk.clock.advance(10**15)
    tube = desk.tube(UTUBETTL)
    job = desk.put(
        tube, ttl_ms=DURATION_MS_MAX, ttr_ms=DURATION_MS_MAX, delay_ms=DURATION_MS_MAX, priority=PRIORITY_MAX, key=b"a"
    )
    assert desk.job(job).expiry == desk.clock.ms + 2 * DURATION_MS_MAX
    desk.pass_ms(DURATION_MS_MAX - 1)
    assert desk.take(tube) is None
    desk.pass_ms(1)
    assert desk.take(tube) == job
    for _ in range(5):
        assert desk.do("touch", job, DURATION_MS_MAX) == "OK"
    desk.pass_ms(6 * DURATION_MS_MAX - 1)
    assert desk.state(job) == "taken"
    desk.pass_ms(1)
    assert desk.state(job) == "gone"  # Its ttr and its ttl ended in this millisecond.


def test_many_touches_never_reach_never(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100, ttr_ms=100)
    desk.take(tube)
    held = desk.job(job)
    held.wake = held.expiry = held.ttr = NEVER - 5  # As after 100,000 touches of 1,000 years.
    desk.engine.touch(desk.me.session, held, desk.clock.ms, DURATION_MS_MAX)
    assert (held.wake, held.expiry, held.ttr) == (NEVER - 1, NEVER - 1, NEVER - 1)
    check(desk.engine)


# Many deadlines at the same time


def crowd(desk: EngineHarness, tube_policy: TubePolicy, count: int, **options: object) -> list[int]:
    tube = desk.tube(tube_policy)
    return [desk.engine.put(tube, Draft(b"", **options), desk.clock.ms).id for _ in range(count)]


def test_deadlines_that_are_due_at_the_same_time_are_spread_over_turns(desk: EngineHarness) -> None:
    jobs = crowd(desk, FIFOTTL, 2 * FIRED_PER_TURN_MAX + 10, delay_ms=100)
    tube = desk.tube(FIFOTTL)
    desk.engine.advance(desk.clock.advance(99))
    assert tube.count_in(1) == 0
    desk.clock.advance(1)
    for ready in (FIRED_PER_TURN_MAX, 2 * FIRED_PER_TURN_MAX, len(jobs)):
        assert desk.engine.deadlines.next_due <= desk.clock.ms
        desk.engine.advance(desk.clock.ms)
        assert tube.count_in(1) == ready
    assert desk.engine.deadlines.next_due == NEVER
    check(desk.engine)


def test_no_job_is_delivered_after_its_ttl_even_if_deadlines_are_overdue(desk: EngineHarness) -> None:
    crowd(desk, FIFOTTL, 3 * FIRED_PER_TURN_MAX, ttl_ms=100)
    tube = desk.tube(FIFOTTL)
    alive = desk.put(tube, ttl_ms=1_000, priority=5)
    desk.clock.advance(100)
    assert desk.take(tube) in (None, alive)
    wait = desk.wait(tube, timeout_ms=10_000)
    while desk.engine.deadlines.next_due <= desk.clock.ms:
        desk.engine.advance(desk.clock.ms)
    assert tube.total() == 1
    assert alive in (desk.served(wait) or [desk.take(tube)])


def test_a_wait_is_served_even_if_deadlines_are_overdue(desk: EngineHarness) -> None:
    crowd(desk, FIFOTTL, 3 * FIRED_PER_TURN_MAX, ttl_ms=100)
    tube = desk.tube(FIFOTTL)
    desk.engine.pause(tube, False, True, desk.clock.ms)
    wait = desk.wait(tube)
    alive = desk.put(tube, priority=5)
    desk.clock.advance(100)
    desk.engine.pause(tube, False, False, desk.clock.ms)
    while desk.engine.deadlines.next_due <= desk.clock.ms:
        desk.engine.advance(desk.clock.ms)
    assert desk.served(wait) == [alive]
    check(desk.engine)


def test_a_session_with_many_jobs_gives_them_back_over_several_turns(desk: EngineHarness) -> None:
    jobs = crowd(desk, FIFO, 2 * FIRED_PER_TURN_MAX + 10)
    tube, other = desk.tube(FIFO), desk.connect()
    for _ in jobs:
        desk.engine.take(other.session, tube, desk.clock.ms)
    desk.engine.disconnect(other, desk.clock.ms)
    assert 0 < tube.count_in(1) < len(jobs)
    while desk.engine.deadlines.next_due <= desk.clock.ms:
        desk.engine.advance(desk.clock.ms)
    assert tube.count_in(1) == len(jobs) and len(desk.engine.sessions) == 1
    check(desk.engine)
