"""The words of Tarantool's queue, the 1.5 API: its states, its statistics, its priorities."""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core import stats
from penstock.core.limits import PRIORITY_BACK, PRIORITY_FRONT
from penstock.core.tube import Tube

STATE_WORDS: Final = ["done", "ready", "taken", "delayed", "buried", "done", "done", "done"]

# Its counters that are transitions, and the events they count.
_COUNTERS: Final[dict[str, list[int]]] = {
    "put": [s.PUT, s.PUT_DELAYED, s.PUBLISHED, s.PUBLISHED_DELAYED],
    "urgent": [s.PUT_URGENT],
    "take": [s.TOOK, s.CLAIMED],
    "ack": [s.ACKED],
    "release": [s.RELEASED, s.POSTPONED, s.NACKED],
    "requeue": [s.REQUEUED],
    "bury": [s.BURIED_BY, s.EXHAUSTED],
    "done": [s.KEPT],
    "dig": [s.KICKED, s.KICKED_DELAYED],
    "touch": [s.TOUCHED],
    "delete": [s.DELETED],
    "ready_by_disconnect": [s.DISCONNECTED],
}
_TASKS: Final = [
    ("ready", s.READY),
    ("delayed", s.DELAYED),
    ("taken", s.TAKEN),
    ("buried", s.BURIED),
    ("done", s.DONE),
]


def statistics(space: int, name: str, tube: Tube, calls: dict[str, int]) -> list[str]:
    """`queue.statistics(space, tube)`: a flat list of names and values, all of them strings.

    A tube on which nothing happened since start has no part in it. `calls` are the counters of what changes no job:
    take_timeout, peek, meta.
    """
    events = stats.events(tube)
    found = {counter: sum(events[event] for event in counted) for counter, counted in _COUNTERS.items()}
    found.update(calls)
    found.update(_expired(tube))
    found = {counter: count for counter, count in found.items() if count}
    if not found:
        return []
    states = {f"tasks.{word}": tube.count_in(state) for word, state in _TASKS}
    found.update({"tasks.total": sum(states.values()), **states})
    flat: list[str] = []
    for counter, count in found.items():
        flat += [f"space{space}.{name}.{counter}", str(count)]
    return flat


def _expired(tube: Tube) -> dict[str, int]:
    """How many tasks their ttl ended, in all and by the state it found them in."""
    found: dict[str, int] = {"ttl.total": 0}
    for (event, source, _), count in zip(s.TRANSITIONS, stats.rule_counts(tube, life=False), strict=True):
        if event == s.EXPIRED:
            found["ttl.total"] += count
            found[f"ttl.{STATE_WORDS[source]}"] = count
    return found


def priority_inside(pri: int) -> int:
    """Its 0 to 255, higher first, as the engine has it: lower first."""
    return 255 - pri


def priority_outside(priority: int) -> int:
    """The engine's priority as 0 to 255, higher first; what urgent and requeue set aside is the outermost."""
    if priority == PRIORITY_FRONT:
        return 255
    if priority == PRIORITY_BACK:
        return 0
    return max(0, min(255, 255 - priority))
