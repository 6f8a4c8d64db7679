"""Nodes that refused to hold a copy of a job within the last second.

A node that refuses a copy answers NOTHELD. For one second, the node does not count for the default number of copies and
is asked last. After that, it may have memory or disk space again.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import IS_PAUSED, NOT_VALID

REMEMBERED_MS: Final = 1_000

# Limits the refusals that concern one queue only. When there are more, all are dropped; new answers fill the table
# again.
_QUEUES_MAX: Final = 10_000


class Refusals:
    """Nodes that are not expected to accept copies now: copies of all jobs, or only of the jobs of one queue."""

    _nodes: dict[bytes, i64]  # The time until which a node is not expected to hold copies.
    _queues: dict[
        tuple[bytes, bytes], i64
    ]  # The time until which a node is not expected to hold copies of jobs of one queue.

    def __init__(self) -> None:
        self._nodes = {}
        self._queues = {}

    def add(self, node: bytes, queue: bytes, reason: i64, now: i64) -> None:
        """Record that `node` refused a copy of a job of `queue`."""
        if reason == IS_PAUSED:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues.clear()
            self._queues[node, queue] = now + REMEMBERED_MS
        elif reason != NOT_VALID:
            self._nodes[node] = now + REMEMBERED_MS

    def remove(self, node: bytes, queue: bytes) -> None:
        """Remove the refusals of `node`, because it now holds a copy of a job of `queue`."""
        if self._nodes or self._queues:
            self._nodes.pop(node, None)
            self._queues.pop((node, queue), None)

    def refuses(self, node: bytes, queue: bytes, now: i64) -> bool:
        """Return whether a node is not expected to accept a copy of a job of `queue`."""
        if not self._nodes and not self._queues:
            return False
        return self._nodes.get(node, 0) > now or self._queues.get((node, queue), 0) > now
