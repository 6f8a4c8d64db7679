"""Checks of the model that `whatif` uses: whether it fits a tube, and how accurate it is on days that it has not seen.

In the model a worker holds one job at a time. A consumer that takes several jobs in one call holds most of them only in
its own buffer. The time from take to ack then contains that wait, and the number of jobs that are taken at the same
time is not the number of workers. For such a tube an estimate would be wrong by orders of magnitude, so it is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

# Two workers of one session can take jobs in the same millisecond by chance. A tube is refused above this share.
BULK_SHARE_MAX: Final = 0.2

# The last days are held out, one at a time.
HELD_OUT_DAYS_MAX: Final = 3


def bulk_share(takers: Sequence[Hashable], taken_at_ms: Sequence[int]) -> float:
    """Return the share of jobs that were taken in the same millisecond as another job, by the same taker."""
    takes = Counter(zip(takers, taken_at_ms))
    return sum(count for count in takes.values() if count > 1) / len(taken_at_ms) if taken_at_ms else 0.0


def misfit_of(tube: str, share: float) -> str:
    """Return a sentence why the model does not fit a tube with this share of bulk takes, or "" if it fits."""
    if share <= BULK_SHARE_MAX:
        return ""
    return (
        f"no estimate for {tube}: {share:.0%} of its jobs were taken together with others in one call, "
        "and the model has workers that hold one job at a time"
    )


@dataclass(frozen=True)
class HeldOut:
    """Measured and estimated wait times of a day. The number of workers was inferred from the other days."""

    tube: str
    day: str
    workers: int
    jobs: int
    wait_p50_ms: int
    wait_p95_ms: int
    wait_p99_ms: int
    estimated_p50_ms: int
    estimated_p95_ms: int
    estimated_p99_ms: int

    @property
    def error_p95(self) -> float | None:
        """The error of the estimated p95, as a share of the measured one. None if jobs did not wait."""
        return self.estimated_p95_ms / self.wait_p95_ms - 1 if self.wait_p95_ms else None
