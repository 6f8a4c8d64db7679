"""Regression tests: promises that earlier versions of the engine did not keep."""

from __future__ import annotations

import dataclasses
import math

import pytest

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import CommandError
from penstock.core.ids import NOT_AN_ID, IdForms, first_id
from penstock.core.job import Draft
from penstock.core.limits import FIRED_PER_TURN_MAX, UNSET
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, QUEUE15, UTUBE, TubePolicy
from penstock.testing import check

from .engine_harness import EngineHarness
from .test_bad_input import refusals
from .test_ids import changed
from .test_limits import DOORS

# At most once


def test_a_switch_does_not_return_a_delivered_at_most_once_job(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    job = desk.put(tube, once=True)
    desk.take(tube)
    desk.do("bury", job)
    desk.do("switch", job, s.DELAYED, delay_ms=10)
    desk.pass_ms(10)
    assert desk.take(tube) is None


# A refused command has changed nothing


def test_a_take_of_several_tubes_takes_nothing_if_one_of_them_refuses(desk: EngineHarness) -> None:
    keyed, plain = desk.tube(UTUBE), desk.tube(FIFO, b"plain")
    desk.put(keyed, key=b"a")
    desk.put(plain)
    for option in ({"key": b"a"}, {"ttr_ms": 1_000}):
        with desk.refuses("UNSUPPORTED"):
            desk.engine.take_many(desk.me.session, [keyed, plain], 2, desk.clock.ms, **option)


def test_a_take_of_many_delivers_as_many_jobs_as_the_disk_has_room_for(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    jobs = desk.puts(tube, 5, once=True)
    desk.engine.moves_left = 2
    taken = desk.engine.take_many(desk.me.session, [tube], 5, desk.clock.ms)
    assert [job.id for job in taken] == jobs[:2]
    with desk.refuses("NOSPACE"):
        desk.engine.take_many(desk.me.session, [tube], 5, desk.clock.ms)


@pytest.mark.parametrize(("after_ack", "delay"), [(p.KEPT, ()), (p.LINGERS, (5_000,))])
def test_an_ack_with_a_body_too_large_changes_nothing(
    desk: EngineHarness, after_ack: str, delay: tuple[int, ...]
) -> None:
    desk.engine.body_bytes_max = 10
    tube = desk.tube(TubePolicy(type="keeping", after_ack=after_ack, has_ttl=True, has_ttr=True, has_delay=True))
    job = desk.put(tube, ttl_ms=900, ttr_ms=50)
    desk.take(tube)
    with desk.refuses("TOOBIG"):
        desk.do("ack", job, *delay, body=b"x" * 11)


# Numbers that do not fit are refused


@pytest.mark.parametrize("value", [math.nan, 1.5], ids=repr)
def test_a_value_that_is_not_an_integer_is_refused_by_every_command(value: object) -> None:
    let_in = []
    for door, call in DOORS.items():
        try:
            call(EngineHarness(), value)
        except (TypeError, CommandError):
            continue
        let_in.append(door)
    assert let_in == []


def test_truncate_with_a_negative_limit_is_refused(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    desk.puts(tube, 3)
    with desk.refuses("RANGE"):
        desk.engine.truncate(tube, desk.clock.ms, -1)


def test_an_unknown_kind_of_body_is_refused(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    for kind in (-1, 256, 2**63):
        with desk.refuses("RANGE"):
            desk.put(tube, body_kind=kind)


def test_a_long_id_with_a_changed_ttl_class_is_invalid() -> None:
    """The class says whether a job may be delivered again, and clients must be able to rely on it."""
    forms = IdForms(b"4e6f6465", b"k" * 32)
    text = forms.long(first_id(1), 1441)
    believed = [bad for bad in changed(text[36:]) if forms.parse_long(text[:36] + bad) != NOT_AN_ID]
    assert believed == []


# Waits


def test_a_later_take_of_several_jobs_leaves_a_key_to_the_earlier_take_of_that_key(desk: EngineHarness) -> None:
    """Two jobs arrive together.

    No take waits for the key of the first one. An earlier take waits for the key of the second one.
    """
    tube = desk.tube(UTUBE)
    for_a, for_any = desk.wait(tube, key=b"a"), desk.wait(tube, count=2)
    jobs = desk.engine.put_many(tube, [Draft(b"", key=b"x"), Draft(b"", key=b"a")], desk.clock.ms)
    assert desk.served(for_any) == [jobs[0].id]
    assert desk.served(for_a) == [jobs[1].id]


def test_a_put_that_waited_for_room_is_delivered_to_the_take_that_waits_for_its_key(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(UTUBE, capacity=1))
    job = desk.put(tube, key=b"a")
    desk.take(tube)
    put = desk.engine.wait_put(desk.me, tube, Draft(b"", key=b"b"), desk.clock.ms, 1_000)
    take = desk.wait(tube, key=b"b")
    desk.engine.ack(desk.me.session, desk.job(job), desk.clock.ms)
    assert put.job is not None and desk.served(take) == [put.job.id]
    check(desk.engine)


@pytest.mark.parametrize("many", [False, True])
def test_a_take_that_removes_an_expired_job_makes_room_for_a_waiting_put(desk: EngineHarness, many: bool) -> None:
    """The turn reached its limit in another tube, so the take finds the expired job."""
    busy, full = desk.tube(FIFOTTL, b"busy"), desk.tube(dataclasses.replace(FIFOTTL, capacity=1), b"full")
    desk.engine.put_many(busy, [Draft(b"", ttl_ms=10)] * FIRED_PER_TURN_MAX, desk.clock.ms)
    desk.put(full, ttl_ms=11)
    put = desk.engine.wait_put(desk.me, full, Draft(b""), desk.clock.ms, 60_000)
    now = desk.clock.advance(11)
    if many:
        assert desk.engine.take_many(desk.me.session, [full], 2, now) == []
    else:
        assert desk.engine.take(desk.me.session, full, now) is None
    assert put.job is not None
    check(desk.engine)


def test_a_command_that_makes_room_also_serves_the_take_for_the_new_job(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(FIFO, capacity=1))
    job = desk.put(tube)
    desk.take(tube)
    desk.engine.wait_put(desk.me, tube, Draft(b""), desk.clock.ms, 1_000)
    desk.wait(tube)
    desk.do("ack", job)


def test_a_job_that_was_ready_before_the_timeout_is_delivered_even_if_the_shell_is_late(desk: EngineHarness) -> None:
    """The job is ready at 100, and the wait ends at 200. A shell that calls at 300 finds both due."""
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, delay_ms=100)
    wait = desk.wait(tube, timeout_ms=200)
    desk.pass_ms(300)
    assert desk.served(wait) == [job]


# Compiled and interpreted are the same


def test_every_refusal_says_what_to_do() -> None:
    """Compiled classes have no docstrings, so a refusal without its own message would only have its code."""
    silent = [kind.code for kind in refusals() if len(str(kind())) < 20]
    assert silent == []


# Time


@pytest.mark.parametrize("command", ["ack", "release", "nack", "touch"])
def test_a_command_after_the_ttr_is_refused_even_if_deadlines_are_overdue(desk: EngineHarness, command: str) -> None:
    tube = desk.tube(FIFOTTL)
    for _ in range(3 * FIRED_PER_TURN_MAX):
        desk.engine.put(tube, Draft(b"", ttr_ms=100), desk.clock.ms)
        last = desk.engine.take(desk.me.session, tube, desk.clock.ms)
    assert last is not None
    desk.clock.advance(100)
    assert desk.do(command, last.id) == "NOTTAKEN"


# Tubes that are altered while in use


@pytest.mark.parametrize(("before", "after"), [(p.ANYONE, p.SESSION), (p.SESSION, p.ANYONE)])
def test_altering_the_owner_does_not_change_who_may_ack_a_taken_job(
    desk: EngineHarness, before: str, after: str
) -> None:
    """Taken jobs keep their rule: session-owned or not. Jobs that are taken afterwards follow the new policy."""
    tube = desk.tube(dataclasses.replace(FIFO, owner=before))
    first, second = desk.puts(tube, 2)
    desk.take(tube)
    desk.engine.alter(tube, dataclasses.replace(FIFO, owner=after), desk.clock.ms)
    desk.take(tube)
    check(desk.engine)
    other = desk.connect()
    mine = first if before == p.SESSION else second
    anyones = second if before == p.SESSION else first
    assert desk.do("ack", mine, by=other) == "NOTOWNER"
    desk.engine.disconnect(desk.me, desk.clock.ms)
    assert (desk.state(mine), desk.state(anyones)) == ("ready", "taken")
    assert desk.do("ack", anyones, by=other) == "OK"


def test_a_key_that_is_newly_counted_separately_includes_its_present_jobs(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    job = desk.put(tube, key=b"a")
    desk.engine.alter(tube, dataclasses.replace(UTUBE, key_stats=("a",)), desk.clock.ms)
    desk.do("delete", job)
    assert tube.key_stats[b"a"].states == [0] * s.STATES_COUNT


# Puts that wait


@pytest.mark.parametrize("how", ["time is over", "cancelled", "disconnected"])
def test_when_a_large_waiting_put_ends_a_smaller_one_behind_it_is_served(desk: EngineHarness, how: str) -> None:
    tube = desk.tube(dataclasses.replace(FIFO, capacity_bytes=10))
    desk.put(tube, b"six...")
    other = desk.connect()
    great = desk.engine.wait_put(other, tube, Draft(b"eight..."), desk.clock.ms, 100)
    small = desk.engine.wait_put(desk.me, tube, Draft(b"2."), desk.clock.ms, 1_000)
    if how == "cancelled":
        desk.engine.cancel(great)
    elif how == "disconnected":
        desk.engine.disconnect(other, desk.clock.ms)
    desk.pass_ms(100)
    assert small.job is not None


# Policies that no preset covers


@pytest.mark.parametrize("after_ack", [p.KEPT, p.LINGERS])
def test_an_ack_cancels_a_ready_job_in_a_tube_that_keeps_acked_jobs(desk: EngineHarness, after_ack: str) -> None:
    zombie_ms = 10 if after_ack == p.LINGERS else UNSET
    tube = desk.tube(dataclasses.replace(DISQUE, after_ack=after_ack, zombie_ms=zombie_ms))
    job = desk.put(tube)
    assert desk.do("ack", job) == "OK"


def test_an_ack_with_a_new_body_cancels_a_job_in_a_tube_that_indexes_bodies(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(QUEUE15, owner=p.ANYONE, ack_cancels=True))
    job = desk.put(tube, b"one")
    assert desk.do("ack", job, UNSET, b"two") == "OK"
    assert desk.state(job) == "gone"


def test_an_at_most_once_job_is_delivered_once_even_if_its_tube_is_altered_to_session_owned(
    desk: EngineHarness,
) -> None:
    """Refusing the change would be acceptable, too."""
    tube = desk.tube(dataclasses.replace(FIFO, owner=p.ANYONE))
    job = desk.put(tube, once=True)
    try:
        desk.engine.alter(tube, FIFO, desk.clock.ms)
    except CommandError:
        return
    other = desk.connect()
    assert desk.take(tube, by=other) == job
    desk.engine.disconnect(other, desk.clock.ms)
    assert desk.take(tube) is None


def test_the_key_limit_can_be_lowered_below_the_number_of_taken_jobs(desk: EngineHarness) -> None:
    """The surplus jobs stay taken, and invariant E3 allows for them."""
    tube = desk.tube(dataclasses.replace(UTUBE, key_limit=2))
    first, second, third = desk.puts(tube, 3, key=b"a")
    assert (desk.take(tube), desk.take(tube)) == (first, second)
    desk.engine.alter(tube, UTUBE, desk.clock.ms)
    check(desk.engine)
    desk.do("ack", first)
    assert desk.take(tube) is None
    desk.do("ack", second)
    assert desk.take(tube) == third


# Moved between tubes


def test_an_urgent_job_loses_its_priority_when_it_moves_to_a_tube_without_priorities(desk: EngineHarness) -> None:
    """After a requeue it is behind all present jobs, but before later ones."""
    tube, other = desk.tube(FIFOTTL), desk.tube(FIFO, b"other")
    job = desk.put(tube, priority=7, urgent=True)
    desk.do("move", job, other)
    assert desk.take(other) == job
    desk.do("requeue", job)
    desk.put(other)
    assert desk.take(other) == job
