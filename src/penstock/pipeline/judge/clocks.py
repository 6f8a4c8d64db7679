"""What the events show about the clocks of the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class NodeClock:
    """The times of the events of one node."""

    node: str
    first: datetime  # The least time of its events.
    newest: datetime  # The time of its event with the greatest position.
    behind_ms: int  # How much older its newest event is than the newest event of all nodes.
    # The difference of this clock to the clocks of the nodes from which it got jobs, in ms; positive if this clock is
    # ahead. None if it got no jobs. It includes the time that a job was on the way.
    ahead_ms: int | None


def node_clocks(nodes: list[str], found: dict[int, dict[str, Any]]) -> list[NodeClock]:
    """Return the clocks of these nodes. `found` has the rows of sql/judge/nodes.sql by the number of the node."""
    newest = max((row["newest"] for row in found.values()), default=0)
    return [
        NodeClock(
            nodes[number - 1], _time(row["earliest"]), _time(row["newest"]), newest - row["newest"], row["ahead_ms"]
        )
        for number, row in sorted(found.items())
    ]


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
