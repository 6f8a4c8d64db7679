"""Puts that follow the end of a delivery: together with it or not at all, whatever refuses them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import CommandError, JobExists, OutOfRange
from penstock.core.job import Draft, Job
from penstock.core.limits import FOLLOW_UPS_MAX
from penstock.core.states import NOT_TAKEN, OK
from penstock.core.tasks.follow_ups import open_tubes, settle_then, were_put
from penstock.core.tube import Tube
from penstock.testing import check, digest

from .engine_harness import EngineHarness

Settle = Callable[[EngineHarness, Job], int]

SETTLES: dict[str, Settle] = {
    "ack": lambda desk, job: desk.engine.ack(desk.me.session, job, desk.clock.ms),
    "done": lambda desk, job: desk.engine.done(desk.me.session, job, b"result", 0, desk.clock.ms),
    "nack": lambda desk, job: desk.engine.nack(desk.me.session, job, desk.clock.ms),
    "bury": lambda desk, job: desk.engine.bury(desk.me.session, job, desk.clock.ms),
}


@pytest.fixture
def desk() -> EngineHarness:
    return EngineHarness()


def then(desk: EngineHarness, job: Job, settle: str, *puts: tuple[Tube, Draft]) -> tuple[int, list[Job]]:
    tubes, drafts = [tube for tube, _ in puts], [draft for _, draft in puts]
    found = settle_then(
        desk.engine, desk.me.session, job, lambda: SETTLES[settle](desk, job), tubes, drafts, desk.clock.ms
    )
    check(desk.engine)
    return found


def taken(desk: EngineHarness, tube: Tube, **options: Any) -> Job:
    job = desk.job(desk.put(tube, **options))
    assert desk.take(tube) == job.id
    return job


@pytest.mark.parametrize("settle", SETTLES)
def test_a_job_is_settled_and_others_are_put(desk: EngineHarness, settle: str) -> None:
    first, second = desk.tube(p.FIFOTTL, b"first"), desk.tube(p.FIFOTTL, b"second")
    job = taken(desk, first)
    outcome, jobs = then(desk, job, settle, (second, Draft(b"a")), (second, Draft(b"b", delay_ms=50)))
    assert outcome == OK and job.state != s.TAKEN
    assert [desk.state(each.id) for each in jobs] == ["ready", "delayed"]


@pytest.mark.parametrize("settle", SETTLES)
def test_nothing_changes_if_the_job_is_not_held(desk: EngineHarness, settle: str) -> None:
    tube = desk.tube(p.FIFOTTL)
    job = desk.job(desk.put(tube))
    before = digest(desk.engine)
    assert then(desk, job, settle, (tube, Draft(b"a"))) == (NOT_TAKEN, [])
    assert digest(desk.engine) == before


def test_a_waiting_take_gets_the_job_that_follows(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    job = taken(desk, tube)
    wait = desk.wait(tube, by=desk.connect())
    _, [following] = then(desk, job, "ack", (tube, Draft(b"next")))
    assert desk.served(wait) == [following.id]


# Each is a reason to refuse the second of two puts.
REFUSED: dict[str, Callable[[EngineHarness], tuple[Tube, Draft]]] = {
    "PAUSED": lambda desk: (paused(desk), Draft(b"x")),
    "FULL": lambda desk: (full(desk), Draft(b"x")),
    "RANGE": lambda desk: (desk.tube(p.FIFOTTL, b"other"), Draft(b"x", ttl_ms=-5)),
    "UNSUPPORTED": lambda desk: (desk.tube(p.FIFO, b"other"), Draft(b"x", delay_ms=5)),
    "NAMETAKEN": lambda desk: (named(desk), Draft(b"x", name=b"one")),
    "JOBEXISTS": lambda desk: (unique(desk), Draft(b"x", unique=b"one", new=True)),
    "TOOBIG": lambda desk: (desk.tube(p.FIFO, b"other"), Draft(b"x" * 2_000)),
}


def paused(desk: EngineHarness) -> Tube:
    tube = desk.tube(p.FIFO, b"other")
    desk.engine.pause(tube, True, False, desk.clock.ms)
    return tube


def full(desk: EngineHarness) -> Tube:
    tube = desk.tube(dataclasses.replace(p.LIMFIFOTTL, capacity=1), b"other")
    desk.put(tube)
    return tube


def named(desk: EngineHarness) -> Tube:
    tube = desk.tube(p.FIFO, b"other")
    desk.put(tube, name=b"one")
    return tube


def unique(desk: EngineHarness) -> Tube:
    tube = desk.tube(p.FIFO, b"other")
    desk.put(tube, unique=b"one")
    return tube


@pytest.mark.parametrize("code", REFUSED)
def test_nothing_changes_if_one_put_is_refused(desk: EngineHarness, code: str) -> None:
    tube = desk.tube(p.FIFO)
    job = taken(desk, tube)
    other, refused = REFUSED[code](desk)
    desk.engine.body_bytes_max = 1_000
    with desk.refuses(code):
        then(desk, job, "ack", (tube, Draft(b"fine")), (other, refused))
    assert job.state == s.TAKEN


def test_two_puts_of_one_command_with_the_same_unique_value_are_one_job(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    _, jobs = then(desk, taken(desk, tube), "ack", (tube, Draft(b"a", unique=b"u")), (tube, Draft(b"b", unique=b"u")))
    assert jobs[0] is jobs[1]
    desk.take(tube)
    with desk.refuses("JOBEXISTS"):
        then(desk, jobs[0], "ack", (tube, Draft(b"a", unique=b"v")), (tube, Draft(b"b", unique=b"v", new=True)))


def test_a_place_that_the_settled_job_frees_is_not_counted_in_advance(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(p.LIMFIFOTTL, capacity=1))
    job = taken(desk, tube)
    with desk.refuses("FULL"):
        then(desk, job, "ack", (tube, Draft(b"next")))


def test_the_unique_value_of_the_settled_job_can_be_used_by_the_next_one(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    job = taken(desk, tube, unique=b"u")
    _, [following] = then(desk, job, "ack", (tube, Draft(b"next", unique=b"u")))
    assert following is not job and following.state == s.READY


def test_tubes_are_created_only_if_all_puts_are_accepted(desk: EngineHarness) -> None:
    with pytest.raises(CommandError):
        open_tubes(desk.engine, [b"new", b"newer"], [Draft(b"x"), Draft(b"x", ttl_ms=-5)], desk.clock.ms)
    assert not desk.engine.tubes
    once = Draft(b"x", unique=b"u", new=True)
    with pytest.raises(JobExists):  # The second of these puts has the job of the first one.
        open_tubes(desk.engine, [b"new", b"new"], [once, once], desk.clock.ms)
    with pytest.raises(OutOfRange):
        open_tubes(desk.engine, [b"new"] * (FOLLOW_UPS_MAX + 1), [Draft(b"x")] * (FOLLOW_UPS_MAX + 1), desk.clock.ms)
    assert not desk.engine.tubes
    tubes = open_tubes(desk.engine, [b"new", b"newer"], [Draft(b"x")] * 2, desk.clock.ms)
    assert [tube.name for tube in tubes] == [b"new", b"newer"]


def test_a_repeated_command_is_recognized_by_the_dedup_ids_of_all_its_puts(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    drafts = [Draft(b"a", dedup=b"job/1/0"), Draft(b"b", dedup=b"job/1/1")]
    assert were_put(desk.engine, [tube, tube], drafts, desk.clock.ms) is None
    _, jobs = then(desk, taken(desk, tube), "ack", (tube, drafts[0]), (tube, drafts[1]))
    again = were_put(desk.engine, [tube, tube], drafts, desk.clock.ms)
    assert again is not None and [job.id for job in again] == [job.id for job in jobs]
    assert were_put(desk.engine, [tube, tube], [drafts[0], Draft(b"c", dedup=b"job/2/1")], desk.clock.ms) is None
    assert were_put(desk.engine, [tube], [Draft(b"a")], desk.clock.ms) is None


PUTS = st.lists(
    st.tuples(
        st.sampled_from([b"plain", b"small", b"paused", b"new"]),
        st.sampled_from([None, b"u", b"v"]),
        st.sampled_from([None, b"n", b"m"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(puts=PUTS, settle=st.sampled_from(sorted(SETTLES)), held=st.booleans())
def test_all_or_nothing_for_any_puts(
    puts: list[tuple[bytes, bytes | None, bytes | None, bool]], settle: str, held: bool
) -> None:
    """The model: a command is refused without any change, or the job is settled and each put has a job."""
    desk = EngineHarness()
    plain = desk.tube(p.FIFO, b"plain")
    small = desk.tube(dataclasses.replace(p.LIMFIFOTTL, capacity=2), b"small")
    desk.engine.pause(desk.tube(p.FIFO, b"paused"), True, False, desk.clock.ms)
    desk.put(plain, unique=b"u", name=b"n")
    job = taken(desk, small)
    if not held:
        desk.do("release", job.id)
    drafts = [Draft(b"x", unique=unique, name=name, new=new) for _, unique, name, new in puts]
    before, count = digest(desk.engine), desk.engine.jobs.count
    try:
        if held:
            tubes = open_tubes(desk.engine, [name for name, *_ in puts], drafts, desk.clock.ms)
        else:
            tubes = [desk.engine.tubes.get(name) or plain for name, *_ in puts]
        outcome, jobs = then(desk, job, settle, *zip(tubes, drafts, strict=True))
    except CommandError:
        assert digest(desk.engine) == before
        return
    check(desk.engine)
    if not held:
        assert outcome == NOT_TAKEN and digest(desk.engine) == before
        return
    assert outcome == OK and job.state != s.TAKEN and len(jobs) == len(puts)
    distinct = {each.id for each in jobs}
    gone = 1 if settle == "ack" else 0
    existing = sum(1 for each in distinct if each < job.id)
    assert desk.engine.jobs.count == count - gone + len(distinct) - existing
    assert small.total() <= 2
