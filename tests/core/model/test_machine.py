"""The engine behaves like the model for any sequence of commands: one state machine per kind of tube."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import (
    DURATION_MS_MAX,
    NAME_BYTES_MAX,
    NEVER,
    PRIORITY_MAX,
    PRIORITY_UNSET,
    REASON_BYTES_MAX,
    UNSET,
)
from penstock.core.policy import TubePolicy

from .full_pair import FullPair
from .history import History
from .history_job_commands import STATES
from .machine_rules import JobRules
from .tube_kinds import KINDS

# Index of a tube, a client, or a job among the suitable ones, modulo their number.
INDEX = st.integers(0, 7)
# Time since the last command.
STEP = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 5])
TTL = st.sampled_from([UNSET, UNSET, UNSET, 30, 12, 5, 1, 0, NEVER])
TTR = st.sampled_from([UNSET, UNSET, UNSET, 9, 4, 1, NEVER])
DELAY = st.sampled_from([0, 0, 0, 1, 3, 8, 40])
PRIORITY = st.sampled_from([PRIORITY_UNSET, PRIORITY_UNSET, 3, 0, -1])
KEY = st.sampled_from([None, b"a", b"a", b"b", b"c", b""])
TIMEOUT = st.sampled_from([NEVER, NEVER, NEVER, 7, 2, 0])
COUNT = st.sampled_from([1, 1, 1, 2, 3, 100_000])
BAD_NUMBERS = [-2, DURATION_MS_MAX + 1, NEVER - 1, NEVER + 1, 2**63 - 1, 2**63, -(2**63), 10**30]
BAD_PRIORITIES = [PRIORITY_MAX + 1, -PRIORITY_MAX - 1, PRIORITY_UNSET - 1, 2**63, -(2**63), 10**30]


def while_some(*states: str) -> Callable[..., Callable[..., object]]:
    """Return a precondition: a job is in one of these states."""
    return precondition(lambda self: any(job.state in states for job in self.pair.model.jobs))


class Queue(JobRules):
    """The rules choose commands. The pair runs them on both sides and compares."""

    policies: ClassVar[list[TubePolicy]] = []
    pair: FullPair

    @initialize(grace=st.sampled_from([0, 6]), clients=st.integers(1, 3))
    def open(self, grace: int, clients: int) -> None:
        self.pair = FullPair(self.policies, grace)
        for _ in range(clients - 1):
            self.pair.connect()

    def tube(self, n: int) -> int:
        return n % len(self.policies)

    def client(self, n: int) -> int:
        return self.pair.client(n)

    def job(self, n: int, *states: str) -> int:
        return self.pair.job(n, *states)

    def holder(self, number: int, c: int) -> int:
        """Return a client that holds this job, or for some values of `c` another client."""
        return self.client(c) if c == 3 else self.pair.holder(number)

    # Time

    @rule(ms=st.sampled_from([1, 1, 2, 3, 5, 10, 40, 1_000, 300_000, 86_400_000]))
    def time_passes(self, ms: int) -> None:
        self.pair.pass_time(ms)
        self.pair.advance()

    @rule(late=st.sampled_from([0, 0, 0, -1, 1, 3]))
    def the_next_deadline_comes(self, late: int) -> None:
        """Advance to the next deadline, or to a millisecond before or after it."""
        due = self.pair.model.next_due()
        if due != NEVER:
            self.pair.pass_time(max(due + late - self.pair.now, 0))
        self.pair.advance()

    # Putting and taking

    @rule(t=INDEX, step=STEP, ttl=TTL, ttr=TTR, delay=DELAY, priority=PRIORITY, key=KEY, once=st.booleans())
    def put(
        self, t: int, step: int, ttl: int, ttr: int, delay: int, priority: int, key: bytes | None, once: bool
    ) -> None:
        """Put a job with all options that this kind of tube has."""
        self.pair.pass_time(step)
        policy = self.policies[self.tube(t)]
        draft = Draft(b"%d" % self.pair.model.made)
        draft.ttl_ms = ttl if policy.has_ttl else UNSET
        draft.ttr_ms = ttr if policy.has_ttr else UNSET
        draft.delay_ms = delay if policy.has_delay else 0
        draft.priority = priority if policy.order == p.BY_PRIORITY else PRIORITY_UNSET
        draft.key = key if policy.keys != p.KEYS_NONE else None
        draft.once = once and policy.owner == p.ANYONE
        self.pair.put(self.tube(t), draft)

    @rule(t=INDEX, key=KEY)
    def put_plain(self, t: int, key: bytes | None) -> None:
        policy = self.policies[self.tube(t)]
        self.pair.put(self.tube(t), Draft(b"plain", key=key if policy.keys != p.KEYS_NONE else None))

    @rule(t=INDEX, keys=st.lists(KEY, min_size=1, max_size=4))
    def put_many(self, t: int, keys: list[bytes | None]) -> None:
        has_keys = self.policies[self.tube(t)].keys != p.KEYS_NONE
        self.pair.put_many(self.tube(t), [Draft(b"one of", key=key if has_keys else None) for key in keys])

    @while_some("ready")
    @rule(c=INDEX, t=INDEX, step=STEP, key=KEY, ttr=TTR)
    def take(self, c: int, t: int, step: int, key: bytes | None, ttr: int) -> None:
        self.pair.pass_time(step)
        policy = self.policies[self.tube(t)]
        key = key if policy.keys == p.KEYS_NAMED or (policy.keys == p.KEYS_LIMITED and c < 3) else None
        self.pair.take(self.client(c), self.tube(t), key, ttr if policy.has_ttr else UNSET)

    @while_some("ready")
    @rule(c=INDEX, ts=st.lists(INDEX, min_size=1, max_size=3), step=STEP, count=COUNT)
    def take_many(self, c: int, ts: list[int], step: int, count: int) -> None:
        self.pair.pass_time(step)
        self.pair.take_many(self.client(c), [self.tube(t) for t in ts], count)

    @rule(
        c=INDEX,
        ts=st.lists(INDEX, min_size=1, max_size=3),
        step=STEP,
        timeout=TIMEOUT,
        count=COUNT,
        key=KEY,
        ttr=TTR,
    )
    def wait(self, c: int, ts: list[int], step: int, timeout: int, count: int, key: bytes | None, ttr: int) -> None:
        self.pair.pass_time(step)
        tubes = [self.tube(t) for t in ts]
        key = key if all(self.policies[t].keys != p.KEYS_NONE for t in tubes) and c < 5 else None
        ttr = ttr if all(self.policies[t].has_ttr for t in tubes) else UNSET
        self.pair.wait(self.client(c), tubes, timeout, count, key, ttr)

    @precondition(lambda self: self.pair.waits)
    @rule(n=INDEX)
    def cancel(self, n: int) -> None:
        self.pair.cancel(n % len(self.pair.waits))

    @while_some("taken")
    @rule(n=INDEX)
    def undelivered(self, n: int) -> None:
        self.pair.undelivered(self.job(n, "taken"))

    # Finishing

    @while_some("taken")
    @rule(n=INDEX, c=INDEX, step=STEP, again=st.booleans())
    def ack(self, n: int, c: int, step: int, again: bool) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "taken")
        for _ in range(1 + again):
            self.pair.on_job(number, "ack", session=self.holder(number, c))

    @while_some("taken")
    @rule(n=INDEX, c=INDEX, step=STEP, delay=DELAY, ttl=TTL, priority=PRIORITY)
    def release(self, n: int, c: int, step: int, delay: int, ttl: int, priority: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "taken")
        options = self.on_return(number, delay, ttl, priority)
        self.pair.on_job(number, "release", *options, session=self.holder(number, c))

    @while_some("buried")
    @rule(n=INDEX, step=STEP, delay=DELAY, ttl=TTL, priority=PRIORITY)
    def dig(self, n: int, step: int, delay: int, ttl: int, priority: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "buried")
        self.pair.on_job(number, "dig", *self.on_return(number, delay, ttl, priority))

    def on_return(self, number: int, delay: int, ttl: int, priority: int) -> tuple[int, int, int]:
        """Return the options of a release or dig, without those that the tube lacks."""
        policy = self.pair.policy_of(number)
        return (
            delay if policy.has_delay else 0,
            ttl if policy.has_ttl else UNSET,
            priority if policy.order == p.BY_PRIORITY else PRIORITY_UNSET,
        )

    @while_some("taken")
    @rule(n=INDEX, c=INDEX, step=STEP)
    def nack(self, n: int, c: int, step: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "taken")
        self.pair.on_job(number, "nack", b"failed"[step:], session=self.holder(number, c))

    @while_some("ready", "taken", "delayed", "buried")
    @rule(n=INDEX, c=INDEX, step=STEP, only_taken=st.booleans(), length=st.sampled_from([0, 6]))
    def bury(self, n: int, c: int, step: int, only_taken: bool, length: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "taken") if only_taken else self.job(n, "ready", "taken", "delayed", "buried")
        self.pair.on_job(number, "bury", b"y" * length, session=self.holder(number, c))

    @while_some("buried")
    @rule(t=INDEX, step=STEP, count=COUNT)
    def kick(self, t: int, step: int, count: int) -> None:
        self.pair.pass_time(step)
        self.pair.kick(self.tube(t), count)

    @while_some("taken")
    @rule(n=INDEX, c=INDEX, step=STEP, more=st.sampled_from([UNSET, UNSET, 10, 3, 0, DURATION_MS_MAX]))
    def touch(self, n: int, c: int, step: int, more: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "taken")
        self.pair.on_job(number, "touch", more, session=self.holder(number, c))

    @while_some(*STATES)
    @rule(n=INDEX)
    def delete(self, n: int) -> None:
        self.pair.on_job(self.job(n, *STATES), "delete")

    # Tubes and clients

    @rule(t=INDEX, what=st.sampled_from(["resume", "close", "stop puts", "truncate", "drop", "drop"]))
    def tube_command(self, t: int, what: str) -> None:
        if what == "truncate":
            self.pair.truncate(self.tube(t))
        elif what == "drop":
            self.pair.drop(self.tube(t))
        else:
            self.pair.pause(self.tube(t), what == "stop puts", what == "close")

    @rule(c=INDEX, n=INDEX, step=STEP, what=st.sampled_from(["come", "go", "join"]))
    def client_command(self, c: int, n: int, step: int, what: str) -> None:
        self.pair.pass_time(step)
        if what == "join":
            tokens = [*self.pair.model.sessions, b"never heard of"]
            self.pair.identify(self.client(c), tokens[n % len(tokens)])
        elif what == "go" and len(self.pair.connections) > 1:
            self.pair.disconnect(self.client(c))
        elif len(self.pair.connections) < 4:
            self.pair.connect()

    # Invalid commands

    @rule(
        n=st.integers(0, 40),
        c=INDEX,
        step=STEP,
        command=st.sampled_from(["ack", "release", "nack", "bury", "touch", "delete", "dig"]),
    )
    def any_client_runs_any_command_on_any_job(self, n: int, c: int, step: int, command: str) -> None:
        """Run a command of any client on a job in any state, or on a job that ended or never existed."""
        self.pair.pass_time(step)
        number = self.pair.model.made + 2 - n
        if command in ("delete", "dig"):
            self.pair.on_job(number, command)
        else:
            self.pair.on_job(number, command, session=self.client(c))

    @rule(
        t=INDEX,
        bad=st.sampled_from(BAD_NUMBERS),
        what=st.sampled_from(["ttl_ms", "ttr_ms", "delay_ms", "priority", "key", "once", "body", "none"]),
    )
    def put_an_invalid_draft(self, t: int, bad: int, what: str) -> None:
        """Put a draft with one invalid or unsupported option. In a batch, it causes all to be refused."""
        values = {"key": b"k" * (NAME_BYTES_MAX + 1), "once": True, "body": b"b" * 101}
        draft = Draft(b"bad")
        if what == "priority":
            draft.priority = BAD_PRIORITIES[bad % len(BAD_PRIORITIES)]
        elif what != "none":
            setattr(draft, what, values.get(what, bad))
        self.pair.put_many(self.tube(t), [Draft(b"good"), draft][:: 1 if bad % 2 else -1] if what != "none" else [])

    @rule(n=INDEX, c=INDEX, bad=st.sampled_from(BAD_NUMBERS), what=st.integers(0, 10))
    def run_a_command_with_an_invalid_argument(self, n: int, c: int, bad: int, what: int) -> None:
        """Run a command with one invalid argument."""
        pair, tube, client = self.pair, self.tube(n), self.client(c)
        taken, buried = self.job(n, "taken"), self.job(n, "buried")
        owner = self.holder(taken, c)
        [
            lambda: pair.take(client, tube, ttr_ms=bad),
            lambda: pair.take(client, tube, key=b"k" * (NAME_BYTES_MAX + 1)),
            lambda: pair.take_many(client, [tube], min(bad, 0)),
            lambda: pair.wait(client, [tube], bad, 1, None, UNSET),
            lambda: pair.wait(client, [], NEVER, 1, None, UNSET),
            lambda: pair.wait(client, [tube], NEVER, 100_001, b"k", 0),
            lambda: pair.kick(tube, min(bad, 0)),
            lambda: pair.on_job(taken, "release", bad, UNSET, PRIORITY_UNSET, session=owner),
            lambda: pair.on_job(taken, "touch", bad, session=owner),
            lambda: pair.on_job(taken, "bury", b"r" * (REASON_BYTES_MAX + 1), session=owner),
            lambda: pair.on_job(buried, "dig", 0, bad, PRIORITY_UNSET),
        ][what]()

    @invariant()
    def engine_and_model_are_equal(self) -> None:
        if hasattr(self, "pair"):
            self.pair.compare()


# A fraction of the profile's examples, so that all machines together take as long as one test of that profile may.
MACHINE = settings(
    max_examples=max(settings.default.max_examples // 5, 5), suppress_health_check=list(HealthCheck), deadline=None
)
LONG = settings(max_examples=max(settings.default.max_examples // 12, 3), phases=[Phase.reuse, Phase.generate])


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_agrees_with_the_model(kind: str) -> None:
    run_state_machine_as_test(type("Queue", (Queue,), {"policies": KINDS[kind]}), settings=MACHINE)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
@LONG
def test_the_engine_agrees_with_the_model_over_a_long_history(kind: str, seed: int) -> None:
    History(seed, kind).play(200)


# In these histories the takes of several lines are served in one turn, and their ttrs end in the same millisecond.
@pytest.mark.parametrize("seed", [702, 2586, 6188])
def test_the_model_serves_takes_of_a_key_and_of_any_job_in_the_order_of_the_engine(seed: int) -> None:
    History(seed, "utubettl").play(200)


def test_equal_ttrs_of_takes_that_one_turn_served_end_in_the_order_of_their_deliveries() -> None:
    pair = FullPair([dataclasses.replace(p.UTUBETTL, key_order=p.FAIR, default_ttr_ms=9)])
    pair.wait(0, [0], NEVER, 1, b"b", UNSET)
    pair.wait(0, [0], NEVER, 1, None, UNSET)
    pair.put_many(0, [Draft(b"1", key=b"a"), Draft(b"2", key=b"b")])
    pair.pass_time(9)
    pair.advance()
    pair.compare()


def test_the_model_changes_nothing_when_it_refuses_a_restart() -> None:
    pair = FullPair([p.XQUEUE])
    pair.put(0, Draft(b"1"))
    pair.take(0, 0)
    pair.done(0, 0, b"result")
    pair.on_job(0, "restart", 3)
    pair.compare()
