"""From which nodes the jobs come that a client takes: if most come from another node than its own, it goes there.

Every id names the node that made the job. One that was made elsewhere was sent for, which costs messages and time; at
the node where most are made, they need not be. This is what Disque's document proposes to clients. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

# Of so many jobs, most have to come from one node. Twice as many count half: it is about the present.
_JOBS: Final = 100

# A client that has moved stays for so long.
_STAYS_S: Final = 10.0


class Sources:
    """What the ids of jobs tell about where they come from.

    Threads may count at the same time: one that is lost by that does not matter, and nobody looks through the counts
    themselves while they change.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0
        self._moved = -_STAYS_S

    def took(self, ids: Collection[str]) -> None:
        """These were taken."""
        for id in ids:
            maker = id[2:10]
            self._counts[maker] = self._counts.get(maker, 0) + 1
        self._total += len(ids)
        if self._total >= 2 * _JOBS:
            self._counts = {maker: count // 2 for maker, count in list(self._counts.items()) if count > 1}
            self._total //= 2

    def main(self) -> str:
        """The first eight characters of the id of the node that most jobs come from; empty if there is none."""
        if self._total < _JOBS:
            return ""
        counts = dict(self._counts)
        maker = max(counts, key=lambda each: counts[each], default="")
        return maker if maker and 2 * counts[maker] > self._total else ""

    def may_move(self, now: float) -> bool:
        """Whether the last move was long enough ago."""
        return now - self._moved >= _STAYS_S

    def moved(self, now: float) -> None:
        """The client goes to another node, or tries to."""
        self._moved = now
        self._counts = {}
        self._total = 0
