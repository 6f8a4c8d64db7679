"""Statistics of a tube: sums over its counters of applied rules.

The engine increments the counter of a rule when it applies the rule. These functions only add counters up, so two
statistics cannot contradict each other.
"""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core.tube import Tube

# Used in transitions only: the job came from another tube, or moved to one.
ELSEWHERE: Final = s.STATES_COUNT
TRANSITION_NAMES: Final = [*s.STATE_NAMES, "elsewhere"]

_ARRIVALS: Final = frozenset(s.ARRIVALS[s.READY : s.STAGED])


def rule_counts(tube: Tube, life: bool) -> list[int]:
    """Return how often each rule was applied: since this start, or in the whole life of the tube."""
    if not life:
        return list(tube.counts)
    return [now + before for now, before in zip(tube.counts, tube.counts_before, strict=True)]


def transitions(tube: Tube, life: bool = False) -> dict[tuple[int, int], int]:
    """Return how often jobs went from one state to another. Pairs of states with the count 0 are left out."""
    return sum_transitions(rule_counts(tube, life))


def sum_transitions(counts: list[int]) -> dict[tuple[int, int], int]:
    """Add the counters of rules up by source and target state. Other tubes count as the state ELSEWHERE."""
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
    """Return how often each event happened, by its number."""
    found = [0] * s.EVENTS_COUNT
    for (event, _, _), count in zip(s.TRANSITIONS, rule_counts(tube, life), strict=True):
        found[event] += count
    return found


def states(tube: Tube) -> list[int]:
    """Return the number of jobs in each state, by its number."""
    return [tube.count_in(state) for state in range(s.STATES_COUNT)]
