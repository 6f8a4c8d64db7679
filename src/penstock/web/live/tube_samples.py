"""The tubes of a node with their rates: how many jobs per second were put, and how many left.

Rates are the difference of two samples of the counters. One sampler serves all requests and streams of a user.
"""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.client.commands import REPEAT, Call, items, octets
from penstock.web import node_replies
from penstock.web.credentials import Credentials
from penstock.web.live.duration_samples import DurationSampler
from penstock.web.node_pool import NodePool

_PAGE: Final = 1_000

# Samples that are closer together than this would give noisy rates. Older ones would give rates of the distant past.
_CLOSE_S: Final = 0.5
_OLD_S: Final = 120.0

# The flow of a tube: its name in the reply of the node, and the name of its rate.
_FLOW: Final = {"entered": "in_rate", "taken": "take_rate", "acked": "ack_rate", "failed": "fail_rate"}
RATES: Final = (*_FLOW.values(), "out_rate")

_NOTHING: Final = [0] * len(RATES)

Row = dict[str, Any]


class TubeSampler:
    """Reads the tubes that a user may see."""

    def __init__(self) -> None:
        self._before: dict[str, list[int]] = {}
        self._at = 0.0
        self._rates: dict[str, dict[str, float]] = {}
        self.durations = DurationSampler()

    async def read(self, pool: NodePool, who: Credentials, client: str, pattern: bytes = b"") -> list[Row]:
        """Return the rows of all tubes whose names match the pattern, in the order of their creation."""
        rows: list[Row] = []
        cursor = b"0"
        match = [b"MATCH", pattern] if pattern else []
        while True:
            words = [b"TUBE", b"SCAN", cursor, b"COUNT", b"%d" % _PAGE, b"FLOW", *match]
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
        counts = {row["name"]: _counts(row, row.pop("flow")) for row in rows}
        if is_complete and elapsed >= _CLOSE_S:
            before, self._before, self._at = self._before, counts, now
            self._rates = {}
            if elapsed < _OLD_S:
                for name, newer in counts.items():
                    # A tube that the last sample did not have was created since then.
                    older = before.get(name, _NOTHING)
                    steps = [max(0, count - last) / elapsed for count, last in zip(newer, older, strict=True)]
                    self._rates[name] = {rate: round(step, 3) for rate, step in zip(RATES, steps, strict=True)}
        for row in rows:
            row.update(self._rates.get(row["name"]) or dict.fromkeys(RATES))


def _counts(row: Row, flow: dict[str, int]) -> list[int]:
    """Return the counters of a tube, in the order of RATES. Jobs that entered and are not there have left."""
    left = flow["entered"] - sum(int(row[state]) for state in node_replies.STATES if state != "staged")
    return [*(flow[name] for name in _FLOW), left]
