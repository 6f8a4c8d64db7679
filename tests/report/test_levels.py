"""Levels and peaks from groups of events equal those of a plain model that goes through single events."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.report.gold import Gold
from penstock.report.levels import STATES

from .memory_source import MemorySource, minute

# An event changes the number of ready and taken jobs of a tube in a minute.
EVENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(-3, 5), st.integers(-3, 5)), max_size=60
)


def groups(events: list[tuple[str, int, int, int]], sizes: list[int]) -> list[dict[str, Any]]:
    """Return rows of flows: consecutive events of a tube in a minute are cut into groups."""
    by_place: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for tube, at, ready, taken in events:
        by_place[tube, at].append((ready, taken))
    rows = []
    for (tube, at), found in by_place.items():
        start = 0
        while start < len(found):
            size = sizes[(start + at) % len(sizes)]
            row = {"tube": tube, "minute": minute(at), "node": "n", "position": start}
            for name, changes in zip(("ready", "taken"), zip(*found[start : start + size])):
                sums = [sum(changes[: end + 1]) for end in range(len(changes))]
                row[name] = sums[-1]
                row[f"{name}_peak"] = max(0, *sums)
            rows.append(row)
            start += size
    return rows


@given(EVENTS, st.lists(st.integers(1, 5), min_size=1), st.integers(0, 9), st.randoms())
def test_levels_and_peaks_equal_those_of_single_events(
    events: list[tuple[str, int, int, int]], sizes: list[int], before: int, chance: Any
) -> None:
    rows = groups(events, sizes)
    chance.shuffle(rows)
    gold = Gold(MemorySource({"flows": rows}, opening=[{"tube": "a", "ready": before}, {"tube": "a", "taken": 1}]))
    levels = gold.levels(["a", "b"])
    for tube in "ab":
        ready, taken = (before, 1) if tube == "a" else (0, 0)
        ends: dict[Any, tuple[int, int]] = {}
        peaks: dict[Any, tuple[int, int]] = {}
        for name, at, more_ready, more_taken in sorted(events, key=lambda event: event[1]):
            if name != tube:
                continue
            high = peaks.get(minute(at), (ready, taken))
            ready, taken = ready + more_ready, taken + more_taken
            peaks[minute(at)] = max(high[0], ready), max(high[1], taken)
            ends[minute(at)] = ready, taken
        found = levels[tube].to_pylist() if tube in levels else []
        assert {row["minute"]: (row["ready"], row["taken"]) for row in found} == ends
        for moment, (most_ready, most_taken) in peaks.items():
            mine = [row for row in found if row["minute"] == moment]
            assert max(row["ready_peak"] for row in mine) == most_ready
            assert max(row["taken_peak"] for row in mine) == most_taken


def test_levels_are_added_over_nodes() -> None:
    rows = [
        {"tube": "a", "minute": minute(at), "node": node, "position": at, "ready": 2, "ready_peak": 5, "buried": 1}
        for at in range(3)
        for node in ("m", "n")
    ]
    last = Gold(MemorySource({"flows": rows})).levels(["a"])["a"].to_pylist()[-1]
    assert {state: last[state] for state in STATES} == {"ready": 12, "taken": 0, "delayed": 0, "buried": 6, "kept": 0}
    assert last["ready_peak"] == 10 + 5
