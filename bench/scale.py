"""How much is measured: the full form, the quick one, and what an interpreted engine can do in the same time."""

from __future__ import annotations

from dataclasses import dataclass

# An interpreted engine is about this much slower, so it gets as much less to do.
INTERPRETED_FACTOR = 10


@dataclass(frozen=True)
class Scale:
    """The form of a run."""

    quick: bool
    compiled: bool
    against: tuple[str, ...] = ()  # Other servers that speak Disque, as host:port.

    @property
    def rounds(self) -> int:
        """How many short samples: among many of a few milliseconds, some fall between the turns of other processes."""
        return 12 if self.quick else 50

    @property
    def rounds_long(self) -> int:
        """How many samples where one takes seconds."""
        return 2 if self.quick else 3

    @property
    def rounds_server(self) -> int:
        """How many samples where processes load each other, and any one may be held up."""
        return 2 if self.quick else 5

    def calls(self, compiled: int) -> int:
        """How often to do a thing in one short sample."""
        return compiled if self.compiled else compiled // INTERPRETED_FACTOR

    def jobs(self, full: int, quick: int) -> int:
        """How many jobs to put into a queue. Interpreted, the quick number takes as long as the full one compiled."""
        if self.quick:
            return quick if self.compiled else quick // INTERPRETED_FACTOR
        return full if self.compiled else quick


def said(count: int) -> str:
    """A number as rows are named by it: 24, 1k, 5M."""
    if count >= 1_000_000 and count % 1_000_000 == 0:
        return f"{count // 1_000_000}M"
    return f"{count // 1_000}k" if count >= 1_000 and count % 1_000 == 0 else str(count)
