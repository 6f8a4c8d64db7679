"""The tubes of a node with their rates: how many jobs per second were put, and how many left.

Rates are the difference of two samples of the counters. One sampler serves all requests and streams of a user.
"""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.client.commands import REPEAT, Call, items, octets
from penstock.web import node_replies
from penstock.web.credentials import Credentials
from penstock.web.node_pool import NodePool

_PAGE: Final = 1_000

# Samples that are closer together than this would give noisy rates. Older ones would give rates of the distant past.
_CLOSE_S: Final = 0.5
_OLD_S: Final = 120.0

# With more tubes than this, the counters of tubes without jobs are not read.
_ENTERING: Final = ("put",)

Row = dict[str, Any]


class TubeSampler:
    """Reads the tubes that a user may see."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._at = 0.0
        self._rates: dict[str, tuple[float, float]] = {}

    async def read(self, pool: NodePool, who: Credentials, client: str, pattern: bytes = b"") -> list[Row]:
        """Return the rows of all tubes whose names match the pattern, in the order of their creation."""
        rows: list[Row] = []
        cursor = b"0"
        match = [b"MATCH", pattern] if pattern else []
        while True:
            words = [b"TUBE", b"SCAN", cursor, b"COUNT", b"%d" % _PAGE, *match]
            answer = await pool.run(who, Call(words, items, REPEAT), client, alone=True)
            rows.extend(node_replies.tube_row(each) for each in items(answer[1]))
            cursor = octets(answer[0])
            if cursor == b"0":
                break
        self._add_rates(rows, is_complete=not pattern)
        return rows

    def _add_rates(self, rows: list[Row], is_complete: bool) -> None:
        now = time.monotonic()
        elapsed = now - self._at
        counts = {}
        for row in rows:
            events = row.pop("events", {})
            row.pop("transitions", None)
            counts[row["name"]] = (_entered(events), _left(events, row))
        if is_complete and elapsed >= _CLOSE_S:
            before, self._before, self._at = self._before, counts, now
            self._rates = {}
            if elapsed < _OLD_S:
                for name, (put, left) in counts.items():
                    if name in before:
                        self._rates[name] = (
                            max(0, put - before[name][0]) / elapsed,
                            max(0, left - before[name][1]) / elapsed,
                        )
        for row in rows:
            rates = self._rates.get(row["name"])
            row["in_rate"], row["out_rate"] = (
                (None, None) if rates is None else (round(rates[0], 3), round(rates[1], 3))
            )


def _entered(events: dict[str, int]) -> int:
    return sum(events.get(name, 0) for name in _ENTERING)


def _left(events: dict[str, int], row: Row) -> int:
    """Return how many jobs have left a tube: those that entered and are not in it."""
    return _entered(events) - sum(int(row[state]) for state in node_replies.STATES)
