"""The words of Tarantool's queue, today's API: its states and its statistics."""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core import stats
from penstock.core.tube import Tube

# By the number of the state. A zombie is done for those who do not know zombies, and what is staged is not there yet.
STATE_LETTERS: Final = ["-", "r", "t", "~", "!", "-", "-", "-"]

# What counts as which call. Each event is in one of them at most, so nothing is counted twice.
_CALLS: Final[dict[str, list[int]]] = {
    "put": [s.PUT, s.PUT_DELAYED, s.PUT_URGENT, s.PUBLISHED, s.PUBLISHED_DELAYED],
    "take": [s.TOOK, s.CLAIMED],
    "ack": [s.ACKED, s.KEPT, s.LINGERED],
    "release": [
        s.RELEASED,
        s.POSTPONED,
        s.REQUEUED,
        s.NACKED,
        s.DISCONNECTED,
        s.UNDELIVERED,
        s.SNATCHED,
        s.SNATCHED_DELAYED,
        s.CLAIM_ENDED,
    ],
    "bury": [s.BURIED_BY, s.EXHAUSTED, s.SWITCHED_BURIED],
    "kick": [s.KICKED, s.KICKED_DELAYED],
    "delete": [s.DELETED, s.TRUNCATED, s.DISCARDED],
    "touch": [s.TOUCHED],
    "ttl": [s.EXPIRED],
    "ttr": [s.TTR_PASSED],
    "delay": [s.DELAY_PASSED],
}


def statistics(tube: Tube) -> dict[str, dict[str, int]]:
    """`queue.statistics(name)`: how many tasks are in each state, and how often each thing happened since start.

    `done` counts tasks that ended, in whatever way; it is not part of `total`.
    """
    events = stats.events(tube)
    calls = {call: sum(events[event] for event in counted) for call, counted in _CALLS.items()}
    tasks = {
        "ready": tube.count_in(s.READY),
        "taken": tube.count_in(s.TAKEN),
        "buried": tube.count_in(s.BURIED),
        "delayed": tube.count_in(s.DELAYED),
    }
    return {
        "tasks": {**tasks, "total": sum(tasks.values()), "done": calls["ack"] + calls["delete"] + calls["ttl"]},
        "calls": calls,
    }
