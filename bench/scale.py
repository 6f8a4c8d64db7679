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

    def calls(self, full: int) -> int:
        """How often to do a thing in one sample."""
        count = full // 5 if self.quick else full
        return count if self.compiled else count // INTERPRETED_FACTOR

    def jobs(self, full: int, quick: int) -> int:
        """How many jobs to put into a queue. Interpreted, the quick number, which takes as long as the full one."""
        if not self.compiled and self.quick:
            return quick // INTERPRETED_FACTOR
        return full if self.compiled and not self.quick else quick
