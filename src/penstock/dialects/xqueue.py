"""The words of xqueue: its statuses and its statistics."""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core import stats
from penstock.core.tube import Tube

# By the number of the state, and one more: S, another tube. What is staged is not there yet.
STATUS_LETTERS: Final = ["X", "R", "T", "W", "B", "D", "Z", "X", "S"]
STATUS_WORDS: Final = ["none", "ready", "taken", "waiting", "buried", "done", "zombie", "none", "moved"]


def space_stats(tube: Tube, pretty: bool = False) -> dict[str, object]:
    """`space:stats()`: how many tasks have each status, how they changed since start, and the same for each tube.

    A space is a tube here, and its tubes are keys: those that were declared to be counted.
    """
    names = STATUS_WORDS if pretty else STATUS_LETTERS
    return {
        "counts": _counts(stats.states(tube), names),
        "transition": _transitions(tube.counts, names),
        "tube": {
            key.decode("utf-8", "backslashreplace"): {
                "counts": _counts(counted.states, names),
                "transition": _transitions(counted.counts, names),
            }
            for key, counted in tube.key_stats.items()
        },
    }


def _counts(states: list[int], names: list[str]) -> dict[str, int]:
    return {names[state]: states[state] for state in range(s.READY, s.STAGED)}


def _transitions(counts: list[int], names: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (source, target), count in stats.sum_transitions(counts).items():
        if names[source] != names[target]:
            name = f"{names[source]}-{names[target]}"
            found[name] = found.get(name, 0) + count
    return found
