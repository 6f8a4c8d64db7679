"""How long jobs waited and ran recently, over all tubes: the difference of two samples of the node's histograms."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from penstock.client.commands import REPEAT, Call
from penstock.core.errors import CommandError
from penstock.web import node_replies
from penstock.web.credentials import Credentials
from penstock.web.node_pool import NodePool

# The histograms of the tubes with the most deliveries are read. All tubes would cost the node too much.
TUBES_MAX: Final = 50
# Samples that are closer together have too few durations. Samples that are further apart are not recent.
_CLOSE_S: Final = 2.0
_OLD_S: Final = 120.0
_KINDS: Final = ("waits", "runs")

Buckets = dict[str, list[int]]


class DurationSampler:
    """Reads the histograms of one user's tubes."""

    def __init__(self) -> None:
        self._before: dict[str, Buckets] = {}
        self._at = 0.0
        self._last: dict[str, int | None] = {f"{kind.removesuffix('s')}_p95_ms": None for kind in _KINDS}

    async def read(
        self, pool: NodePool, who: Credentials, client: str, rows: list[dict[str, Any]]
    ) -> dict[str, int | None]:
        """Return the 95th percentiles since the last sample. None: no job was taken, or none was acked."""
        elapsed = time.monotonic() - self._at
        if elapsed < _CLOSE_S:
            return self._last
        busy = sorted((row for row in rows if row["take_rate"] or row["ack_rate"]), key=lambda row: -row["take_rate"])
        names = [row["name"] for row in busy[:TUBES_MAX]]
        found = await asyncio.gather(*(self._read_tube(pool, who, client, name) for name in names))
        newest = {name: buckets for name, buckets in zip(names, found, strict=True) if buckets is not None}
        before = self._before if elapsed < _OLD_S else {}
        self._before, self._at = newest, time.monotonic()
        self._last = {
            f"{kind.removesuffix('s')}_p95_ms": percentile(
                [_new(before[name][kind], now[kind]) for name, now in newest.items() if name in before], 0.95
            )
            for kind in _KINDS
        }
        return self._last

    async def _read_tube(self, pool: NodePool, who: Credentials, client: str, name: str) -> Buckets | None:
        words = [b"TUBE", b"STATS", name.encode("utf-8", "surrogateescape")]
        try:
            told = await pool.run(who, Call(words, node_replies.fields, REPEAT), client)
        except CommandError:
            return None  # The tube was dropped meanwhile.
        return {kind: told[kind]["buckets"] for kind in _KINDS}


def _new(before: list[int], now: list[int]) -> list[int]:
    return [max(0, count - (before[at] if at < len(before) else 0)) for at, count in enumerate(now)]


def percentile(histograms: list[list[int]], share: float) -> int | None:
    """Return a percentile in ms. Bucket 0 has durations below 1 ms, and bucket n those from 2^(n-1) to below 2^n ms."""
    counts = [0] * max(map(len, histograms), default=0)
    for buckets in histograms:
        for at, count in enumerate(buckets):
            counts[at] += count
    rest = share * sum(counts)
    for at, count in enumerate(counts):
        if count and rest <= count:
            low = 0 if at == 0 else 1 << (at - 1)
            return round(low + ((1 << at) - low) * rest / count)
        rest -= count
    return None
