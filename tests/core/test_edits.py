"""Changes of waiting jobs: their priority, their body, and the end of their delay."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core import policy as p
from penstock.core.commands import edits
from penstock.core.errors import CommandError
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, UTUBETTL

from .engine_harness import EngineHarness

KEPT = dataclasses.replace(FIFOTTL, after_ack=p.KEPT)


def test_a_new_priority_changes_the_order_and_equal_priorities_keep_theirs(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    first, second, third, fourth = desk.puts(tube, 4)
    assert desk.do("set_priority", third, -1) == desk.do("set_priority", second, -1) == "OK"
    assert desk.do("set_priority", first, 1) == "OK"
    assert [desk.take(tube) for _ in range(4)] == [second, third, fourth, first]


def test_a_priority_that_the_job_has_already_is_no_event(desk: EngineHarness) -> None:
    job = desk.put(desk.tube(FIFOTTL), priority=3)
    desk.outbox.happened.clear()
    assert desk.do("set_priority", job, 3) == "OK" and desk.outbox.happened == []
    assert desk.do("set_priority", job, 4) == "OK" and desk.outbox.happened == [("prioritized", job)]


def test_a_new_priority_ends_urgency(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    urgent, other = desk.put(tube, urgent=True), desk.put(tube)
    desk.do("set_priority", urgent, 5)
    assert [desk.take(tube), desk.take(tube)] == [other, urgent]


def test_a_key_keeps_its_turn_when_its_only_job_gets_another_priority(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(UTUBETTL, key_order=p.FAIR))
    first, second = desk.put(tube, key=b"a"), desk.put(tube, key=b"b")
    desk.do("set_priority", first, 9)
    assert [desk.take(tube), desk.take(tube)] == [first, second]


def test_a_key_is_ranked_by_its_new_first_job(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBETTL)
    a, b, c = desk.put(tube, key=b"a"), desk.put(tube, key=b"b"), desk.put(tube, key=b"a")
    desk.do("set_priority", a, 9)
    desk.do("set_priority", c, -9)
    assert [desk.take(tube), desk.take(tube)] == [c, b]


def test_buried_jobs_are_kicked_in_the_order_of_their_new_priority(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    first, second = desk.puts(tube, 2)
    for job in (first, second):
        desk.do("bury", job)
    desk.do("set_priority", second, -1)
    desk.engine.kick(tube, 1, desk.clock.ms)
    assert [desk.state(first), desk.state(second)] == ["buried", "ready"]


def test_a_delayed_job_is_served_by_its_new_priority(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    first, late = desk.put(tube), desk.put(tube, delay_ms=10)
    desk.do("set_priority", late, -1)
    desk.pass_ms(10)
    assert [desk.take(tube), desk.take(tube)] == [late, first]


def test_an_edited_job_keeps_its_place_its_state_and_its_times(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    first, second = desk.put(tube, ttl_ms=500), desk.put(tube)
    before = desk.job(first)
    expiry, since, order = before.expiry, before.since, before.order
    desk.pass_ms(3)
    assert desk.do("edit", first, b"new", 1) == "OK"
    job = desk.job(first)
    assert (job.body, job.body_kind, job.expiry, job.since, job.order) == (b"new", 1, expiry, since, order)
    assert [desk.take(tube), desk.take(tube)] == [first, second]


@pytest.mark.parametrize("command", ["set_priority", "edit"])
@pytest.mark.parametrize(("state", "code"), [("taken", "ISTAKEN"), ("done", "NOTWAITING"), ("gone", "NOJOB")])
def test_a_job_that_does_not_wait_is_not_changed(desk: EngineHarness, command: str, state: str, code: str) -> None:
    tube = desk.tube(KEPT)
    job = desk.put(tube)
    desk.take(tube)
    if state == "done":
        desk.do("ack", job)
    elif state == "gone":
        desk.do("delete", job)
    assert desk.do(command, job, 1 if command == "set_priority" else b"x") == code


@pytest.mark.parametrize(("state", "code"), [("ready", "NOTDELAYED"), ("taken", "ISTAKEN"), ("buried", "NOTDELAYED")])
def test_only_a_delay_can_be_ended(desk: EngineHarness, state: str, code: str) -> None:
    tube = desk.tube(FIFOTTL)
    job, late = desk.put(tube), desk.put(tube, delay_ms=1_000)
    if state == "taken":
        desk.take(tube)
    elif state == "buried":
        desk.do("bury", job)
    assert desk.do("end_delay", job) == code
    assert desk.do("end_delay", late) == "OK" and desk.state(late) == "ready"


def test_a_tube_without_priorities_refuses_one(desk: EngineHarness) -> None:
    for policy in (FIFO, DISQUE):
        job = desk.put(desk.tube(policy, policy.type.encode()))
        with desk.refuses("UNSUPPORTED"):
            edits.set_priority(desk.engine, desk.job(job), desk.clock.ms, 1)
    job = desk.put(desk.tube(FIFOTTL, b"ordered"))
    with desk.refuses("RANGE"):
        edits.set_priority(desk.engine, desk.job(job), desk.clock.ms, 1 << 62)


def test_a_longer_body_must_fit_into_the_capacity_of_its_tube_and_a_shorter_one_makes_room(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(FIFOTTL, capacity_bytes=10))
    job = desk.put(tube, b"123456")
    desk.put(tube, b"1234")
    with desk.refuses("FULL"):
        edits.edit(desk.engine, desk.job(job), desk.clock.ms, b"1234567")
    assert desk.do("edit", job, b"12") == "OK"
    desk.put(tube, b"1234")
    # If the capacity was lowered below the bodies, a shorter body is still accepted.
    desk.engine.alter(tube, dataclasses.replace(tube.policy, capacity_bytes=5), desk.clock.ms)
    assert desk.do("edit", job, b"1") == "OK"


def test_a_put_finds_an_edited_job_by_its_new_body_only(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(FIFO, unique_bodies=True))
    job = desk.put(tube, b"old")
    desk.do("edit", job, b"new")
    assert desk.put(tube, b"new", same_body=True) == job
    assert desk.put(tube, b"old", same_body=True) != job


def test_a_body_without_space_on_disk_is_refused(desk: EngineHarness) -> None:
    job = desk.put(desk.tube(FIFO))
    desk.engine.room_bytes = 3
    with desk.refuses("NOSPACE"):
        edits.edit(desk.engine, desk.job(job), desk.clock.ms, b"1234")


def test_a_body_of_an_unknown_kind_or_a_huge_one_is_refused(desk: EngineHarness) -> None:
    job = desk.put(desk.tube(FIFO))
    desk.engine.body_bytes_max = 10
    for body, kind, code in ((b"x", 4, "RANGE"), (b"x", -1, "RANGE"), (b"x" * 11, 0, "TOOBIG")):
        with pytest.raises(CommandError) as refusal:
            edits.edit(desk.engine, desk.job(job), desk.clock.ms, body, kind)
        assert refusal.value.code == code
