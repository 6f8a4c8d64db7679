"""A span: consecutive positions of one node's log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The positions of a node's log from `start` up to `end`."""

    node: str
    start: int
    end: int  # The position after the last one.

    def overlaps(self, other: Span) -> bool:
        return self.node == other.node and self.start < other.end and other.start < self.end

    def joined(self, other: Span) -> Span:
        """Return the smallest span that contains both."""
        return Span(self.node, min(self.start, other.start), max(self.end, other.end))
