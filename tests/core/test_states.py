"""The transition table: nothing else is allowed, and every rule is reached by some command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from penstock.core import claims as claim_commands
from penstock.core import policy as p
from penstock.core import stages as stage_commands
from penstock.core import states as s
from penstock.core import views
from penstock.core.job import VERDICT_NACK, Draft, Job, Verdict
from penstock.core.limits import FIRED_PER_TURN_MAX, JOB_TTL, UNSET
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, TubePolicy
from penstock.core.tasks import attention

from .engine_harness import EngineHarness

RULES = {(event, source): target for event, source, target in s.TRANSITIONS}
EVERYTHING = TubePolicy(
    type="everything",
    order=p.BY_PRIORITY,
    has_ttl=True,
    has_ttr=True,
    has_delay=True,
    after_ack=p.LINGERS,
    owner=p.ANYONE,
)


def job_in(state: int) -> Job:
    job = Job(1, 0, b"", 0, 0)
    job.state = state
    return job


def named(event: int, state: int) -> str:
    return f"{s.EVENT_NAMES[event]} when {s.STATE_NAMES[state]}"


EVERY_PAIR = [(event, state) for event in range(s.EVENTS_COUNT) for state in range(s.STATES_COUNT)]


@pytest.mark.parametrize(("event", "state"), EVERY_PAIR, ids=[named(*pair) for pair in EVERY_PAIR])
def test_an_event_changes_the_state_as_the_table_says_or_is_not_allowed(event: int, state: int) -> None:
    job = job_in(state)
    assert s.allowed(state, event) == ((event, state) in RULES)
    if (event, state) in RULES:
        rule = s.move(job, event)
        assert s.TRANSITIONS[rule] == (event, state, RULES[event, state])
        assert job.state == RULES[event, state]
    else:
        with pytest.raises(AssertionError):
            s.move(job, event)
        assert job.state == state


def test_states_and_events_have_distinct_names() -> None:
    assert len(s.STATE_NAMES) == len(set(s.STATE_NAMES)) == s.STATES_COUNT
    assert len(s.EVENT_NAMES) == len(set(s.EVENT_NAMES)) == s.EVENTS_COUNT
    assert len(s.TRANSITIONS) == len(RULES) == s.RULES_COUNT


def test_a_new_job_is_gone_until_it_is_put() -> None:
    assert Job(1, 0, b"", 0, 0).state == s.GONE


def test_a_job_starts_by_a_put_or_by_a_move_from_another_tube() -> None:
    beginnings = {s.EVENT_NAMES[event] for event, source, _ in s.TRANSITIONS if source == s.GONE}
    assert all(name.startswith(("put", "moved in")) for name in beginnings)


def test_only_a_delivery_makes_a_job_taken() -> None:
    takings = {event for event, source, target in s.TRANSITIONS if target == s.TAKEN and source != s.TAKEN}
    assert takings == {s.TOOK, s.CLAIMED}


def test_only_a_taken_job_has_events_that_keep_its_state() -> None:
    """Exceptions: prolonging a ready job, and a switch or restart to the same state, which restarts its time."""
    still = {(event, source) for event, source, target in s.TRANSITIONS if source == target}
    again = {(event, source) for event, source in still if s.EVENT_NAMES[event].startswith(("switched", "restarted"))}
    edits = {(event, state) for event in (s.PRIORITIZED, s.EDITED) for state in (s.READY, s.DELAYED, s.BURIED)}
    marks = {(s.DOOMED, s.TAKEN), (s.JUDGED, s.TAKEN), (s.CANCELLED, s.TAKEN)}
    assert still - again == {(s.TOUCHED, s.TAKEN), (s.TOUCHED, s.READY), *marks, *edits}


def test_from_every_state_a_job_can_be_deleted_and_its_tube_truncated() -> None:
    for state in range(1, s.STATES_COUNT):
        assert RULES[s.DELETED, state] == RULES[s.TRUNCATED, state] == s.GONE


# Each scenario is a short sequence of commands. Together they reach every rule.

Scenario = Callable[[EngineHarness], object]
SCENARIOS: list[Scenario] = []


def scenario(story: Scenario) -> Scenario:
    SCENARIOS.append(story)
    return story


def in_state(desk: EngineHarness, state: int, policy: TubePolicy = EVERYTHING) -> int:
    """Return a job that reached a state by ordinary commands."""
    tube = desk.tube(policy, policy.type.encode())
    if state == s.STAGED:
        [job] = stage_commands.stage_jobs(desk.engine, b"stage", tube, [Draft(b"work")], 60_000, desk.clock.ms)
        return job.id
    first = -len(desk.outbox.happened)  # Before all others, so that a take gets this one.
    job = desk.put(tube, ttl_ms=9_000_000, priority=first, delay_ms=5_000 if state == s.DELAYED else 0)
    if state in (s.TAKEN, s.DONE, s.ZOMBIE):
        assert desk.take(tube) == job
    if state == s.BURIED:
        desk.do("bury", job)
    elif state == s.DONE:
        desk.engine.done(desk.me.session, desk.job(job), b"result", 0, desk.clock.ms, JOB_TTL)
    elif state == s.ZOMBIE:
        desk.do("ack", job, 5_000)
    assert desk.job(job).state == state
    return job


LIVE = range(1, s.STATES_COUNT)
NOT_TAKEN = [state for state in LIVE if state not in (s.TAKEN, s.STAGED)]


@scenario
def puts_and_takes(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    for give_back in ("release", "nack", "requeue"):
        desk.do(give_back, in_state(desk, s.TAKEN))
    desk.do("release", in_state(desk, s.TAKEN), delay_ms=50)
    desk.engine.undelivered(desk.job(in_state(desk, s.TAKEN)), desk.clock.ms)
    desk.do("touch", in_state(desk, s.TAKEN))
    desk.do("prolong", in_state(desk, s.READY), 5)
    desk.put(tube, urgent=True)
    desk.put(tube, delay_ms=10)
    desk.pass_ms(60)


@scenario
def ends_of_taking(desk: EngineHarness) -> None:
    tube, other = desk.tube(FIFOTTL), desk.connect()
    desk.puts(tube, 2, ttr_ms=10)
    desk.take(tube)
    desk.take(tube, by=other)
    desk.engine.disconnect(other, desk.clock.ms)
    desk.pass_ms(10)


@scenario
def acks(desk: EngineHarness) -> None:
    for state in (s.READY, s.TAKEN, s.DELAYED, s.BURIED):
        desk.do("ack", in_state(desk, state, DISQUE_WITH_PRIORITY))
    in_state(desk, s.ZOMBIE)
    in_state(desk, s.DONE)
    desk.pass_ms(5_000)


@scenario
def burials(desk: EngineHarness) -> None:
    for state in (s.READY, s.TAKEN, s.DELAYED):
        desk.do("bury", in_state(desk, state))
    desk.do("dig", in_state(desk, s.BURIED), delay_ms=5)
    desk.do("dig", in_state(desk, s.BURIED))


@scenario
def expiries(desk: EngineHarness) -> None:
    tube = desk.tube(dataclasses.replace(EVERYTHING, type="strict", ttl_while_taken=p.KILLS))
    for state in LIVE:
        job = desk.put(tube, ttl_ms=100, priority=-state, delay_ms=500 if state == s.DELAYED else 0)
        if state in (s.TAKEN, s.DONE):
            desk.take(tube)
        if state == s.DONE:
            desk.engine.done(desk.me.session, desk.job(job), b"", 0, desk.clock.ms, JOB_TTL)
        if state == s.BURIED:
            desk.do("bury", job)
    # The delay extends the ttl, so the delayed job expires as such only because the shell is late: both end by now.
    desk.pass_ms(600)


@scenario
def removals(desk: EngineHarness) -> None:
    for state in LIVE:
        desk.do("delete", in_state(desk, state))
    for state in LIVE:
        in_state(desk, state)
    desk.engine.truncate(desk.tube(EVERYTHING, b"everything"), desk.clock.ms)


@scenario
def failures(desk: EngineHarness) -> None:
    for retry in ("2x const(5ms)", "1x then bury", "1x then drop", "1x then move graveyard"):
        tube = desk.tube(dataclasses.replace(FIFOTTL, retry=retry), retry.encode())
        job = desk.put(tube)
        desk.take(tube)
        desk.do("nack", job)


@scenario
def interventions(desk: EngineHarness) -> None:
    for delay in (0, 50):
        desk.do("snatch", in_state(desk, s.TAKEN), delay_ms=delay)
        for state in (s.DELAYED, s.DONE, s.ZOMBIE):
            desk.do("restart", in_state(desk, state), delay_ms=delay)
    for source in NOT_TAKEN:
        for target in NOT_TAKEN:
            timed = target in (s.DELAYED, s.ZOMBIE)
            desk.do("switch", in_state(desk, source), target, delay_ms=5 if timed else 0)


@scenario
def edits(desk: EngineHarness) -> None:
    for state in (s.READY, s.DELAYED, s.BURIED):
        job = in_state(desk, state)
        desk.do("set_priority", job, 7)
        desk.do("edit", job, b"another body")


@scenario
def cancelled(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    desk.put(tube)
    taken = desk.engine.take(desk.me.session, tube, desk.clock.ms)
    assert taken is not None
    attention.cancel(desk.engine, taken, b"", desk.clock.ms)


@scenario
def moves_to_another_tube(desk: EngineHarness) -> None:
    target = desk.tube(FIFOTTL, b"target")
    for state in LIVE:
        desk.do("move", in_state(desk, state), target)
    # Zombies cannot be moved, and a retry policy moves only ready jobs.


@scenario
def claims(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    jobs = desk.puts(tube, 3)
    claim_commands.claim(desk.engine, b"reader", 1, 1, tube, 1, 1_000, desk.clock.ms)
    claim_commands.claim(desk.engine, b"reader", 1, 2, tube, 2, 1_000, desk.clock.ms)
    desk.do("delete", jobs[1])
    nack = Verdict(VERDICT_NACK, b"", UNSET, b"")
    judged = [desk.engine.jobs.find(jobs[0])]
    claim_commands.judge_jobs(desk.engine, b"reader", 1, 1, judged, [nack], desk.clock.ms)
    claim_commands.judge_jobs(desk.engine, b"reader", 1, 1, judged, [None], desk.clock.ms)
    claim_commands.ack_claims(desk.engine, b"reader", 1, 1, desk.clock.ms)
    desk.pass_ms(1_000)


@scenario
def stages(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFOTTL), desk.clock.ms
    drafts = [Draft(b"work"), Draft(b"later", delay_ms=50)]
    for name in (b"published", b"discarded", b"expired"):
        stage_commands.stage_jobs(desk.engine, name, tube, drafts, 100, now)
    stage_commands.publish(desk.engine, [b"published"], now)
    stage_commands.discard(desk.engine, [b"discarded"], now)
    desk.pass_ms(100)


DISQUE_WITH_PRIORITY = dataclasses.replace(DISQUE, type="disque with priority", order=p.BY_PRIORITY)

# No command applies these rules, only readers of the log and counters of separate keys.
UNREACHED = {(s.MOVED_OUT, s.ZOMBIE), (s.MOVED_IN_ZOMBIE, s.GONE)}


@pytest.mark.parametrize("story", SCENARIOS, ids=lambda story: story.__name__)
def test_the_counters_of_each_scenario_match_its_events(desk: EngineHarness, story: Scenario) -> None:
    """The counted transitions match the events. The desk checked invariant E1 after every step."""
    story(desk)
    for tube in desk.engine.tubes.values():
        counted = sum(tube.counts)
        still = sum(
            count for count, (_, source, target) in zip(tube.counts, s.TRANSITIONS, strict=True) if source == target
        )
        assert sum(views.transitions(tube).values()) == counted - still
        assert sum(views.events(tube)) == counted
        assert views.states(tube)[1:] == [tube.count_in(state) for state in LIVE]


def test_every_rule_is_reached_by_some_scenario() -> None:
    reached: set[int] = set()
    for story in SCENARIOS:
        desk = EngineHarness()
        story(desk)
        for tube in desk.engine.tubes.values():
            reached |= {rule for rule, count in enumerate(tube.counts) if count}
    missing = {s.TRANSITIONS[rule][:2] for rule in range(s.RULES_COUNT) if rule not in reached}
    assert {named(*pair) for pair in missing} == {named(*pair) for pair in UNREACHED}


def test_a_turn_fires_exactly_as_many_deadlines_as_its_limit() -> None:
    """The limit is a number of deadlines of any kind."""
    desk = EngineHarness()
    tube = desk.tube(FIFOTTL)
    for _ in range(FIRED_PER_TURN_MAX + 1):
        desk.engine.put(tube, Draft(b"", ttl_ms=10), desk.clock.ms)
    desk.engine.advance(desk.clock.advance(10))
    assert tube.total() == 1
