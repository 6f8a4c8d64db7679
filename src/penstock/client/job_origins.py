"""The nodes that created the taken jobs. If most jobs come from another node, the client moves to that node.

Every job id names the node that created the job. A job from another node has to be fetched, which costs messages and
time. Disque's documentation recommends that clients move in this way. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

# The client moves if most of at least this many jobs come from one node. At twice this number, all counts are halved,
# so that recent jobs count most.
_JOBS: Final = 100

# The minimum time between two moves.
_STAYS_S: Final = 10.0


class JobOrigins:
    """The number of taken jobs per node.

    Threads can count at the same time. A lost count does not matter, and no thread iterates over the counts while they
    change.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0
        self._moved = -_STAYS_S

    def took(self, ids: Collection[str]) -> None:
        for id in ids:
            maker = id[2:10]
            self._counts[maker] = self._counts.get(maker, 0) + 1
        self._total += len(ids)
        if self._total >= 2 * _JOBS:
            self._counts = {maker: count // 2 for maker, count in list(self._counts.items()) if count > 1}
            self._total //= 2

    def main(self) -> str:
        """Return the first 8 characters of the id of the node that created more than half of the taken jobs, or ""."""
        if self._total < _JOBS:
            return ""
        counts = dict(self._counts)
        maker = max(counts, key=lambda each: counts[each], default="")
        return maker if maker and 2 * counts[maker] > self._total else ""

    def may_move(self, now: float) -> bool:
        """Return whether the last move was long enough ago."""
        return now - self._moved >= _STAYS_S

    def moved(self, now: float) -> None:
        """Reset the counts, because the client moves to another node or tries to."""
        self._moved = now
        self._counts = {}
        self._total = 0
