"""Stages: staged jobs are invisible, and all of them are published together, once, in order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.core import policy as p
from penstock.core import stages, views
from penstock.core import states as s
from penstock.core.errors import CommandError
from penstock.core.job import Draft
from penstock.core.limits import FIRED_PER_TURN_MAX, STAGE_EXPIRE_MS, STAGE_REMEMBERED_MS, UNSET
from penstock.core.tube import Tube, key_of
from penstock.dialects.tarantool import queue15_functions, queue_functions
from penstock.dialects.xqueue import statuses
from penstock.testing.invariants import check

from .engine_harness import EngineHarness


def stage(
    desk: EngineHarness, name: bytes, tube: Tube, /, *bodies: bytes, expire_ms: int = UNSET, **options: Any
) -> list[int]:
    drafts = [Draft(body, **options) for body in bodies]
    jobs = stages.stage_jobs(desk.engine, name, tube, drafts, expire_ms, desk.clock.ms)
    check(desk.engine)
    return [job.id for job in jobs]


def publish(desk: EngineHarness, *names: bytes) -> int:
    count = stages.publish(desk.engine, list(names), desk.clock.ms)
    check(desk.engine)
    return count


def discard(desk: EngineHarness, *names: bytes) -> int:
    count = stages.discard(desk.engine, list(names), desk.clock.ms)
    check(desk.engine)
    return count


def taken(desk: EngineHarness, tube: Tube) -> list[bytes]:
    found = desk.engine.take_many(desk.me.session, [tube], 10_000, desk.clock.ms)
    check(desk.engine)
    return [bytes(job.body) for job in found]


def refused(function: Any, *args: Any) -> str:
    with pytest.raises(CommandError) as error:
        function(*args)
    return error.value.code


@pytest.fixture
def desk() -> EngineHarness:
    return EngineHarness()


def test_a_staged_job_is_not_delivered(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    [job] = stage(desk, b"a", tube, b"1")
    wait = desk.wait(tube)
    assert desk.take(tube) is None and desk.served(wait) is None
    assert desk.state(job) == "staged" and tube.count_in(s.READY) == 0
    for command in ("ack", "release", "bury", "nack", "touch", "requeue"):
        assert desk.do(command, job) == "NOTTAKEN"
    assert desk.do("dig", job) == "NOTBURIED" and desk.do("restart", job) == "NOTKEPT"
    assert desk.do("switch", job, s.READY) == "ISSTAGED"
    assert desk.do("move", job, desk.tube(p.FIFO, b"other")) == "ISSTAGED"
    assert publish(desk, b"a") == 1 and desk.served(wait) == [job]


def test_an_ack_in_a_disque_tube_does_not_cancel_a_staged_job(desk: EngineHarness) -> None:
    [job] = stage(desk, b"a", desk.tube(p.DISQUE), b"1")
    assert desk.do("ack", job) == "NOTTAKEN" and desk.state(job) == "staged"


def test_jobs_arrive_in_the_order_of_publication(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    stage(desk, b"late", tube, b"1", b"2")
    stage(desk, b"early", tube, b"3")
    desk.put(tube, b"0")
    stage(desk, b"late", tube, b"4")
    assert publish(desk, b"early") == 1
    desk.put(tube, b"5")
    assert publish(desk, b"late") == 3
    assert taken(desk, tube) == [b"0", b"3", b"5", b"1", b"2", b"4"]


@pytest.mark.parametrize("policy", [p.FIFOTTL, p.DISQUE, p.UTUBETTL, p.QUEUE15], ids=lambda policy: policy.type)
def test_a_stage_can_contain_jobs_of_several_tubes_with_their_options(
    desk: EngineHarness, policy: p.TubePolicy
) -> None:
    tube, other = desk.tube(policy), desk.tube(p.UTUBE, b"other")
    stage(desk, b"a", tube, b"1")
    stage(desk, b"a", other, b"2", key=b"k", name=b"n")
    found = desk.engine.find_named(other, b"n", desk.clock.ms)
    assert found is not None and key_of(other, found) == b"k"
    assert publish(desk, b"a") == 2
    assert taken(desk, tube) == [b"1"] and taken(desk, other) == [b"2"]


def test_delay_and_ttl_start_when_the_stage_is_published(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    [plain] = stage(desk, b"a", tube, b"1", ttl_ms=1_000)
    [delayed] = stage(desk, b"a", tube, b"2", ttl_ms=1_000, delay_ms=500)
    desk.pass_ms(60_000)
    assert desk.state(plain) == desk.state(delayed) == "staged"
    publish(desk, b"a")
    assert (desk.state(plain), desk.state(delayed)) == ("ready", "delayed")
    desk.pass_ms(499)
    assert desk.state(delayed) == "delayed"
    desk.pass_ms(1)
    assert desk.state(delayed) == "ready"
    desk.pass_ms(499)
    assert desk.state(plain) == "ready"
    desk.pass_ms(1)
    assert desk.state(plain) == "gone"
    desk.pass_ms(500)
    assert desk.state(delayed) == "gone"


def test_urgent_and_priority_count_from_the_publication(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    stage(desk, b"a", tube, b"urgent", urgent=True)
    stage(desk, b"a", tube, b"first", priority=-5)
    stage(desk, b"a", tube, b"plain")
    desk.put(tube, b"earlier urgent", urgent=True)
    publish(desk, b"a")
    assert taken(desk, tube) == [b"urgent", b"earlier urgent", b"first", b"plain"]


def test_several_stages_are_published_together_or_not_at_all(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    stage(desk, b"a", tube, b"1")
    assert refused(publish, desk, b"a", b"nowhere") == "NOSTAGE"
    stage(desk, b"b", tube, b"2")
    discard(desk, b"b")
    assert refused(publish, desk, b"a", b"b") == "NOSTAGE"
    assert taken(desk, tube) == []
    stage(desk, b"c", tube, b"3")
    assert publish(desk, b"c", b"a", b"c") == 2
    assert taken(desk, tube) == [b"3", b"1"]


def test_publishing_again_has_no_effect_and_returns_the_same_count(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    stage(desk, b"a", tube, b"1", b"2")
    assert [publish(desk, b"a") for _ in range(3)] == [2, 2, 2]
    assert taken(desk, tube) == [b"1", b"2"] and publish(desk, b"a") == 2
    assert refused(stage, desk, b"a", tube, b"late") == "STAGEOVER"
    assert refused(discard, desk, b"a") == "STAGEOVER"
    # A new stage can be published together with published ones.
    stage(desk, b"b", tube, b"3")
    assert publish(desk, b"a", b"b") == 3 and taken(desk, tube) == [b"3"]


def test_a_discarded_stage_is_empty_and_refuses_further_puts(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    [job] = stage(desk, b"a", tube, b"1")
    assert discard(desk, b"a", b"never there") == 1 and discard(desk, b"a") == 0
    assert desk.state(job) == "gone" and tube.total() == 0
    assert refused(stage, desk, b"a", tube, b"late") == "STAGEOVER"
    assert refused(publish, desk, b"a") == "NOSTAGE"


def test_a_stage_that_is_not_published_in_time_is_discarded(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    stage(desk, b"a", tube, b"1", expire_ms=100)
    stage(desk, b"b", tube, b"2")
    desk.pass_ms(99)
    # Another put restarts its expiry.
    stage(desk, b"a", tube, b"3")
    desk.pass_ms(99)
    assert tube.count_in(s.STAGED) == 3
    desk.pass_ms(1)
    assert tube.count_in(s.STAGED) == 1 and refused(publish, desk, b"a") == "NOSTAGE"
    desk.pass_ms(STAGE_EXPIRE_MS)
    assert tube.total() == 0


def test_names_of_closed_stages_are_removed_after_a_while(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    stage(desk, b"a", tube, b"1")
    publish(desk, b"a")
    desk.pass_ms(STAGE_REMEMBERED_MS - 1)
    assert publish(desk, b"a") == 1
    desk.pass_ms(1)
    assert refused(publish, desk, b"a") == "NOSTAGE"
    stage(desk, b"a", tube, b"2")
    assert publish(desk, b"a") == 1 and len(desk.engine.stages.by_name) == 1


def test_a_staged_job_can_be_deleted_and_its_tube_truncated_and_dropped(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFO)
    jobs = stage(desk, b"a", tube, *[b"%d" % number for number in range(200)])
    for job in jobs[:150]:
        assert desk.do("delete", job) == "OK"
    assert desk.engine.truncate(tube, desk.clock.ms, 20) == 20
    assert publish(desk, b"a") == 30 and len(taken(desk, tube)) == 30
    other = desk.tube(p.FIFO, b"other")
    stage(desk, b"b", other, b"1")
    desk.engine.drop(other, desk.clock.ms)
    assert publish(desk, b"b") == 0


def test_staged_jobs_count_for_the_capacity(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(p.LIMFIFOTTL, capacity=2))
    stage(desk, b"a", tube, b"1")
    assert refused(stage, desk, b"a", tube, b"2", b"3") == "FULL"
    desk.put(tube, b"2")
    assert refused(desk.put, tube, b"3") == "FULL"
    put = desk.engine.wait_put(desk.me, tube, Draft(b"3"), desk.clock.ms, 1_000)
    discard(desk, b"a")
    assert put.job is not None


def test_a_staged_put_with_a_unique_value_or_dedup_id_is_refused(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    for options in ({"unique": b"u"}, {"dedup": b"d"}):
        with pytest.raises(CommandError) as error:
            stage(desk, b"a", tube, b"1", **options)
        assert error.value.code == "UNSUPPORTED"
    stage(desk, b"a", tube, b"1", name=b"n")
    assert refused(lambda: desk.put(tube, b"2", name=b"n")) == "NAMETAKEN"
    discard(desk, b"a")
    desk.put(tube, b"2", name=b"n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((b"", [Draft(b"1")], UNSET), "BADNAME"),
        ((b"x" * 65_536, [Draft(b"1")], UNSET), "BADNAME"),
        ((b"a", [], UNSET), "RANGE"),
        ((b"a", [Draft(b"1")], -2), "RANGE"),
        ((b"a", [Draft(b"1")], 1 << 61), "RANGE"),
        ((b"a", [Draft(b"1", priority=1)], UNSET), "UNSUPPORTED"),
        ((b"a", [Draft(b"1", name=b"n"), Draft(b"2", name=b"n")], UNSET), "RANGE"),
    ],
)
def test_a_refused_put_changes_nothing(desk: EngineHarness, arguments: Any, code: str) -> None:
    tube, (name, drafts, expire_ms) = desk.tube(p.FIFO), arguments
    assert refused(stages.stage_jobs, desk.engine, name, tube, drafts, expire_ms, desk.clock.ms) == code
    assert desk.engine.stages.by_name == {} and tube.total() == 0
    check(desk.engine)


def test_an_invalid_list_of_stage_names_is_refused(desk: EngineHarness) -> None:
    assert refused(publish, desk) == "RANGE" and refused(discard, desk) == "RANGE"
    assert refused(publish, desk, b"") == "BADNAME"
    assert refused(publish, desk, *[b"x"] * 10_001) == "RANGE"


def test_a_large_publication_runs_in_slices_and_keeps_its_order(desk: EngineHarness) -> None:
    tube, count = desk.tube(p.FIFO), 4 * FIRED_PER_TURN_MAX
    stage(desk, b"a", tube, *[b"%d" % number for number in range(count)])
    stage(desk, b"b", tube, *[b"%d" % number for number in range(count, count + 10)])
    stage(desk, b"c", tube, b"x")
    assert publish(desk, b"a", b"b") == count + 10
    assert 0 < tube.count_in(s.READY) < count
    # Stages that are closed later are emptied later.
    discard(desk, b"c")
    assert tube.count_in(s.STAGED) > 10
    assert publish(desk, b"a", b"b") == count + 10
    while tube.count_in(s.STAGED):
        desk.pass_ms(0)
    assert taken(desk, tube) == [b"%d" % number for number in range(count + 10)]


def test_statistics_of_other_dialects_do_not_count_staged_jobs(desk: EngineHarness) -> None:
    tube = desk.tube(p.FIFOTTL)
    before = (
        queue_functions.statistics(tube),
        statuses.space_stats(tube),
        queue15_functions.statistics(0, "t", tube, {}),
    )
    stage(desk, b"a", tube, b"1", b"2")
    stage(desk, b"b", tube, b"3")
    discard(desk, b"b")
    assert (queue_functions.statistics(tube), statuses.space_stats(tube)) == before[:2]
    publish(desk, b"a")
    desk.put(tube)
    assert queue_functions.statistics(tube)["calls"]["put"] == queue_functions.statistics(tube)["tasks"]["ready"] == 3
    assert statuses.space_stats(tube)["transition"] == {"X-R": 3}
    assert "staged-ready" in {
        f"{views.TRANSITION_NAMES[a]}-{views.TRANSITION_NAMES[b]}" for a, b in views.transitions(tube)
    }


# ---- Against a model -------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([b"a", b"b", b"c"])


class StagesMachine(RuleBasedStateMachine):
    """One tube in order of arrival, stages with three names, and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = EngineHarness()
        self.tube = self.desk.tube(p.FIFO)
        self.bodies = 0
        self.ready: list[bytes] = []
        self.staged: dict[bytes, list[bytes]] = {}
        self.expiry: dict[bytes, int] = {}
        self.over: dict[
            bytes, tuple[bool, int, int]
        ] = {}  # Closed stages: published or not, number of jobs, kept until.

    def body(self) -> bytes:
        self.bodies += 1
        return b"%d" % self.bodies

    @rule(name=NAMES, count=st.integers(1, 3), expire=st.sampled_from([50, 1_000, 2 * STAGE_REMEMBERED_MS]))
    def stage(self, name: bytes, count: int, expire: int) -> None:
        bodies = [self.body() for _ in range(count)]
        if name in self.over:
            assert refused(stage, self.desk, name, self.tube, *bodies) == "STAGEOVER"
        else:
            stage(self.desk, name, self.tube, *bodies, expire_ms=expire)
            self.staged.setdefault(name, []).extend(bodies)
            self.expiry[name] = self.desk.clock.ms + expire

    @rule(names=st.lists(NAMES, min_size=1, max_size=3))
    def publish(self, names: list[bytes]) -> None:
        each = list(dict.fromkeys(names))
        if any(name not in self.staged and not self.over.get(name, (False,))[0] for name in each):
            assert refused(publish, self.desk, *names) == "NOSTAGE"
            return
        expected = sum(len(self.staged[name]) if name in self.staged else self.over[name][1] for name in each)
        assert publish(self.desk, *names) == expected
        for name in each:
            if name in self.staged:
                self.ready += self.end(name, True)

    @rule(names=st.lists(NAMES, min_size=1, max_size=3))
    def discard(self, names: list[bytes]) -> None:
        each = list(dict.fromkeys(names))
        if any(self.over.get(name, (False,))[0] for name in each):
            assert refused(discard, self.desk, *names) == "STAGEOVER"
            return
        gone = [len(self.end(name, False)) for name in each if name in self.staged]
        assert discard(self.desk, *names) == sum(gone)

    def end(self, name: bytes, published: bool) -> list[bytes]:
        bodies = self.staged.pop(name)
        del self.expiry[name]
        self.over[name] = (published, len(bodies), self.desk.clock.ms + STAGE_REMEMBERED_MS)
        return bodies

    @rule()
    def put(self) -> None:
        self.desk.put(self.tube, self.body())
        self.ready.append(b"%d" % self.bodies)

    @rule()
    def take(self) -> None:
        job = self.desk.take(self.tube)
        assert (job is None) == (not self.ready)
        if job is not None:
            assert self.desk.job(job).body == self.ready.pop(0)
            self.desk.do("ack", job)

    @rule(ms=st.sampled_from([1, 50, 1_000, STAGE_REMEMBERED_MS]))
    def pass_ms(self, ms: int) -> None:
        for _ in range(ms if ms <= 50 else 1):
            self.desk.pass_ms(1 if ms <= 50 else ms)
            now = self.desk.clock.ms
            for name in [name for name, due in self.expiry.items() if due <= now]:
                self.end(name, False)
            self.over = {name: told for name, told in self.over.items() if told[2] > now}

    @invariant()
    def agrees(self) -> None:
        assert self.tube.count_in(s.READY) == len(self.ready)
        assert self.tube.count_in(s.STAGED) == sum(map(len, self.staged.values()))


TestStagesMachine = StagesMachine.TestCase
TestStagesMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
