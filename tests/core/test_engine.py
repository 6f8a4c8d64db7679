"""What the engine promises, told plainly: order, waiting, time, sessions. The machines look everywhere else."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import DURATION_MS_MAX, FIRED_PER_TURN_MAX, NEVER, PRIORITY_MAX
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, STUBE, UTUBE, UTUBETTL, TubePolicy
from penstock.testing import check

from .desk import Desk

# Order


@pytest.mark.parametrize("how", ["release", "nack", "ttr", "disconnect", "undelivered", "bury and kick"])
def test_a_job_that_comes_back_goes_to_its_old_place(desk: Desk, how: str) -> None:
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


def test_lower_priorities_are_served_first_and_equal_ones_as_they_came(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    jobs = {n: desk.put(tube, priority=n) for n in (5, -1, 3, PRIORITY_MAX, -PRIORITY_MAX)}
    twin = desk.put(tube, priority=3)
    served = [desk.take(tube) for _ in range(7)]
    assert served == [jobs[-PRIORITY_MAX], jobs[-1], jobs[3], twin, jobs[5], jobs[PRIORITY_MAX], None]


def test_kicked_jobs_come_back_first_to_be_served_first(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    late, early, middle = desk.put(tube, priority=9), desk.put(tube, priority=1), desk.put(tube, priority=5)
    for job in (middle, late, early):
        desk.do("bury", job)
    assert desk.engine.kick(tube, 2, desk.clock.ms) == 2
    assert [desk.state(job) for job in (early, middle, late)] == ["ready", "ready", "buried"]


def test_jobs_made_in_one_millisecond_are_served_as_they_were_made(desk: Desk) -> None:
    tube = desk.tube(DISQUE)
    jobs = desk.puts(tube, 5)
    assert [desk.take(tube) for _ in range(5)] == jobs


def test_a_new_priority_given_on_the_way_back_counts(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    first, second = desk.puts(tube, 2)
    assert desk.take(tube) == first
    desk.do("release", first, priority=7)
    assert desk.take(tube) == second
    desk.do("bury", second)
    desk.do("dig", second, priority=8)
    assert [desk.take(tube), desk.take(tube)] == [first, second]


# Waiting


def test_first_come_is_first_served_whatever_the_timeouts(desk: Desk) -> None:
    tube = desk.tube(FIFO)
    waits = [desk.wait(tube, by=desk.connect(), timeout_ms=ms) for ms in (9_000, NEVER, 10, 500)]
    jobs = desk.puts(tube, 3)
    assert [desk.served(wait) for wait in waits] == [[jobs[0]], [jobs[1]], [jobs[2]], None]


def test_a_released_utube_key_goes_to_the_next_waiter(desk: Desk) -> None:
    tube, other = desk.tube(UTUBE), desk.connect()
    first, second = desk.puts(tube, 2, key=b"a")
    assert desk.take(tube) == first
    wait, later = desk.wait(tube, by=other), desk.wait(tube, by=other)
    desk.do("release", first)
    assert desk.served(wait) == [first]
    desk.do("ack", first, by=other)
    assert desk.served(later) == [second]


def test_a_wait_on_several_tubes_is_served_once(desk: Desk) -> None:
    one, two = desk.tube(FIFO), desk.tube(FIFO, b"two")
    wait = desk.wait(one, two, one)
    job = desk.put(two)
    left = desk.put(one)
    assert desk.served(wait) == [job]
    assert desk.state(left) == "ready"
    assert desk.outbox.ended_waits == [wait]
    assert one.line.length == two.line.length == 0


def test_a_wait_takes_what_is_there_and_does_not_hold_out_for_more(desk: Desk) -> None:
    tube = desk.tube(FIFO)
    wait = desk.wait(tube, count=3)
    jobs = [job.id for job in desk.engine.put_many(tube, [Draft(b"")] * 2, desk.clock.ms)]
    assert desk.served(wait) == jobs


def test_a_take_from_several_tubes_takes_from_each_in_turn(desk: Desk) -> None:
    one, two, three = (desk.tube(FIFO, name) for name in (b"1", b"2", b"3"))
    a, b = desk.puts(one, 3), desk.puts(two, 1)
    taken = desk.engine.take_many(desk.me.session, [three, one, two], 10, desk.clock.ms)
    assert [job.id for job in taken] == [a[0], b[0], a[1], a[2]]


def test_a_wait_for_a_key_is_served_by_that_key_only(desk: Desk) -> None:
    tube = desk.tube(STUBE)
    wait, nameless = desk.wait(tube, key=b"a"), desk.wait(tube)
    desk.put(tube, key=b"b")
    assert desk.served(wait) is None and desk.served(nameless) is None
    a, plain = desk.put(tube, key=b"a"), desk.put(tube)
    assert desk.served(wait) == [a] and desk.served(nameless) == [plain]


@pytest.mark.parametrize("key_waits_first", [True, False])
def test_of_a_wait_for_any_job_and_one_for_its_key_the_first_is_served(desk: Desk, key_waits_first: bool) -> None:
    tube = desk.tube(UTUBE)
    waits = [desk.wait(tube, key=key) for key in ((b"a", None) if key_waits_first else (None, b"a"))]
    job = desk.put(tube, key=b"a")
    assert [desk.served(wait) for wait in waits] == [[job], None]


def test_one_who_came_later_and_takes_several_leaves_a_key_to_who_waits_for_it(desk: Desk) -> None:
    """Two jobs come at once; the first of them is nobody's in particular, the second somebody waited for first."""
    tube = desk.tube(UTUBE)
    for_a, for_any = desk.wait(tube, key=b"a"), desk.wait(tube, count=2)
    jobs = desk.engine.put_many(tube, [Draft(b"", key=b"x"), Draft(b"", key=b"a")], desk.clock.ms)
    assert desk.served(for_any) == [jobs[0].id]
    assert desk.served(for_a) == [jobs[1].id]


def test_a_wait_ends_when_its_time_is_over(desk: Desk) -> None:
    tube = desk.tube(FIFO)
    late, soon = desk.wait(tube, timeout_ms=100), desk.wait(tube, timeout_ms=50)
    desk.pass_ms(49)
    assert desk.outbox.ended_waits == []
    desk.pass_ms(1)
    assert desk.outbox.ended_waits == [soon] and desk.served(soon) == []
    job = desk.put(tube)
    assert desk.served(late) == [job]


def test_waits_that_end_at_one_moment_end_in_the_order_they_came(desk: Desk) -> None:
    tube = desk.tube(FIFO)
    waits = [desk.wait(tube, timeout_ms=50) for _ in range(5)]
    desk.pass_ms(50)
    assert desk.outbox.ended_waits == waits


def test_a_cancelled_wait_gets_nothing_and_is_not_told_of(desk: Desk) -> None:
    tube = desk.tube(FIFO)
    wait = desk.wait(tube, timeout_ms=50)
    desk.engine.cancel(wait)
    desk.engine.cancel(wait)
    job = desk.put(tube)
    desk.pass_ms(100)
    assert desk.state(job) == "ready" and desk.outbox.ended_waits == []


def test_a_paused_tube_serves_nobody_until_it_is_resumed(desk: Desk) -> None:
    tube = desk.tube(UTUBE)
    desk.engine.pause(tube, False, True, desk.clock.ms)
    any_job, of_a = desk.wait(tube), desk.wait(tube, key=b"a")
    b, a = desk.put(tube, key=b"b"), desk.put(tube, key=b"a")
    assert desk.take(tube) is None
    assert desk.served(any_job) is None and desk.served(of_a) is None
    desk.engine.pause(tube, False, False, desk.clock.ms)
    assert desk.served(any_job) == [b] and desk.served(of_a) == [a]


def test_a_job_that_was_ready_in_time_goes_to_the_wait_though_the_shell_is_late(desk: Desk) -> None:
    """The job is ready at 100, the wait ends at 200; a shell that comes at 300 finds both due."""
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, delay_ms=100)
    wait = desk.wait(tube, timeout_ms=200)
    desk.pass_ms(300)
    assert desk.served(wait) == [job]


# Time


def test_deadlines_of_one_moment_happen_in_the_order_they_were_set(desk: Desk) -> None:
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


def test_earlier_deadlines_happen_first_however_late_the_shell_is(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    jobs = {ms: desk.put(tube, delay_ms=ms) for ms in (300, 100, 200)}
    desk.outbox.happened.clear()
    desk.pass_ms(10_000)
    assert [job for _, job in desk.outbox.happened] == [jobs[100], jobs[200], jobs[300]]


def test_ttl_is_stretched_by_delay(desk: Desk) -> None:
    """ttl 60.1 s and a delay of 80 s: it lives 140.1 s."""
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


def test_a_delay_on_the_way_back_stretches_the_ttl_too(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100)
    desk.take(tube)
    desk.do("release", job, delay_ms=1_000)
    desk.pass_ms(1_099)
    assert desk.state(job) == "ready"
    desk.pass_ms(1)
    assert desk.state(job) == "gone"


def test_in_fifottl_the_ttl_waits_while_the_job_is_taken(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    job, other = desk.put(tube, ttl_ms=100, ttr_ms=500), desk.put(tube, ttl_ms=100, ttr_ms=500)
    assert [desk.take(tube), desk.take(tube)] == [job, other]
    desk.pass_ms(400)
    assert desk.state(job) == "taken"
    assert desk.do("ack", job) == "OK"
    assert desk.do("release", other) == "OK"
    assert desk.take(tube) is None  # It expired when it came back.
    assert desk.state(other) == "gone"


def test_in_disque_the_ttl_kills_also_what_is_taken(desk: Desk) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, ttl_ms=100, ttr_ms=500)
    desk.take(tube)
    desk.pass_ms(99)
    assert desk.state(job) == "taken"
    desk.pass_ms(1)
    assert desk.do("ack", job) == "NOJOB"


def test_the_ttr_counts_from_delivery_and_the_job_is_back_on_the_millisecond(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttr_ms=100)
    desk.pass_ms(1_000)
    desk.take(tube)
    desk.pass_ms(99)
    assert desk.state(job) == "taken"
    desk.pass_ms(1)
    assert desk.state(job) == "ready" and desk.job(job).returns == 1


def test_ttr_is_the_ttl_unless_it_is_said(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    assert desk.job(desk.put(tube, ttl_ms=700)).ttr == 700
    assert desk.job(desk.put(tube, ttl_ms=700, ttr_ms=30)).ttr == 30
    assert desk.job(desk.put(tube)).ttr == NEVER


@pytest.mark.parametrize(
    ("ttl_ms", "ttr_ms"),
    [(86_400_000, 300_000), (3_000_000, 300_000), (60_000, 6_000), (15_000, 1_000), (1, 1_000), (NEVER, NEVER)],
)
def test_the_retry_time_of_disque_is_a_tenth_of_the_ttl_from_one_second_to_five_minutes(
    desk: Desk, ttl_ms: int, ttr_ms: int
) -> None:
    assert desk.job(desk.put(desk.tube(DISQUE), ttl_ms=ttl_ms)).ttr == ttr_ms


def test_touch_gives_a_whole_ttr_from_now_or_so_much_more(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=1_000, ttr_ms=100)
    desk.take(tube)
    start = desk.clock.ms
    desk.pass_ms(60)
    assert desk.do("touch", job) == "OK"
    assert desk.job(job).wake == start + 160 and desk.job(job).expiry == start + 1_000
    assert desk.do("touch", job, 50) == "OK"
    assert desk.job(job).wake == start + 210 and desk.job(job).expiry == start + 1_050


def test_a_ttl_of_nothing_is_over_at_once(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    wait = desk.wait(tube)
    job = desk.put(tube, ttl_ms=0)
    assert desk.served(wait) is None
    assert desk.state(job) == "gone" and desk.take(tube) is None


def test_buried_jobs_expire_too(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100)
    desk.do("bury", job)
    desk.pass_ms(100)
    assert desk.state(job) == "gone"


def test_the_largest_numbers_are_kept_as_they_are(desk: Desk) -> None:
    """A thousand years, 53 bits of priority, and a clock far in the future: nothing wraps."""
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
    assert desk.state(job) == "ready"


def test_touching_for_ages_never_reaches_for_ever(desk: Desk) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100, ttr_ms=100)
    desk.take(tube)
    held = desk.job(job)
    held.wake = held.expiry = held.ttr = NEVER - 5  # As after a hundred thousand touches of a thousand years.
    desk.engine.touch(desk.me.session, held, desk.clock.ms, DURATION_MS_MAX)
    assert (held.wake, held.expiry, held.ttr) == (NEVER - 1, NEVER - 1, NEVER - 1)
    check(desk.engine)


# A great deal at once


def crowd(desk: Desk, tube_policy: TubePolicy, count: int, **options: object) -> list[int]:
    tube = desk.tube(tube_policy)
    return [desk.engine.put(tube, Draft(b"", **options), desk.clock.ms).id for _ in range(count)]


def test_what_falls_due_at_once_is_spread_over_turns(desk: Desk) -> None:
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


def test_nothing_is_handed_out_after_its_ttl_however_far_behind_the_engine_is(desk: Desk) -> None:
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


def test_a_wait_is_served_also_when_the_engine_catches_up_late(desk: Desk) -> None:
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


@pytest.mark.parametrize("command", ["ack", "release", "nack", "touch"])
def test_what_comes_after_the_ttr_is_refused_however_far_behind_the_engine_is(desk: Desk, command: str) -> None:
    jobs = crowd(desk, FIFOTTL, 3 * FIRED_PER_TURN_MAX, ttr_ms=100)
    tube = desk.tube(FIFOTTL)
    for _ in jobs:
        desk.engine.take(desk.me.session, tube, desk.clock.ms)
    desk.clock.advance(100)
    assert desk.do(command, jobs[-1]) == "NOTTAKEN"


def test_a_session_with_a_crowd_of_jobs_gives_them_back_over_turns(desk: Desk) -> None:
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


# Sessions


def test_a_disconnect_gives_everything_back_at_once(desk: Desk) -> None:
    fifo, utube, other = desk.tube(FIFO), desk.tube(UTUBE, b"utube"), desk.connect()
    jobs = [desk.put(fifo), desk.put(utube, key=b"a")]
    assert [desk.take(fifo, by=other), desk.take(utube, by=other)] == jobs
    wait = desk.wait(fifo)
    desk.wait(fifo, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    assert desk.served(wait) == [jobs[0]]
    assert desk.state(jobs[1]) == "ready" and fifo.line.length == 0
    check(desk.engine)


def test_within_its_grace_a_session_can_be_taken_over_with_all_it_holds(desk: Desk) -> None:
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


def test_after_its_grace_a_session_is_gone(desk: Desk) -> None:
    desk.engine.session_grace_ms = 1_000
    tube, other = desk.tube(FIFO), desk.connect()
    job = desk.put(tube)
    desk.take(tube, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    desk.pass_ms(1_000)
    assert desk.state(job) == "ready"
    with desk.refuses("NOSESSION"):
        desk.engine.identify(desk.me, other.session.token, desk.clock.ms)


def test_two_connections_of_one_session_share_what_it_holds(desk: Desk) -> None:
    tube, other = desk.tube(FIFO), desk.connect()
    job = desk.put(tube)
    desk.take(tube)
    desk.engine.identify(other, desk.me.session.token, desk.clock.ms)
    desk.engine.disconnect(desk.me, desk.clock.ms)
    assert desk.state(job) == "taken"
    assert desk.do("ack", job, by=other) == "OK"


def test_a_disque_job_stays_taken_when_its_taker_leaves_and_anyone_may_ack_it(desk: Desk) -> None:
    tube, other = desk.tube(DISQUE), desk.connect()
    job = desk.put(tube)
    desk.take(tube, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    assert desk.state(job) == "taken"
    assert desk.do("ack", job) == "OK"


def test_where_acks_cancel_a_job_can_be_acked_in_any_state(desk: Desk) -> None:
    tube = desk.tube(DISQUE)
    ready, delayed, buried = desk.put(tube), desk.put(tube, delay_ms=50), desk.put(tube)
    desk.do("bury", buried)
    assert [desk.do("ack", job) for job in (ready, delayed, buried)] == ["OK"] * 3
    assert tube.total() == 0


def test_what_was_never_delivered_does_not_count_as_a_delivery(desk: Desk) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube)
    desk.engine.undelivered(desk.job(job), desk.clock.ms)
    assert desk.job(job).deliveries == 0
    assert desk.take(tube) == job


# At most once


@pytest.mark.parametrize("command", ["nack", "release"])
def test_an_at_most_once_job_is_not_given_back(desk: Desk, command: str) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube, ttr_ms=10)
    assert desk.do(command, job) == "ONLYONCE"
    desk.pass_ms(3_600_000)
    assert desk.state(job) == "taken" and desk.take(tube) is None


def test_an_at_most_once_job_that_was_delivered_and_buried_stays_buried(desk: Desk) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube)
    assert desk.do("bury", job) == "OK"
    assert desk.do("dig", job) == "ONLYONCE"
    assert desk.engine.kick(tube, 5, desk.clock.ms) == 0
    assert desk.state(job) == "buried"


def test_an_at_most_once_job_that_was_buried_before_its_delivery_comes_back(desk: Desk) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.do("bury", job)
    assert desk.engine.kick(tube, 5, desk.clock.ms) == 1
    assert desk.take(tube) == job


# Tubes


def test_a_tube_made_again_gives_out_integers_from_its_first(desk: Desk) -> None:
    tube = desk.tube(FIFO)
    assert [desk.job(job).local for job in desk.puts(tube, 3)] == [0, 1, 2]
    desk.engine.drop(tube, desk.clock.ms)
    assert desk.job(desk.put(desk.tube(FIFO))).local == 0


def test_truncating_takes_every_job_also_those_taken_and_can_be_done_in_slices(desk: Desk) -> None:
    tube = desk.tube(dataclasses.replace(FIFOTTL, keys=p.KEYS_LIMITED))
    for n in range(6):
        desk.put(tube, key=b"%d" % n, delay_ms=50 if n > 3 else 0)
    desk.take(tube)
    desk.do("bury", desk.put(tube))
    removed = [desk.engine.truncate(tube, desk.clock.ms, 3) for _ in range(4)]
    assert removed == [3, 3, 1, 0] and tube.total() == 0 and desk.me.session.held == []
    check(desk.engine)


def test_a_scan_of_tubes_sees_each_once(desk: Desk) -> None:
    tubes = [desk.tube(FIFO, b"%d" % n) for n in range(7)]
    desk.engine.drop(tubes.pop(3), desk.clock.ms)
    seen, cursor = desk.engine.scan_tubes(0, 2)
    while cursor:
        more, cursor = desk.engine.scan_tubes(cursor, 2)
        seen += more
    assert seen == tubes
