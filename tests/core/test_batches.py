"""Batches: the callbacks are put exactly once, when all members have ended, however they end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core import policy as p
from penstock.core import stages
from penstock.core import states as s
from penstock.core.errors import CommandError
from penstock.core.job import Draft
from penstock.core.limits import BATCH_EXPIRE_MS, STAGE_REMEMBERED_MS, UNSET
from penstock.core.tasks import attention, batch
from penstock.core.tasks.follow_ups import settle_then
from penstock.core.tube import Tube
from penstock.testing import check

from .engine_harness import EngineHarness


@pytest.fixture
def desk() -> EngineHarness:
    return EngineHarness()


def create(desk: EngineHarness, name: bytes = b"b", callbacks: int = 1, expire_ms: int = UNSET) -> Tube:
    """Create a batch whose callbacks go to the tube `callbacks`. Return that tube."""
    drafts = [Draft(b"callback %d" % at) for at in range(callbacks)]
    tube = desk.tube(p.FIFO, b"callbacks")
    batch.create_batch(desk.engine, name, [b"callbacks"] * callbacks, drafts, expire_ms, desk.clock.ms)
    check(desk.engine)
    return tube


def seal(desk: EngineHarness, name: bytes = b"b") -> int:
    pending = batch.seal_batch(desk.engine, name, desk.clock.ms)
    desk.pass_ms(0)
    return pending


def info(desk: EngineHarness, name: bytes = b"b") -> tuple[str, int, int, int]:
    stage = batch.find_batch(desk.engine, name, desk.clock.ms)
    assert stage.members is not None
    return batch.state_of(stage), stage.members.total, stage.members.pending, stage.members.failed


def fired(desk: EngineHarness, tube: Tube) -> int:
    desk.pass_ms(0)
    return tube.count_in(s.READY)


def done(desk: EngineHarness, job: int) -> None:
    desk.engine.done(desk.me.session, desk.job(job), b"result", 0, desk.clock.ms)


ENDS: dict[str, Callable[[EngineHarness, int], object]] = {
    "acked": lambda desk, job: desk.do("ack", job),
    "done": done,
    "buried": lambda desk, job: desk.do("bury", job),
    "deleted": lambda desk, job: desk.do("delete", job),
    "expired": lambda desk, job: (desk.do("release", job, ttl_ms=5), desk.pass_ms(5)),
    "cancelled": lambda desk, job: (
        attention.cancel(desk.engine, desk.job(job), b"", desk.clock.ms),
        desk.do("release", job),
    ),
    "dropped": lambda desk, job: desk.do("nack", job),
    "dead-lettered": lambda desk, job: desk.do("nack", job),
    "truncated": lambda desk, job: desk.engine.truncate(desk.engine.tubes[b"tube"], desk.clock.ms),
}
RETRY = {"dropped": "1x then drop", "dead-lettered": "1x then move to dead"}


@pytest.mark.parametrize("end", ENDS)
def test_the_callback_is_put_once_however_the_last_member_ends(desk: EngineHarness, end: str) -> None:
    callbacks = create(desk)
    tube = desk.tube(dataclasses.replace(p.FIFOTTL, retry=RETRY.get(end, "")))
    first, last = desk.puts(tube, 2, batch=b"b")
    assert seal(desk) == 2
    desk.take(tube)
    desk.do("ack", first)
    assert fired(desk, callbacks) == 0 and info(desk) == ("sealed", 2, 1, 0)
    desk.take(tube)
    ENDS[end](desk, last)
    assert fired(desk, callbacks) == 1
    assert info(desk) == ("ended", 2, 0, 0 if end in ("acked", "done") else 1)


def test_members_that_return_have_not_ended(desk: EngineHarness) -> None:
    callbacks = create(desk)
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube, batch=b"b")
    seal(desk)
    for back in ("release", "nack", "requeue"):
        desk.take(tube)
        desk.do(back, job)
        assert fired(desk, callbacks) == 0
    target = desk.tube(p.FIFOTTL, b"target")
    desk.do("move", job, target)
    assert fired(desk, callbacks) == 0 and info(desk)[2] == 1, "it is a member in another tube, too"
    desk.take(target)
    desk.do("ack", job)
    assert fired(desk, callbacks) == 1


def test_a_job_that_is_kicked_after_its_batch_has_ended_does_not_end_it_again(desk: EngineHarness) -> None:
    callbacks = create(desk)
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube, batch=b"b")
    seal(desk)
    desk.take(tube)
    desk.do("bury", job)
    assert fired(desk, callbacks) == 1
    desk.do("dig", job)
    desk.take(tube)
    desk.do("ack", job)
    assert fired(desk, callbacks) == 1 and info(desk) == ("ended", 1, 0, 1)


def test_a_batch_ends_only_after_it_was_sealed(desk: EngineHarness) -> None:
    callbacks = create(desk, callbacks=3)
    tube = desk.tube(p.FIFO)
    job = desk.put(tube, batch=b"b")
    desk.take(tube)
    desk.do("ack", job)
    assert fired(desk, callbacks) == 0 and info(desk) == ("open", 1, 0, 0)
    assert seal(desk) == 0 and fired(desk, callbacks) == 3
    assert seal(desk) == 0 and fired(desk, callbacks) == 3, "sealing again has no effect"


def test_an_empty_batch_ends_when_it_is_sealed(desk: EngineHarness) -> None:
    callbacks = create(desk)
    seal(desk)
    assert fired(desk, callbacks) == 1


def test_a_member_can_put_further_members_when_it_is_acked(desk: EngineHarness) -> None:
    callbacks = create(desk)
    tube = desk.tube(p.FIFO)
    job = desk.job(desk.put(tube, batch=b"b"))
    seal(desk)
    desk.take(tube)
    now, session = desk.clock.ms, desk.me.session
    drafts = [Draft(b"more", batch=b"b")] * 2
    settle_then(desk.engine, session, job, lambda: desk.engine.ack(session, job, now), [tube, tube], drafts, now)
    check(desk.engine)
    assert fired(desk, callbacks) == 0 and info(desk) == ("sealed", 3, 2, 0)
    for _ in range(2):
        last = desk.take(tube)
        assert last is not None
        desk.do("ack", last)
    assert fired(desk, callbacks) == 1


def test_what_cannot_be_in_a_batch_is_refused(desk: EngineHarness) -> None:
    create(desk)
    plain = desk.tube(p.FIFO)
    with desk.refuses("NOBATCH"):
        desk.put(plain, batch=b"another")
    for number, policy in enumerate((p.DISQUE, dataclasses.replace(p.FIFO, temporary=True))):
        tube = desk.tube(policy, b"odd-%d" % number)
        with desk.refuses("UNSUPPORTED"):
            desk.put(tube, batch=b"b")
    member = desk.put(desk.tube(p.FIFO), batch=b"b")
    with pytest.raises(CommandError):
        desk.do("move", member, desk.engine.tubes[b"odd-1"])
    drafts = [Draft(b"x", batch=b"b")]
    with desk.refuses("UNSUPPORTED"):
        stages.stage_jobs(desk.engine, b"stage", desk.tube(p.FIFO), drafts, UNSET, desk.clock.ms)


def test_the_callbacks_cannot_be_published_by_commands_about_stages(desk: EngineHarness) -> None:
    create(desk)
    [name] = desk.engine.stages.names()
    for command in (stages.publish, stages.discard):
        with desk.refuses("BADNAME"):
            command(desk.engine, [name], desk.clock.ms)


def test_no_member_joins_a_batch_that_has_ended_and_its_name_is_free_a_day_later(desk: EngineHarness) -> None:
    create(desk)
    seal(desk)
    tube = desk.tube(p.FIFO)
    with desk.refuses("BATCHOVER"):
        desk.put(tube, batch=b"b")
    with desk.refuses("BATCHOVER"):
        create(desk)
    desk.pass_ms(STAGE_REMEMBERED_MS)
    create(desk)
    assert info(desk) == ("open", 0, 0, 0)


def test_a_repeated_create_returns_the_batch_until_it_has_members(desk: EngineHarness) -> None:
    create(desk)
    create(desk)
    assert len(desk.engine.tubes[b"callbacks"].staged) == 1
    desk.put(desk.tube(p.FIFO), batch=b"b")
    with desk.refuses("BATCHOVER"):
        create(desk)


def test_an_abandoned_batch_expires_after_its_last_put(desk: EngineHarness) -> None:
    callbacks = create(desk)
    tube = desk.tube(p.FIFO)
    desk.pass_ms(BATCH_EXPIRE_MS - 1)
    job = desk.put(tube, batch=b"b")
    desk.pass_ms(BATCH_EXPIRE_MS - 1)
    assert info(desk)[0] == "open"
    desk.pass_ms(1)
    assert info(desk)[0] == "expired"
    desk.take(tube)
    desk.do("ack", job)
    assert fired(desk, callbacks) == 0 and not len(callbacks.staged)
    with desk.refuses("BATCHOVER"):
        seal(desk)


def test_the_last_of_many_members_costs_as_much_as_the_first(desk: EngineHarness) -> None:
    """10,000 jobs and a callback: it is put once, and the end of each member only changes a counter."""
    callbacks = create(desk)
    tube = desk.tube(p.FIFO)
    jobs = desk.engine.put_many(tube, [Draft(b"x", batch=b"b")] * 10_000, desk.clock.ms)
    seal(desk)
    for job in jobs[:-1]:
        desk.engine.delete(job, desk.clock.ms)
    assert fired(desk, callbacks) == 0 and info(desk) == ("sealed", 10_000, 1, 9_999)
    desk.engine.bury(desk.me.session, jobs[-1], desk.clock.ms)
    assert fired(desk, callbacks) == 1


class BatchMachine(RuleBasedStateMachine):
    """A batch under all commands: it ends once, when it is sealed and the model has no pending member."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = EngineHarness()
        self.callbacks = create(self.desk)
        self.tube = self.desk.tube(p.FIFOTTL)
        self.pending: set[int] = set()
        self.sealed = self.over = False

    @rule(count=st.integers(1, 3))
    def put(self, count: int) -> None:
        drafts = [Draft(b"x", batch=b"b")] * count
        try:
            self.pending |= {job.id for job in self.desk.engine.put_many(self.tube, drafts, self.desk.clock.ms)}
            assert not self.over
        except CommandError as error:
            assert self.over and error.code == "BATCHOVER"

    @rule()
    def put_another(self) -> None:
        self.desk.put(self.tube)

    @rule()
    def take(self) -> None:
        self.desk.take(self.tube)

    @rule(end=st.sampled_from(["ack", "bury", "delete", "release", "nack", "dig", "cancel"]), data=st.data())
    @precondition(lambda self: self.desk.engine.jobs.count > 1)
    def end(self, end: str, data: Any) -> None:
        jobs = [job for job in self.desk.engine.jobs.scan(0, 100) if job.tube == self.tube.slot]
        if not jobs:
            return
        job = data.draw(st.sampled_from(jobs))
        if end == "cancel":
            attention.cancel(self.desk.engine, job, b"", self.desk.clock.ms)
        else:
            self.desk.do(end, job.id)
        if job.state in (s.GONE, s.BURIED):
            self.pending.discard(job.id)

    @rule()
    def seal(self) -> None:
        seal(self.desk)
        self.sealed = True

    @invariant()
    def ends_once(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.desk.pass_ms(0)
        self.over = self.over or (self.sealed and not self.pending)
        assert self.callbacks.count_in(s.READY) == (1 if self.over else 0)
        assert info(self.desk)[2] == len(self.pending)


BatchMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestBatches = BatchMachine.TestCase
