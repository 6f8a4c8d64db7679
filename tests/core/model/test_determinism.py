"""The same commands at the same times give the same engine: repeated, under any hash seed, compiled or not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.job import Draft
from penstock.core.policy import FIFO
from penstock.testing import describe, digest
from penstock.testing.digest import field_names

from ..engine_harness import EngineHarness
from .history import History
from .tube_kinds import KINDS

ROOT = Path(__file__).parents[3]
STEPS = 3_000
SEED = 20_231_114


def digest_in_another_process(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.core.model.history", str(SEED), str(STEPS), "all"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    played = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return played.stdout.strip()


def test_a_history_ends_in_the_same_state_under_every_hash_seed() -> None:
    here = digest(History(SEED, "all", swarm=False).play(STEPS, compare_every=100).engine)
    assert digest_in_another_process("1") == here
    assert digest_in_another_process("2") == here


@pytest.mark.parametrize("kind", KINDS)
def test_a_history_that_is_played_twice_ends_in_the_same_state(kind: str) -> None:
    first, second = (History(SEED, kind).play(300, compare_every=50).engine for _ in range(2))
    assert list(describe(first)) == list(describe(second))


def test_different_histories_end_in_different_states() -> None:
    assert len({digest(History(seed).play(50).engine) for seed in range(5)}) == 5


def test_the_digest_depends_on_every_field_of_a_job(desk: EngineHarness) -> None:
    """A change of any number of a job changes the digest."""
    job = desk.job(desk.put(desk.tube(FIFO)))
    seen = {digest(desk.engine)}
    names = [name for name in field_names(type(job)) if type(getattr(job, name)) is int]
    assert len(names) > 15
    for name in names:
        before = getattr(job, name)
        setattr(job, name, before + 1)
        seen.add(digest(desk.engine))
        setattr(job, name, before)
    assert len(seen) == len(names) + 1


def test_the_digest_depends_on_bodies_waits_and_sessions(desk: EngineHarness) -> None:
    seen = [digest(desk.engine)]
    tube = desk.tube(FIFO)
    seen.append(digest(desk.engine))
    job = desk.engine.put(tube, Draft(b"x" * 500), desk.clock.ms)
    seen.append(digest(desk.engine))
    job.body = b"x" * 499 + b"y"
    seen.append(digest(desk.engine))
    desk.connect()
    seen.append(digest(desk.engine))
    other = desk.tube(FIFO, b"other")
    seen.append(digest(desk.engine))
    desk.engine.wait(desk.me, [other], desk.clock.ms, timeout_ms=50)
    seen.append(digest(desk.engine))
    desk.engine.advance(desk.clock.advance(50))
    seen.append(digest(desk.engine))
    assert len(set(seen)) == len(seen)
