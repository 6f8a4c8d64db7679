"""The engine does what the model does, whatever is asked of it, by whom, and when: one machine for each kind of tube."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
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
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, UTUBE, TubePolicy

from .pair import Pair

# Beyond the presets: what a policy can say and no preset does.
UTUBETTL = TubePolicy(
    type="utubettl", order=p.BY_PRIORITY, keys=p.KEYS_LIMITED, has_ttl=True, has_ttr=True, has_delay=True
)
STUBE = TubePolicy(type="stube", keys=p.KEYS_NAMED)
STRICT = TubePolicy(
    type="two a key, strict",
    order=p.BY_PRIORITY,
    default_priority=5,
    has_ttl=True,
    has_ttr=True,
    has_delay=True,
    default_ttl_ms=50,
    default_ttr_ms=7,
    ttl_while_taken=p.KILLS,
    keys=p.KEYS_LIMITED,
    key_limit=2,
    bury_by=p.SESSION,
    ids=p.ID_HEX,
)

KINDS: dict[str, list[TubePolicy]] = {
    "fifo": [FIFO],
    "fifottl": [FIFOTTL],
    "utube": [UTUBE],
    "disque": [DISQUE],
    "utubettl": [UTUBETTL],
    "stube": [STUBE],
    "strict": [STRICT],
    "many at once": [FIFO, FIFOTTL, UTUBE, DISQUE, UTUBETTL, STUBE],
}


def mostly(usual: st.SearchStrategy[int], *rare: int) -> st.SearchStrategy[int]:
    """The usual, and now and then something that is refused or means something special."""
    return st.one_of(usual, usual, usual, st.sampled_from(rare))


MUCH_TOO_LONG = b"x" * (NAME_BYTES_MAX + 1)
BAD_NUMBERS = (-2, DURATION_MS_MAX + 1, 2**63 - 1, 2**63, -(2**63), 10**30)
SMALL = st.integers(0, 12)
TTL = mostly(st.sampled_from([UNSET, UNSET, 1, 5, 12, 30]), 0, NEVER, DURATION_MS_MAX, *BAD_NUMBERS)
TTR = mostly(st.sampled_from([UNSET, UNSET, 1, 4, 9]), 0, NEVER, DURATION_MS_MAX, *BAD_NUMBERS)
DELAY = mostly(st.sampled_from([0, 0, 0, 1, 3, 8]), 40, DURATION_MS_MAX, NEVER, *BAD_NUMBERS)
PRIORITY = mostly(
    st.sampled_from([PRIORITY_UNSET, -1, 0, 3]), -PRIORITY_MAX, PRIORITY_MAX, PRIORITY_MAX + 1, 10**30
)
TIMEOUT = mostly(st.sampled_from([NEVER, NEVER, 0, 2, 7]), DURATION_MS_MAX, *BAD_NUMBERS)
COUNT = mostly(st.integers(1, 4), 0, -1, 100_000, 100_001, 10**30)
MORE = mostly(st.sampled_from([UNSET, 0, 3, 10]), DURATION_MS_MAX, *BAD_NUMBERS)
TOO_LONG = b"too long"  # Written out where it is used, so that a failing script stays readable.
KEY = st.sampled_from([None, None, b"a", b"b", b"c", b""])
ANY_KEY = st.one_of(KEY, KEY, KEY, st.just(TOO_LONG))
STEP = st.sampled_from([0, 0, 0, 0, 1, 2, 5])


class Queue(RuleBasedStateMachine):
    """Rules choose commands from numbers; the pair compares. What a kind of tube lacks is asked of it more rarely."""

    policies: ClassVar[list[TubePolicy]] = []

    @initialize(grace=st.sampled_from([0, 6]), clients=st.integers(1, 3))
    def open(self, grace: int, clients: int) -> None:
        self.pair = Pair(self.policies, grace)
        for _ in range(clients - 1):
            self.pair.connect()

    def tube(self, n: int) -> int:
        return n % len(self.policies)

    def several(self, ns: list[int]) -> list[int]:
        return [self.tube(n) for n in ns]

    def client(self, n: int) -> int:
        return n % len(self.pair.connections)

    def job(self, n: int, state: str) -> int:
        """A job of a state if there is one; else one that is gone, or never was."""
        those = [job.number for job in self.pair.model.jobs if job.state == state]
        return those[n % len(those)] if those and n < 9 else self.pair.model.made - n + 2

    def draft(self, tube: int, ttl: int, ttr: int, delay: int, priority: int, key: bytes | None, once: bool) -> Draft:
        """What was drawn, less what this kind of tube lacks; every thirteenth draft keeps even that."""
        policy = self.policies[tube]
        if (ttl + ttr + delay) % 13 != 7:
            ttl = ttl if policy.has_ttl else UNSET
            ttr = ttr if policy.has_ttr else UNSET
            delay = delay if policy.has_delay else 0
            priority = priority if policy.order == p.BY_PRIORITY else PRIORITY_UNSET
            key = key if policy.keys != p.KEYS_NONE else None
            once = once and policy.owner == p.ANYONE
        key = MUCH_TOO_LONG if key == TOO_LONG else key
        body = b"%d" % self.pair.model.made
        return Draft(body, ttl_ms=ttl, ttr_ms=ttr, delay_ms=delay, priority=priority, key=key, once=once)

    # Time

    @rule(ms=st.integers(0, 40))
    def time_passes(self, ms: int) -> None:
        self.pair.pass_time(ms)
        self.pair.advance()

    @rule(early=st.sampled_from([0, 0, 0, 1, -1, -3]))
    def the_next_deadline_comes(self, early: int) -> None:
        """Go to where the next thing happens, or a moment before or after."""
        due = self.pair.model.next_due()
        if due != NEVER:
            self.pair.pass_time(max(due - early - self.pair.now, 0))
        self.pair.advance()

    @rule(ms=st.sampled_from([1_000, 300_000, 86_400_000]))
    def long_time_passes(self, ms: int) -> None:
        self.pair.pass_time(ms)
        self.pair.advance()

    # Putting and taking

    @rule(t=SMALL, step=STEP, ttl=TTL, ttr=TTR, delay=DELAY, priority=PRIORITY, key=ANY_KEY, once=st.booleans())
    def put(
        self, t: int, step: int, ttl: int, ttr: int, delay: int, priority: int, key: bytes | None, once: bool
    ) -> None:
        self.pair.pass_time(step)
        self.pair.put(self.tube(t), self.draft(self.tube(t), ttl, ttr, delay, priority, key, once))

    @rule(t=SMALL, keys=st.lists(KEY, max_size=4), ttl=TTL, big=st.sampled_from([False] * 7 + [True]))
    def put_many(self, t: int, keys: list[bytes | None], ttl: int, big: bool) -> None:
        tube = self.tube(t)
        drafts = [self.draft(tube, ttl, UNSET, 0, PRIORITY_UNSET, key, False) for key in keys]
        self.pair.put_many(tube, [*drafts, Draft(b"x" * 101)] if big else drafts)

    @rule(c=SMALL, t=SMALL, step=STEP, key=ANY_KEY, ttr=TTR)
    def take(self, c: int, t: int, step: int, key: bytes | None, ttr: int) -> None:
        self.pair.pass_time(step)
        policy = self.policies[self.tube(t)]
        key = key if policy.keys != p.KEYS_NONE or c == 7 else None
        ttr = ttr if policy.has_ttr or c == 8 else UNSET
        self.pair.take(self.client(c), self.tube(t), MUCH_TOO_LONG if key == TOO_LONG else key, ttr)

    @rule(c=SMALL, ts=st.lists(SMALL, min_size=1, max_size=3), step=STEP, count=COUNT)
    def take_many(self, c: int, ts: list[int], step: int, count: int) -> None:
        self.pair.pass_time(step)
        self.pair.take_many(self.client(c), self.several(ts), count)

    @rule(
        c=SMALL,
        ts=st.lists(SMALL, max_size=3),
        step=STEP,
        timeout=TIMEOUT,
        count=COUNT,
        key=ANY_KEY,
        ttr=TTR,
    )
    def wait(
        self, c: int, ts: list[int], step: int, timeout: int, count: int, key: bytes | None, ttr: int
    ) -> None:
        self.pair.pass_time(step)
        tubes = self.several(ts)
        if c < 9:
            tubes = tubes or [0]
            key = key if all(self.policies[t].keys != p.KEYS_NONE for t in tubes) else None
            ttr = ttr if all(self.policies[t].has_ttr for t in tubes) else UNSET
        key = MUCH_TOO_LONG if key == TOO_LONG else key
        self.pair.wait(self.client(c), tubes, timeout, count, key, ttr)

    @precondition(lambda self: self.pair.waits)
    @rule(n=SMALL)
    def cancel(self, n: int) -> None:
        self.pair.cancel(n % len(self.pair.waits))

    @rule(n=SMALL)
    def undelivered(self, n: int) -> None:
        self.pair.undelivered(self.job(n, "taken"))

    # Finishing

    @rule(n=SMALL, c=SMALL, step=STEP, state=st.sampled_from(["taken", "taken", "taken", "ready", "delayed", "buried"]))
    def ack(self, n: int, c: int, step: int, state: str) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.job(n, state), "ack", session=self.client(c))

    @rule(n=SMALL, c=SMALL, step=STEP)
    def ack_twice(self, n: int, c: int, step: int) -> None:
        number = self.job(n, "taken")
        self.pair.on_job(number, "ack", session=self.client(c))
        self.pair.pass_time(step)
        self.pair.on_job(number, "ack", session=self.client(c))

    @rule(n=SMALL, c=SMALL, step=STEP, delay=DELAY, ttl=TTL, priority=PRIORITY)
    def release(self, n: int, c: int, step: int, delay: int, ttl: int, priority: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "taken")
        self.pair.on_job(number, "release", *self.options(number, n, delay, ttl, priority), session=self.client(c))

    def options(self, number: int, n: int, delay: int, ttl: int, priority: int) -> tuple[int, int, int]:
        """What a job is given on its way back, mostly without what its tube lacks."""
        policy = next((job.tube.policy for job in self.pair.model.jobs if job.number == number), FIFO)
        if n == 4:
            return delay, ttl, priority
        return (
            delay if policy.has_delay else 0,
            ttl if policy.has_ttl else UNSET,
            priority if policy.order == p.BY_PRIORITY else PRIORITY_UNSET,
        )

    @rule(n=SMALL, c=SMALL, step=STEP)
    def nack(self, n: int, c: int, step: int) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.job(n, "taken"), "nack", session=self.client(c))

    @rule(
        n=SMALL,
        c=SMALL,
        step=STEP,
        state=st.sampled_from(["taken", "taken", "ready", "delayed", "buried"]),
        length=st.sampled_from([0, 0, 6, REASON_BYTES_MAX, REASON_BYTES_MAX + 1]),
    )
    def bury(self, n: int, c: int, step: int, state: str, length: int) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.job(n, state), "bury", b"y" * length, session=self.client(c))

    @rule(n=SMALL, step=STEP, delay=DELAY, ttl=TTL, priority=PRIORITY)
    def dig(self, n: int, step: int, delay: int, ttl: int, priority: int) -> None:
        self.pair.pass_time(step)
        number = self.job(n, "buried")
        self.pair.on_job(number, "dig", *self.options(number, n, delay, ttl, priority))

    @rule(t=SMALL, step=STEP, count=COUNT)
    def kick(self, t: int, step: int, count: int) -> None:
        self.pair.pass_time(step)
        self.pair.kick(self.tube(t), count)

    @rule(n=SMALL, c=SMALL, step=STEP, more=MORE)
    def touch(self, n: int, c: int, step: int, more: int) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.job(n, "taken"), "touch", more, session=self.client(c))

    @rule(n=SMALL, state=st.sampled_from(["ready", "taken", "delayed", "buried"]))
    def delete(self, n: int, state: str) -> None:
        self.pair.on_job(self.job(n, state), "delete")

    # Tubes and sessions

    @rule(t=SMALL, inward=st.booleans(), outward=st.booleans())
    def pause(self, t: int, inward: bool, outward: bool) -> None:
        self.pair.pause(self.tube(t), inward and t < 4, outward)

    @rule(t=SMALL, sure=SMALL)
    def truncate(self, t: int, sure: int) -> None:
        if sure == 0:
            self.pair.truncate(self.tube(t))

    @rule(t=SMALL, sure=SMALL)
    def drop(self, t: int, sure: int) -> None:
        if sure < 4:
            self.pair.drop(self.tube(t))

    @precondition(lambda self: len(self.pair.connections) < 4)
    @rule()
    def connect(self) -> None:
        self.pair.connect()

    @rule(c=SMALL, step=STEP)
    def disconnect(self, c: int, step: int) -> None:
        self.pair.pass_time(step)
        self.pair.disconnect(self.client(c))
        if not self.pair.connections:
            self.pair.connect()

    @rule(c=SMALL, n=SMALL, step=STEP)
    def identify(self, c: int, n: int, step: int) -> None:
        self.pair.pass_time(step)
        tokens = [*self.pair.tokens[::-1], b"never heard of"]
        self.pair.identify(self.client(c), tokens[n % len(tokens)])

    @invariant()
    def engine_and_model_are_the_same(self) -> None:
        if hasattr(self, "pair"):
            self.pair.compare()


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_does_what_the_model_does(kind: str) -> None:
    run_state_machine_as_test(type(f"Queue of {kind}", (Queue,), {"policies": KINDS[kind]}))
