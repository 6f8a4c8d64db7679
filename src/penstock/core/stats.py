"""Counts and transitions, as every vocabulary needs them: sums over the rules that a tube counted.

Nothing is counted here. The engine adds one to the count of a rule when it applies it; these functions only add up, so
no two statistics can disagree.
"""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core.tube import Tube

# In transitions only: the job came from, or went to, another tube.
ELSEWHERE: Final = s.STATES_COUNT
TRANSITION_NAMES: Final = [*s.STATE_NAMES, "elsewhere"]

_ARRIVALS: Final = frozenset(s.ARRIVALS[s.READY : s.STAGED])


def rule_counts(tube: Tube, life: bool) -> list[int]:
    """How often each rule was applied: since this start, or in the whole life of the tube."""
    if not life:
        return list(tube.counts)
    return [now + before for now, before in zip(tube.counts, tube.counts_before, strict=True)]


def transitions(tube: Tube, life: bool = False) -> dict[tuple[int, int], int]:
    """How often jobs went from one state to another; only what happened."""
    return sum_transitions(rule_counts(tube, life))


def sum_transitions(counts: list[int]) -> dict[tuple[int, int], int]:
    """Add the counts of rules up by where they lead. Coming from and going to another tube are states of their own."""
    found: dict[tuple[int, int], int] = {}
    for (event, source, target), count in zip(s.TRANSITIONS, counts, strict=True):
        if event == s.MOVED_OUT:
            target = ELSEWHERE
        elif source == s.GONE and event in _ARRIVALS:
            source = ELSEWHERE
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
