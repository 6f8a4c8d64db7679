"""Planted bugs are caught: a sample here, all of them by `make mutants`."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import CAUGHT_BY, catch
from tests.simulation.planted_bugs import BY_NAME, MUTANTS, Mutant

# One of each kind that is caught quickly.
SAMPLE = ["answers-before-all-copies", "heap-out-of-order", "replicas-in-the-order-of-a-set"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_can_be_applied(mutant: Mutant) -> None:
    source = mutant.path.read_text(encoding="utf-8")
    changed = mutant.applied(source)
    compile(changed, str(mutant.path), "exec")
    assert changed != source


def test_every_mutant_has_a_test_that_catches_it() -> None:
    assert list(CAUGHT_BY) == list(BY_NAME)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_bug_is_caught(name: str, compiled: bool) -> None:
    if compiled:
        pytest.skip("mutants are interpreted, whatever is under test: the other run has them")
    assert catch(name)
