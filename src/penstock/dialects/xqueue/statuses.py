"""The statuses and the statistics of xqueue."""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core import views
from penstock.core.tube import Tube

# xqueue's letters for states, by the number of the state. The last letter, S, stands for another tube. Staged jobs are
# not visible yet.
STATUS_LETTERS: Final = ["X", "R", "T", "W", "B", "D", "Z", "X", "S"]
# By the number of the state: the names of the counts in the pretty form of the statistics.
STATUS_WORDS: Final = ["X", "Ready", "Taken", "Waiting", "Buried", "Done", "Zombie"]


def space_stats(tube: Tube, pretty: bool = False) -> dict[str, object]:
    """Return the result of `space:stats()`: how many tasks have each status, and how many transitions there were.

    The result also has these numbers for each job key in the option `tube_stats` (in xqueue, these keys are called
    tubes). Transitions are counted since the node started. If `pretty` is set, statuses are words; transitions always
    have letters.
    """
    names = STATUS_WORDS if pretty else STATUS_LETTERS
    return {
        "counts": _counts(views.states(tube), names),
        "transition": _transitions(tube.counts),
        "tube": {
            key.decode("utf-8", "backslashreplace"): {
                "counts": _counts(counted.states, names),
                "transition": _transitions(counted.counts),
            }
            for key, counted in tube.key_stats.items()
        },
    }


def _counts(states: list[int], names: list[str]) -> dict[str, int]:
    return {names[state]: states[state] for state in range(s.READY, s.STAGED)}


def _transitions(counts: list[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (source, target), count in views.sum_transitions(counts).items():
        if STATUS_LETTERS[source] != STATUS_LETTERS[target]:
            name = f"{STATUS_LETTERS[source]}-{STATUS_LETTERS[target]}"
            found[name] = found.get(name, 0) + count
    return found
