"""Counts and transitions, as every vocabulary needs them: sums over the rules that a tube counted.

Nothing is counted here. The engine adds one to the count of a rule when it applies it; these functions only add up, so
no two statistics can disagree.
"""

from __future__ import annotations

from penstock.core import states as s
from penstock.core.tube import Tube


def rule_counts(tube: Tube, life: bool) -> list[int]:
    """How often each rule was applied: since this start, or in the whole life of the tube."""
    if not life:
        return list(tube.counts)
    return [now + before for now, before in zip(tube.counts, tube.counts_before, strict=True)]


def transitions(tube: Tube, life: bool = False) -> dict[tuple[int, int], int]:
    """How often jobs went from one state to another; only what happened."""
    found: dict[tuple[int, int], int] = {}
    for (_, source, target), count in zip(s.TRANSITIONS, rule_counts(tube, life), strict=True):
        if count and source != target:
            found[source, target] = found.get((source, target), 0) + count
    return found


def events(tube: Tube, life: bool = False) -> list[int]:
    """How often each event happened, by its number."""
    found = [0] * s.EVENTS_COUNT
    for (event, _, _), count in zip(s.TRANSITIONS, rule_counts(tube, life), strict=True):
        found[event] += count
    return found


def states(tube: Tube) -> list[int]:
    """How many jobs are in each state now, by its number."""
    return [tube.count_in(state) for state in range(s.STATES_COUNT)]
