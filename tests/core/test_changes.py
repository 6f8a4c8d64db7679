"""Changes of a job (key, priority, ttl, body) and of a tube (policy, notes), and the memory they need."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core import views
from penstock.core.job import BODY_BYTES, Draft, Job
from penstock.core.limits import NEVER, NOTES_CHARS_MAX
from penstock.core.policy import FIFO, FIFOTTL, UTUBE, TubePolicy
from penstock.testing import check

from .engine_harness import EngineHarness

COUNTED = dataclasses.replace(
    FIFOTTL, type="counted", keys=p.KEYS_TAGGED, key_stats=("old", "new"), after_ack=p.KEPT, bury_by=p.SESSION
)
ELSEWHERE = views.ELSEWHERE


@pytest.mark.parametrize(
    ("command", "state"), [("ack", s.DONE), ("bury", s.BURIED), ("release", s.READY), ("release later", s.DELAYED)]
)
def test_each_command_on_a_taken_job_can_change_its_key_and_priority(
    desk: EngineHarness, command: str, state: int
) -> None:
    tube = desk.tube(COUNTED)
    job = desk.put(tube, key=b"old", priority=5)
    desk.take(tube)
    delay = {"delay_ms": 50} if command.endswith("later") else {}
    assert desk.do(command.split()[0], job, key=b"new", priority=3, **delay) == "OK"
    assert desk.job(job).priority == 3
    old, new = tube.key_stats[b"old"], tube.key_stats[b"new"]
    assert views.sum_transitions(old.counts) == {(s.GONE, s.READY): 1, (s.READY, s.TAKEN): 1, (s.TAKEN, ELSEWHERE): 1}
    assert views.sum_transitions(new.counts) == {(ELSEWHERE, state): 1}
    assert sum(old.states) == 0 and new.states[state] == 1


@pytest.mark.parametrize("command", ["ack", "bury"])
def test_a_new_key_or_priority_is_refused_in_a_tube_without_them(desk: EngineHarness, command: str) -> None:
    tube = desk.tube(FIFO)
    job = desk.put(tube)
    desk.take(tube)
    for change in ({"key": b"k"}, {"priority": 1}):
        with desk.refuses("UNSUPPORTED"):
            desk.do(command, job, **change)
    assert desk.state(job) == "taken"


def test_an_acked_job_that_is_removed_does_not_change_its_key(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(COUNTED, after_ack=p.GOES))
    job = desk.put(tube, key=b"old")
    desk.take(tube)
    assert desk.do("ack", job, key=b"new") == "OK"
    assert views.sum_transitions(tube.key_stats[b"old"].counts)[s.TAKEN, s.GONE] == 1
    assert not any(tube.key_stats[b"new"].counts)


def test_any_client_can_prolong_a_ready_job(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    short, endless = desk.put(tube, ttl_ms=100), desk.put(tube)
    assert desk.do("prolong", short, 50) == desk.do("prolong", endless, 50) == "OK"
    desk.pass_ms(149)
    assert desk.state(short) == "ready"
    desk.pass_ms(1)
    assert desk.state(short) == "gone" and desk.job(endless).expiry == NEVER
    desk.take(tube)
    assert desk.do("prolong", endless, 50) == "ISTAKEN"
    other = desk.put(desk.tube(FIFO, b"no ttl"))
    with desk.refuses("UNSUPPORTED"):
        desk.do("prolong", other, 50)


def test_a_job_that_is_switched_to_done_does_not_expire_in_a_tube_that_keeps_done_jobs(desk: EngineHarness) -> None:
    kept, until_ttl = desk.tube(COUNTED), desk.tube(FIFOTTL, b"until its ttl")
    jobs = [desk.put(tube, ttl_ms=100) for tube in (kept, until_ttl)]
    for job in jobs:
        desk.do("switch", job, s.DONE)
    desk.pass_ms(100)
    assert [desk.state(job) for job in jobs] == ["done", "gone"]


@pytest.mark.parametrize(("end", "before"), [("ack", s.TAKEN), ("delete", s.TAKEN), ("expire", s.READY)])
def test_a_wait_for_the_end_of_a_job_reports_the_state_before(desk: EngineHarness, end: str, before: int) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttl_ms=100)
    wait = desk.engine.wait_end(desk.me, desk.job(job), desk.clock.ms)
    if end == "expire":
        desk.pass_ms(100)
    else:
        desk.take(tube)
        desk.do(end, job)
    assert (wait.before, wait.processed) == (before, end == "ack")


def test_counters_of_a_key_are_removed_when_it_is_no_longer_counted_separately(desk: EngineHarness) -> None:
    tube = desk.tube(COUNTED)
    desk.put(tube, key=b"old")
    desk.engine.alter(tube, dataclasses.replace(COUNTED, key_stats=("new",)), desk.clock.ms)
    assert list(tube.key_stats) == [b"new"]
    desk.engine.alter(tube, COUNTED, desk.clock.ms)
    assert tube.key_stats[b"old"].states[s.READY] == 1 and not any(tube.key_stats[b"old"].counts)
    check(desk.engine)


def test_notes_count_against_the_memory_of_tubes(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    before = desk.engine.tubes_bytes
    desk.engine.alter(tube, dataclasses.replace(FIFO, notes="x" * 1_000), desk.clock.ms)
    assert desk.engine.tubes_bytes == before + 12_000
    desk.engine.drop(tube, desk.clock.ms)
    other = desk.tube(FIFO, b"other")
    desk.engine.memory_max = desk.engine.memory_used() + 1_000
    with desk.refuses("NOMEMORY"):
        desk.engine.alter(other, dataclasses.replace(FIFO, notes="x" * 1_000), desk.clock.ms)
    with desk.refuses("RANGE"):
        desk.engine.alter(other, dataclasses.replace(FIFO, notes="x" * (NOTES_CHARS_MAX + 1)), desk.clock.ms)
    assert other.policy.notes == ""


LONGER = {
    "ack": (dataclasses.replace(FIFOTTL, after_ack=p.KEPT), lambda desk, job, body: desk.do("ack", job, body=body)),
    "done": (
        FIFOTTL,
        lambda desk, job, body: desk.engine.done(desk.me.session, desk.job(job), body, BODY_BYTES, desk.clock.ms),
    ),
    "release": (FIFOTTL, lambda desk, job, body: desk.do("release", job, body=body)),
    "bury": (FIFOTTL, lambda desk, job, body: desk.do("bury", job, body=body)),
    "dig": (FIFOTTL, lambda desk, job, body: desk.do("dig", job, body=body)),
    "kick": (FIFOTTL, lambda desk, job, body: desk.engine.kick(desk.tube(FIFOTTL), 5, desk.clock.ms, body=body)),
}


@pytest.mark.parametrize("how", LONGER)
def test_a_longer_body_is_refused_where_memory_has_no_room_for_it(desk: EngineHarness, how: str) -> None:
    policy, change = LONGER[how]
    job = desk.put(desk.tube(policy), b"short")
    desk.take(desk.tube(policy))
    if how in ("dig", "kick"):
        desk.do("bury", job)
    desk.engine.memory_max = desk.engine.memory_used() + 3
    with desk.refuses("NOMEMORY"):
        change(desk, job, b"x" * 9)
    change(desk, job, b"x" * 8)
    assert desk.job(job).body == b"x" * 8 and desk.engine.memory_used() == desk.engine.memory_max


def test_an_ack_that_removes_a_job_needs_no_memory_for_its_body(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    job = desk.put(tube)
    desk.take(tube)
    desk.engine.memory_max = desk.engine.memory_used()
    assert desk.do("ack", job, body=b"x" * 1_000) == "OK"


def test_bodies_that_may_be_left_on_disk_need_no_memory(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    job = desk.put(tube)
    desk.take(tube)
    desk.engine.memory_max, desk.engine.spills = desk.engine.memory_used(), True
    assert desk.do("release", job, body=b"x" * 1_000) == "OK"


def test_bodies_of_one_turn_do_not_all_get_the_same_room_on_the_disk(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    first, second = desk.puts(tube, 2)
    desk.engine.take_many(desk.me.session, [tube], 2, desk.clock.ms)
    desk.engine.room_bytes = 100
    assert desk.do("release", first, body=b"x" * 60) == "OK"
    with desk.refuses("NOSPACE"):
        desk.do("release", second, body=b"x" * 60)


LABELS: dict[str, TubePolicy] = {"name": FIFOTTL, "unique": FIFOTTL, "dedup": FIFOTTL, "key": UTUBE}


@pytest.mark.parametrize("what", LABELS)
def test_labels_of_any_length_count_as_memory(desk: EngineHarness, what: str) -> None:
    tube = desk.tube(LABELS[what])
    before = desk.engine.memory_used()
    long = 60_000

    def put(number: int) -> Job:
        draft = Draft(b"")
        setattr(draft, what, b"%d" % number + b"x" * long)
        return desk.engine.put(tube, draft, desk.clock.ms)

    jobs = [put(number) for number in range(3)]
    assert desk.engine.memory_used() > before + 3 * long
    desk.engine.memory_max = desk.engine.memory_used() + long
    with desk.refuses("NOMEMORY"):
        put(3)
    for job in jobs:
        desk.engine.delete(job, desk.clock.ms)
    if what == "dedup":
        # Dedup ids are kept for longer than their jobs.
        assert desk.engine.memory_used() > before + 3 * long
        desk.clock.advance(LABELS[what].dedup_ms)
    put(4)
    desk.engine.drop(tube, desk.clock.ms)
    assert desk.engine.memory_used() == 0
