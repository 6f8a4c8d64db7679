"""Fairness of key order: no key starves, and no key gets more than its share.

A key is servable if it has a ready job and is below its limit. `key_order = fair` promises:
- A key that stays servable is served at least once in as many takes as there are servable keys.
- Over any window of takes in which two keys stay servable, one is served at most once more often than the other.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.job import Job
from penstock.core.policy import UTUBE, TubePolicy
from penstock.core.tube import key_of
from penstock.core.waits import Connection

from .engine_harness import EngineHarness

FAIR = dataclasses.replace(UTUBE, type="fair", key_order=p.FAIR)
KEYS = [b"a", b"b", b"c", b"d", b"e"]
# Probabilities of keys: equal ones, one busy key, a quiet key beside two busy ones.
NOISE = [[1, 1, 1, 1, 1], [90, 5, 3, 1, 1], [1, 40, 40, 0, 0]]
# Each example is a short run with one random seed, so shrinking is not useful.
FEWER = settings(max_examples=max(settings.default.max_examples // 3, 5))


class Counted:
    """A fair tube, its takes in order, and the keys that were servable at each take."""

    def __init__(self, seed: int, policy: TubePolicy) -> None:
        self.random = Random(seed)
        self.desk = EngineHarness()
        self.tube = self.desk.tube(policy)
        self.noise = self.random.choice(NOISE)
        self.served: list[bytes] = []
        self.servable: list[set[bytes]] = []  # Keys that were servable at each take.
        self.steady: list[set[bytes]] = []  # Keys that were servable all the time since the take before.
        self.since = set(KEYS)
        self.takers = [self.desk.me, self.desk.connect(), self.desk.connect()]
        self.held: list[tuple[Job, Connection]] = []

    def now_servable(self) -> set[bytes]:
        """Return the servable keys by examining every job."""
        policy = self.tube.policy
        taken = Counter(key_of(self.tube, job) for job in self.tube.taken.items)
        ready = [key for key in KEYS if any(key_of(self.tube, job) == key for job in self.tube.jobs_in(s.READY))]
        return {key for key in ready if policy.keys != p.KEYS_LIMITED or taken[key] < policy.key_limit}

    def after(self, command: Callable[[], object]) -> None:
        command()
        self.since &= self.now_servable()

    def put(self) -> None:
        self.desk.put(self.tube, key=self.random.choices(KEYS, self.noise)[0], urgent=self.random.random() < 0.1)

    def take(self) -> None:
        servable = self.now_servable()
        taker = self.random.choice(self.takers)
        job = self.desk.engine.take(taker.session, self.tube, self.desk.clock.ms)
        assert (job is None) == (not servable)
        if job is not None:
            self.servable.append(servable)
            self.steady.append(self.since & servable)
            self.served.append(key_of(self.tube, job))
            self.held.append((job, taker))
            self.since = self.now_servable()

    def finish(self) -> None:
        if self.held:
            job, taker = self.held.pop(self.random.randrange(len(self.held)))
            command = self.random.choice(["ack", "ack", "release", "nack", "bury", "requeue"])
            assert self.desk.do(command, job.id, by=taker) == "OK"

    def change_limit(self) -> None:
        if self.tube.policy.keys == p.KEYS_LIMITED:
            policy = dataclasses.replace(self.tube.policy, key_limit=self.random.choice([1, 2, 3, 10]))
            self.desk.engine.alter(self.tube, policy, self.desk.clock.ms)

    def run(self, steps: int, weights: list[int]) -> None:
        commands = [self.put, self.finish, self.change_limit]
        for _ in range(12):
            self.put()
        self.since = self.now_servable()
        for _ in range(steps):
            if self.random.random() < 0.4:
                self.take()
            else:
                self.after(self.random.choices(commands, weights)[0])

    # Checks

    def windows(self) -> list[tuple[int, int, set[bytes]]]:
        """Return every window of takes, with the keys that stayed servable from before its first to its last."""
        found = []
        for start in range(len(self.served)):
            stayed = set(self.servable[start])
            for end in range(start, len(self.served)):
                stayed = stayed & self.servable[end] & (self.steady[end] if end > start else stayed)
                if not stayed:
                    break
                found.append((start, end + 1, stayed))
        return found

    def check(self) -> int:
        """Check both promises. Return how many pairs of keys were compared."""
        compared = 0
        for start, end, stayed in self.windows():
            shares = Counter(self.served[start:end])
            counts = [shares[key] for key in stayed]
            assert max(counts) - min(counts) <= 1, f"takes {start} to {end}: {shares} of {stayed}"
            starved = [key for key in stayed if not shares[key]]
            assert not starved or end - start < len(KEYS), f"takes {start} to {end} passed {starved} over"
            compared += len(stayed) * (len(stayed) - 1) // 2
        return compared


@pytest.mark.parametrize("limit", [1, 2, 5])
@given(seed=st.integers(0, 2**32))
@FEWER
def test_keys_that_stay_servable_are_served_equally_often(limit: int, seed: int) -> None:
    counted = Counted(seed, dataclasses.replace(FAIR, key_limit=limit))
    counted.run(80, [6, 3, 0])
    counted.check()


@given(seed=st.integers(0, 2**32))
@FEWER
def test_keys_are_served_equally_often_without_a_limit(seed: int) -> None:
    counted = Counted(seed, dataclasses.replace(FAIR, keys=p.KEYS_TAGGED))
    counted.run(80, [6, 3, 0])
    counted.check()


@given(seed=st.integers(0, 2**32))
@FEWER
def test_keys_are_served_equally_often_while_the_limit_changes(seed: int) -> None:
    counted = Counted(seed, dataclasses.replace(FAIR, key_limit=2))
    counted.run(80, [6, 3, 1])
    counted.check()


@given(seed=st.integers(0, 2**32))
@FEWER
def test_keys_are_served_equally_often_after_the_order_is_altered_to_fair(seed: int) -> None:
    counted = Counted(seed, dataclasses.replace(FAIR, key_order=p.STRICT, key_limit=3))
    counted.run(20, [6, 3, 0])
    counted.desk.engine.alter(counted.tube, dataclasses.replace(FAIR, key_limit=3), counted.desk.clock.ms)
    counted.served, counted.servable, counted.steady = [], [], []
    counted.run(60, [6, 3, 0])
    counted.check()


def test_the_fairness_check_fails_for_strict_order() -> None:
    """In strict order, only the busiest key is served. If the check accepted that, it would prove nothing."""
    counted = Counted(1, dataclasses.replace(FAIR, key_order=p.STRICT, key_limit=10))
    for key in [b"a"] * 8 + [b"b"] * 8:
        counted.desk.put(counted.tube, key=key)
    counted.since = counted.now_servable()
    for _ in range(6):
        counted.take()
    with pytest.raises(AssertionError, match="takes"):
        counted.check()


def test_the_fairness_check_sees_enough_keys_that_stay_servable() -> None:
    """A few runs contain enough windows in which two keys stay servable."""
    compared = 0
    for seed in range(5):
        counted = Counted(seed, dataclasses.replace(FAIR, key_limit=5))
        counted.run(80, [6, 3, 1])
        compared += counted.check()
    assert compared > 1_000
