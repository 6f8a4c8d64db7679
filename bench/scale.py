"""The size of a run: full or quick, and smaller for an interpreted engine so that it takes the same time."""

from __future__ import annotations

from dataclasses import dataclass

# An interpreted engine is slower by about this factor, so its amount of work is divided by it.
INTERPRETED_FACTOR = 10


@dataclass(frozen=True)
class Scale:
    """The size of a run."""

    quick: bool
    compiled: bool
    against: tuple[str, ...] = ()  # Other servers with the Disque protocol, as host:port.

    @property
    def rounds(self) -> int:
        """Number of short samples. Among many samples of a few milliseconds, some are not disturbed by others."""
        return 12 if self.quick else 50

    @property
    def rounds_long(self) -> int:
        """Number of samples that take seconds each."""
        return 2 if self.quick else 3

    @property
    def rounds_server(self) -> int:
        """Number of samples with several processes, each of which may be delayed."""
        return 2 if self.quick else 5

    def calls(self, compiled: int) -> int:
        """Return the number of calls in one short sample."""
        return compiled if self.compiled else compiled // INTERPRETED_FACTOR

    def jobs(self, full: int, quick: int) -> int:
        """Return the number of jobs of a queue. An interpreted engine uses the quick number, which takes as long."""
        if self.quick:
            return quick if self.compiled else quick // INTERPRETED_FACTOR
        return full if self.compiled else quick


def said(count: int) -> str:
    """Return a number as it is written in names of rows: 24, 1k, 5M."""
    if count >= 1_000_000 and count % 1_000_000 == 0:
        return f"{count // 1_000_000}M"
    return f"{count // 1_000}k" if count >= 1_000 and count % 1_000 == 0 else str(count)
